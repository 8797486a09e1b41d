"""Passes: each takes a graph and returns an equivalent, simpler one.

In: a graph. Out: an equivalent graph: cleaned, decomposed, without mutations of its own memory.
Open first: `pipeline.py`.
"""
