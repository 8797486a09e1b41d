"""Graphs on cuda: which steps they become, on which device, what stays ATen's and who is described; values by the interpreter."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen import pipeline as planned
from graftjit.codegen.plan_cache import cache as kept_plans
from graftjit.codegen.plan_cache import key as graph_key
from graftjit.codegen.plan_cache import serialize as plan_form
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.schedule import gpu_kernels as gpu_plan
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import cubins
from graftjit.codegen.triton import devices as gpus
from graftjit.codegen.triton import renderer as triton
from graftjit.ir.graph.devices import gpus_of
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.cuda import driver
from graftjit.runtime.errors import BuildError
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.program.program import Alloc, DeviceLaunch, Scratch

from ..harness import trace
from ..on_cuda import CUDA, H100, Machine, Written, relabelled, written
from ..symbolic import check_open


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def mlp(x, w, b, v):
    return torch.softmax(F.gelu(x @ w + b) @ v, -1)


def steps(x, w):
    """Kernels that hand memory to each other."""
    a = torch.softmax(x, -1)
    b = (a + 1).sum(0)
    return (b @ w).exp() + (a * 2).amax(0) + x.sum(0)


CASES = {
    "products between kernels": (mlp, [normal(6, 8), normal(8, 16), normal(16), normal(16, 4)]),
    "memory between kernels": (steps, [normal(6, 8), normal(8, 8)]),
    "cat by its parts": (
        lambda x, y: torch.cat([x.exp(), y * 2], 1).contiguous(), [normal(4, 3), normal(4, 5)],
    ),
    "bfloat16": (
        lambda x, w: F.layer_norm(F.silu(x @ w) + x, (16,)),
        [normal(4, 16, dtype=torch.bfloat16), normal(16, 16, dtype=torch.bfloat16)],
    ),
    "views and results that are views": (
        lambda x: ((x.t() * 2)[1:], x.view(-1)[3:9] + 1), [normal(4, 6)],
    ),
    "sums down columns": (lambda x: (x.sum(0), x.mean(), x.var(0)), [normal(9, 6)]),
    "gathers and norms": (
        lambda x, i: F.layer_norm(x[i] * 2, (6,)), [normal(9, 6), torch.tensor([3, -1, 0, 8])],
    ),
    "cross entropy": (
        lambda x, i: F.cross_entropy(x, i), [normal(4, 6), torch.tensor([3, 1, 0, 5])],
    ),
    "sums at places": (
        lambda x, i, y: (x * 2).index_add(0, i, y.exp()),
        [normal(5, 6), torch.tensor([3, 1, 0, 3]), normal(4, 6)],
    ),
    "the greatest at places": (
        lambda i, y: torch.zeros(5, 6).scatter_reduce(0, i[:, None].expand(4, 6), y.exp(), "amax"),
        [torch.tensor([3, 1, 0, 3]), normal(4, 6)],
    ),
    "shifted windows": (
        lambda x: torch.roll(x.exp(), (-1, 2), (1, 2)).view(2, 2, 2, 4, 3).transpose(2, 3).reshape(4, 4, 6) * 2,
        [normal(2, 4, 12)[:, :, :12]],
    ),
    "patches": (
        lambda x: (x / 255).view(2, 3, 4, 5, 2, 7).permute(0, 2, 4, 3, 5, 1).reshape(2, 8, 105), [normal(2, 3, 20, 14)],
    ),
    "created": (lambda x: x + torch.arange(5.0) * torch.ones(3, 5), [normal(3, 5)]),
    "half ranges": (lambda x: x + torch.arange(0.5, 5.5, 1.0), [normal(3, 5)]),
    "cumulative": (lambda x: x.cumsum(-1) * 2 + x.cumsum(0), [normal(3, 20)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_programs_of_the_interpreter_give_eagers_values(worker, name):
    fn, given = CASES[name]
    made = written(fn, *given)
    assert made.launches
    found = Machine(worker).run(made, *given)
    wanted = fn(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for ours, theirs in zip(found, wanted, strict=True):
        assert not differs(ours, theirs), (ours, theirs, made.spec)


def test_sums_that_eager_has_in_one_order_are_atens():
    """Atomic operations add in any."""

    def sums(x, i, y):
        return (x * 2).index_add(0, i, y.exp()), torch.index_put(x * 3, (i,), y, accumulate=True)

    given = normal(5, 6), torch.tensor([3, 1, 0, 3]), normal(4, 6)
    assert written(sums, *given).aten == ["aten.index_put.default"]
    try:
        torch.use_deterministic_algorithms(True)
        assert "aten.index_add.default" in written(sums, *given).aten
    finally:
        torch.use_deterministic_algorithms(False)


def test_products_are_atens_and_what_is_between_them_is_kernels():
    made = written(*CASES["products between kernels"][:1], *CASES["products between kernels"][1])
    kinds = Counter(type(step) for step in made.spec.steps)
    assert made.aten == ["aten.mm.default"] * 2 and kinds[DeviceLaunch] == 2
    assert not made.plan.replaced and all(step.device == CUDA for step in made.launches)


def test_the_workspace_is_one_tensor_of_the_device():
    made = written(steps, normal(64, 128), normal(128, 128))
    parts = [step for step in made.spec.steps if isinstance(step, Scratch)]
    (base,) = {step.base for step in parts}
    (tensor,) = [s for s in made.spec.steps if isinstance(s, Alloc) and s.slot == base]
    assert tensor.device == CUDA and tensor.dtype is torch.uint8
    assert tensor.shape[0] == max(step.offset + step.nbytes for step in parts)
    assert made.spec.arena == 0
    first = made.spec.steps.index(tensor)
    freed = [n for n, s in enumerate(made.spec.steps) if base in getattr(s, "slots", ())]
    used = [
        n
        for n, s in enumerate(made.spec.steps)
        for one in parts
        if one.slot in getattr(s, "slots", ())
    ]
    assert first < min(used) and freed and freed[0] > max(used)


def test_a_result_takes_the_memory_of_what_is_dead():
    made = written(lambda x, w: F.relu(x @ w), normal(8, 8), normal(8, 8))
    (launch,) = made.launches
    assert launch.slots[0] == launch.slots[1]


def test_one_value_a_row_is_never_written_over_what_threads_share():
    made = written(lambda x, v, w: x * (v @ w)[:, None] + 1, normal(8, 8), normal(8, 8), normal(8))
    assert not made.plan.over
    made = written(lambda x, v, w: x.sum(-1) + (v @ w), normal(8, 8), normal(8, 8), normal(8))
    assert not made.plan.over


def test_alignment_is_promised_of_what_we_know_and_looked_at_elsewhere(monkeypatch):
    made = written(lambda x, w: (F.relu(x @ w) + x).sum(-1), normal(8, 8), normal(8, 8))
    (text,) = made.texts.values()
    (launch,) = made.launches
    looked_at = {launch.slots[at] for at in launch.aligned}
    promised = {launch.slots[at] for at in text.aligned} - looked_at
    assert promised and not promised & {0, 1} and looked_at == {0}

    asked = []

    def load(texts, capabilities, *rest):
        asked.append((texts[""].aligned, capabilities[""]))
        return {"": SimpleNamespace(function=7, shared=5, keep=None)}

    monkeypatch.setattr(plan_form, "load_kernels", load)
    monkeypatch.setattr(device, "gpu", lambda one: SimpleNamespace(capability=(9, 0)))
    monkeypatch.setattr(driver, "prepare", lambda *_: None)
    monkeypatch.setattr(driver, "captured", lambda _: None)
    assert launch.general() == (7, 5)
    ((left, capability),) = asked
    assert {launch.slots[at] for at in left} == promised and capability == 90


def test_parts_of_tensors_are_promised_nothing():
    made = written(lambda x: (x[1:] * 2, x * 2), normal(9))
    assert all(step.aligned for step in made.launches)
    made = Written(relabelled(trace(lambda x: x * 2, normal(9)[1:])))
    assert not any(step.aligned for step in made.launches)
    assert not any(at == 0 for text in made.texts.values() for at in text.aligned)


def test_equal_kernels_are_one_text():
    def layers(x, w):
        for _ in range(4):
            x = F.gelu(x @ w + 1)
        return x

    made = written(layers, normal(8, 8), normal(8, 8))
    assert len(made.launches) == 4 and len(made.texts) == 1
    assert len({step.function for step in made.launches}) == 1


def both_devices(x, y, w):
    return (x.exp() + 1, (y @ w).relu() * 2, y.sum())


def test_units_are_of_one_device_and_a_program_of_several():
    made = Written(mixed())
    names = {kernel.device.type: kernel.nest.name for kernel in made.plan.kernels}
    assert names.keys() == {"cpu", "cuda"}
    assert len(made.launches) == 2 and not any(0 in step.slots for step in made.launches)


def test_a_number_on_the_processor_beside_a_tensor_on_the_gpu_is_atens():
    graph = trace(lambda x, s: (x * s).exp() + 1, normal(4, 4), torch.tensor(2.0))
    number = graph.inputs[1]
    made = Written(relabelled(graph, lambda node: node is number))
    assert made.aten == ["aten.mul.Tensor"] and len(made.launches) == 1


# --- what eager does in other operators, or in another way, on a GPU -------------------------------------------


def batch_norm(x, w, b, mean, variance):
    return F.batch_norm(x, mean, variance, w, b, training=True, momentum=0.3).relu()


def moments(x):
    count = x.shape[1]
    return [x, torch.rand(count) + 0.5, torch.randn(count), torch.zeros(count), torch.ones(count)]


def as_cudnn(graph):
    """The graph with batch norm as cuDNN's operator, which saves one result more."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.native_batch_norm.default:
            node.target = torch.ops.aten.cudnn_batch_norm.default
            room = replace(node.meta[1], shape=(0,), dtype=torch.uint8)
            node.meta = (*node.meta, room)
    return graph


