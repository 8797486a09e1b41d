"""C++ kernels: a loop nest becomes C++ text.

In: a loop nest. Out: C++ with vector types, without headers.
Open first: `renderer.py`.
"""
