"""`python examples/compare.py NAME`: a program before and after its report was read, in plain Python and under graftjit.

Prints the report of both, whether the values are those of plain Python, and the times of a first and of later rounds
of calls, on one thread. Without a name it lists the programs.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import graftjit

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in HERE.glob("*/before.py"))


def load(name: str, which: str) -> ModuleType:
    """The program of a file: `make()` gives what is called, `calls()` with what, `between` what happens before."""
    path = HERE / name / f"{which}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{which}", path)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def compiled(made: Any) -> Any:
    """A model by `compile`, any other callable by `jit`."""
    return graftjit.compile(made) if isinstance(made, torch.nn.Module) else graftjit.jit(made)


def results(program: ModuleType, call: Callable[..., Any]) -> list[torch.Tensor]:
    """One round of calls."""
    between = getattr(program, "between", lambda _call, _number: None)
    found = []
    for number, arguments in enumerate(program.calls()):
        between(call, number)
        found.append(call(*copy.deepcopy(arguments)))
    return found


def measured(
    program: ModuleType, call: Callable[..., Any]
) -> tuple[list[torch.Tensor], float, float]:
    """The results of the first round, its seconds, and those of the fastest of five more."""
    seconds = []
    for number in range(6):
        start = time.perf_counter()
        found = results(program, call)
        seconds.append(time.perf_counter() - start)
        if number == 0:
            kept = found
    return kept, seconds[0], min(seconds[1:])


def main(names: list[str]) -> int:
    if not names or not set(names) <= set(NAMES):
        print(f"python examples/compare.py NAME, where NAME is one of: {', '.join(NAMES)}")
        return 2
    torch.set_num_threads(1)
    for name in names:
        for which in ("before", "after"):
            program = load(name, which)
            plain, *eager = measured(program, program.make())
            call = compiled(program.make())
            found, *ours = measured(program, call)
            torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
            print(f"{name}/{which}.py: the values of plain Python")
            for way, (first, later) in (("plain Python", eager), ("graftjit", ours)):
                print(
                    f"  {way:<14}{first * 1e3:9.1f} ms the first round {later * 1e3:9.1f} ms a later one"
                )
            print()
            graftjit.report(call).show()
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
