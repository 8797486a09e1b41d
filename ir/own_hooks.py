"""Hooks of graftjit's own on tensors and nodes of autograd.

torch numbers all hooks of a process, and programs see the numbers (`handle.id`, the keys of a
module's hooks). Hooks of graftjit get numbers that programs do not reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

_NUMBERS = itertools.count(1 << 48)


def put_on(register: Callable[[Any], Any], hook: Callable[..., Any]) -> Any:
    """`register(hook)`, which returns a handle; the program's next hook has the number that it
    would have had."""
    before, RemovableHandle.next_id = RemovableHandle.next_id, next(_NUMBERS)
    try:
        return register(hook)
    finally:
        RemovableHandle.next_id = before
