"""A number that varies from call to call becomes an input wherever an expression takes it: on both sides of operators, before
and after a break, as an argument of torch's functions. Equal to plain Python, and compiled three times at most."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit import JitConfig, jit

SIGNS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
Program = Callable[[Any, Any], Any]


def left_of(fn: Any) -> Program:
    return lambda x, n: fn(x, n)


def right_of(fn: Any) -> Program:
    return lambda x, n: fn(n, x)


def after_a_break(x: Any, n: Any) -> Any:
    print(end="")
    return x - n * x.sin()


def computed_after_a_break(x: Any, n: Any) -> Any:
    print(end="")
    rate = 0.1 * math.cos(n / 100) * 0.9**n
    return x - rate * x.sin()


def written(x: Any, n: Any) -> Any:
    y = x.clone()
    y[0] = n
    y[:, 1] *= n
    return y


def turned(x: Any, n: Any) -> Any:
    c, s = math.cos(n), math.sin(n)
    return x[:2, :2] @ torch.tensor([[c, -s], [s, c]])


def assigned_again(x: Any, n: Any) -> Any:
    n = n * 2.0
    return x * n, n


def steps(x: Any, n: Any) -> Any:
    """The step size of a solver, which each step changes."""
    done = 0.0
    for _ in range(2):
        n *= min(2.0, max(0.3, 0.9 * math.sqrt(0.1 / max(n, 1e-9))))
        x, done = x + n * x.sin(), done + n
    return x, done


def rounded(x: Any, n: Any) -> Any:
    n = round(n * 1.37, 2)
    return x * n, n


def total(x: Any, n: Any) -> Any:
    n = sum([n / 3, 1e16, n / 7, -1e16, n + 0.25])
    return x * n, n


def by_functions(x: Any, n: Any) -> Any:
    found = [math.atan2(n, 3.0), math.fmod(n * 1.5, 0.7), math.asin(n / 99), math.acos(n / 99)]
    for fn in (math.log1p, math.log2, math.log10, math.atan, math.sinh, math.cosh, math.expm1):
        found.append(fn(n / 9))
    return [x * one for one in found], found


def counted(x: Any, n: Any) -> Any:
    n += 1
    print(end="")
    return x + n, n


PROGRAMS: dict[str, Program] = {
    **{f"x {sign} n": left_of(fn) for sign, fn in SIGNS.items()},
    **{f"n {sign} x": right_of(fn) for sign, fn in SIGNS.items()},
    "optional": lambda x, n: x * n if n is not None else x,
    "power": lambda x, n: x * math.pow(0.9, n) + 0.5**n,
    "where": lambda x, n: torch.where(x > 0.5, x, n),
    "clamp": lambda x, n: (x * 9).clamp(-n, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0.5, n),
    "full_like": lambda x, n: torch.full_like(x, n) + x,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x - 0.5, n),
    "rsub": lambda x, n: torch.rsub(x, n),
    "written": written,
    "turned": turned,
    "assigned again": assigned_again,
    "steps": steps,
    "counted": counted,
    "rounded": rounded,
    "total": total,
    "by functions": by_functions,
    "after a break": after_a_break,
    "computed after a break": computed_after_a_break,
}


@pytest.mark.parametrize("level", ["O1", pytest.param("O0", marks=pytest.mark.second)])
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_input_of_the_graph(name: str, kind: type, level: str) -> None:
    plain = PROGRAMS[name]
    jitted = jit(plain, config=JitConfig(jit_level=level))
    x = torch.rand(3, 8)
    for number in range(2, 12):
        n = number if kind is int else number / 7 + 0.01
        torch.testing.assert_close(jitted(x, n), plain(x, n), rtol=1e-5, atol=1e-5)
    assert jitted.report().recompile_count <= 4, jitted.report()
    assert jitted.report().graph_count <= 6


def augmented(x: Any) -> Any:
    if random.random() < 0.5:
        x = x.flip(-1)
    x = x * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1)
    if random.random() < 0.3:
        x = x + random.uniform(0.05, 0.2) * torch.sin(x)
    return x.clamp(0, random.uniform(0.5, 2))


def test_a_loop_of_augmentations() -> None:
    """Each drawn number is a value of its own, met after a break."""
    x, jitted = torch.rand(3, 8), jit(augmented)
    for seed in range(60):
        random.seed(seed)
        expected = augmented(x)
        random.seed(seed)
        torch.testing.assert_close(jitted(x), expected)
    assert jitted.report().recompile_count <= 15, (
        jitted.report()
    )  # once for each answer of a comparison, twice for a number
    seen = jitted.report().recompile_count
    for _ in range(40):
        jitted(x)
    assert jitted.report().recompile_count == seen
