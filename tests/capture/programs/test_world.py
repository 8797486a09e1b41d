"""What stands around tensors in a program: operators of its own, loaders, caches, profilers, random state."""

from __future__ import annotations

import bisect
import functools
import heapq
import operator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ..harness import agrees, t

LIB = torch.library.Library("graftjit_tests", "FRAGMENT")
LOG: list = []
LIB.define("composite(Tensor x, int n) -> Tensor")


def _composite(x, n):
    LOG.append("composite")
    print("composite runs")
    return x * n + 1


LIB.impl("composite", _composite, "CompositeImplicitAutograd")
LIB.define("plain(Tensor x) -> Tensor")


def _plain(x):
    return x * 3


LIB.impl("plain", _plain, "CPU")


@torch.library.register_fake("graftjit_tests::plain")
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("graftjit_tests::custom", mutates_args=())
def custom(x: torch.Tensor, k: float) -> torch.Tensor:
    LOG.append("custom")
    return x.clone() * k


@custom.register_fake
def _(x, k):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    LOG.append("setup")
    ctx.k = inputs[1]


def _back(ctx, g):
    LOG.append("back")
    return g * ctx.k, None


custom.register_autograd(_back, setup_context=_setup)


@torch.library.custom_op("graftjit_tests::inplace", mutates_args=("x",))
def inplace(x: torch.Tensor, k: float) -> None:
    LOG.append("inplace")
    x.mul_(k)


@inplace.register_fake
def _(x, k):
    return None


@agrees()
def test_composite_operators_of_the_program():
    LOG.clear()

    def f(x):
        return (
            torch.ops.graftjit_tests.composite(x, 3),
            torch.ops.graftjit_tests.composite.default(x, 2),
            list(LOG),
        )

    return f, (t(3),)


@agrees()
def test_operators_of_the_program():
    LOG.clear()

    def f(x):
        y = torch.ops.graftjit_tests.plain(x)
        z = custom(x, 2.0)
        w = x.clone()
        inplace(w, 4.0)
        return y + 1, z, w, list(LOG)

    return f, (t(3),)


@agrees(backward=True)
def test_operators_of_the_program_with_gradients():
    LOG.clear()

    def f(x):
        z = custom(x, 2.0) * 3
        return z, list(LOG)

    return f, (t(3).requires_grad_(),)


@agrees()
def test_scripted_functions_and_modules():
    @torch.jit.script
    def scripted(x):
        return x * 2 + 1

    mod = torch.jit.script(nn.Linear(3, 2))
    with torch.no_grad():
        mod.weight.fill_(0.5)
        mod.bias.fill_(0.1)
    traced = torch.jit.trace(lambda v: v.relu(), (t(3),))

    def f(x):
        return scripted(x), mod(x), traced(x), scripted(x) + 1

    return f, (t(2, 3),)


@agrees()
def test_data_loaders_inside():
    class Squares(Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, i):
            return torch.tensor([float(i)]), i * i

    data = TensorDataset(t(6, 2), torch.arange(6))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    other = DataLoader(Squares(), batch_size=2)

    def f(x):
        total = x
        for batch, labels in loader:
            total = total + batch.sum(0) * labels.sum()
        for a, b in other:
            total = total + a.sum() + b.float().sum()
        return total, len(loader), next(iter(other))[1]

    return f, (t(2),)


@agrees()
def test_caches_of_functions():
    @functools.lru_cache(maxsize=None)
    def table(n):
        LOG.append(n)
        return torch.arange(n) * 2

    @functools.cache
    def scale(k):
        return k * 3

    class A:
        @functools.cached_property
        def w(self):
            LOG.append("w")
            return torch.ones(3) * 5

        @functools.singledispatchmethod
        def go(self, v):
            return "object"

        @go.register
        def _(self, v: int):
            return "int"

    a = A()
    LOG.clear()

    def f(x, n):
        return (
            x + table(n)[:3] + scale(2),
            x * a.w,
            a.go(3),
            a.go("s"),
            list(LOG),
            table.cache_info().hits >= 0,
        )

    return (
        f,
        (t(3), 3),
        [
            lambda: (t(3), 4),
            lambda: (t(3), 3),
            lambda: table.cache_clear(),
            lambda: vars(a).clear(),
        ],
    )


@agrees()
def test_autocast_helpers():
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.fill_(0.3)
        layer.bias.fill_(0.2)

    class Op(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return g * 2

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = layer(x)
            b = Op.apply(a)
            c = torch.cat([a, x])
            d = (a @ a.T).softmax(-1)
            with torch.autocast("cpu", enabled=False):
                e = layer(x.float())
            g = torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()
        return a, b, c, d, e, g, torch.is_autocast_enabled("cpu")

    return f, (t(3, 3),)


@agrees()
def test_bisect_heap_and_operator_on_lists_of_the_caller():
    held = [1, 3, 5]
    heap = [5, 1, 4]
    heapq.heapify(heap)

    def f(x, d):
        bisect.insort(held, 2)
        operator.setitem(d, "k", 3)
        operator.iadd(held, [9])
        heapq.heappush(heap, 0)
        low = heapq.heappop(heap)
        operator.delitem(d, "k")
        operator.setitem(held, 0, 7)
        return x + bisect.bisect(held, 4), held, low, d, heapq.nsmallest(2, heap)

    return f, (t(3), {})


@agrees()
def test_random_state_of_torch_across_breaks():
    drop = nn.Dropout(0.5)

    def f(x):
        a = torch.rand(3) + x
        torch.manual_seed(4)
        b = drop(x) + torch.randn(3)
        print("draw", torch.randint(0, 5, (2,)).tolist())
        c = torch.bernoulli(torch.full((4,), 0.5))
        d = torch.empty(3).normal_().uniform_()
        g = torch.multinomial(torch.ones(4), 2)
        return a, b, c, d, g, F.dropout(x, 0.3), torch.rand_like(x), x.clone().random_(5)

    return f, (t(3),)


@agrees()
def test_numbers_of_threads_and_profilers():
    def f(x):
        n = torch.get_num_threads()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            y = x * 2
            with torch.profiler.record_function("mine"):
                y = y + 1
        names = {e.key for e in prof.key_averages()}
        return y, "mine" in names, "aten::mul" in names, n > 0

    return f, (t(3),)


@agrees()
def test_kernels_in_place_of_torchs():
    seen = []
    lib = torch.library.Library("aten", "IMPL")

    def relu6(x):
        seen.append("mine")
        return x.clamp(0, 5)

    lib.impl("hardswish", relu6, "CPU")

    def f(x):
        return F.hardswish(x) + 1, list(seen)

    return f, (t(3),), [lambda: None, lambda: lib._destroy()]