@pytest.mark.parametrize("cudnn", [False, True])
def test_batch_norm_is_kernels_and_moves_its_statistics(worker, cudnn):
    given = moments(normal(4, 3, 5, 5))
    wanted_statistics = [one.clone() for one in given[3:]]
    wanted = batch_norm(*given[:3], *wanted_statistics)
    graph = trace(batch_norm, *given)
    made = Written(relabelled(as_cudnn(graph) if cudnn else graph))
    assert not [name for name in made.aten if "norm" in name]
    assert all("tl.float64" not in text.source for text in made.texts.values())
    (found,) = Machine(worker).run(made, *given)
    assert not differs(found, wanted)
    for ours, theirs in zip(given[3:], wanted_statistics, strict=True):
        assert not differs(ours, theirs)


@pytest.mark.parametrize("cudnn", [False, True])
def test_batch_norm_of_inference_is_pointwise(worker, cudnn):
    def fn(x, w, b, mean, variance):
        return F.relu(F.batch_norm(x, mean, variance, w, b, training=False)) + 1

    given = moments(normal(4, 3, 5, 5) + 100)
    given[3] += 100
    graph = trace(fn, *given)
    (norm,) = [n for n in graph.nodes if n.target is torch.ops.aten.native_batch_norm.default]
    saved = replace(norm.meta[1], shape=(0 if cudnn else 3,))  # as on a GPU
    norm.meta = (norm.meta[0], saved, saved)
    made = Written(relabelled(as_cudnn(graph) if cudnn else graph))
    assert not made.aten and len(made.launches) == 1
    (found,) = Machine(worker).run(made, *given)
    assert not differs(found, fn(*given))


