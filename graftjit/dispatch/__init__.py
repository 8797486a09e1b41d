"""Dispatch: from a call to an entry, and what a miss does.

In: a call of a marked function. Out: the entry that holds, or a new one.
Open first: `unit.py`.
"""
