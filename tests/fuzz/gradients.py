"""Fuzz gradients: random programs over tensors, with views, writes, detached parts, several results and parts of the gradients.

    python -m tests.fuzz.gradients --seed 0 --count 1000
    python -m tests.fuzz.gradients --seed 17 --show

Each program runs in plain Python and jitted, in float64 and in float32. Values and gradients in float64 must be eager's up to
rounding, those in float32 no further from float64 than eager's are, by and large; what autograd refuses must be refused. From seed
WILD on the arguments have a history and are written to as well, and only some of the results have a gradient. From seed APART on
there are more results, which are differentiated one after the other, by one another, twice, and with hooks. From seed MOVES on
there are checkpoints, and more is done with the results (`tests.fuzz.gradient_moves`), from seed HABITS on more still
(`tests.fuzz.gradient_statements`), and from seed KNOTS on most operators pass gradients on as they are, between up to seven results. Every
choice follows from the seed and from metadata. In the upper half of each million programs call custom functions.
"""

from __future__ import annotations

import argparse
import linecache
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import graftjit
from graftjit.runtime.errors import CheckError, GraftError

from . import gradient_moves, gradient_statements
from .gradient_moves import MOVES
from .gradient_statements import HABITS

T = torch.Tensor
UNARY = (
    "{x}.sin()", "{x}.tanh()", "{x}.sigmoid()", "({x} * 0.2).exp()", "{x}.square()", "F.gelu({x})", "F.silu({x})",
    "F.softplus({x})", "{x} * 2 - 1", "({x} * {x} + 1).rsqrt()", "({x} * {x} + 1).log()", "{x}.clone()", "F.elu({x})",
    "{x}.contiguous()", "{x}.detach()", "F.mish({x})", "quiet({x})", "F.hardtanh({x}, -3, 3)", "{x}.relu()",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / ({y} * {y} + 1)", "torch.lerp({x}, {y}, 0.3)",
    "torch.addcmul({x}, {x}, {y}, value=0.5)", "torch.where({x} > 0.1, {x}, {y})",
)  # fmt: skip
ROWS = (
    "{x}.sum({d})", "{x}.mean({d}, keepdim=True)", "{x}.softmax({d})", "{x}.log_softmax({d})", "{x}.cumsum({d})",
    "{x}.var({d}, unbiased=False)", "({x} + 2).norm(dim={d})", "{x}.logsumexp({d}, keepdim=True)",
    "F.layer_norm({x}, {x}.shape[-1:])", "({x} * 0.1 + 1).prod({d})", "{x}.sum()",
)  # fmt: skip
VIEWS = (
    "{x}.transpose(0, -1)", "{x}.reshape(-1)", "{x}[0]", "{x}[..., 1:]", "{x}[..., ::2]", "{x}.unsqueeze(0)",
    "{x}.expand(2, *{x}.shape)", "{x}.chunk(2, -1)[0]", "{x}.flip(0)", "{x}[[0, 0, -1]]", "{x}.roll(1, 0)",
    "torch.cat([{x}, {x} * 2], -1)", "torch.stack([{x}, {x}.cos()])", "F.pad({x}, (1, 0))",
)  # fmt: skip
WRITES = (
    "{x}.add_(1)", "{x}.mul_(0.5)", "{x}.sin_()", "{x}[..., :1].zero_()", "{x}[..., -1].copy_({x}[..., 0].detach())",
    "{x}[..., 0] *= 2",
)  # fmt: skip
# From seed KNOTS on: what passes gradients on as they are, between a few operators that save something.
KNOTS = 30_000_000
PASSING = (
    "{x} + {y}", "{x} - {y}", "{x} + 1", "{x}[:]", "{x}.unsqueeze(0)", "{x}.sum(0)", "{x} * 2", "{x}.clone()", "{x}.view_as({x})",
    "torch.where({x} > 0.1, {x}, {y})", "{x}.expand(2, *{x}.shape)", "{x}[..., 1:]", "{x}.detach() + {y}", "{x}.sum()", "{x} + {y} + {x}",
    "{x}.transpose(0, -1)", "{x}.sin()", "{x} * {y}", "{x}.tanh()", "{x}.exp() * 0.3", "torch.cat([{x}, {x}], -1)", "{x}.chunk(2, -1)[1]",
)  # fmt: skip
WILD = 10_000
APART = 1_000_000
DRAWS = 8  # further sets of numbers, where a gradient in float32 is further off than eager's


