"""Dispatch: what a miss does, from the callable to a published entry.

In: a call of a jitted function. Out: the matching entry, or a new one.
Open first: `unit.py`.
"""
