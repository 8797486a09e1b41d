"""Bytecode: code objects in one form for all versions of CPython.

In: code objects. Out: decoded instructions, and encoded code objects.
Open first: `decoder.py`.
"""
