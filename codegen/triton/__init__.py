"""Triton kernels: from a loop nest to text and to a cubin.

In: a loop nest. Out: Triton text, compiled by worker processes.
Open first: `renderer.py`.
"""
