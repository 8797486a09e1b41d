"""The tracer: runs torch calls on ghosts, and records them as calls and as ATen operators.

Capture makes a `Tracer` for each part of a frame, turns real tensors into ghosts (`input`,
`constant`), runs each torch call through `run`, and takes the `Graph` from `finish`. torch's
dispatcher decides which operators run; `ir.ops.table` gives their results. After an exception from
`run` the trace is as before the call, except for ghost metadata that the call changed in place
(`requires_grad_`, `unsqueeze_`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import CannotTrace, DataDependent, TraceError, Unsupported
from ..graph.asked import producing
from ..graph.certain import certain_truth
from ..graph.effects import operands, root, written_memory
from ..graph.interpreter import renumbered
from ..graph.nodes import Call, Graph, Meta, Node, Ref, meta_of
from ..graph.writers import Writers
from ..location import Location
from ..ops import table as _ops  # noqa: F401  (fills the op table)
from ..ops.may_raise import may_raise
from ..symbolic.expr import ACTIVE, Expr, Symbol, symbols_of
from ..symbolic.shape_env import Facts
from ..symbolic.symnode import SYMBOLIC, from_torch, to_torch
from .autocast_cache import AUTOCAST_DEVICES, Kept, by_hand
from .ghost import Ghost, Store, make_ghost, why_not
from .inner_results import note_value
from .joint_graph import CustomBackward, Declined, Joint
from .quiet_views import requiring
from .recorder import ATOMS, Recorder
from .shared_memory import overlapping
from .substitutes import AS_PLAIN

aten = torch.ops.aten

# Calls that need tensor data in Python for any tensor: refused before torch raises its own error.
_READS = ("item", "tolist", "numpy", "data_ptr", "equal", "allclose", "is_nonzero")
_PROTOCOLS = ("bool", "int", "float", "index", "complex", "contains", "array")
NEEDS_DATA: frozenset[Any] = frozenset({
    *(getattr(torch.Tensor, name) for name in (*_READS, *(f"__{one}__" for one in _PROTOCOLS))),
    *(torch.equal, torch.allclose, torch.is_nonzero),
})  # fmt: skip
# The text of torch's error where its C++ reads the memory of a ghost.
NO_DATA = "data is not allocated yet"
PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo),
)


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", str(fn))


VIEW_TRACKING = torch._C.DispatchKey.ADInplaceOrView  # type: ignore[attr-defined]
_exclude = torch._C._dispatch_tls_set_dispatch_key_excluded  # type: ignore[attr-defined]
_exclude_asked = torch._C._dispatch_tls_is_dispatch_key_excluded  # type: ignore[attr-defined]
# While set, autograd does not call the program's saved-tensor hooks: they take real tensors.
_hold_saving_hooks = torch._C._autograd._saved_tensors_hooks_set_tracing  # type: ignore[attr-defined]


class _Mode(TorchDispatchMode):
    """Passes every operator to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True makes torch import torch._dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.dispatch(func, args, kwargs or {})


