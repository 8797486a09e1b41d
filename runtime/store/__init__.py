"""The kernel store: compiled kernels and notes on disk.

In: kernels by the hash of what they are made from. Out: loaded libraries, kept notes, bundles for
other machines.
Open first: `store.py`.
"""
