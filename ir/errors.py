"""Exceptions that `Tracer` raises for a torch call that it cannot record.

None of them reaches a user. Capture answers each with a graph break: plain Python runs the call
again on real tensors, and returns its result or raises the exception that the program would have
seen anyway.
"""

from __future__ import annotations


class CannotTrace(Exception):
    """The call cannot be part of a graph. `code` is a short stable word, `text` is the reason."""

    code = "cannot-trace"

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code


class Unsupported(CannotTrace):
    """The tracer does not support this tensor or operator (sparse, quantized, a subclass...)."""

    code = "unsupported"

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text, code)


class DataDependent(CannotTrace):
    """The result depends on tensor data: a Python value, or (`shape`) sizes of a tensor."""

    code = "data-dependent"

    def __init__(self, op: str, text: str, shape: bool = False) -> None:
        super().__init__(text)
        self.op = op
        self.shape = shape


class TraceError(CannotTrace):
    """torch refused the call. `original` is its exception, most likely an error of the program."""

    code = "raised"

    def __init__(self, original: BaseException) -> None:
        super().__init__(f"{type(original).__name__}: {original}")
        self.original = original


class NoRule(Exception):
    """A result rule does not cover these arguments; the tracer then asks torch."""


class NotDivided(Exception):
    """Why the backward of a graph is not divided as far as users can observe its parts."""
