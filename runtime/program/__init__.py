"""Programs: the input of the executor, as data.

In: planned steps. Out: `ProgramSpec`, a list of steps over slots and registers.
Open first: `program.py`.
"""
