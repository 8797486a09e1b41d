"""Python's data model over symbolic values.

In: attributes, calls, operators, iteration, truth. Out: what the language reference says, or a
graph break.
Open first: `calls.py`.
"""