def quiet(x: T) -> T:
    with torch.no_grad():
        return x * 3


SCOPE = {
    **gradient_statements.SCOPE, "torch": torch, "F": F, "quiet": quiet, "checkpoint": checkpoint
}  # fmt: skip


def _fits(x: T, y: T) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs) and max(x.dim(), y.dim()) <= 4


def _statement(
    choose: random.Random, pool: dict[str, T], fixed: str, seed: int
) -> tuple[str, bool]:
    """One more statement, and whether it writes; empty if the choice fits nothing."""
    name = choose.choice(list(pool)[-6:])
    custom, moves = gradient_statements.has(seed), seed >= MOVES
    x, kind = (
        pool[name],
        choose.choice("uuubbbbrrvvwm" + "ffff" * custom + "kkk" * moves + "hhh" * (seed >= HABITS)),
    )
    if kind == "k":
        other = choose.choice([y for y, value in pool.items() if _fits(x, value)])
        return gradient_moves.statement(choose, name, other, custom), False
    if seed >= KNOTS and (kind != "w" or choose.random() < 0.6):
        other = choose.choice([y for y, value in pool.items() if _fits(x, value)])
        return choose.choice(PASSING).format(x=name, y=other), False
    if kind == "h":
        other = choose.choice([y for y, value in pool.items() if _fits(x, value)])
        return gradient_statements.beside(choose, name, other), False
    if kind == "f":
        other = choose.choice([y for y, value in pool.items() if _fits(x, value)])
        rows = bool(x.dim() and x.shape[-1])
        return gradient_statements.custom(choose, name, other, rows), False
    if kind == "u":
        return choose.choice(UNARY).format(x=name), False
    if kind == "b":
        other = choose.choice([y for y, value in pool.items() if _fits(x, value)])
        return choose.choice(BINARY).format(x=name, y=other), False
    if kind == "r" and x.dim() and x.numel():
        return choose.choice(ROWS).format(x=name, d=choose.randrange(x.dim())), False
    if kind == "v" and 0 < x.dim() < 4 and x.numel() and x.shape[-1] > 1:
        return choose.choice(VIEWS).format(x=name), False
    if kind == "m" and x.dim() == 2:
        return f"{name} @ {name}.transpose(0, 1) * 0.2", False
    if kind == "w" and name not in fixed and x.dim() and x.shape[-1]:
        spread = any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))
        return ("" if spread else choose.choice(WRITES).format(x=name)), True
    return "", False


def source(seed: int) -> str:
    """The text of the program of a seed: a function of three tensors."""
    choose = random.Random(seed)
    pool: dict[str, T] = dict(
        zip("abc", _handed(seed, arguments(seed, torch.float64)), strict=True)
    )
    lines = []
    for _ in range(choose.randrange(3, 16)):
        moved = seed >= MOVES and gradient_moves.given_as(seed) != "leaf"
        fixed = "" if WILD <= seed < APART or moved else "abc"
        text, writes = _statement(choose, pool, fixed, seed)
        # A write to what a checkpoint has read is a break, and reads again what is there then.
        if not text or (writes and any("checkpoint" in line for line in lines)):
            continue
        scope = {**pool, **SCOPE}
        try:
            if writes:
                exec(text, scope)
                lines.append(text)
                continue
            made = eval(text, scope)
        except (RuntimeError, IndexError):
            continue  # torch takes no such operands
        if made.numel() and made.numel() < 5000:
            name = f"v{len(lines)}"
            lines.append(f"{name} = {text}")
            pool[name] = made
    made = [name for name in pool if name not in "abc"]
    results = made[-choose.randrange(1, 3) :] or ["a * 1"]
    if seed >= APART and len(made) > 1:
        results = choose.sample(
            made, choose.randrange(2, min(len(made), 7 if seed >= KNOTS else 4) + 1)
        )
    return "\n    ".join(["def program(a, b, c):", *lines, f"return {', '.join(results)}"]) + "\n"


def program(seed: int) -> Callable[..., Any]:
    """The program of a seed."""
    scope: dict[str, Any] = dict(SCOPE)
    text = source(seed)
    name = f"<gradients {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    exec(compile(text, name, "exec"), scope)
    return scope["program"]  # type: ignore[no-any-return]


