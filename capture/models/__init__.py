"""Models of builtin functions and of the standard library.

In: calls of functions written in C. Out: their results over symbolic values, or a graph break.
Open first: `builtins.py`.
"""
