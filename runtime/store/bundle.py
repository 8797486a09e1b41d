"""Bundles: the kernels and notes of a store in one file, for other machines of the same kind.

In: a store and a file path. Out: the file; or its kernels in a store. The machine needs no
compiler. The format is a line with the name of the format, a line with the checksum of all that
follows, a line of JSON with the names and sizes of the kernels, and their bytes. Everything is
checked before anything is written, and a damaged bundle is refused as a whole. An attacker who
alters a bundle can also alter its checksum; `digest`, printed when the bundle is saved and
transmitted separately, detects that.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from ...ir.dataclass import dataclass
from ..errors import BuildError, UserError
from ..process import hardware
from . import kernel_file
from .atomic_write import write_whole
from .kernel_file import ANY, KERNELS, Name
from .store import KernelStore

MAGIC = b"graftjit kernels 1\n"


@dataclass(frozen=True, slots=True)
class Moved:
    """What was saved or loaded. `elsewhere`: number of kernels left out because they are for
    another processor. `refused`: damaged files in the store, with the reasons."""

    digest: str
    kernels: int
    bytes: int
    elsewhere: int = 0
    refused: tuple[str, ...] = ()


def save(store: KernelStore, path: Path) -> Moved:
    """Write all kernels of the store to a file. Raises UserError if that fails."""
    held: list[tuple[str, bytes]] = []
    refused: list[str] = []
    for _time, _size, file in sorted(store.files(), key=lambda item: item[2]):
        name = kernel_file.parse_name(file.name)
        if name is None:  # from an earlier format of the store
            continue
        try:
            data = kernel_file.read(file)
        except (OSError, BuildError) as error:
            refused.append(str(error).splitlines()[0])
            continue
        held.append((str(replace(name, compiler=ANY)), data))
    contents = json.dumps([[name, len(data)] for name, data in held]).encode() + b"\n"
    body = contents + b"".join(data for _name, data in held)
    digest = _digest(body)
    try:
        data = MAGIC + digest.encode() + b"\n" + body
        write_whole(path, data, path.absolute().parent, f".{path.name}-")
    except OSError as error:
        raise UserError(
            "the bundle cannot be written", found=f"{path}: {error.strerror or error}"
        ) from error
    kernels = sum(name.rpartition(".")[2] in KERNELS for name, _ in held)
    return Moved(digest, kernels, sum(len(d) for _, d in held), refused=tuple(refused))


def load(store: KernelStore, path: Path, digest: str = "") -> Moved:
    """Put the kernels of a bundle for this processor and for GPUs into the store.

    Raises UserError if the bundle is damaged or its digest is not `digest`, and if the store is not
    writable.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            "the bundle cannot be read", found=f"{path}: {error.strerror or error}"
        ) from error
    found, held = _checked(data, path)
    if digest and digest.lower() != found:
        raise UserError("the bundle has another digest", expected=digest.lower(), found=found)
    unusable = store.unusable()
    if unusable:
        raise UserError(
            "the bundle cannot be loaded into the kernel store",
            found=f"{store.folder}: {unusable}",
            todo="set GRAFTJIT_CACHE_DIR to a folder of your own that can be written",
        )
    here = kernel_file.mark(hardware.cpu().identity)
    # GPU kernels are looked up by architecture, so they are stored for any machine.
    fitting = [row for row in held if row[0].machine == here or row[0].kind == "cubin"]
    for name, content in fitting:
        try:
            store.put(name, content)
        except OSError as error:
            raise UserError(
                "the bundle cannot be loaded into the kernel store",
                found=error.strerror or str(error),
            ) from error
    store.prune()
    size = sum(len(content) for _name, content in fitting)
    here_kernels, kernels = (sum(n.kind in KERNELS for n, _ in rows) for rows in (fitting, held))
    return Moved(found, here_kernels, size, elsewhere=kernels - here_kernels)


def _checked(data: bytes, path: Path) -> tuple[str, list[tuple[Name, bytes]]]:
    """(digest, kernels) of a complete bundle, every byte of which is checked."""
    start = len(MAGIC)
    end = data.find(b"\n", start)
    if not data.startswith(MAGIC) or end < 0:
        raise _refused(path, "it is not a bundle of this version of graftjit")
    digest, body = data[start:end].decode("ascii", "replace"), data[end + 1 :]
    if digest != _digest(body):
        raise _refused(path, "its content does not match its checksum")
    held: list[tuple[Name, bytes]] = []
    line, _newline, rest = body.partition(b"\n")
    at = 0
    for text, size in _listed(line, path):
        name, content = kernel_file.parse_name(text), rest[at : at + size]
        if name is None or name.compiler != ANY or kernel_file.digest_of(content) != name.digest:
            raise _refused(path, f"a kernel does not match its name: {text[:80]!r}")
        held.append((name, content))
        at += size
    if at != len(rest):
        raise _refused(path, "its content does not match its list of kernels")
    return digest, held


def _listed(line: bytes, path: Path) -> list[tuple[str, int]]:
    try:
        listed = json.loads(line)
    except (ValueError, RecursionError):  # the latter: nested too deeply
        listed = None
    whole = isinstance(listed, list) and all(
        isinstance(row, list)
        and len(row) == 2
        and type(row[0]) is str
        and type(row[1]) is int
        and row[1] > 0
        for row in listed
    )
    if not whole:
        raise _refused(path, "its list of kernels cannot be read")
    return [(name, size) for name, size in listed]


def _refused(path: Path, why: str) -> UserError:
    return UserError(
        f"the bundle is refused: {why}",
        found=str(path),
        todo="make it again with python -m graftjit cache save",
    )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()
