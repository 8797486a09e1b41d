"""C++ kernels: a loop nest becomes text.

In: a loop nest. Out: C++ with vector types, no headers.
Open first: `renderer.py`.
"""
