"""Tracing: torch calls become nodes.

In: torch calls on tensors without data. Out: a graph on two levels: torch calls and ATen operators;
its joint with the backward.
Open first: `tracer.py`.
"""
