"""Sensitivity: how far eager's own values move when its inputs move by a rounding.

Some computations magnify rounding. Adam divides a gradient that cancels to nothing by its own size,
and any result between -lr and lr is as good as eager's. `Sensitivity` measures this by running the
calls again on shaken inputs. GRAFTJIT_CHECK uses it only where values differ, before it reports the
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# the number of times that the inputs are shaken, and the multiple of the widest move that is
# accepted
ROUNDS, FACTOR = 6, 4.0

Values = Sequence[torch.Tensor]


class Sensitivity:
    """The measurement for one call.

    `run(inputs)` returns eager's values and may write to `inputs`; `inputs` are those of the call,
    as they were before it; `copied` copies a tensor.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Values],
        inputs: Sequence[Any],
        copied: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._run, self._inputs, self._copied = run, inputs, copied
        self._moves: list[torch.Tensor] | None = None

    def slack(self, number: int, expected: Values) -> torch.Tensor | None:
        """For each element of value `number`, how much is added to the allowed error; None if this
        is unknown.
        """
        if self._moves is None:
            self._moves = self._measured(expected)
        return self._moves[number] if self._moves else None

    def _measured(self, expected: Values) -> list[torch.Tensor]:
        if not all(map(_same, self._given(None), expected)):
            # unknown: inputs share memory, or the calls read other state that has changed
            return []
        moves = [torch.zeros(one.shape, dtype=torch.float64) for one in expected]
        for number in range(ROUNDS):
            try:
                found = self._given(torch.Generator().manual_seed(number))
            except RuntimeError:
                return []  # the operators refuse such inputs
            if any(a.shape != b.shape for a, b in zip(found, expected, strict=True)):
                return []
            moves = list(map(_wider, moves, found, expected))
        return [FACTOR * move for move in moves]

    def _given(self, generator: torch.Generator | None) -> Values:
        inputs = [
            self._copied(one) if isinstance(one, torch.Tensor) else one for one in self._inputs
        ]
        if generator is not None:
            for one in inputs:
                if isinstance(one, torch.Tensor) and one.is_floating_point():
                    shake(one, generator)
        return self._run(inputs)


def shake(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Move each element of a float tensor towards zero by zero, one or two roundings: values in [0,
    1] stay there.
    """
    steps = torch.randint(0, 3, tensor.shape, generator=generator).to(tensor.device)
    with torch.no_grad():
        tensor.mul_((1 - steps * torch.finfo(tensor.dtype).eps).to(tensor.dtype))


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(
        torch.allclose(one.detach(), other.detach(), 0.0, 0.0, equal_nan=True)
    )


def _wider(move: torch.Tensor, found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The maximum of the widest move so far and the move of one round. The move is infinite if a
    value becomes infinite or nan, or stops being so.
    """
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = (one.detach().to("cpu", wide) for one in (found, expected))
    away = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return torch.maximum(move, away.nan_to_num(nan=torch.inf, posinf=torch.inf))
