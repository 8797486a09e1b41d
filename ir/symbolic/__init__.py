"""Symbolic integers and floats: expressions, and answers to comparisons.

In: numbers that may differ from call to call. Out: expressions in canonical form, SymInt and
SymFloat nodes over them, and answers to comparisons.
Open first: `expr.py`.
"""
