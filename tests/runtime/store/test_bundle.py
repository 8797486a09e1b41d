"""Bundles of kernels: saved, loaded in another store, used without a compiler, and refused when they are altered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import graftjit
from graftjit.__main__ import main
from graftjit.runtime.errors import UserError
from graftjit.runtime.events.events import Fallback, KernelBuilt
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.store import bundle, kernel_file
from graftjit.runtime.store.store import KernelStore

from .kernels import SOURCE, build, call, no_build, recorded

HERE = {"machine": device.cpu().identity, "compiler": "the compiler there"}
OTHER = {"machine": "another processor", "compiler": "the compiler there"}


@pytest.fixture
def made(tmp_path) -> Path:
    store = KernelStore(tmp_path / "first")
    for number in range(3):
        store.load(SOURCE + " " * number, ["answer"], build, **HERE)
    store.load(SOURCE, ["answer"], build, **OTHER)
    path = tmp_path / "kernels.bundle"
    saved = bundle.save(store, path)
    assert (saved.kernels, saved.refused) == (4, ())
    return path


def test_kernels_arrive_and_need_no_compiler(tmp_path, made):
    store = KernelStore(tmp_path / "second")
    assert not store.bundled()
    moved = bundle.load(store, made)
    assert (moved.kernels, moved.elsewhere) == (3, 1) and store.bundled()
    asked = HERE | {"compiler": "none"}
    with recorded() as events:
        library = KernelStore(tmp_path / "second").load(SOURCE, ["answer"], no_build, **asked)
    assert call(library) == 42 and library.cached
    assert not [e for e in events if isinstance(e, Fallback)]
    assert bundle.load(store, made).kernels == 3 and store.stats().files == 3


def test_the_digest_names_the_bundle(tmp_path, made):
    store = KernelStore(tmp_path / "second")
    digest = made.read_bytes().splitlines()[1].decode()
    assert bundle.load(store, made, digest).digest == digest
    with pytest.raises(UserError, match="another digest"):
        bundle.load(store, made, "0" * 64)


def rewritten(data: bytes, change) -> bytes:
    """The bundle with a changed list of kernels, and a checksum that fits."""
    magic, _digest, listed, rest = data.split(b"\n", 3)
    line, rest = change(json.loads(listed), rest)
    body = json.dumps(line).encode() + b"\n" + rest
    return magic + b"\n" + bundle._digest(body).encode() + b"\n" + body


ALTERED = {
    "empty": lambda data: b"",
    "text": lambda data: b"not a bundle",
    "truncated": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "another version": lambda data: data.replace(b"kernels 1", b"kernels 9", 1),
    "a bit": lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
    "a bit, checksum recomputed": lambda data: rewritten(
        data, lambda rows, rest: (rows, rest[:-9] + bytes([rest[-9] ^ 1]) + rest[-8:])
    ),
    "a path for a name": lambda data: rewritten(
        data, lambda rows, rest: ([["../../evil.so", rows[0][1]], *rows[1:]], rest)
    ),
    "no sizes": lambda data: rewritten(data, lambda rows, rest: ([row[0] for row in rows], rest)),
    "a size below zero": lambda data: rewritten(
        data, lambda rows, rest: ([[rows[0][0], -1], *rows], rest)
    ),
    "more than is listed": lambda data: rewritten(data, lambda rows, rest: (rows, rest + b"x")),
    "less than is listed": lambda data: rewritten(data, lambda rows, rest: (rows, rest[:-1])),
    "no list": lambda data: rewritten(data, lambda rows, rest: ({"names": 1}, rest)),
    "a name of one compiler": lambda data: rewritten(
        data, lambda rows, rest: ([[r[0].replace(kernel_file.ANY, "1" * 16), r[1]] for r in rows], rest)
    ),
}  # fmt: skip


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_an_altered_bundle_is_refused_as_a_whole(tmp_path, made, alter, capsys):
    made.write_bytes(alter(made.read_bytes()))
    with SESSION.override(cache_dir=tmp_path / "second"):
        with pytest.raises(UserError, match="refused"):
            bundle.load(SESSION.store, made)
        assert main(["cache", "load", str(made)]) == 2
        assert "the bundle is refused" in capsys.readouterr().err
    assert not list((tmp_path / "second").rglob("*.so"))


def test_a_damaged_kernel_is_not_saved(tmp_path):
    store = KernelStore(tmp_path)
    path = store.load(SOURCE, ["answer"], build).path
    store.load(SOURCE + " ", ["answer"], build)
    path.write_bytes(path.read_bytes()[:-1])
    saved = bundle.save(store, tmp_path / "kernels.bundle")
    assert saved.kernels == 1 and len(saved.refused) == 1
    assert "does not match its name" in saved.refused[0]


def test_where_nothing_can_be_written(tmp_path, made):
    with pytest.raises(UserError, match="cannot be written"):
        bundle.save(KernelStore(tmp_path / "first"), tmp_path / "missing" / "kernels.bundle")
    with pytest.raises(UserError, match="cannot be read"):
        bundle.load(KernelStore(tmp_path / "first"), tmp_path / "missing")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UserError, match="cannot be loaded into the kernel store"):
        bundle.load(KernelStore(tmp_path / "open"), made)


def test_the_command_line(tmp_path, made, capsys):
    with SESSION.override(cache_dir=tmp_path / "second"):
        assert main(["cache", "load", str(made), "--json"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert (seen["loaded"], seen["of another processor"], seen["files"]) == (3, 1, 3)
        assert main(["cache", "save", str(tmp_path / "again")]) == 0
        assert "saved:    3" in capsys.readouterr().out
        assert main(["cache", "info"]) == 0 and "kernels:  3" in capsys.readouterr().out
        assert main(["cache", "clear"]) == 0 and "removed:  3" in capsys.readouterr().out
        assert (
            main(["cache", "save"]) == 2 and "needs the name of a file" in capsys.readouterr().err
        )
        assert main(["cache", "clear", "x"]) == 2 and "takes no file" in capsys.readouterr().err


def test_a_program_runs_fused_from_a_bundle_without_a_compiler(tmp_path, monkeypatch):
    def f(x):
        return torch.sin(x) * 2 + 1

    def g(x):
        return torch.cos(x) * 3 - 1

    x = torch.randn(8)
    with SESSION.override(cache_dir=tmp_path / "there"):
        graftjit.jit(f)(x)
        bundle.save(SESSION.store, tmp_path / "kernels.bundle")
    graftjit.reset()  # as in another process: a function jitted again takes over what there is
    monkeypatch.setattr(device, "_find_compiler", lambda *_: None)
    with SESSION.override(cache_dir=tmp_path / "here"):
        bundle.load(SESSION.store, tmp_path / "kernels.bundle")
        seen = {}
        for function in (f, g):
            jitted = graftjit.jit(function)
            torch.testing.assert_close(jitted(x), function(x))
            seen[function] = SESSION.log.of([jitted.state])
    assert [e.cached for e in seen[f] if isinstance(e, KernelBuilt)] == [True]
    assert not [e for e in seen[f] if isinstance(e, Fallback)]
    assert [e.code for e in seen[g] if isinstance(e, Fallback)] == ["FB302"]


def test_a_list_that_is_nested_too_deeply(tmp_path, made):
    listed = b"[" * 100_000 + b"]" * 100_000
    magic, _digest, _listed, rest = made.read_bytes().split(b"\n", 3)
    body = listed + b"\n" + rest
    made.write_bytes(magic + b"\n" + bundle._digest(body).encode() + b"\n" + body)
    with pytest.raises(UserError, match="cannot be read"):
        bundle.load(KernelStore(tmp_path / "second"), made)
