"""Plans that were kept: the program is the one that planning gives, and nothing that planning asks is left out of the key."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from graftjit.codegen import pipeline as planned
from graftjit.codegen.backend import compile_graph
from graftjit.codegen.build import cxx as build
from graftjit.codegen.plan_cache import cache as kept_plans
from graftjit.codegen.plan_cache import key as graph_key
from graftjit.codegen.plan_cache import serialize
from graftjit.codegen.programs.compiled import Compiled
from graftjit.ir.graph.nodes import Graph, Meta, Node
from graftjit.ir.location import Location
from graftjit.ir.symbolic.expr import Symbol
from graftjit.ir.trace.tracer import Tracer
from graftjit.runtime.errors import CheckError
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.store import kernel_file
from graftjit.runtime.store import notes as kept_notes

from ..harness import normal, trace


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[Path]:
    """A store of its own, and no second planning beside the kept plan."""
    with SESSION.override(cache_dir=tmp_path, check=False):
        yield tmp_path


def never(*_: Any) -> Any:
    raise AssertionError("planned anew")


def twice(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Graph]) -> tuple[Compiled, Compiled]:
    """Such a graph planned, and another one by the plan that was kept."""
    first = compile_graph(make())
    with monkeypatch.context() as patch:
        patch.setattr(planned, "programmed", never)
        return first, compile_graph(make())


def moved(x: Any, y: Any) -> Any:
    x = x[:, 1:].transpose(0, 1)
    return x.sum(0), (x @ y).relu(), y.t()


def mixed(x: Any, y: Any) -> Any:
    a = F.layer_norm(F.linear(x, y), (24,))
    return (
        torch.cumsum(a, 1),
        a.topk(3, sorted=True).values,
        a.double().sum(),
        torch.where(a > 0, a, -torch.inf),
    )


def large(x: Any, _: Any) -> Any:
    weight = torch.ones(64, 3, 3, 3)
    return torch.conv2d(x.reshape(1, 3, 8, 8).repeat(1, 1, 8, 8), weight).relu()


def folded(x: Any, _: Any) -> Any:
    return x * torch.tensor([2.0])


PROGRAMS = [
    (moved, (8, 9), (8, 8)), (mixed, (8, 16), (24, 16)), (large, (8, 24), (1,)), (folded, (3, 4), (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "one", "other"), PROGRAMS)
def test_the_kept_plan_is_the_program(
    function: Any, one: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = normal(*one), normal(*other)
    first = compile_graph(trace(function, *inputs))
    key = kept_plans.key_of(trace(function, *inputs))
    assert key is not None
    if kept_plans.recall(key) is None:
        pytest.skip("this plan has a constant that passes made")
    _, kept = twice(monkeypatch, lambda: trace(function, *inputs))
    plain = lambda spec: [  # noqa: E731
        dataclasses.replace(step, keep=None) if hasattr(step, "keep") else step
        for step in spec.steps
    ]
    assert plain(first.spec) == plain(kept.spec)
    for name in ("n_inputs", "n_slots", "outputs", "arena", "joined"):
        assert getattr(first.spec, name) == getattr(kept.spec, name)
    records = [[dataclasses.replace(r, cached=True) for r in c.kernels] for c in (first, kept)]
    assert records[0] == records[1]
    assert (kept.library, kept.distinct) == (first.library, first.distinct)
    for ours, theirs in zip(kept(*inputs), first(*inputs), strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def test_equal_kernels_have_their_names_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def layers(x: Any) -> Any:
        for _ in range(4):
            x = torch.softmax(torch.ops.aten.relu(x), 1).contiguous().roll(1, 0).cumsum(0)
        return x

    x = normal(5, 7)
    first, kept = twice(monkeypatch, lambda: trace(layers, x))
    assert len({one.name for one in kept.kernels}) == len(kept.kernels)
    assert [one.source for one in first.kernels] == [one.source for one in kept.kernels]


def test_trouble_raises_what_eager_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(table: Any, at: Any) -> Any:
        return (table.t()[at[1:]] * 2).sum(1)

    table, at = normal(4, 6), torch.tensor([0, 5, 2])
    _, kept = twice(monkeypatch, lambda: trace(looked_up, table, at))
    assert torch.equal(kept(table, at)[0], looked_up(table, at))
    wrong = torch.tensor([0, 1, 6])
    with pytest.raises(IndexError) as eager:
        looked_up(table, wrong)
    with pytest.raises(IndexError) as ours:
        kept(table, wrong)
    assert str(ours.value) == str(eager.value)


def test_a_baked_tensor_is_the_new_graph_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x, held = normal(3, 2000), [normal(2000)]

    def make() -> Graph:
        tracer = Tracer("test")
        ghost = tracer.input(x)
        baked = held[0]
        return tracer.finish([tracer.run(lambda a: a * baked, [ghost])])

    _, kept = twice(monkeypatch, make)
    assert torch.equal(kept(x)[0], x * held[0])
    held[0] = normal(2000, seed=1)
    assert torch.equal(compile_graph(make())(x)[0], x * held[0])


def test_a_kernel_that_is_gone_is_built_from_the_kept_text(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = normal(3, 4)
    make = lambda: trace(lambda a: a.sin() * 2.5, x)  # noqa: E731
    compile_graph(make())
    for path in store.rglob("*.so"):
        path.unlink()
    built = []
    compiling = build._compile
    monkeypatch.setattr(build, "_compile", lambda *a: built.append(a) or compiling(*a))
    monkeypatch.setattr(planned, "programmed", never)
    with SESSION.override(cache_dir=store):  # with no library in memory
        kept = compile_graph(make())
    assert built and torch.allclose(kept(x)[0], x.sin() * 2.5)


# --- the key ---------------------------------------------------------------------------------------------------


def key_of(graph: Graph) -> tuple[str, ...]:
    return graph_key.texts(graph)


def test_each_field_is_in_the_key_or_known_not_to_matter() -> None:
    """A new field of a graph or a node belongs into the key, or among those that no plan depends on."""
    fields = {one.name for one in dataclasses.fields(Graph)}
    of_the_text = {"inputs", "nodes", "outputs", "needs_grad", "symbols", "numbers"}
    assert fields == of_the_text | set(graph_key.SAID) | set(graph_key.UNSAID)
    assert [one.name for one in dataclasses.fields(Node)] == [
        "op", "target", "args", "kwargs", "meta", "name", "where", "alias",
    ]  # fmt: skip
    assert [one.name for one in dataclasses.fields(Meta)] == [
        "shape", "stride", "dtype", "device", "offset",
    ]  # fmt: skip


X = torch.zeros(4, 6)
GRAPHS: list[tuple[Callable[..., Any], torch.Tensor]] = [
    (lambda x: x + 1, X),
    (lambda x: x + 1.0, X),
    (lambda x: x + True, X),
    (lambda x: x * 0.0, X),
    (lambda x: x * -0.0, X),
    (lambda x: x - 1, X),
    (lambda x: torch.add(x, x, alpha=1), X),
    (lambda x: torch.add(x, x, alpha=2), X),
    (lambda x: (x + 1, x), X),
    (lambda x: (x, x + 1), X),
    (lambda x: x.add_(1), X),
    (lambda x: x + 1, X.double()),
    (lambda x: x + 1, torch.zeros(6, 4)),
    (lambda x: x + 1, torch.zeros(6, 4).t()),
    (lambda x: x + 1, torch.zeros(8, 12)[::2, ::2]),
    (lambda x: x + 1, torch.zeros(40)[16:].view(4, 6)),
    (lambda x: x.view(24), X),
    (lambda x: x.reshape(2, 12), X),
    (lambda x: x.sum((0, 1)), X),
    (lambda x: x.sum(0), X),
    (lambda x: x.sum(0, keepdim=True), X),
    (lambda x: x.to(torch.float64), X),
    (lambda x: x + torch.tensor([1.0]), X),
    (lambda x: x + torch.tensor([2.0]), X),
    (lambda x: x + torch.tensor([1]), X),
    (torch.rand_like, X),
]


def test_different_graphs_have_different_keys() -> None:
    keys = [key_of(trace(function, given)) for function, given in GRAPHS]
    assert len(set(keys)) == len(GRAPHS)
    assert [key_of(trace(function, given)) for function, given in GRAPHS] == keys


@pytest.mark.parametrize("name", graph_key.SAID)
def test_what_is_said_of_a_graph_is_in_the_key(name: str) -> None:
    graph = trace(lambda x: x + 1, X)
    before = key_of(graph)
    value = getattr(graph, name)
    others = {bool: True, list: [0], frozenset: frozenset([0]), tuple: ((0, "a"),)}
    assert key_of(dataclasses.replace(graph, **{name: others[type(value)]})) != before


def test_the_line_that_reports_name_is_in_the_key() -> None:
    graph = trace(lambda x: x + 1, X)
    before = key_of(graph)
    for node in graph.nodes:
        node.where = Location("model.py", 7)
    there = key_of(graph)
    for node in graph.nodes:
        node.where = Location("model.py", 8)
    assert len({before, there, key_of(graph)}) == 3


def test_what_torch_is_set_to_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = trace(lambda x: x + 1, X)
    before = key_of(graph)
    precision = torch.get_float32_matmul_precision()
    settings: list[tuple[Callable[[Any], Any], Any, Any]] = [
        (torch.set_default_dtype, torch.float64, torch.float32),
        (torch.set_float32_matmul_precision, "medium", precision),
        (torch.use_deterministic_algorithms, True, False),
        (torch._C._set_mkldnn_enabled, False, True),  # type: ignore[attr-defined]
    ]
    for change, other, usual in settings:
        try:
            change(other)
            assert key_of(graph) != before
        finally:
            change(usual)
        assert key_of(graph) == before
    slow = device.slow_mkl()
    monkeypatch.setattr(device, "slow_mkl", lambda: not slow)
    assert key_of(graph) != before


def test_the_code_that_plans_is_in_the_key() -> None:
    file = Path(graph_key.__file__).parent.parent / "fusion" / "fuse.py"  # in a sub-package
    graph_key._code.cache_clear()
    before, facts = graph_key._code(), file.stat()
    try:
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns - 1))
        graph_key._code.cache_clear()
        assert graph_key._code() != before
        os.utime(file, ns=(facts.st_atime_ns, SESSION.began + 1))  # what runs may be what it was
        graph_key._code.cache_clear()
        with pytest.raises(graph_key.NotKept):
            graph_key._code()
    finally:
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        graph_key._code.cache_clear()
    for name in ("codegen fuse.py", "codegen common.h", "ir rewriter.py", "runtime program.py"):
        assert f"{name} " in before


def test_sizes_that_are_expressions_have_no_key() -> None:
    graph = trace(lambda x: x + 1, X)
    assert kept_plans.key_of(graph) is not None
    size = Symbol("s0", "int", 4)
    for unsaid in ({"symbols": {size: ("size", 0, 0)}}, {"numbers": [size]}, {"needs_grad": True}):
        assert kept_plans.key_of(dataclasses.replace(graph, **unsaid)) is None


def test_values_without_a_text_of_their_own_have_no_key() -> None:
    assert kept_plans.key_of(trace(lambda x: x + float("nan"), X)) is None
    assert kept_plans.key_of(trace(lambda x: x + 1j, X)) is None


@pytest.mark.parametrize("value", [1j, slice(1), torch.ones(1), print, never, torch.nn.ReLU()])
def test_plans_with_other_values_are_not_kept(value: Any) -> None:
    with pytest.raises(graph_key.NotKept):
        serialize.dumps({"program": [1, (value,)]})


def test_values_of_plans_are_read_as_they_were_written() -> None:
    values = [1, True, 1.0, -0.0, None, "a", (1, [2]), {3: 4}, torch.bfloat16, torch.strided]
    values += [torch.channels_last, torch.device("cuda", 1), torch.ops.aten.add.Tensor]
    assert repr(serialize.loads(serialize.dumps(values))) == repr(values)


# --- under GRAFTJIT_CHECK --------------------------------------------------------------------------------------


def test_under_check_another_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(3, 4)
    make = lambda: trace(lambda a: a.cos() * 2.5, x)  # noqa: E731
    compile_graph(make())
    with SESSION.override(check=True):
        compile_graph(make())
        key = kept_plans.key_of(make())
        assert key is not None
        kept = kept_plans.recall(key)
        assert kept is not None
        kept["source"] = kept["source"].replace("2.5", "3.5")
        monkeypatch.setattr(kept_plans, "recall", lambda _: kept)
        with pytest.raises(CheckError, match="source"):
            compile_graph(make())


WHOLE = pickle.dumps({"program": None, "source": ""})
NO_PLANS = {
    "cut off": WHOLE[:-9], "no pickle": b"\xff\xfe", "JSON": b'{"program": {}}', "empty": b"",
    "a class that is gone": b"cgraftjit.gone\nGone\n.", "a list": pickle.dumps([1, 2]), "none": pickle.dumps(None),
}  # fmt: skip


@pytest.mark.parametrize("data", NO_PLANS.values(), ids=NO_PLANS)
def test_a_note_that_is_no_plan(store: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Whole, by its digest, and not what was kept."""

    def keep(store: Any, texts: Any, machine: str, compiler: str, _value: Any) -> None:
        name = kept_notes._name(texts, machine, compiler, kernel_file.digest_of(data))
        store.publish(name, data)

    x = torch.randn(5, 4)
    with monkeypatch.context() as patch:
        patch.setattr(kept_notes, "keep", keep)
        first = compile_graph(trace(lambda x: x.sin() * 2, x))
    read: list[Any] = []
    recall = kept_notes.recall
    monkeypatch.setattr(
        kept_notes, "recall", lambda *given: read.append(recall(*given)) or read[-1]
    )
    again = compile_graph(trace(lambda x: x.sin() * 2, x))
    assert read and read[0] in (None, [1, 2])  # nothing was raised
    for made in (first, again):
        torch.testing.assert_close(made.program(x)[0], x.sin() * 2)
