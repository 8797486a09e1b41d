"""`torch.autograd.Function.apply`: capture walks its forward, and its backward, like any function.

In: the class and the arguments of `apply`. Out: forward's result. Eager runs forward without grad
mode, passes it (or setup_context) a context object, and drops the context if no backward follows:
then forward is inlined.

With a gradient, forward is walked into a trace of its own, and backward at once into another one,
for gradients that are ghosts. Both become one recorded call (`ir.trace.custom_function`), which
torch's autograd differentiates over ghosts like any Function. Backward runs later, so what it does
besides computing gradients (a print, a write, a read of what may have changed) cannot be part of a
graph: that is a break.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.graph.effects import is_random, sends
from ...ir.graph.layout import gradient_strides
from ...ir.graph.nodes import Graph, Meta, meta_of
from ...ir.trace.autocast_cache import AUTOCAST_DEVICES
from ...ir.trace.custom_function import Applied, Backward, Unowned, Walked
from ...ir.trace.ghost import Ghost
from ...ir.trace.quiet_views import is_tied
from ...ir.trace.tracer import Tracer
from ...runtime.autograd.custom_function import Reads, Unreachable
from ..breaks import Break
from ..data_model import attributes
from ..values import containers
from ..values.containers import NotConstant, as_constant
from ..values.registry import BUILTINS, NONE, Args, Kwargs, models
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import Awaited, Const, Dict, Instance, Obj, Tensor, Value, is_none, settle
from ..values.value import Sequence as Items
from . import calls
from .nested_traces import Inner, lift, require_rule

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB134"
_Function = torch.autograd.Function
_NO_SETUP = torch.autograd.function._SingleLevelFunction.setup_context
_MAX_PATTERNS = 3  # differentiable results whose gradients may each be missing


def _refused() -> Any:
    """What the context of a Function has besides."""


class Context:
    """The `ctx` of a walked forward and backward."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Any, ...] = ()
    materialize_grads = True
    to_save: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.to_save = tensors  # `saved_tensors` is empty until forward returns

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    name = metadata = next_functions = register_hook = property(lambda ctx: _refused())
    register_prehook = saved_variables = saved_for_forward = property(lambda ctx: _refused())


attributes.STAND_INS[Context] = (_CODE, "the context of a custom function is looked at or kept")
attributes.REAL_BASES[Context] = torch.autograd.function.BackwardCFunction


