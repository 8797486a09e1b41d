"""Calls of torch: which callables go to the tracer unchanged, and how results become Values.

In: a torch function or tensor method and Values. Out: Values; the tracer records the call over
ghosts. A call is a break if it turns a tensor into a Python value, changes autograd, or changes
torch's global state.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional

from ...ir.errors import CannotTrace
from ...ir.graph.schema import SENDING, is_torchs
from ...ir.trace.tracer import DataDependent, TraceError, Unsupported
from ...runtime.guards.sources import Source
from ...runtime.process import fault_origin
from ...runtime.process.wrappers import TORCH_FOLDER
from .. import walk_warnings
from ..breaks import Break, NeedsPlainSizes
from ..data_model import conditional, value_questions
from ..data_model.attributes import NoAttribute, class_attribute, instance_dict, of_class, type_of
from ..exact_type import is_kind
from ..values import containers, registry, symbolic_numbers
from ..values.containers import NotConstant, as_constant, from_constant
from ..values.handled import is_handled, is_observed
from ..values.registry import NONE, drawn_tensor, model_of
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import (
    Array,
    Awaited,
    BuiltinMethod,
    Const,
    Context,
    Dict,
    Obj,
    Sequence,
    Set,
    Slice,
    Tensor,
    Value,
    awaited_among,
    is_none,
)
from ..values.wrap import CONST_TYPES
from . import current_device
from .nested_traces import lift, require_history
from .tensor_scalars import MAKERS, by_tensor, data_decide, of_tensors, once_more

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# -- which callables
# -------------------------------------------------------------------------------------
_TORCH_MODULES = frozenset(
    {
        "torch", "torch._C", "torch._C._nn", "torch._C._VariableFunctions", "torch._C._linalg",
        "torch._C._special", "torch._C._fft", "torch.functional", "torch.nn.functional",
        "torch._tensor", "torch._ops", "torch._refs", "torch.special", "torch.linalg", "torch.fft",
        "torch._jit_internal", "torch.nn._reduction", "torch.overrides", "torch._lowrank",
    }
)  # fmt: skip

# Functions of those modules that must not run over ghosts, and the code of their break.
_STATE = "GB118"
_AUTOGRAD = "GB114"
_REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "manual_seed", "seed", "set_rng_state", "get_rng_state", "initial_seed",
            "set_default_dtype", "set_default_device", "set_num_threads", "set_num_interop_threads",
            "set_default_tensor_type", "use_deterministic_algorithms", "set_flush_denormal",
            "set_float32_matmul_precision",
            "set_printoptions", "set_deterministic_debug_mode", "set_warn_always",
        ),
        _STATE,
    ),
    **dict.fromkeys(("backward", "register_hook", "retain_grad", "requires_grad_", "grad",
                     "register_post_accumulate_grad_hook", "_backward", "_is_view",
                     "detach_"), _AUTOGRAD),
    **dict.fromkeys(("save", "load", "compile", "export", "from_numpy", "as_tensor_from",
                     "frombuffer", "from_file", "from_dlpack", "to_dlpack"), "GB102"),
    **dict.fromkeys(("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__",
                     "__complex__", "__array__", "__repr__", "__format__", "__str__",
                     "__reduce_ex__", "__deepcopy__", "__contains__", "__hash__", "__sizeof__",
                     "__dir__", "is_nonzero", "equal", "allclose", "data_ptr", "storage",
                     "untyped_storage", "share_memory_", "__dlpack__", "pin_memory",
                     "_typed_storage", "_nested_tensor_from_mask_left_aligned"), "GB104"),
    **dict.fromkeys(("set_", "resize_", "resize_as_", "__setstate__", "apply_", "map_",
                     "swap_tensors", "as_subclass", "_make_subclass", "set_data"), "GB115"),
    **dict.fromkeys(("_pack_padded_sequence", "_pad_packed_sequence"), "GB106"),
    **dict.fromkeys(("nested_tensor", "_nested_tensor_from_tensor_list", "_nested_from_padded"),
                     "FB304"),
}  # fmt: skip

# Prefixes of torch._C functions that change the thread's or the library's state.
_STATE_PREFIXES = (
    "set_", "_set_", "autocast_", "_autocast", "clear_", "_clear_", "_push_", "_pop_", "_add_",
    "_remove_", "_enter_", "_exit_", "_enable", "_disable", "_save_", "_jit_", "_init", "init_num",
    "_autograd", "_unset_", "_enter", "_exit", "_activate", "_start", "_stop", "_record", "fork",
    "_vmapmode",
    "wait",
)  # fmt: skip

# Tensor attributes that the tensor's guard fixes.
_FACTS = frozenset(
    {
        "shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "is_meta", "is_sparse",
        "is_quantized", "is_mkldnn", "is_nested", "is_mps", "is_xpu", "itemsize", "nbytes",
        "layout", "names", "requires_grad", "is_sparse_csr",
    }
)  # fmt: skip
_FACT_METHODS = frozenset(
    {
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size",
        "storage_offset", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
        "is_conj", "is_neg", "get_device", "is_inference", "is_set_to",
    }
)  # fmt: skip
_LAYOUT = frozenset({"stride", "is_contiguous", "storage_offset", "is_set_to"})
# They depend on a tensor's position in its memory, or on the mode in which that was made, which no
# guard checks.
_PLACES = frozenset({"storage_offset", "is_set_to", "is_inference"})
# Functions without a tensor result whose result follows from their arguments. Any other may depend
# on a state of torch's (threads, precision, anomaly mode, memory) that changes unnoticed by guards.
_ANSWERS = _FACT_METHODS | frozenset(
    {
        "is_tensor", "is_storage", "result_type", "promote_types", "can_cast", "broadcast_shapes",
        "is_same_size", "typename", "is_coalesced", "dense_dim", "sparse_dim", "has_names",
        "is_distributed", "type", "_is_zerotensor", "__len__", "size", "sym_int", "sym_max",
        "sym_min", "sym_sum", "sym_float", "sym_not", "sym_ite", "_parse_to",
        "_has_compatible_shallow_copy_type",
    }
)  # fmt: skip
# The module of the functions that `torchscript` makes: their results follow from their arguments
# and from guarded state.
SCRIPTED = "TorchScript"
_PURE_MODULES = frozenset(
    {
        SCRIPTED,
        "torch.nn.functional", "torch.functional", "torch._jit_internal", "torch.nn._reduction",
        "torch.overrides", "torch._lowrank", "torch._refs",
    }
)  # fmt: skip
# A reason of the tracer -> the code of its break, where it is not GB124.
_UNSUPPORTED = {"history": _AUTOGRAD, "inference": "GB108"}
_UNSUPPORTED |= dict.fromkeys(("no-fake-rule", "fake-rule"), "GB143")
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})


# Functions of those modules that are walked like other Python.
_WALKED = {torch._assert} | {
    function
    for cls in (torch.overrides.TorchFunctionMode, torch.overrides.BaseTorchFunctionMode)
    for function in vars(cls).values()
    if isinstance(function, types.FunctionType)
}


def is_torch_callable(fn: Any) -> bool:
    """Whether calls of fn are recorded unchanged."""
    if is_kind(fn, _OPERATORS):
        return True
    if type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return issubclass(torch.Tensor, fn.__objclass__) and fn.__objclass__ is not object
    if type(fn) not in (types.FunctionType, types.BuiltinFunctionType):
        return False
    owner = getattr(fn, "__self__", None)
    if is_kind(owner, type) and _is_torchs(owner):
        return True
    if is_kind(owner, torch.Tensor) or fn in _WALKED:
        return False
    if type(fn) is types.BuiltinFunctionType:
        return _is_torchs(fn)
    return _is_torchs_own(fn) and not hasattr(fn, "__wrapped__")


def _is_torchs(named: Any) -> bool:
    """Whether a C function or class is torch's own: other modules may use the same name."""
    path = (getattr(named, "__module__", None) or "").split(".")
    holder: Any = torch if path[0] == "torch" else None
    for part in path[1:]:
        holder = getattr(holder, part, None)
    # `torch.norm` is a Python function that wraps the C one.
    holders = () if holder is None else (holder, torch._C._VariableFunctions)
    return any(getattr(one, named.__name__, None) is named for one in holders)


