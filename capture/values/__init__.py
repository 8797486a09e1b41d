"""Symbolic values, the frames that hold them, and the state of a walk.

In: objects of the frame. Out: `Value` classes: constants, tensors, containers, symbolic numbers.
Open first: `value.py`.
"""
