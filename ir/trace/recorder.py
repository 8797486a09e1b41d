"""The recorder below the trace: it answers each ATen operator with ghosts and appends nodes.

The dispatch mode calls `Recorder.dispatch`, which takes the operator's plan (schema and op table),
infers the metadata of the results, appends Nodes, and tracks memory. An in-place operator on memory
that the graph made and that no other ghost shares becomes a plain value. Every other write stays a
node in order: `aten.copy_` of a computed value where that is equivalent, else the operator itself.
The result of such a node is never used: readers name the tensor, and read after the write because
they run after it.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import DataDependent, Unsupported
from ..graph.effects import can_wait, root
from ..graph.layout import check_memory, check_places, is_contiguous, is_dense, overlap
from ..graph.nodes import Meta, Node, meta_args
from ..graph.schema import RESHAPED, Plan, plan_of
from ..location import Location
from ..ops.creation import warn_of_cast
from ..ops.infer import infer
from ..ops.meta_kernels import pinned_all
from ..ops.python_kernels import refusal
from ..ops.scalar_range import hold_draws_to_dtype, hold_to_dtype
from ..symbolic.symnode import SYMBOLIC, from_torch
from .autocast_cache import cached_cast, is_cached, is_kept
from .ghost import Ghost, Owner, Store, make_ghost, owns_its_memory
from .quiet_views import check_history

if TYPE_CHECKING:
    from .tracer import Tracer

aten = torch.ops.aten
_nodes_of_autograd = torch._C._autograd._get_sequence_nr  # type: ignore[attr-defined]


NUMBERS = frozenset({int, float, bool, complex})
ATOMS = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})


# The dtype of the tensor that torch makes from a Python number.
_OF_NUMBER = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _tensor(given: Any) -> Ghost:
    """A tensor to view or write; raises for a number, whose tensor torch makes itself."""
    if type(given) is not Ghost:
        raise Unsupported("number", "a number in the place of a tensor that is viewed or written")
    return given


def _numbered(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments with the number of the current device for "cuda"; the caller guards the device."""
    device = kwargs["device"]
    if device is None or device.type != "cuda" or device.index is not None:
        return kwargs
    return {**kwargs, "device": torch.device("cuda", torch.cuda.current_device())}


