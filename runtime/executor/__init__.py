"""The executor: programs become native steps, and their Python mirror.

In: a `ProgramSpec`. Out: a native program, or one that runs in Python.
Open first: `lower.py`.
"""
