"""GPU kernels of a plan: their text, the fallback of those without a text, and their launches.

`write(made, world)` renders each kernel on a cuda device as Triton, in several launches if a long
reduction is split or elements are scattered. Kernels that the renderer refuses stay ATen's: the
plan is made again without their operators, and an event names kernel and reason. Equal kernels
share one text, named after its heaviest operator and a digest, not after the plan's kernel. `load`
gets the kernels from `codegen.triton.cubins`; `codegen.schedule.plan` writes the steps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.graph.effects import root
from ...ir.graph.nodes import Meta, Node
from ...runtime.errors import BuildError
from ...runtime.events.events import Fallback
from ...runtime.process import hardware
from ...runtime.process.session import SESSION
from ...runtime.program.program import DeviceLaunch
from ..loops.kernel import Kernel
from ..loops.loop_nest import LoopNest
from ..plan_cache import serialize
from ..triton import column_folds, compiler, matmul_fusion, one_hot, renderer, scatter
from ..triton.matmul import Configuration
from ..triton.matmul_fusion import Hosts
from ..triton.renderer import TritonKernel
from ..triton.split_reduction import Split, split
from ..triton.teams import team
from ..triton.tiling import Tiling
from . import inplace, plan

LETTERS = {"i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
# the number of plans that are made for kernels without a text; the last one leaves all kernels to
# ATen
ATTEMPTS = 8
TEXT_NAME = "kernel"


@dataclass(frozen=True, slots=True)
class Part:
    """One launch of a planned kernel.

    key        of its text
    operands   the numbers of its buffers among those of the planned kernel, followed by the
               buffers that parts hand to each other
    looked_at  positions among these of pointers whose alignment the launch tests
               (`DeviceLaunch.aligned`)
    """

    key: str
    text: TritonKernel
    operands: tuple[int, ...]
    looked_at: tuple[int, ...] = ()
    loaded: Any = None  # cubins.Loaded, or its placeholder in a kept plan

    def step(
        self, slots: tuple[int, ...], device: torch.device, writes: tuple[int, ...]
    ) -> DeviceLaunch:
        text, loaded = self.text, self.loaded
        kinds = "".join(LETTERS[kind] for _name, kind in text.arguments if kind in LETTERS)
        return DeviceLaunch(
            text.name,
            loaded.function,
            tuple([slots[one] for one in self.operands]),
            device,
            text.programs,
            loaded.threads,
            loaded.shared,
            loaded.hidden,
            text.numbers,
            kinds,
            loaded.keep,
            writes,
            self.looked_at,
            serialize.General(text, self.looked_at, device) if self.looked_at else None,
        )


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The launches for one planned kernel. `partial`: bytes of each buffer between its parts."""

    parts: tuple[Part, ...]
    partial: tuple[Any, ...] = ()


@dataclass(slots=True)
class Written:
    """The GPU kernels of a plan: launches by kernel name, texts by their keys."""

    launches: dict[str, OnDevice] = field(default_factory=dict)
    capabilities: dict[str, int] = field(default_factory=dict)  # key -> that of the device

    @property
    def texts(self) -> dict[str, TritonKernel]:
        return {part.key: part.text for one in self.launches.values() for part in one.parts}

    def add(self, name: str, found: OnDevice, gpu: Gpu) -> None:
        """Register the launches of the kernel with this name."""
        self.launches[name] = found
        for part in found.parts:
            self.capabilities[part.key] = gpu.capability

    def plain(self) -> dict[str, Any]:
        """The form of the kernels in a kept plan: texts by key, and the keys of each kernel."""
        return {
            "texts": self.texts,
            "capabilities": dict(self.capabilities),
            "of": {name: [part.key for part in one.parts] for name, one in self.launches.items()},
        }

    def bound(self, to: Mapping[str, Any]) -> dict[str, OnDevice]:
        """The launches with loaded kernels, by key."""
        return {
            name: replace(
                one, parts=tuple([replace(part, loaded=to[part.key]) for part in one.parts])
            )
            for name, one in self.launches.items()
        }


@dataclass(frozen=True, slots=True)
class Gpu:
    """The facts about a device that kernels are written for. `capability`: 90 is sm_90."""

    capability: int
    multiprocessors: int


def world(device: torch.device) -> Gpu:
    """The facts about this device."""
    found = hardware.gpu(device)
    return Gpu(10 * found.capability[0] + found.capability[1], found.multiprocessors)


# --- texts ---


def write(made: plan.Plan, of: Any = None) -> tuple[plan.Plan, Written]:
    """The plan in which each kernel on a GPU has a text, and the texts. `of`: device -> Gpu."""
    of = of or world
    for attempt in range(ATTEMPTS):
        written, failed = _attempt(made, of)
        if not failed:
            return made, written
        for kernel, reason in failed:
            SESSION.emit(Fallback(code="FB318", reason=f"{kernel.nest.name}: {reason}"))
        last = attempt == ATTEMPTS - 2
        left = [one for one in made.kernels if one.device.type == "cuda"] if last else None
        refused = left if left is not None else [kernel for kernel, _reason in failed]
        made = plan.without(made, {node for kernel in refused for node in kernel.nodes})
    raise BuildError("kernels for the GPU could not be generated", found=made.graph.name)


def refuse(made: plan.Plan, written: Written, failed: Mapping[str, str]) -> plan.Plan:
    """The plan without the kernels whose texts failed to compile; `failed`: name of the text ->
    reason.
    """
    nodes: set[Node] = set()
    for kernel in made.kernels:
        on_gpu = written.launches.get(kernel.nest.name)
        for part in () if on_gpu is None else on_gpu.parts:
            if part.text.name in failed:
                nodes.update(kernel.nodes)
                reason = failed[part.text.name].splitlines()[0]
                SESSION.emit(Fallback(code="FB318", reason=f"{kernel.nest.name}: {reason}"))
    return plan.without(made, nodes)


