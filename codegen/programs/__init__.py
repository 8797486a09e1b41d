"""Compiled graphs: the program, its fallback, its check against eager mode.

In: a program and its graph. Out: a callable; its fallback, its comparison with eager, the facts of
its steps.
Open first: `compiled.py`.
"""