def arguments(seed: int, dtype: torch.dtype, draw: int = 0) -> list[T]:
    """The same numbers in any dtype, others for each `draw`; not all require gradients."""
    generator = torch.Generator().manual_seed(seed + 1_000_000_000 * draw)
    choose = random.Random(seed + 1)
    n, m = choose.choice((2, 3, 5)), choose.choice((2, 4, 9, 33))
    shapes = [(n, m), (m,), (choose.choice((1, n)), m)]
    flags = [True, choose.random() < 0.7, choose.random() < 0.5]
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(flag)
        for shape, flag in zip(shapes, flags, strict=True)
    ]


def _handed(seed: int, given: list[T]) -> list[T]:
    """What the program is called with."""
    if seed >= MOVES:
        return gradient_moves.handed(seed, given)
    return [x * 1 for x in given] if WILD <= seed < APART else given


def outcome(
    function: Callable[..., Any], seed: int, dtype: torch.dtype, draw: int = 0
) -> tuple[list[T], list[Any] | str]:
    """(values, gradients of what requires them or the type of what is raised)."""
    given = arguments(seed, dtype, draw)
    handed = _handed(seed, given)
    found = function(*handed)
    outputs = [found] if isinstance(found, T) else list(found)
    if seed >= WILD:
        outputs += handed
    leaves = [x for x in given if x.requires_grad]
    roots = [one for one in outputs if one.requires_grad]
    if seed >= WILD:
        choose = random.Random(seed + 2)
        roots = [one for one in roots if choose.random() < 0.6] or roots[:1]
    generator = torch.Generator().manual_seed(seed)
    weights = [
        torch.randn(r.shape, generator=generator, dtype=torch.float64).to(dtype) for r in roots
    ]
    values = [one.detach().clone() for one in outputs]
    if not roots:
        return values, []
    try:
        return values, list(torch.autograd.grad(roots, leaves, weights, allow_unused=True))
    except RuntimeError as error:
        return values, type(error).__name__


def apart(function: Callable[..., Any], seed: int) -> list[Any]:
    """What several backwards of the results give: gradients, what hooks see, and types of what is
    raised."""
    if seed >= MOVES:
        leaves = arguments(seed, torch.float64)
        kind = gradient_moves.Habits if seed >= HABITS else gradient_moves.Moves
        return kind(function, seed, leaves, source(seed)).run()
    leaves = [x for x in arguments(seed, torch.float64)]
    found = function(*leaves)
    results = [one for one in (found if isinstance(found, tuple) else [found]) if one.requires_grad]
    choose, seen = random.Random(seed + 2), list[Any]()
    if not results:
        return seen
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(r.shape, generator=generator, dtype=r.dtype) for r in results]
    leaves = [x for x in leaves if x.requires_grad]
    last = 0
    # Not both: a second derivative may reach a hook, or the one of `retain_grad`, through a saved
    # result (tests/test_footguns.py).
    further = choose.choice((("hook", "retain"), ("twice", "twice")))
    if gradient_moves.has_bent(source(seed)):
        further = ("hook", "retain")
    for _ in range(choose.randrange(1, 5)):
        at, by = choose.randrange(len(results)), choose.randrange(len(results))
        result, weight, retain = results[at], weights[at], choose.random() < 0.6
        kind = choose.choice(("backward", "backward", "by", "sum", *further))
        before = len(seen)
        try:
            if kind == "backward":
                result.backward(weight, retain_graph=retain)
            elif kind == "by":
                wanted = [results[by], *leaves]
                seen += torch.autograd.grad(
                    result, wanted, weight, retain_graph=retain, allow_unused=True
                )
            elif kind == "hook":
                last += 1
                result.register_hook(lambda g, n=last: (seen.append(g * n), g * 0.5)[1])
            elif kind == "retain":
                result.retain_grad()
            elif kind == "twice":
                first = torch.autograd.grad(
                    result, leaves, weight, create_graph=True, allow_unused=True
                )
                total = [(g * g).sum() for g in first if g is not None and g.requires_grad]
                if total:
                    # Retained: eager frees values of the forward here (tests/test_footguns.py).
                    seen += torch.autograd.grad(
                        sum(total),
                        leaves,
                        retain_graph=True,
                        allow_unused=True,  # type: ignore[arg-type]
                    )
            else:
                torch.autograd.backward(results, weights, retain_graph=retain)
        except (RuntimeError, GraftError) as error:
            # Which hooks ran before it is a matter of the order among independent nodes.
            seen[before:] = [type(error).__name__]
            break
    return [*seen, *(x.grad for x in leaves), *(r.grad for r in results if r.retains_grad)]


