"""Guards: the conditions under which an entry may answer a call.

In: guard rows with the source of each value. Out: a native guard program, its mirror in Python, and
texts that explain a failed guard.
Open first: `rows.py`.
"""
