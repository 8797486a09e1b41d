"""`backward()` inside a frame, and `.grad` of the leaves that it fills.

In: a call of `Tensor.backward`, `torch.autograd.backward` or `torch.autograd.grad`. Out: the
gradients as values of the graph: torch's own autograd runs backwards over the ghosts, recorded as
one call. `.grad` of a leaf is an attribute like any other: read under a guard, kept beside the real
tensor, written after the graph. A break is everything that others can observe during the backward:
hooks, and a history from outside the graph.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.layout import gradient_strides, is_dense
from ...ir.own_hooks import put_on
from ...ir.trace.ghost import Ghost
from ...ir.trace.inner_results import leaves_of
from ...ir.trace.quiet_views import is_tied, quiet_way
from ...ir.trace.reentrant import asked
from ...runtime.guards import leaves as real_leaves
from ...runtime.guards import tensor_access
from ...runtime.guards.sources import Source
from ..breaks import Break, ReadsHistory
from ..bytecode.node_reads import reads_node
from ..data_model.attribute_stores import STORES
from ..values.containers import NotConstant, as_constant, sequence_items, share
from ..values.effects import SetAttr
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Sequence, Tensor, Value, is_none
from . import calls
from .nested_traces import require_history

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB114"
_QUIET = "a backward to a view that was made without grad mode"


# -- .grad -----------------------------------------------------------------------------------------
def read(m: Machine, value: Tensor) -> Value:
    """value.grad"""
    stored = m.heap.overlay.get(value, {}).get("grad")
    if stored is not None:
        return stored
    if value.source is None:
        if value.ghost.requires_grad and not _made_leaf(m, value):
            raise Break(_CODE, "Tensor.grad of a tensor that the frame has made")
        return NONE
    _require_leaf(value)
    return m.wrap(real_leaves.gradient(value.origin), Source("grad", value.source, None))


def write(m: Machine, value: Tensor, item: Value | None) -> None:
    """value.grad = item; a deletion (None) equals a store of None."""
    item = NONE if item is None else item
    if value.source is None and not _made_leaf(m, value):
        raise Break(_CODE, "Tensor.grad of a tensor that the frame has made is set")
    if value.source is not None:
        _require_leaf(value)
    if isinstance(item, Tensor):
        _require_fit(value, item)
    elif not is_none(item):
        raise Break(_CODE, "Tensor.grad is set to a value that is not a tensor")
    elif (
        value.source is not None
        and not m.root_tracer.n_nodes
        and "grad" not in m.heap.overlay.get(value, {})
    ):
        m.journal.cleared.append(value)
    _put(m, value, item)


def _put(m: Machine, value: Tensor, item: Value) -> None:
    m.activity += 1
    m.heap.overlay.setdefault(value, {})["grad"] = item
    if value.source is None:
        note_own(m, value)
        return
    # Nothing runs between the effects that could observe an intermediate value.
    m.journal.effects[:] = [
        one
        for one in m.journal.effects
        if not (isinstance(one, SetAttr) and one.obj is value and one.name == "grad")
    ]
    m.journal.effects.append(SetAttr(value, "grad", item))


def is_leaf(m: Machine, value: Tensor) -> bool:
    """Whether a tensor has no history, where the walk can tell."""
    if m.inner or m.modes:
        raise Break(_CODE, "Tensor.is_leaf in a transform or under a mode")
    needs = calls.tensor_attr(m, value, "requires_grad")
    if isinstance(needs, Const) and needs.value is False:
        return True
    if value.source is not None:
        raise Break(_CODE, "Tensor.is_leaf of an input that requires a gradient")
    return _without_history(m, value)


def _made_leaf(m: Machine, value: Tensor) -> bool:
    """Whether this is a leaf that the frame has made."""
    return value.source is None and value.ghost.requires_grad and _without_history(m, value)


def _without_history(m: Machine, value: Tensor) -> bool:
    """Whether no node of autograd makes a tensor. After a write to the base of a view, a read of
    `grad_fn` makes the view's node anew, by operators on ghosts."""
    found: bool = m.tracer.beside(lambda _owner: value.ghost.grad_fn is None)[0]
    return found


