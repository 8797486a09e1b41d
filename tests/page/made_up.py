"""Reports put together by hand, as programs of some kinds would give them: what the page is tested with."""

from __future__ import annotations

from typing import Any

from graftjit.runtime.report.records import (
    BreakRecord,
    EntryRecord,
    FrameRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    LibraryRecord,
    Moment,
    NodeRecord,
    NoteRecord,
    Place,
    RecompileRecord,
    ScheduleRecord,
    SymbolicRecord,
    UnfusedRecord,
    WarningRecord,
)
from graftjit.runtime.report.report import Report

from ..runtime.report.made_up_reports import made_up

PROGRAM = '''\
"""A small classifier with a look at its own values."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        y = torch.nn.functional.gelu(self.up(y), approximate="tanh")
        return x + self.down(y)


class Classifier(nn.Module):
    def __init__(self, width=512, depth=4, classes=10):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)
        self.temperature = 1.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        scores = self.head(x) / self.temperature
        if scores.max().item() > 30.0:  # keeps the softmax from running over
            scores = scores - scores.max()
        return torch.softmax(scores, dim=-1)
'''

CPP = """\
// add, gelu: one pass over 4096 rows
extern "C" void %s(const float* __restrict in0, float* __restrict out0, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i += 8) {
        const Vec x = Vec::load(in0 + i);
        out0[i] = (x * 0.5f * (1.0f + tanh(x * 0.79788456f))).sum(); /* fused */
    }
}
"""


def classifier(file: str) -> Report:
    """Four blocks, a break at `.item()`, three recompiles for a temperature that changes. `file` holds PROGRAM."""

    def at(
        line: int, column: int = 8, end: int = 30, function: str = "Classifier.forward"
    ) -> dict[str, Any]:
        return dict(
            file=file, line=line, end_line=line, column=column, end_column=end, function=function
        )

    kernels, nodes = _blocks(at)
    frame = "Classifier.forward"
    return made_up(
        frame,
        frames=[
            FrameRecord(
                **at(27, 4), frame=frame, entries=4, kinds=("code", "code"), graphs=2, operators=33, calls=22, kernels=9,
                distinct=3, library=9, breaks=1, recompiles=3, guards=31, hits=1180, misses=4, calls_seen=1184,
                seconds=(("capture", 0.041), ("compile", 0.022), ("build", 0.51)), seconds_a_call=2.4e-3,
                compiled_share=0.93, samples=37, resumed_lines=((32, 33),), lines=(15, 16, 17, 28, 29, 30, 32, 33),
            )
        ],
        entries=[
            EntryRecord(**at(27), frame=frame, number=n + 1, kind="code", resumed=n % 2 == 1, graph=f"graph{n}",
                        operators=31 - 28 * (n % 2), calls=21, kernels=9, distinct=3, library=9, guards=27,
                        guard_seconds=1.4e-6, stages=(("capture", 0.02), ("compile", 0.011), ("build", 0.25)),
                        hits=590 - n, at=1000.0 + n)
            for n in range(2)
        ],
        breaks=[
            BreakRecord(**at(31, 11, 30), code="GB103", title="a tensor's value is needed in Python",
                        reason="scores.max().item() gives a number that Python compares",
                        why="The program asks for a value that only running it can give.",
                        cost="the graph ends here, and what follows is another",
                        cure="keep the comparison on tensors: torch.where(scores.max() > 30.0, ...)",
                        frame=frame, count=2, seconds=1.7e-4, samples=36)
        ],
        recompiles=[
            RecompileRecord(**at(30, 35, 51), code="RC405", title="a number changed", source="self.temperature",
                            now=f"{1.0 + (n + 1) / 10}", before=f"{1.0 + n / 10}", frame=frame, entries=n + 1, limit=8,
                            cure="make it a tensor, or a buffer of the module, if it varies", at=1003.0 + n)
            for n in range(3)
        ],
        symbolic=[SymbolicRecord(**at(27, 23, 24), source="x.shape[0]", why="it was 8, then 16", frame=frame)],
        guards=_guards(at, frame),
        kernels=kernels,
        libraries=[LibraryRecord("k_5d1f", 18_240, 0.51, False, ("aten.gelu", "aten.add.Tensor"), frame, 1000.6)],
        graphs=[
            GraphRecord("graph0", frame, 1, "O1", "", tuple(nodes), "graph0(x: f32[32, 512]):\n    return softmax"),
            GraphRecord("graph1", frame, 2, "O1", "", (
                NodeRecord(**at(27), name="scores", op="input", type="f32[32, 10]"),
                NodeRecord(**at(33), name="softmax", op="aten.softmax.int", type="f32[32, 10]", inputs=("scores",),
                           kernel="k_softmax"),
                NodeRecord(name="output", op="output", inputs=("softmax",)),
            )),
        ],
        schedules=[ScheduleRecord("k_gelu", "tile 64", (("default", 9e-5), ("tile 64", 7e-5)), False, ("aten.gelu",), frame)],
        notes=[NoteRecord(**at(30), code="FB301", title="runs by ATen", reason="no kernel of ours is faster here",
                          cure="nothing to do", frame=frame)],
        warnings=[WarningRecord("WN605", "compiled 4 times", 1004.0)],
        timeline=[
            Moment(1000.0, "capture", "Classifier.forward", frame, 0.041),
            Moment(1000.05, "stage", "lower", frame, 0.022),
            Moment(1000.1, "build", "k_5d1f", frame, 0.51),
            Moment(1000.04, "break", "GB103 .item()", frame),
            *(Moment(1003.0 + n, "recompile", "RC405 self.temperature", frame) for n in range(3)),
            *(Moment(1003.01 + n, "capture", "Classifier.forward", frame, 0.02) for n in range(3)),
        ],
    )  # fmt: skip


