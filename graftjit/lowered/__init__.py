"""The stages of a compilation, as printable objects.

In: a call. Out: `Lowered`: graphs, kernels, programs, guards.
Open first: `lowered.py`.
"""
