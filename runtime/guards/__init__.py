"""Guards: the conditions under which an entry holds.

In: guard rows with the source of each value. Out: a native guard program, its mirror in Python, and
texts of what failed.
Open first: `rows.py`.
"""
