"""Notes in the kernel store: findings about kernels and graphs, shared between processes.

In: the texts that a finding depends on, and the finding as plain JSON values, or as bytes. Out: the
same values for the same texts on the same machine with the same compiler. A note is a file among
the kernels with the same kind of name. So it appears atomically, is checked against the hash in its
name, is removed when it is old, and is part of bundles. A note that is damaged or cannot be read or
written is ignored. `codegen.tuning.cpu` and `codegen.plan_cache.cache` use notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..events.events import Fallback
from ..process.session import SESSION
from . import kernel_file
from .kernel_file import ANY, Name

if TYPE_CHECKING:
    from .store import KernelStore

_PREFIX = "note"  # differs from the prefix of any kernel's key


def recall(
    store: KernelStore,
    texts: Sequence[str],
    machine: str,
    compiler: str,
    read: Callable[[bytes], Any] = json.loads,
) -> Any:
    """The value stored for these texts, or None. Raises nothing."""
    wanted = _name(texts, machine, compiler)
    if not store.usable():
        return None
    for path, name in store.candidates(wanted):
        if name.machine != wanted.machine or name.compiler not in (wanted.compiler, ANY):
            continue
        try:
            return read(kernel_file.read(path))
        # Another process has just removed it because of its age.
        except FileNotFoundError:
            continue
        # An error of the file, or any that data of another form cause in `read`.
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            store.discard(path)
            SESSION.emit(Fallback(code="FB307", reason=f"{path.name}: {reason}"))
    return None


def keep(store: KernelStore, texts: Sequence[str], machine: str, compiler: str, value: Any) -> None:
    """Store a plain JSON value, or bytes for the `read` of `recall`, in place of an older one.
    Nothing happens if the store is not writable."""
    if store.usable():
        wanted = _name(texts, machine, compiler)
        for path, name in store.candidates(wanted):
            if (name.machine, name.compiler) == (wanted.machine, wanted.compiler):
                store.discard(path)
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    store.publish(_name(texts, machine, compiler, kernel_file.digest_of(data)), data)


def _name(texts: Sequence[str], machine: str, compiler: str, digest: str = "") -> Name:
    key = kernel_file.key_of(_PREFIX, texts)
    return Name(key, kernel_file.mark(machine), kernel_file.mark(compiler), digest, "note")