def _attempt(made: plan.Plan, of: Any) -> tuple[Written, list[tuple[Kernel, str]]]:
    written, failed = Written(), []
    fresh = aligned_memory(made)
    for kernel in made.kernels:
        if kernel.device.type != "cuda":
            continue
        gpu = of(kernel.device)
        try:
            found = on_device(kernel, gpu, fresh, made.hosts)
        except KeyError as error:
            failed.append((kernel, f"graftjit has no Triton code for {error}"))
        except BuildError as error:
            failed.append((kernel, _words(error)))
        else:
            written.add(kernel.nest.name, found, gpu)
    return written, failed


def _words(error: BuildError) -> str:
    return str(error).splitlines()[0]


def on_device(kernel: Kernel, gpu: Gpu, fresh: frozenset[Node], hosts: Hosts) -> OnDevice:
    """The launches of one kernel. Raises KeyError or BuildError."""
    nodes = matmul_fusion.given(kernel)
    aligned = {at for at, node in enumerate(nodes) if node in fresh}
    looked_at = {at for at, node in enumerate(nodes) if node not in fresh and _likely(node)}
    aligned |= looked_at
    everything = tuple(range(len(nodes)))

    def of(nest: LoopNest, places: tuple[int, ...], programs: int = 0) -> Part:
        here = [place for place, one in enumerate(places) if one in aligned]
        tiling = nest.hints.tiling or Tiling()
        text = renderer.render(anonymous(nest), aligned=here, tiling=tiling, programs=programs)
        return _part(text, kernel.nest.name, places, gpu, looked_at)

    if kernel.host is not None:
        text = hosted(kernel, hosts[kernel.host].way, aligned)
        return OnDevice((_part(text, kernel.nest.name, everything, gpu, looked_at),))
    if kernel.nest.scatters:
        several = scatter.split(kernel.nest)
        return OnDevice(tuple([of(one.nest, one.buffers) for one in several]))
    nest, programs = one_hot.known(kernel.nest), 0
    parts: Split | None
    if nest.folds_across:
        parts, programs = column_folds.split(nest, gpu.multiprocessors)
    else:
        parts = team(nest, gpu.multiprocessors) or split(nest, gpu.multiprocessors)
    if parts is None:
        return OnDevice((of(nest, everything),))
    aligned.update(range(len(nodes), len(nodes) + len(parts.between)))
    pairs = zip(parts.nests, parts.places, strict=True)
    found = [of(nest, places, programs * nest.folds_across) for nest, places in pairs]
    return OnDevice(tuple(found), tuple(one.size * one.dtype.itemsize for one in parts.between))


def hosted(kernel: Kernel, way: Configuration, aligned: Collection[int] = ()) -> TritonKernel:
    """The text of a product and its epilogue."""
    return matmul_fusion.text(kernel, anonymous(kernel.nest), way, aligned)


def _part(
    text: TritonKernel, name: str, operands: tuple[int, ...], gpu: Gpu, looked_at: Collection[int]
) -> Part:
    """A launch of a text that was written under the name `TEXT_NAME`."""
    facts = (text.source, text.arguments, sorted(text.constants.items()), text.aligned, text.warps,
             text.stages, text.fp_fusion, text.debug, text.registers)  # fmt: skip
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=5).hexdigest()
    name = f"{re.sub('^k[0-9]+_', '', name)}_{digest}"
    source = text.source.replace(f"def {TEXT_NAME}(", f"def {name}(")
    text = replace(text, name=name, source=source)
    look = tuple([place for place, one in enumerate(operands) if one in looked_at])
    return Part(f"{name}:{gpu.capability}", text, operands, look)


def anonymous(nest: LoopNest) -> LoopNest:
    """The same nest under names that equal kernels share."""
    counts = {"in": 0, "out": 0}
    buffers = []
    for buffer in nest.buffers:
        kind = "out" if buffer.written else "in"
        buffers.append(replace(buffer, name=f"{kind}{counts[kind]}"))
        counts[kind] += 1
    return replace(nest, name=TEXT_NAME, covers=(), buffers=tuple(buffers))


def aligned_memory(made: plan.Plan) -> frozenset[Node]:
    """Memory that certainly begins at a multiple of 16 bytes: results of graftjit's kernels, and of
    operators that always allocate.

    For inputs and constants this is unknown: the launch tests it (`_likely`).
    """
    found: set[Node] = set()
    for step in made.steps:
        if isinstance(step, Kernel):
            found.update(node for node in step.stores if node.op != "input")
            found.update(
                node for node in step.reads
                if inplace.is_own(node) and root(node) is node and _begins(node)
            )  # fmt: skip
    return frozenset(found)


def _begins(node: Node) -> bool:
    return isinstance(node.meta, Meta) and type(node.meta.offset) is int and node.meta.offset == 0


def _likely(node: Node) -> bool:
    """Whether a caller's memory is aligned if its storage is, as that of torch's allocator is.
    There are no wide loads of a single element.
    """
    meta = node.meta
    if not isinstance(meta, Meta) or type(meta.offset) is not int:
        return False
    alone = all(type(size) is int and size == 1 for size in meta.shape)
    return not alone and meta.offset * meta.dtype.itemsize % compiler.ALIGNMENT == 0


# --- kernels ---


def load(
    written: Written, name: str, covers: tuple[str, ...], stored: bool = False
) -> dict[str, Any]:
    """The kernels, built or found, by key.

    Raises BuildError, or NotBuilt if a kernel would have to be built and `stored` forbids it.
    """
    return serialize.load_kernels(written.texts, written.capabilities, name, covers, stored)
