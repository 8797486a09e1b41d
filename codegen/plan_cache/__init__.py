"""Kept plans: planning is done once per graph and machine.

In: a graph. Out: the plan from the kernel store, or a note that keeps it.
Open first: `cache.py`.
"""
