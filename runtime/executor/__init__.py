"""The executor: a program becomes native steps, or a mirror in Python.

In: a `ProgramSpec`. Out: a native program, or its plain-Python mirror.
Open first: `lower.py`.
"""
