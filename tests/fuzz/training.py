"""Fuzz training steps: random programs with writes to items and views, breaks, branches, blocks, a
module and backwards.

    python -m tests.fuzz.training --seed 30000000 --count 1000
    python -m tests.fuzz.training --seed 30000017 --show

A program (`tests.fuzz.training_texts`) is called several times, in plain Python and jitted, with
other arguments and changes between the calls. What can be seen must be eager's: results with dtype,
shape, strides, history and memory that they share, arguments, parameters, buffers and versions
after each call, gradients, printed text, random numbers, and the type of what is raised. Every
choice follows from the seed. A program that differs is made small.

Not among the statements, since they differ and are left so: writes that change sizes alone of a
view (`view.t_()` raises the version of its base), and backwards through zero (`floor_`), which
eager mode refuses after a write and a compiled backward does not need.
"""

from __future__ import annotations

import argparse
import io
import linecache
import random
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from .pool import Pool, apart
from .training_texts import Case, case

T = torch.Tensor
Program = Callable[..., Any]
_FAULTS = ("PL205", "FB303", "FB306")
SECONDS = 60  # of one program


class Net(nn.Module):
    """A module with shared parameters, buffers that forward writes, and a number that it counts."""

    ema: T
    count: T

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.tied = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied.weight = self.lin.weight
        self.norm = nn.BatchNorm1d(4)
        self.two = nn.Sequential(self.lin, nn.ReLU(inplace=True), self.tied, nn.Dropout(0.2))
        self.register_buffer("ema", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.steps = 0
        self.kept = torch.ones(4)

    def forward(self, x: T) -> T:
        if self.training:
            with torch.no_grad():
                self.ema.lerp_(x.detach().mean(0), 0.1)
            self.count += 1
            self.steps += 1
        return self.norm(self.lin(x)) + self.ema


def quiet(x: T) -> T:
    with torch.no_grad():
        return x * 3


def unknown(x: T) -> None:
    """Called as it is."""


def wrote(x: T, y: T) -> T:
    x[0] = y.sum()
    return x


def broke(x: T) -> T:
    t = x * 2
    print(bool(t.sum() > 0))
    t.add_(1)
    return t


def maybe(x: T) -> T:
    if x.sum() > 0:
        x[0] = 2.0
        return x * 2
    return x


def inside(x: T, y: T) -> T:
    t = x.tanh()

    def deeper() -> T:
        nonlocal t
        t = t + y
        time.sleep(0)
        t[..., :1] *= 2
        return t * x

    return deeper() + t


def world(seed: int) -> dict[str, Any]:
    """What a program sees, made anew."""
    torch.default_generator.manual_seed(seed % 1000)
    leaves: list[T] = []

    def leaf(number: int, shape: tuple[int, ...], grad: bool) -> T:
        generator = torch.Generator().manual_seed(number)
        found = torch.randn(shape, generator=generator).requires_grad_(grad)
        leaves.append(found)
        return found

    own = {
        "W": nn.Parameter(torch.linspace(0.5, 1.0, 4)),
        "net": Net(),
        "log": [],
        "leaf": leaf,
        "leaves": leaves,
    }
    return {"torch": torch, "F": F, "time": time, "graftjit": graftjit, "quiet": quiet, "unknown": unknown, "wrote": wrote,
            "broke": broke, "maybe": maybe, "inside": inside, **own}  # fmt: skip


def compiled(seed: int, found: Case, space: dict[str, Any]) -> Program:
    text, name = found.source(), f"<training {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    exec(compile(text, name, "exec"), space)
    return space["program"]  # type: ignore[no-any-return]


class Run:
    """One run of a case: `seen` has a row (what it is, what was seen) for all that can be seen."""

    def __init__(self, seed: int, found: Case, transform: Callable[[Program], Program]) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.seed, self.case = seed, found
        self.space = world(seed)
        self.program = transform(compiled(seed, found, self.space))
        self.space.update(call=self.call, quiet_call=self.quiet_call)
        self.number = 0
        for step in found.steps:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    exec(step, self.space)
                except Exception as error:
                    self.row(step, type(error).__name__)
        self.space.clear()

    def row(self, what: str, value: Any) -> None:
        self.seen.append((f"call {self.number}: {what}", value))

    def quiet_call(self) -> None:
        with torch.no_grad():
            self.call(False)

    def call(self, backward: bool = True, mixed: bool = False) -> None:
        self.number += 1
        torch.default_generator.manual_seed(self.number)
        given = [self.space[name] for name in ("a", "b", "c", "net", "log")]
        printed, results = io.StringIO(), ()
        with redirect_stdout(printed), torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            try:
                found = self.program(*given)
                results = found if isinstance(found, tuple) else (found,)
            except Exception as error:
                self.row("raised", type(error).__name__)
        self.row("printed", printed.getvalue())
        self.row("random", torch.rand(1))
        self.state(results, given)
        roots = [one for one in results if one.requires_grad and one.is_floating_point()]
        if backward and roots:
            choose = random.Random(self.seed + self.number)
            roots = [one for one in roots if choose.random() < 0.7] or roots[:1]
            try:
                sum(weighted(one) for one in roots).backward()  # type: ignore[union-attr]
            except Exception as error:
                self.row("backward raised", type(error).__name__)
                for one in self.leaves():
                    one.grad = None  # a part of them may be there
        self.gradients(given)
        for one in self.space["leaves"]:
            one.grad = None

    def leaves(self) -> list[T]:
        return [*self.space["leaves"], *self.space["net"].parameters(), self.space["W"]]

    def state(self, results: Any, given: list[Any]) -> None:
        net, log = given[3:]
        named = [(f"result {n}", one) for n, one in enumerate(results)] + list(
            zip("abc", given, strict=False)
        )
        named += [(f"leaf {n}", one) for n, one in enumerate(self.space["leaves"])]
        named += [
            *net.named_parameters(),
            *net.named_buffers(),
            ("kept", net.kept),
            ("W", self.space["W"]),
        ]
        named += [(f"log {n}", one) for n, one in enumerate(log) if isinstance(one, T)]
        places: dict[Any, str] = {}
        for name, one in named:
            self.tensor(name, one)
            if one.numel():
                first = places.setdefault(one.untyped_storage().data_ptr(), name)
                self.row(f"memory of {name}", (first, one.storage_offset()))
        objects: dict[int, str] = {}
        for name, one in named:
            self.row(f"object {name}", objects.setdefault(id(one), name))
        self.row("log", [one if not isinstance(one, T) else "tensor" for one in log])
        self.row("net", (net.steps, net.training, torch.is_grad_enabled()))

    def tensor(self, name: str, one: T) -> None:
        self.row(
            f"type of {name}",
            (
                str(one.dtype),
                tuple(one.shape),
                tuple(one.stride()),
                one.requires_grad,
                one.is_leaf,
                type(one).__name__,
            ),
        )
        if not name.startswith(
            ("result", "log", "kept", "ema", "count")
        ):  # of a tensor of the program's own it is an accident
            self.row(f"version of {name}", one._version)
        self.row(f"values of {name}", one.detach().clone())

    def gradients(self, given: list[Any]) -> None:
        net, log = given[3:]
        named = [(f"leaf {n}", one) for n, one in enumerate(self.space["leaves"])]
        named += [*net.named_parameters(), ("W", self.space["W"]), *zip("abc", given, strict=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, one in named:
                self.row(
                    f"gradient of {name}", None if one.grad is None else one.grad.detach().clone()
                )
        self.row("log after backward", [one if not isinstance(one, T) else "tensor" for one in log])


def weighted(one: T) -> T:
    """A number that depends on each element in another way."""
    weights = torch.linspace(0.5, 2, max(one.numel(), 1))[: one.numel()]
    return (one.double() * weights.view(one.shape)).sum()


def close(a: T, b: T) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    rough = {torch.float64: 1e-4, torch.float32: 1e-4}.get(a.dtype, 2e-2)
    scale = max(1.0, float(b.detach().double().nan_to_num().abs().max()) if b.numel() else 1.0)
    return torch.allclose(a.double(), b.double(), rough, rough * scale, equal_nan=True)


def parted(found: list[tuple[str, Any]], wanted: list[tuple[str, Any]]) -> str:
    """The first place where two runs part."""
    for (what, a), (other, b) in zip(found, wanted, strict=False):
        if what != other and not other.endswith("()"):
            return f"{what} = {a} in place of {other} = {b}"
        if isinstance(a, T) and isinstance(b, T):
            if not close(a, b):
                return f"{what}: {a.tolist()} in place of {b.tolist()}"
        elif other.endswith("()") and isinstance(b, str):
            return ""  # a view of many that was written to: eager raises when it is looked at
        elif type(a) is not type(b) or a != b:
            return f"{what}: {a} in place of {b}"
    return "" if len(found) == len(wanted) else "one run has seen more"


def level(seed: int) -> str:
    return "O1" if seed % 3 else "O0"


def checked(seed: int, found: Case) -> str:
    """What is not as in plain Python; empty if nothing is."""
    config = graftjit.JitConfig(jit_level=level(seed))
    wanted = Run(seed, found, lambda program: program).seen
    options: dict[str, Any] = {"dynamic": False} if seed % 3 == 0 else {}
    jitted: list[Any] = []

    def transform(program: Program) -> Program:
        jitted.append(graftjit.jit(program, config=config, **options))
        return jitted[0]  # type: ignore[no-any-return]

    try:
        return parted(Run(seed, found, transform).seen, wanted) or faults(jitted[0])
    finally:
        linecache.cache.pop(f"<training {seed}>", None)


def faults(jitted: Any) -> str:
    """The faults inside of graftjit: what ran in plain Python or by ATen, but must not come to that."""
    found = [str(note) for note in jitted.report().notes if note.code in _FAULTS]
    return f"faults: of {found[0][:400]}" if found else ""


def difference(seed: int) -> str:
    return checked(seed, case(seed, world))


def minimised(seed: int, found: Case, wanted: str, seconds: float = 60) -> Case:
    """A case with fewer lines and steps that differs in a place of the same name."""
    end, sign = time.monotonic() + seconds, _sign(wanted)

    def fails(lines: list[str], steps: list[str]) -> bool:
        try:
            return _sign(checked(seed, Case(lines, steps))) == sign
        except Exception:
            return False

    def smaller(kept: list[str], whole: Callable[[list[str]], bool]) -> list[str]:
        size = max(1, len(kept) // 2)
        while size and time.monotonic() < end:
            at = len(kept) - size
            while at >= 0 and time.monotonic() < end:
                fewer = kept[:at] + kept[at + size :]
                if whole(fewer):
                    kept = fewer
                at = min(at, len(kept)) - size
            size //= 2
        return kept

    lines, steps = found.lines, found.steps
    for _ in range(2):
        steps = smaller(steps, lambda fewer: fails(lines, fewer))
        lines = smaller(lines, lambda fewer: fails(fewer, steps))
    return Case(lines, steps)


def _sign(found: str) -> str:
    """What kind of place: without numbers."""
    place = found if found.startswith("faults") else found.partition(":")[2].partition(":")[0]
    return "".join(c for c in place if not c.isdigit())[:40]


def small(seed: int, wanted: str, seconds: float) -> str:
    found = minimised(seed, case(seed, world), wanted, seconds)
    return "\n".join([found.source(), *found.steps, checked(seed, found), ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=30_000_000)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--seconds", type=float, default=40, help="for making one program small")
    parser.add_argument("--keep-going", action="store_true")
    given = parser.parse_args()
    seeds, failed, begin = range(given.seed, given.seed + given.count), 0, time.monotonic()
    if given.show:
        for seed in seeds:
            found = case(seed, world)
            print(found.source(), *found.steps, sep="\n")
    torch.set_num_threads(1)  # children are forked
    difference(given.seed)  # what is imported at a first use is imported here, for all children
    for seed, what in Pool(lambda seed: difference(seed) or None, 1, SECONDS).run(seeds):
        if what:
            failed += 1
            print(f"seed {seed} {level(seed)}: {what}", flush=True)
            print(
                apart(lambda seed=seed, what=what: small(seed, what, given.seconds), 4 * SECONDS),
                flush=True,
            )
            if not given.keep_going:
                return 1
    print(f"{given.count - failed} of {given.count} agree ({time.monotonic() - begin:.0f} s)")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
