"""Architectures of the transformers library, small and with random weights: what differs from plain Python.

    python -m tests.architectures [NAME ...] [--out FILE] [--without-masks]

Needs `pip install transformers` (4.57.6 is the version it was written for) and asks no model hub: each configuration is shrunk, inputs are
made for the arguments of `forward`, and what plain Python accepts is compared in a process of its own, SECONDS of processor time at most. Prints a line an
architecture and ends with 1 if one differs; --out adds a JSON line for each. Those that are not built are named and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
import warnings
from typing import Any

SECONDS = 120
# Those that once differed, then those whose number of graphs must not grow.
FIRST = (
    "recurrent_gemma aimv2 doge bigbird_pegasus pegasus_x deepseek_v2 deepseek_v3 longcat_flash t5 mt5 umt5 longt5 "
    "switch_transformers pop2piano bert gpt2 llama vit mistral"
).split()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", help="model types of transformers; all without one")
    parser.add_argument("--out", help="a file that gets a JSON line for each")
    parser.add_argument("--without-masks", action="store_true", help="inference without masks, too")
    seen = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        print("python -m tests.architectures needs transformers: pip install transformers==4.57.6", file=sys.stderr)  # fmt: skip
        return 2
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    load()
    records = []
    for name in seen.names or names():
        record = in_a_process(name, seen.without_masks)
        records.append(record)
        print(f"{name}: {line(record)}", flush=True)
        if seen.out:
            with open(seen.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    print(summary(records), file=sys.stderr)
    return 1 if any(differs(record) for record in records) else 0


def names() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return [*FIRST, *[name for name in MODEL_MAPPING_NAMES if name not in FIRST]]


def load() -> None:
    """Import what each child would import by itself: a compiler's modules come with the first compiled call."""
    import torch
    import transformers.modeling_utils  # noqa: F401

    import graftjit

    model = torch.nn.Sequential(
        torch.nn.Embedding(9, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
    )
    compiled = graftjit.compile(model)
    compiled(torch.tensor([[1, 2, 3]])).sum().backward()
    graftjit.report(compiled).text()


def in_a_process(name: str, without_masks: bool) -> dict[str, Any]:
    """What a forked child tells of one architecture; a child that crashes or takes too long has told a part."""
    from .compare import compare

    began = time.monotonic()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:

        def tell(**facts: Any) -> None:
            os.write(writer, (json.dumps(facts) + "\n").encode())

        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            compare(name, tell, without_masks)
        except Exception as error:
            tell(problem=f"{type(error).__name__}: {error}"[:400])
        finally:
            os._exit(0)
    os.close(writer)
    record: dict[str, Any] = {"name": name}
    with os.fdopen(reader) as lines:
        for text in lines:
            record.update(json.loads(text))
    status = os.waitpid(child, 0)[1]
    if status:
        record["problem"] = f"ended with {os.waitstatus_to_exitcode(status)}"
    return {**record, "seconds": round(time.monotonic() - began, 1)}


def differs(record: dict[str, Any]) -> bool:
    parts = [record.get(part, "equal") for part in ("inference", "training")]
    faults = record.get("faults", []) + record.get("training_faults", [])
    return parts != ["equal", "equal"] or bool(faults)


def line(record: dict[str, Any]) -> str:
    if "arguments" not in record:
        return f"not built: {record.get('problem', '')}"
    seen = {key: record[key] for key in ("inference", "training", "graphs", "faults", "problem") if record.get(key)}  # fmt: skip
    return ", ".join(f"{key} {value}" for key, value in seen.items()) + f", {len(record.get('breaks', []))} breaks"  # fmt: skip


def summary(records: list[dict[str, Any]]) -> str:
    built = [record for record in records if "arguments" in record]
    counts = {
        "equal in inference": sum(record.get("inference") == "equal" for record in built),
        "equal in training": sum(record.get("training") == "equal" for record in built),
        "without a break": sum(record.get("breaks") == [] for record in built),
        "different": sum(map(differs, built)),
    }
    seen = ", ".join(f"{count} {text}" for text, count in counts.items())
    return f"{len(records)} architectures, {len(built)} built, of which {seen}"


if __name__ == "__main__":
    sys.exit(main())
