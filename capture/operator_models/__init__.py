"""Models of operators of other libraries, and of operators over functions.

In: calls of them. Out: recorded calls, walked functions, or a graph break.
Open first: `library_operators.py`.
"""
