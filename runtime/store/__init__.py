"""The kernel store: compiled kernels and notes on disk.

In: kernels, each under the hash of everything that decides its binary. Out: loaded libraries,
notes, and bundles for other machines.
Open first: `store.py`.
"""
