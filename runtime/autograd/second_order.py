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

from ...ir.dataclass import dataclass
from ...ir.trace.autocast_cache import Casts
from ...ir.trace.gradient_history import (
    Earlier,
    History,
    Run,
    differentiated,
    entered,
    history,
)
from .. import _native
from . import passing, rng_state

Tensors = Sequence[torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Made:
    """A program: see `ir.trace.gradient_trace.GradientTrace`. `read`: the inputs of the region, by
    position, whose values the gradients depend on."""

    program: Callable[..., Any]
    places: tuple[int | None, ...]
    results: tuple[int, ...]
    history: History
    read: frozenset[int]


# (inputs, numbers, gradients of the results, wanted inputs, saved results, whether the gradients
# have a history, autocast around the backward) -> the program; or the reason why there is none; or
# None where autocast changes nothing.
Build = Callable[
    [Tensors, Sequence[Any], Tensors, Sequence[int], Tensors, bool, Casts], Made | str | None
]

# Kinds of calls that get a program; the calls of further kinds run again under autograd.
LIMIT = 8
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks  # type: ignore[attr-defined]


def _is_ordinary(gradient: Any) -> bool:
    """Whether a program can take a gradient: it is no batched, sparse or subclassed tensor."""
    if type(gradient) is torch.Tensor:
        return gradient.layout is torch.strided and not _is_batched(gradient)
    return gradient is None or type(gradient) is torch.nn.Parameter


_is_batched = torch._C._functorch.is_legacy_batchedtensor  # type: ignore[attr-defined]
_level = torch._C._functorch.maybe_current_level


def all_ordinary(gradients: Sequence[Any]) -> bool:
    """Whether all gradients are ordinary and no transform, which may follow them, is active."""
    if forward_ad._current_level >= 0 or _level() is not None:
        return False
    return _native.all_plain(gradients) or all(map(_is_ordinary, gradients))


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
        lost: frozenset[int],
        tangents: Tensors,
        wanted: Sequence[int],
        results: Tensors,
        random: rng_state.States | None,
        taped: bool,
        casts: Casts,
    ) -> tuple[list[torch.Tensor | None], Made] | str | None:
        """The gradients of the wanted inputs, and what has computed them; or why no program
        computes them; or None where autocast changes nothing. An error is raised once; later calls
        return it as the reason. `lost`: the inputs that have other values now."""
        given = [one for one in (*inputs, *tangents) if one is not None]
        key = (
            tuple([one is None for one in (*inputs, *tangents, *results)]),
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
                kind = results, taped, casts
                self._programs[key] = self._build(inputs, numbers, tangents, wanted, *kind)
            made = self._programs[key]
            if made is None or isinstance(made, str):
                return made
            if not made.read.isdisjoint(lost):
                return "an input was written to after the forward"
            given += [results[at] for at in made.results]
            found = _with_numbers_of(random, made.program, given)
        except Exception as error:
            self._programs[key] = f"its program failed: {type(error).__name__}: {error}"
            raise
        return [None if at is None else found[at] for at in made.places], made


def _with_numbers_of(
    random: rng_state.States | None, program: Callable[..., Any], given: Sequence[Any]
) -> Any:
    if random is None:
        return program(*given)
    with rng_state.replayed(random):
        return program(*given)


def by_calls(
    joint: Any,
    node: Any,
    gradients: Tensors,
    taped: bool,
    before: Tensors,
    numbers: Sequence[Any],
    results: Tensors,
) -> dict[int, torch.Tensor | None]:
    """The gradients of inputs, with a history if `taped`: the calls of `joint` run again under
    autograd.

    gradients  those that `node` got; `results`: the results that it has saved, None for others
    before     the inputs of the call as they were before it, `numbers`: its numbers
    """
    plan = joint.plan
    tangents = tuple([gradients[at] for at in plan.results])
    asked = tuple([at for at in plan.wanted if node.needs_input_grad[joint.edge_of(at)]])
    if not asked or all(one is None for one in tangents):
        return {}

    def run(points: tuple[Any, ...], earlier: Earlier = ()) -> tuple[Tensors, Any]:
        """The gradients at the points, and the results that they belong to."""
        inputs: list[Any] = list(points)
        for at in plan.written:
            inputs[at] = inputs[at].clone()
        outputs = joint.replayed(node, [*inputs, *numbers])
        how = plan.found, earlier, taped
        found = differentiated(outputs, tuple(inputs), points, asked, tangents, *how)
        return found, plan.pieces_of(outputs, inputs)

    if not taped or not all_ordinary(gradients):
        alone = [
            one.view_as(one) if one is not None and one.requires_grad else one for one in before
        ]
        return dict(zip(asked, run(tuple(alone))[0], strict=True))
    saved = [at for at, one in enumerate(results) if one is not None]
    key = asked, *[one is None for one in (*tangents, *results)]
    past = joint.histories.get(key)
    earlier = () if past is None else past.reached()
    while True:
        points = entered(tuple(before), tuple([results[at] for at, _ in earlier]), earlier)
        found, pieces = run(points, earlier)
        if past is not None:
            break
        past = history(found, [Run(pieces, points, earlier)], saved)
        if past.reached() == earlier:
            joint.histories[key] = past
            break
        earlier, past = past.reached(), None
    if node.passed is None or not node.passed.earlier:
        passing.follow(node, found, past, passing.next_number())
    return dict(zip(asked, found, strict=True))


# -- batched gradients, one by one -----------------------------------------------------------------
_with_batch = torch._add_batch_dim  # type: ignore[attr-defined]
_without_batch = torch._remove_batch_dim  # type: ignore[attr-defined]


def one_by_one(joint: Any, node: Any, gradients: Sequence[Any]) -> Sequence[Any] | None:
    """The gradients of all inputs by the backward program of `joint`, whose `node` got these
    gradients; None if they are not batched, or in another way too.

    `torch.autograd.grad(..., is_grads_batched=True)` gives a node one tensor for many gradients,
    which only operators of torch can take. So the node runs the calls of its region again, under
    autograd. If an input was written to that eager mode does not save, they would compute something
    else: then this function is called.
    """
    level, size, parts = _batch_level(), 0, []
    for one in gradients:
        batched = one is not None and _is_batched(one)
        parts.append(_without_batch(one, level, 1, 0) if batched else one)
        size = parts[-1].shape[0] if batched else size
    if not size or not all_ordinary(parts):
        return None
    # an unbatched one is that of each run
    rows = zip(*[
        part.unbind() if part is not one else [one] * size
        for part, one in zip(parts, gradients, strict=True)
    ], strict=True)  # fmt: skip
    with torch.no_grad():
        found = [joint.backwards(node, row, keep=True) for row in rows]
    return tuple([
        None if some[0] is None else _with_batch(torch.stack(some), 0, level)
        for some in zip(*found, strict=True)
    ])  # fmt: skip


def _batch_level() -> int:
    """The number of the running transform that batches."""
    level: int = torch._C._vmapmode_increment_nesting() - 1  # type: ignore[attr-defined]
    torch._C._vmapmode_decrement_nesting()  # type: ignore[attr-defined]
    return level
