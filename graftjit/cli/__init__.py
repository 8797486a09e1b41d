"""The command line.

In: arguments of `python -m graftjit`. Out: one command per file.
Open first: `main.py`.
"""
