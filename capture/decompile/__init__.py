"""The decompiler: emitted bytecode becomes Python text, for `lower`.

In: a code object. Out: Python text.
Open first: `writer.py`.
"""