def _require_leaf(value: Tensor) -> None:
    if not value.origin.is_leaf:
        raise Break(_CODE, "Tensor.grad of a tensor with a history")
    if type(value.origin) not in real_leaves.PLAIN:
        raise Break(_CODE, f"Tensor.grad of a {type(value.origin).__name__}")


def _require_fit(value: Tensor, item: Tensor) -> None:
    """torch's own requirements on a gradient, and the layout of its tensor."""
    ours, theirs = item.ghost, value.ghost
    if ours is theirs:
        raise Break("GB108", "Tensor.grad is set to the tensor itself")
    if value.source is not None and real_leaves.recast(value.origin):
        raise Break(_CODE, "Tensor.grad of a tensor with a grad_dtype is set")
    facts = [(t.dtype, t.device, t.shape, t.stride()) for t in (ours, theirs)]
    if facts[0] != facts[1]:
        raise Break(_CODE, "Tensor.grad is set to a tensor of another kind")


# -- .requires_grad --------------------------------------------------------------------------------
def require(m: Machine, value: Tensor, args: Args, kwargs: Kwargs) -> Value:
    """value.requires_grad_(requires_grad=True), on a tensor that the frame has made"""
    given = dict(zip(("requires_grad",), args, strict=False)) | kwargs
    if len(args) > 1 or not given.keys() <= {"requires_grad"}:
        raise Break(_CODE, "Tensor.requires_grad_() with other arguments")
    wanted, ghost = _flag(m, {"requires_grad": Const(True), **given}, "requires_grad"), value.ghost
    if m.inner or m.modes or value.source is not None:
        raise Break(_CODE, "Tensor.requires_grad_()")
    if wanted == ghost.requires_grad:
        return value
    if not wanted or ghost._node in m.tracer.quiet_views():
        raise Break(_CODE, "Tensor.requires_grad_()")
    note_own(m, value)
    return calls.record(m, torch.Tensor.requires_grad_, (ghost,), {})


def note_own(m: Machine, leaf: Tensor) -> None:
    """Note a leaf that the frame has made: if it outlives the graph, Python must run this call."""
    stop = m.must_be_python(_CODE, "a leaf that the frame has made outlives the graph")
    m.heap.leaves.setdefault(leaf, stop)


def check_own_leaves(m: Machine, outputs: list[Tensor]) -> None:
    """Raise MustBePython if one of these is a leaf that the frame has made, or a view of it."""
    for leaf, stop in m.heap.leaves.items():
        assert isinstance(leaf, Tensor)
        own = leaf.ghost
        for one in (output.ghost for output in outputs):
            quiet = one._store is own._store and bool(quiet_way(one._node, m.tracer.quiet_views()))
            if one is own or one._base is own or quiet:
                raise stop


def _set_required(m: Machine, value: Tensor, name: str, item: Value | None) -> None:
    """value.requires_grad = item"""
    if item is None:
        raise Break(_CODE, "Tensor.requires_grad is deleted")
    require(m, value, [item], {})


# -- backward --------------------------------------------------------------------------------------
def gradients_of(
    roots: tuple[Any, ...],
    leaves: tuple[Any, ...],
    seeds: tuple[Any, ...],
    retain: bool,
    taped: bool = False,
    batched: bool = False,
    into: tuple[Any, ...] = (),
) -> tuple[Any, ...]:
    """The gradients of `leaves`, None for unused ones; with a history of their own if `taped`.
    Graphs record calls of this function.

    batched  the seeds have a leading dimension, which the gradients get
    into     for each leaf a tensor to which autograd adds its gradient in place, or None. It does
             so while it runs other nodes, which must not have saved that tensor
    """
    pairs = zip(leaves, into, strict=False)
    hooks = [
        put_on(leaf.register_hook, partial(_add, old)) for leaf, old in pairs if old is not None
    ]
    try:
        with asked():  # `_torch_grad` has asked
            return torch.autograd.grad(
                roots,
                leaves,
                seeds,
                retain_graph=retain,
                create_graph=taped,
                allow_unused=True,
                is_grads_batched=batched,
            )
    finally:
        for hook in hooks:
            hook.remove()