class Tracer:
    """Records one graph. Not thread-safe; a thread runs one trace at a time."""

    def __init__(
        self, name: str, facts: Facts | None = None, outliving: Kept | None = None
    ) -> None:
        self.name = name
        self._outliving = outliving or {}  # autocast_cache.outliving() at the frame's start
        self.facts = facts or Facts()  # shared with an enclosing trace
        self.facts.error = DataDependent
        self._recorder = Recorder(self)
        self._mode = _Mode(self._recorder)
        self._calls: list[Call] = []
        self._inputs: list[Node] = []
        self._input_refs: list[int] = []
        self._sources: list[Any] = []
        self._constants: dict[int, torch.Tensor] = {}
        self._entered: dict[int, tuple[torch.Tensor, Ghost]] = {}  # by position
        self._known: dict[int, tuple[torch.Tensor, Ghost]] = {}
        self._stores: dict[int, Store] = {}
        self._writers = Writers()
        self._refs = 0
        self._values: list[Node] = []  # the node of each ref when it was numbered
        self._sharing: dict[Node, list[int]] = {}  # memory (`root`) -> the refs of values in it
        self._needs_grad = False
        self._grad_where: Location | None = None
        self.has_cached_casts = False  # of weights, by an autocast block that the frame has entered
        self.spends = False  # the calls contain a backward
        self.backward_end: int | None = None  # the number of calls up to the last one
        self.forward_end: int | None = None  # the number of nodes before the first one
        self.regions: Any = None  # see `regions.Regions`
        self.sized: list[Symbol] | None = None  # see `read_numbers.read_size`
        self.of_gradients = False  # the calls are those of a backward
        self.within = False  # a part of another trace, whose symbols it has

    # -- inputs

    def input(self, tensor: torch.Tensor, source: Any = None, meta: Meta | None = None) -> Ghost:
        """A new graph input with a real tensor's metadata, or the ghost it already has.

        `meta`: for symbolic sizes or strides. Raises Unsupported for other kinds of tensors.
        """
        if id(tensor) in self._known:
            return self._known[id(tensor)][1]
        position = len(self._inputs)
        node = Node("input", position, meta=meta, name=f"x{position}")
        ghost = self._enter(tensor, node)
        ghost._store.inputs.append(position)
        self._inputs.append(node)
        self._input_refs.append(ghost._ref)
        self._sources.append(source)
        self._entered[position] = tensor, ghost
        return ghost

    def given(self, meta: Meta, requires_grad: bool = False) -> Ghost:
        """A new graph input without a real tensor: an argument of a function traced on its own."""
        position = len(self._inputs)
        node = Node("input", position, meta=meta, name=f"x{position}")
        store = Store(fresh=False)
        store.inputs.append(position)
        if requires_grad:
            ghost = self._non_leaf(node, meta, store)
        else:
            ghost = make_ghost(self._recorder.owner, node, meta, store)
        self._inputs.append(node)
        self._input_refs.append(self._number(ghost))
        self._sources.append(None)
        return ghost

    def owns(self, ghost: Ghost) -> bool:
        """Whether a ghost is a value of this trace."""
        return ghost._owner is self._recorder.owner

    def constant(self, tensor: torch.Tensor) -> Ghost:
        """The ghost of a real tensor that the graph holds by reference."""
        if id(tensor) in self._known:
            return self._known[id(tensor)][1]
        node = Node("constant", tensor, meta=None, name=f"c{len(self._constants)}")
        ghost = self._enter(tensor, node)
        self._recorder.nodes.append(node)
        self._constants[ghost._ref] = tensor
        return ghost

    def _enter(self, tensor: torch.Tensor, node: Node) -> Ghost:
        reason = why_not(tensor)
        if reason is not None:
            raise Unsupported(*reason)
        if node.meta is None:
            node.meta = meta_of(tensor)
        meta = node.meta
        key = tensor.untyped_storage()._cdata
        store = self._stores.setdefault(key, Store(fresh=False))
        grad = tensor.requires_grad and tensor.is_leaf
        ghost = make_ghost(self._recorder.owner, node, meta, store, grad)
        if tensor.requires_grad and not tensor.is_leaf:
            ghost = self._non_leaf(node, meta, store)
        if isinstance(tensor, torch.nn.Parameter):
            ghost._is_param = True  # type: ignore[attr-defined]  # isinstance(ghost, Parameter)
        self._number(ghost)
        self._known[id(tensor)] = (tensor, ghost)
        return ghost

    def _non_leaf(self, node: Node, meta: Meta, store: Store) -> Ghost:
        """A ghost with a history: autograd allows on it what it forbids on leaves."""
        leaf = make_ghost(self._recorder.owner, node, meta, store, grad=True)
        self._recorder.echo = (node, meta, store)
        with torch.enable_grad():
            torch._C._push_on_torch_dispatch_stack(self._mode)
            try:
                ghost: Ghost = leaf.clone()  # type: ignore[assignment]
            finally:
                torch._C._pop_torch_dispatch_stack(None)
                self._recorder.echo = None
        ghost._leaf = leaf  # type: ignore[attr-defined]
        return ghost

    def _number(self, ghost: Ghost) -> int:
        ghost._ref = self._refs
        self._refs += 1
        self._values.append(ghost._node)
        self._sharing.setdefault(root(ghost._node), []).append(ghost._ref)
        return ghost._ref

    # -- calls

    def run(
        self,
        fn: Callable[..., Any],
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        where: Location | None = None,
        warned: Iterable[Any] = (),
    ) -> Any:
        """Call fn on ghosts and record it. Real tensors among the arguments become constants.

        Returns fn's result with ghosts for tensors; an argument that comes back is the same ghost.
        `warned`: the warnings that the caller notes; a call that warns is refused.
        Raises DataDependent, Unsupported, or TraceError around the exception of torch (or fn).
        """
        args, kwargs = tuple(args), dict(kwargs or {})
        if fn in NEEDS_DATA:
            raise DataDependent(_name(fn), "a Python value from tensor data")
        recorder = self._recorder
        mark = recorder.mark(where), len(self._calls), self._refs, self._needs_grad
        try:
            args = tuple([self._ghosts(arg) for arg in args])
            kwargs = {name: self._ghosts(value) for name, value in kwargs.items()}
            self.facts.where = where
            with requiring((args, kwargs), recorder.quiet) as made:
                made.append(result := self._over_ghosts(fn, args, kwargs))
            if warned:
                raise Unsupported("warning", str(warned))
            results = self._numbered(result)
            self._check_written(*mark[0][3][:2])
            recorder.done(where)
        except CannotTrace:
            self._undo(mark)
            raise
        except Exception as error:
            self._undo(mark)
            if type(error) is RuntimeError and NO_DATA in str(error):
                raise DataDependent(_name(fn), "a Python value from tensor data") from error
            raise TraceError(error) from error
        except BaseException:
            self._undo(mark)
            raise
        written = written_memory(recorder.nodes[mark[0][0] :])
        if written and torch.is_grad_enabled():  # a history changes, even if nothing is returned
            self._needs_grad |= any(one.requires_grad for one in operands((args, kwargs), Ghost))
        if self._needs_grad and not mark[3]:
            self._grad_where = where
        changed = {ref for one in written for ref in self._sharing.get(one, ())}
        changed |= {one._ref for one in recorder.replaced() if one._ref >= 0}
        self._calls.append(
            Call(
                fn,
                tuple([self._references(arg) for arg in args]),
                self._references(kwargs) if kwargs else {},
                results,
                where,
                tuple(map(Ref, sorted(changed))),
            )
        )
        return result

    def bind(self, symbol: Symbol, held: Ghost, where: Location | None, *dim: int) -> None:
        """Record that a symbol is the number in this tensor, or its size in a dimension."""
        read: Any = torch.Tensor.size if dim else torch.Tensor.item
        self._calls.append(Call(read, (Ref(held._ref), *dim), {}, symbol, where))

    def _over_ghosts(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """fn(*args, **kwargs) under the dispatch mode."""
        # Without gradients autograd need not track views; if it did, it would keep their bases
        # alive, and `Store.only` would find them.
        untracked = not torch.is_grad_enabled() and not _exclude_asked(VIEW_TRACKING)
        if untracked:
            _exclude(VIEW_TRACKING, True)
        held = _hold_saving_hooks(True)
        keeps = bool(self._outliving) and torch.is_autocast_cache_enabled()
        if keeps:  # the recorder caches casts in place of autocast, whose cache is the program's
            torch.set_autocast_cache_enabled(False)
            self._recorder.kept_casts = {} if by_hand(fn, args, kwargs) else self._outliving
        torch._C._push_on_torch_dispatch_stack(self._mode)
        before, ACTIVE.facts, self.facts.calling = ACTIVE.facts, self.facts, fn
        try:
            return AS_PLAIN.get(fn, fn)(*args, **kwargs)
        finally:
            ACTIVE.facts, self.facts.calling = before, None
            torch._C._pop_torch_dispatch_stack(None)
            _hold_saving_hooks(held)
            if keeps:
                torch.set_autocast_cache_enabled(True)
                self._recorder.kept_casts = {}
            if untracked:
                _exclude(VIEW_TRACKING, False)

    def _check_written(self, written: set[int], followed: set[int]) -> None:
        """Raise for a new write that the ghost of an input does not refuse as the input does: to a
        view (with a history, or quiet) or an inference tensor. The arguments: those before."""
        recorder = self._recorder
        for position in (recorder.written - written) & self._entered.keys():
            tensor, ghost = self._entered[position]
            if tensor.is_inference() and not torch.is_inference_mode_enabled():
                raise Unsupported("inference", "a write to a tensor made in inference mode")
            if ghost.requires_grad and tensor._is_view():
                quiet = tensor.is_leaf and tensor._base.requires_grad
                if quiet or position in recorder.followed - followed:
                    raise Unsupported("history", "a write to a view that autograd tracks")

    def attempt(
        self, fn: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any] | None = None
    ) -> None:
        """`run` without recording: only to see whether fn raises."""
        mark = self._recorder.mark(None), len(self._calls), self._refs, self._needs_grad
        try:
            self.run(fn, args, kwargs)
        finally:
            self._undo(mark)

    def _undo(self, mark: Any) -> None:
        inner, calls, refs, self._needs_grad = mark
        self._recorder.undo(inner)
        del self._calls[calls:]
        for ref in [ref for ref in self._constants if ref >= refs]:
            del self._constants[ref]
        if refs != self._refs:
            for key in [key for key, (_, ghost) in self._known.items() if ghost._ref >= refs]:
                del self._known[key]
            self._refs = refs
            while len(self._values) > refs:
                self._sharing[root(self._values.pop())].pop()
        if not self._outliving and torch.is_autocast_cache_enabled():
            torch.clear_autocast_cache()  # it may hold casts that `undo` removed

    def grad_mode(self, enabled: bool, where: Location | None = None) -> bool:
        """Set grad mode now and, at torch level, in the graph. Returns the mode before."""
        before = torch.is_grad_enabled()
        self.state_call(torch._C._set_grad_enabled, enabled, where=where)
        return before

    def state_call(self, fn: Callable[..., Any], *args: Any, where: Location | None = None) -> Any:
        """Call fn, which changes state of the thread (autocast...), now and in the graph."""
        result = fn(*args)
        self._calls.append(Call(fn, args, {}, None, where))
        return result

    def _ghosts(self, value: Any) -> Any:
        """The same arguments with real tensors as constants."""
        kind = type(value)
        if kind is Ghost:
            if value._owner is not self._recorder.owner:
                raise Unsupported("foreign-ghost", "a tensor of another trace")
            return value
        if kind in ATOMS:
            return value
        if isinstance(value, torch.Tensor):
            return self.constant(value)
        if kind is tuple or kind is list:
            return kind(self._ghosts(item) for item in value)
        if kind is dict:
            return {key: self._ghosts(item) for key, item in value.items()}
        if isinstance(value, Expr):
            return to_torch(self.facts.form(value), self.facts)
        if kind is slice:
            return slice(*(self._ghosts(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, torch.Generator):
            raise Unsupported("generator", "an explicit random generator")
        return value

    def _references(self, value: Any) -> Any:
        """The same arguments with Refs for ghosts."""
        kind = type(value)
        if kind is Ghost:
            return Ref(value._ref)
        if kind in ATOMS:
            return value
        if kind is tuple or kind is list:
            return kind(self._references(item) for item in value)
        if kind is dict:
            return {key: self._references(item) for key, item in value.items()}
        if kind is slice:
            return slice(*(self._references(v) for v in (value.start, value.stop, value.step)))
        return from_torch(value) if kind in SYMBOLIC else value

    def _numbered(self, value: Any) -> Any:
        """Refs for the ghosts of a result; new ghosts get a number."""
        if type(value) is Ghost:
            made = value._ref < 0
            if made:
                self._number(value)
                note_value(value)
            # Without grad mode, an argument that is returned unchanged has no new history.
            if value.requires_grad and (made or torch.is_grad_enabled()):
                self._needs_grad = True
            return Ref(value._ref)
        if isinstance(value, PLAIN):
            return value
        if type(value) in SYMBOLIC:
            return from_torch(value)
        if isinstance(value, tuple):  # named tuples and torch.return_types as well
            return tuple(self._numbered(item) for item in value)
        if type(value) is list:
            return [self._numbered(item) for item in value]
        if type(value) is dict:
            return {key: self._numbered(item) for key, item in value.items()}
        if isinstance(value, torch.Tensor):
            raise Unsupported("real-tensor", "a call made a tensor without the dispatcher")
        raise Unsupported("result", f"a result of type {type(value).__qualname__}")

    # -- state of the trace

    @property
    def needs_grad(self) -> bool:
        """Whether a value so far requires a gradient."""
        return self._needs_grad

    @property
    def mutates(self) -> bool:
        """Whether the trace wrote to an input so far."""
        return self._recorder.mutates

    def followed(self, quietly: bool = False) -> list[tuple[Any, torch.Tensor]]:
        """(source, tensor) of the inputs that were written while autograd followed; `quietly`: and
        of those that require a gradient and were written at all."""
        found = {at for at, _ in self.rewritten()}
        if quietly:
            written = self._recorder.written & self._entered.keys()
            found.update(at for at in written if self.wants_gradient(at))
        return [(self._sources[at], self._entered[at][0]) for at in sorted(found)]

    @property
    def writes_can_wait(self) -> bool:
        """Whether all writes so far may run after all operators."""
        return not (self._recorder.fixed or self.rewritten())

    def may_raise_since(self, start: int) -> bool:
        """Whether a node from position `start` on may raise because of its data."""
        return any(may_raise(node) for node in self._recorder.nodes[start:])

    @property
    def n_nodes(self) -> int:  # of ATen
        return len(self._recorder.nodes)

    @property
    def recorded(self) -> int:  # calls
        return len(self._calls)

    @property
    def slow_ops(self) -> list[str]:
        """Operators so far that have no result rule of ours."""
        return list(self._recorder.slow_ops)

    # -- the backward

    def entered_inputs(self) -> list[tuple[int, Ghost]]:
        """(position, ghost) of the inputs that have a real tensor."""
        return [(at, ghost) for at, (_, ghost) in sorted(self._entered.items())]

    def values(self) -> tuple[list[Node], list[Node]]:
        """(for each torch-level value the node that made it, all nodes so far)."""
        return self._values, self._recorder.nodes

    @property
    def n_inputs(self) -> int:  # so far
        return len(self._inputs)

    def origin(self, position: int) -> tuple[Any, torch.Tensor | None]:  # source, real tensor
        return self._sources[position], self._entered.get(position, (None,))[0]

    def producing(self, ghost: Ghost) -> tuple[list[Node], int] | None:
        groups = [store.inputs for store in self._stores.values()]
        nodes, written = self._recorder.nodes, self._recorder.written
        return producing(ghost._node, nodes, written, groups, self._writers.of(nodes))

    def certain_truth(self, ghost: Ghost) -> bool | None:
        """The truth of a tensor of one element that the range of an operator decides."""
        nodes = self._recorder.nodes
        return certain_truth(ghost._node, nodes, self._writers.of(nodes))

    def wants_gradient(self, position: int) -> bool:
        """Whether the tensor of this input requires a gradient."""
        return self._entered[position][0].requires_grad

    def rewritten(self) -> list[tuple[int, Ghost]]:
        """(position, ghost) of inputs whose history a write changes: no leaf with a gradient, to
        which torch allows writes only if it is detached."""
        written = sorted(self._recorder.followed & self._entered.keys())
        entered = [(at, *self._entered[at]) for at in written]
        return [
            (at, ghost)
            for at, tensor, ghost in entered
            if ghost.requires_grad and not (tensor.requires_grad and tensor.is_leaf)
        ]

    def known_nodes(self) -> dict[Node, Ghost]:
        """Node -> ghost of inputs and constants."""
        return {ghost._node: ghost for _, ghost in self._known.values()}

    def quiet_views(self) -> dict[Node, bool]:
        """The views made without grad mode, and whether their base required a gradient then."""
        return self._recorder.quiet

    def gradients_withheld(self) -> bool:  # see Owner
        return self._recorder.owner.withheld

    def custom_gradients(self) -> list[CustomBackward]:  # see Owner
        return self._recorder.owner.custom

    def differentiable_constants(self) -> bool:
        """Whether a constant requires a gradient."""
        differentiable = {ghost._ref for _, ghost in self._known.values() if ghost.requires_grad}
        return any(
            one.requires_grad or ref in differentiable for ref, one in self._constants.items()
        )

    def beside(self, fn: Callable[..., Any], *args: Any) -> tuple[Any, list[Node]]:
        """fn(owner, *args) on ghosts: (result, recorded nodes), undone. Raises CannotTrace."""
        recorder = self._recorder
        mark = recorder.mark(None), len(self._calls), self._refs, self._needs_grad
        start = len(recorder.nodes)
        casting = [kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
        try:
            for kind in casting:
                torch.set_autocast_enabled(kind, False)
            result = self._over_ghosts(fn, (recorder.owner, *args), {})
            return result, list(recorder.nodes[start:])
        finally:
            for kind in casting:
                torch.set_autocast_enabled(kind, True)
            self._undo(mark)

    # -- the graph

    def finish(self, outputs: Iterable[Ghost], backward: bool = False, read: str = "") -> Graph:
        """The graph of `outputs`, with its backward on request. The trace may continue. `read`: why
        autograd has to follow each call."""
        recorder = self._recorder
        outputs = list(outputs)
        order = {ref: i for i, ref in enumerate(self._input_refs)}
        for ref in range(self._refs):
            order.setdefault(ref, len(order))
        for ghost in outputs:
            if ghost._owner is not recorder.owner or ghost._ref < 0:
                raise ValueError(f"{ghost!r} is no value of this trace")
        # autograd ties a view of a tensor that requires a gradient to it in special ways (detached,
        # or made without grad mode): torch's own calls make it.
        shared = {id(g._store) for tensor, g in self._known.values() if tensor.requires_grad}
        entered = {id(g) for _, g in self._known.values()}
        ties = any(id(g._store) in shared and id(g) not in entered for g in outputs)
        used, joint = None, None
        if backward and (self._needs_grad or ties):
            # Loaded at first use: programs for inference need no gradients.
            from .joint import differentiate, used_up
        if backward and self._needs_grad and self.spends and not ties and not self.followed():
            with self.facts.active():
                used = used_up(self, outputs)
        # Gradients that the program computes inside the graph are plain values.
        needs_grad = (self._needs_grad and used is None) and (
            not self.spends or any(g.requires_grad for g in outputs) or bool(self.followed())
        )
        if backward and (needs_grad or ties):
            with self.facts.active():
                joint = Declined(read) if read else differentiate(self, outputs)
        inputs = [tensor for tensor, _ in self._known.values()] if recorder.mutates else []
        graph = Graph(
            self.name,
            list(self._inputs),
            list(recorder.nodes),
            [ghost._node for ghost in outputs],
            [renumbered(call, order) for call in self._calls],
            [Ref(order[ghost._ref]) for ghost in outputs],
            {order[ref]: tensor for ref, tensor in self._constants.items()},
            needs_grad=needs_grad or ties,
            mutates=recorder.mutates,
            random=recorder.random,
            sources=list(self._sources),
            overlaps=overlapping(self._stores, inputs),
            written=sorted(recorder.written),
            slow_ops=list(recorder.slow_ops),
            grad_where=self._grad_where if needs_grad else None,
            joint=joint,
            spends=self.spends,
            backward_end=self.backward_end,
            forward_end=self.forward_end,
            spent=used or (),
            values=tuple([self._values[ref] for ref in order]),
        )
        if self.facts.symbols and not self.within:
            self._settle(graph)
        return graph if self.regions is None else self.regions.expanded(graph)

    def _settle(self, graph: Graph) -> None:
        """Write equal symbols alike, and give the graph the origins of its symbols."""
        facts, seen = self.facts, []
        behind = graph.joint if isinstance(graph.joint, Joint) else None
        after = (*behind.tangents, *behind.nodes) if behind else ()
        for node in [*graph.inputs, *graph.nodes, *after]:
            node.meta = facts.form(node.meta)
            node.args, node.kwargs = facts.form(node.args), facts.form(node.kwargs)
            seen += [node.meta, node.args, node.kwargs]
        for call in graph.calls:
            call.args, call.kwargs = facts.form(call.args), facts.form(call.kwargs)
            if not isinstance(call.results, Symbol):  # a number that this call reads
                call.results = facts.form(call.results)
            seen += [call.args, call.kwargs]
        graph.required = list(facts.required)
        used = symbols_of([*seen, *((one.left, one.right) for one in facts.required)])
        for symbol, (what, source, *dim) in facts.symbols.items():
            if symbol not in used:
                continue
            if what == "data":
                graph.symbols[symbol] = (what, graph.outputs.index(source._node), *dim)
            elif what == "number":
                graph.numbers.append(symbol)
                graph.symbols[symbol] = (what, len(graph.inputs) + len(graph.numbers) - 1)
            else:
                graph.symbols[symbol] = (what, self._sources.index(source), *dim)
        graph.facts = facts
