"""Products of plans on a GPU with their epilogues in one kernel: which, what they are given, and what comes out."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from harness import trace
from on_cuda import H100, Machine, Written, relabelled
from triton_worker import Worker

from graftjit.codegen import gpu_plan, schedule, triton_hosts
from graftjit.codegen.triton_hosts import Host
from graftjit.codegen.triton_product import Configuration
from graftjit.ir.graph import Node
from graftjit.ir.passes import optimize

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
