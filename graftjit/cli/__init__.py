"""The command line, `python -m graftjit`.

In: arguments of `python -m graftjit`. Out: text and an exit status. Each command has a file.
Open first: `main.py`.
"""
