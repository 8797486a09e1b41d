"""Fusion: from nodes to units, from units to loop nests.

In: a graph. Out: fused units in order, their nests, and why others were not fused.
Open first: `fuse.py`.
"""
