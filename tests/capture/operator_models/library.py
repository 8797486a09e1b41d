"""Operators as a program registers them, for the tests of `capture/torch_models/library_operators.py`.

Their kernels compute with numpy, so that nothing but their fake rules says what the results look like.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

LIB = torch.library.Library("graftlib", "FRAGMENT")


@custom_op("graftlib::sine", mutates_args=())
def sine(x: Tensor, k: float = 1.0) -> Tensor:
    return torch.from_numpy(np.sin(x.detach().numpy()) * np.float32(k))


@sine.register_fake
def _(x, k=1.0):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@custom_op("graftlib::cosine", mutates_args=())
def cosine(x: Tensor) -> Tensor:
    return torch.from_numpy(np.cos(x.detach().numpy()))


cosine.register_fake(lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
cosine.register_autograd(
    lambda ctx, g: -g * sine(ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1]


def _formula(ctx, g):
    (x,) = ctx.saved_tensors
    return g * cosine(x) * ctx.k, None


sine.register_autograd(_formula, setup_context=_keep)


@custom_op("graftlib::without_rule", mutates_args=())
def without_rule(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@custom_op("graftlib::without_formula", mutates_args=())
def without_formula(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


without_formula.register_fake(lambda x: torch.empty_like(x))


@custom_op("graftlib::scale_", mutates_args=("x",))
def scale_(x: Tensor, k: float) -> None:
    x.numpy()[...] *= k


@custom_op("graftlib::put", mutates_args=("out",))
def put(x: Tensor, out: Tensor) -> Tensor:
    out.copy_(x * 2)
    return x + 1


put.register_fake(lambda x, out: torch.empty_like(x))


@custom_op("graftlib::each_", mutates_args=("xs",))
def each_(xs: list[Tensor], k: float) -> None:
    for x in xs:
        x.numpy()[...] *= k


@custom_op("graftlib::weighted", mutates_args=())
def weighted(xs: list[Tensor], weights: list[int], *, by: float) -> Tensor:
    return torch.from_numpy(sum(x.numpy() * w for x, w in zip(xs, weights, strict=True)) * by)


@weighted.register_fake
def _(xs, weights, *, by):
    return torch.empty_like(xs[0])


@custom_op("graftlib::parts", mutates_args=())
def parts(x: Tensor) -> tuple[Tensor, Tensor, int]:
    return x + 1, x.sum(0), x.shape[0]


parts.register_fake(lambda x: (torch.empty_like(x), x.new_empty(x.shape[1:]), x.shape[0]))


@custom_op("graftlib::twice", mutates_args=())
def twice(x: Tensor) -> list[Tensor]:
    return [x + 1, x * 2]


twice.register_fake(lambda x: [torch.empty_like(x), torch.empty_like(x)])


@custom_op("graftlib::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy()[x.numpy() > 0].copy())


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@custom_op("graftlib::checked", mutates_args=())
def checked(x: Tensor) -> Tensor:
    if bool((x < 0).any()):
        raise ValueError("a negative element")
    return x.sqrt()


checked.register_fake(torch.empty_like)


@custom_op("graftlib::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    return (x * 2).t().contiguous().t()


turned.register_fake(torch.empty_like)  # untrue: the strides are others


@custom_op("graftlib::shorter", mutates_args=())
def shorter(x: Tensor) -> Tensor:
    return x[1:].clone()


shorter.register_fake(torch.empty_like)  # untrue: the sizes are others


@custom_op("graftlib::batched", mutates_args=())
def batched(x: Tensor) -> Tensor:
    return torch.from_numpy(np.exp(x.numpy()))


batched.register_fake(torch.empty_like)
batched.register_vmap(lambda info, in_dims, x: (batched(x), in_dims[0]))


@custom_op("graftlib::gated", mutates_args=())
def gated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y, x + y


gated.register_fake(lambda x, y: (torch.empty_like(x), torch.empty_like(x)))


def _gate(ctx, a, b):
    """Not linear in what is missing: it counts the gradients that are there."""
    x, y = ctx.saved_tensors
    return a * y + b + 1, a * x + b


gated.register_autograd(
    _gate, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)

CALLS: list[str] = []


@custom_op("graftlib::noted", mutates_args=())
def noted(x: Tensor) -> Tensor:
    CALLS.append("kernel")
    return x * 3


noted.register_fake(torch.empty_like)

LIB.define("tripled(Tensor x) -> Tensor")
LIB.impl("tripled", lambda x: x * 3, "CPU")
torch.library.register_fake("graftlib::tripled", torch.empty_like, lib=LIB)
LIB.define("explicit(Tensor x) -> Tensor")
LIB.impl("explicit", lambda x: x * 5, "CompositeExplicitAutograd")
LIB.define("composite(Tensor x, int n) -> Tensor")
LIB.impl("composite", lambda x, n: x * n + 1, "CompositeImplicitAutograd")
LIB.define("window(Tensor(a) x) -> Tensor(a)")
LIB.impl("window", lambda x: x[1:], "CompositeExplicitAutograd")


def _squared_back(ctx, g):
    return g * 2 * ctx.saved_tensors[0]


LIB.define("squared(Tensor x) -> Tensor")
LIB.impl("squared", lambda x: torch.from_numpy(x.detach().numpy() ** 2), "CPU")
torch.library.register_fake("graftlib::squared", torch.empty_like, lib=LIB)
torch.library.register_autograd(
    "graftlib::squared",
    _squared_back,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=LIB,
)


@torch.library.triton_op("graftlib::of_triton", mutates_args=())
def of_triton(x: Tensor) -> Tensor:
    return x * 2 + 1
