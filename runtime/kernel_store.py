"""The kernel store: compiled kernel libraries on disk, named by what they are made from.

In: a source text, what else decides the binary (flags, compiler, processor), and a function that builds it.
Out: a loaded library with the addresses of its kernels. A file's name holds the hash of its making and the
hash of its content, and it appears by one rename: a half-written or damaged file is seen and built again,
and any number of processes may write at once. Least recently used files go when the bound is passed.
Used by codegen; `python -m graftjit cache` shows and clears it.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import BuildError
from .events import Fallback, KernelBuilt
from .session import SESSION

FORMAT = "1"  # part of each key: raise it when the meaning of stored files changes
DEFAULT_LIMIT = 1 << 30
_TOUCH_AFTER = 3600.0  # seconds; a hit renews a file's time only when it is older than this
_STALE_BUILD = 3600.0  # seconds after which a build folder belongs to nobody
_BUILD_PREFIX = "building-"

Build = Callable[[str, Path], None]


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library. `addresses`: symbol -> address. It stays loaded while the process lives."""

    path: Path
    addresses: dict[str, int]
    bytes: int
    cached: bool
    handle: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What `python -m graftjit cache` prints. Sizes in bytes, times in seconds since the epoch."""

    folder: Path
    writable: bool
    files: int
    bytes: int
    limit: int
    oldest: float | None
    newest: float | None


def default_folder() -> Path:
    """$XDG_CACHE_HOME/graftjit, or ~/.cache/graftjit."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "graftjit"


