"""CUDA: driver, streams, launches, CUDA graphs.

In: programs with steps for a GPU. Out: launched kernels; recorded and replayed graphs.
Open first: `driver.py`.
"""
