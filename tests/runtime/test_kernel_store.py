"""The kernel store on a real disk with a real compiler: hits, damage, races, full and unwritable folders."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from graftjit.runtime import kernel_store
from graftjit.runtime.device import cpu, find_compiler
from graftjit.runtime.errors import BuildError
from graftjit.runtime.events import Fallback, KernelBuilt
from graftjit.runtime.kernel_store import KernelStore, key_of
from graftjit.runtime.session import SESSION

SOURCE = 'extern "C" int answer() { return 42; }'


def build(source: str, target: Path) -> None:
    compiler = find_compiler()
    assert compiler is not None
    command = [
        *compiler.command,
        "-x",
        "c++",
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-",
        "-o",
        str(target),
    ]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)


def no_build(source: str, target: Path) -> None:
    raise AssertionError("the kernel should have come from the store")


def call(library, symbol: str = "answer") -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(library.addresses[symbol])()


@contextlib.contextmanager
def recorded():
    """The events emitted within the block."""
    key = compile("0", "<key>", "eval")
    found: list = []
    with SESSION.working_for(key, "test"):
        yield found
    found.extend(SESSION.log.of([key]))


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
        key = path.name.split(".")[0]
        (path.parent / f"{key}.{kernel_store._digest(data)}.so").write_bytes(data)
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
    assert [e.code for e in events if isinstance(e, Fallback)] == ["FB308"]
    assert [e.cached for e in events if isinstance(e, KernelBuilt)] == [False, False]
    warnings = [r for r in caplog.records if "WN602" in r.getMessage()]
    assert len(warnings) == 1 and "GRAFTJIT_CACHE_DIR" in warnings[0].getMessage()
    assert not store.writable() and store.stats().files == 0


def test_read_only_store_is_still_read(tmp_path, monkeypatch):
    KernelStore(tmp_path).load(SOURCE, ["answer"], build)
    store = KernelStore(tmp_path)
    real = kernel_store.tempfile.mkdtemp

    def refuse(prefix="", dir=None):
        if dir == store.folder:
            raise PermissionError(13, "Permission denied", str(dir))
        return real(prefix=prefix, dir=dir)

    monkeypatch.setattr(kernel_store.tempfile, "mkdtemp", refuse)
    assert store.load(SOURCE, ["answer"], no_build).cached
    assert call(store.load(SOURCE + " ", ["answer"], build)) == 42


def test_nowhere_to_write_is_a_clear_error(tmp_path, monkeypatch):
    def refuse(**_where):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_store.tempfile, "mkdtemp", refuse)
    with pytest.raises(BuildError, match="GRAFTJIT_CACHE_DIR"):
        KernelStore(tmp_path).load(SOURCE, ["answer"], build)


def _race(folder: str, start: float, results) -> None:
    time.sleep(max(0.0, start - time.time()))
    values = []
    for number in range(4):
        source = f'extern "C" int answer() {{ return {number}; }}'
        values.append(call(KernelStore(Path(folder)).load(source, ["answer"], build)))
    results.put(values)


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
    assert found == [[0, 1, 2, 3]] * 3
    store = KernelStore(tmp_path)
    assert {path.name.split(".")[0] for path in store.folder.rglob("*.so")} == {
        key_of(f'extern "C" int answer() {{ return {n}; }}') for n in range(4)
    }


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
