"""Programs that send messages by `torch.distributed`, in eager mode and jitted: what both ranks run.

All numbers are small integers, so results are equal to the bit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

import graftjit
from graftjit.runtime.store.store import KernelStore

T = torch.Tensor
OPS = torch.ops._c10d_functional
WORLD = 2


def all_reduce(x: T) -> T:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def largest_of_an_argument(x: T) -> T:
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x + 1


def reduced_by(x: T, op: Any, src: int, late: bool) -> T:
    y = x * 2
    work = dist.all_reduce(y, op, async_op=late)
    if work is not None:
        work.wait()
    dist.broadcast(x, src)
    return x + y


def average(x: T) -> T:
    dist.all_reduce(x, group=dist.group.WORLD)
    return x / dist.get_world_size()


def by_rank(x: T) -> T:
    if dist.get_rank() == 0:
        x = x * 3
    dist.broadcast(x, 0)
    return x + dist.get_rank(dist.group.WORLD)


def gathered(x: T) -> T:
    found = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(found, x + 1)
    return torch.stack(found)


def gathered_into_one(x: T) -> T:
    found = x.new_empty(WORLD * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(found, x * 2)
    return found.relu()


def scattered(x: T) -> T:
    found = x.new_empty(x.shape[0] // WORLD, *x.shape[1:])
    dist.reduce_scatter_tensor(found, x * 2)
    return found + 1


def exchanged(x: T) -> T:
    found = torch.empty_like(x)
    dist.all_to_all_single(found, x * 2)
    return found + 1


def to_the_first(x: T) -> T:
    dist.reduce(x, 0)
    return x if dist.get_rank() == 0 else torch.zeros_like(x)


def unused(x: T) -> T:
    """The other rank waits for each message, whatever becomes of its result."""
    dist.all_reduce(x * 2)
    dist.barrier()
    first = x + 1
    dist.broadcast(first, 1)
    dist.all_reduce(x * 3)
    return x + 1


def in_order(x: T) -> T:
    """Two messages of one size, with nothing between them but the order."""
    one, other = x + 1, x * 5
    dist.broadcast(other, 0)
    dist.broadcast(one, 1)
    return one - other


def begun(x: T) -> T:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = (x + 1).square()
    work.wait()
    return y + z


def begun_and_looked_at(x: T) -> T:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    known = isinstance(work, dist.Work), isinstance(work, (int, torch.Tensor))
    work.wait()
    return y + known.index(True) + (type(work) is dist.Work)


def begun_and_waited_for_after_a_break(x: T) -> T:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    gc.get_threshold()
    z = x + 1
    work.wait()
    return y + z


def in_blocks(x: T) -> T:
    with torch.no_grad():
        dist.all_reduce(x)
    found = x * 2
    works = [dist.all_reduce(one, async_op=True) for one in (x, found)]
    with torch.enable_grad():
        for work in works:
            work.wait()
    return x + found


def from_one_to_the_other(x: T) -> T:
    found, source = torch.empty_like(x), -1
    if dist.get_rank() == 0:
        dist.send(x * 2, 1, tag=3)
        works = [dist.irecv(found, 1), dist.isend(x + 1, 1)]
    else:
        source = dist.recv(found, 0, tag=3)
        works = [dist.isend(x + found, 0), dist.irecv(found, 0)]
    for work in works:
        work.wait()
    return found + source


def functional(x: T) -> T:
    name = "0"
    one = OPS.all_reduce(x * 2, "sum", name)
    other = OPS.broadcast(x + 1, 1, name)
    OPS.all_reduce(x * 5, "max", name)
    mine = x.sin()
    found = OPS.wait_tensor(OPS.all_gather_into_tensor(x, WORLD, name))
    part = OPS.wait_tensor(OPS.reduce_scatter_tensor.default(found, "sum", WORLD, name))
    return OPS.wait_tensor(one) + OPS.wait_tensor(other) + mine + part


def functional_and_waited_for_after_a_break(x: T) -> T:
    y = OPS.all_reduce(x * 2, "sum", "0")
    gc.get_threshold()
    return OPS.wait_tensor(y) + 1


def handled(x: T) -> T:
    try:
        dist.all_reduce(x)
    except ValueError:
        return x - 1
    return x + 1


class Reduced(torch.autograd.Function):
    """The sum of all ranks' parts; the gradient is that of each part."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, arriving: T) -> T:
        return arriving


