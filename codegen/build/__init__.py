"""The C++ compiler: text becomes a loaded library.

In: C++ text. Out: a loaded library, now or in the background.
Open first: `cxx.py`.
"""