def test_a_softmax_in_half_may_give_floats(worker):
    graph = trace(lambda x: torch.softmax(x.float(), -1), normal(3, 7, dtype=torch.float16))
    cast, softmax = graph.nodes
    softmax.args = (cast.args[0], -1, True)
    graph.nodes.remove(cast)
    made = Written(relabelled(graph))
    assert not made.aten
    x = normal(3, 7, dtype=torch.float16)
    (found,) = Machine(worker).run(made, x)
    assert found.dtype == torch.float32 and not differs(found, torch.softmax(x.float(), -1))


def test_nothing_is_added_up_in_double():
    made = written(lambda x: (x.var(-1), x.cumsum(-1), x.std(0)), normal(8, 9))
    assert all("float64" not in text.source for text in made.texts.values())


def long_rows(x, w):
    return torch.softmax(x * 2, -1), (x * w).sum(), x.mean(-1)


def test_long_rows_are_several_launches_with_memory_between_them(worker):
    given = [normal(2, 1 << 14), normal(1 << 14)]
    made = written(long_rows, *given)
    several = [one for one in made.kernels.launches.values() if len(one.parts) > 1]
    assert several and all(one.partial for one in several)
    parts = [step for step in made.spec.steps if isinstance(step, Scratch)]
    assert len(parts) >= len(several)
    for ours, theirs in zip(Machine(worker).run(made, *given), long_rows(*given), strict=True):
        assert not differs(ours, theirs)


