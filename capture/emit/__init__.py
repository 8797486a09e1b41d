"""Emission: the final state becomes code.

In: the state where a walk ended. Out: replacement code and resume functions.
Open first: `emitter.py`.
"""
