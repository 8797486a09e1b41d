"""The statements of `tests.fuzz.gradients` that call custom autograd functions.

Programs have them in the seeds for which `has(seed)`. The functions are those of the tests in
tests/training/custom.
"""

from __future__ import annotations

import random

from tests.training.custom import functions

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
SCOPE = {
    name: value for name, value in vars(functions).items() if isinstance(value, type)
} | {"Tripled": functions.closed(3.0)}  # fmt: skip


def has(seed: int) -> bool:
    """Whether the program of a seed calls custom functions."""
    return _FROM <= seed % 1_000_000 < _TO


def statement(choose: random.Random, name: str, other: str, rows: bool) -> str:
    """A call on the variable `name`; `other` has a shape that fits, `rows`: it has rows."""
    text = choose.choice((*ONE, *ONE, *TWO, *ROWS))
    if text in ROWS and not rows:
        text = ONE[0]
    return text.format(x=name, y=other)
