"""Loop nests: the form between a graph and the text of a kernel.

In: extents, index expressions, operators. Out: `LoopNest` and its parts, and what can be derived
from them.
Open first: `loop_nest.py`.
"""
