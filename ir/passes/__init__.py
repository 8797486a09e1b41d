"""Passes: a graph becomes a simpler graph.

In: a graph. Out: an equivalent graph: cleaned, decomposed, without mutations of its own memory.
Open first: `pipeline.py`.
"""
