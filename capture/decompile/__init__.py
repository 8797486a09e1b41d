"""The decompiler: emitted code as Python text, for `lower`.

In: a code object. Out: Python text.
Open first: `writer.py`.
"""
