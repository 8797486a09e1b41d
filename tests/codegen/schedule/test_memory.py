"""A program needs no more memory at a time than eager does: by torch's own count of allocations, and by the plan's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.codegen.fusion.fuse import KINDS
from graftjit.codegen.schedule import peak_memory as memory
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.schedule import step_order as sequence
from graftjit.codegen.schedule import workspace
from graftjit.ir.passes.pipeline import optimize

from ..harness import check, trace

T = torch.Tensor
X = torch.linspace(-1.0, 1.0, 256 * 512).reshape(256, 512)
W = torch.linspace(0.001, 0.01, 512 * 512).reshape(512, 512)
WIDE = torch.linspace(-0.01, 0.01, 512 * 1536).reshape(512, 1536)
BACK = WIDE.t()
TURNED, HALF = W.t(), W * 0.5
BATCH = torch.linspace(-1.0, 1.0, 4 * 32 * 512).reshape(4, 32, 512)
SLACK = 1 << 16


def _mlp(x: T) -> T:
    return F.gelu(x @ WIDE) @ BACK + x


def _block(x: T) -> T:
    h = F.layer_norm(x, (512,))
    q, k, v = ((h @ WIDE).view(4, 32, 3, 8, 64).permute(2, 0, 3, 1, 4)).unbind(0)
    attended = (q @ k.transpose(-1, -2) * 0.125).softmax(-1) @ v
    x = x + attended.transpose(1, 2).reshape(4, 32, 512) @ W
    return x + F.gelu(F.layer_norm(x, (512,)) @ WIDE) @ BACK


def _chain(x: T) -> T:
    for _ in range(8):
        x = torch.tanh(x @ W) + 0.1
    return x


def _no_products(x: T) -> T:
    for _ in range(6):
        x = (x * 0.01).cumsum(1).tanh()
    return x


def _wide(x: T) -> T:
    total = torch.zeros(256)
    for i in range(6):
        total = total + ((x * (i + 1)) @ W).sum(-1)
    return total


def _written(x: T) -> T:
    y = x * 2
    for _ in range(3):
        y.mul_(1.1)
        y.add_(1)
        y = y @ W
        y.relu_()
    return y


def _dense(x: T) -> T:
    parts = [x]
    for _ in range(4):
        parts.append(torch.relu(torch.cat(parts, 0).sum(0, keepdim=True) + x))
    return torch.cat(parts, 1)


def _fluid(x: T) -> T:
    """What is joined has many makers, some of which compute beside their parts what others read."""
    f = torch.stack([x * (k + 1) for k in range(9)])
    for _ in range(2):
        f = torch.stack([f[k].roll((k % 3, 1), (0, 1)) for k in range(9)])
        total = f.sum(0)
        right, up = (sum((k % n - 1) * f[k] for k in range(9)) / total for n in (3, 4))
        along = [(k % 3 - 1) * right + (k % 4 - 1) * up for k in range(9)]
        square = right * right + up * up
        f = torch.stack(
            [
                f[k] * 0.4 + total * (1 + 3 * u + 4.5 * u**2 - 1.5 * square)
                for k, u in enumerate(along)
            ]
        )
    return f


def _reaction(x: T) -> T:
    """A step could store beside the new state what the next one computes of it without a shift."""
    u, v = x, x.t().reshape(x.shape)
    for _ in range(3):
        reacted = u * v * v
        near = [z.roll(1, 0) + z.roll(-1, 0) + z.roll(1, 1) + z.roll(-1, 1) - 4 * z for z in (u, v)]
        u = u + 0.16 * near[0] - reacted + 0.035 * (1 - u)
        v = v + 0.08 * near[1] + reacted - 0.1 * v
    return u + v


def _late(x: T) -> T:
    """What the second product reads is made before the first one's large result, in the order of the program."""
    q, k, v = x @ W, x @ TURNED, x @ HALF
    many = torch.cat([q, q, q, q]) @ k.t()
    return torch.softmax(many, -1) @ torch.cumsum(v, 0)


