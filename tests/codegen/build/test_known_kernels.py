"""Kernels that the process has compiled before are linked, not compiled again."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.codegen.build import cxx as build
from graftjit.codegen.build import translation_units as units
from graftjit.codegen.build.known_kernels import KNOWN, KnownKernels, Unit
from graftjit.runtime.process.session import SESSION

HEAD = "typedef int number;\nnamespace w16 {\n"


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Nothing is stored or known. How many kernels were compiled for each library."""
    made: list[int] = []
    plain = units.compile_parts

    def compile_parts(texts: Any, *rest: Any) -> Any:
        made.append(sum(len(units.kernels(text)) for text in texts))
        return plain(texts, *rest)

    monkeypatch.setattr(units, "compile_parts", compile_parts)
    monkeypatch.setattr(build, "_BUILDS", itertools.count(1))
    monkeypatch.setattr(KNOWN, "_objects", KnownKernels()._objects)
    with SESSION.override(cache_dir=tmp_path):
        yield made


def text(head: str = HEAD, **kernels: int) -> str:
    """A unit of kernels that store these numbers."""
    return head + "".join(
        f'extern "C" void {name}(void **buffers, int threads) {{\n'
        f"  // line {name}\n  *(number *)buffers[0] = {value};\n}}\n"
        for name, value in kernels.items()
    ) + "}\n"  # fmt: skip


def results(head: str = HEAD, **kernels: int) -> dict[str, int]:
    """What the kernels of the library store."""
    addresses = build.load(text(head, **kernels), list(kernels)).addresses
    found = {}
    for name in kernels:
        number = ctypes.c_int(-1)
        buffers = (ctypes.c_void_p * 1)(ctypes.addressof(number))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(addresses[name])(buffers, 1)
        found[name] = number.value
    return found


def test_only_what_is_new_is_compiled(compiled):
    first = {"k0_add": 1, "k1_add": 2, "k2_mul": 3}
    again = {"k0_mul": 3, "k1_add": 4, "k2_add": 1}
    assert results(**first) == first
    assert results(**again) == again
    assert results(k0_add=2, k1_add=1) == {"k0_add": 2, "k1_add": 1}
    assert compiled == [3, 1, 0]


def test_a_small_unit_is_compiled_and_linked_in_one_run_if_it_is_the_first(compiled, monkeypatch):
    monkeypatch.setattr(build, "_BUILDS", itertools.count())
    assert results(k0_add=1) == {"k0_add": 1} and compiled == []
    assert results(k0_add=1, k1_add=2) == {"k0_add": 1, "k1_add": 2} and compiled == [2]


def test_equal_kernels_of_one_unit_are_compiled_once(compiled):
    assert results(k0_add=5, k1_add=5) == {"k0_add": 5, "k1_add": 5}
    assert compiled == [1]


def test_kernels_after_another_text_are_others(compiled):
    results(k0_add=1)
    assert results(HEAD.replace("int", "unsigned"), k0_add=1) == {"k0_add": 1}
    assert compiled == [1, 1]


def test_a_link_that_fails_is_no_harm(compiled, monkeypatch):
    results(k0_add=1)
    monkeypatch.setattr(Unit, "exports", lambda self: ["-Wl,--no-such-flag"])
    assert results(k0_add=1, k1_add=2) == {"k0_add": 1, "k1_add": 2}


def test_the_least_recently_used_ones_go(monkeypatch):
    monkeypatch.setattr("graftjit.codegen.build.known_kernels.MOST", 2)
    known = KnownKernels()
    names = [*known.unit(text(k0=0, k1=1, k2=2), ()).names.values()]
    made = [known.unit(text(**{f"k{n}": n}), ()).text for n in range(3)]
    known.keep([(made[0], b"0"), (made[1], b"1")])
    assert known.unit(text(k0=0), ()).objects == (b"0",)
    known.keep([(made[2], b"2")])
    assert list(known._objects) == [names[0], names[2]]


def test_a_graph_for_another_size_has_most_kernels_of_the_first(compiled):
    def f(x, w, y):
        return torch.softmax(x @ w, -1), torch.tanh(y) * 2

    torch.manual_seed(0)
    run, x, w = graftjit.jit(f, dynamic=False), torch.randn(8, 8), torch.randn(8, 8)
    for size in (5, 6):
        y = torch.randn(size)
        for ours, theirs in zip(run(x, w, y), f(x, w, y), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert compiled[1] < compiled[0]
