"""The process of one system: `python -m benchmarks.engines.worker MODEL SYSTEM THREADS RESULT`.

It reads a request a line and writes an answer a line, both JSON (`process` asks):
  {"do": "first"}                the first call, its result into the file RESULT -> {"seconds", "flops"}
  {"do": "calls", "seconds": s}  warm up, and how many calls fill so long -> {"calls"}
  {"do": "sample", "calls": n}   -> {"us"}: microseconds a call
An exception is {"problem"}. Nothing else reaches the pipe: what libraries print goes to standard
error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from ..errors import leaves
from ..steady_state import calls_for, one_line, sample
from .models import BY_NAME, Made
from .systems import SYSTEMS

WARM_SECONDS = 1.0


class Worker:
    """What answers the requests."""

    def __init__(self, made: Made, system: str, result: str) -> None:
        self.system, self.result = system, result
        self.module, self.inputs = made
        self.run: Callable[[], Any] = lambda: None

    def first(self) -> dict[str, Any]:
        """From before importing the system to after its first result."""
        flops = _flops(self.module, self.inputs) if self.system == "eager" else 0
        start = time.perf_counter()
        wrapped = SYSTEMS[self.system](self.module, self.inputs)
        found = wrapped(*self.inputs)
        seconds = time.perf_counter() - start
        del self.module  # an engine has its own copy of the weights
        inputs = self.inputs
        self.run = lambda: wrapped(*inputs)
        torch.save([value.clone() for value in leaves(_plain(found))], self.result)
        return {"seconds": seconds, "flops": flops}

    def calls(self, seconds: float) -> dict[str, Any]:
        until = time.perf_counter() + WARM_SECONDS
        while time.perf_counter() < until:
            self.run()
        gc.collect()
        gc.disable()
        return {"calls": calls_for(self.run, seconds)}

    def sample(self, calls: int) -> dict[str, Any]:
        """Behind one call that is not counted: other systems have had the caches since."""
        self.run()
        return {"us": sample(self.run, calls)}


def _plain(result: Any) -> Any:
    """Results of the model classes of libraries are dicts by another name."""
    return dict(result) if hasattr(result, "items") else result


def _flops(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Of products and convolutions, two for each multiplication and addition; else 0."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops()


def _main(model: str, system: str, threads: str, result: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_grad_enabled(False)
    if int(threads):
        torch.set_num_threads(int(threads))
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or Worker(BY_NAME[model].make(), system, result)
            answer = getattr(worker, request.pop("do"))(**request)
        # what one system cannot do is a row of the table
        except Exception as error:
            answer = {"problem": one_line(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