def _blocks(at: Any) -> tuple[list[KernelRecord], list[NodeRecord]]:
    """Four blocks of a normalisation, two products and what is fused between them."""
    frame = "Classifier.forward"
    kernels: list[KernelRecord] = []
    nodes = [NodeRecord(**at(27, 22, 23), name="x", op="input", type="f32[32, 512]")]
    last = "x"

    def kernel(
        name: str,
        line: int,
        operators: tuple[str, ...],
        seconds: float,
        kind: str = "kernel",
        **more: Any,
    ) -> str:
        place = at(line, function="Block.forward" if line < 20 else "Classifier.forward")
        values: dict[str, Any] = dict(
            shape="f32[32, 512]",
            reads=65_536,
            writes=65_536,
            flops=131_072,
            samples=37,
            share=0.62,
            bound="memory",
        )
        values |= more
        kernels.append(KernelRecord(
            **place, name=name, frame=frame, graph="graph0", entry=1, kind=kind, operators=operators,
            lines=(Place(**place),), seconds=seconds, source=CPP % name if kind == "kernel" else "", **values))  # fmt: skip
        return name

    def node(name: str, op: str, type_: str, inputs: tuple[str, ...], owner: str, line: int) -> str:
        nodes.append(
            NodeRecord(**at(line), name=name, op=op, type=type_, inputs=inputs, kernel=owner)
        )
        return name

    for n in range(4):
        for weight, type_ in (("up", "f32[2048, 512]"), ("down", "f32[512, 2048]")):
            nodes.append(NodeRecord(name=f"{weight}_{n}", op="input", type=type_))
        norm = kernel(f"k_norm_{n}", 15, ("aten.native_layer_norm.default",), 1.2e-5)
        y = node(f"norm_{n}", "aten.native_layer_norm.default", "f32[32, 512]", (last,), norm, 15)
        up = kernel(f"mm_up_{n}", 16, ("aten.addmm.default",), 2.6e-4, "call", shape="f32[32, 2048]", reads=4_259_840,
                    writes=262_144, flops=67_108_864, share=0.81, bound="compute")  # fmt: skip
        y = node(f"addmm_{2 * n}", "aten.addmm.default", "f32[32, 2048]", (y, f"up_{n}"), up, 16)
        gelu = kernel(f"k_gelu_{n}", 16, ("aten.gelu.default",), 7.1e-5, shape="f32[32, 2048]", share=0.41, unfused=(
            UnfusedRecord(f"mm_down_{n}", "a product of the library reads it whole", "NF702"),))  # fmt: skip
        y = node(f"gelu_{n}", "aten.gelu.default", "f32[32, 2048]", (y,), gelu, 16)
        down = kernel(f"mm_down_{n}", 17, ("aten.addmm.default",), 2.5e-4, "call", reads=4_456_448, flops=67_108_864,
                      share=0.79, bound="compute")  # fmt: skip
        y = node(
            f"addmm_{2 * n + 1}", "aten.addmm.default", "f32[32, 512]", (y, f"down_{n}"), down, 17
        )
        add = kernel(f"k_add_{n}", 17, ("aten.add.Tensor", "aten.mul.Tensor"), 8.0e-6)
        scaled = node(f"mul_{n}", "aten.mul.Tensor", "f32[32, 512]", (y,), add, 17)
        last = node(f"add_{n}", "aten.add.Tensor", "f32[32, 512]", (last, scaled), add, 17)
    head = kernel("mm_head", 30, ("aten.addmm.default",), 2.1e-5, "call", shape="f32[32, 10]")
    scores = node("head", "aten.addmm.default", "f32[32, 10]", (last,), head, 30)
    view = node("view", "aten.view.default", "f32[320]", (scores,), "", 30)
    divide = kernel(
        "k_divide",
        30,
        ("aten.div.Tensor",),
        3.0e-6,
        shape="f32[32, 10]",
        share=0.0,
        bound="overhead",
    )
    nodes.append(
        NodeRecord(
            name="output",
            op="output",
            inputs=(node("div", "aten.div.Tensor", "f32[320]", (view,), divide, 30),),
        )
    )
    return kernels, nodes