def _apart_difference(seed: int) -> str:
    try:
        wanted = apart(program(seed), seed)
    except RuntimeError:
        return ""
    if "RuntimeError" in map(str, wanted):
        wanted = wanted[: list(map(str, wanted)).index("RuntimeError") + 1]
    jitted = graftjit.jit(program(seed), dynamic=False)
    for _ in range(2):
        for number, (a, b) in enumerate(zip(apart(jitted, seed), wanted, strict=False)):
            if type(a) is not type(b) or (not isinstance(a, T) and a != b):
                return f"event {number}: {a} in place of {b}"
            if isinstance(a, T) and a.shape != b.shape:
                return f"event {number}: shape {[*a.shape]} in place of {[*b.shape]}"
            if isinstance(a, T) and not torch.allclose(a, b, 1e-7, 1e-8, equal_nan=True):
                return f"event {number} by {float((a - b).abs().max()):.3g}"
    return ""


def difference(seed: int) -> str:
    """What is not as in plain Python; empty if nothing is."""
    if seed >= APART:
        return _apart_difference(seed)
    plain = program(seed)
    try:
        wanted, exact = outcome(plain, seed, torch.float64)
    except RuntimeError:
        return ""  # a program that nobody could run
    jitted = graftjit.jit(program(seed), dynamic=False)
    for _ in range(2):
        values, gradients = outcome(jitted, seed, torch.float64)
        for number, (a, b) in enumerate(zip(values, wanted, strict=True)):
            if a.shape != b.shape or not torch.allclose(a, b, 1e-9, 1e-9, equal_nan=True):
                return f"value {number} in float64"
        if isinstance(exact, str) or isinstance(gradients, str):
            if exact != gradients:
                return f"backward: {gradients} in place of {exact}"
            continue
        for number, (a, b) in enumerate(zip(gradients, exact, strict=True)):
            if (a is None) != (b is None):
                return f"gradient {number}: one of them is None"
            if a is not None and not torch.allclose(a, b, 1e-7, 1e-8, equal_nan=True):
                return f"gradient {number} in float64 by {float((a - b).abs().max()):.3g}"
    return "" if isinstance(exact, str) else _narrow(seed, exact)


def _narrow(seed: int, exact: list[Any]) -> str:
    """What is further from float64 than in eager; with other numbers as well, if it is with these:
    of one rounding error either may have the smaller one."""
    jitted = graftjit.jit(program(seed), dynamic=False)
    found = _narrow_once(jitted, seed, exact, 0)
    if not found.startswith("gradient"):
        return found
    worse = 0
    for draw in range(1, 1 + DRAWS):
        _, exact = outcome(program(seed), seed, torch.float64, draw)
        worse += isinstance(exact, list) and bool(_narrow_once(jitted, seed, exact, draw))
    return found if worse > DRAWS // 4 else ""


def _narrow_once(jitted: Callable[..., Any], seed: int, exact: list[Any], draw: int) -> str:
    _, theirs = outcome(program(seed), seed, torch.float32, draw)
    try:
        _, ours = outcome(jitted, seed, torch.float32, draw)
    except CheckError:
        return ""  # beside eager in float32, where what cancels to nothing is noise in both
    if isinstance(theirs, str) or isinstance(ours, str):
        return "" if theirs == ours else f"backward in float32: {ours} in place of {theirs}"
    for number, (a, b, c) in enumerate(zip(ours, theirs, exact, strict=True)):
        if a is None or not bool(c.isfinite().all()):
            continue
        scale = float(c.abs().max()) * 2**-23
        own, other = float((a.double() - c).abs().max()), float((b.double() - c).abs().max())
        if own > 4 * other + 8 * scale + 1e-6:
            return f"gradient {number} in float32: error {own:.3g}, eager's {other:.3g}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--keep-going", action="store_true")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.seed, given.seed + given.count):
        if given.show:
            print(source(seed))
        found = difference(seed)
        if found:
            failed += 1
            print(f"seed {seed}: {found}", flush=True)
            if not given.keep_going:
                return 1
    print(f"{given.count - failed} of {given.count} agree")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
