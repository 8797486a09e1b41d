"""Programs with functional collectives, in eager mode and jitted: what both ranks run.

All numbers are small integers, so results are equal to the bit.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import _functional_collectives as fc
from torch.distributed.device_mesh import init_device_mesh

import graftjit
from graftjit.ir.ops import collectives

T = torch.Tensor
OPS = torch.ops._c10d_functional
AUTOGRAD = torch.ops._c10d_functional_autograd
ASYNC = fc.AsyncCollectiveTensor
WORLD, NAME = 2, "0"


# -- functions -------------------------------------------------------------------------------------
def reduced(x: T, group: Any) -> Any:
    return fc.all_reduce(x * 2, "SUM", group) * x


def maximum(x: T, group: Any) -> Any:
    return fc.all_reduce(x.detach() * 2, "max", group) * x


def gathered(x: T, group: Any) -> Any:
    return fc.all_gather_tensor(x * 2, 0, group).square()


def gathered_in_columns(x: T, group: Any) -> Any:
    return fc.all_gather_tensor(x * 2, 1, group).square()


def scattered(x: T, group: Any) -> Any:
    return fc.reduce_scatter_tensor(x * 2, "sum", 0, group).square()


def scattered_in_columns(x: T, group: Any) -> Any:
    return fc.reduce_scatter_tensor(x * 2, "sum", 1, group).square()


def exchanged(x: T, group: Any) -> Any:
    return fc.all_to_all_single(x * 2, None, None, group).square()


def exchanged_in_parts(x: T, group: Any) -> Any:
    """Each rank keeps one row, and the other gets three."""
    rank = dist.get_rank()
    sizes = [1, 3] if rank == 0 else [3, 1]
    return fc.all_to_all_single(x * 2, sizes, sizes, group).square()


def permuted(x: T, group: Any) -> Any:
    return fc.permute_tensor(x.flatten() * 2, [1, 0], group).square()


def broadcast(x: T, group: Any) -> Any:
    return fc.broadcast(x.detach() * 2, 1, group) * x


def several(x: T, group: Any) -> Any:
    one, other = fc.all_reduce_coalesced([x * 2, x[:1] + 1], "sum", group)
    third, fourth = fc.all_gather_into_tensor_coalesced([x, x[:2] * 3], group)
    return one * other + third[:4] + fourth


def several_scattered(x: T, group: Any) -> Any:
    given = [x.detach() * 2, x.detach() + 1]
    one, other = fc.reduce_scatter_tensor_coalesced(given, "sum", [0, 1], group)
    return one.sum() * other * x[:, :2].sum()


def autograd_forms(x: T, group: Any) -> Any:
    one = fc.all_gather_tensor_autograd(x, 0, group)
    other = fc.reduce_scatter_tensor_autograd(one * x.sum(), "sum", 0, group)
    return fc.all_to_all_single_autograd(other * x, None, None, group).square()


def waited(x: T, group: Any) -> Any:
    first = fc.all_reduce(x * 2, "sum", group)
    second = fc.all_reduce(x * 3, "sum", group)
    return fc.wait_tensor(second) * first.wait() + first.trigger_wait()


def unused(x: T, group: Any) -> Any:
    fc.all_reduce(x * 2, "sum", group)
    fc.broadcast(x.detach(), 0, group)
    return x + fc.all_reduce(x * 5, "sum", group)


# -- what the program sees of a result -------------------------------------------------------------
def left_under_way(x: T, group: Any) -> Any:
    return fc.all_reduce(x * 2, "sum", group)


def looked_at(x: T, group: Any) -> Any:
    y = fc.all_reduce(x * 2, "sum", group)
    kinds = type(y) is ASYNC, isinstance(y, T), isinstance(y, ASYNC), y.completed, y.shape[0]
    view = y.t()
    return y, view, view.completed, y + 1, y.completed, kinds, y.contiguous() is y


def views(x: T, group: Any) -> Any:
    y = fc.all_reduce(x * 2, "sum", group)
    return y[0], y[0] + 1, [one * 2 for one in y.unbind(0)], torch.cat([y, y]), y.reshape(-1)


def written(x: T, group: Any) -> Any:
    y = fc.all_reduce(x.detach() * 2, "sum", group)
    return y.add_(1) is y, y


def added_to(x: T, group: Any) -> Any:
    y = fc.all_reduce(x * 2, "sum", group)
    y += x
    return y + 0


def history_across_a_break(x: T, group: Any) -> Any:
    y = fc.all_reduce(x * 2, "sum", group)
    gc.get_threshold()
    return y * x


def across_a_break(x: T, group: Any) -> Any:
    y = fc.all_reduce(x.detach() * 2, "sum", group)
    gc.get_threshold()
    return y * x, y.completed


def read_as_numbers(x: T, group: Any) -> Any:
    y = fc.all_reduce(x.detach(), "sum", group)
    return x * y.sum().item(), y[0].tolist()


FUNCTIONS: dict[str, Callable[[T, Any], Any]] = {
    one.__name__: one
    for one in (
        *(reduced, maximum, gathered, gathered_in_columns, scattered, scattered_in_columns),
        *(exchanged, exchanged_in_parts, permuted, broadcast, several, several_scattered),
        *(autograd_forms, waited, unused, left_under_way, looked_at, views, written),
        *(added_to, across_a_break, history_across_a_break, read_as_numbers),
    )
}


# -- operators -------------------------------------------------------------------------------------
def op_all_to_all(x: T, group: Any) -> Any:
    return OPS.wait_tensor(OPS.all_to_all_single(x * 2, [2, 2], [2, 2], NAME)).square()


def op_coalesced(x: T, group: Any) -> Any:
    one, other = OPS.all_reduce_coalesced([x * 2, x + 1], "sum", NAME)
    third, fourth = OPS.all_gather_into_tensor_coalesced([x, x * 3], WORLD, NAME)
    one, other, third, fourth = map(OPS.wait_tensor, (one, other, third, fourth))
    return one * other + third[:4] + fourth[4:]


def op_in_place(x: T, group: Any) -> Any:
    y, z = x.detach() * 2, x.detach() + 1
    one = OPS.all_reduce_(y, "sum", NAME)
    OPS.broadcast_(z, 1, NAME)
    two = OPS.all_reduce_coalesced_([x.detach() * 3, x.detach() * 4], "max", NAME)
    OPS.wait_tensor(z)
    return OPS.wait_tensor(y) * z * x + OPS.wait_tensor(two[1]), one is y


def op_into(x: T, group: Any) -> Any:
    y, z = x.new_empty(8, 2), x.new_empty(4, 2)
    OPS.all_gather_into_tensor_out(x.detach() * 2, WORLD, NAME, out=y)
    OPS.wait_tensor(y)
    OPS.reduce_scatter_tensor_out(y * 3, "sum", WORLD, group_name=NAME, out=z)
    return OPS.wait_tensor(z) * x


def op_argument(x: T, group: Any) -> Any:
    with torch.no_grad():
        OPS.all_reduce_(x, "sum", NAME)
        y = x[1]
        OPS.wait_tensor(y)
    return x * 2


def op_autograd(x: T, group: Any) -> Any:
    one = OPS.wait_tensor(AUTOGRAD.all_gather_into_tensor(x, WORLD, NAME))
    other = OPS.wait_tensor(AUTOGRAD.reduce_scatter_tensor(one * x.sum(), "sum", WORLD, NAME))
    return OPS.wait_tensor(AUTOGRAD.all_to_all_single(other * x, [2, 2], [2, 2], NAME)).square()


def op_chain(x: T, group: Any) -> Any:
    """A message of whose result nothing depends but a later one; and one for each direction."""
    y = OPS.wait_tensor(OPS.all_reduce(x * 2, "sum", NAME))
    z = OPS.wait_tensor(OPS.reduce_scatter_tensor(y * x, "sum", WORLD, NAME))
    return OPS.wait_tensor(OPS.all_gather_into_tensor(z * x[:2], WORLD, NAME)).square() + y


def op_upper_case(x: T, group: Any) -> Any:
    """torch's operators take the names of reductions in lower case alone."""
    return OPS.wait_tensor(OPS.all_reduce(x, "SUM", NAME))


