"""The process: session, options, interpreter, hardware, faults.

In: environment variables, `JitConfig`, the running interpreter. Out: one `SESSION`, typed options,
the loaded native extension.
Open first: `session.py`.
"""
