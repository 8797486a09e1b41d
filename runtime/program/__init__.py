"""Programs: what the executor runs, as data.

In: planned steps. Out: `ProgramSpec`: steps over registers and slots.
Open first: `program.py`.
"""
