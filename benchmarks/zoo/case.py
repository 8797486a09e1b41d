"""A case: a model and what it is called with, in two sizes.

Made by the modules of `libraries`, used by `looks`. Inputs are made anew from a seed each time, so that no call meets what another one wrote.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

Size = tuple[int, int]  # batch, and length of a text or side of a picture
Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Case:
    """`make(size, masked)` gives the arguments of a call. `maskable`: a call with masks differs from one without.
    `generating()`: the case of the model with a language head, with the arguments of its `generate`, or None."""

    model: torch.nn.Module
    make: Callable[[Size, bool], Given]
    sizes: tuple[Size, Size]
    maskable: bool = False
    generating: Callable[[], Case | None] = lambda: None

    def given(self, size: Size, *, masked: bool, seed: int) -> Given:
        torch.manual_seed(seed)
        dtype = next((x.dtype for x in self.model.parameters()), torch.float32)

        def of_the_model(value: Any) -> Any:
            floats = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.to(dtype) if floats else value

        return pytree.tree_map(of_the_model, self.make(size, masked))

    @property
    def described(self) -> list[str]:
        """The arguments of a call, as a record tells them."""
        positional, named = self.given(self.sizes[0], masked=self.maskable, seed=0)
        return [f"{place}" for place in range(len(positional))] + list(named)


def accepts(case: Case) -> None:
    """Raises what plain Python raises for one of the calls that `looks` makes."""
    for size in case.sizes:
        for masked in {False, case.maskable}:
            positional, named = case.given(size, masked=masked, seed=1)
            with torch.no_grad():
                case.model(*positional, **named)


def disturbed(model: torch.nn.Module) -> torch.nn.Module:
    """In float32 and evaluation mode, with no weight that stays 0 or 1, which would hide a mistake."""
    with torch.no_grad():
        for weight in model.float().eval().parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    return model


def calibrated(case: Case) -> Case:
    """With statistics of a batch in its batch norms: random weights let values vanish or grow from
    layer to layer otherwise. Norms without a momentum are frozen."""
    norms = [
        part
        for part in case.model.modules()
        if isinstance(getattr(part, "running_mean", None), torch.Tensor)
        and hasattr(part, "momentum")
    ]
    if not norms:
        return case
    before = [part.momentum for part in norms]
    for part in norms:
        part.momentum = 1.0
    positional, named = case.given(case.sizes[0], masked=False, seed=2)
    with torch.no_grad():
        case.model.train()(*positional, **named)
    for part, momentum in zip(norms, before, strict=True):
        part.momentum = momentum
    case.model.eval()
    return case


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """Systems draw other random numbers."""
    for part in model.modules():
        if "drop" in type(part).__name__.lower() or type(part).__name__ == "StochasticDepth":
            for name in ("p", "drop_prob"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
    return model


def fitting(make: Callable[[Any], Case], choices: Any) -> Case:
    """The case of the first choice that plain Python accepts; else raises what the first one raised."""
    problem: Exception | None = None
    for choice in choices:
        try:
            case = calibrated(make(choice))
            accepts(case)
            return case
        except Exception as error:
            problem = problem or error
    raise problem or ValueError("nothing to try")
