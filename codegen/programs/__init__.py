"""What a compiled graph is at run time.

In: a program and the graph it came from. Out: a callable; its fallback, its check against eager,
the facts of its steps.
Open first: `compiled.py`.
"""
