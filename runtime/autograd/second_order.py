"""A backward that is itself differentiated, or that runs under autocast, as a program.

`SecondOrder(build)` keeps, for each kind of call, the program that computes the gradients of a
region from its inputs and from the gradients of its results (`ir.trace.gradient_trace`). The
program has a backward of its own, so its results have the history that eager mode gives them, to
any order. It is built when autograd first needs it. Where no exact program can be made, the
caller runs the region's calls again under autograd.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from . import rng_state

# (inputs, numbers, gradients of the results, wanted inputs, whether the gradients have a history,
# autocast around the backward) -> the program and, for each wanted input, the position of its
# gradient among the results; or the reason why there is none; or None where autocast changes nothing.
Casts = tuple[tuple[str, torch.dtype], ...]
Tensors = Sequence[torch.Tensor | None]
Made = tuple[Callable[..., Any], tuple[int | None, ...]]
Build = Callable[[Tensors, Sequence[Any], Tensors, Sequence[int], bool, Casts], Made | str | None]

# Kinds of calls that get a program; the calls of further kinds run again under autograd.
LIMIT = 8
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks  # type: ignore[attr-defined]
_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined]


def _is_ordinary(gradient: Any) -> bool:
    """Whether a program can take a gradient: it is no batched, sparse or subclassed tensor."""
    if type(gradient) is torch.Tensor:
        return gradient.layout is torch.strided and not _is_batched(gradient)
    return gradient is None or type(gradient) is torch.nn.Parameter


_is_batched = torch._C._functorch.is_legacy_batchedtensor  # type: ignore[attr-defined]
_level = torch._C._functorch.maybe_current_level


def all_ordinary(gradients: Sequence[Any]) -> bool:
    """Whether all gradients are ordinary and no transform, which may follow them, is active."""
    outside = forward_ad._current_level < 0 and _level() is None
    return outside and all(map(_is_ordinary, gradients))


def is_needed(node: Any, edge: int) -> bool:
    """Whether the running backward uses the gradient that `node` gives along this edge."""
    behind = node.next_functions[edge][0]
    if behind is None or not node.needs_input_grad[edge]:
        return False
    try:
        return bool(_will_run(behind))
    # a leaf whose gradient is requested by name
    except RuntimeError:
        return True


def casts_now() -> Casts:
    """Autocast: (device type, dtype) where it is on."""
    kinds = filter(torch.is_autocast_enabled, ("cpu", "cuda"))
    return tuple([(kind, torch.get_autocast_dtype(kind)) for kind in kinds])


@contextlib.contextmanager
def without_autocast(casts: Casts) -> Iterator[None]:
    """Switch this autocast off."""
    with contextlib.ExitStack() as around:
        for kind, _ in casts:
            around.enter_context(torch.autocast(kind, enabled=False))
        yield


def is_observed() -> bool:
    """Whether a mode, hooks on saved tensors or anomaly mode see single operators."""
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or _top_hooks(False) is not None
        or torch.is_anomaly_enabled()
    )


class SecondOrder:
    """The programs of one region."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._programs: dict[Any, Made | str | None] = {}

    def gradients(
        self,
        inputs: Tensors,
        numbers: Sequence[Any],
        tangents: Tensors,
        wanted: Sequence[int],
        random: rng_state.States | None,
        taped: bool,
        casts: Casts,
    ) -> list[torch.Tensor | None] | str | None:
        """The gradients of the wanted inputs; or why no program computes them; or None where
        autocast changes nothing. An error is raised once; later calls return it as the reason."""
        given = [one for one in (*inputs, *tangents) if one is not None]
        key = (
            tuple([one is None for one in (*inputs, *tangents)]),
            tuple(wanted),
            tuple([(one.shape, one.stride(), one.requires_grad) for one in given]),
            tuple(numbers),
            taped,
            casts,
        )
        if key not in self._programs and len(self._programs) >= LIMIT:
            return "its shapes and numbers vary"
        try:
            if key not in self._programs:
                kind = taped, casts
                self._programs[key] = self._build(inputs, numbers, tangents, wanted, *kind)
            made = self._programs[key]
            if made is None or isinstance(made, str):
                return made
            program, places = made
            found = _with_numbers_of(random, program, given)
        except Exception as error:
            self._programs[key] = f"its program failed: {type(error).__name__}: {error}"
            raise
        return [None if at is None else found[at] for at in places]


def _with_numbers_of(
    random: rng_state.States | None, program: Callable[..., Any], given: Sequence[Any]
) -> Any:
    if random is None:
        return program(*given)
    with rng_state.replayed(random):
        return program(*given)
