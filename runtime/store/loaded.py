"""Cache of loaded kernel libraries by key.

In: a key and a loaded library. Out: the same library while it is loaded. The most recently used
libraries stay loaded; others are unloaded when no program refers to them, so that memory does not
grow without bound. A library is never unloaded during a garbage collection, since objects of a dead
cycle may still call each other until it ends.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import OrderedDict
from typing import Any

from ..weak_callbacks import until_exit

# Libraries kept without a program, for functions that are created repeatedly.
KEPT = 256


class Loaded:
    """A cache without a lock: each step is one operation on a dict. If two threads load the same
    library, there are two libraries."""

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
        """Unload libraries that died before the last garbage collection: no object can call
        them."""
        now = collections()
        ready = [item for item in self._dead if item[1] < now]
        for item in ready:
            self._dead.remove(item)
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(item[0]))
        if len(self._alive) > 2 * len(self._handles) + 16:
            self._alive = {key: ref for key, ref in list(self._alive.items()) if ref() is not None}


def collections() -> int:
    """The number of finished garbage collections. A running one is not included."""
    return sum(generation["collections"] for generation in gc.get_stats())
