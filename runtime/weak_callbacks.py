"""Callbacks of weak references that are silent when the interpreter ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def until_exit(callback: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The callback of a weak reference, which does nothing at interpreter exit, since the names it
    uses may be None by then."""
    # A local reference, since the global `sys` may be None, too.
    ending = sys.is_finalizing

    def call(reference: Any) -> None:
        if not ending():
            callback(reference)

    return call
