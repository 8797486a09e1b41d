"""Reports put together by hand: what their renderings are tested with."""

from __future__ import annotations

from typing import Any

from graftjit.runtime.report.records import (
    BreakRecord,
    EntryRecord,
    FrameRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    NodeRecord,
    NoteRecord,
    Place,
    RecompileRecord,
    ScheduleRecord,
    SymbolicRecord,
    UnfusedRecord,
)
from graftjit.runtime.report.report import Report

SOURCE = """\
import torch


class Classifier(torch.nn.Module):
    def forward(self, x, limit):
        h = self.first(x).relu()
        if h.mean().item() > limit:
            h = h * 0.5
        h = self.second(h) * self.temperature
        名前 = self.norm(h); print("日本語", 名前.shape); out = 名前.softmax(-1)
        return out
"""


def made_up(name: str = "f", **lists: Any) -> Report:
    """A report with these lists; the others are empty."""
    made = Report(name)
    made.__dict__.update(lists)
    return made


def _columns(line: int, text: str) -> dict[str, Any]:
    """The place of a text in a line of `SOURCE`, in bytes as code objects have it."""
    before, found, _after = SOURCE.splitlines()[line - 1].partition(text)
    assert found, text
    start = len(before.encode())
    return dict(line=line, end_line=line, column=start, end_column=start + len(text.encode()))


def at(file: str, line: int, text: str) -> dict[str, Any]:
    return dict(file=file, function="Classifier.forward", **_columns(line, text))


def clean(file: str) -> Report:
    """One frame, one entry, two kernels: nothing to fix."""
    return made_up(
        "Classifier.forward",
        frames=[
            FrameRecord(**at(file, 5, "def forward"), frame="Classifier.forward", entries=1,
                        kinds=("direct",), graphs=1, operators=9, calls=7, kernels=2, distinct=2,
                        library=2, guards=14, hits=998, misses=1, calls_seen=999,
                        seconds=(("capture", 0.0123), ("compile", 0.0871)),
                        seconds_a_call=52.3e-6, compiled_share=0.97, samples=31),
        ],
        entries=[
            EntryRecord(**at(file, 5, "def forward"), frame="Classifier.forward", number=1,
                        kind="direct", graph="graph", operators=9, calls=7, kernels=2, distinct=2,
                        library=2, guards=14, guard_seconds=210e-9, hits=998,
                        stages=(("capture", 0.0123), ("compile", 0.0871))),
        ],
        guards=[GuardRecord(frame="Classifier.forward", source="x", text=f"condition {n}") for n in range(14)],
        kernels=[
            KernelRecord(**at(file, 6, "self.first(x).relu()"), name="relu", frame="Classifier.forward",
                         graph="graph", entry=1, shape="f32[32, 512]", reads=65536, writes=65536,
                         flops=16384, seconds=6.1e-6, samples=31, share=0.83, bound="memory",
                         operators=("aten.relu.default",),
                         unfused=(UnfusedRecord("aten.addmm.default", "a product of a library ends before its result is read", "NF701"),)),
            KernelRecord(**at(file, 6, "self.first(x)"), name="aten.addmm.default", kind="call",
                         frame="Classifier.forward", graph="graph", entry=1, shape="f32[32, 512]",
                         reads=1116160, writes=65536, flops=16777216, seconds=31.0e-6, samples=31,
                         share=0.62, bound="compute"),
        ],
    )  # fmt: skip


