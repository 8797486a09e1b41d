"""What a forward and a backward of a compiled part cost beside their kernels: `python -m benchmarks.backward_overhead`.

A part over 8 floats, whose kernels take next to nothing, goes forward and backward (`torch.autograd.grad` with a given gradient).
Beside it: the two programs alone, called one after the other as the executor runs them, and one operator of eager's with its
backward, which is autograd's own share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import graftjit
from graftjit.runtime.autograd import joint_program

ROUNDS, CALLS = 30, 500


def part(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).tanh() * w


def microseconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - began) / CALLS * 1e6


def programs_alone(
    joint: Any, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor
) -> Callable[[], Any]:
    """Forward and backward without autograd: what is saved is handed over."""
    backward, _ = joint._build(())
    plan = joint.plan

    def run() -> Any:
        made = joint._forward(x, w)
        saved = joint._kept((*made, *joint._constants, x, w))
        return backward(*saved[: len(plan.saved)], g)

    return run


def main() -> None:
    torch.set_num_threads(1)
    x, w = (torch.rand(8, requires_grad=True) for _ in range(2))
    g = torch.ones(8)
    made: list[Any] = []
    real = joint_program.JointProgram.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        real(self, *args, **kwargs)

    joint_program.JointProgram.__init__ = noted  # type: ignore[method-assign]
    jitted = graftjit.jit(part)
    torch.autograd.grad(jitted(x, w), (x, w), g)
    joint_program.JointProgram.__init__ = real  # type: ignore[method-assign]
    bare = programs_alone(made[0], x.detach(), w.detach(), g)
    systems: dict[str, Callable[[], Any]] = {
        "compiled part, forward and backward": lambda: torch.autograd.grad(jitted(x, w), (x, w), g),
        "  its forward alone": lambda: jitted(x, w),
        "its two programs alone": bare,
        "eager, the part": lambda: torch.autograd.grad(part(x, w), (x, w), g),
        "eager, one product": lambda: torch.autograd.grad(x * w, (x, w), g),
    }
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(ROUNDS):
        for name, run in systems.items():
            times[name].append(microseconds(run))
    found = {name: min(values) for name, values in times.items()}
    for name, value in found.items():
        print(f"{name:40}{value:8.2f} us")
    whole = found["compiled part, forward and backward"] - found["its two programs alone"]
    print(f"{'over its programs':40}{whole:8.2f} us")
    print(
        f"{'  of these beyond one product of eager':40}{whole - found['eager, one product']:8.2f} us"
    )


if __name__ == "__main__":
    main()
