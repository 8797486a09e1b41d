"""The graph: nodes, metadata, schemas, and what is read off them.

In: recorded operators. Out: `Graph` and `Node`, layouts, effects, costs and printed forms.
Open first: `nodes.py`.
"""

from .nodes import *  # noqa: F403
