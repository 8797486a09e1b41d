"""Python's data model over symbolic values.

In: attributes, arguments, iteration, numbers. Out: results by the language reference, or a graph break.
Open first: `attributes.py`.
"""
