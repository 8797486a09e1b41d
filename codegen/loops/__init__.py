"""The loop IR: loop nests, the form between graph and kernel text.

In: extents, index expressions, operators. Out: `LoopNest` and its parts, and what can be derived
from them.
Open first: `loop_nest.py`.
"""
