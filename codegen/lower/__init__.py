"""Lowering: from ATen operators to loop expressions.

In: a node of the graph. Out: loop-level values, one rule per operator.
Open first: `builder.py`.
"""
