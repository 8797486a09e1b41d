"""Events: records of everything that happens.

In: facts from capture, code generation and runs. Out: a bounded log, trace files, log lines and the
progress line.
Open first: `events.py`.
"""