class Open:
    """A graph with open sizes, as `symbolic.check_open` runs it."""

    kernels, library = (), ()

    def __init__(self, graph, worker):
        self.made = Written(relabelled(graph))
        self.source = "\n".join(text.source for text in self.made.texts.values())
        self.run = lambda *given: Machine(worker).run(self.made, *given)


OPEN = {
    "pointwise": (lambda x, y: F.gelu(x + y) * 2, lambda n: [normal(n, 6), normal(6)], [(0,), ()]),
    "rows": (lambda x: torch.softmax(x, -1) + x.sum(0), lambda n: [normal(5, n)], [(1,)]),
    "products": (
        lambda x, w: F.layer_norm(x @ w + 1, (8,)).exp().sum(0), lambda n: [normal(n, 4), normal(4, 8)], [(0,), ()],
    ),
    "between": (steps, lambda n: [normal(n, 8), normal(8, 8)], [(0,), ()]),
    "sums beside rows": (
        lambda x, w: ((x.exp() * w).sum(0), x.sum(0), (x * w).softmax(-1), (x * w).sum()),
        lambda n: [normal(n, 64), normal(64)], [(0,), ()],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(worker, described, name):
    fn, make, dims = OPEN[name]
    found = check_open(
        fn, make, dims, [7, 12, 3, 33], library=None, compiled=lambda graph: Open(graph, worker)
    )
    assert found.made.launches and not codes(described)
    assert any(step.numbers for step in found.made.launches)
    assert all(len(step.kinds) == len(step.numbers) for step in found.made.launches)


# --- what has no text -----------------------------------------------------------------------------------------


@pytest.fixture
def described(monkeypatch):
    found = []
    monkeypatch.setattr(SESSION, "emit", lambda event, key=None: found.append(event))
    return found


def codes(described):
    return [event.code for event in described if hasattr(event, "code")]


def test_what_the_renderer_declines_is_atens_and_told(monkeypatch, described, worker):
    plain = triton.render

    def picky(nest, **more):
        if any(value.op == "tanh" for value in nest.values):
            raise BuildError("no tanh today", found=nest.name)
        return plain(nest, **more)

    monkeypatch.setattr(triton, "render", picky)
    x, w = normal(8, 8), normal(8, 8)
    fn = lambda x, w: (torch.tanh(x) + 1, torch.softmax(x @ w, -1), torch.cat([x.tanh() * 3, x], 1))  # noqa: E731
    made = written(fn, x, w)
    assert "aten.tanh.default" in made.aten and len(made.launches) >= 1
    (event,) = {event.reason for event in described if event.code == "FB318"}
    assert "no tanh today" in event
    for ours, theirs in zip(Machine(worker).run(made, x, w), fn(x, w), strict=True):
        assert not differs(ours, theirs)


def test_a_renderer_that_declines_all_leaves_aten(monkeypatch, described):
    def none(nest, **_more):
        raise KeyError("nothing")

    monkeypatch.setattr(triton, "render", none)
    made = written(both_devices, normal(4, 4), normal(4, 4), normal(4, 4))
    assert not made.launches and "FB318" in codes(described)


# --- no kernels for the GPU at all ----------------------------------------------------------------------------


def mixed():
    """A graph whose first input, and what is computed of it, is on the CPU."""
    graph = trace(both_devices, normal(4, 4), normal(4, 4), normal(4, 4))
    first = graph.inputs[0]
    kept = {first}
    for node in graph.nodes:
        if any(one in kept for one in node.args if type(one) is type(node)):
            kept.add(node)
    return relabelled(graph, lambda node: node in kept)


@pytest.fixture(autouse=True)
def no_worker(monkeypatch):
    """No process that compiles is started."""
    monkeypatch.setattr(cubins, "expect", lambda: None)


@pytest.fixture
def warned(monkeypatch):
    found = []
    monkeypatch.setattr(SESSION, "warn_once", lambda code, text: found.append((code, text)))
    return found


def test_without_triton_or_a_driver_the_gpus_part_is_atens(monkeypatch, described, warned):
    monkeypatch.setattr(gpus, "why_not", lambda found: "triton is not installed")
    made = planned._planned(mixed())
    assert [k.device.type for k in made.made.kernels] == ["cpu"] and made.gpu is None
    assert codes(described) == ["FB319"] and [code for code, _text in warned] == ["WN608"]
    assert {str(s.target) for s in made.made.steps if not hasattr(s, "nest")} >= {
        "aten.mm.default",
        "aten.relu.default",
    }


def test_a_compiler_that_fails_leaves_the_gpus_part_to_aten(monkeypatch, described, warned):
    monkeypatch.setattr(gpus, "why_not", lambda found: "")
    monkeypatch.setattr(gpu_plan, "world", lambda device: H100)
    made = planned._planned(mixed())
    assert [k.device.type for k in made.made.kernels].count("cuda") == 2 and not codes(described)

    def fails(*_args):
        raise BuildError("ptxas is not there")

    monkeypatch.setattr(gpu_plan, "load", fails)
    with SESSION.override(check=False):
        built = planned._built(made)
    assert built.library is not None and not built.gpu and made.key is None
    assert [k.device.type for k in made.made.kernels] == ["cpu"]
    assert codes(described) == ["FB319"] and [code for code, _text in warned] == ["WN608"]


def test_what_stands_against_kernels(monkeypatch):
    monkeypatch.setattr(device, "triton_version", lambda: "")
    assert gpus.why_not([CUDA]) == "triton is not installed"
    monkeypatch.setattr(device, "triton_version", lambda: "3.5.1")
    assert gpus.why_not([CUDA]) == "triton 3.5.1 is older than 3.6"
    assert gpus_of(mixed()) == [CUDA]


def test_plans_for_fewer_devices():
    graph = optimize(mixed())
    for kinds in (("cpu",), ("cuda",), ("cpu", "cuda"), ()):
        plan = schedule.plan(graph, kinds=frozenset(kinds))
        assert {k.device.type for k in plan.kernels} == set(kinds)


# --- plans that are kept --------------------------------------------------------------------------------------


@pytest.fixture
def a_gpu(monkeypatch):
    """One that is described of, and a compiler that numbers what it is given."""
    monkeypatch.setattr(gpus, "why_not", lambda found: "")
    facts = device.Gpu("H100", (9, 0), 80 << 30, 132)
    monkeypatch.setattr(device, "gpu", lambda one: facts)

    def load(texts, capabilities, *_more):
        assert set(capabilities.values()) <= {90}
        return {
            key: SimpleNamespace(function=100 + at, threads=32 * text.warps, shared=at, hidden=2, keep=key, cached=True)
            for at, (key, text) in enumerate(sorted(texts.items()))
        }  # fmt: skip

    monkeypatch.setattr(plan_form, "load_kernels", load)
    monkeypatch.setattr(executor, "load", lambda spec: spec)


def test_a_kept_plan_is_the_plan(a_gpu, described):
    graph = mixed()
    made = planned._planned(graph)
    made.render()
    kept = plan_form.loads(plan_form.dumps(planned._plain(made)))
    fresh = planned._finished(made, planned._built(made))
    again = kept_plans.loaded(graph, kept)
    launches = [step for step in fresh.spec.steps if isinstance(step, DeviceLaunch)]
    assert len(launches) == 2 and {step.hidden for step in launches} == {2}
    same = [step for step in again.spec.steps if isinstance(step, DeviceLaunch)]
    assert same == launches and len(again.spec.steps) == len(fresh.spec.steps)
    assert [r.source for r in again.kernels] == [r.source for r in fresh.kernels]
    assert sum("@triton.jit" in record.source for record in again.kernels) == 2
    assert (again.distinct, again.library) == (fresh.distinct, fresh.library)
    planned.verify(graph, kept)


def test_a_key_has_the_gpu_and_triton_in_it(a_gpu, monkeypatch):
    graph = optimize(relabelled(trace(steps, normal(4, 8), normal(8, 8))))
    found = [graph_key.texts(graph)]
    monkeypatch.setattr(device, "gpu", lambda one: device.Gpu("H200", (9, 0), 141 << 30, 114))
    found.append(graph_key.texts(graph))
    monkeypatch.setattr(device, "triton_version", lambda: "3.99")
    found.append(graph_key.texts(graph))
    assert len(set(found)) == 3
    monkeypatch.setattr(gpus, "why_not", lambda found: "no driver")
    with pytest.raises(graph_key.NotKept):
        graph_key.texts(graph)


def test_on_the_processor_keys_say_nothing_of_gpus():
    assert graph_key.texts(trace(steps, normal(4, 8), normal(8, 8)))[-1] == ""
