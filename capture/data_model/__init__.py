"""Python's data model over values: attributes, arguments, iteration, numbers.

In: attributes, arguments, iteration, numbers. Out: results by the language reference, or a graph
break. Open first: `attributes.py`.
"""
