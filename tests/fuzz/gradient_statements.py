"""Statements of `tests.fuzz.gradients` that call functions: custom autograd functions, and what users do besides.

Programs call custom functions, those of the tests in tests/training/custom, in the seeds for which `has(seed)`. From seed HABITS on
they have islands without grad mode and back, leaves that the program makes, backwards and hooks inside, tensors that are detached in
place, and checkpoints of a sequence.
"""

from __future__ import annotations

import random

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.training.custom import functions

T = torch.Tensor
HABITS = 20_000_000
_FROM, _TO = 500_000, 1_000_000  # in each million

ONE = (
    "Square.apply({x})", "Swish.apply({x})", "Reversed.apply({x}, 0.5)", "Same.apply({x})",
    "Clamped.apply({x})", "Scaled.apply({x}, 2.0)", "Once.apply({x})", "InPlace.apply({x} * 1)",
    "InPlace.apply({x}.sin())", "Packed.apply({x}, [{x}])", "Tripled.apply({x})",
    "sum(Product.apply({x}, {x}))", "Sparse.apply({x}, {x}.cos())[0]",
)  # fmt: skip
TWO = (
    "Product.apply({x}, {y})[0]", "Product.apply({x}, {y})[1]", "sum(Product.apply({x}, {y}))",
    "Sparse.apply({x}, {y})[0]", "Sparse.apply({y}, {x})[1]",
)  # fmt: skip
ROWS = ("Largest.apply({x})[0]",)


def has(seed: int) -> bool:
    """Whether the program of a seed calls custom functions."""
    return _FROM <= seed % 1_000_000 < _TO


def custom(choose: random.Random, name: str, other: str, rows: bool) -> str:
    """A call on the variable `name`; `other` has a shape that fits, `rows`: it has rows."""
    text = choose.choice((*ONE, *ONE, *TWO, *ROWS))
    if text in ROWS and not rows:
        text = ONE[0]
    return text.format(x=name, y=other)


def relit(x: T) -> T:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x.sin() * y
    return z + y


def leafed(x: T) -> T:
    y = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        (y.sin() * y).sum().backward()
    return x * y.grad


def inside(x: T, y: T) -> T:
    if not x.requires_grad:
        return x + y
    (g,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return g * y


def parted(x: T, y: T) -> T:
    if not x.requires_grad:
        return x + y
    g, zero = torch.autograd.grad(x.square().sum(), (x, x[:0]), materialize_grads=True)
    return g * y + zero.sum()


def cut(x: T) -> T:
    y = x * 2
    y.detach_()
    return y + x


def watched(x: T) -> T:
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda g: g * 0.5)
    return y.sin()


def kept(x: T) -> T:
    y = x.tanh()
    if y.requires_grad:
        y.retain_grad()
    return y * x


def leaf_inside(x: T) -> T:
    y = (x.detach() * 2).requires_grad_()
    return y.sin() * x


def written(x: T, y: T) -> T:
    z = x * 1
    z[..., :1].mul_(y[..., :1])
    return z.tanh()


def written_view(x: T) -> T:
    z = x.exp()
    v = z[..., :1]
    z.mul_(0.5)
    return v * z


def quiet_write(x: T) -> T:
    z = x * 3
    with torch.no_grad():
        z[..., :1].mul_(2)
    return z + z.square()


def sequence(x: T) -> T:
    return checkpoint_sequential([torch.tanh, torch.square, torch.sin], 2, x, use_reentrant=False)  # type: ignore[no-any-return]


def quiet_checkpoint(x: T) -> T:
    with torch.no_grad():
        y = checkpoint(lambda s: s.sin() * s, x, use_reentrant=False)
    return y * x


_FUNCTIONS = {
    one.__name__: one
    for one in (
        relit, leafed, inside, parted, cut, watched, kept, leaf_inside, written, written_view, quiet_write, sequence,
        quiet_checkpoint,
    )
}  # fmt: skip
BESIDE = (
    "relit({x})", "leafed({x})", "cut({x})", "watched({x})", "kept({x})", "leaf_inside({x})", "written_view({x})", "quiet_write({x})",
    "sequence({x})", "quiet_checkpoint({x})",
)  # fmt: skip
BESIDE_TWO = ("inside({x}, {y})", "parted({x}, {y})", "written({x}, {y})")


def beside(choose: random.Random, name: str, other: str) -> str:
    """A call on the variable `name`; `other` has a shape that fits."""
    return choose.choice((*BESIDE, *BESIDE_TWO)).format(x=name, y=other)


SCOPE = {
    name: value for name, value in vars(functions).items() if isinstance(value, type)
} | _FUNCTIONS | {"Tripled": functions.closed(3.0)}  # fmt: skip
