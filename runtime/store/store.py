"""The kernel store: compiled kernel libraries on disk, named by hashes.

In: a source text, everything else that decides the binary (flags, compiler, processor), and a build
function. Out: a loaded library with the addresses of its kernels.

A file name contains a hash of the inputs and a hash of the content, and the file appears by one
rename. So a partial or damaged file is detected and built again, and any number of processes may
write at once. Processes that need a kernel at the same time build it once (`claims`). Least
recently used files are removed beyond the size limit. A folder that others can write is not used at
all; without a folder, kernels are kept in memory. Codegen uses the store; `python -m graftjit
cache` shows, clears, saves and loads it (with `runtime.store.bundle`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ...ir.dataclass import dataclass, field
from ..errors import BuildError
from ..events.events import Fallback, KernelBuilt
from ..process.session import SESSION
from . import kernel_file, permissions
from .atomic_write import write_whole
from .claims import claimed
from .kernel_file import ANY, Name
from .loaded import Loaded

DEFAULT_LIMIT = 1 << 30
_TOUCH_AFTER = 3600.0  # seconds; a hit renews a file's time only if it is older
_STALE_BUILD = 3600.0  # seconds after which a build folder is abandoned
BUILD_PREFIX = "building-"
_ROOM = 4 << 20  # bytes; a folder without so much free space is full
_SUFFIXES = tuple(f".{kind}" for kind in (*kernel_file.KERNELS, "note"))

Build = Callable[[str, Path], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Library:
    """A loaded library. `addresses`: symbol -> address, valid while this object lives. `path`: the
    stored file; None if the library is in memory only."""

    path: Path | None
    addresses: dict[str, int]
    bytes: int
    cached: bool
    handle: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What `python -m graftjit cache` prints. Sizes in bytes, times in seconds since the epoch.
    `unusable`: why the folder cannot be used, or "". `files`: kernel libraries; `cubins`: GPU
    kernels."""

    folder: Path
    unusable: str
    files: int
    bytes: int
    limit: int
    oldest: float | None
    newest: float | None
    cubins: int = 0

    @property
    def writable(self) -> bool:
        return not self.unusable


