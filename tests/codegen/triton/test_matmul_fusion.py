"""Products of plans on a GPU with their epilogues in one kernel: which, what they are given, and what comes out."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.schedule import gpu_kernels as gpu_plan
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import matmul_fusion as triton_hosts
from graftjit.codegen.triton.matmul import Configuration
from graftjit.codegen.triton.matmul_fusion import Host
from graftjit.ir.graph.nodes import Node
from graftjit.ir.passes.pipeline import optimize

from ..harness import trace
from ..on_cuda import H100, Machine, Written, relabelled
from .worker import Worker

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
SMALL = Configuration(16, 32, 16, 4, 2)


@pytest.fixture(scope="module")
def machine():
    with Worker() as worker:
        yield Machine(worker)


class Hosting(Written):
    """A graph on cuda whose products have kernels, all of them."""

    def planned(self):
        made = schedule.plan(self.graph)
        calls = [step for step in made.steps if isinstance(step, Node)]
        return schedule.hosting(
            made, {one: Host(SMALL) for one in calls if triton_hosts.takes(one)}
        )


def hosting(fn, *tensors):
    return Hosting(relabelled(trace(fn, *tensors)))


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def residual(x, w, r):
    return r + 0.5 * (x @ w)


def scores(q, k, mask):
    return (q @ k.transpose(-2, -1)) * 0.125 + mask


def kept_too(x, w):
    y = x @ w
    return y, y.relu()


def turned(x, w):
    return (x.t() @ w.t()).tanh()


def parts(x, w, b):
    return torch.sigmoid(torch.addmm(b[:7], x[2:9, 1:], w[1:, 3:10]))


def scaled_factor(x, s, w, b):
    return torch.relu(torch.addmm(b, x * s[:, None], w))


def cast_factors(x, w):
    return (x.bfloat16() @ w.half().bfloat16().t()).float() + 1


def of_batches(q, k, m):
    return torch.where(m, (q * 0.25) @ (k + k).transpose(-2, -1), -1.0)


def read_twice(x, w):
    y = x * 2
    return (y @ w).relu() + y[:, :1]


def long_factor(x, w):
    return (torch.tanh(x) @ w).relu()


def rows_and_columns(x, y, w):
    return ((x + y[:, None]).view(24, 20) @ w).relu()


def of_a_part(x, w):
    return ((x * 2)[:, 4:12] @ w).relu()


PROLOGUES = {
    "rows of two axes": (1, rows_and_columns, (4, 6, 20), (4, 20), (20, 33)),
    "a part": (0, of_a_part, (18, 20), (8, 34)),
    "scaled": (1, scaled_factor, (20, 33), (20,), (33, 40), (40,)),
    "cast": (2, cast_factors, (17, 20), (34, 20)),
    "batches": (2, of_batches, (3, 2, 9, 16), (3, 2, 12, 16), (9, 12)),
    "read twice": (0, read_twice, (18, 20), (20, 34)),
    "long": (0, long_factor, (18, 20), (20, 34)),
}


@pytest.mark.parametrize("name", PROLOGUES)
def test_light_factors_are_computed_as_they_are_loaded(machine, name):
    count, fn, *shapes = PROLOGUES[name]
    tensors = [torch.randn(shape) for shape in shapes]
    if name == "batches":
        tensors[-1] = tensors[-1] > 0
    made = hosting(fn, *tensors)
    (kernel,) = (one for one in made.plan.kernels if one.host is not None)
    assert len(kernel.prologues) == count and not made.aten
    assert len(made.launches) == (1 if count else 2)
    wanted = fn(*tensors)
    room = {"rtol": 2e-2, "atol": 5e-2} if name == "cast" else {}
    torch.testing.assert_close(machine.run(made, *tensors)[0].view(wanted.shape), wanted, **room)


CASES = {
    "linear and gelu": (linear_gelu, (20, 33), (40, 33), (40,)),
    "residual": (residual, (17, 16), (16, 48), (17, 48)),
    "batches": (scores, (3, 2, 9, 16), (3, 2, 12, 16), (9, 12)),
    "kept too": (kept_too, (18, 20), (20, 34)),
    "turned": (turned, (20, 18), (34, 20)),
    "parts": (parts, (10, 12), (12, 20), (9,)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_values(machine, name, dtype):
    fn, *shapes = CASES[name]
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    made = hosting(fn, *tensors)
    assert not made.aten and len(made.launches) == 1, made.spec.steps
    assert "tl.dot" in next(iter(made.texts.values())).source
    wanted = fn(*tensors)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    room = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for found, eager in zip(machine.run(made, *tensors), wanted, strict=True):
        torch.testing.assert_close(found.view(eager.shape), eager, **room)


def test_what_stays_with_the_library():
    x = torch.randn(8, 8)
    double = hosting(lambda x: (x @ x).relu(), x.double())
    scaled = hosting(lambda x: torch.addmm(x, x, x, alpha=2).relu(), x)
    alone = hosting(lambda x: x @ x, x)
    folded = hosting(lambda x: (x @ x).sum(-1), x)
    for made in (double, scaled, alone, folded):
        assert len(made.aten) == 1


def test_a_way_is_part_of_a_text():
    graph = relabelled(trace(linear_gelu, *map(torch.randn, ((20, 33), (40, 33), (40,)))))
    made = schedule.plan(optimize(graph, check=True))
    host = next(s for s in made.steps if isinstance(s, Node) and triton_hosts.takes(s))
    keys = set()
    for way in (SMALL, Configuration(16, 64, 16, 4, 2)):
        _plan, found = gpu_plan.write(schedule.hosting(made, {host: Host(way)}), lambda _: H100)
        keys |= set(found.texts)
    assert len(keys) == 2
