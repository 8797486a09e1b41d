"""Schedulers of torch.optim stepped inside a jitted training step, beside plain Python: rates and counters to the bit, without
breaks, and without a graph per step."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as plans
from torch.optim.swa_utils import SWALR

import graftjit

from ..steps import Beside, batch, step

STEPS = 16


class Halves(plans.LRScheduler):
    """A scheduler of the program's own."""

    def get_lr(self) -> list[Any]:
        return [rate * 0.5 ** (self.last_epoch // 4) for rate in self.base_lrs]


# Name -> (optimizer, scheduler, the most graphs that its steps take).
SCHEDULES: dict[str, tuple[str, Callable[[Any], Any], int]] = {
    "steps": ("adamw", lambda o: plans.StepLR(o, 3, 0.5), 4),
    "milestones": ("momentum", lambda o: plans.MultiStepLR(o, [3, 8, 8, 12], 0.5), 6),
    "lambda": ("sgd", lambda o: plans.LambdaLR(o, lambda n: 0.95**n), 4),
    "multiplied": ("sgd", lambda o: plans.MultiplicativeLR(o, lambda n: 0.95), 4),
    "cosine": ("adamw", lambda o: plans.CosineAnnealingLR(o, 40), 4),
    "restarts": ("momentum", lambda o: plans.CosineAnnealingWarmRestarts(o, 5), 7),
    "one cycle": ("momentum", lambda o: plans.OneCycleLR(o, 0.1, total_steps=20), 5),
    "one cycle of betas": ("adam", lambda o: plans.OneCycleLR(o, 0.1, total_steps=20), 5),
    "cyclic": ("momentum", lambda o: plans.CyclicLR(o, 0.01, 0.1, 4, mode="triangular2"), 5),
    "linear": ("adamw", lambda o: plans.LinearLR(o, total_iters=8), 5),
    "exponential": ("adam", lambda o: plans.ExponentialLR(o, 0.95), 4),
    "constant": ("sgd", lambda o: plans.ConstantLR(o, total_iters=5), 4),
    "polynomial": ("sgd", lambda o: plans.PolynomialLR(o, 10, 2.0), 6),
    "averaging": ("sgd", lambda o: SWALR(o, 0.05, anneal_epochs=5), 5),
    "chained": ("sgd", lambda o: plans.ChainedScheduler([plans.ConstantLR(o), Halves(o)]), 6),
    "sequence": (
        "adamw",
        lambda o: plans.SequentialLR(o, [plans.LinearLR(o), plans.CosineAnnealingLR(o, 40)], [5]),
        9,
    ),
    "of the program": ("nesterov", Halves, 4),
}  # fmt: skip


def train(net: Any, opt: Any, plan: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = step(net, opt, x, y)
    plan.step()
    return loss


def state(plan: Any) -> Any:
    """Numbers of a scheduler, those of schedulers inside it included."""
    found = {key: item for key, item in vars(plan).items() if type(item) in (int, float, list)}
    inside = found.pop("_schedulers", [])
    found.pop("lr_lambdas", None)
    return found, [state(one) for one in inside]


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_of_a_schedule(name: str) -> None:
    optimizer, make, graphs = SCHEDULES[name]
    pair = Beside(step, optimizer)
    pair.jitted = graftjit.jit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sequence's own, about itself
        schedules = [make(opt) for opt in pair.opts]
    for number in range(STEPS):
        for fn, net, opt, plan in zip(
            (pair.jitted, train), pair.nets, pair.opts, schedules, strict=True
        ):
            fn(net, opt, plan, *batch(number))
        assert state(schedules[0]) == state(schedules[1])
        for mine, theirs in zip(pair.opts[0].param_groups, pair.opts[1].param_groups, strict=True):
            assert {k: v for k, v in mine.items() if k != "params"} == {
                k: v for k, v in theirs.items() if k != "params"
            }
        pair.compare()
    assert pair.jitted.report().break_count == 0
    assert pair.jitted.report().graph_count <= graphs


def test_a_rate_in_a_tensor() -> None:
    found = []
    for fn in (graftjit.jit(train), train):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1))
        plan = plans.StepLR(opt, 3, 0.5)
        found.append([])
        for number in range(8):
            fn(net, opt, plan, *batch(number))
            found[-1].append((opt.param_groups[0]["lr"].item(), plan.get_last_lr()[0].item()))
    assert found[0] == found[1]


def test_a_step_too_far_raises_as_in_python() -> None:
    outcomes = []
    for fn in (graftjit.jit(train), train):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        plan = plans.OneCycleLR(opt, 0.1, total_steps=6)
        with pytest.raises(ValueError, match="Tried to step") as error:
            for number in range(9):
                fn(net, opt, plan, *batch(number))
        outcomes.append((str(error.value), plan.last_epoch, plan._step_count))
    assert outcomes[0] == outcomes[1]


def test_a_plateau_of_python_numbers() -> None:
    def train(net: Any, opt: Any, plan: Any, metric: float, *data: Any) -> None:
        step(net, opt, *data)
        plan.step(metric)

    found = []
    for fn in (graftjit.jit(train), train):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        plan = plans.ReduceLROnPlateau(opt, patience=1)
        found.append([])
        for number in range(12):
            fn(net, opt, plan, 2.0 / (1 + number % 5), *batch(number))
            found[-1].append((plan.best, plan.num_bad_epochs, opt.param_groups[0]["lr"]))
    assert found[0] == found[1]


def test_a_warning_of_a_wrong_order() -> None:
    def wrong(plan: Any, opt: Any) -> None:
        plan.step()
        opt.step()

    for fn in (graftjit.jit(wrong), wrong):
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        plan = plans.StepLR(opt, 2)
        with pytest.warns(UserWarning, match="before `optimizer.step"):
            fn(plan, opt)


# -- what schedulers ask of numbers ----------------------------------------------------------------
class Held:
    def __init__(self) -> None:
        self.n, self.period, self.limit, self.base = 2, 3, 7, 1.5
        self.milestones = Counter([3, 5, 5])


def asks(held: Held, x: torch.Tensor) -> torch.Tensor:
    held.n += 1
    if held.n % held.period == 0:
        x = x + 1
    if held.n in held.milestones:
        x = x * (2 + held.milestones[held.n])
    if held.n > held.limit:
        x = x - 3
    return x * held.base ** (held.n % 4)


def test_numbers_that_vary_beside_constant_ones() -> None:
    """A counter modulo a period, among the keys of a dict, beyond a limit: each answer is a guard."""
    jitted, pair = graftjit.jit(asks), [Held(), Held()]
    for number in range(40):
        x = torch.arange(3.0) + number
        torch.testing.assert_close(jitted(pair[0], x), asks(pair[1], x))
        assert pair[0].n == pair[1].n
    for held in pair:
        held.period, held.limit, held.base = 5, 60, 1.25
        held.milestones[44] = 2
    for number in range(12):
        x = torch.arange(3.0) + number
        torch.testing.assert_close(jitted(pair[0], x), asks(pair[1], x))
    assert jitted.report().graph_count < 30


def test_a_union_of_classes() -> None:
    def f(x: torch.Tensor) -> Any:
        return x + 1, list[float | torch.Tensor], int | str | torch.Tensor

    x = torch.ones(2)
    jitted = graftjit.jit(f)
    assert jitted(x)[1:] == f(x)[1:]
    assert jitted.report().break_count == 0


class Registry:
    def __init__(self, owner: Any) -> None:
        self.owner, self.kept = owner, {id(owner): 2.0}


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return run


@wrapped
def named(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    return x * scale


def test_ids_and_signatures_as_a_scaler_reads_them() -> None:
    def f(registry: Registry, x: torch.Tensor) -> torch.Tensor:
        if "scale" in inspect.signature(named).parameters:
            x = x + 1
        return x * registry.kept.get(id(registry.owner), 5.0)

    jitted, x = graftjit.jit(f), torch.ones(2)
    registry = Registry(Held())
    for owner in (registry.owner, Held(), registry.owner):  # another one has another id
        registry.owner = owner
        assert torch.equal(jitted(registry, x), f(registry, x))
    assert jitted.report().break_count == 0
