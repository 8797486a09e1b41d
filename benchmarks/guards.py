"""`python -m benchmarks.guards`: microseconds that the guards of a model take on a hit, beside torch.compile's.

graftjit: the check of the entry that answered, called from Python; torch.compile: the check of its root guard
manager, on the frame of a function that calls the model. Both with nothing changed since the last call, and graftjit also with a
dict made and filled in between ("busy"), as programs do. Rounds take turns; medians. Then, of a function met with many
shapes: the time of a hit by that of one with a single shape.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MOST_US = 1.5  # what the guards of the largest models may take
SHAPES = 16


def _layers(n: int) -> Any:
    from torch import nn

    kinds = (lambda: nn.Linear(4, 4), lambda: nn.LayerNorm(4), nn.ReLU)
    return nn.Sequential(*(make() for _ in range(n) for make in kinds)).eval()


def _blocks(n: int) -> Any:
    from torch import nn

    from .workloads import Block

    return nn.Sequential(*(Block(32, 2) for _ in range(n))).eval()


# name -> (model, shape of its input)
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "8 layers": (lambda: _layers(8), (1, 4)),
    "64 layers": (lambda: _layers(64), (1, 4)),
    "12 blocks": (lambda: _blocks(12), (1, 8, 32)),
}


def _own_check(model: Any, x: Any) -> tuple[Callable[[], Any], int]:
    import graftjit
    from graftjit.compiled import compiled_state

    compiled = graftjit.compile(model)
    for _ in range(4):
        compiled(x)
    state: Any = compiled_state(compiled)
    (entry,) = state.call.state.entries
    function, seen = state.call.__wrapped__, (compiled, (x,), {})
    check, scope, cells = entry.guards.check, function.__globals__, function.__closure__
    if check(seen, scope, cells) != -1:
        raise RuntimeError("the entry does not hold for the call that it was made for")
    return (lambda: check(seen, scope, cells)), entry.guards.n_rows


def _peer_check(model: Any, x: Any) -> Callable[[], Any]:
    import torch
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    def call(model: Any, x: Any) -> Any:
        return model(x)

    torch._dynamo.reset()
    compiled = torch.compile(call, backend=lambda graph, _inputs: graph.forward)
    for _ in range(4):
        compiled(model, x)
    (entry,) = _debug_get_cache_entry_list(call.__code__)
    seen = {"model": model, "x": x}
    check = entry.guard_manager.root.check
    if not check(seen):
        raise RuntimeError("the peer's guards do not hold for the call that they were made for")
    return lambda: check(seen)


def _busy(check: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        {}["a"] = 1
        return check()

    return run


def _measure(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    from .steady_state import interleaved

    return {
        name: statistics.median(times)
        for name, (_, times) in interleaved(runs, rounds, 0.004).items()
    }


def _of_model(name: str, rounds: int, peer: bool) -> dict[str, Any]:
    import torch

    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    own, rows = _own_check(model, x)
    runs = {"graftjit": own, "busy": _busy(own)}
    if peer:
        runs["torch.compile"] = _peer_check(model, x)
    tensors = sum(1 for _ in model.parameters())
    return {"model": name, "rows": rows, "parameters": tensors, **_measure(runs, rounds)}


def _of_shapes(rounds: int) -> dict[str, Any]:
    import torch

    import graftjit

    def work(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    xs = [torch.randn(n) for n in range(2, 2 + SHAPES)]
    config = graftjit.JitConfig(dynamic=False, recompile_limit=SHAPES + 1)
    one, many = (graftjit.jit(work, config=config) for _ in range(2))
    for x in (*xs, *xs):
        many(x)

    def single() -> None:
        for _ in xs:
            one(xs[0])

    def turns() -> None:
        for x in xs:
            many(x)

    found = _measure({"one shape": single, "many shapes": turns}, rounds)
    each = {name: value / SHAPES for name, value in found.items()}
    return {"shapes": SHAPES, **each, "ratio": each["many shapes"] / each["one shape"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 under `--check` if a bound is not kept."""
    os.environ.pop("GRAFTJIT_CHECK", None)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guards", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--without-peer", action="store_true", help="do not measure torch.compile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is not kept")
    parsed = parser.parse_args(arguments)
    if parsed.rounds < 2:
        parser.error("--rounds is at least 2")
    import torch

    from . import machine

    torch.set_grad_enabled(False)
    torch.manual_seed(parsed.seed)
    facts = machine.describe(parsed.seed)
    for name, value in facts.items():
        print(f"{name:<12}{value}")
    print(
        f"\n{'model':<12}{'rows':>8}{'parameters':>12}{'graftjit us':>14}{'busy us':>10}{'torch.compile us':>19}"
    )
    models = []
    for name in parsed.only:
        row = _of_model(name, parsed.rounds, not parsed.without_peer)
        models.append(row)
        peer = f"{row['torch.compile']:.2f}" if "torch.compile" in row else "-"
        print(f"{name:<12}{row['rows']:>8}{row['parameters']:>12}{row['graftjit']:>14.2f}{row['busy']:>10.2f}{peer:>19}",
              flush=True)  # fmt: skip
        gc.collect()
    shapes = _of_shapes(parsed.rounds)
    print(f"\na hit with {SHAPES} shapes in turn: {shapes['many shapes']:.2f} us, with one: "
          f"{shapes['one shape']:.2f} us, ratio {shapes['ratio']:.2f}")  # fmt: skip
    if parsed.json:
        emitted = {"machine": facts, "models": models, "shapes": shapes}
        parsed.json.write_text(json.dumps(emitted, indent=2) + "\n", encoding="utf-8")
    missed = [row["model"] for row in models if row["graftjit"] > MOST_US]
    if missed:
        print(f"\nabove {MOST_US} us: {', '.join(missed)}")
    return int(bool(missed) and parsed.check)


if __name__ == "__main__":
    sys.exit(main())
