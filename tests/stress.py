"""Many threads call, mutate and reset at once: `python -m tests.stress --seconds 60 [--threads 16] [--seed 1]`.

Each step is one call of a compiled function beside what plain Python gives. What only one thread changes has one right
result, whatever the others do with the same code; what several change has as many as there are values.
`tests/dispatch/test_threads.py` runs it for a moment.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any

import torch

import graftjit
from graftjit.runtime.events.events import RanPlain
from graftjit.runtime.process.session import SESSION

X = torch.linspace(-1.0, 1.0, 8)
LARGE = torch.linspace(-1.0, 1.0, 300_000)  # kernels let the GIL go
VALUES = (1.0, 2.0, 3.0, 5.0)
SHARED = {"factor": 1.0}
factor = 1.0  # changed by any thread at any time


class Box:
    bias = 0.5

    def __init__(self) -> None:
        self.scale: float = 1.0
        self.name = "a"
        self.items = [1.0, 2.0]
        self.table = {"k": 1.0}

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.bias


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.second(y) if self.training else self.second(y) * 2


# --- what is compiled, shared by all threads ---------------------------------------------------------------


def of_box(box: Box, x: torch.Tensor) -> torch.Tensor:
    y = box.apply(x)
    for item in box.items:
        y = y + item
    return y * box.table["k"] if box.name == "a" else -y


def of_global(x: torch.Tensor) -> torch.Tensor:
    return x * factor


def of_shared(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * SHARED["factor"]


def with_break(x: torch.Tensor, seen: list[float]) -> torch.Tensor:
    y = x.cos()
    seen.append(float(y.sum()))
    return y + len(seen)


def of_module(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net(x).tanh()


def large(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x) * 2
    return (y - y.mean()).sum() + torch.sin(y).sum()


def graded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).sin().sum()


def raising(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.sin().reshape(size) + 1


def keyed(x: torch.Tensor, key: str) -> dict[str, torch.Tensor]:
    return {key: x + 1}


FUNCTIONS = [of_box, of_global, of_shared, with_break, of_module, large, graded, raising, keyed]
CONFIGS = {keyed: graftjit.JitConfig(recompile_limit=3)}
JITTED: dict[Any, Any] = {}


class Calls:
    """A finalizer that calls what is compiled, wherever it may run."""

    def __init__(self, wrong: list[str]) -> None:
        self.wrong = wrong
        self.me = self  # for the collector

    def __del__(self) -> None:
        if not close(JITTED[with_break](X, [0.0]), with_break(X, [0.0])):
            self.wrong.append("a finalizer's call")


def close(found: Any, right: Any) -> bool:
    return torch.allclose(found, right, rtol=1e-4, atol=1e-4)


class Worker:
    """One thread: objects of its own, and what it has found wrong."""

    def __init__(self, number: int, seed: int) -> None:
        self.random = random.Random(seed * 1000 + number)
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self.box, self.net = Box(), Net()
        self.weight = torch.ones(8, requires_grad=True)

    # Each step: change something, call, compare. False: wrong.

    def own_object(self) -> bool:
        box, pick = self.box, self.random
        pick.choice((
            lambda: setattr(box, "scale", pick.choice(VALUES)),
            lambda: setattr(box, "name", pick.choice("ab")),
            lambda: box.items.append(pick.choice(VALUES)) if len(box.items) < 4 else box.items.clear(),
            lambda: box.table.update(k=pick.choice(VALUES)),
            lambda: setattr(box, "bias", 1.5) if "bias" not in vars(box) else delattr(box, "bias"),
            lambda: None,
        ))()  # fmt: skip
        return close(JITTED[of_box](box, X), of_box(box, X))

    def own_module(self) -> bool:
        net, pick = self.net, self.random
        pick.choice((
            lambda: net.train(pick.random() < 0.5),
            lambda: net.first.weight.data.mul_(0.9),
            lambda: setattr(net, "second", torch.nn.Linear(8, 8)),
            lambda: setattr(net.first, "bias", torch.nn.Parameter(torch.zeros(8))),
            lambda: None,
            lambda: None,
        ))()  # fmt: skip
        with torch.set_grad_enabled(pick.random() < 0.3):
            return close(JITTED[of_module](net, X), of_module(net, X))

    def hooked(self) -> bool:
        """A hook that calls what is compiled."""
        hook = self.net.register_forward_hook(lambda _m, _i, out: out + JITTED[large](X))
        try:
            return close(JITTED[of_module](self.net, X), of_module(self.net, X))
        finally:
            hook.remove()

    def shared_values(self) -> bool:
        global factor  # noqa: PLW0603 (that is what is tested)
        if self.random.random() < 0.3:
            factor = self.random.choice(VALUES)
            SHARED["factor"] = self.random.choice(VALUES)
        one, two = JITTED[of_global](X), JITTED[of_shared](X)
        return any(close(one, X * v) for v in VALUES) and any(
            close(two, X.sin() * v) for v in VALUES
        )

    def effects(self) -> bool:
        seen: list[float] = [0.0] * self.random.randrange(3)
        before = len(seen)
        found = JITTED[with_break](X, seen)
        return len(seen) == before + 1 and close(found, X.cos() + len(seen))

    def without_gil(self) -> bool:
        return close(JITTED[large](LARGE), large(LARGE))

    def gradients(self) -> bool:
        self.weight.grad = None
        JITTED[graded](X, self.weight).backward()
        return close(self.weight.grad, X * (X * self.weight.detach()).cos())

    def exceptions(self) -> bool:
        size = self.random.choice((8, 7))
        try:
            return close(JITTED[raising](X, size), raising(X, size)) and size == 8
        except RuntimeError as error:
            return size == 7 and "shape" in str(error)

    def ever_new(self) -> bool:
        key = f"{self.random.randrange(6)}"
        found = JITTED[keyed](X, key)
        return list(found) == [key] and close(found[key], X + 1)

    def resets(self) -> bool:
        if self.random.random() < 0.03:
            graftjit.reset()
        elif self.random.random() < 0.2:
            JITTED[self.random.choice(FUNCTIONS)].reset()
        return True

    def reports(self) -> bool:
        return len(JITTED[of_box].report().text()) > 0 and graftjit.report() is not None

    def fresh_function(self) -> bool:
        by = self.random.choice(VALUES)
        scope: dict[str, Any] = {}
        exec(f"def made(x): return x * {by} - 1", scope)
        return close(graftjit.jit(scope["made"])(X), X * by - 1)

    def finalizers(self) -> bool:
        Calls(self.wrong)
        if self.random.random() < 0.1:
            gc.collect()
        return True

    def run(self, until: float) -> None:
        names = [name for name, often in STEPS.items() for _ in range(often)]
        while time.monotonic() < until and not self.wrong:
            name = self.random.choice(names)
            try:
                if not getattr(self, name)():
                    self.wrong.append(f"{name}: a wrong result")
            except Exception:  # told by the caller, with all the others
                self.wrong.append(f"{name}: {traceback.format_exc()}")
            self.done[name] += 1


STEPS = {
    "own_object": 6, "own_module": 4, "hooked": 1, "shared_values": 4, "effects": 4, "without_gil": 3, "gradients": 2,
    "exceptions": 2, "ever_new": 3, "resets": 1, "reports": 1, "fresh_function": 1, "finalizers": 1,
}  # fmt: skip


def run(seconds: float, threads: int = 16, seed: int = 1) -> tuple[list[str], Counter[str]]:
    """(what was wrong, how often each step was done). faulthandler shows a thread that hangs, and the process ends."""
    for function in FUNCTIONS:
        JITTED[function] = graftjit.jit(function, config=CONFIGS.get(function))
    faulthandler.dump_traceback_later(seconds + 240, exit=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        workers = [Worker(number, seed) for number in range(threads)]
        until = time.monotonic() + seconds
        running = [threading.Thread(target=worker.run, args=(until,)) for worker in workers]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        faulthandler.cancel_dump_traceback_later()
    wrong = [text for worker in workers for text in worker.wrong]
    states = [JITTED[function].state for function in FUNCTIONS]
    faults = [e for e in SESSION.log.of(states) if isinstance(e, RanPlain) and e.code == "PL205"]
    wrong += [f"{event.frame}: {event.reason}\n{event.detail}" for event in faults]
    return wrong, sum((worker.done for worker in workers), Counter())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong, done = run(given.seconds, given.threads, given.seed)
    print(", ".join(f"{name} {number}" for name, number in sorted(done.items())))
    for text in dict.fromkeys(wrong):
        print(text)
    print(f"{len(wrong)} wrong of {sum(done.values())} steps of {given.threads} threads")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
