"""Triton kernels: a loop nest becomes Triton text and a cubin.

In: a loop nest. Out: Triton text, compiled by worker processes.
Open first: `renderer.py`.
"""
