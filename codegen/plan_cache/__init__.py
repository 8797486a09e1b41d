"""Kept plans: graftjit plans a graph once per machine.

In: a graph. Out: its plan from the kernel store, or a note that keeps the plan.
Open first: `cache.py`.
"""
