"""Dispatch: finds the entry for a call, and handles misses.

In: a call of a jitted function. Out: the matching entry, or a new one.
Open first: `unit.py`.
"""