def _is_torchs_own(fn: types.FunctionType) -> bool:
    """Whether a Python function is one of torch's that compute with tensors, by its source file."""
    return fn.__module__ in _TORCH_MODULES and fn.__code__.co_filename.startswith(TORCH_FOLDER)


def call_torch(m: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Record fn(*args, **kwargs) over ghosts."""
    name = getattr(fn, "__name__", str(fn))
    if name in value_questions.NUMBERS and len(args) == 1 and not kwargs:
        answer = value_questions.number(m, args[0], name)
        if answer is not None:
            return answer
    if name in _REFUSED:
        raise Break(_REFUSED[name], f"{name}()")
    _refuse_places(name, *args, *kwargs.values())
    if isinstance(fn, types.BuiltinFunctionType):
        if name.startswith(_STATE_PREFIXES):
            raise Break(_STATE, f"{name}()")
        if fn.__module__ == "torch._C._functorch":  # they begin and end levels of transforms
            raise Break("GB124", f"{name}()")
    named = None if is_none(kwargs.get("generator", NONE)) else drawn_tensor
    if is_kind(fn, _OPERATORS):
        space = str(fn).partition(".")[0]
        if space in SENDING:
            named = registry.collective_operator
        elif not is_torchs(space):
            named = registry.library_operator
    if named is None and m.heap.awaited and awaited_among([*args, *kwargs.values()]):
        named = registry.waiting_call
    if named is not None:
        return model_of(named)(m, [Obj(fn), *args], kwargs)  # type: ignore[misc]
    if m.modes:
        taken = by_mode(m, fn, args, kwargs)
        if taken is not None:
            return taken
    if "alpha" in kwargs or "value" in kwargs:
        scaled = by_tensor(m, name, args, kwargs)
        if scaled is not None:
            return scaled
    if name in MAKERS and args and isinstance(args[0], Sequence) and has_tensor(args[0].items):
        return of_tensors(m, name, args, kwargs)
    fn_args = tuple(to_argument(m, value) for value in args)
    fn_kwargs = {key: to_argument(m, value) for key, value in kwargs.items()}
    return record(m, fn, fn_args, fn_kwargs)


def by_mode(m: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    # `function_modes` imports this file
    from .function_modes import handled

    return handled(m, fn, args, kwargs)


def record(
    m: Machine,
    fn: Any,
    fn_args: tuple[Any, ...],
    fn_kwargs: dict[str, Any],
    may_fail: bool = True,
) -> Value:
    """The Value of a call that the tracer makes and records.

    `may_fail`: it may raise because of data that nothing before it checked.
    """
    name = getattr(fn, "__name__", str(fn))
    m.activity += 1
    start = m.tracer.n_nodes
    try:
        result = _run(m, fn, fn_args, fn_kwargs)
    except CannotTrace as error:
        if fn is operator.setitem or (isinstance(error, DataDependent) and error.shape):
            # few programs have sizes that data decide
            from ..data_model.data_sizes import instead

            if (made := instead(m, fn, fn_args, fn_kwargs)) is not None:
                if fn is operator.setitem:  # the sizes may not fit
                    _failing(m, name, start)
                return from_result(m, made)
        if isinstance(error, DataDependent):
            made = None if error.shape else once_more(m, record, fn, fn_args, fn_kwargs, may_fail)
            if made is not None:
                return made
            raise Break("GB106" if error.shape else "GB104", f"{name}: {error}") from error
        if data_decide(m, fn_args):
            raise Break("GB104", f"{name}: a number from tensor data decides") from None
        # It may fail only because of symbolic numbers.
        if m.facts.symbols and not m.varied.plain:
            raise NeedsPlainSizes(name, str(error)) from None
        _check_whose(error)
        code = "GB108"
        if isinstance(error, Unsupported):
            code = _UNSUPPORTED.get(error.code, "GB124")
        raise Break(code, f"{name}: {error}") from error
    _check_regions(m, name, start)
    if may_fail:
        _failing(m, name, start)
    if result is not None and not _made_of_tensors(result) and not _is_answer(fn, name):
        raise Break("GB118", f"{name}() returns a state that no guard checks")
    return from_result(m, result)


def differentiate(
    m: Machine, fn: Any, fn_args: tuple[Any, ...], fn_kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The result of a call that runs a backward over the ghosts: ghosts or None."""
    m.activity += 1
    start = m.tracer.n_nodes
    try:
        found = _run(m, fn, fn_args, fn_kwargs)
    except CannotTrace as error:
        _check_whose(error)
        raise Break("GB108" if isinstance(error, TraceError) else _AUTOGRAD, str(error)) from error
    _check_regions(m, "backward", start)
    _failing(m, "backward", start)
    return found  # type: ignore[no-any-return]


def _check_regions(m: Machine, name: str, start: int) -> None:
    if m.tracer.regions is not None and m.tracer.regions.written_since(start):
        raise Break(_AUTOGRAD, f"{name}() writes to what a checkpointed function has read")


def _check_whose(error: CannotTrace) -> None:
    """Re-raise a fault of one of our rules: it is no exception of the call."""
    if isinstance(error, TraceError) and fault_origin.is_ours(error.original):
        raise error.original


def _made_of_tensors(result: Any) -> bool:
    parts = result.values() if is_kind(result, dict) else result
    if is_kind(result, (tuple, list, dict)) and not is_kind(result, torch.Size):
        # None among tensors is a result that was not requested.
        given = [part for part in parts if part is not None]
        return bool(given or not parts) and all(map(_made_of_tensors, given))
    return is_kind(result, torch.Tensor)


def _is_answer(fn: Any, name: str) -> bool:
    """Whether a result follows from the arguments: facts of dtypes and shapes."""
    if is_kind(fn, _OPERATORS) and not is_torchs(str(fn).partition(".")[0]):
        return True  # by its fake rule
    module = getattr(fn, "__module__", None) or ""
    return name in _ANSWERS or module in _PURE_MODULES


def _run(m: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = walk_warnings.over_ghosts(m, fn, args, kwargs)
    current_device.hold(m, fn, args, kwargs)
    if m.tracer.needs_grad and not m.saves_observed and torch.is_grad_enabled():
        m.saves_observed = is_observed(m)
    return result


def _failing(m: Machine, name: str, start: int) -> None:
    """Note an operator that may raise at run time; then Python runs the frame again.

    So nothing may have been written before it.
    """
    if not m.tracer.may_raise_since(start):
        return
    m.fragile |= _is_watched(m)
    if m.fragile and not m.may_raise():
        raise Break("GB138", f"{name}() may raise, and a tensor of the caller is written to")


def _is_watched(m: Machine) -> bool:
    """Whether Python has visible effects before this call, or a handler for its exception."""
    if m.journal.effects or m.contexts or torch.is_grad_enabled() != m.grad_before:
        return True
    return is_handled(m)


def to_argument(m: Machine, value: Value) -> Any:
    """A Value for the tracer: ghosts, constants, and containers of those."""
    if isinstance(value, Tensor):
        return lift(m, value.settled().ghost if isinstance(value, Awaited) else value.ghost)
    if isinstance(value, Array):
        if min(value.array.strides, default=0) < 0:
            raise Break("GB123", "a numpy array with negative strides in a torch call")
        for shared in m.heap.shared:
            # The write is in the graph, and the array's content here is that of before.
            if shared.store.written:
                raise shared.refused()
        return value.array.copy()
    if isinstance(value, Obj) and is_kind(value.value, np.ndarray):
        raise Break("GB123", "a numpy array from outside in a torch call")
    if isinstance(value, Sequence):
        items = [to_argument(m, item) for item in containers.sequence_items(m, value)]
        if value.cls in (list, tuple):
            return value.cls(items)
        return value.cls._make(items) if hasattr(value.cls, "_make") else tuple(items)
    if isinstance(value, Dict):
        return {as_constant(m, k): to_argument(m, v) for k, v in containers.dict_items(m, value)}
    if isinstance(value, Slice):
        return slice(*(to_argument(m, part) for part in (value.start, value.stop, value.step)))
    if isinstance(value, Obj) and is_kind(value.value, torch.Tensor):
        raise Break("GB113", f"a {type(value.value).__name__} in a torch call")
    if isinstance(value, Obj) and is_kind(value.value, type):
        return value.value
    if isinstance(value, SymbolicNumber):
        return symbolic_numbers.argument(m, value)
    try:
        return as_constant(m, value)
    except NotConstant:
        raise Break("GB124", "a torch call with an argument that is not a constant") from None


def from_result(m: Machine, result: Any) -> Value:
    """The Value of a recorded call's result."""
    if isinstance(result, torch.Tensor):
        return m.heap.tensor(result)
    kind = type(result)
    counted = symbolic_numbers.from_torch_number(m, result)
    if counted is not None:
        return counted
    if kind in CONST_TYPES:
        return Const(result)
    if kind in (tuple, list) or (
        isinstance(result, tuple) and kind.__module__ == "torch.return_types"
    ):
        return Sequence([from_result(m, item) for item in result], kind)
    if isinstance(result, tuple) and hasattr(kind, "_fields"):
        return Sequence([from_result(m, item) for item in result], kind)
    if kind is dict:
        made = Dict({})
        for key, item in result.items():
            containers.dict_set(m, made, from_constant(key), from_result(m, item))
        return made
    return from_constant(result)


def fact(m: Machine, ask: Callable[[], Any]) -> Value:
    """The Value of a ghost's own metadata."""
    with m.facts.active():
        found = containers.compute(ask)
        counted = symbolic_numbers.from_torch_number(m, found)
    return containers.from_constant(found) if counted is None else counted


# -- tensor attributes and methods -----------------------------------------------------------------
def tensor_attr(m: Machine, value: Tensor, name: str) -> Value:
    """tensor.name"""
    if m.modes and (name in _FACTS or name in _VIEWS):
        taken = by_mode(m, _getter(name), [value], {})
        if taken is not None:
            return taken
    if name in _FACTS:
        if name == "requires_grad" and m.inner and m.tracer.owns(value.ghost):
            m.inner[-1].asked.add(name)
        if name == "names":
            raise Break("GB112", "Tensor.names")
        if name == "requires_grad" and value.source is None and not value.ghost.requires_grad:
            _refuse_tied(m, value)
        if name == "requires_grad" and value.source is None and value.ghost.requires_grad:
            require_history(m, value.ghost)
            conditional.ask_history(m, value.ghost)
        ghost = value.ghost
        # torch's own does not support symbolic sizes.
        if name == "nbytes":
            return fact(m, lambda: ghost.numel() * ghost.element_size())
        return fact(m, lambda: getattr(ghost, name))
    if name in _VIEWS:
        return call_torch(m, GETTERS[name], [value], {})
    if name == "__class__":
        return type_of(m, value)
    if name == "data":
        # That of another tensor has a model (`models.legacy`).
        if _no_grad(value):
            return call_torch(m, GETTERS[name], [value], {})
        return m.call(Obj(GETTERS[name]), [value], {})
    if name in ("grad", "is_leaf", "grad_fn"):
        if name == "grad":
            return _backward().read(m, value)  # type: ignore[no-any-return]
        leaf = _backward().is_leaf(m, value)
        return Const(leaf) if name == "is_leaf" else Const(None) if leaf else _backward().node(m)
    known = getattr(torch.Tensor, name, None)
    if known is None:
        return _own_attr(m, value, name)
    if callable(known):
        own = _put_on(m, value, name)
        return BuiltinMethod(value, name) if own is None else own
    return _refuse(name)


def _backward() -> Any:
    # it imports this file
    from . import backward

    return backward


def _own_attr(m: Machine, value: Tensor, name: str) -> Value:
    """An attribute that the user has put on the tensor itself."""
    class_attribute(m, value, name)
    own = m.heap.overlay.get(value, {}).get(name) or _put_on(m, value, name)
    if own is None:
        raise NoAttribute(name, value.cls.__name__)
    return own


def _put_on(m: Machine, value: Tensor, name: str) -> Value | None:
    """What the user has put on a tensor from outside under this name."""
    if value.source is None:
        return None
    own = instance_dict(value.origin) or {}
    if name in own:
        return m.wrap(own[name], Source("attr", value.source, name))
    m.guard("no_attr", value.source, name)
    return None


def _no_grad(value: Tensor) -> bool:
    # `.data` has its own version counter, which a view of a graph's input cannot have.
    ghost = value.ghost
    return value.source is None and ghost._store.fresh and not ghost.requires_grad


def _refuse(name: str) -> Value:
    raise Break("GB114", f"Tensor.{name}")


def _refuse_tied(m: Machine, value: Tensor) -> None:
    """Break for a view made without grad mode: its base decides, which a ghost does not know."""
    quiet, node = m.tracer.quiet_views(), value.ghost._node
    while node not in quiet and node.alias is not None:
        node = node.alias
    if node not in quiet:
        return
    if any(
        (other := member()) is not None and other.requires_grad
        for member in value.ghost._store.members
    ):
        raise Break("GB114", "requires_grad of a view of a tensor that requires a gradient")


def _getter(name: str) -> Callable[[Any], Any]:
    def get(tensor: Any) -> Any:
        return getattr(tensor, name)

    get.__name__ = name
    return get


GETTERS = {name: _getter(name) for name in (*_VIEWS, "data")}


def call_tensor_method(
    m: Machine, value: Tensor, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """tensor.name(*args, **kwargs)"""
    class_attribute(m, value, name)  # somebody may patch torch.Tensor
    method = getattr(torch.Tensor, name)
    if type(method) is types.FunctionType and not _is_torchs_own(method):
        raise Break("GB102", f"Tensor.{name}()")
    if name in ("backward", "requires_grad_"):
        model = _backward().backward if name == "backward" else _backward().require
        return model(m, value, args, kwargs)  # type: ignore[no-any-return]
    if name in value_questions.NUMBERS and not (args or kwargs):
        answer = value_questions.number(m, value, name)
        if answer is not None:
            return answer
    if name in _REFUSED:
        if (modelled := model_of(method)) is not None:
            return modelled(m, [value, *args], kwargs)
        raise Break(_REFUSED[name], f"Tensor.{name}()")
    _refuse_places(f"Tensor.{name}", value, *args)
    if name in _FACT_METHODS:
        taken = by_mode(m, method, [value, *args], kwargs) if m.modes else None
        if taken is not None:
            return taken
        if name in _LAYOUT and m.inner and m.tracer.owns(value.ghost):
            m.inner[-1].asked.add(name)
        real = [as_constant(m, a) for a in args]
        named = {k: as_constant(m, a) for k, a in kwargs.items()}
        return fact(m, lambda: getattr(value.ghost, name)(*real, **named))
    return call_torch(m, method, [value, *args], kwargs)


def _refuse_places(text: str, *values: Value) -> None:
    """Break for what only a tensor that the graph makes has as its ghost has it."""
    name = text.rpartition(".")[2]
    if name not in _PLACES:
        return
    made = all(value.ghost._store.fresh for value in values if isinstance(value, Tensor))
    if not made or (name == "is_inference" and torch.is_inference_mode_enabled()):
        raise Break("GB112", f"{text}() of an input, or in inference mode")


# -- operators -------------------------------------------------------------------------------------
def has_tensor(values: list[Value]) -> bool:
    """Whether one of these is a tensor, or a sequence with one (an index like x[i, None])."""
    return any(
        isinstance(v, Tensor) or (isinstance(v, Sequence) and has_tensor(v.items)) for v in values
    )


def call_operator(m: Machine, fn: Callable[..., Any], args: list[Value]) -> Value:
    """A Python operator with a tensor among its operands."""
    for value in args:
        if isinstance(value, Obj) and is_kind(value.value, np.ndarray):
            raise Break("GB123", "an operator between a tensor and a numpy array")
        if isinstance(value, (Obj, Set, Context)):
            raise Break("GB112", "an operator between a tensor and an object")
    if fn is operator.contains:
        raise Break("GB104", "'in' on a tensor")
    if symbolic_numbers.is_of(args[0], (str, bytes)):
        raise Break("GB104", "a tensor written into a text")
    if fn is not operator.getitem and any(isinstance(value, Array) for value in args):
        raise Break("GB123", "an operator between a tensor and a numpy array")
    hold_operator(m, fn, args)
    return call_torch(m, fn, args, {})


def hold_operator(m: Machine, fn: Callable[..., Any], args: list[Value]) -> None:
    """Somebody may patch torch.Tensor's operators."""
    word = fn.__name__.strip("_")
    for cls in {id(v.cls): v.cls for v in args if isinstance(v, Tensor)}.values():
        for name in (f"__{word}__", f"__r{word}__"):
            raw = of_class(m, cls, name)
            if type(raw) is types.FunctionType and not _is_torchs_own(raw):
                raise Break("GB102", f"Tensor.{name}, which is the program's own")
