"""The symbolic interpreter: one handler per instruction.

In: decoded instructions. Out: changes of the symbolic stack, locals and effects.
Open first: `machine.py`.
"""
