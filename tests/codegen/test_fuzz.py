"""Random tensor programs through code generation: created tensors, views, writes into them, pointwise chains,
reductions, products, copies. Compiled, against eager.

    python -m pytest tests/codegen/test_fuzz.py      a fixed batch
    python -m tests.codegen.test_fuzz 5000 400       seeds 5000 to 5399, by hand
    python -m tests.codegen.test_fuzz open 5000 400  the same with sizes open, run at others
    python -m tests.codegen.test_fuzz triton [open] 5000 400   with Triton's kernels, in its interpreter

Every choice follows from the seed and from metadata, so that the traced and the eager run make the same ones.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.programs.shadow import differs, tolerance
from graftjit.ir.errors import CannotTrace

from .harness import Made
from .harness import trace as trace_graph
from .symbolic import arguments, holds, trace_open
from .triton.made import TritonMade
from .triton.worker import Worker

T = torch.Tensor
STEPS = 10
SIZES = (3, 8, 1)
BATCH = 120

UNARY: tuple[Callable[[Any], Any], ...] = (
    torch.sin, torch.relu, torch.neg, torch.abs, torch.sigmoid, torch.tanh, T.clone, T.contiguous, F.gelu,
    lambda x: x * 2, lambda x: 1 - x, lambda x: x.to(torch.float64).to(torch.float32), lambda x: x > 0,
    lambda x: torch.where(x > 0, x, 0.5), lambda x: x.clamp(-1, 1), lambda x: x.half().float(),
)  # fmt: skip
BINARY = (torch.add, torch.mul, torch.sub, torch.maximum, lambda x, y: torch.where(x > y, x, y))
REDUCE: tuple[Callable[[Any, int], Any], ...] = (
    lambda x, d: x.sum(d), lambda x, d: x.mean(d, keepdim=True), lambda x, d: x.amax(d),
    lambda x, d: F.softmax(x, d), lambda x, d: x.cumsum(d), lambda x, d: x.var(d),
    lambda x, d: x.argmax(d).to(x.dtype), lambda x, d: x.sum(), lambda x, d: x.logsumexp(d, keepdim=True),
)  # fmt: skip
CREATE: tuple[Callable[[Any], Any], ...] = (
    lambda x: torch.zeros(x.shape), torch.ones_like, lambda x: torch.full(x.shape, 0.5),
    lambda x: x.new_zeros(x.shape), lambda x: torch.arange(float(x.shape[-1])), torch.zeros_like,
    lambda x: x.new_ones(x.shape[-1:]), lambda x: torch.eye(x.shape[-1]), torch.empty_like,
)  # fmt: skip
IN_PLACE_UNARY = (
    T.relu_,
    T.neg_,
    T.zero_,
    T.sin_,
    lambda x: x.fill_(2.0),
    lambda x: x.clamp_(min=0),
)
IN_PLACE = (T.add_, T.mul_, T.sub_, T.copy_)
VIEWS: tuple[Callable[[Any, random.Random], Any], ...] = (
    lambda x, r: x.t() if x.dim() == 2 else x.unsqueeze(0), lambda x, r: x.reshape(-1),
    lambda x, r: x[r.randrange(x.shape[0])] if x.dim() else x, lambda x, r: x[..., :: r.choice((1, 2))],
    lambda x, r: x.unsqueeze(r.randrange(x.dim() + 1)), lambda x, r: x.expand(2, *x.shape),
    lambda x, r: x.diagonal() if x.dim() == 2 else x.squeeze(), lambda x, r: x[1:] if x.dim() else x,
    lambda x, r: x.chunk(2, -1)[0], lambda x, r: x.movedim(0, -1) if x.dim() > 1 else x.view(x.shape),
    lambda x, r: x.flip(0) if x.dim() else x,
)  # fmt: skip


def fits(x: Any, y: Any, into: bool = False) -> bool:
    """Whether x and y broadcast (into: to the shape of x)."""
    try:
        shape = torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        return False
    return len(shape) <= 4 and (not into or shape == x.shape)


def overlaps(x: Any) -> bool:
    """Expanded memory, which must not be written."""
    return any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


def step(rng: random.Random, pool: list[Any]) -> None:
    x = rng.choice(pool)
    kind = rng.randrange(11)
    y = rng.choice([other for other in pool if fits(x, other, into=kind in (5, 6))])
    floating = x.dtype == torch.float32
    if kind in (0, 1) and floating:
        pool.append(rng.choice(UNARY)(x))
    elif kind == 2:
        pool.append(rng.choice(BINARY)(x, y))
    elif kind == 3 and floating and x.dim() and 0 not in x.shape and x.numel() > 1:
        pool.append(rng.choice(REDUCE)(x, rng.randrange(x.dim())))
    elif kind == 4:
        made = rng.choice(CREATE)(x)
        pool.append(made.fill_(0.25) if rng.random() < 0.2 else made)
    elif kind == 5 and floating and not overlaps(x):
        rng.choice(IN_PLACE)(x, y)
    elif kind == 6 and floating and not overlaps(x):
        rng.choice(IN_PLACE_UNARY)(x)
    elif kind in (7, 8) and 0 not in x.shape:
        pool.append(rng.choice(VIEWS)(x, rng))
    elif kind == 9 and x.dim() and floating and not overlaps(x) and 0 not in x.shape:
        x[rng.randrange(x.shape[0])] = rng.choice([3.0, 0.0])
    elif kind == 10:
        mates = [p for p in pool if p.dim() == x.dim() == 2 and p.dtype == x.dtype == torch.float32]
        same = [p for p in mates if p.shape == x.shape]
        if same:
            pool.append(torch.cat([x, rng.choice(same)], rng.randrange(2)))
        elif mates and mates[0].shape[0] == x.shape[1]:
            pool.append(x @ mates[0])


def program(seed: int) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        rng = random.Random(seed)
        pool: list[Any] = list(inputs)
        for _ in range(STEPS):
            step(rng, pool)
        results = [pool[i] for i in {rng.randrange(len(pool)) for _ in range(3)}]
        return [*results, pool[-1] * 1.0]

    return run


def inputs_of(seed: int, sizes: tuple[int, int] | None = None) -> list[torch.Tensor]:
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = sizes or (rng.choice(SIZES), rng.choice((*SIZES, 33)))
    shapes = [(rows, columns), (columns,), (rows, 1)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def failure(seed: int, compiled: Callable[[Any], Made] = Made) -> str | None:
    """What differs, or None. Inputs written to count as results; what eager refuses is no program."""
    inputs = inputs_of(seed)
    eager_inputs, inputs_now = [x.clone() for x in inputs], [x.clone() for x in inputs]
    try:
        with torch.no_grad():
            expected = program(seed)(*eager_inputs)
    except (RuntimeError, IndexError):
        return None
    try:
        graph = trace_graph(program(seed), *inputs)
    except CannotTrace:
        return None
    if any("empty" in str(node.target) for node in graph.nodes):
        return None  # memory that nobody wrote
    made, allowed = compiled(graph), tolerance(graph)
    found = made.run(*inputs_now)
    pairs = [*zip(found, expected, strict=True), *zip(inputs_now, eager_inputs, strict=True)]
    for number, (ours, theirs) in enumerate(pairs):
        problem = differs(ours, theirs, allowed)
        if problem and not close(ours, theirs):
            return f"seed {seed}, result {number}: {problem}"
    return None


OTHERS = ((5, 7), (2, 2), (16, 3), (33, 65), (8, 200), (7, 1000))


def open_failure(seed: int, compiled: Callable[[Any], Made] = Made) -> str | None:
    """The same with rows and columns open: the program made for one pair of sizes, run at all that its trace allows."""
    rng = random.Random(-seed)
    rows, columns = rng.choice(((6, 9), (8, 33), (4, 4)))
    inputs = inputs_of(seed, (rows, columns))
    dims: list[list[int]] = rng.choice(([[0, 1], [0], [0]], [[0], [], [0]], [[1], [0], []]))
    try:
        with torch.no_grad():
            program(seed)(*[x.clone() for x in inputs])
    except (RuntimeError, IndexError):
        return None
    try:
        graph, facts = trace_open(program(seed), inputs, dims)
    except CannotTrace:
        return None
    if any("empty" in str(node.target) for node in graph.nodes):
        return None
    made, allowed = compiled(graph), tolerance(graph)
    for sizes in ((rows, columns), *OTHERS):
        now = inputs_of(seed, sizes)
        fixed = all(
            dim in open_dims or a.shape[dim] == b.shape[dim]
            for a, b, open_dims in zip(inputs, now, dims, strict=True)
            for dim in range(a.dim())
        )
        if not fixed or not holds(facts, now):
            continue
        eager_inputs = [x.clone() for x in now]
        with torch.no_grad():
            expected = program(seed)(*eager_inputs)
        found = made.run(*arguments(graph, facts, now))
        pairs = [*zip(found, expected, strict=True), *zip(now, eager_inputs, strict=True)]
        for number, (ours, theirs) in enumerate(pairs):
            problem = differs(ours, theirs, allowed)
            if problem and not close(ours, theirs):
                return f"seed {seed} at {sizes}, result {number}: {problem}"
        RUNS[sizes != (rows, columns)] += 1
    return None


RUNS = [0, 0]  # at the sizes of the trace, at others


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """What is left of numbers around one that cancel."""
    same = torch.equal(ours.isfinite(), theirs.isfinite())
    return same and bool(((ours - theirs).abs().nan_to_num(0) < 1e-5).all())


@pytest.mark.parametrize("first", range(0, BATCH, 20))
def test_programs_agree_with_eager(first: int) -> None:
    for seed in range(first, first + 20):
        assert failure(seed) is None


@pytest.mark.parametrize("first", range(0, BATCH, 20))
def test_programs_with_open_sizes_agree_with_eager(first: int) -> None:
    for seed in range(first, first + 20):
        assert open_failure(seed) is None


# The first ones, and seeds that found something: a row with nothing to fold, an order that nobody knows.
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(
    ("fails", "seeds"),
    [(failure, (*range(25), 1419)), (open_failure, (*range(25), 5079, 20250))],
    ids=["known", "open"],
)
def test_programs_with_kernels_of_triton_agree_with_eager(fails: Any, seeds: Any) -> None:
    with Worker() as worker:
        for seed in seeds:
            assert fails(seed, lambda graph: TritonMade(graph, worker)) is None


def by_hand(words: list[str]) -> int:
    """Seeds from the command line; how many disagree."""
    fails = open_failure if "open" in words else failure
    start, count = (int(word) for word in words if word.isdigit())
    compiled: Callable[[Any], Made] = Made
    declined: set[str] = set()
    if "triton" in words:
        worker = Worker()

        def compiled(graph: Any) -> Made:
            made = TritonMade(graph, worker)
            declined.update(made.declined.values())
            return made

    found = 0
    for one in range(start, start + count):
        try:
            what = fails(one, compiled)
        except Exception as error:
            what = f"seed {one}: {type(error).__name__}: {error}"[:400]
        if what:
            found += 1
            print(what, flush=True)
    print(f"{count - found} of {count} agree; runs at open sizes: {RUNS}; {len(declined)} declined")
    return found


if __name__ == "__main__":
    sys.exit(bool(by_hand(sys.argv[1:])))