def _parts(x: T) -> T:
    """Each part of the cat is another kernel's: behind the last but one it is the last one's to make it."""
    parts = [torch.softmax((x * at) @ W, -1) for at in range(1, 4)]
    return torch.cat(parts) @ TURNED


ROWS: tuple[tuple[str, Callable[[T], Any], T], ...] = (
    ("pointwise", lambda x: (x.sin() + x.cos() * 2).tanh(), X),
    ("mlp", _mlp, X),
    ("transformer block", _block, BATCH),
    ("chain of products", _chain, X),
    ("chain without products", _no_products, X),
    ("branches that are summed", _wide, X),
    ("written in place", _written, X),
    ("softmax of products", lambda x: (x @ x.t() / 8).softmax(-1) @ x, X),
    ("cat", lambda x: torch.cat([x.sin(), x.cos()], -1).cumsum(-1), X),
    ("rotated halves", lambda x: x * 2 + torch.cat([-x[:, 256:], x[:, :256]], -1), X),
    ("stack", lambda x: torch.stack([x * 2, x + 1, x - 1], 1).cumsum(0), X),
    ("cats of cats", _dense, X),
    ("column statistics", lambda x: (x - x.mean(0)) / x.var(0).sqrt(), X),
    ("products that come late", _late, X),
    ("a stack by many kernels", _fluid, X.abs() + 1),
    ("parts by several kernels", _parts, X),
    ("steps of a reaction", _reaction, X.abs() / 4),
    ("several results", lambda x: ((x @ W).relu(), (x * 2) @ W, x.sum(0)), X),
)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_no_more_than_eager(row, bench) -> None:
    _name, fn, x = row
    peak = bench("memory").peak
    made = check(fn, x, library=None)
    eager, ours = peak(lambda: fn(x)), peak(lambda: made.run(x))
    needed = ours.peak - ours.kept + made.spec.arena
    assert needed <= eager.peak + SLACK
    planned = memory.peak(made.plan.steps, made.plan.flow, made.plan.scratch, made.plan.over)
    assert abs(planned - needed) <= SLACK  # the plan knows what it costs
    lives = memory.lives(made.plan.steps, made.plan.flow, made.plan.over)
    parts = [
        [life for life in lives if (life.node in made.plan.scratch) is one] for one in (True, False)
    ]
    assert sum(max(_at_once(part), default=0) for part in parts) == planned


def _at_once(lives: list[memory.Life]) -> list[int]:
    """Bytes at each step where something is made."""
    steps = {life.made for life in lives}
    return [sum(life.nbytes for life in lives if life.made <= at <= life.last) for at in steps]


def test_fusion_that_reaches_far_is_given_up_for_memory_alone() -> None:
    """Branches that are summed are one kernel where they are small; large ones would all be alive at once."""
    large = check(_wide, X, library=None)
    few = check(_few, X[:4], library=None)
    assert few.kernels[-1].nest.has_reduction and len(few.kernels) < len(large.kernels)


def _few(x: T) -> T:
    total = torch.zeros(4)
    for i in range(6):
        total = total + ((x * (i + 1)) @ W).sum(-1)
    return total


def test_a_plan_is_made_again_only_where_it_needs_too_much(monkeypatch) -> None:
    calls: list[Any] = []
    original = schedule.drafted
    monkeypatch.setattr(schedule, "drafted", lambda *a, **k: calls.append(a) or original(*a, **k))
    graph = check(_mlp, X, library=None).graph
    assert len(calls) == 1
    check(_wide, X, library=None)
    assert len(calls) == 3  # far, then near
    schedule.plan(graph, fuse=False)
    assert len(calls) == 4