def _guards(at: Any, frame: str) -> list[GuardRecord]:
    found = [
        GuardRecord(**at(27), kind="tensor", source="x", text="x is cpu f32[*, 512]", frame=frame, entry=1, path=("x",)),
        GuardRecord(**at(30), kind="value", source="self.temperature", text="self.temperature == 1.0", frame=frame,
                    entry=1, path=("self", ".temperature")),
        GuardRecord(kind="mode", source="", text="gradients are off", frame=frame, entry=1),
    ]  # fmt: skip
    for n in range(4):
        for layer, names in (
            ("norm", ("weight", "bias")),
            ("up", ("weight", "bias")),
            ("down", ("weight", "bias")),
        ):
            for name in names:
                path = ("self", ".blocks", f"[{n}]", f".{layer}", f".{name}")
                text = f"{''.join(path)} is cpu f32[512]"
                found.append(
                    GuardRecord(
                        **at(28),
                        kind="tensor",
                        source="".join(path),
                        text=text,
                        frame=frame,
                        entry=1,
                        path=path,
                    )
                )
    return found


def huge(file: str, kernels: int = 5000, breaks: int = 200) -> Report:
    """More than anybody's program: what the page must open all the same."""
    frame = "storm"
    steps, nodes = [], [NodeRecord(name="x", op="input", type="f32[64]")]
    for n in range(kernels):
        line = 1 + n % 900
        steps.append(KernelRecord(
            file=file, line=line, end_line=line, name=f"kernel_{n}", frame=frame, graph="g", entry=1,
            operators=("aten.mul.Tensor", "aten.sin.default"), lines=(Place(file, line, line),), shape=f"f32[{n}]", reads=n,
            writes=n, flops=3 * n, seconds=(n * 7919 % 1000 + 1) * 1e-6, samples=3, share=(n % 100) / 100, bound="memory",
            source=CPP % f"kernel_{n}"))  # fmt: skip
        nodes.append(NodeRecord(file=file, line=line, end_line=line, name=f"n{n}", op="aten.sin.default", type=f"f32[{n}]",
                                inputs=(nodes[-1].name, nodes[max(0, n - 7)].name), kernel=f"kernel_{n}"))  # fmt: skip
    return made_up(
        "storm",
        frames=[FrameRecord(file, 1, function="storm", frame=frame, entries=1, graphs=1, operators=kernels,
                            kernels=kernels, breaks=breaks, lines=tuple(range(1, 900)))],
        breaks=[
            BreakRecord(file, 4 * n + 2, 4 * n + 2, 4, 9, "storm", code="GB103", title="a value is needed", cure="do not",
                        frame=frame, seconds=n * 1e-6, samples=1)
            for n in range(breaks)
        ],
        kernels=steps,
        graphs=[GraphRecord("g", frame, 1, "O1", "", tuple(nodes))],
        guards=[GuardRecord(kind="tensor", source=f"x[{n}]", text=f"x[{n}] is f32[{n}]", frame=frame, path=("x", f"[{n}]"))
                for n in range(3000)],
        timeline=[Moment(1.0 + n, "capture", f"c{n}", frame, 0.5) for n in range(2000)],
    )  # fmt: skip
