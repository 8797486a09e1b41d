"""Graphs and nodes: metadata, schemas, layouts, effects, costs, printed form.

In: recorded operators. Out: `Graph` and `Node`, layouts, effects, costs and printed forms.
Open first: `nodes.py`.
"""

from .nodes import *  # noqa: F403
