"""What an instruction does to values: calls, new objects, operators, items, truth, generators.

In: a callable or an operator and its operands as values. Out: the result's value, of the model that answers for the kinds of the
operands.
Open first: `calls.py`.
"""