def default_folder() -> Path:
    """$XDG_CACHE_HOME/graftjit, or ~/.cache/graftjit."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "graftjit"


class KernelStore:
    """One folder of kernels. Thread-safe; the module's docstring describes concurrent processes."""

    def __init__(self, folder: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = (folder or default_folder()) / "kernels"
        self.limit = limit
        self._readable: bool | None = None  # None: not checked yet
        self._writing = True  # False: given up, after one event with the reason
        self._loaded = Loaded()
        self._bytes: int | None = None  # an estimate; counted at the first publish
        self.after_fork()

    def after_fork(self) -> None:
        """Make the locks anew after fork: their owners do not exist in the child."""
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.RLock()

    def load(
        self,
        source: str,
        symbols: Sequence[str],
        build: Build,
        *,
        identity: Iterable[str] = (),
        machine: str = "",
        compiler: str = "",
        name: str = "kernel",
        covers: tuple[str, ...] = (),
    ) -> Library:
        """The library made from `source`, from memory, from disk, or by `build(source, path)`.

        `identity`: all other texts that decide the binary (flags, versions), except `machine`
        (`Cpu.identity`) and `compiler` (`Compiler.identity`). Those two are compared separately,
        because kernels of a bundle are valid for any compiler. Raises BuildError if the library can
        be neither built nor loaded.
        """
        key = kernel_file.key_of(source, identity)
        wanted = Name(key, kernel_file.mark(machine), kernel_file.mark(compiler), "")
        memory = f"{key}.{wanted.machine}.{wanted.compiler}"
        library: Library | None = self._loaded.get(memory)
        if library is not None:
            return library
        with self._lock:
            lock = self._building.setdefault(memory, threading.Lock())
        with lock:
            library = self._loaded.get(memory)
            if library is None:
                start = time.perf_counter()
                library = self._from_disk(wanted, symbols, name)
                library = library or self._built_once(wanted, source, symbols, build, name)
                self._loaded.put(memory, library)
                self._building.pop(memory, None)  # waiting threads find the library
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

    def usable(self) -> bool:
        """Whether the folder may be read: no other user can write it. It need not exist."""
        if self._readable is None:
            reason = permissions.folder_reason(self.folder)
            self._readable = not reason
            if reason:
                self._give_up("FB314", reason)
        return self._readable

    def _from_disk(self, wanted: Name, symbols: Sequence[str], title: str) -> Library | None:
        found = self.find(wanted, title, lambda d: kernel_file.open_library(d, symbols, title))
        if found is None:
            return None
        path, size, (handle, addresses) = found
        return Library(path, addresses, size, True, handle)

    def find(
        self, wanted: Name, title: str, use: Callable[[bytes], T]
    ) -> tuple[Path, int, T] | None:
        """(path, bytes, result of `use(content)`) of the stored kernel, or None if there is none
        for this machine and compiler.

        A file whose content does not match its name, or for which `use` raises OSError or
        BuildError, is damaged: it is reported and removed.
        """
        if not self.usable():
            return None
        others = 0
        for path, name in self.candidates(wanted):
            if not _fits(name, wanted):
                others += 1
                continue
            try:
                data = kernel_file.read(path)
                used = use(data)
            except (OSError, BuildError) as error:
                # Another process may have removed it because of its age: that is no damage.
                if isinstance(error, FileNotFoundError):
                    continue
                SESSION.emit(Fallback(code="FB307", reason=f"{path.name}: {_first_line(error)}"))
                self.discard(path)
                continue
            _touch(path)
            return path, len(data), used
        if others:
            SESSION.emit(
                Fallback(code="FB313", reason=f"{title}: {others} stored, none for this machine")
            )
        return None

    def discard(self, path: Path) -> None:
        """Remove a damaged file."""
        _remove(path)

    def bundled(self, kind: str = "so") -> bool:
        """Whether the store has kernels of this kind for use without a compiler."""
        found = (kernel_file.parse_name(path.name) for _time, _size, path in self.files())
        return any(name and (name.compiler, name.kind) == (ANY, kind) for name in found)

    def candidates(self, wanted: Name) -> Iterator[tuple[Path, Name]]:
        """Stored files with this key: first those of this compiler, then those for any."""
        found: list[tuple[bool, str, Name]] = []
        shelf = self.folder / wanted.key[:2]
        for entry in _entries(shelf):
            name = kernel_file.parse_name(entry.name)
            if name is not None and name.key == wanted.key:
                found.append((name.compiler == ANY, entry.name, name))
        for _any, text, name in sorted(found, key=lambda item: item[:2]):
            yield shelf / text, name

    def _built_once(
        self, wanted: Name, source: str, symbols: Sequence[str], build: Build, title: str
    ) -> Library:
        """The library, built by this process, or by another one that builds it now."""
        with self._claim(wanted):
            # `find` would report a second time that there is none for this machine.
            stored = self.usable() and any(
                _fits(name, wanted) for _path, name in self.candidates(wanted)
            )
            found = self._from_disk(wanted, symbols, title) if stored else None
            return found or self._build(wanted, source, symbols, build, title)

    def _claim(self, wanted: Name) -> AbstractContextManager[None]:
        """A block in which no other process of this machine builds the kernel."""
        folder = next(self.scratch_roots())
        if folder != self.folder:  # others do not see what is built here
            return nullcontext()
        name = f"{BUILD_PREFIX}{wanted.key}.{wanted.machine}.{wanted.compiler}"
        return claimed(folder / name)

    def _build(
        self, wanted: Name, source: str, symbols: Sequence[str], build: Build, title: str
    ) -> Library:
        data = self._built(source, build)
        path = self.publish(replace(wanted, digest=kernel_file.digest_of(data)), data)
        try:
            handle, addresses = kernel_file.open_library(data, symbols, title)
        except OSError as error:
            raise BuildError(
                "a kernel that was just built cannot be loaded", found=_first_line(error)
            ) from error
        return Library(path, addresses, len(data), False, handle)

    def _built(self, source: str, build: Build) -> bytes:
        """The bytes that the compiler produces."""
        failed: list[str] = []
        for root in self.scratch_roots():
            try:
                scratch = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=root))
            except OSError as error:
                failed.append(str(error))
                continue
            try:
                return _run(build, source, scratch / "kernel.so")
            except (OSError, BuildError) as error:
                if isinstance(error, BuildError) and _has_room(scratch):
                    raise
                failed.append(f"{root}: {_first_line(error)}")
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        raise BuildError(
            "a kernel could not be written",
            found="; ".join(failed),
            todo="set TMPDIR or GRAFTJIT_CACHE_DIR to a folder that can be written and"
            " has free space",
        )

    def scratch_roots(self) -> Iterator[Path]:
        """Folders to compile in: the folder of the store, where `files` removes the remains of
        killed processes; then the temporary folder, for a store that is not writable."""
        if self.usable() and self._writing:
            try:
                permissions.make_folder(self.folder)
            except OSError:
                pass  # `publish` reports it
            else:
                yield self.folder
        yield Path(tempfile.gettempdir())

    def publish(self, name: Name, data: bytes) -> Path | None:
        """Store a kernel or a note atomically under its name. None if there is no usable folder."""
        if not (self.usable() and self._writing):
            return None
        try:
            path = self.put(name, data)
        except OSError as error:
            self._give_up("FB308", f"{self.folder}: {error.strerror or error}")
            return None
        self._account(len(data))
        return path

    def put(self, name: Name, data: bytes) -> Path:
        """Write one file. Raises OSError."""
        shelf = self.folder / name.key[:2]
        permissions.make_folder(shelf)
        path = shelf / str(name)
        write_whole(path, data, self.folder, BUILD_PREFIX)
        return path

    def _give_up(self, code: str, reason: str) -> None:
        """From now on keep new kernels in memory only. Stored kernels are still read, unless others
        can write there."""
        self._writing = False
        SESSION.emit(Fallback(code=code, reason=reason))
        todo = (
            "Set GRAFTJIT_CACHE_DIR to a folder of your own"
            if code == "FB314"
            else "Set GRAFTJIT_CACHE_DIR to a folder that can be written and has free space"
        )
        SESSION.warn_once(
            "WN602",
            f"the kernel store is not used ({reason}); kernels are kept for this process only."
            f" {todo}.",
        )

    # --- size ---

    def _account(self, added: int) -> None:
        with self._lock:
            self._bytes = self._total() if self._bytes is None else self._bytes + added
            if self._bytes > self.limit:
                self.prune()

    def files(self) -> list[tuple[float, int, Path]]:
        """(time, bytes, path) of each stored kernel and note, oldest first. Removes abandoned
        builds."""
        found: list[tuple[float, int, Path]] = []
        if not self.usable():
            return found
        now = time.time()
        for shelf in _entries(self.folder):
            if shelf.name.startswith(BUILD_PREFIX):
                if now - _mtime(shelf) > _STALE_BUILD:
                    shutil.rmtree(shelf, ignore_errors=True)
                    _remove(Path(shelf.path))
                continue
            for entry in _entries(Path(shelf.path)):
                if entry.name.endswith(_SUFFIXES):
                    facts = _stat(entry)
                    if facts is not None:
                        found.append((facts.st_mtime, facts.st_size, Path(entry.path)))
        return sorted(found)

    def _total(self) -> int:
        return sum(size for _time, size, _path in self.files())

    def prune(self) -> None:
        """If the store is over its limit, remove least recently used files down to 4/5 of the
        limit."""
        files = self.files()
        total = sum(size for _time, size, _path in files)
        aim = self.limit * 4 // 5 if total > self.limit else total
        for _time, size, path in files:
            if total <= aim:
                break
            _remove(path)
            total -= size
        self._bytes = total

    # --- for the command line ---

    def stats(self) -> StoreStats:
        """What is on disk now."""
        unusable = self.unusable()
        files = self.files()
        return StoreStats(
            folder=self.folder,
            unusable=unusable,
            files=_count(files, "so"),
            cubins=_count(files, "cubin"),
            bytes=sum(size for _time, size, _path in files),
            limit=self.limit,
            oldest=files[0][0] if files else None,
            newest=files[-1][0] if files else None,
        )

    def unusable(self) -> str:
        """Why no file can be created in the folder, tested by creating one; "" if it can."""
        reason = permissions.folder_reason(self.folder)
        if reason:
            return reason
        try:
            permissions.make_folder(self.folder)
            with tempfile.TemporaryFile(dir=self.folder):
                return ""
        except OSError as error:
            return f"it cannot be written: {error.strerror or error}"

    def clear(self) -> int:
        """Remove every stored kernel and note; returns the number of kernels. Loaded kernels stay
        loaded."""
        files = self.files()
        for _time, _size, path in files:
            _remove(path)
        with self._lock:
            self._bytes = None
        return sum(_count(files, kind) for kind in kernel_file.KERNELS)


def _fits(name: Name, wanted: Name) -> bool:
    """Whether a stored kernel is for this machine and compiler."""
    return name.machine == wanted.machine and name.compiler in (wanted.compiler, ANY)


def _count(files: list[tuple[float, int, Path]], kind: str) -> int:
    return sum(path.suffix == "." + kind for _time, _size, path in files)


def _run(build: Build, source: str, target: Path) -> bytes:
    """Run the build. A compiler that cannot be started raises BuildError, whereas errors of the
    store's files raise OSError."""
    try:
        build(source, target)
    except OSError as error:
        raise BuildError("the compiler could not be run", found=str(error)) from error
    if not target.is_file():
        raise BuildError("the compiler reported success but wrote no library")
    return target.read_bytes()


def _has_room(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
            file.flush()
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # missing, not a folder, or not readable
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:  # removed by another process meanwhile
        return None


def _mtime(entry: os.DirEntry[str]) -> float:
    facts = _stat(entry)
    return time.time() if facts is None else facts.st_mtime


def _touch(path: Path) -> None:
    """Mark as used. A read-only store keeps no times."""
    try:
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER:
            os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    """Unlink the file if possible. A damaged file that stays is detected again at the next use."""
    try:
        path.unlink()
    except OSError:
        return
