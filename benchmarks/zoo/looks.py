"""What is done with a case: inference over two sizes, two steps of training, generation of a few tokens, beside plain Python.

In: a case and a system. Out: a record a part, told as soon as it is there, so that a process that is ended loses the last part only. A part
has `right` ("equal", or what differs), `raises` (plain Python does), `graphs` after each call, and what the system tells.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import torch

from .case import Case, Given
from .systems import Shaken
from .timing import beside
from .values import difference, flat

Part = dict[str, Any]
Tell = Callable[..., None]
Run = Callable[[], object]
# The record of a part, and two calls to be timed: of the compiled model and of the plain one.
Found = tuple[Part, tuple[Run, Run]]
TOKENS = 5


def look(case: Case, system: Any, tell: Tell, *, without_masks: bool = False, times: bool = True) -> None:  # fmt: skip
    """All parts of a case, in order."""
    for part in (inference, training):
        _tell(part, case, system, tell, without_masks, times)
    generating = case.generating()
    if generating is not None:
        _tell(generate, generating, system, tell, False, times)


def _tell(part: Callable[..., Found], case: Case, system: Any, tell: Tell, without_masks: bool, times: bool) -> None:  # fmt: skip
    name = part.__name__
    found, calls = _judged(part, case, system, without_masks)
    tell(**{name: found})
    if times and found["right"] == "equal" and not found["raises"]:
        tell(**{name: found | beside(*calls)})


def _judged(part: Callable[..., Found], case: Case, system: Any, without_masks: bool) -> Found:
    """What `part` finds; what differs because of rounding alone counts as equal."""
    record, calls = part(_copy(case), system, without_masks)
    values = all("off by" in text for text in record["right"])
    if record["right"] != "equal" and values and _rounds(part, case, system, without_masks):
        record |= {"right": "equal", "rounding": record["right"]}
    return record, calls


def _rounds(part: Callable[..., Found], case: Case, system: Any, without_masks: bool) -> bool:
    """Whether float64 has no difference; of a model that plain Python does not run in float64, whether roundings of its
    weights change as much in plain Python."""
    double = dataclasses.replace(case, model=copy.deepcopy(case.model).double())
    torch.set_default_dtype(torch.float64)  # of the tensors that a model makes
    try:
        again, _ = part(double, system, without_masks)
    finally:
        torch.set_default_dtype(torch.float32)
    if again["raises"]:
        again, _ = part(_copy(case), Shaken(), without_masks)
        return again["right"] != "equal"
    return again["right"] == "equal"


def _copy(case: Case) -> Case:
    return dataclasses.replace(case, model=copy.deepcopy(case.model))


# -- inference -------------------------------------------------------------------------------------


def inference(case: Case, system: Any, without_masks: bool) -> Found:
    plain, compiled = copy.deepcopy(case.model), system.wrap(case.model)
    calls = []
    for size, masked in itertools.product(case.sizes, (False, True)):
        if masked > case.maskable or (not masked and case.maskable and not without_masks):
            continue
        calls.append((f"{size}, {'with' if masked else 'no'} mask", size, masked))
    differences, graphs, raises = [], [], False
    for text, size, masked in calls:
        given = case.given(size, masked=masked, seed=11)
        with torch.no_grad():
            ours, theirs = outcome(compiled, given), outcome(plain, given)
        found = difference(ours, theirs)
        raises |= isinstance(theirs, str)
        if found:
            differences.append(f"{text}: {found}")
        graphs.append(system.graphs(compiled))

    def timed(model: Any, given: Given) -> None:
        with torch.no_grad():
            model(*given[0], **given[1])

    found = _part(differences, raises, graphs, system.told(compiled))
    return found, _calls(timed, compiled, plain, case.given(case.sizes[0], masked=case.maskable, seed=11))  # fmt: skip


# -- training --------------------------------------------------------------------------------------


def training(case: Case, system: Any, without_masks: bool) -> Found:
    """Both steps have masks."""
    compiled, plain = system.wrap(case.model.train()), copy.deepcopy(case.model).train()
    pair = [(model, torch.optim.SGD(model.parameters(), 0.01)) for model in (compiled, plain)]
    differs, raises, graphs = "", False, []
    for size in case.sizes:
        given = case.given(size, masked=case.maskable, seed=13)
        outcomes = [_step(*one, given) for one in pair]
        differs = differs or difference(*outcomes)
        raises |= isinstance(outcomes[1][0], str)
        graphs.append(system.graphs(compiled))
    differs = differs or difference(compiled.state_dict(), plain.state_dict())
    found = _part([differs] if differs else [], raises, graphs, system.told(compiled))
    return found, _calls(_forward_and_backward, compiled, plain, case.given(case.sizes[0], masked=case.maskable, seed=13))  # fmt: skip


def _forward_and_backward(model: Any, given: Given) -> None:
    for weight in model.parameters():
        weight.grad = None
    _loss(model(*given[0], **given[1])).backward()


def _step(model: Any, optimizer: torch.optim.Optimizer, given: Given) -> Any:
    """The loss and all gradients of one step, or what it raises."""
    result = outcome(model, given)
    try:
        loss = _loss(result)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    except Exception as error:
        return f"{type(error).__name__}: {error}", result if isinstance(result, str) else ""
    return loss.detach(), {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}  # fmt: skip


def _loss(result: Any) -> Any:
    """Norms make means and squares the same for any input: each element has a weight."""
    outputs = [x for x in flat(result) if isinstance(x, torch.Tensor) and x.requires_grad and x.numel()]  # fmt: skip
    return sum((x * (x + torch.linspace(-1, 1.5, x.numel()).view(x.shape))).mean() for x in outputs)


# -- generation ------------------------------------------------------------------------------------


def generate(case: Case, system: Any, without_masks: bool) -> Found:
    plain, compiled = copy.deepcopy(case.model), system.wrap(case.model)
    differences, graphs, raises = [], [], False
    for size in case.sizes:
        given = case.given(size, masked=False, seed=17)
        ours, theirs = outcome(compiled.generate, given), outcome(plain.generate, given)
        raises |= isinstance(theirs, str)
        if found := difference(ours, theirs):
            differences.append(f"{size}: {found}")
        graphs.append(system.graphs(compiled))
    found = _part(differences, raises, graphs, system.told(compiled))
    return found, _calls(lambda model, given: model.generate(*given[0], **given[1]), compiled, plain, case.given(case.sizes[0], masked=False, seed=17))  # fmt: skip


# -- what they share -------------------------------------------------------------------------------


def outcome(call: Callable[..., Any], given: Given) -> Any:
    """What a call gives, or the class and text of what it raises."""
    torch.manual_seed(7)
    random.seed(7)
    positional, named = given
    try:
        return call(*positional, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _part(differences: list[str], raises: bool, graphs: list[int], told: Part) -> Part:
    return {"right": differences or "equal", "raises": raises, "graphs": graphs} | told


def _calls(run: Callable[[Any, Given], object], compiled: Any, plain: Any, given: Given) -> tuple[Run, Run]:  # fmt: skip
    return lambda: run(compiled, given), lambda: run(plain, given)
