"""One stored kernel: its name, which says what it was made from and what it holds, and the loading of its bytes.

In: a path or bytes. Out: bytes that are what the name says, and a loaded library. What is loaded is the very
memory whose checksum was compared, never the file: whatever happens to the file meanwhile, or later, when its
pages would be read, is not run.
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

FORMAT = "2"  # part of each key: raise it when the meaning of stored files changes
ANY = "0" * 16  # in place of a compiler's mark: answers whatever the compiler here is

_NAME = re.compile(
    r"([0-9a-f]{40})\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{32})\.(so|cubin|note)"
)
KERNELS = frozenset(("so", "cubin"))  # kinds of file that hold code


@dataclass(frozen=True, slots=True)
class Name:
    """`key`: of the source and the flags; `machine` and `compiler`: marks; `digest`: of the content; `kind`: "so" (a
    library), "cubin" (a kernel of a GPU), or "note" for what was found out about kernels."""

    key: str
    machine: str
    compiler: str
    digest: str
    kind: str = "so"

    def __str__(self) -> str:
        return f"{self.key}.{self.machine}.{self.compiler}.{self.digest}.{self.kind}"


def parse_name(text: str) -> Name | None:
    """The parts of a file's name; None for a file that is none of ours."""
    found = _NAME.fullmatch(text)
    return None if found is None else Name(*found.groups())


def mark(*texts: str) -> str:
    """The mark of a machine or a compiler: 16 digits."""
    return _hash(texts, 8)


def key_of(source: str, identity: Iterable[str] = ()) -> str:
    """The hash that names a kernel: its source and everything else that decides the binary."""
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
    """The content of a stored kernel. Raises OSError, or BuildError where the content is not what the name
    says or somebody else could have written it."""
    name = parse_name(path.name)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        reason = "is no file" if not stat.S_ISREG(facts.st_mode) else facts_reason(facts)
        if reason:
            raise BuildError(f"a stored kernel {reason}", found=path.name)
        data = file.read()
    if name is None or digest_of(data) != name.digest:
        raise BuildError(
            "the content of a stored kernel is not what its name says", found=path.name
        )
    return data


def open_library(data: bytes, symbols: Sequence[str], name: str) -> tuple[Any, dict[str, int]]:
    """(handle, symbol -> address) of a library given by its bytes. Raises OSError or BuildError."""
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
        # The loader takes two equal names for one library, and a descriptor's number is used again: each load
        # spells the folder in a way of its own.
        spelt = "".join("./" if bit == "1" else "/" for bit in f"{next(_SERIAL):b}")
        return ctypes.CDLL(f"/proc/self/fd/{spelt}{descriptor}")


def _from_private_file(data: bytes) -> Any:
    """By way of a file that nobody else sees, which is gone again when it has been loaded."""
    with tempfile.TemporaryDirectory(prefix="graftjit-") as folder:
        path = Path(folder) / f"kernel-{next(_SERIAL)}.so"
        path.write_bytes(data)
        return ctypes.CDLL(str(path))