class KernelStore:
    """One folder of kernels. Thread-safe; see the module's docstring for processes."""

    def __init__(self, folder: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = (folder or default_folder()) / "kernels"
        self.limit = limit
        self._spare: Path | None = None  # where kernels go when `folder` cannot be written
        self._loaded: dict[str, Library] = {}
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._bytes: int | None = None  # an estimate; counted at the first publish

    def load(
        self,
        source: str,
        symbols: Sequence[str],
        build: Build,
        *,
        identity: Iterable[str] = (),
        name: str = "kernel",
        covers: tuple[str, ...] = (),
    ) -> Library:
        """The library made from `source`, from memory, from disk, or by `build(source, path)`.

        `identity`: every other text that decides the binary (flags, `Compiler.identity`, `Cpu.identity`).
        Raises BuildError if it can be neither built nor loaded.
        """
        key = key_of(source, identity)
        library = self._loaded.get(key)
        if library is not None:
            return library
        with self._lock:
            lock = self._building.setdefault(key, threading.Lock())
        with lock:
            library = self._loaded.get(key)
            if library is None:
                start = time.perf_counter()
                library = self._from_disk(key, symbols) or self._build(key, source, symbols, build)
                self._loaded[key] = library
                self._building.pop(key, None)  # whoever still waits for it finds the library
                SESSION.emit(
                    KernelBuilt(
                        name=name,
                        bytes=library.bytes,
                        seconds=time.perf_counter() - start,
                        cached=library.cached,
                        covers=covers,
                    )
                )
        return library

    # --- disk ---

    def _from_disk(self, key: str, symbols: Sequence[str]) -> Library | None:
        for path in self._candidates(key):
            try:
                return self._open(path, symbols, cached=True)
            except (OSError, BuildError) as error:
                # Another process may just have removed it as too old: that is no damage.
                if isinstance(error, FileNotFoundError):
                    continue
                SESSION.emit(Fallback(code="FB307", reason=f"{path.name}: {_first_line(error)}"))
                _remove(path)
        return None

    def _candidates(self, key: str) -> Iterator[Path]:
        for folder in (self.folder, self._spare):
            if folder is None:
                continue
            shelf = folder / key[:2]
            try:
                names = sorted(os.listdir(shelf))
            except OSError:  # not there yet, or not readable: the same as empty
                continue
            yield from (shelf / n for n in names if n.startswith(key) and n.endswith(".so"))

    def _open(self, path: Path, symbols: Sequence[str], cached: bool) -> Library:
        data = path.read_bytes()
        if path.name.split(".")[1] != _digest(data):
            raise BuildError(
                "the content of a stored kernel is not what its name says", found=path.name
            )
        handle = ctypes.CDLL(str(path))
        addresses: dict[str, int] = {}
        for symbol in symbols:
            try:
                address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p).value
            except AttributeError:
                address = None
            if address is None:
                raise BuildError(f"a stored kernel lacks the function {symbol}", found=path.name)
            addresses[symbol] = address
        _touch(path)
        return Library(path, addresses, len(data), cached, handle)

    def _build(self, key: str, source: str, symbols: Sequence[str], build: Build) -> Library:
        scratch = self._scratch()
        try:
            target = scratch / "kernel.so"
            _run(build, source, target)
            data = target.read_bytes()
            shelf = scratch.parent / key[:2]
            shelf.mkdir(exist_ok=True)
            path = shelf / f"{key}.{_digest(data)}.so"
            os.replace(target, path)
        except OSError as error:  # a full or vanished disk, in the middle of things
            if scratch.parent == self._spare:
                raise BuildError("a kernel could not be written", found=str(error)) from error
            self._give_up_folder(error)
            return self._build(key, source, symbols, build)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._account(len(data))
        try:
            return self._open(path, symbols, cached=False)
        except OSError as error:
            raise BuildError(
                "a kernel that was just built cannot be loaded",
                found=_first_line(error),
                todo="if the cache folder is mounted noexec, set GRAFTJIT_CACHE_DIR to another",
            ) from error

    def _scratch(self) -> Path:
        """A new folder beside the files, for one build: on the same file system, so a rename publishes."""
        if self._spare is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                return Path(tempfile.mkdtemp(prefix=_BUILD_PREFIX, dir=self.folder))
            except OSError as error:
                self._give_up_folder(error)
        return Path(tempfile.mkdtemp(prefix=_BUILD_PREFIX, dir=self._spare))

    def _give_up_folder(self, error: OSError) -> None:
        """From here on new kernels go to a folder of this process; those in the store are still read."""
        if self._spare is None:
            try:
                self._spare = Path(tempfile.mkdtemp(prefix="graftjit-"))
            except OSError as second:
                raise BuildError(
                    "neither the cache folder nor a temporary folder can be written",
                    found=f"{error}; {second}",
                    todo="set GRAFTJIT_CACHE_DIR to a folder that can be written",
                ) from second
            atexit.register(shutil.rmtree, self._spare, ignore_errors=True)
        reason = f"{self.folder}: {error.strerror or error}"
        SESSION.emit(Fallback(code="FB308", reason=reason))
        SESSION.warn_once(
            "WN602",
            f"the kernel store cannot be written ({reason}); kernels are kept for this process only. "
            "Set GRAFTJIT_CACHE_DIR to a folder that can be written.",
        )

    # --- size ---

    def _account(self, added: int) -> None:
        with self._lock:
            self._bytes = self._total() if self._bytes is None else self._bytes + added
            if self._bytes > self.limit:
                self._prune()

    def _files(self) -> list[tuple[float, int, Path]]:
        """(time, bytes, path) of each stored kernel, oldest first; build folders left behind are removed."""
        found: list[tuple[float, int, Path]] = []
        now = time.time()
        for shelf in _entries(self.folder):
            if shelf.name.startswith(_BUILD_PREFIX):
                if now - _mtime(shelf) > _STALE_BUILD:
                    shutil.rmtree(shelf, ignore_errors=True)
                continue
            for entry in _entries(Path(shelf.path)):
                if entry.name.endswith(".so"):
                    facts = _stat(entry)
                    if facts is not None:
                        found.append((facts.st_mtime, facts.st_size, Path(entry.path)))
        return sorted(found)

    def _total(self) -> int:
        return sum(size for _time, size, _path in self._files())

    def _prune(self) -> None:
        """Remove the least recently used down to four fifths of the bound."""
        files = self._files()
        total = sum(size for _time, size, _path in files)
        aim = self.limit * 4 // 5 if total > self.limit else self.limit
        for _time, size, path in files:
            if total <= aim:
                break
            _remove(path)
            total -= size
        self._bytes = total

    # --- for the command line ---

    def stats(self) -> StoreStats:
        """What is on disk now."""
        files = self._files()
        return StoreStats(
            folder=self.folder,
            writable=self.writable(),
            files=len(files),
            bytes=sum(size for _time, size, _path in files),
            limit=self.limit,
            oldest=files[0][0] if files else None,
            newest=files[-1][0] if files else None,
        )

    def writable(self) -> bool:
        """Whether a file can be made in the folder, found by making one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self.folder):
                return True
        except OSError:
            return False

    def clear(self) -> int:
        """Remove every stored kernel; the number removed. Kernels that are loaded stay loaded."""
        files = self._files()
        for _time, _size, path in files:
            _remove(path)
        with self._lock:
            self._bytes = None
        return len(files)


def key_of(source: str, identity: Iterable[str] = ()) -> str:
    """The hash that names a kernel: its source and everything else that decides the binary."""
    made_from = hashlib.blake2b(digest_size=20)
    for text in (FORMAT, source, *identity):
        data = text.encode("utf-8", "surrogateescape")
        made_from.update(len(data).to_bytes(8, "little") + data)
    return made_from.hexdigest()


def _run(build: Build, source: str, target: Path) -> None:
    """Build, with a failure to start the compiler told apart from a failure of the store's own files."""
    try:
        build(source, target)
    except OSError as error:
        raise BuildError("the compiler could not be run", found=str(error)) from error
    if not target.is_file():
        raise BuildError("the compiler reported success but wrote no library")


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # not there, not a folder, not readable: nothing to see
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:  # removed by another process meanwhile
        return None


def _mtime(entry: os.DirEntry[str]) -> float:
    facts = _stat(entry)
    return time.time() if facts is None else facts.st_mtime


def _touch(path: Path) -> None:
    """Mark as used. A store that may only be read has no times to keep."""
    try:
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER:
            os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    """Unlink, if we may and it is still there; a file that stays is found damaged again and passed over."""
    try:
        path.unlink()
    except OSError:
        return
