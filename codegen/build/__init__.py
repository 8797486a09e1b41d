"""The C++ compiler: from text to a library.

In: C++ text. Out: a loaded library, now or in the background.
Open first: `cxx.py`.
"""