def _add(old: torch.Tensor, gradient: torch.Tensor) -> None:
    old.add_(gradient)


def warning_of_cycles() -> None:
    """torch's warning, once per process, about gradients in `.grad` that have a history."""
    torch.ones((), requires_grad=True).backward(create_graph=True)


def backward(m: Machine, root: Tensor, args: Args, kwargs: Kwargs) -> Value:
    """root.backward(gradient, retain_graph, create_graph, inputs)"""
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or not given.keys() <= set(names):
        raise Break(_CODE, "Tensor.backward() with other arguments")
    roots = Sequence([root], tuple)
    seeds = Sequence([given.get("gradient", NONE)], tuple)
    _backward(m, roots, seeds, given)
    return NONE


@models(torch.autograd.backward)
def _torch_backward(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = dict(zip(names, args, strict=False)) | kwargs
    if not given.keys() <= set(names) or not is_none(given.get("grad_variables", NONE)):
        raise Break(_CODE, "torch.autograd.backward() with these arguments")
    roots = _sequence(given["tensors"])
    seeds = given.get("grad_tensors", NONE)
    count = len(_tensors(m, roots))
    _backward(m, roots, Sequence([NONE] * count, tuple) if is_none(seeds) else seeds, given)
    return NONE


def _backward(m: Machine, roots: Value, seeds: Value, given: dict[str, Value]) -> None:
    outs = _tensors(m, roots)
    taped = _flag(m, given, "create_graph")
    named = given.get("inputs", NONE)
    leaves = _leaves(m, outs, None if is_none(named) else _tensors(m, _sequence(named)))
    before = [read(m, leaf) for leaf in leaves]
    if not all(is_none(one) or isinstance(one, Tensor) for one in before):
        raise Break(_CODE, "a backward to a tensor whose gradient is no plain tensor")
    adds = not taped and any(isinstance(one, Tensor) for one in before)
    into = [one if isinstance(one, Tensor) else None for one in before] if adds else ()
    given_seeds = _tensors(m, _sequence(seeds), gaps=True)
    found = _differentiate(m, outs, leaves, given_seeds, given, into)
    if taped:
        calls.record(m, warning_of_cycles, (), {}, may_fail=False)
    taken = {id(one.ghost._store) for one in m.heap.known.values() if isinstance(one, Tensor)}
    mode = m.tracer.grad_mode(taped)
    try:
        for leaf, old, gradient in zip(leaves, before, found, strict=True):
            if gradient is None or (isinstance(old, Tensor) and not taped):
                continue
            if isinstance(old, Tensor):
                _put(m, leaf, calls.record(m, torch.Tensor.add, (old.ghost, gradient), {}))
            else:
                _store(m, leaf, gradient, None if taped else taken)
    finally:
        m.tracer.grad_mode(mode)


def _store(m: Machine, leaf: Tensor, gradient: Ghost, taken: set[int] | None) -> None:
    """As torch's AccumulateGrad for a leaf without a gradient: store this one, or a copy.

    `taken`: memory that a stored gradient does not share; None: always a copy, for a gradient with
    a history.
    """
    if taken is not None:
        with m.facts.active():
            fits = (
                id(gradient._store) not in taken
                and gradient._store.fresh
                and _lies_as(gradient, leaf.ghost)
            )
        taken.add(id(gradient._store))
        if fits:
            _put(m, leaf, calls.from_result(m, gradient))
            return
    _put(m, leaf, calls.record(m, laid_out_as, (gradient, leaf.ghost), {}))


def laid_out_as(gradient: Any, leaf: Any) -> Any:
    """A copy with the leaf's memory layout if that is dense, else row-major."""
    if is_dense(*_layout(leaf)):
        return torch.empty_like(leaf, requires_grad=False).copy_(gradient)
    return gradient.clone(memory_format=torch.contiguous_format)


def _layout(tensor: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sizes and strides; those of a ghost as expressions, which can be hashed, unlike SymInts."""
    if type(tensor) is Ghost:
        return tensor._node.meta.shape, tensor._node.meta.stride
    return tuple(tensor.shape), tuple(tensor.stride())


def _lies_as(gradient: Ghost, leaf: Ghost) -> bool:
    shape, before = _layout(leaf)
    stride = gradient_strides(shape, before)
    return all(
        mine == theirs
        for mine, theirs, size in zip(_layout(gradient)[1], stride, shape, strict=True)
        if size != 1
    )


# -- torch.autograd.grad ---------------------------------------------------------------------------
@models(torch.autograd.grad)
def _torch_grad(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    names = (
        "outputs",
        "inputs",
        "grad_outputs",
        "retain_graph",
        "create_graph",
        "only_inputs",
        "allow_unused",
        "is_grads_batched",
        "materialize_grads",
    )
    given = dict(zip(names, args, strict=False)) | kwargs
    if not given.keys() <= set(names):
        raise Break(_CODE, "torch.autograd.grad() with these arguments")
    zeros = _flag(m, given, "materialize_grads")
    if zeros and (
        _flag(m, given, "create_graph")  # the zeros would be leaves
        or not is_none(given.get("allow_unused", NONE))  # False: raises
    ):
        raise Break(_CODE, "torch.autograd.grad() with materialize_grads and other arguments")
    outs, wanted = _tensors(m, _sequence(given["outputs"])), _tensors(m, _sequence(given["inputs"]))
    seeds = given.get("grad_outputs", NONE)
    given_seeds = [None] * len(outs) if is_none(seeds) else _tensors(m, _sequence(seeds), gaps=True)
    _reached(m, outs, wanted)
    for one in wanted:
        if is_tied(one.ghost, m.tracer.quiet_views()):
            raise Break(_CODE, _QUIET)
        if one.source is not None and one.origin.requires_grad:
            _guard_history(m, one)
        require_no_hooks(m, one)
    require_no_reentrant(m)
    found = _differentiate(m, outs, wanted, given_seeds, given)
    if None in found and not (zeros or _flag(m, given, "allow_unused")):
        raise Break("GB108", "torch.autograd.grad() of a tensor that takes no part")
    return Sequence(
        [
            calls.from_result(m, gradient)
            if gradient is not None
            else calls.record(m, torch.zeros_like, (one.ghost,), {})
            if zeros
            else NONE
            for gradient, one in zip(found, wanted, strict=True)
        ],
        tuple,
    )


@models(torch.autograd.graph.get_gradient_edge)
def _gradient_edge(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise ReadsHistory(_CODE, "call of torch.autograd.graph.get_gradient_edge")


def node(m: Machine) -> Value:
    """Break for `grad_fn` of a result; if it is only compared with None, any node will do."""
    frame = m.frames[-1]
    if reads_node(frame.decoded.instrs, frame.pc):
        raise ReadsHistory(_CODE, "Tensor.grad_fn")
    raise Break(_CODE, "Tensor.grad_fn")


# -- both ------------------------------------------------------------------------------------------
def _differentiate(
    m: Machine,
    outs: list[Any],
    wanted: list[Any],
    seeds: list[Any],
    given: dict[str, Value],
    into: Items[Any] = (),
) -> tuple[Ghost | None, ...]:
    if m.inner or m.modes:
        raise Break(_CODE, "a backward inside of a transform or a mode")
    require_history(m)
    taped, batched = _flag(m, given, "create_graph"), _flag(m, given, "is_grads_batched")
    retain = taped if is_none(given.get("retain_graph", NONE)) else _flag(m, given, "retain_graph")
    if any(not one.ghost.requires_grad for one in outs) or not wanted:
        raise Break("GB108", "a backward of a tensor that requires no gradient")
    ghosts = [
        tuple([None if one is None else one.ghost for one in part])
        for part in (outs, wanted, seeds, into)
    ]
    options = {"taped": taped, "batched": batched, "into": ghosts[3]}
    chosen = {name: value for name, value in options.items() if value}
    if m.tracer.forward_end is None:
        m.tracer.forward_end = m.tracer.n_nodes
    found = calls.differentiate(m, gradients_of, (*ghosts[:3], retain), chosen)
    m.tracer.spends, m.tracer.backward_end = True, m.tracer.recorded
    return found


def _leaves(m: Machine, roots: list[Any], named: list[Any] | None) -> list[Tensor]:
    """The leaves that a backward reaches, or those `named` as its inputs: inputs of the graph and
    leaves that the frame has made, whose gradients have no hooks."""
    found: list[Tensor] = []
    reached = _reached(m, roots, named)
    for leaf in reached if named is None else named:
        if leaf.source is not None:
            _require_leaf(leaf)
            _guard_history(m, leaf)
        elif not _made_leaf(m, leaf):
            raise Break(_CODE, "a backward() with inputs that are no leaves")
        require_no_hooks(m, leaf)
        if any(_shares(other, leaf) for other in found):
            raise Break(_CODE, "a backward to leaves that share memory")
        found.append(leaf)
    given = tuple(leaf.source for leaf in found if leaf.source is not None)
    if len(given) > 1:
        m.guard("distinct", None, given)
    return found


def _shares(one: Tensor, other: Tensor) -> bool:
    if one.source is not None and other.source is not None:
        return share(one, other)
    return one.ghost._store is other.ghost._store


def _guard_history(m: Machine, value: Tensor) -> None:
    """Guard whether autograd ends at an input, as it does at its ghost."""
    kind = tensor_access.history(value.origin)
    if kind == "quiet view":
        raise Break(_CODE, _QUIET)
    m.guard("history", value.source, kind)


def _reached(m: Machine, roots: list[Any], until: list[Any] | None = None) -> list[Tensor]:
    """The leaves that a backward reaches, until `until`; all must be known in this frame, and have
    no history before it."""
    try:
        ghosts = leaves_of([root.ghost for root in roots], [one.ghost for one in until or ()])
    except RuntimeError:
        # torch itself makes the history of a view, when it is read.
        raise Break(_CODE, "a backward through a view of a tensor that was written to") from None
    known = [m.heap.known.get(id(ghost)) for ghost in ghosts]
    found = [leaf for leaf in known if isinstance(leaf, Tensor)]
    if len(found) != len(known):
        raise Break(_CODE, "a backward through a history from outside of the graph")
    for leaf in found:
        if leaf.source is not None and leaf not in (until or ()):
            if not leaf.origin.is_leaf:
                raise Break(_CODE, "a backward through a history from outside of the graph")
            _guard_history(m, leaf)
    return found


def require_no_hooks(
    m: Machine, leaf: Tensor, what: str = "a backward to a tensor with hooks"
) -> None:
    """Break with reason `what` if a tensor from outside has gradient hooks; else guard that."""
    if leaf.source is None:
        return
    if real_leaves.recast(leaf.origin):
        what = what.replace("hooks", "a grad_dtype")
    if real_leaves.hooked(leaf.origin):
        raise Break(_CODE, what)
    m.guard("unhooked", leaf.source, None)


def require_no_reentrant(m: Machine) -> None:
    """Break beside a checkpoint that refuses gradients of chosen tensors."""
    if m.tracer.regions is not None and any(one.reentrant for one in m.tracer.regions.all):
        raise Break(_CODE, "torch.autograd.grad() beside a checkpoint with use_reentrant=True")


def _flag(m: Machine, given: dict[str, Value], name: str) -> bool:
    try:
        return bool(as_constant(m, given.get(name, NONE)))
    except NotConstant:
        raise Break(_CODE, f"a backward with {name} that is not a constant") from None


def _sequence(value: Value) -> Value:
    return Sequence([value], tuple) if isinstance(value, Tensor) else value


def _tensors(m: Machine, value: Value, gaps: bool = False) -> list[Any]:
    if not isinstance(value, Sequence):
        raise Break(_CODE, "a backward of a value that is not a tensor")
    items = [None if gaps and is_none(one) else one for one in sequence_items(m, value)]
    if not items or any(one is not None and not isinstance(one, Tensor) for one in items):
        raise Break(_CODE, "a backward of a value that is not a tensor")
    return items


STORES[Tensor, "requires_grad"] = _set_required
STORES[Tensor, "grad"] = lambda m, value, name, item: write(m, value, item)