def full(file: str) -> Report:
    """Two breaks, of which one is met through an inlined call, a storm of recompiles, a fallback, a frame in plain
    Python, sizes that are inputs now."""
    forward, helper = "Classifier.forward", "tokens"
    seconds = (("capture", 0.020), ("compile", 0.210))
    return made_up(
        forward,
        frames=[
            FrameRecord(**at(file, 5, "def forward"), frame=forward, entries=14, graphs=14, operators=40,
                        kernels=9, distinct=5, library=4, breaks=2, recompiles=13, guards=3, hits=120,
                        misses=14, calls_seen=134, seconds=seconds, seconds_a_call=412e-6,
                        compiled_share=0.41, samples=9),
            FrameRecord(file=file, line=1, function=helper, frame=helper, plain="PL201"),
        ],
        entries=[
            EntryRecord(**at(file, 5, "def forward"), frame=forward, number=1, kind="code", graph="graph",
                        operators=4, kernels=1, library=2, guards=9, guard_seconds=3.1e-7, hits=118, stages=seconds),
            EntryRecord(**at(file, 8, "h = h * 0.5"), frame=forward, number=2, kind="code", resumed=True,
                        graph="graph", operators=6, kernels=2, library=1, guards=7, hits=100, stages=seconds),
            EntryRecord(**at(file, 8, "h = h * 0.5"), frame=forward, number=3, kind="code", resumed=True,
                        adopted=True, graph="graph", operators=6, kernels=2, library=1, guards=7, hits=2),
            EntryRecord(**at(file, 10, "print"), frame=forward, number=4, kind="plain", resumed=True,
                        guards=1, hits=0, alive=False, stages=(("capture", 0.001),)),
        ],
        breaks=[
            BreakRecord(**at(file, 10, 'print("日本語", 名前.shape)'), code="GB103", frame=forward, count=2,
                        title="print, logging or other input and output", reason="print()",
                        cost="two graphs in place of one", cure="move it out", seconds=18e-6, samples=9),
            BreakRecord(**at(file, 7, "h.mean().item()"), code="GB104", frame=forward,
                        title="tensor turned into a Python value", reason="Tensor.item()",
                        cost="two graphs in place of one", cure="keep the value a tensor",
                        seconds=190e-6, samples=9,
                        inlined=(Place(**at(file, 5, "def forward")),)),
        ],
        recompiles=[
            RecompileRecord(**at(file, 9, "self.second(h) * self.temperature"), code="RC403", frame=forward,
                            title="Python value changed", source="self.temperature", now=f"{n + 1}.5",
                            before=f"{n}.5", cure="keep it in a tensor", entries=n + 1, limit=8)
            for n in range(12)
        ] + [
            RecompileRecord(**at(file, 6, "self.first(x)"), code="RC402", frame=forward, title="tensor changed",
                            source="x", now="cpu f32[33, 64]", before="cpu f32[32, 64]", cure="pad", entries=1, limit=8),
        ],
        symbolic=[SymbolicRecord(frame=forward, source="x.shape[0]", why="seen with 32 and 33")],
        notes=[
            NoteRecord(file=file, line=1, function=helper, frame=helper, code="PL201", plain=True,
                       title="generator", reason="a generator", cure="jit the functions it calls"),
            NoteRecord(code="FB301", title="gradient by autograd", frame=forward, count=2,
                       reason="w requires a gradient", cure="use torch.no_grad()"),
        ],
        guards=[
            GuardRecord(frame=forward, source="x", path=("x",), text="x is a tensor: cpu f32[s0, 64]", kind="tensor"),
            GuardRecord(frame=forward, source="self.first.weight", path=("self", ".first", ".weight"), text="self.first.weight is a tensor"),
            GuardRecord(frame=forward, source="self.first.bias", path=("self", ".first", ".bias"), text="self.first.bias is None"),
        ],
        schedules=[ScheduleRecord("relu", "rows", (("plain", 2e-6), ("rows", 1e-6)), False, ("relu",), forward)],
        kernels=[KernelRecord(**at(file, 9, "self.second(h)"), name="mul", frame=forward, shape="f32[32, 64]",
                              reads=8192, writes=8192, operators=("aten.mul.Tensor",), source="void mul() {\n}\n")],
        graphs=[GraphRecord("graph", forward, 1, "O1", "forward",
                            (NodeRecord(name="x", op="input", type="f32[32, 64]"),), "graph(x):\n  return x\n")],
    )  # fmt: skip
