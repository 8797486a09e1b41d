"""Operations on values: calls, new objects, operators, items, truth, generators.

In: a callable, or an operator, and its operands as values. Out: the value that the model for these
kinds of operands gives.
Items and operators are in `operators.py`.
Open first: `calls.py`.
"""
