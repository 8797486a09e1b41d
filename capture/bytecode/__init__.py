"""Bytecode in one form for all supported versions of CPython.

In: code objects. Out: decoded instructions, and encoded code objects.
Open first: `decoder.py`.
"""
