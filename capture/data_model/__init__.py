"""Python's data model over values: attributes, arguments, iteration, numbers.

In: a value and an operation on it. Out: results by the language reference, or a graph break.
Open first: `attributes.py`.
"""