OPERATORS: dict[str, Callable[[T, Any], Any]] = {
    one.__name__: one
    for one in (
        *(op_all_to_all, op_coalesced, op_in_place, op_into, op_argument, op_autograd, op_chain),
        op_upper_case,
    )
}


# -- groups, objects and batches -------------------------------------------------------------------
def told_of_groups(x: T, group: Any) -> Any:
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    ranks.append(7)
    mine = dist.get_rank(group)
    places = dist.get_global_rank(group, mine), dist.get_group_rank(group, dist.get_rank())
    return x * mine, ranks, backend, places, group.size(), group.rank(), group.group_name


def batched(x: T, group: Any) -> Any:
    found, other = torch.empty_like(x), 1 - dist.get_rank()
    sent = x.detach() * 2
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, found, other)]
    )
    for work in works:
        work.wait()
    return found + x


def of_objects(x: T, group: Any) -> Any:
    found, sent = [None] * WORLD, [x.shape[0] + dist.get_rank()]
    dist.all_gather_object(found, {"rank": dist.get_rank(), "size": x.shape})
    dist.broadcast_object_list(sent, 1)
    return x * 2, found, sent


def new_groups(x: T, group: Any) -> Any:
    y = x * 2
    made = dist.new_group([0, 1])
    return fc.all_reduce(y, "sum", made) * x


