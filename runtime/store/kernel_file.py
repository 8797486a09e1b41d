"""One stored kernel: its file name, which holds hashes of its origin and content, and its loading.

In: a path or bytes. Out: bytes that match the hash in the name, and a loaded library. The library
is loaded from the memory whose checksum was compared, never from the file, so a change to the file,
then or later, is never executed.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...ir.dataclass import dataclass
from ..errors import BuildError
from .permissions import facts_reason

# Part of each key. Increase it when the meaning of stored files changes.
FORMAT = "2"
# In place of the mark of a compiler: valid for any compiler.
ANY = "0" * 16

_NAME = re.compile(
    r"([0-9a-f]{40})\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{32})\.(so|cubin|note)"
)
KERNELS = frozenset(("so", "cubin"))  # kinds of file that hold code


@dataclass(frozen=True, slots=True)
class Name:
    """`key`: hash of the source and the flags; `machine` and `compiler`: marks; `digest`: hash of
    the content; `kind`: "so" (a library), "cubin" (a GPU kernel) or "note" (a finding about
    kernels)."""

    key: str
    machine: str
    compiler: str
    digest: str
    kind: str = "so"

    def __str__(self) -> str:
        return f"{self.key}.{self.machine}.{self.compiler}.{self.digest}.{self.kind}"


def parse_name(text: str) -> Name | None:
    """The parts of a file name; None for a file of another origin."""
    found = _NAME.fullmatch(text)
    return None if found is None else Name(*found.groups())


def mark(*texts: str) -> str:
    """The mark of a machine or a compiler: 16 hexadecimal digits."""
    return _hash(texts, 8)


def key_of(source: str, identity: Iterable[str] = ()) -> str:
    """The hash that names a kernel, over its source and everything else that decides the binary."""
    return _hash((FORMAT, source, *identity), 20)


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _hash(texts: Iterable[str], size: int) -> str:
    made_from = hashlib.blake2b(digest_size=size)
    for text in texts:
        data = text.encode("utf-8", "surrogateescape")
        made_from.update(len(data).to_bytes(8, "little") + data)
    return made_from.hexdigest()


def read(path: Path) -> bytes:
    """The content of a stored kernel.

    Raises OSError, or BuildError if the content does not match the name or another user could have
    written it.
    """
    name = parse_name(path.name)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        reason = "is not a regular file" if not stat.S_ISREG(facts.st_mode) else facts_reason(facts)
        if reason:
            raise BuildError(f"a stored kernel {reason}", found=path.name)
        data = file.read()
    if name is None or digest_of(data) != name.digest:
        raise BuildError("the content of a stored kernel does not match its name", found=path.name)
    return data


def open_library(data: bytes, symbols: Sequence[str], name: str) -> tuple[Any, dict[str, int]]:
    """(handle, symbol -> address) of a library from its bytes. Raises OSError or BuildError."""
    handle = _from_memory(data, name)
    addresses: dict[str, int] = {}
    for symbol in symbols:
        try:
            address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p).value
        except AttributeError:
            address = None
        if address is None:
            raise BuildError(f"a stored kernel lacks the function {symbol}", found=name)
        addresses[symbol] = address
    return handle, addresses


_SERIAL = itertools.count(1)


def _from_memory(data: bytes, name: str) -> Any:
    try:
        descriptor = os.memfd_create(f"graftjit-{name}"[:200])
    except (AttributeError, OSError):  # not Linux, or forbidden here
        return _from_private_file(data)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        # The loader treats equal names as the same library, and descriptor numbers are reused. So
        # each load spells the folder differently.
        spelt = "".join("./" if bit == "1" else "/" for bit in f"{next(_SERIAL):b}")
        return ctypes.CDLL(f"/proc/self/fd/{spelt}{descriptor}")


def _from_private_file(data: bytes) -> Any:
    """Load through a file in a private folder, which is removed after loading."""
    with tempfile.TemporaryDirectory(prefix="graftjit-") as folder:
        path = Path(folder) / f"kernel-{next(_SERIAL)}.so"
        path.write_bytes(data)
        return ctypes.CDLL(str(path))
