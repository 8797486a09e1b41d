"""One architecture compiled and beside plain Python: inference over two sizes, then two steps of training.

In: the name of an architecture. Out: what was found, told piece by piece, so that a process that is ended loses the last piece only. Called by
`__main__`, in a process of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import torch

import graftjit

from .inputs import SIZES, Case, prepared

# In float32 some models, their norms over a few elements, make rounding grow without bound: what differs is looked at in float64 once more.
TOLERANCES = {torch.float32: (1e-3, 2e-5), torch.float64: (1e-4, 1e-6)}
FAULTS = ("WN606", "WN607")  # kernels that could not be made, internal errors


def compare(name: str, tell: Callable[..., None], without_masks: bool) -> None:
    case = prepared(name)
    tell(arguments=[key for key, _ in case.forms])
    tell(**judged(inference, case, without_masks))
    tell(**judged(training, case, without_masks))


def judged(look: Callable[..., dict[str, Any]], case: Case, without_masks: bool) -> dict[str, Any]:
    """What `look` finds; a difference that float64 does not have is rounding, unless the model raises in float64."""
    record = look(copy.deepcopy(case), without_masks)
    if record[look.__name__] != "equal":
        double = dataclasses.replace(case, model=copy.deepcopy(case.model).double())
        again = look(double, without_masks)
        if again[look.__name__] == "equal" and not again[f"{look.__name__}_raises"]:
            record |= {look.__name__: "equal", "rounding": record[look.__name__]}
    return record


def inference(case: Case, without_masks: bool) -> dict[str, Any]:
    plain, compiled = copy.deepcopy(case.model), graftjit.compile(case.model)
    differences, graphs, raises = [], [], False
    for size, masked in itertools.product(SIZES, (False, True)):
        if masked > case.maskable or (not masked and case.maskable and not without_masks):
            continue
        given = case.arguments(size, masked, seed=11)
        with torch.no_grad():
            ours, theirs = outcome(compiled, given), outcome(plain, given)
        found = difference(ours, theirs)
        raises |= isinstance(theirs, str)
        if found:
            differences.append(f"{size}, {'with' if masked else 'no'} mask: {found}")
        graphs.append(graftjit.report(compiled).graph_count)
    record = {"inference": differences or "equal", "inference_raises": raises, "graphs": graphs}
    return record | reported(compiled)


def training(case: Case, without_masks: bool) -> dict[str, Any]:
    """Both steps have masks."""
    ours, theirs = case.model.train(), copy.deepcopy(case.model).train()
    compiled = graftjit.compile(ours)
    pair = [(model, torch.optim.SGD(model.parameters(), 0.01)) for model in (compiled, theirs)]
    found, raises = "", False
    for size in SIZES:
        given = case.arguments(size, True, seed=13)
        outcomes = [step(*one, given) for one in pair]
        found = found or difference(*outcomes)
        raises |= isinstance(outcomes[1][0], str)
    found = found or difference(ours.state_dict(), theirs.state_dict())
    record = {f"training_{key}": value for key, value in reported(compiled).items()}
    return {"training": found or "equal", "training_raises": raises, **record}


def step(model: Any, optimizer: torch.optim.Optimizer, given: dict[str, Any]) -> Any:
    """The loss and all gradients of one step, or what it raises."""
    result = outcome(model, given)
    outputs = [x for x in flat(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    try:
        # Norms make means and squares the same for any input: each element has a weight.
        loss = sum((x * (x + torch.linspace(-1, 1.5, x.numel()).view(x.shape))).mean() for x in outputs if x.numel())  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    except Exception as error:
        return f"{type(error).__name__}: {error}", result if isinstance(result, str) else ""
    return loss.detach(), {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}  # fmt: skip


def outcome(model: Any, given: dict[str, Any]) -> Any:
    """What the model gives, or the class and text of what it raises."""
    torch.manual_seed(7)
    random.seed(7)
    try:
        return model(**given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def reported(compiled: Any) -> dict[str, Any]:
    report = graftjit.report(compiled)
    breaks = sorted({f"{b.code} {b.reason} ({b.file.rpartition('/')[2]}:{b.line})" for b in report.breaks})  # fmt: skip
    faults = [f"{warning.code}: {warning.text}" for warning in report.warnings if warning.code in FAULTS]  # fmt: skip
    return {"breaks": breaks, "faults": faults, "graph_count": report.graph_count}


def difference(ours: Any, theirs: Any) -> str:
    """What differs first beyond rounding, or nothing."""
    ours, theirs = flat(ours), flat(theirs)
    if len(ours) != len(theirs):
        return f"{len(ours)} values for {len(theirs)}"
    found = (_unequal(a, b) for a, b in zip(ours, theirs))
    return next((f"value {number}: {text}" for number, text in enumerate(found) if text), "")


def _unequal(a: Any, b: Any) -> str:
    if type(a) is not type(b):
        return f"{type(a).__name__} for {type(b).__name__}"
    if isinstance(a, float):
        near = abs(a - b) <= 1e-5 + 1e-4 * abs(b) or (a != a and b != b)
        return "" if near else f"{a} for {b}"
    if not isinstance(a, torch.Tensor):
        return "" if a == b else f"{a!r} for {b!r}"[:300]
    kinds = [(x.dtype, tuple(x.shape), x.stride(), x.requires_grad) for x in (a, b)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} for {kinds[1]}"
    if not a.is_floating_point() and not a.is_complex():
        return "" if torch.equal(a, b) else f"{tuple(a.shape)} of {a.dtype} differs"
    relative, absolute = TOLERANCES.get(a.dtype, TOLERANCES[torch.float32])
    largest = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
    if torch.allclose(a, b, relative, absolute * max(1.0, largest), equal_nan=True):
        return ""
    return f"{tuple(a.shape)} is off by {(a - b).abs().max():.3g}"


def flat(value: Any, depth: int = 0) -> list[Any]:
    """The tensors and plain values of an output, caches included, with the classes of what holds them."""
    if isinstance(value, torch.Tensor | int | float | str | None):
        return [value]
    parts: Any = ()
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = value
    elif hasattr(value, "__dict__") and depth < 8:
        parts = vars(value).values()
    return [type(value).__name__, *[leaf for part in parts for leaf in flat(part, depth + 1)]]