OTHERS: dict[str, Callable[[T, Any], Any]] = {
    one.__name__: one for one in (told_of_groups, batched, of_objects, new_groups)
}


# -- what the ranks do -----------------------------------------------------------------------------
def _flat(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [part for one in result for part in _flat(one)]
    return [result]


def _seen(value: Any) -> Any:
    """What can be compared of a result."""
    if not isinstance(value, T):
        return value
    kind = type(value).__name__, value.requires_grad, getattr(value, "completed", None)
    return kind, value.detach().tolist(), tuple(value.stride())


def _called(call: Any, x: T, group: Any) -> list[Any]:
    """The results, what they are after a use, and the gradient of x."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            results = _flat(call(x, group))
        except RuntimeError as error:
            results = [str(error)]
    found = [type(one).__name__ for one in results]
    found += [getattr(one, "completed", None) for one in results]
    totals = [(one * 1.0).sum() for one in results if isinstance(one, T) and one.requires_grad]
    if totals:
        torch.stack(totals).sum().backward()  # type: ignore[no-untyped-call]
    told = [str(one.message) for one in given if "c10d_logger" not in one.filename]
    return [found, [_seen(one) for one in results], _seen(x.grad), told]


def _argument(number: int, grad: bool) -> T:
    x = torch.arange(8.0).reshape(4, 2) * (1 + dist.get_rank()) + number
    return x.requires_grad_(grad)


def _told(made: Any, eager: Any, ours: Any) -> Any:
    report = made.report()
    return eager, ours, [(one.code, one.reason) for one in report.breaks], report.graph_count


def _compared(function: Callable[..., Any], grad: bool, groups: list[Any]) -> Any:
    made, found = graftjit.jit(function), tuple[list[Any], list[Any]](([], []))
    for call, kept in zip((function, made), found, strict=True):
        for number, group in enumerate(groups):
            kept.append(_called(call, _argument(number, grad), group))
    return _told(made, *found)


def all_programs(grad: bool) -> dict[str, Any]:
    """By name: what is seen in eager mode and jitted, breaks, graphs."""
    programs = FUNCTIONS | OPERATORS
    return {name: _compared(one, grad, [dist.group.WORLD] * 3) for name, one in programs.items()}


class _Late:
    """The work of a message that is sent when something waits: who reads before sees NaN."""

    def __init__(self, send: Callable[[], None], written: Any) -> None:
        self._send, self._given = send, [(one, one.clone()) for one in written]
        for one in written:
            one.fill_(float("nan"))

    def wait(self) -> None:
        for one, kept in self._given:
            one.copy_(kept)
        self._send()


def late_messages() -> dict[str, Any]:
    """By name: what is seen in eager mode, and of a graph whose messages are sent by its waits."""
    call = collectives._call

    def late(written: Any, read: Any, how: str, group: str, begin: bool) -> Any:
        if not begin:
            return call(written, read, how, group, begin)
        return _Late(lambda: call(written, read, how, group, True).wait(), written)

    collectives._call = late
    collectives.hand_over = lambda ticket, tensors: ticket.work.wait()
    programs = FUNCTIONS | OPERATORS
    return {name: _compared(one, False, [dist.group.WORLD]) for name, one in programs.items()}


def all_others() -> dict[str, Any]:
    """By name: the same of what is not a message of tensors alone."""
    return {name: _compared(one, True, [dist.group.WORLD] * 3) for name, one in OTHERS.items()}


def varying_groups() -> Any:
    """Answers about process groups, for groups that vary."""
    alone = [dist.new_group([rank]) for rank in range(WORLD)][dist.get_rank()]
    groups = [dist.group.WORLD, alone, dist.group.WORLD, alone]
    return _compared(told_of_groups, False, groups)


def all_groups() -> Any:
    """The forms in which a group is given."""
    mesh, square = init_device_mesh("cpu", (WORLD,)), init_device_mesh("cpu", (1, WORLD))
    groups = [dist.group.WORLD, NAME, mesh, (square, 1), [0, 1], (square, 0), mesh]
    functions = reduced, gathered, exchanged
    return [_compared(one, True, groups) for one in functions]


def entering() -> Any:
    """Results of eager mode that a jitted function is given, or plain tensors in their place."""

    def used(y: T, x: T) -> Any:
        done = isinstance(y, ASYNC) and y.completed
        return y * x, y.t(), done

    def passed(y: T, x: T) -> Any:
        return [y], x + 1

    def waits(y: T, x: T) -> Any:
        z = x * 2
        return OPS.wait_tensor(y) + z if type(y) is T else y.wait() + z

    def after_a_message(y: T, x: T) -> Any:
        z = fc.all_reduce(x * 2, "sum", NAME) + 1
        return y * z

    def chosen(y: T, x: T) -> Any:
        return x + 1 if y.sum() > 60 else x - 1

    def kinds(number: int) -> list[T]:
        x = _argument(number, False)
        done = fc.all_reduce(x, "sum", NAME)
        done.trigger_wait()  # type: ignore[attr-defined]
        return [
            *(fc.all_reduce(x, "sum", NAME), x, fc.all_reduce(x, "sum", NAME), done),
            *(fc.all_reduce(x, "sum", NAME).t().t(), OPS.all_reduce(x, "sum", NAME)),
        ]

    told = []
    for function in (used, passed, waits, after_a_message, chosen):
        made, found = graftjit.jit(function), tuple[list[Any], list[Any]](([], []))
        for call, kept in zip((function, made), found, strict=True):
            for number in range(2):
                for y in kinds(number):
                    if type(y) is T and function is not waits:
                        y = OPS.wait_tensor(y)
                    results = _flat(call(y, _argument(number, False)))
                    kept.append([_seen(one) for one in results])
                    kept.append((getattr(y, "completed", None), results[0] is y))
        told.append(_told(made, *found))
    return told
