"""Tuning at level O2: variants of kernels are timed.

In: kernels with several tilings, products with several implementations. Out: the fastest one.
Open first: `cpu.py`.
"""
