"""The joint graph: forward and backward of a graph in one trace.

`differentiate(tracer, outputs)` runs torch's own autograd backwards over the ghosts of a trace and
collects the ATen nodes that it records. So the formulas and the refusals are torch's (a value that
was written after autograd saved it, a view that must not be written...). The result is a `Joint`,
which `ir.autograd.partition` divides into a forward and a backward graph, or a `Declined` with the
reason, where only torch's own calls can give a gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CannotTrace
from ..graph.effects import reads, root, writes
from ..graph.layout import gradient_strides
from ..graph.nodes import Meta, Node
from ..ops.region_borders import NO_REGION, again
from ..own_hooks import put_on
from .autocast_cache import casts_now
from .conditional import spans_of
from .conditional_backward import Conditions, Recorded, watched
from .frees import frees_of
from .ghost import Ghost, Store, beginning, make_ghost
from .hidden_results import Hidden, hidden_results
from .inner_results import edge_of, leaves_of, nodes_behind, passed_through
from .joint_graph import HIDDEN, Declined, Joint, Span
from .output_views import NoRoots, roots_of

if TYPE_CHECKING:
    from .tracer import Tracer


def differentiate(tracer: Tracer, outputs: Sequence[Ghost]) -> Joint | Declined:
    """The backward of `outputs`, which belong to the trace. Leaves the trace unchanged."""
    inputs = tracer.entered_inputs()
    try:
        tracer.beside(_histories, outputs)
        roots = roots_of(tracer, outputs)
    except (NoRoots, RuntimeError) as error:
        return Declined(str(error).split(". ")[0])
    ghosts: list[Any] = [roots.ghosts[at] for at in roots.results]
    wanted = _asking(tracer, inputs, ghosts)
    leaves = [beginning(ghost) for at, ghost in inputs if at in wanted]
    spans = spans_of(tracer) if ghosts else ()
    if reason := _why_not(tracer, ghosts, leaves, spans):
        return Declined(reason)
    inner, views_inside = passed_through(outputs, roots.pieces, ghosts)
    inside = [outputs[at] for at in views_inside]
    if isinstance(hidden := _hidden(tracer, ghosts, inner, inside, leaves, spans), Declined):
        return hidden
    made = [*(ghost._node for ghost in ghosts), *(one.node for one in hidden)]
    tangents = _tangents(tracer.n_inputs, [*made, *(ghost._node for ghost in inside)])
    edges = [(one.function, one.number) for one in hidden]
    replaced, ends = [*edges, *map(edge_of, inside)], [*map(edge_of, ghosts), *edges]
    functions = [function for function, _ in ends]
    pieces = *roots.pieces, *(one.node for one in hidden)
    tracer.custom_gradients().clear()
    try:
        places = {id(one): at for one, at in zip(leaves, wanted, strict=True)}
        views = [one.grad_fn for one in inside]
        frees, _ = tracer.beside(frees_of, functions, views, places, tracer.n_inputs)
        passed = _passed_through(ghosts, inner, replaced)
        parts = Conditions(ghosts, spans, passed) if spans else None
        found, arrived, order, nodes = _recorded(tracer, ghosts, replaced, leaves, tangents, parts)
    except (CannotTrace, RuntimeError) as error:
        return Declined(str(error).splitlines()[0])
    if len(ghosts) > 1 and _is_withheld(tracer, tangents, found):
        return Declined("a custom function gives no gradient, and there are several results")
    joint = Joint(
        tuple(nodes),
        pieces,
        (*roots.found, *[HIDDEN for _ in hidden]),
        roots.views,
        roots.given,
        (*roots.results, *range(len(roots.pieces), len(pieces))),
        tuple(tangents),
        wanted,
        found,
        tuple(at for at, ghost in inputs if getattr(ghost, "_is_param", False)),
        tuple(type(one).__name__ for one in functions),
        arrived,
        memory_read(nodes, pieces),
        (*inner, *range(len(ghosts), len(made))),
        frees,
        views_inside,
        tuple(tracer.custom_gradients()),
        casts_now(),
        tuple(map(functions.index, functions)),
        _ranks(functions),
        *_finished(tracer, inputs, functions, map(wanted.__getitem__, order)),
    )
    return joint if parts is None else parts.told(joint, leaves, ends)


def _hidden(
    tracer: Tracer,
    ghosts: Sequence[Any],
    inner: Iterable[int],
    inside: Sequence[Any],
    leaves: Sequence[Any],
    spans: Sequence[Span],
) -> tuple[Hidden, ...] | Declined:
    # What is differentiated twice has a node for all of its first gradients. What results share
    # inside of a part that data skip cannot be a result.
    apart = () if tracer.of_gradients or spans else leaves
    further = [leaf for leaf in apart if not getattr(leaf, "_is_param", False)]
    try:
        return hidden_results(tracer, ghosts, inner, inside, further)
    except CannotTrace as error:
        return Declined(str(error))


def _recorded(
    tracer: Tracer,
    ghosts: Sequence[Any],
    replaced: Sequence[tuple[Any, int]],
    leaves: Sequence[Any],
    tangents: Sequence[Node],
    parts: Conditions | None,
) -> tuple[Any, Any, Any, Sequence[Node]]:
    """What `_backward` finds beside the trace, and all nodes, in `parts`."""
    if parts is not None:
        tracer.beside(_observed, parts, ghosts, leaves, tangents)
    recorded = parts and Recorded(tracer, parts, tangents)
    made, nodes = tracer.beside(_backward, ghosts, replaced, leaves, tangents, recorded)
    found, arrived, order, ordered = made
    return found, arrived, order, nodes if ordered is None else ordered


def _passed_through(
    ghosts: Sequence[Any], inner: Iterable[int], replaced: Iterable[tuple[Any, int]]
) -> list[tuple[int, Any]]:
    """(number, node of autograd) of the results that others depend on."""
    further = enumerate((function for function, _ in replaced), len(ghosts))
    return [*((at, ghosts[at].grad_fn) for at in inner), *further]


def _finished(
    tracer: Tracer,
    inputs: Sequence[tuple[int, Ghost]],
    functions: Sequence[Any],
    some: Iterable[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those of some inputs that are leaves, and what `_givers` says of them."""
    starts, finished = dict(inputs), _without_history(inputs, some)
    return finished, tracer.beside(_givers, functions, [starts[at] for at in finished])[0]


