"""The kernel store on a real disk with a real compiler: hits, damage, races, full and unwritable folders."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from graftjit.runtime.errors import BuildError
from graftjit.runtime.events.events import Fallback, KernelBuilt
from graftjit.runtime.process.hardware import cpu
from graftjit.runtime.store import claims, kernel_file
from graftjit.runtime.store.kernel_file import digest_of, key_of
from graftjit.runtime.store.store import KernelStore

from .kernels import SOURCE, build, call, no_build, recorded


def only_file(store: KernelStore) -> Path:
    (path,) = store.folder.rglob("*.so")
    return path


def test_built_once_then_from_memory_then_from_disk(tmp_path):
    store = KernelStore(tmp_path)
    with recorded() as events:
        first = store.load(SOURCE, ["answer"], build, name="k", covers=("aten.add",))
        assert store.load(SOURCE, ["answer"], no_build) is first
        second = KernelStore(tmp_path).load(SOURCE, ["answer"], no_build)
    assert call(first) == call(second) == 42
    assert [(e.name, e.cached) for e in events] == [("k", False), ("kernel", True)]
    assert events[0].bytes == first.bytes > 0 and events[0].frame == "test"
    assert [p for p in store.folder.iterdir() if p.name.startswith("building-")] == []


def test_key_depends_on_every_part():
    keys = {
        key_of("a"),
        key_of("b"),
        key_of("a", ["-O2"]),
        key_of("a", ["-O", "2"]),
        key_of("a-O2"),
    }
    assert len(keys) == 5
    assert key_of("a", ["x"]) == key_of("a", ("x",))
    assert cpu().identity == cpu().identity


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "no_symbol"])
def test_damage_is_seen_and_repaired(tmp_path, damage):
    store = KernelStore(tmp_path)
    store.load(SOURCE, ["answer"], build)
    path = only_file(store)
    data = path.read_bytes()
    if damage == "no_symbol":
        build('extern "C" int other() { return 1; }', tmp_path / "other.so")
        data = (tmp_path / "other.so").read_bytes()
        path.unlink()
        stem = path.name.rsplit(".", 2)[0]
        (path.parent / f"{stem}.{digest_of(data)}.so").write_bytes(data)
    else:
        flipped = bytes([data[100] ^ 255])
        bad = {
            "truncate": data[:-50],
            "flip": data[:100] + flipped + data[101:],
            "empty": b"",
            "text": b"not a library",
        }
        path.unlink()
        path.write_bytes(bad[damage])
    with recorded() as events:
        library = KernelStore(tmp_path).load(SOURCE, ["answer"], build)
    assert call(library) == 42
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB307"]
    assert not events[-1].cached
    assert call(KernelStore(tmp_path).load(SOURCE, ["answer"], no_build)) == 42


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path):
    with pytest.raises(BuildError, match="cannot be loaded"):
        KernelStore(tmp_path).load(SOURCE, ["answer"], lambda s, t: t.write_text(s))
    with pytest.raises(BuildError, match="wrote no library"):
        KernelStore(tmp_path).load("other", ["answer"], lambda s, t: None)

    def missing_compiler(source, target):
        subprocess.run(["/nonexistent/compiler"], check=True)

    with recorded() as events, pytest.raises(BuildError, match="could not be run"):
        KernelStore(tmp_path).load("third", ["answer"], missing_compiler)
    assert events == []
    with pytest.raises(BuildError, match="lacks the function nothing"):
        KernelStore(tmp_path).load(SOURCE, ["nothing"], build)


@pytest.mark.parametrize("obstacle", ["file", "parent_file"])
def test_unwritable_folder_warns_once_and_works(tmp_path, caplog, obstacle):
    (tmp_path / "taken").write_text("a file where a folder should be")
    folder = tmp_path / "taken" if obstacle == "parent_file" else tmp_path
    if obstacle == "file":
        (tmp_path / "kernels").write_text("taken")
    store = KernelStore(folder)
    with recorded() as events:
        assert call(store.load(SOURCE, ["answer"], build)) == 42
        assert call(store.load(SOURCE + " ", ["answer"], build)) == 42
        assert store.load(SOURCE, ["answer"], no_build).path is None
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB308"]
    assert [e.cached for e in events if isinstance(e, KernelBuilt)] == [False, False]
    warnings = [r for r in caplog.records if "WN602" in r.getMessage()]
    assert len(warnings) == 1 and "GRAFTJIT_CACHE_DIR" in warnings[0].getMessage()
    assert not store.stats().writable and store.stats().files == 0


def refuse_in(monkeypatch, refused: Path | None, error: OSError) -> None:
    """No file can be made in this folder (None: in none)."""
    for function in ("mkdtemp", "mkstemp", "TemporaryFile"):
        real = getattr(tempfile, function)

        def make(*, dir=None, real=real, **options):
            if refused is None or Path(dir or "/").is_relative_to(refused):
                raise error
            return real(dir=dir, **options)

        monkeypatch.setattr(tempfile, function, make)


READ_ONLY = PermissionError(13, "Permission denied")
FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [READ_ONLY, FULL], ids=["read only", "full"])
def test_a_store_that_takes_nothing_is_still_read(tmp_path, monkeypatch, error):
    KernelStore(tmp_path).load(SOURCE, ["answer"], build)
    store = KernelStore(tmp_path)
    refuse_in(monkeypatch, store.folder, error)
    with recorded() as events:
        assert store.load(SOURCE, ["answer"], no_build).cached
        assert call(store.load(SOURCE + " ", ["answer"], build)) == 42
        assert call(store.load(SOURCE + "  ", ["answer"], build)) == 42
    assert [(e.code, e.reason) for e in events if isinstance(e, Fallback)] == [
        ("FB308", f"{store.folder}: {error.strerror}")
    ]
    assert store.stats().files == 1


def test_a_disk_that_fills_up_while_the_compiler_writes(tmp_path, monkeypatch):
    """The compiler's own failure is taken for one of the disk's when the disk takes nothing else: the other folder
    is tried."""
    store = KernelStore(tmp_path)
    store.folder.mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    real = tempfile.TemporaryFile

    def no_room(dir=None):
        if Path(dir).is_relative_to(temporary):
            raise FULL
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)

    def fails_there(source, target):
        if target.is_relative_to(temporary):
            raise BuildError("the compiler rejected a kernel", found="No space left on device")
        build(source, target)

    assert call(store.load(SOURCE, ["answer"], fails_there)) == 42
    assert store.stats().files == 1 and list(temporary.iterdir()) == []


def test_nowhere_to_write_is_a_clear_error(tmp_path, monkeypatch):
    refuse_in(monkeypatch, None, FULL)
    with pytest.raises(BuildError, match="GRAFTJIT_CACHE_DIR"):
        KernelStore(tmp_path).load(SOURCE, ["answer"], build)


@pytest.mark.parametrize("writable", ["kernels", "its parent", "the file"])
def test_what_others_can_write_is_not_run(tmp_path, caplog, writable):
    """A folder that others can write is not used; a file that others can write is built again."""
    base = tmp_path / "base"
    store = KernelStore(base)
    store.load(SOURCE, ["answer"], build)
    place = {"kernels": store.folder, "its parent": base, "the file": only_file(store)}[writable]
    place.chmod(0o777)
    with recorded() as events:
        fresh = KernelStore(base)
        assert not fresh.load(SOURCE, ["answer"], build).cached
        fresh.load(SOURCE + " ", ["answer"], build)
    code = "FB307" if writable == "the file" else "FB314"
    assert [e.code for e in events if isinstance(e, Fallback)] == [code]
    assert len(list(base.rglob("*.so"))) == (2 if writable == "the file" else 1)
    if code == "FB314":
        assert "can be written by others (mode 777)" in fresh.stats().unusable
        assert any("WN602" in r.getMessage() for r in caplog.records)
        place.chmod(0o700)
        assert KernelStore(base).load(SOURCE, ["answer"], no_build).cached


def test_folders_are_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        store = KernelStore(tmp_path / "a" / "b")
        library = store.load(SOURCE, ["answer"], build)
    finally:
        os.umask(before)
    for folder in (tmp_path / "a", tmp_path / "a" / "b", store.folder, library.path.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert library.path.stat().st_mode & 0o777 == 0o644


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    me = os.geteuid()
    KernelStore(tmp_path).load(SOURCE, ["answer"], build)
    if me == 0:
        os.chown(tmp_path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with recorded() as events:
        assert not KernelStore(tmp_path).load(SOURCE, ["answer"], build).cached
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB314"]


@pytest.mark.parametrize("other", ["machine", "compiler"])
def test_a_kernel_of_another_machine_is_built_again_and_told(tmp_path, other):
    asked = {"machine": "this", "compiler": "this"}
    KernelStore(tmp_path).load(SOURCE, ["answer"], build, **asked | {other: "another"})
    with recorded() as events:
        library = KernelStore(tmp_path).load(SOURCE, ["answer"], build, **asked)
    assert call(library) == 42 and not library.cached
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB313"]
    with recorded() as events:
        assert KernelStore(tmp_path).load(SOURCE, ["answer"], no_build, **asked).cached
    assert not [e for e in events if isinstance(e, Fallback)]


def test_what_was_checked_is_what_runs(tmp_path, monkeypatch):
    """The file is changed between its being read and its being loaded, and after: neither is run."""
    store = KernelStore(tmp_path)
    store.load(SOURCE, ["answer"], build)
    path = only_file(store)
    read = kernel_file.read

    def read_then_changed(path):
        data = read(path)
        os.truncate(path, 10)
        return data

    monkeypatch.setattr(kernel_file, "read", read_then_changed)
    assert call(KernelStore(tmp_path).load(SOURCE, ["answer"], no_build)) == 42
    assert path.stat().st_size == 10


def test_a_link_in_the_place_of_a_kernel_is_not_followed(tmp_path):
    store = KernelStore(tmp_path)
    store.load(SOURCE, ["answer"], build)
    path = only_file(store)
    path.rename(tmp_path / "moved.so")
    path.symlink_to(tmp_path / "moved.so")
    with recorded() as events:
        assert not KernelStore(tmp_path).load(SOURCE, ["answer"], build).cached
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB307"]


def test_without_memory_files_it_goes_by_a_private_file(tmp_path, monkeypatch):
    def forbidden(name):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert call(KernelStore(tmp_path).load(SOURCE, ["answer"], build)) == 42
    assert call(KernelStore(tmp_path).load(SOURCE, ["answer"], no_build)) == 42


def test_libraries_without_a_program_are_unloaded_in_the_end(tmp_path):
    store = KernelStore(tmp_path)
    store._loaded.kept = 2
    sources = [f'extern "C" int answer() {{ return {n}; }}' for n in range(6)]
    held = store.load(sources[0], ["answer"], build)
    for source in sources:
        assert call(store.load(source, ["answer"], build)) == sources.index(source)
    assert len(store._loaded) == 3 and len(store._loaded._dead) == 3
    gc.collect()
    store.load(SOURCE, ["answer"], build)
    assert len(store._loaded._dead) <= 1 and call(held) == 0
    assert store.load(sources[0], ["answer"], no_build) is held
    assert call(store.load(sources[1], ["answer"], no_build)) == 1


def _race(folder: str, start: float, results) -> None:
    """(values, what this process has built)"""
    time.sleep(max(0.0, start - time.time()))
    values, built = [], []

    def noted(source, target):
        built.append(source)
        build(source, target)

    for number in range(4):
        source = f'extern "C" int answer() {{ return {number}; }}'
        values.append(call(KernelStore(Path(folder)).load(source, ["answer"], noted)))
    results.put((values, built))


def test_processes_race(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    start = time.time() + 0.3
    workers = [
        context.Process(target=_race, args=(str(tmp_path), start, results)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert [values for values, _ in found] == [[0, 1, 2, 3]] * 3
    # each kernel is built by one of them
    assert len([source for _, built in found for source in built]) == 4
    store = KernelStore(tmp_path)
    assert not list(store.folder.glob("building-*"))
    assert {path.name.split(".")[0] for path in store.folder.rglob("*.so")} == {
        key_of(f'extern "C" int answer() {{ return {n}; }}') for n in range(4)
    }


def _builds_for_ever(folder: str, begun) -> None:
    def endless(source, target):
        begun.set()
        time.sleep(600)

    KernelStore(Path(folder)).load(SOURCE, ["answer"], endless)


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_another_process_builds_if_the_one_that_does(tmp_path, how, monkeypatch):
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    other = context.Process(target=_builds_for_ever, args=(str(tmp_path), begun))
    other.start()
    assert begun.wait(60)
    begin = time.monotonic()
    if how == "killed":
        killing = threading.Timer(0.5, other.kill)
        killing.start()
    else:
        monkeypatch.setattr(claims, "PATIENCE", 0.5)
    assert call(KernelStore(tmp_path).load(SOURCE, ["answer"], build)) == 42
    assert 0.4 < time.monotonic() - begin < 60
    other.kill()
    other.join()


def test_threads_build_once(tmp_path):
    store = KernelStore(tmp_path)
    built, libraries = [], []

    def slow_build(source, target):
        built.append(source)
        time.sleep(0.05)
        build(source, target)

    threads = [
        threading.Thread(
            target=lambda: libraries.append(store.load(SOURCE, ["answer"], slow_build))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1 and len({id(library) for library in libraries}) == 1


def test_bound_removes_the_least_recently_used(tmp_path):
    probe = KernelStore(tmp_path / "probe").load(SOURCE, ["answer"], build)
    store = KernelStore(tmp_path, limit=probe.bytes * 3 + probe.bytes // 2)
    sources = [SOURCE + " " * n for n in range(4)]
    for age, source in enumerate(sources[:3]):
        path = store.load(source, ["answer"], build).path
        old = time.time() - 10_000 + age
        os.utime(path, (old, old))
    KernelStore(tmp_path).load(sources[0], ["answer"], no_build)  # used again: now the newest
    store.load(sources[3], ["answer"], build)
    kept = {path.name.split(".")[0] for path in store.folder.rglob("*.so")}
    assert kept == {key_of(sources[0]), key_of(sources[3])}
    stats = store.stats()
    assert stats.files == 2 and stats.bytes <= stats.limit and stats.writable
    assert store.clear() == 2 and store.stats().files == 0


def test_abandoned_build_folders_go(tmp_path):
    store = KernelStore(tmp_path)
    left = store.folder / "building-left"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    store.load(SOURCE, ["answer"], build)
    assert not left.exists()


def test_a_process_that_is_killed_leaves_no_temporary_files(tmp_path):
    text = """
import os, signal, sys
from pathlib import Path
from graftjit.runtime.store.store import KernelStore

def build(source, target):
    target.write_text(source)
    os.kill(os.getpid(), signal.SIGKILL)

KernelStore(Path(sys.argv[1])).load("text", ["answer"], build)
"""
    temporary, store = tmp_path / "temporary", KernelStore(tmp_path / "store")
    temporary.mkdir()
    ended = subprocess.run(
        [sys.executable, "-P", "-c", text, str(tmp_path / "store")],
        env={**os.environ, "TMPDIR": str(temporary)}, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    assert not list(temporary.iterdir())
    scratch_and_claim = list(store.folder.glob("building-*"))
    assert len(scratch_and_claim) == 2
    for left in scratch_and_claim:
        os.utime(left, (1, 1))
    store.load(SOURCE, ["answer"], build)
    assert not any(left.exists() for left in scratch_and_claim)
