"""C++ kernels: from a loop nest to text.

In: a loop nest. Out: C++ with vector types, without headers.
Open first: `renderer.py`.
"""