def _without_history(inputs: Iterable[tuple[int, Ghost]], some: Iterable[int]) -> tuple[int, ...]:
    """Those of some inputs that are leaves."""
    own = {at for at, ghost in inputs if beginning(ghost) is ghost}
    return tuple(at for at in some if at in own)


def _ranks(functions: Sequence[Any]) -> tuple[int, ...]:
    """The rank of each node of autograd by sequence number."""
    ages = [one._sequence_nr() for one in functions]
    return tuple(map(sorted(ages).index, ages))


def _givers(_owner: Any, functions: Sequence[Any], leaves: Sequence[Ghost]) -> tuple[int, ...]:
    """For each leaf the rank of the node that gives it the last part of its gradient: autograd runs
    the node with the least sequence number last."""
    found: dict[int, list[Any]] = {id(leaf): [] for leaf in leaves}
    for node in nodes_behind(functions):
        for one, _ in getattr(node, "next_functions", ()):
            found.get(id(getattr(one, "variable", None)), []).append(node)
    last = [min(found[id(leaf)], key=lambda one: one._sequence_nr()) for leaf in leaves]
    return _ranks(last)


def _asking(
    tracer: Tracer, inputs: Sequence[tuple[int, Ghost]], results: Sequence[Ghost]
) -> tuple[int, ...]:
    """The inputs that get a gradient, by position: those that require one and that autograd reaches
    from a result, or whose history the graph replaces."""
    if not results:
        return ()
    found, _ = tracer.beside(lambda _owner: leaves_of(results))
    reached = set(map(id, found))
    written = {at for at, _ in tracer.rewritten()}
    asking = [(at, beginning(ghost)) for at, ghost in inputs if tracer.wants_gradient(at)]
    return tuple([at for at, leaf in asking if id(leaf) in reached or at in written])


