"""Which kernel libraries are loaded: by key, the last ones used kept, the others as long as a program needs them.

In: a key and a loaded library. Out: the library again, while it is there. When nothing refers to a library any
more it is unloaded, so that a process that compiles for ever does not grow for ever. Never from within the
garbage collector: objects of a dead cycle may still call each other until it has ended.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import OrderedDict
from typing import Any

from ..weak_callbacks import until_exit

KEPT = 256  # libraries that stay without a program, for functions that are made again and again


class Loaded:
    """Not locked: each step is one operation on a dict; a library that is loaded twice is two libraries."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self._recent: OrderedDict[str, Any] = OrderedDict()
        self._alive: dict[str, weakref.ref[Any]] = {}
        self._handles: dict[weakref.ref[Any], int] = {}
        self._dead: list[tuple[int, int]] = []  # (handle, collections until then)

    def get(self, key: str) -> Any:
        found = self._alive.get(key)
        library = None if found is None else found()
        if library is not None:
            self._recent[key] = library
            self._recent.move_to_end(key)
        return library

    def put(self, key: str, library: Any) -> None:
        reference = weakref.ref(library, until_exit(self._gone))
        self._handles[reference] = library.handle._handle
        self._alive[key] = reference
        self._recent[key] = library
        while len(self._recent) > self.kept:
            self._recent.popitem(last=False)
        self._unload()

    def __len__(self) -> int:
        return len(self._handles)

    def _gone(self, reference: weakref.ref[Any]) -> None:
        self._dead.append((self._handles.pop(reference), collections()))

    def _unload(self) -> None:
        """Of what has gone before the last collection began or ended: none of it can be called again."""
        now = collections()
        ready = [item for item in self._dead if item[1] < now]
        for item in ready:
            self._dead.remove(item)
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(item[0]))
        if len(self._alive) > 2 * len(self._handles) + 16:
            self._alive = {key: ref for key, ref in list(self._alive.items()) if ref() is not None}


def collections() -> int:
    """How many collections have ended. While one runs it is not counted."""
    return sum(generation["collections"] for generation in gc.get_stats())
