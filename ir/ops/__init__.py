"""Operators: the table, result metadata, and which may raise.

In: an operator and the metadata of its arguments. Out: the metadata of its result, and whether it
may raise.
Open first: `table.py`.
"""