def test_what_is_read_late_is_made_late(monkeypatch) -> None:
    found = check(_late, X, library=None).plan
    monkeypatch.setattr(sequence, "put_off", lambda steps, follows, flow: steps)
    before = check(_late, X, library=None).plan
    needed, without = (memory.peak(p.steps, p.flow, p.scratch, p.over) for p in (found, before))
    v = X.numel() * X.element_size()
    assert needed <= without - v
    assert {str(step.target) for step in found.steps if not hasattr(step, "nest")} == {
        str(step.target) for step in before.steps if not hasattr(step, "nest")
    }


@pytest.mark.parametrize("order", [sequence.put_off, sequence.bring_forward])
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_any_order_keeps_each_step_behind_those_it_follows(row, order) -> None:
    _name, fn, x = row
    plan = schedule.drafted(schedule.Task(optimize(trace(fn, x)), {}, KINDS), False)
    later = order(plan.steps, plan.follows, plan.flow)
    place = {id(step): at for at, step in enumerate(later)}
    assert len(place) == len(plan.steps)
    for step, before in zip(plan.steps, plan.follows, strict=True):
        assert all(place[id(plan.steps[at])] < place[id(step)] for at in before)
    made: set[Any] = set()
    for step, (stored, read) in zip(later, memory.uses(later, plan.flow), strict=True):
        inside = {node for node in read if node.op in ("call", "get")}
        assert inside <= made | set(stored), step
        made.update(stored)


def _summed_rows(rows: T, at: T) -> T:
    """Rows that several values add up to are added to a table."""
    hidden = torch.tanh(rows @ W)
    left, right = hidden @ W, hidden.t().contiguous().t() @ W
    return torch.ops.aten.embedding_dense_backward(left * 2 + right.exp(), at, 2000, -1, False)


def test_a_kernel_at_the_peak_is_divided(monkeypatch) -> None:
    """The operands of the sum are in memory together only before the table is made."""
    arguments = X, torch.arange(256) % 7
    found = check(_summed_rows, *arguments, library=None).plan
    needed = memory.peak(found.steps, found.flow, found.scratch, found.over)
    monkeypatch.setattr(schedule, "DIVISIONS", 0)
    before = check(_summed_rows, *arguments, library=None).plan
    assert needed < memory.peak(before.steps, before.flow, before.scratch, before.over)


def test_small_values_take_little_of_a_workspace() -> None:
    arena = workspace.Arena({})
    starts = [arena.take(name, nbytes) for name, nbytes in (("a", 8), ("b", 20), ("c", 100))]
    assert starts == [0, 16, 64] and arena.total == 64 + 128


def test_inputs_that_die_count_until_their_last_reader() -> None:
    """As in a backward, which alone holds what was saved for it."""
    graph = optimize(trace(lambda x: (x @ W) @ W, X))
    nbytes = X.numel() * X.element_size()
    assert memory.peak_of_eager(schedule.plan(graph).flow) == 2 * nbytes
    graph.consumes, graph.own = True, frozenset({0})
    plan = schedule.plan(graph)
    assert memory.peak_of_eager(plan.flow) == 2 * nbytes  # x is gone when the second product runs
    assert memory.lives(plan.steps, plan.flow, plan.over)[0].last == 0
    again = optimize(trace(lambda x: (x @ W) @ W + x, X))
    again.consumes, again.own = True, frozenset({0})
    assert memory.peak_of_eager(schedule.plan(again).flow) == 3 * nbytes


def test_the_backward_knows_what_it_alone_holds(monkeypatch) -> None:
    seen: list[Any] = []
    original = schedule.plan
    monkeypatch.setattr(schedule, "plan", lambda g, *a, **k: seen.append(g) or original(g, *a, **k))
    w = (WIDE * 1).requires_grad_()
    graftjit.jit(lambda x, w: torch.tanh(x @ w).sin().sum())(X, w).backward()
    (backward,) = [graph for graph in seen if graph.consumes]
    held = {backward.inputs[at].meta.shape for at in backward.own}
    assert held == {(256, 1536)}  # the product, not x
