"""Emission: the state at the end of a walk becomes bytecode.

In: the state where a walk ended. Out: replacement code and resume functions.
Open first: `emitter.py`.
"""
