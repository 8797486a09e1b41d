"""What programs of old do with tensors: `Variable(t)`, `FloatTensor(...)`, `Tensor(...)`, `t.data`.

In: a call of such a class, or a tensor whose `.data` is read. Out: the Value of a tensor.
`Variable(t)` is `t.detach()`. The other classes make a tensor of numbers, of an array, or of a
size, on the processor; with a tensor as an argument they are breaks, since it decides what they do.

`t.data` has the memory of `t`, but a version of its own: autograd does not see what is written
through it. That of an input is an input as well, which replacement code makes by `.data` of the
other one. A graph that writes one of the two and uses the other gets `.data` alone, if it has no
gradient: for it the two are one tensor, whose version the program does not see (`by_data`). That of
a tensor made in the frame is its `detach()`; `check` refuses a graph in which the two would differ,
since one of them leaves the frame, or is written after a backward has saved it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Variable

from ...ir.graph.effects import operands, root, writes
from ...ir.graph.nodes import Graph
from ...ir.trace.autocast_cache import cached_cast, outliving
from ..breaks import Break, Restart
from ..torch_models import calls, numpy_arrays
from ..values.containers import sequence_items
from ..values.effects import SetAttr
from ..values.registry import BUILTINS, NONE, Args, Kwargs, models, set_data
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import Array, Const, Sequence, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CASTS = frozenset((torch.ops.aten._to_copy.default, cached_cast))
TYPES: tuple[Any, ...] = (
    *(torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor),
    *(torch.LongTensor, torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor),
    *(torch.BoolTensor, torch.Tensor),
)


def _made(m: Machine, cls: Any, args: Args, kwargs: Kwargs) -> Value:
    """cls(*args, **kwargs)"""
    sized = args
    if len(args) == 1 and isinstance(args[0], Const) and type(args[0].value) is torch.Size:
        sized = [Const(size) for size in args[0].value]
    elif len(args) == 1 and isinstance(args[0], Sequence) and args[0].cls is torch.Size:
        sized = sequence_items(m, args[0])
    if sized and not kwargs and all(map(_is_int, sized)):
        return calls.call_torch(m, cls, sized, {})
    if len(args) == 1 and isinstance(args[0], Array) and not kwargs:
        kind = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
        shared = numpy_arrays.share(m, args[0])
        return calls.call_torch(m, torch.Tensor.to, [shared, Const(kind)], {})
    # The items of a list are numbers, also where a tensor could give one.
    if sized is not args or kwargs or len(args) != 1 or not _has_numbers(m, args[0]):
        raise Break("GB126", f"{cls.__name__} is built with these arguments")
    return calls.call_torch(m, cls, args, {})


for _cls in TYPES:
    BUILTINS[_cls] = partial(lambda cls, m, args, kwargs: _made(m, cls, args, kwargs), _cls)


def _is_int(value: Value) -> bool:
    if isinstance(value, SymbolicNumber) and not value.looked:
        return type(value.real) is int
    return isinstance(value, Const) and type(value.value) is int


def _has_numbers(m: Machine, value: Value) -> bool:
    if not isinstance(value, Sequence) or value.cls not in (list, tuple):
        return False
    return all(
        isinstance(item, Const) or _has_numbers(m, item) for item in sequence_items(m, value)
    )


@models(Variable)
def _variable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("data", "requires_grad"), args, strict=False)) | kwargs
    data = given.pop("data", None)
    if not isinstance(data, Tensor) or len(args) > 2 or given.keys() - {"requires_grad"}:
        raise Break("GB126", "Variable is built with these arguments")
    asks = given.get("requires_grad", Const(False))
    if not isinstance(asks, Const) or type(asks.value) is not bool:
        raise Break("GB126", "Variable is built with these arguments")
    made = calls.call_tensor_method(m, data, "detach", [], {})
    if asks.value:
        assert isinstance(made, Tensor)
        calls.call_tensor_method(m, made, "requires_grad_", [], {})
    return made


# -- .data -----------------------------------------------------------------------------------------
_CODE = "GB114"
_WRITTEN = "Tensor.data of what this function writes"


@models(calls.GETTERS["data"])
def _data(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """value.data, of an input or of a tensor with a gradient"""
    (value,) = args
    assert isinstance(value, Tensor)
    if m.inner or m.modes or not m.tracer.owns(value.ghost):
        raise Break(_CODE, "Tensor.data in a transform or under a mode")
    if value.source is not None and value.origin is not None:
        return _of_input(m, value)
    if not value.ghost._store.fresh:
        raise Break(_CODE, "Tensor.data of a view of an input")
    made = calls.call_tensor_method(m, value, "detach", [], {})
    assert isinstance(made, Tensor)
    m.heap.data[made] = (None, m.must_be_python(_CODE, _WRITTEN), made.ghost._version)
    return made


def _of_input(m: Machine, value: Tensor) -> Value:
    if value.source in m.by_data:
        made = calls.call_tensor_method(m, value, "detach", [], {})
        assert isinstance(made, Tensor)
        m.heap.data[made] = (value, m.must_be_python(_CODE, _WRITTEN), 0)
        return made
    real = value.origin.data
    ghost = m.root_tracer.input(real, value.source, value.ghost._node.meta)
    made = Tensor(ghost, torch.Tensor, real)
    m.inputs.append(made)
    m.heap.known[id(ghost)] = made
    m.heap.keep += (ghost, real)
    m.heap.data[made] = (value, m.must_be_python(_CODE, _WRITTEN), 0)
    m.activity += 1
    return made


_SET = "attribute 'data' of a tensor is set"


class _Replaced:
    """The ghost of an input whose `.data` the frame has set: any use of it is a break."""

    def __getattr__(self, name: str) -> Any:
        raise Break("GB115", "a tensor whose `.data` was set")


@models(set_data)
def _set_data(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """value.data = item, after the graph, where nothing uses `value` in between."""
    value, item = args
    assert isinstance(value, Tensor)
    inside = m.inner or m.modes or m.tracer.regions is not None or m.differentiating
    if (
        inside
        or value.source is None
        or not isinstance(item, Tensor)
        or item.cls is not torch.Tensor
    ):
        raise Break("GB115", _SET)
    old, new = value.ghost, item.ghost
    if (old.dtype, old.device, old.layout) != (new.dtype, new.device, new.layout):
        raise Break("GB115", _SET)
    stop = m.must_be_python("GB115", _SET)
    m.activity += 1
    m.journal.effects.append(SetAttr(value, "data", item))
    m.heap.replaced.append(stop)
    # Whatever loads the input goes on with a Value of its own.
    kept = Tensor(old, value.cls, value.origin, source=value.source)
    m.inputs[:] = [kept if one is value else one for one in m.inputs]
    for made, (base, *rest) in list(m.heap.data.items()):
        if base is value:
            m.heap.data[made] = (kept, *rest)
    value.ghost = _Replaced()
    return NONE


def check(m: Machine, graph: Graph, outputs: list[Tensor]) -> None:
    """Break at a `.data` of which the program would see that it is none, and at a set one that a
    backward may have saved, or whose tensor may be one of several over one memory."""
    if m.heap.replaced:
        at = [one.origin.untyped_storage().data_ptr() for one in m.inputs if one.source is not None]
        if graph.needs_grad or len(set(at)) < len(at):
            raise m.heap.replaced[0]
    _leave_out_unused(m, graph)
    for made, (base, stop, version) in m.heap.data.items():
        ghost = made.ghost
        if base is not None and base.source in m.by_data:
            if not _is_one_tensor(m, graph, base, outputs):
                raise stop
        elif base is not None:
            at = ghost._node.target
            shared = any(at in group for group in graph.overlaps)
            if graph.mutates and (shared or m.root_tracer.followed()):
                if graph.needs_grad or m.root_tracer.followed() or _is_cast(graph, base.ghost):
                    raise stop
                m.by_data.add(base.source)
                raise Restart
        elif ghost._version != version and (m.tracer.regions or _saved_before_write(m, outputs)):
            raise stop
        elif any(o.ghost._store is ghost._store and not o.ghost.requires_grad for o in outputs):
            stop.reason = "Tensor.data that leaves the function"
            raise stop


def _is_cast(graph: Graph, ghost: Any) -> bool:
    """Whether autocast may keep a cast of this weight, which does not see what is written through
    `.data`."""
    if not ghost.requires_grad:
        return False
    copies = (one for one in graph.nodes if one.target in _CASTS)
    return bool(outliving()) or any(root(one.args[0]) is ghost._node for one in copies)


def _is_one_tensor(m: Machine, graph: Graph, base: Tensor, outputs: list[Tensor]) -> bool:
    """Whether nothing tells an input from its `.data`: all writes are through `.data`, and no view
    of either leaves the graph."""
    if graph.needs_grad or m.root_tracer.followed():
        return False
    memory = base.ghost._node
    if any(root(one.ghost._node) is memory for one in outputs):
        return False
    parts = {one.ghost._node for one, (of, _, _) in m.heap.data.items() if of is base}
    for node in graph.nodes:
        for target in writes(node):
            if root(target) is memory and parts.isdisjoint(_way(target)):
                return False
    return True


def _way(node: Any) -> Iterator[Any]:
    """A node, and those whose memory its value shares, one after the other."""
    while node is not None:
        yield node
        node = node.alias


def _saved_before_write(m: Machine, outputs: list[Tensor]) -> bool:
    """Whether a backward of these would refuse a tensor that was written after it was saved.

    A write through `.data` of a ghost counts as one to the ghost; torch says so where a node gives
    out what it has saved.
    """
    # In the trace: a read of `grad_fn` may make the history of a view anew.
    try:
        found: bool = m.tracer.beside(lambda _owner: _is_refused(outputs))[0]
    except RuntimeError:  # autograd refuses such a view itself
        return True
    return found


def _is_refused(outputs: list[Tensor]) -> bool:
    seen = set()
    nodes = [one.ghost.grad_fn for one in outputs if one.ghost.grad_fn is not None]
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions if before is not None]
        for name in dir(node):
            if name.startswith("_saved_") or name == "saved_tensors":
                try:
                    getattr(node, name)
                except RuntimeError as error:
                    # Others say that a ghost was copied, after the versions were compared.
                    if "modified by an inplace operation" in str(error):
                        return True
    return False


def _is_read_alone(m: Machine, graph: Graph, group: tuple[int, ...]) -> bool:
    """Whether inputs that share memory are one tensor and its `.data`, and only read. Other inputs
    in that memory would not be distinct."""
    sources = {one.source for one in m.inputs if one.ghost._node.target in group}
    return len(sources) == 1 and not set(graph.written).intersection(group)


def _leave_out_unused(m: Machine, graph: Graph) -> None:
    """An input of which only `.data` is used is neither read nor written."""
    if not graph.mutates or not graph.overlaps:
        return
    read = {id(node) for node in graph.outputs}
    read |= {id(operand) for node in graph.nodes for operand in operands((node.args, node.kwargs))}
    bases = (base.ghost._node for base, _, _ in m.heap.data.values() if base is not None)
    unused = {node.target for node in bases if id(node) not in read}
    groups = (tuple(at for at in group if at not in unused) for group in graph.overlaps)
    made = {one.ghost._node.target for one in m.heap.data}
    graph.overlaps = [
        group
        for group in groups
        if len(group) > 1 and not (made.intersection(group) and _is_read_alone(m, graph, group))
    ]
    graph.written = [at for at in graph.written if at not in unused]
