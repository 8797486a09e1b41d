"""CUDA graphs: which programs are launched as one, and why others are not.

`graphed(compiled, graph, inner)` wraps the program in a `runtime.cuda.graphs.Graphed`, or returns
it unchanged: silently if nothing is on a GPU, else with an event that names the reason. `refusal`
decides from what is known before the program runs; the rest is decided when it is recorded. Used
for exec_mode="sink", and at level O2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..ir.graph.nodes import Graph, Meta, Node
from ..ir.ops.checks import leave_unless
from ..ir.passes.defer_writes import put_back
from ..runtime.cuda.graphs import Facts, Graphed
from ..runtime.cuda.streams import CUDA
from ..runtime.events.events import Fallback
from ..runtime.executor.aten_calls import bound_values
from ..runtime.process.session import SESSION
from ..runtime.program.program import Aten, DeviceLaunch, Launch, Otherwise, ProgramSpec
from .programs.compiled import Compiled, Program

Refusal = tuple[str, str]
_DATA = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
# operators that wait for the device, or read its data, without a tag that says so
_WAITING = frozenset((
    "aten._local_scalar_dense", "aten.item", "aten.equal", "aten.is_nonzero", "aten.nonzero",
    "aten.masked_select", "aten.unique_dim", "aten._unique", "aten._unique2",
    "aten.unique_consecutive", "aten.bincount", "aten.histc", "aten.repeat_interleave",
    "aten.multinomial", "aten.linalg_eigh", "aten._linalg_eigh", "aten._linalg_svd",
    "aten.linalg_lstsq", "aten.linalg_eig", "aten.linalg_eigvals", "aten.geqrf", "aten.linalg_qr",
    "aten._assert_scalar", "aten.record_stream", "aten.pin_memory", "aten._pin_memory",
    "aten.is_pinned", "aten.segment_reduce",
))  # fmt: skip
# operators that do so only for masks, not for positions
_PLACES = frozenset((
    "aten.index", "aten.index_put", "aten.index_put_", "aten._unsafe_index",
    "aten._unsafe_index_put",
))  # fmt: skip
_NAMESPACES = ("aten", "prims")


def graphed(compiled: Compiled, graph: Graph, inner: frozenset[int] = frozenset()) -> Program:
    """The program, launched as a whole if possible. `inner`: results that only the library sees."""
    spec, program = compiled.spec, compiled.program
    devices = devices_of(graph)
    here = sorted({one.index or 0 for one in devices if one.type == CUDA.kind})
    if not here:
        return program
    if spec is None or compiled.mode != "fused":
        _say("FB332", f"another program will replace this one ({compiled.mode})")
        return program
    found = refusal(spec, devices) or _by_masks(graph) or _by_overlaps(graph)
    if found is not None:
        _say(*found)
        return program
    return Graphed(program, _facts(spec, graph, here[0], inner), _teller())


def refusal(spec: ProgramSpec, devices: set[torch.device]) -> Refusal | None:
    """The code and the reason why this program is never recorded; None if it may be."""
    kinds = {one.type for one in devices}
    if kinds != {CUDA.kind}:
        others = ", ".join(sorted(kinds - {CUDA.kind}))
        return "FB330", f"a value is on {others}"
    if len({one.index or 0 for one in devices}) > 1:
        return "FB331", f"values are on {', '.join(sorted(map(str, devices)))}"
    for step in spec.steps:
        found = _of_step(step)
        if found is not None:
            return found
    return None


def devices_of(graph: Graph) -> set[torch.device]:
    """The devices of the graph's values."""
    return {meta.device for node in (*graph.inputs, *graph.nodes) for meta in _metas(node)}


def _metas(node: Node) -> Iterator[Meta]:
    for meta in node.meta if isinstance(node.meta, tuple) else (node.meta,):
        if isinstance(meta, Meta):
            yield meta


def _of_step(step: Any) -> Refusal | None:
    if isinstance(step, (Launch, Otherwise)):
        return "FB330", "a kernel runs on the processor"
    return _of_operator(step) if isinstance(step, Aten) else None


def _of_operator(step: Aten) -> Refusal | None:
    op = step.op
    if op is put_back:  # it is a copy
        return None
    if op is leave_unless:
        return "FB332", "a check of tensor data waits for the device"
    if not isinstance(op, torch._ops.OpOverload) or op.namespace not in _NAMESPACES:
        return "FB332", f"the effects of {op} are not known"
    name = str(op.overloadpacket)
    if name in _WAITING or (name not in _PLACES and any(tag in op.tags for tag in _DATA)):
        return "FB332", f"{name} waits for the device"
    values = list(bound_values(op, step.args, step.kwargs))
    if any(isinstance(value, torch.Generator) for value in values):
        return "FB332", f"{name} draws from a random generator of the program"
    if any(isinstance(value, torch.device) and value.type != CUDA.kind for value in values):
        return "FB330", f"{name} makes a tensor on another device"
    return None


def _by_masks(graph: Graph) -> Refusal | None:
    """The refusal of an index that is a mask: its number of positions is the number of true
    elements, which must be read from the device.
    """
    for node in graph.nodes:
        if node.op == "call" and str(getattr(node.target, "overloadpacket", "")) in _PLACES:
            for index in node.args[1]:
                if isinstance(index, Node) and index.meta.dtype in (torch.bool, torch.uint8):
                    return "FB332", f"{node.target.overloadpacket} by a mask waits for the device"
    return None


def _by_overlaps(graph: Graph) -> Refusal | None:
    """The refusal of overlapping inputs: a write to memory does not reach a copy of an input with
    the same memory.
    """
    if any(not set(graph.written).isdisjoint(group) for group in graph.overlaps):
        return "FB333", "an input shares memory with one that is written"
    return None


def _facts(spec: ProgramSpec, graph: Graph, device: int, inner: frozenset[int]) -> Facts:
    given, held = {}, {}
    for at, slot in enumerate(spec.outputs):
        if slot in spec.constants:
            held[at] = spec.constants[slot]
        elif slot < spec.n_inputs and not graph.consumes:
            given[at] = slot
    return Facts(
        device,
        spec.n_inputs,
        tuple(spec.constants.values()),
        given,
        held,
        dict(spec.symbols),
        frozenset(graph.written),
        graph.consumes,
        inner,
        graph.random,
        sum(isinstance(step, (DeviceLaunch, Aten)) for step in spec.steps),
    )


def _say(code: str, reason: str) -> None:
    SESSION.emit(Fallback(code=code, reason=reason))


def _teller() -> Callable[[str, str], None]:
    """Emits a reason that shows while the program runs, as of the frame that is compiled now."""
    owner = SESSION.owner

    def tell(code: str, reason: str) -> None:
        with SESSION.working_for(*owner):
            _say(code, reason)

    return tell