class Recorder:
    """The nodes of one trace and its memory state."""

    def __init__(self, tracer: Tracer) -> None:
        self.owner = Owner(tracer.facts)  # marks the ghosts of this trace
        self._tracer = weakref.ref(tracer)
        self.nodes: list[Node] = []
        self.where: Location | None = None
        self.mutates = False
        self.random = False
        self.fixed = False  # an input was written that no copy can replace (see `defer_writes`)
        self.written: set[int] = set()
        self.followed: set[int] = set()  # the inputs written while autograd followed
        self.slow_ops: list[str] = []
        self.quiet: dict[Node, bool] = {}  # views made without grad mode: does the base need it
        self.zeros: set[Node] = set()  # zero tensors without memory in eager
        self.echo: tuple[Node, Meta, Store] | None = None
        # See autocast_cache.outliving; empty while casts are not cached. `_casts`: (position, cast,
        # its memory).
        self.kept_casts: dict[str, torch.dtype] = {}
        self._casts: dict[Node, tuple[int, Node, Store]] = {}
        self._plans: dict[int, Plan] = {}
        self._count = 0
        self._log: list[tuple[Ghost, Node, Store]] = []
        # Per recorded call: autograd's count of nodes after it, and its line.
        self._ends: list[int] = []
        self._lines: list[Location | None] = []

    # -- state

    def mark(self, where: Location | None) -> Any:
        """The state of the trace, to return to with `undo`."""
        self.where = where
        self._log.clear()
        written = set(self.written), set(self.followed), self.fixed
        return len(self.nodes), self.mutates, self.random, written, len(self.slow_ops)

    def undo(self, mark: Any) -> None:
        """Return to a mark."""
        length, self.mutates, self.random, written, slow = mark
        self.written, self.followed, self.fixed = written
        del self.nodes[length:]
        del self.slow_ops[slow:]
        if self._casts:
            self._casts = {node: made for node, made in self._casts.items() if made[0] < length}
        for ghost, node, store in reversed(self._log):
            ghost._node, ghost._store = node, store
        self._log.clear()

    def replaced(self) -> list[Ghost]:
        """The ghosts that got a new value by a write since the last mark."""
        return [ghost for ghost, _, _ in self._log]

    # -- one operator

    def dispatch(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one operator and return its result as ghosts."""
        if self.echo is not None:
            return make_ghost(self.owner, *self.echo)
        plan = self._plans.get(id(op))  # the hash of an OpOverload runs Python code
        if plan is None:
            if reason := refusal(op):
                raise Unsupported("overridden", f"{op}, {reason}")
            plan = self._plans[id(op)] = plan_of(op)
        if "device" in kwargs:
            kwargs = _numbered(kwargs)
        special = SPECIAL.get(plan.name)
        if special is not None:
            return special(self, op, args, kwargs)
        if plan.kind == "composite":
            return self._decompose(op, args, kwargs)
        if plan.dynamic and plan.kind != "library":
            shape = torch.Tag.dynamic_output_shape in plan.op.tags
            raise DataDependent(plan.name, f"{plan.name} depends on tensor data", shape)
        if plan.metadata:
            if plan.name in RESHAPED:
                return self._reshape_in_place(plan, args, kwargs)
            raise Unsupported("metadata", f"{plan.name} changes a tensor's sizes in place")
        operands = tuple([self.operand(arg) for arg in args])
        named = {name: self.operand(value) for name, value in kwargs.items()} if kwargs else {}
        hold_to_dtype(plan.op, operands, named)
        if plan.random:
            self.random = True
            hold_draws_to_dtype(plan.op, operands)
        return ROUTES[plan.kind](self, plan, args, kwargs, operands, named)

    def _decompose(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composite operator that arrives whole (inference mode) through its own C++ body."""
        tracer = self._tracer()
        assert tracer is not None
        torch._C._push_on_torch_dispatch_stack(tracer._mode)
        try:
            return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)

    def operand(self, value: Any) -> Any:
        """A Node for each ghost; tuples for lists."""
        kind = type(value)
        if kind is Ghost:
            if value._owner is not self.owner:
                raise Unsupported("foreign-ghost", "a tensor of another trace")
            return value._node
        if kind in ATOMS:
            return value
        if kind is list or kind is tuple or kind is torch.Size:
            return tuple([self.operand(item) for item in value])
        if kind in SYMBOLIC:
            return from_torch(value)
        if isinstance(value, torch.Tensor):
            # A symbolic number in the form that torch passes on.
            number = getattr(value, "_wrapped_number", None)
            return self._baked(value) if number is None else self.operand(number)
        if isinstance(value, torch.Generator):
            raise Unsupported("generator", "an explicit random generator")
        return value

    def _first_as_tensor(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """`torch.add(2, 3.5)` without a tensor: make the first number one, of torch's dtype."""
        if any(type(operand) is Node for operand in operands):
            return operands
        dtype = torch.tensor(operands[0]).dtype
        made = self.value(aten.scalar_tensor.default, (operands[0],), {"dtype": dtype})
        return (made, *operands[1:])

    def _baked(self, tensor: torch.Tensor) -> Node:
        """The node of a real tensor that a torch function made itself (an index list, a scalar)."""
        tracer = self._tracer()
        assert tracer is not None
        return tracer.constant(tensor)._node

    def done(self, where: Location | None) -> None:
        """Note the end of the call at this line."""
        count = _nodes_of_autograd()
        if where is not None and (not self._ends or self._ends[-1] < count):
            self._ends.append(count)
            self._lines.append(where)

    def _place(self) -> Location | None:
        """The current line; for a backward operator that of the call it differentiates."""
        if self.where is not None or not self._ends:
            return self.where
        node = torch._C._current_autograd_node()
        at = len(self._ends) if node is None else bisect_right(self._ends, node._sequence_nr())
        return self._lines[at] if at < len(self._lines) else None

    def node(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: Any, alias: Any = None
    ) -> Node:
        """Append a call."""
        self._count += 1
        node = Node("call", op, args, kwargs, meta, f"t{self._count}", self._place(), alias)
        self.nodes.append(node)
        return node

    def _get(self, node: Node, index: int, meta: Meta, alias: Node | None) -> Node:
        self._count += 1
        item = Node("get", index, (node,), {}, meta, f"t{self._count}", node.where, alias)
        self.nodes.append(item)
        return item

    def value(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], alias: Any = None
    ) -> Node:
        """Append a call of a single-result operator, with inferred metadata."""
        return self.node(op, args, kwargs, self.infer(plan_of(op), args, kwargs), alias)

    def infer(self, plan: Plan, operands: tuple[Any, ...], named: dict[str, Any]) -> Any:
        args = meta_args(operands)
        kwargs = {name: meta_args(value) for name, value in named.items()} if named else named
        return infer(plan, args, kwargs, self.slow_ops)

    # -- kinds of operators

    def _pure(
        self, plan: Plan, args: Any, kwargs: Any, operands: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        if plan.tensor_first and operands and type(operands[0]) in NUMBERS:
            operands = self._first_as_tensor(operands)
        meta = self.infer(plan, operands, named)
        if not plan.tensors:
            return meta  # a number or truth value that follows from metadata
        node = self.node(plan.op, operands, named, meta)
        row = plan.row
        if row is not None and row.mutates is not None:
            for position in row.mutates(operands, named):
                self._note_write(args[position])
        return self._wrap(node, meta, lambda: Store(fresh=True), None, plan.list_result)

    def _view(
        self, plan: Plan, args: Any, kwargs: Any, operands: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        meta = self.infer(plan, operands, named)
        base = _tensor(args[plan.view_of])
        if plan.op is aten.as_strided.default:
            check_memory(meta, root(base._node).meta)
        node = self.node(plan.op, operands, named, meta, base._node)
        if not torch.is_grad_enabled():
            self.quiet[node] = base.requires_grad
        return self._wrap(node, meta, lambda: base._store, base._node, plan.list_result)

    def _wrap(
        self, node: Node, meta: Any, store: Callable[[], Store], alias: Any, as_list: bool
    ) -> Any:
        if type(meta) is Meta:
            return make_ghost(self.owner, node, meta, store())
        if meta is None:
            return None
        # Attention on a GPU has results that are no tensors: None, and numbers known from metadata.
        results = [
            make_ghost(self.owner, self._get(node, index, item, alias), item, store())
            if type(item) is Meta
            else item
            for index, item in enumerate(meta)
        ]
        return results if as_list else tuple(results)

    def _write(
        self, plan: Plan, args: Any, kwargs: Any, operands: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        targets = {
            at: args[at] if isinstance(at, int) else kwargs.get(at)
            for at in plan.writes
            if isinstance(at, str) or at < len(args)
        }
        for target in targets.values():
            if target is not None:
                check_history(_tensor(target), self.quiet)
        self._count_version(targets.values())
        functional = plan.functional is not None and len(targets) == 1 and not plan.random
        if functional:
            ((at, target),) = targets.items()
            if target is not None and self._as_value(plan, at, target, operands, named):
                return target
        return self._raw_write(plan, targets, operands, named)

    def _count_version(self, targets: Any) -> None:
        """Raise the version counters of written tensors, if a gradient is needed.

        autograd must see each write; without grad mode, the trace runs without the key that counts
        versions.
        """
        tracer = self._tracer()
        assert tracer is not None
        if tracer.needs_grad and not torch.is_grad_enabled():
            torch._C._increment_version(  # type: ignore[attr-defined]
                [target for target in targets if target is not None]
            )

    def _raw_write(
        self, plan: Plan, targets: dict[Any, Any], operands: Any, named: dict[str, Any]
    ) -> Any:
        """Record the operator itself, as a node in order."""
        for target in targets.values():
            if target is not None and self._overlaps(target, operands, named) - {"none"}:
                raise Unsupported("overlap", f"{plan.name} reads memory that it writes")
        metas = self._written_metas(plan, targets, operands, named)
        node = self.node(plan.op, operands, named, metas)
        results: list[Any] = []
        for index, at in enumerate(plan.returned):
            if at is not None:
                results.append(targets[at])
                continue
            meta = metas[index] if isinstance(metas, tuple) else metas
            if meta is None:
                results.append(None)
                continue
            item = node if plan.one else self._get(node, index, meta, None)
            results.append(make_ghost(self.owner, item, meta, Store(fresh=True)))
        for target in targets.values():
            if target is not None:
                self._note_write(target)
        if plan.one and plan.returned and plan.returned[0] is not None:
            node.alias = targets[plan.returned[0]]._node
        if not results:
            return None
        return results[0] if plan.one else tuple(results)

    def _written_metas(
        self, plan: Plan, targets: dict[Any, Any], operands: Any, named: dict[str, Any]
    ) -> Any:
        for target in targets.values():
            if target is not None:
                check_places(target._node.meta)
        if plan.one and plan.returned and plan.returned[0] is not None:
            target = targets[plan.returned[0]]
            if plan.random:
                return target._node.meta
            meta = self.infer(plan, operands, named)
            if meta.shape != target._node.meta.shape:
                raise Unsupported("resize", f"{plan.name} changes the size of its output")
            return target._node.meta
        metas = self.infer(plan, operands, named)
        outs = [targets[at] for at in plan.returned if at is not None]
        given = (
            [m for m, at in zip(metas, plan.returned, strict=True) if at is not None]
            if outs
            else []
        )
        if any(m.shape != out._node.meta.shape for m, out in zip(given, outs, strict=True)):
            raise Unsupported("resize", f"{plan.name} changes the size of its output")
        return metas

    def _note_write(self, ghost: Ghost | None) -> None:
        if ghost is None:
            return
        ghost._store.written = True
        if not ghost._store.fresh:
            self.mutates = True
            self.fixed |= bool(self.kept_casts) or not can_wait(root(ghost._node))
            self.written.update(ghost._store.inputs)
            if torch.is_grad_enabled():
                self.followed.update(ghost._store.inputs)

    # -- in-place operators as values

    def _as_value(
        self, plan: Plan, at: int | str, target: Ghost, operands: Any, named: dict[str, Any]
    ) -> bool:
        """In-place `op_(target, ...)` as `op(target, ...)` and an assignment, if possible."""
        twin = plan_of(plan.functional)
        if twin.row is None or twin.row.kind not in VALUE_KINDS:
            return False
        meta = target._node.meta
        check_places(meta)
        if "unclear" in self._overlaps(target, operands, named):
            return False  # only the operator knows in which order it reads and writes
        if twin.row.kind == "matmul":
            self._check_factors(plan, target, operands[-2:])
        inputs = {name: value for name, value in named.items() if name != at}
        args = (*operands, 0) if plan.op is aten.zero_.default else operands
        found = self.infer(twin, args, inputs)
        if isinstance(at, str) and found.dtype != meta.dtype and not _casts(twin):
            raise Unsupported("out", f"{plan.name} into a tensor of another dtype")
        if found.shape != meta.shape:
            if isinstance(at, str):
                raise Unsupported("resize", f"{plan.name} changes the size of its output")
            raise RuntimeError(f"output of size {meta.shape} cannot hold {found.shape}")
        if found.dtype != meta.dtype and not torch.can_cast(found.dtype, meta.dtype):
            raise RuntimeError(f"result type {found.dtype} cannot be cast to {meta.dtype}")
        if found.device != meta.device:
            raise RuntimeError("result and output are on different devices")
        self._assign(target, self.node(plan.functional, args, inputs, found))
        return True

    def _overlaps(self, target: Ghost, operands: Any, named: dict[str, Any]) -> set[str]:
        """How operands overlap the target in shared memory; raises where torch does."""
        store = target._store
        if len(store.members) == 1:
            return set()
        found = set()
        for member in store.members:
            other = member()
            if other is None or other is target:
                continue
            if _mentions(other._node, operands) or _mentions(other._node, tuple(named.values())):
                found.add(overlap(target._node.meta, other._node.meta))
        if "partial" in found:
            raise RuntimeError("an operand and the tensor written share some of their elements")
        return found

    def _check_factors(self, plan: Plan, target: Ghost, factors: tuple[Any, ...]) -> None:
        """A product into one of its factors reads what it has written: torch does not check."""
        if _mentions(target._node, factors) or self._overlaps(target, factors, {}) - {"none"}:
            raise Unsupported("overlap", f"{plan.name} reads memory that it writes")

    def _assign(self, target: Ghost, value: Node) -> None:
        """target[...] = value: a new value for unshared memory, else a write."""
        meta, found = target._node.meta, value.meta
        target._store.written = True
        if owns_its_memory(target) and is_dense(meta.shape, meta.stride):
            if found.dtype != meta.dtype:
                value = self.value(aten._to_copy.default, (value,), {"dtype": meta.dtype})
            if value.meta.stride == meta.stride:
                self._log.append((target, target._node, target._store))
                store = Store(fresh=True)
                store.borrowed = target._store.borrowed
                store.members = [m for m in target._store.members if m() is target]
                target._node, target._store = value, store
                return
        self.node(aten.copy_.default, (target._node, value), {}, meta, target._node)
        self._note_write(target)

    # -- operators with special handling

    def _lift(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`torch.tensor(...)`: a constant, and a fresh copy of it at each run."""
        (tensor,) = args
        if type(tensor) is Ghost:
            return tensor
        node = self._baked(tensor)
        node.args = ("own",)  # nothing outside the graph holds this tensor
        copy = self.value(aten.clone.default, (node,), {})
        return make_ghost(self.owner, copy, copy.meta, Store(fresh=True))

    def _copy(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`x.copy_(y)`, or `put_back_`: y's values in x's shape, dtype and device."""
        target, given = _tensor(args[0]), args[1]
        if type(given) in SYMBOLIC:
            return self.dispatch(aten.fill_.Scalar, (target, given), {})
        if type(given) in NUMBERS:
            # In the dtype that torch gives a number: a value that the target cannot hold wraps, but
            # `fill_` refuses it.
            given = torch.scalar_tensor(given, dtype=_OF_NUMBER[type(given)])
            args = (target, given, *args[2:])
        if type(given) is not Ghost and given.dim() == 0 and given.device != target.device:
            # `x[i] = 3`: torch makes a CPU tensor of the number.
            return self.dispatch(aten.fill_.Scalar, (target, given.item()), {})
        self._count_version((target,) if op is aten.copy_.default else ())
        operands = tuple(self.operand(arg) for arg in args)
        meta, source = target._node.meta, operands[1].meta
        check_places(meta)
        if meta.device != source.device:
            moved = self.value(aten._to_copy.default, operands[1:2], {"device": meta.device})
            operands = (operands[0], moved)
        self._overlaps(target, operands, {})
        warn_of_cast(source.dtype, meta.dtype)
        lead = len(meta.shape) - len(source.shape)
        if lead < 0 or any(
            a not in (b, 1) for a, b in zip(source.shape, meta.shape[lead:], strict=True)
        ):
            raise RuntimeError(f"sizes {source.shape} do not fit into {meta.shape}")
        if owns_its_memory(target):
            self._assign(target, self.value(aten.copy.default, operands[:2], {}))
        else:
            if target._store.fresh:  # versions of its own memory begin here
                op = aten.copy_.default
            self.node(op, operands[:2], {}, meta, target._node)
            self._note_write(target)
        return target

    def _reshape_in_place(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`x.squeeze_()`: the ghost becomes a view of itself. `undo` keeps its metadata."""
        target = _tensor(args[0])
        if target._node.op not in ("call", "get") or target._store.sized:
            raise Unsupported("metadata", f"{plan.name} changes sizes in place")
        functional = RESHAPED[plan.name]
        operands = tuple([self.operand(arg) for arg in args])
        before = target._node
        node = self.value(functional, operands, dict(kwargs), before)
        if functional is aten.as_strided.default:
            check_memory(node.meta, root(before).meta)
        # A tensor of its own stays one for autograd: its new shape is no view.
        own = before.alias is None or before.target is aten._unsafe_view.default
        if own and is_contiguous(before.meta.shape, before.meta.stride):
            kept = self.value(aten._unsafe_view.default, (before, node.meta.shape), {}, before)
            node = kept if kept.meta == node.meta else node
        with torch._C._DisableTorchDispatch():
            plan.op(*args, **kwargs)
        self._log.append((target, target._node, target._store))
        target._node = node
        return target

    def _number_copied(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`aten._to_copy`, which torch also calls on a wrapped Python number."""
        tracer = self._tracer()
        assert tracer is not None
        if type(args[0]) is Ghost:
            if self.kept_casts and is_kept(args[0], kwargs.get("dtype"), self.kept_casts):
                return self._cached_cast(args[0], kwargs["dtype"])
            tracer.has_cached_casts |= is_cached(args[0], kwargs.get("dtype"))
            plan = plan_of(op)
            operands = tuple([self.operand(arg) for arg in args])
            return self._pure(plan, args, kwargs, operands, kwargs)
        with torch._C._DisableTorchDispatch():
            return tracer.constant(op(torch.as_tensor(args[0]), **kwargs))

    def _one_hot(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """torch's own one_hot, recorded whole."""
        operands = tuple(self.operand(arg) for arg in args)
        node = self.value(aten.one_hot.default, operands, {})
        return make_ghost(self.owner, node, node.meta, Store(fresh=True))

    def _cached_cast(self, weight: Ghost, dtype: torch.dtype) -> Any:
        """A weight cast that autocast's cache keeps beyond the graph: one per weight."""
        node = weight._node
        if node not in self._casts:
            if weight._store.written:  # the cache may hold an earlier cast, which no node can read
                raise Unsupported("cache", "a weight that is written before autocast casts it")
            operands = (node, dtype, node.meta.device)
            position = len(self.nodes)
            made = self._pure(plan_of(cached_cast), operands, {}, operands, {})
            self._casts[node] = position, made._node, made._store
        _, cast, store = self._casts[node]
        return make_ghost(self.owner, cast, cast.meta, store)

    def _zero_tensor(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A zero tensor without memory (forward-mode derivatives); here it gets memory."""
        named: dict[str, Any] = {n: kwargs[n] for n in ("dtype", "device") if n in kwargs}
        size = self.operand(args[0])
        made = self._pure(plan_of(aten.zeros.default), args, named, (size,), named)
        self.zeros.add(made._node)
        return made

    def _times(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A product; with a zero tensor without memory it is zero for every factor, as in eager."""
        plan = plan_of(op)
        operands = tuple([self.operand(arg) for arg in args])
        made = self._pure(plan, args, kwargs, operands, kwargs)
        if self.zeros and any(type(o) is Node and root(o) in self.zeros for o in operands[:2]):
            node = self.value(aten.zeros_like.default, (made._node,), {})
            self._assign(made, node)
            self.zeros.add(node)
        return made

    def _plain_sizes(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
        """Sizes or strides for C++ that takes no symbolic ones: pins those at capture."""
        meta = args[0]._node.meta
        return list(pinned_all(meta.shape if "size" in str(op) else meta.stride))

    def _item(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise DataDependent(str(op), "a Python value from tensor data")


def _by_schema(recorder: Recorder, plan: Plan, *given: Any) -> Any:
    """Record an operator of another library; `library_operators` puts its own function here."""
    return (Recorder._write if plan.writes else Recorder._pure)(recorder, plan, *given)


ROUTES: dict[str, Callable[..., Any]] = {
    "pure": Recorder._pure,
    "view": Recorder._view,
    "write": Recorder._write,
    "library": _by_schema,
}


def _casts(plan: Plan) -> bool:
    """Whether an operator's `out=` takes results of another dtype, as pointwise loops do."""
    assert plan.row is not None
    return plan.row.kind == "pointwise" and plan.op not in _UNCAST


_UNCAST = (aten.complex.default, aten.polar.default)
VALUE_KINDS = frozenset({"pointwise", "copy", "create", "scan", "matmul"})
SPECIAL: dict[str, Callable[[Recorder, Any, Any, Any], Any]] = {
    "aten.lift_fresh.default": Recorder._lift,
    "aten.lift.default": Recorder._lift,
    "aten.copy_.default": Recorder._copy,
    "graftjit.put_back_.default": Recorder._copy,
    "aten._to_copy.default": Recorder._number_copied,
    "aten._efficientzerotensor.default": Recorder._zero_tensor,
    "aten.mul.Tensor": Recorder._times,
    "aten._local_scalar_dense.default": Recorder._item,
    "aten.equal.default": Recorder._item,
    "graftjit.one_hot.default": Recorder._one_hot,
    "aten.size.default": Recorder._plain_sizes,
    "aten.stride.default": Recorder._plain_sizes,
}


def _mentions(node: Node, value: Any) -> bool:
    if type(value) is tuple:
        return any(_mentions(node, item) for item in value)
    return value is node
