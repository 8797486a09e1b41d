"""In-place results: a kernel writes a result over an operand that no later step reads, such as the
activation after a product, or a softmax over scores.

`schedule.plan` calls `chosen(...)` for a plan whose workspace is known. It returns for each such
result the tensor whose memory it takes, and the kernels with those buffers marked. The law: every
load of an element comes before the store to it, in every pass. That holds if all loads of the
operand and the only store of the result have one index, which meets each element once, and no pass
after the first one that writes there loads the operand. Memory that a caller can see, or that
something may hold, is never overwritten: operands are results of graftjit's kernels, or of a short
list of operators that always allocate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ..analysis.dataflow import Flow
from ..build import cxx
from ..cpp import renderer
from ..cpp.loop_plan import lane_count
from ..loops import loop_nest
from ..loops.extents import product
from ..loops.kernel import Kernel
from ..loops.loop_nest import LoopNest

# operators whose (first) result always has memory of its own
_FRESH = frozenset((
    "aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default",
    "aten.convolution.default", "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten.cat.default", "aten.embedding.default", "aten.max_pool2d_with_indices.default",
    "aten.avg_pool2d.default", "aten._adaptive_avg_pool2d.default",
    "aten.native_batch_norm.default", "mkldnn._linear_pointwise.default",
    "mkldnn._convolution_pointwise.default", "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d_backward.default", "aten._adaptive_avg_pool2d_backward.default",
    "aten.native_batch_norm_backward.default", "aten.native_layer_norm_backward.default",
    "aten.native_group_norm_backward.default",
))  # fmt: skip
# operators for which that holds for these results; results that were not requested are None
_ALL_FRESH = {
    "aten.convolution_backward.default": (0, 1, 2),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (0, 1, 2),
}

Steps = Sequence[Kernel | Node]
# (kernel, result, operand) -> whether the result may take the operand's memory
Answers = dict[tuple[str, Node, Node], bool]


def chosen(
    steps: Steps, flow: Flow, scratch: frozenset[Node], answers: Answers
) -> tuple[list[Kernel | Node], dict[Node, Node]]:
    """(the steps, result -> the operand whose memory it takes). `answers` are those of other orders
    of the same steps.
    """
    last, made = _last_readers(steps, flow), _makers(steps)
    outputs = {root(node) for node in flow.graph.outputs}
    stored = Counter(node for step in steps if isinstance(step, Kernel) for node in step.stores)
    once = {node for node, times in stored.items() if times == 1}
    over: dict[Node, Node] = {}
    found: list[Kernel | Node] = []
    for position, step in enumerate(steps):
        apart = isinstance(step, Kernel) and (step.host is not None or step.nest.scatters)
        if not isinstance(step, Kernel) or step.nest.may_fail or apart:
            found.append(step)
            continue
        free = [
            node for node in step.reads
            if last.get(node) == position and node not in outputs and node not in flow.written
            and (node in once or is_own(node))
        ]  # fmt: skip
        # The latest first: equal layers then have equal kernels; the first layer reads a tensor of
        # the caller.
        free.sort(key=lambda node: -made[node if node in made else node.args[0]])
        pairs = []
        for node in step.stores if free else ():
            if node not in once or node in flow.written:
                continue
            for given in free:
                visible = node in outputs and not same_layout(node.meta, given.meta)
                if (
                    not visible
                    and _lies_well(node, given, scratch)
                    and _known(step, node, given, answers)
                ):
                    over[node] = given
                    pairs.append((step.reads.index(given), _buffer_of(step, node)))
                    free.remove(given)
                    break
        found.append(_marked(step, pairs) if pairs else step)
    return found, over


def stored(steps: Steps) -> tuple[frozenset[Node], list[Kernel | Node]]:
    """(the inputs that some kernel reads and writes against the law, the steps with the lawful ones
    marked).
    """
    lawless: set[Node] = set()
    found: list[Kernel | Node] = []
    known: dict[Any, bool] = {}  # for equal kernels the answer is the same
    for step in steps:
        both = set(step.stores).intersection(step.reads) if isinstance(step, Kernel) else ()
        pairs = []
        for node in both:
            assert isinstance(step, Kernel)
            place = step.reads.index(node), step.stores.index(node)
            key = step.device.type, step.nest.content, place, node.meta.shape
            if key not in known:
                known[key] = _may(step, node, node)
            if known[key]:
                pairs.append((place[0], _buffer_of(step, node)))
            else:
                lawless.add(node)
        found.append(_marked(step, pairs) if pairs else step)  # type: ignore[arg-type]
    return frozenset(lawless), found


def _last_readers(steps: Steps, flow: Flow) -> Mapping[Node, int]:
    last: dict[Node, int] = {}
    for position, step in enumerate(steps):
        used: Iterable[Node] = step.uses if isinstance(step, Kernel) else map(root, reads(step))
        last.update((node, position) for node in used)
    return last


def _makers(steps: Steps) -> Mapping[Node, int]:
    """Node -> the position of the step that makes it; a `get` of an operator's results has the
    position of the operator.
    """
    found: dict[Node, int] = {}
    for position, step in enumerate(steps):
        made = step.stores if isinstance(step, Kernel) else (step,)
        for node in made:
            found.setdefault(node, position)
    return found


def is_own(node: Node) -> bool:
    """Whether this is a result of an operator that always allocates it."""
    if node.op == "get":
        name = str(node.args[0].target)
        return node.target in _ALL_FRESH.get(name, (0,) if name in _FRESH else ())
    plain = node.op == "call" and node.alias is None and isinstance(node.meta, Meta)
    return plain and str(node.target) in _FRESH


def same_layout(one: Meta, other: Meta) -> bool:
    """Whether a result over this operand is the same tensor, not a view of it."""
    return one.shape == other.shape and one.stride == other.stride


def _lies_well(node: Node, given: Node, scratch: frozenset[Node]) -> bool:
    """Whether the memory fits: an allocated result does not get memory of the workspace, which ends
    with the program.
    """
    return (
        given not in scratch or node in scratch
    ) and root(given) is given and node.meta.dtype == given.meta.dtype  # fmt: skip


def _buffer_of(kernel: Kernel, node: Node) -> int:
    return len(kernel.reads) + kernel.stores.index(node)


def _known(kernel: Kernel, node: Node, given: Node, answers: Answers) -> bool:
    asked = kernel.nest.name, node, given
    if asked not in answers:
        answers[asked] = _may(kernel, node, given)
    return answers[asked]


def _may(kernel: Kernel, node: Node, given: Node) -> bool:
    """Whether the kernel keeps the law of this file if `node` has the memory of `given`."""
    nest = kernel.nest
    source, target = kernel.reads.index(given), _buffer_of(kernel, node)
    sizes = nest.outer + nest.inner
    stores = [store for store in nest.stores if store.buffer == target]
    loads = [
        value for value in nest.values if value.op in loop_nest.LOADS and value.attr[0] == source
    ]
    index = stores[0].index
    counted = sizes if nest.moves_inner(index) else nest.outer
    covers = product(counted) == product(node.meta.shape) == product(given.meta.shape)
    still = any(
        not is_symbolic(stride) and stride == 0
        for stride, size in zip(index.strides, counted, strict=False)
        if size != 1
    )
    if len(stores) > 1 or not covers or still:
        return False
    if any(value.args or value.attr[1] != index for value in loads):
        return False
    if kernel.device.type != "cpu":
        return not still and _each_by_one(nest, source, target, index)
    return _in_turn(nest, source, target)


def _each_by_one(nest: LoopNest, source: int, target: int, index: loop_nest.Index) -> bool:
    """On a GPU: whether the thread that stores an element also loads it, and no pass after the one
    that stores loads it.

    Threads share values of a row.
    """
    moves = all(
        is_symbolic(stride) or stride
        for stride, size in zip(index.strides, nest.outer + nest.inner, strict=True)
        if size != 1
    )
    phase = loop_nest.phases(nest)
    first = min(phase[store.value] for store in nest.stores if store.buffer == target)
    later = (n for n, value in enumerate(nest.values) if value.op == "reduce" and phase[n] > first)
    seen = {
        nest.values[number].attr[0]
        for fold in later
        for number in loop_nest.needed(nest, nest.values[fold].args)
        if nest.values[number].op in loop_nest.LOADS
    }
    scans = any(value.op == "scan" for value in nest.values)
    others = [s for s in nest.stores if s.buffer != target and phase[s.value] > first]
    read_later = any(_loads(nest, store.value, source) for store in others)
    return moves and not scans and source not in seen and not read_later


def _loads(nest: LoopNest, value: int, buffer: int) -> bool:
    found = (nest.values[number] for number in loop_nest.needed(nest, [value]))
    return any(one.op in loop_nest.LOADS and one.attr[0] == buffer for one in found)


def _in_turn(nest: LoopNest, source: int, target: int) -> bool:
    """Whether no pass loads the operand after the first pass that writes over it."""
    written = renderer.Kernel(nest, lane_count(nest, cxx.vector_bytes()))
    if written.plan.tile is not None or written.plan.split:
        return False
    begun = False
    for one in written.passes:
        values = (nest.values[number] for number in one.body)
        if begun and any(v.op in loop_nest.LOADS and v.attr[0] == source for v in values):
            return False
        kept = [written.homes[number] for number in one.keeps if number in written.homes]
        begun = begun or any(store.buffer == target for store in (*one.stores, *kept))
    return True


def _marked(kernel: Kernel, pairs: list[tuple[int, int]]) -> Kernel:
    marked = {number for pair in pairs for number in pair}
    buffers = tuple(
        replace(buffer, shared=True) if number in marked else buffer
        for number, buffer in enumerate(kernel.nest.buffers)
    )
    return replace(kernel, nest=replace(kernel.nest, buffers=buffers))
