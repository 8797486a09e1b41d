"""Products at O2: a nest or the library's call, whichever was measured to be the faster one."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import graftjit
from graftjit import JitConfig, jit
from graftjit.codegen.build import cxx as build
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.tuning import library_calls as tune_products
from graftjit.codegen.tuning import timing as clock
from graftjit.codegen.tuning.timing import Timing
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.errors import BuildError
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION

from ..harness import trace

O2 = JitConfig(jit_level="O2")


@pytest.fixture
def best(monkeypatch):
    """`best("library")`: the clock finds this way the fastest. Gives the products that were timed."""
    timed = []

    def decide(name):
        def race(node, seconds):
            timed.append(node)
            found = [5e-5 if way == name else 1e-4 for way in tune_products._ways(node)]
            return [Timing(time, time * 0.99, time * 1.01) for time in found]

        monkeypatch.setattr(tune_products, "_timed", race)
        return timed

    return decide


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)  # sums of a hundred products


def layer(x, w, b):
    return F.relu(F.linear(x, w, b) * 2)


# by default: a nest (few rows), and the library's call
FEW, MANY = [(4, 128), (96, 128), (96,)], [(24, 128), (96, 128), (96,)]


def frames(made):
    return made.report().frames[0]


@pytest.mark.parametrize("shapes, way, calls", [
    (FEW, "nest", 0), (FEW, "library", 1), (MANY, "library", 1), (MANY, "nest", 0),
])  # fmt: skip
def test_a_product_runs_as_it_was_measured_to_be_the_fastest(store, best, shapes, way, calls):
    timed = best(way)
    made, given = jit(layer, config=O2), [torch.randn(shape) for shape in shapes]
    close(made(*given), layer(*given))
    assert len(timed) == 1 and frames(made).library == calls
    record = made.report().schedules[0]
    assert record.chosen == way and {name for name, _ in record.times} == {"nest", "library"}
    assert "relu" not in record.covers[0] and "addmm" in record.covers[0]


def test_it_is_remembered_and_equal_layers_are_one_question(store, best):
    timed = best("nest")
    given = [torch.randn(24, 96), torch.randn(96, 96), torch.randn(96)]

    def program(x, w, b):
        return layer(layer(x, w, b), w, b)

    for _ in range(2):
        graftjit.dispatch.shared_entries.SHARED.forget()
        made = jit(program, config=O2)
        made(*given)
        assert frames(made).library == 0
    assert len(timed) == 1 and made.report().schedules[0].remembered


def test_a_damaged_note_is_as_if_it_were_not_there(store, best):
    timed = best("nest")
    given = [torch.randn(shape) for shape in MANY]
    jit(layer, config=O2)(*given)
    for path in store.folder.rglob("*.note"):
        path.write_bytes(b"[]")
    graftjit.dispatch.shared_entries.SHARED.forget()
    made = jit(layer, config=O2)
    made(*given)
    assert len(timed) == 2 and "FB307" in [note.code for note in made.report().notes]


def test_in_the_background_it_is_measured_in_the_background(store, best):
    timed = best("nest")
    config, given = O2.replace(background=True), [torch.randn(shape) for shape in MANY]
    made = jit(layer, config=config)
    assert torch.equal(made(*given), layer(*given)) and frames(made).kernels == 0
    assert graftjit.wait(60) and len(timed) == 1
    close(made(*given), layer(*given))
    assert frames(made).kernels == 1 and frames(made).library == 0


def test_what_cannot_be_built_keeps_its_default(store, monkeypatch):
    def fails(source, symbols):
        raise BuildError("no room for a measurement")

    monkeypatch.setattr(build, "once", fails)
    with SESSION.override(check=False):
        made, given = jit(layer, config=O2), [torch.randn(shape) for shape in MANY]
        close(made(*given), layer(*given))
    assert [note.code for note in made.report().notes] == ["FB316"]
    assert frames(made).library == 1


@pytest.mark.parametrize(
    "function, shapes",
    [
        (layer, [(1 << 9, 1 << 9), (1 << 9, 1 << 9), (1 << 9,)]),
        (lambda a, b: a @ b, [(16, 512), (512, 512)]),
        (lambda x, w: F.linear(x, w), [(2, 4), (4, 4)]),
    ],
    ids=["large", "not read in order", "few columns"],
)
def test_what_is_clear_is_not_asked(function, shapes):
    graph = optimize(trace(function, *(torch.randn(shape) for shape in shapes)))
    assert not tune_products._candidates(graph)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "function, shapes",
    [
        (layer, MANY),
        (lambda a, b: a @ b.t(), [(24, 70), (30, 70)]),
        (lambda a, b: torch.bmm(a, b.mT), [(3, 5, 70), (3, 9, 70)]),
        (lambda a, b: torch.mv(a, b), [(100, 130), (130,)]),
        (lambda c, a, b: torch.addmm(c, a, b.t(), beta=0.5, alpha=2), [(9, 12), (9, 70), (12, 70)]),
    ],
)
def test_both_ways_run_on_tensors_of_their_own_and_are_right(function, shapes, dtype):
    given = [torch.randn(shape, dtype=dtype) for shape in shapes]
    before = [each.clone() for each in given]
    graph = optimize(trace(function, *given))
    (node,) = tune_products._candidates(graph).values()
    alone = tune_products._alone(node)
    tensors = [tune_products._tensor(each.meta) for each in alone.inputs]
    assert {t.data_ptr() for t in tensors}.isdisjoint(t.data_ptr() for t in given)
    expected = node.target(*_filled(alone.nodes[0].args, tensors), **node.kwargs)
    for ours in (True, False):
        (found,) = tune_products._program(alone, node, ours, tensors)()
        assert not differs(found, expected)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def _filled(args, tensors):
    return [tensors[arg.target] if hasattr(arg, "target") else arg for arg in args]


def test_a_real_race_gives_a_time_for_each(monkeypatch):
    monkeypatch.setattr(clock, "NOISE", 1e9)  # however busy the machine is
    graph = optimize(trace(layer, *(torch.randn(shape) for shape in MANY)))
    (node,) = tune_products._candidates(graph).values()
    assert len(tune_products._timed(node, 30)) == 2


@pytest.mark.skipif(
    device.cpu().isa not in device.VECTORS, reason="the kernel is written for AVX-512 and AVX2"
)
@pytest.mark.parametrize("way", ["kernel", "library"])
@pytest.mark.parametrize("fn", [F.conv2d, F.conv_transpose2d])
def test_a_convolution_runs_as_it_was_measured_to_be_the_fastest(store, best, way, fn):
    timed = best(way)
    given = [torch.randn(2, 24, 20, 20), torch.randn(24, 24, 3, 3)]
    made = jit(lambda x, w: fn(x, w).relu(), config=O2)
    torch.testing.assert_close(made(*given), fn(*given).relu(), atol=1e-4, rtol=1e-4)
    assert len(timed) == 1 and made.report().schedules[0].chosen == way
    launched = any("convolution" in line for line in _covered(made))
    assert launched == (way == "kernel" and fn is F.conv2d)  # whose epilogue is the relu


def _covered(made):
    return [line for kernel in made.report().libraries for line in kernel.covers]


@pytest.mark.skipif(
    device.cpu().isa not in device.VECTORS, reason="the kernel is written for AVX-512 and AVX2"
)
def test_a_convolution_is_timed_and_remembered(store, monkeypatch):
    given = [torch.randn(1, 16, 24, 24), torch.randn(16, 16, 3, 3), torch.randn(16)]
    monkeypatch.setattr(tune_products, "BUDGET", 5.0)
    timed = False  # never where the machine is busy
    for _ in range(2):
        graftjit.dispatch.shared_entries.SHARED.forget()
        made = jit(lambda x, w, b: F.conv2d(x, w, b, padding=1), config=O2)
        torch.testing.assert_close(made(*given), F.conv2d(*given, padding=1), atol=1e-4, rtol=1e-4)
        for record in made.report().schedules:
            assert {name for name, _ in record.times} == {"kernel", "library"}
            assert record.remembered or not timed
            timed = True
