"""Autograd: one node around a forward and a backward program.

In: a forward and a backward program. Out: one autograd node with eager's hooks, errors and random
numbers.
Open first: `joint_program.py`.
"""
