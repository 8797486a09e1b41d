"""The executor: lowers programs to native steps, and runs them.

In: a `ProgramSpec`. Out: a native program, or its plain-Python mirror.
Open first: `lower.py`.
"""
