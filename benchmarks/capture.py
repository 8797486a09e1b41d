"""`python -m benchmarks.capture`: seconds of capture (before code generation) of a four-layer Llama, beside torch.compile's.

Needs `transformers`. Each round makes a new model, in a fresh process a system, in turn. graftjit: the capture time that its
report tells; torch.compile: its first call with a backend that compiles nothing, less the time of a plain call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

SYSTEMS = ("graftjit", "torch.compile")
SIZES = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 37,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False,
}  # fmt: skip


def once(system: str, seed: int) -> dict[str, float]:
    """One first call in this process."""
    import time

    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    ids = torch.randint(0, 99, (2, 7))
    with torch.no_grad():
        model(input_ids=ids)
        start = time.perf_counter()
        expected = model(input_ids=ids).logits
        plain = time.perf_counter() - start
        if system == "graftjit":
            import graftjit

            compiled = graftjit.compile(model)
            found = compiled(input_ids=ids).logits
            report = compiled.report()
            seen = {
                "seconds": sum(dict(frame.seconds).get("capture", 0.0) for frame in report.frames)
            }
            seen |= {"graphs": report.graph_count, "breaks": report.break_count}
        else:
            compiled = torch.compile(model, backend=lambda graph, _inputs: graph.forward)
            start = time.perf_counter()
            found = compiled(input_ids=ids).logits
            seen = {"seconds": time.perf_counter() - start - plain}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return seen


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", choices=SYSTEMS, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    os.environ.pop("GRAFTJIT_CHECK", None)
    if parsed.once:
        print(json.dumps(once(parsed.once, parsed.seed)))
        return 0
    found: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for number in range(parsed.rounds):
        for system in SYSTEMS:
            command = ["--once", system, "--seed", str(parsed.seed + number)]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.capture", *command],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            seen = json.loads(done.stdout.splitlines()[-1])
            found[system].append(seen.pop("seconds"))
            print(
                f"round {number}  {system:14} {found[system][-1]:.3f} s  {seen or ''}", flush=True
            )
    ours, theirs = (statistics.median(found[system]) for system in SYSTEMS)
    print(f"median: graftjit {ours:.3f} s, torch.compile {theirs:.3f} s, ratio {ours / theirs:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
