"""Models of builtin types: classes, containers, sets, enums, exceptions.

In: methods and operators of builtin types on symbolic values. Out: their results, or a graph break.
Open first: `container_methods.py`.
"""
