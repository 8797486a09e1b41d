"""Symbolic values and their containers.

In: objects of the frame. Out: `Value` classes: constants, tensors, containers, symbolic numbers.
Open first: `value.py`.
"""
