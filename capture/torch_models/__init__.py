"""Models of torch: calls, modes, autograd, optimizers.

In: calls into torch. Out: recorded operators, or a graph break.
Open first: `calls.py`.
"""
