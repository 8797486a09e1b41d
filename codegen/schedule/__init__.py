"""The schedule: units become the steps of a program.

In: fused units. Out: steps in order, with memory assigned.
Open first: `plan.py`.
"""
