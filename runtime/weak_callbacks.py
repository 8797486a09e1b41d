"""Callbacks of weak references that are silent when the interpreter ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def until_exit(callback: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The callback of a weak reference; silent when the interpreter ends, for the names it uses may be None by then."""
    ending = sys.is_finalizing  # held here: `sys` is such a name

    def call(reference: Any) -> None:
        if not ending():
            callback(reference)

    return call
