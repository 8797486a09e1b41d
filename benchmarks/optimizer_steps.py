"""Steps of optimizers over many parameters: `python -m benchmarks.optimizer_steps [NAME...] [--parameters 200] [--few-shapes]`.

Each optimizer gets parameters of 64 to 65536 elements. The first two steps create the state and compile: their CPU seconds,
in this process and in the compiler's, do not depend much on other jobs. Then jitted steps alternate with those of eager's
three implementations, and the medians are printed in milliseconds. Take an empty GRAFTJIT_CACHE_DIR for first calls.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import optim

import graftjit

ROUNDS = 31
SHAPES = ((64,), (256,), (16, 64), (4096,), (64, 128), (128, 128), (65536,))
MAKE: dict[str, Callable[..., optim.Optimizer]] = {
    "Adam": lambda ps, **way: optim.Adam(ps, lr=1e-3, **way),
    "AdamW": lambda ps, **way: optim.AdamW(ps, lr=1e-3, **way),
    "SGD": lambda ps, **way: optim.SGD(ps, lr=1e-3, momentum=0.9, **way),
}
WAYS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
}  # fmt: skip


def parameters(count: int, few: bool) -> list[torch.nn.Parameter]:
    """Parameters with gradients: of a few shapes, or each of another length."""
    torch.manual_seed(0)
    lengths = [(int(64 * 1024 ** (at / max(count - 1, 1))),) for at in range(count)]
    shapes = [SHAPES[at % len(SHAPES)] for at in range(count)] if few else lengths
    found = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for one in found:
        one.grad = torch.randn_like(one)
    return found


def cpu() -> tuple[float, float]:
    """CPU seconds of this process, and of the processes that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, others = (one.ru_utime + one.ru_stime for one in found)
    return own, others


def measure(name: str, count: int, few: bool) -> None:
    make = MAKE[name]
    optimizer = make(parameters(count, few))

    @graftjit.jit
    def step() -> None:
        optimizer.step()

    for number in (1, 2):
        before = cpu()
        step()
        own, compiler = (now - then for now, then in zip(cpu(), before, strict=True))
        print(f"{name}, step {number}: {own:.2f} s here, {compiler:.2f} s in the compiler")
    steps: dict[str, Callable[[], Any]] = {"graftjit": step}
    steps |= {way: make(parameters(count, few), **flags).step for way, flags in WAYS.items()}
    times: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(ROUNDS):
        for way, run in steps.items():
            run()
            began = time.perf_counter()
            run()
            times[way].append((time.perf_counter() - began) * 1e3)
    found = (f"{way} {statistics.median(one):.2f} ({min(one):.2f})" for way, one in times.items())
    print(f"{name}, medians (least) in ms: {', '.join(found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[[], *MAKE], default=[])
    parser.add_argument("--parameters", type=int, default=200)
    parser.add_argument("--few-shapes", action="store_true", help="seven shapes, as in a model")
    arguments = parser.parse_args()
    for name in arguments.names or MAKE:
        measure(name, arguments.parameters, arguments.few_shapes)


if __name__ == "__main__":
    main()