@models(_refused)
def _refuse_rest(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break(*attributes.STAND_INS[Context])


# -- the call --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Call:
    """A call of apply: the class, its methods and the arguments, with defaults."""

    owner: Obj
    forward: Value
    setup: Value | None
    args: Args

    @property
    def cls(self) -> Any:
        return self.owner.value

    @property
    def name(self) -> str:
        return self.cls.__name__  # type: ignore[no-any-return]


@models(_Function.apply.__func__)
def _apply(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    owner, given = args[0], args[1:]
    if not isinstance(owner, Obj):
        raise Break(_CODE, "apply of a class that is not known")
    if (whole := BUILTINS.get(owner.value)) is not None:
        return whole(m, given, kwargs)
    settle(given)
    (forward, code), (setup, setup_code) = (
        _method(m, owner, name) for name in ("forward", "setup_context")
    )
    if setup_code is not _NO_SETUP:
        given = _defaults(code, given, kwargs)
        call = _Call(owner, forward, setup, given)
    elif kwargs:
        raise Break(_CODE, f"{owner.value.__name__}.apply() with keyword arguments")
    else:
        call = _Call(owner, forward, None, given)
    transforms = [one for one in m.inner if not one.custom]
    tensors = [value for value in given if isinstance(value, Tensor)]
    if transforms:
        require_rule(m, call.cls, tensors, call.setup is not None)
    if torch.is_grad_enabled():
        quiet = m.tracer.quiet_views()
        if any(value.ghost.requires_grad for value in tensors):
            return _Differentiable(m, call).run()
        if any(is_tied(value.ghost, quiet) for value in tensors):
            raise Break(_CODE, "an argument is a view that was made without grad mode")
    return _without_gradient(m, call)


def _method(m: Machine, owner: Obj, name: str) -> tuple[Value, types.FunctionType]:
    """A static method or class method as the class gives it, and its function."""
    found = attributes.load_attr(m, owner, name)
    raw = inspect.getattr_static(owner.value, name)
    function = raw.__func__ if type(raw) in (staticmethod, classmethod) else None
    if type(function) is not types.FunctionType:
        raise Break(_CODE, f"{owner.value.__name__}.{name} is not a static method")
    return found, function


def _defaults(forward: Any, given: Args, kwargs: Kwargs) -> Args:
    """The arguments for setup_context: all positional, with defaults."""
    parameters = inspect.signature(forward).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if kwargs or len(given) != len(parameters) or any(one.kind not in plain for one in parameters):
        raise Break(_CODE, "apply with defaults or keyword arguments")
    return given


def _context(m: Machine, call: _Call, needs: Sequence[bool]) -> Instance:
    made = Instance(Obj(Context))
    m.heap.overlay[made] = {"needs_input_grad": Items([Const(one) for one in needs], tuple)}
    return made


def _forward(m: Machine, call: _Call, context: Instance) -> Value:
    if call.setup is None:
        return m.call(call.forward, [context, *call.args], {})
    result = m.call(call.forward, call.args, {})
    m.call(call.setup, [context, Items(list(call.args), tuple), result], {})
    return result


def _parts(m: Machine, result: Value) -> list[Value]:
    tuples = isinstance(result, Items) and result.cls is tuple
    return containers.sequence_items(m, result) if tuples else [result]  # type: ignore[arg-type]


# -- without a gradient ----------------------------------------------------------------------------
def _without_gradient(m: Machine, call: _Call) -> Value:
    """Inline forward."""
    context = _context(m, call, [False] * len(call.args))
    enabled = torch.is_grad_enabled()
    if enabled:
        m.tracer.grad_mode(False)
    try:
        result = _forward(m, call, context)
    finally:
        if enabled:
            m.tracer.grad_mode(True)
    for part in _parts(m, result):
        # autograd makes a view of an input that forward returns
        if isinstance(part, Tensor) and (part in call.args or part.source is not None):
            raise Break(_CODE, f"{call.name} returns a tensor that it was given")
    return result


# -- with a gradient -------------------------------------------------------------------------------
@contextlib.contextmanager
def _inside(m: Machine, inner: Inner) -> Iterator[None]:
    """Walk into an inner trace, without grad mode."""
    outer, grad = m.tracer, torch.is_grad_enabled()
    m.activity += 1
    m.inner.append(inner)
    m.tracer = inner.tracer
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(grad)
        m.inner.pop()
        m.tracer = outer


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """A backward runs after the autocast block of its forward."""
    active = [kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
    for kind in active:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in active:
            torch.set_autocast_enabled(kind, True)


@dataclass(slots=True)
class _Outputs:
    """The outputs of the forward's graph, each once."""

    ghosts: list[Ghost] = field(default_factory=list)

    def at(self, ghost: Ghost) -> int:
        for number, one in enumerate(self.ghosts):
            if one is ghost:
                return number
        self.ghosts.append(ghost)
        return len(self.ghosts) - 1


def _inner(m: Machine, name: str) -> Inner:
    """A trace with the sizes and numbers of the frame."""
    made = Inner(Tracer(name, m.facts), custom=True)
    made.tracer.within = True
    return made


class _Differentiable:
    """One call of apply that autograd follows."""

    def __init__(self, m: Machine, call: _Call) -> None:
        self.m, self.call = m, call
        self.inner = _inner(m, f"{call.name}.forward")
        needs = [isinstance(one, Tensor) and one.ghost.requires_grad for one in call.args]
        self.context = _context(m, call, needs)
        self.outputs = _Outputs()
        self.saved: list[Value] = []
        self.held: list[Ghost] = []
        self.reads: dict[tuple[int, str], Any] = {}

    def run(self) -> Value:
        m, call = self.m, self.call
        before = len(m.journal.effects), len(m.contexts)
        backward, function = self._backward_method()
        sent = self._sent()
        transformed = any(not one.custom for one in m.inner)
        with _inside(m, self.inner):
            tensors = [value for value in call.args if isinstance(value, Tensor)]
            for value in tensors:
                lift(m, value.ghost)
            result = _forward(m, call, self.context)
            if (len(m.journal.effects), len(m.contexts)) != before:
                raise Break(_CODE, f"the forward of {call.name} has effects")
            parts = _parts(m, result)
            self._save()
            held = self._attributes()
            self._check_result(parts)
            backwards = self._backwards(backward, parts)
            for ghost in self.held:
                self._check_held(ghost, held)
            walked = self._walked(tensors, parts, backwards)
            if transformed and walked.dirty:
                raise Break(_CODE, f"{call.name} writes to an argument under a transform")
        others = tuple(
            around
            for known, around, _ in self.inner.lifted.values()
            if not any(known is value.ghost for value in tensors)
        )
        applied = Applied(call.cls, walked, self._reads(function))
        made = calls.record(m, applied, (sent, others), {})
        assert isinstance(made, Items)
        found = iter(containers.sequence_items(m, made))
        parts = [next(found) if isinstance(part, Tensor) else part for part in parts]
        return Items(parts, tuple) if isinstance(result, Items) else parts[0]

    def _backward_method(self) -> tuple[Value, types.FunctionType]:
        """The static method that computes the gradients."""
        cls = self.call.cls
        if cls.vjp is not _Function.vjp:
            raise Break(_CODE, f"{self.call.name} defines vjp")
        return _method(self.m, self.call.owner, "backward")

    def _sent(self) -> tuple[Any, ...]:
        """The arguments of the recorded call. A graph keeps no object of the program alive."""
        sent: list[Any] = []
        for value in self.call.args:
            if not isinstance(value, Obj) or isinstance(value.value, (type, torch.Tensor)):
                sent.append(calls.to_argument(self.m, value))
                continue
            try:
                sent.append(Unowned(weakref.ref(value.value)))
            except TypeError:
                reason = f"{self.call.name} with a {type(value.value).__name__} as an argument"
                raise Break(_CODE, reason) from None
        return tuple(sent)

    # -- forward

    def _attribute(self, name: str) -> Value:
        found = self.m.heap.overlay[self.context].get(name)
        return from_class(name) if found is None else found

    def _tensors(self, name: str) -> list[Tensor]:
        """The tensors that were passed to a method of the context."""
        items = self._attribute(name)
        found = containers.sequence_items(self.m, items) if isinstance(items, Items) else []
        if not all(isinstance(one, Tensor) for one in found):
            raise Break(_CODE, f"{self.call.name} marks or saves what is no tensor")
        return found  # type: ignore[return-value]

    def _check_result(self, parts: list[Value]) -> None:
        for part in parts:
            outside = isinstance(part, Tensor) and part.source is not None
            if outside and part not in self.call.args:
                raise Break(_CODE, f"{self.call.name} returns a tensor from outside")
            if isinstance(part, Items | Dict | Awaited):
                raise Break(_CODE, f"{self.call.name} returns a {type(part).__name__.lower()}")
        if not any(isinstance(part, Tensor) for part in parts):
            raise Break(_CODE, f"{self.call.name} returns no tensor")

    def _save(self) -> None:
        """What `save_for_backward` was given is what backward finds in `saved_tensors`."""
        items = self._attribute("to_save")
        assert isinstance(items, Items)
        self.saved = containers.sequence_items(self.m, items)
        if not all(is_none(one) or isinstance(one, Tensor) for one in self.saved):
            raise Break(_CODE, f"{self.call.name} marks or saves what is no tensor")
        self.m.heap.overlay[self.context]["saved_tensors"] = Items(list(self.saved), tuple)

    def _attributes(self) -> list[Tensor]:
        """The tensors in attributes of the context; breaks for what others may change until
        backward reads it."""
        found: list[Tensor] = []
        for name, value in self.m.heap.overlay[self.context].items():
            if name not in _OWN and value is not None:
                found += self._kept(name, value)
        return found

    def _kept(self, name: str, value: Value) -> list[Tensor]:
        if isinstance(value, Tensor):
            return [value]
        if isinstance(value, Items) and value.source is None:
            items = containers.sequence_items(self.m, value)
            return [one for item in items for one in self._kept(name, item)]
        if isinstance(value, Dict) and value.source is None:
            pairs = containers.dict_items(self.m, value)
            return [one for _, item in pairs for one in self._kept(name, item)]
        if isinstance(value, Obj) and isinstance(value.value, _LASTING):
            return []
        if isinstance(value, SymbolicNumber):
            return []
        try:
            as_constant(self.m, value)
        except NotConstant:
            reason = f"{self.call.name} keeps ctx.{name}, which others may change before backward"
            raise Break(_CODE, reason) from None
        return []

    def _check_writes(self, written: Sequence[int]) -> None:
        """Break for a write to a tensor from outside that autograd does not see, or that it
        could not follow."""
        dirty = self._tensors("dirty_tensors")
        made = {id(one.ghost): one for one in dirty if one.source is None and one in self.call.args}
        places = [known for known, _, _ in self.inner.lifted.values()]
        if any(id(places[at]) not in made for at in written):
            raise Break(_CODE, f"{self.call.name} writes to a tensor of its caller")

    def _check_held(self, ghost: Ghost, held: list[Tensor]) -> None:
        """Break for a tensor that backward reads from outside of its context."""
        inputs = {id(inside): known for known, _, inside in self.inner.lifted.values()}
        known = inputs.get(id(ghost))
        if known is None:
            return
        if not any(one.ghost is known and _may_be_read_later(one) for one in held):
            raise Break(_CODE, f"the backward of {self.call.name} reads a tensor not saved for it")

    # -- backward

    def _backwards(self, backward: Value, parts: list[Value]) -> dict[tuple[bool, ...], Backward]:
        """The backward for each set of gradients that autograd may pass."""
        plain = self._tensors("non_differentiable")
        makes = bool(as_constant(self.m, self._attribute("materialize_grads")))
        tensors = [part for part in parts if isinstance(part, Tensor)]
        if makes:
            present = [True] * len(tensors)
            return {tuple(present): self._backward(backward, parts, present)}
        follows = [
            part not in plain
            and (part.ghost.dtype.is_floating_point or part.ghost.dtype.is_complex)
            for part in tensors
        ]
        if sum(follows) > _MAX_PATTERNS:
            reason = f"{self.call.name} with many results, whose gradients may be None"
            raise Break(_CODE, reason)
        found = {tuple(follows): self._backward(backward, parts, follows)}
        before = self._state()
        for flags in itertools.product(*((True, False) if one else (False,) for one in follows)):
            if flags in found:
                continue
            try:
                found[flags] = self._backward(backward, parts, list(flags))
            except Break:  # if autograd passes these gradients, the program's own Function runs
                if self._state() != before:
                    raise
        return found

    def _backward(self, backward: Value, parts: list[Value], present: list[bool]) -> Backward:
        """`present`: for each tensor of the result, whether it has a gradient."""
        m, name = self.m, self.call.name
        inner = _inner(m, f"{name}.backward")
        before, outside = self._state(), m.later.reads
        m.later.reads = reads = {} if outside is None else outside
        gradients: list[Value] = []
        given: dict[int, int] = {}  # an input of the graph -> the number of its gradient
        try:
            with _inside(m, inner), _without_autocast():
                numbered = enumerate(present)
                for part in parts:
                    number, one = next(numbered) if isinstance(part, Tensor) else (0, False)
                    if not (one and isinstance(part, Tensor)):
                        gradients.append(NONE)
                        continue
                    given[inner.tracer.n_inputs] = number
                    gradients.append(calls.from_result(m, inner.tracer.given(_dense(m, part))))
                result = m.call(backward, [self.context, *gradients], {})
                found = self._gradients(result)
                outputs = [lift(m, one.ghost) for one in found if one is not None]
                if inner.tracer.mutates:
                    raise Break(_CODE, "it writes to a tensor that it was given")
                if inner.asked - {"is_contiguous", *_GRAD_MODE}:
                    raise Break(_CODE, "it asks for the memory layout of a gradient")
        except Break as stop:
            reason = f"the backward of {name} cannot be part of a graph: {stop.reason}"
            raise Break(_CODE, reason) from stop
        finally:
            self.reads.update(reads)
            m.later.reads = outside
        if self._state() != before:
            raise Break(_CODE, f"the backward of {name} has effects, which come when it runs")
        graph = inner.tracer.finish(outputs)
        if any(is_random(node) and not sends(node) for node in graph.nodes):
            raise Break(_CODE, f"the backward of {name} draws random numbers")
        lifted = iter([one for _, one, _ in inner.lifted.values()])
        places = tuple(
            ("gradient", given[at]) if at in given else self._place(next(lifted))
            for at in range(len(graph.inputs))
        )
        numbers = itertools.count()
        taken = tuple(None if one is None else next(numbers) for one in found)
        depends = _switches(graph) or not inner.asked.isdisjoint(_GRAD_MODE)
        return Backward(graph, places, taken, depends, "is_contiguous" in inner.asked)

    def _reads(self, function: types.FunctionType) -> Reads:
        """What backward reads from outside: constants, functions, classes and modules, which the
        autograd node compares when it runs."""
        m, name = self.m, self.call.name
        places = [(holder, key) for (_, key), holder in self.reads.items()]
        read = [place for place in places if _content_of(*place) is not NotImplemented]
        for holder, key in read:
            found = _content_of(holder, key)
            if not isinstance(found, (*_LASTING, *_NUMBERS)):
                what = f"{key or 'a closure variable'}, a {type(found).__name__}"
                reason = f"the backward of {name} reads {what}, which may change until it runs"
                raise Break(_CODE, reason)
            if isinstance(found, _NUMBERS) and any(not one.custom for one in m.inner):
                raise Break(_CODE, f"the backward of {name} reads {key} under a transform")
            if (id(holder), key) in m.heap.globals:
                raise Break(_CODE, f"the backward of {name} reads {key}, which the frame sets")
        m.later.behind |= self.reads.keys()
        try:
            return Reads(function, read)
        except Unreachable as error:
            reason = f"the backward of {name} reads {error} of code that is not its own"
            raise Break(_CODE, reason) from None

    def _state(self) -> Any:
        """What a walk of backward must leave as it is."""
        m = self.m
        context = {name: _content(value) for name, value in m.heap.overlay[self.context].items()}
        return len(m.journal.effects), len(m.contexts), context

    def _gradients(self, result: Value) -> list[Tensor | None]:
        """backward's result: for each tensor argument its gradient, or None."""
        args = self.call.args
        items = _parts(self.m, result)
        if len(items) < len(args) or not all(is_none(one) for one in items[len(args) :]):
            raise Break(_CODE, f"it returns {len(items)} gradients for {len(args)} arguments")
        found: list[Tensor | None] = []
        for value, item in zip(args, items, strict=False):
            if not (is_none(item) or (type(item) is Tensor and isinstance(value, Tensor))):
                raise Break(_CODE, "it returns a gradient that is no tensor, or of no tensor")
            if isinstance(value, Tensor):
                found.append(item if isinstance(item, Tensor) else None)
        return found

    def _place(self, ghost: Ghost) -> tuple[str, int]:
        """Where backward finds a tensor of the forward."""
        for at, one in enumerate(self.saved):
            if isinstance(one, Tensor) and lift(self.m, one.ghost) is ghost:
                return "saved", at
        for at, known in enumerate(self.held):
            if known is ghost:
                return "held", at
        self.held.append(ghost)
        return "held", len(self.held) - 1

    # -- both

    def _walked(self, tensors: list[Tensor], parts: list[Value], backwards: Any) -> Walked:
        m, at = self.m, self.outputs.at
        result = tuple([at(lift(m, part.ghost)) for part in parts if isinstance(part, Tensor)])
        saved = [at(lift(m, one.ghost)) if isinstance(one, Tensor) else None for one in self.saved]
        held = [at(ghost) for ghost in self.held]
        dirty, plain = (
            [at(lift(m, one.ghost)) for one in self._tensors(name)]
            for name in ("dirty_tensors", "non_differentiable")
        )
        ghosts = [value.ghost for value in tensors]
        numbers = itertools.count()
        inputs = tuple(
            ("argument", place) if place is not None else ("other", next(numbers))
            for known, _, _ in self.inner.lifted.values()
            for place in [next((k for k, one in enumerate(ghosts) if one is known), None)]
        )
        inputs_inside = {id(inside) for _, _, inside in self.inner.lifted.values()}
        later = {at(one) for one in self.held if id(one) in inputs_inside}.union(result)
        graph = self.inner.tracer.finish(self.outputs.ghosts)
        self._check_writes(graph.written)
        makes = bool(as_constant(m, self._attribute("materialize_grads")))
        return Walked(
            self.call.name,
            graph,
            inputs,
            result,
            tuple(saved),
            tuple(held),
            frozenset(later),
            tuple(dirty),
            tuple(plain),
            makes,
            backwards,
        )


# What the methods of `ctx` keep.
_OWN = ("to_save", "saved_tensors", "dirty_tensors", "non_differentiable", "needs_input_grad")
# Questions whose answers differ if the backward is itself differentiated.
_GRAD_MODE = ("is_grad_enabled", "requires_grad")
# What an attribute of `ctx` may hold, besides tensors and constants.
_LASTING = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_NUMBERS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _content_of(holder: Any, name: str) -> Any:
    """What a global, a cell or an attribute of a class holds; NotImplemented if nothing."""
    if isinstance(holder, dict):
        return holder.get(name, NotImplemented)  # a builtin is no global
    if isinstance(holder, type):
        return getattr(holder, name)
    try:
        return holder.cell_contents
    except ValueError:
        return NotImplemented


def from_class(name: str) -> Value:
    """An attribute that no method of the context has set."""
    return containers.from_constant(getattr(Context, name))


def _may_be_read_later(value: Tensor) -> bool:
    """Whether a backward can read it as it is then: a value of the frame, or a graph input."""
    return value.source is None or value.ghost._node.op == "input"


def _content(value: Value | None) -> Any:
    """A value, and what a container of the frame holds."""
    if isinstance(value, Items) and value.source is None:
        return [id(value), *map(_content, value._items)]
    return id(value)


def _dense(m: Machine, part: Tensor) -> Any:
    """The Meta of a result's gradient."""
    with m.facts.active():
        meta = meta_of(part.ghost)
    return Meta(meta.shape, gradient_strides(meta.shape, meta.stride), meta.dtype, meta.device)


def _switches(graph: Graph) -> bool:
    """Whether the calls switch grad mode."""
    return any(call.target is torch._C._set_grad_enabled for call in graph.calls)
