"""Python's data model over symbolic values.

In: attributes, arguments, iteration, numbers. Out: what the language reference says, or a
graph break.
Open first: `attributes.py`.
"""
