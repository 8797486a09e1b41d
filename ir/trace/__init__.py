"""Tracing: torch calls on tensors without data become nodes.

In: torch calls on tensors without data. Out: a graph on two levels (torch calls and ATen
operators), and its joint graph with the backward.
Open first: `tracer.py`.
"""
