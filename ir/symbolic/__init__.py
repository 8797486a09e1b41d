"""Symbolic integers and floats.

In: numbers that may differ from call to call. Out: expressions in canonical form, SymInt and
SymFloat nodes over them, and answers to comparisons.
Open first: `expr.py`.
"""