def _tangents(first: int, nodes: Sequence[Node]) -> list[Node]:
    """The gradients of these values, as inputs numbered from `first` on."""
    return [
        Node("input", first + k, meta=_tangent(node.meta), name=f"g{k}")
        for k, node in enumerate(nodes)
    ]


def memory_read(
    nodes: Iterable[Node],
    pieces: Sequence[Node],
    tangents: Iterable[Node] = (),
    arguments: Sequence[Collection[Node]] = (),
) -> frozenset[Node]:
    """The memory of inputs, constants and pieces that autograd saves for these nodes of a backward:
    what they read, but of what regions read only the `arguments` of these regions, all of them. A
    gradient that passes through a region is not read by it."""
    memory, read = {root(node) for node in pieces}, set[Node]()
    gradients = set(map(root, tangents))
    for node in nodes:
        operands = set(map(root, reads(node)))
        if not gradients.isdisjoint(operands):
            gradients.update(map(root, (node, *writes(node))))
        elif node.target is again and node.args[1] != NO_REGION:
            read.update(arguments[node.args[1]])
        if node.target is not again:
            read |= operands
    return frozenset(one for one in read if one.op in ("input", "constant") or one in memory)


def _why_not(
    tracer: Tracer, ghosts: Sequence[Ghost], leaves: Sequence[Ghost], spans: Sequence[Span]
) -> str:
    if tracer.differentiable_constants():
        return "a tensor that requires a gradient is not an argument of the graph"
    # The program made the leaf itself.
    if ghosts and not leaves:
        return "no input requires a gradient"
    if _needs_another(ghosts, leaves):
        return "the gradients of a result are those of leaves that the function makes"
    if spans and tracer.rewritten():
        return "parts that data skip, and an argument that is written"
    return ""


def _is_withheld(tracer: Tracer, tangents: Sequence[Node], found: Sequence[Node | None]) -> bool:
    """Whether a custom function gives no gradient where what autograd runs may depend on that."""
    custom = tracer.custom_gradients()
    # Autograd runs what is behind an argument without a gradient, and the backward of a further
    # custom function may make a gradient of nothing.
    withheld = len(custom) > 1 and tracer.gradients_withheld()
    return withheld or bool(custom and not _all_reach(tangents, found))


def _all_reach(tangents: Sequence[Node], gradients: Sequence[Node | None]) -> bool:
    """Whether each tangent reaches a gradient."""
    pending = [node for node in gradients if node is not None]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += reads(node)
    return seen.issuperset(tangents)