class Copied(torch.autograd.Function):
    """The same for all ranks; the gradient is the sum of all ranks' parts."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, arriving: T) -> T:
        arriving = arriving.clone()
        dist.all_reduce(arriving)
        return arriving


PROGRAMS: dict[str, Callable[[T], T]] = {
    one.__name__: one
    for one in (
        *(all_reduce, largest_of_an_argument, average, by_rank, gathered, gathered_into_one),
        *(scattered, exchanged, to_the_first, unused, in_order, begun, in_blocks, handled),
        *(
            begun_and_looked_at,
            begun_and_waited_for_after_a_break,
            from_one_to_the_other,
            functional,
        ),
        functional_and_waited_for_after_a_break,
    )
}
Found = tuple[list[Any], list[Any], list[tuple[str, str]], int]


def _argument(number: int) -> T:
    return torch.arange(12.0).reshape(4, 3) * (1 + dist.get_rank()) + number


def _told(made: Any, eager: list[Any], ours: list[Any]) -> Found:
    report = made.report()
    breaks = [(one.code, one.reason) for one in report.breaks]
    return eager, ours, breaks, report.graph_count


def _called(function: Callable[[T], T]) -> Found:
    made, found = graftjit.jit(function), tuple[list[Any], list[Any]](([], []))
    for call, kept in zip((function, made), found, strict=True):
        for number in range(3):
            x = _argument(number)
            kept += [call(x), x]
    return _told(made, *found)


def all_programs() -> dict[str, Found]:
    """By name: results in eager mode and jitted, breaks, graphs."""
    return {name: _called(one) for name, one in PROGRAMS.items()}


def by_arguments() -> Found:
    """Operators, ranks and flags that vary from call to call."""
    made, found = graftjit.jit(reduced_by), tuple[list[Any], list[Any]](([], []))
    ops = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN
    for call, kept in zip((reduced_by, made), found, strict=True):
        for number, op in enumerate((*ops, *ops)):
            kept.append(call(_argument(number), op, number % 2, number > 3))
    return _told(made, *found)


def by_groups() -> Found:
    """A group that varies, one of this process alone among them."""

    def reduced(x: T, group: Any) -> T:
        y = x * 2
        dist.all_reduce(y, group=group)
        return y * dist.get_world_size(group) + dist.get_rank(group)

    alone = [dist.new_group([rank]) for rank in range(WORLD)][dist.get_rank()]
    made, found = graftjit.jit(reduced), tuple[list[Any], list[Any]](([], []))
    for call, kept in zip((reduced, made), found, strict=True):
        for group in (None, alone, dist.group.WORLD, alone, None):
            kept.append(call(_argument(1), group))
    return _told(made, *found)


def _weights() -> list[T]:
    first = torch.arange(12.0).reshape(3, 4) % 5 - 2 + dist.get_rank()
    return [first.requires_grad_(), (first.detach().T + 1).requires_grad_()]


def divided_layers() -> Found:
    """Two layers whose weights the ranks share, as tensor parallel training has them."""

    def loss(x: T, first: T, last: T) -> T:
        return Reduced.apply(torch.relu(Copied.apply(x) @ first) @ last).sum()

    made, found = graftjit.jit(loss), tuple[list[Any], list[Any]](([], []))
    for call, kept in zip((loss, made), found, strict=True):
        for number in range(3):
            given = [(torch.ones(2, 3) + number).requires_grad_(), *_weights()]
            total = call(*given)
            total.backward()
            kept += [total.detach(), *(one.grad for one in given)]
    return _told(made, *found)


def whole_step() -> Found:
    """A training step with its own reduction of the gradients."""

    def trained(jitted: bool) -> tuple[list[Any], Any]:
        model = nn.Linear(3, 1)
        with torch.no_grad():
            for one in model.parameters():
                one.fill_(0.5)
        optimizer = torch.optim.SGD(model.parameters(), 0.25)

        def step(x: T) -> T:
            optimizer.zero_grad()
            loss = model(x).sum() / 4
            loss.backward()
            for one in model.parameters():
                assert one.grad is not None
                dist.all_reduce(one.grad)
                one.grad /= dist.get_world_size()
            optimizer.step()
            return loss.detach()

        call = graftjit.jit(step) if jitted else step
        losses = [call(_argument(number) % 4) for number in range(4)]
        return [*losses, *(one.detach() for one in model.parameters())], call

    (eager, _), (ours, made) = trained(False), trained(True)
    return _told(made, eager, ours)


def cold() -> tuple[int, int]:
    """(libraries that a training step needs, those that this rank has built)"""
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3)), torch.ones(4, 8)
    load, build, calls = KernelStore.load, KernelStore._build, list[str]()
    KernelStore.load = lambda *given, **named: (  # type: ignore[method-assign]
        calls.append("load"),
        load(*given, **named),
    )[1]
    KernelStore._build = lambda *given: (  # type: ignore[method-assign]
        calls.append("build"),
        build(*given),
    )[1]
    graftjit.jit(lambda x: model(x).square().mean())(x).backward()
    return calls.count("load"), calls.count("build")


def second_derivative() -> str:
    """What a second derivative through such a part raises."""

    def loss(x: T, first: T) -> T:
        return Reduced.apply(x @ first).square().sum()

    x, (first, _) = torch.ones(2, 3, requires_grad=True), _weights()
    total = graftjit.jit(loss)(x, first)
    try:
        torch.autograd.grad(total, x, create_graph=True)
    except NotImplementedError as error:
        return str(error)
    return ""
