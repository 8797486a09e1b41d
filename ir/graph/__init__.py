"""The graph: nodes, metadata, operator schemas, and analyses of a graph.

In: recorded operators. Out: `Graph` and `Node`, layouts, effects, costs and printed forms.
Open first: `nodes.py`.
"""

from .nodes import *  # noqa: F403
