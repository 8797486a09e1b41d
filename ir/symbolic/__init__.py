"""Symbolic integers and floats.

In: numbers whose value a graph does not fix. Out: expressions in canonical form, SymInt and
SymFloat nodes over them, and answers to comparisons.
Open first: `expr.py`.
"""
