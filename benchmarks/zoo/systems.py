"""graftjit and torch.compile, as `looks` asks them: a compiled form of a model, and what the system tells of it.

A compiled model has the model's own methods, so that `generate` meets compiled calls. Graphs are counted from `wrap` on.
"""

from __future__ import annotations

import copy
import logging
import re
from typing import Any

import torch

FAULTS = ("WN606", "WN607")  # kernels that could not be made, internal errors
# What graftjit runs as written because of what the program is; the others are measurements or settings.
PLAIN = ("PL201", "PL202", "PL203", "PL205", "PL207", "PL209")

Told = dict[str, Any]


class Graftjit:
    name = "graftjit"

    def wrap(self, model: torch.nn.Module) -> Any:
        import graftjit

        return graftjit.compile(model)

    def graphs(self, wrapped: Any) -> int:
        import graftjit

        return graftjit.report(wrapped).graph_count

    def told(self, wrapped: Any) -> Told:
        import graftjit

        seen = graftjit.report(wrapped)
        plain = [note for note in seen.notes if note.code in PLAIN]
        return {
            "breaks": [_row(row.code, row.reason, row) for row in [*seen.breaks, *plain]],
            "recompiles": seen.recompile_count,
            "notes": sorted({note.code for note in seen.notes}),
            "faults": [f"{w.code}: {w.text}" for w in seen.warnings if w.code in FAULTS],
        }


def _row(code: str, reason: str, row: Any) -> dict[str, str]:
    where = f"{row.file.rpartition('/')[2]}:{row.line}"
    return {"code": code, "reason": reason or row.title, "where": where}


class Peer:
    """torch.compile with one of its backends: "eager" makes the same graphs and breaks as "inductor", in less time."""

    name = "torch.compile"

    def __init__(self, backend: str) -> None:
        self.backend = backend
        torch._logging.set_logs(dynamo=logging.CRITICAL)  # the record has its breaks

    def wrap(self, model: torch.nn.Module) -> Any:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        wrapped = copy.deepcopy(model)
        wrapped.compile(backend=self.backend)
        return wrapped

    def graphs(self, wrapped: Any) -> int:
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    def told(self, wrapped: Any) -> Told:
        seen = torch._dynamo.utils.counters["graph_break"]
        return {"breaks": [{"code": "break", "reason": _first(text), "where": ""} for text in seen]}


class Shaken:
    """Plain Python with each weight a few roundings away: what differs with it is no fault of a compiler's."""

    name = "rounding"

    def wrap(self, model: torch.nn.Module) -> Any:
        shaken = copy.deepcopy(model)
        torch.manual_seed(3)
        with torch.no_grad():
            for weight in shaken.parameters():
                weight.mul_(1 + torch.randn_like(weight) * 4 * torch.finfo(weight.dtype).eps)
        return shaken

    def graphs(self, wrapped: Any) -> int:
        return 0

    def told(self, wrapped: Any) -> Told:
        return {"breaks": []}


def _first(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text.strip().splitlines()[0])[:160] if text.strip() else ""