def _needs_another(ghosts: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Whether one of these results depends on other leaves alone."""
    known = set(map(id, leaves))
    if known.issuperset(map(id, leaves_of(ghosts))):
        return False
    return any(known.isdisjoint(map(id, leaves_of([ghost]))) for ghost in ghosts)


def used_up(tracer: Tracer, outputs: Sequence[Ghost]) -> tuple[tuple[int, str], ...] | None:
    """(position, node name) of the outputs whose history a backward in the trace has used up.

    None if one of the outputs with a history can still run a backward.
    """
    found = []
    for at, ghost in enumerate(outputs):
        if not ghost.requires_grad or ghost._node.op == "input":
            continue
        try:
            if ghost.grad_fn is None:
                return None
            tracer.beside(_again, ghost, leaves_of([ghost]))
        except RuntimeError as error:
            if "a second time" not in str(error):
                return None
        except CannotTrace:
            return None
        else:
            return None
        found.append((at, type(ghost.grad_fn).__name__))
    return tuple(found)


def _again(_owner: Any, ghost: Ghost, leaves: Sequence[Any]) -> None:
    torch.autograd.grad(
        ghost, leaves, torch.empty_like(ghost), retain_graph=True, allow_unused=True
    )


def _histories(owner: Any, outputs: Sequence[Ghost]) -> None:
    # Inside the trace: if a view's base was written since, torch makes (or refuses) its `grad_fn`
    # on first access.
    for ghost in outputs:
        if ghost._is_view() and ghost.requires_grad:
            _ = ghost.grad_fn


def _tangent(meta: Meta) -> Meta:
    """The Meta of a gradient: the strides of its tensor where that is dense."""
    stride = gradient_strides(meta.shape, meta.stride)
    return Meta(meta.shape, stride, meta.dtype, meta.device)


def _backward(
    owner: Any,
    outputs: Sequence[Ghost],
    replaced: Sequence[tuple[Any, int]],
    leaves: Sequence[Ghost],
    tangents: Sequence[Node],
    parts: Recorded | None = None,
) -> tuple[tuple[Node | None, ...], tuple[Node | None, ...], list[int], list[Node] | None]:
    """The nodes of the gradients of `leaves`, and of the whole gradients of `outputs` and of the
    tensors at the edges `replaced` of autograd's graph; and the leaves, by position, in the order
    in which their gradients are finished; and all nodes, in `parts`. What comes before such a
    tensor gets its tangent in place of its gradient."""
    given = [make_ghost(owner, node, node.meta, Store(fresh=False)) for node in tangents]
    if not outputs:
        return (), (), [], None
    arrived: dict[int, Node] = {}
    order: list[int] = []

    def arrives(at: int, gradient: Any) -> None:
        arrived[at] = gradient._node

    def exchanged(at: int, number: int, gradients: Sequence[Any]) -> Any:
        if gradients[number] is None:
            return None
        arrived[at] = gradients[number]._node
        return *gradients[:number], given[at], *gradients[number + 1 :]

    def finished(at: int, _gradient: Any) -> None:
        order.append(at)

    hooks = [put_on(leaf.register_hook, partial(finished, at)) for at, leaf in enumerate(leaves)]
    hooks += [
        put_on(ghost.register_hook, partial(arrives, at))
        for at, ghost in enumerate(outputs)
        if len(given) > 1 and not ghost.is_leaf
    ]
    hooks += [
        put_on(function.register_prehook, partial(exchanged, at, number))
        for at, (function, number) in enumerate(replaced, len(outputs))
    ]
    hooks += [] if parts is None else watched(parts.conditions, parts.begun, parts.done)
    try:
        found = _run(outputs, given[: len(outputs)], leaves)
    finally:
        for hook in hooks:
            hook.remove()
    return (
        tuple(None if ghost is None else ghost._node for ghost in found),
        tuple(arrived.get(at) for at in range(len(given))),
        order,
        None if parts is None else parts.nodes(),
    )


def _run(outputs: Sequence[Any], given: Sequence[Any], leaves: Sequence[Any]) -> Any:
    # As torch.autograd.grad, without its check of shapes, which imports sympy (a second).
    return torch.autograd.graph._engine_run_backward(
        tuple(outputs), tuple(given), True, False, tuple(leaves), True, accumulate_grad=False
    )


def _observed(
    owner: Any,
    parts: Conditions,
    outputs: Sequence[Ghost],
    leaves: Sequence[Ghost],
    tangents: Sequence[Node],
) -> None:
    """Let `parts` find out what runs when."""
    given = [make_ghost(owner, node, node.meta, Store(fresh=False)) for node in tangents]
    hooks = watched(parts, *parts.observed())
    try:
        _run(outputs, given[: len(outputs)], leaves)
    finally:
        for hook in hooks:
            hook.remove()
