"""Messages to other processes that autograd follows: the operators of `torch.ops._c10d_functional`
for which torch has a formula.

In: what to send (an operator's name and its constants), what its gradient sends, the name of a
group, tensors. Out: a ticket, and results whose message is under way. `capture` walks the methods,
and replaces `begun` and `exchanged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

How = tuple[Any, ...]  # the operator's name, and its arguments but tensors and group


class _Registered:
    """The work of messages for which torch's `wait_tensor` waits."""

    def __init__(self, results: list[torch.Tensor]) -> None:
        self._results = results

    def wait(self) -> None:
        for one in self._results:
            torch.ops._c10d_functional.wait_tensor(one)


def begun(how: How, place: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A ticket, as `ir.ops.collectives` makes it, and the results of a message that has begun."""
    found = _sent(how, place, tensors)
    ticket = torch.empty((), dtype=torch.int64)
    ticket.work = _Registered(found)  # type: ignore[attr-defined]
    return [ticket, *found]


def exchanged(how: How, place: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a message that has ended."""
    found = _sent(how, place, tensors)
    return [torch.ops._c10d_functional.wait_tensor(one) for one in found]


def _sent(how: How, place: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    name, *constants = how
    send = getattr(torch.ops._c10d_functional, name)
    if name.endswith("coalesced"):
        return list(send(list(tensors), *constants, place))
    return [send(tensors[0], *constants, place)]


class Exchanged(torch.autograd.Function):
    """One message; its gradient is one too."""

    @staticmethod
    def forward(ctx: Any, there: How, back: How, place: str, *tensors: Any) -> Any:
        ctx.back, ctx.place = back, place
        ticket, *made = begun(there, place, tensors)
        ctx.mark_non_differentiable(ticket)
        return (ticket, *made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        sent = [one.contiguous() for one in gradients[1:]]
        return (None, None, None, *exchanged(ctx.back, ctx.place, sent))
