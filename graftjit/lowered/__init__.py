"""The stages of a compilation, as objects that print, for `lower`.

In: a call. Out: `Lowered`: graphs, kernels, programs, guards.
Open first: `lowered.py`.
"""
