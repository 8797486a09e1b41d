"""Events: what happened, as records.

In: facts from capture, code generation and runs. Out: a bounded log, trace files, loggers and the
progress line.
Open first: `events.py`.
"""
