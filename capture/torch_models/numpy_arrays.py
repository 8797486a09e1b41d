"""numpy inside a frame: numpy itself computes at capture the arrays made there.

In: numpy calls on constants of the frame, on arrays made in it, and on small arrays from outside,
whose content is guarded (`values.wrap`) and is not written. Out: constants, and `Array`
Values with capture's own array; a write changes it at capture as it would in each run. An array
that leaves the frame is made anew in each run (see `fresh`), with those that share its memory. A
tensor over an array's memory has a copy in the graph, which is right as long as only one of them is
visible; else the call that made it is a break (`ArrayShares`). Functions that are not in
`numpy_functions`, other arrays from outside, and numpy's warnings are breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...ir.dataclass import dataclass
from ...ir.location import Location
from ...ir.trace.ghost import Store
from .. import helpers
from ..breaks import ArrayShares, Break
from ..data_model import attributes
from ..data_model.iteration import ITERABLES
from ..exact_type import is_kind
from ..values import containers, registry, symbolic_numbers
from ..values.containers import NotConstant
from ..values.registry import BUILTINS, Args, Kwargs, Model
from ..values.value import (
    Array,
    BuiltinMethod,
    Const,
    Iterator,
    Method,
    Obj,
    Sequence,
    Slice,
    Tensor,
    Value,
    is_none,
)
from ..values.wrap import ARRAY_KINDS
from . import calls
from .numpy_functions import ATTRIBUTES, FUNCTIONS, METHODS, NUMBER_CLASSES, UFUNC_METHODS

if TYPE_CHECKING:
    from ..emit.emitter import Emitter
    from ..interpreter.machine import Machine

MAX_BYTES = 1 << 26
"""The size limit of arrays at capture; Python makes larger ones."""


def concerns(*values: Value) -> bool:
    """Whether an array is among these, so that numpy performs the operation."""
    return any(isinstance(value, Array) for value in values)


# -- conversion
# ------------------------------------------------------------------------------------------
def plain(m: Machine, value: Value) -> Any:
    """numpy's argument for a Value; raises NotConstant if capture does not know it."""
    if isinstance(value, Array):
        return value.array
    if isinstance(value, Tensor):
        raise Break("GB104", "a tensor turned into a numpy array")
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Sequence):
        items = [plain(m, item) for item in containers.sequence_items(m, value)]
        if value.cls in (list, tuple):
            return value.cls(items)
    if isinstance(value, Slice):
        return slice(*(plain(m, part) for part in (value.start, value.stop, value.step)))
    if isinstance(value, Obj) and type(value.value) is type and value.value in NUMBER_CLASSES:
        return value.value
    raise NotConstant


def value_of(m: Machine, result: Any) -> Value:
    """The Value of a numpy result."""
    kind = type(result)
    if kind is np.ndarray:
        known = m.heap.known.get(id(result))
        if known is None:
            _check(result)
            known = m.heap.known[id(result)] = Array(result)
            m.heap.keep.append(result)
        return known
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_make")):
        return Sequence([value_of(m, item) for item in result], kind)
    try:
        return containers.from_constant(result)
    except Break:
        raise Break("GB123", f"numpy gives a {kind.__name__}") from None


def _check(array: np.ndarray) -> None:
    """Break unless the array can be made again: plain numbers, in an array's own memory."""
    if type(array.dtype) not in ARRAY_KINDS or not array.dtype.isnative:
        raise Break("GB123", f"a numpy array of {array.dtype}")
    owner = _owner(array)
    if owner.nbytes > MAX_BYTES:
        raise Break("GB123", f"a numpy array of {owner.nbytes} bytes")
    if owner.base is not None or type(owner) is not np.ndarray:
        raise Break("GB123", "a numpy array over the memory of another object")
    if owner.copy(order="K").strides != owner.strides:
        raise Break("GB123", "a numpy array with gaps in its memory")


def _owner(array: np.ndarray) -> np.ndarray:
    return array if array.base is None else array.base


def evaluate(m: Machine, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """fn(*args, **kwargs) by numpy, now."""
    try:
        known = [plain(m, value) for value in args]
        named = {name: plain(m, value) for name, value in kwargs.items()}
    except (NotConstant, Break) as unknown:
        # The report names torch's function of that name; of a tensor, what turns it into an array.
        if isinstance(unknown, Break) and unknown.code != "GB123":
            raise
        name = getattr(fn, "__name__", "a function")
        raise Break(
            "GB123", f"{name}() of a value that is not a constant or an array made here"
        ) from None
    m.activity += 1
    before = [shared.owner.tobytes() for shared in m.heap.shared]
    outside = [(array, array.tobytes()) for array in m.heap.arrays]
    if outside and m.tracer.mutates:
        raise Break("GB123", "a numpy array from outside after a write to a tensor of the caller")
    result = containers.compute(lambda: fn(*known, **named))
    for array, held in outside:
        if array.tobytes() != held:
            array[...] = np.frombuffer(held, array.dtype).reshape(array.shape)
            raise Break("GB123", "a write to a numpy array from outside")
    for content, shared in zip(before, m.heap.shared, strict=True):
        if shared.store.written or shared.owner.tobytes() != content:
            raise shared.refused()
    return value_of(m, result)


# -- operations on arrays
# --------------------------------------------------------------------------------
_FORM = frozenset(["shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides"])


def attr(m: Machine, value: Array, name: str) -> Value:
    """array.name"""
    if name in _FORM:
        return value_of(m, getattr(value.form, name))
    if name in ATTRIBUTES:
        return evaluate(m, _getter(name), [value], {})
    if name == "__class__":
        return attributes.type_of(m, value)
    if hasattr(np.ndarray, name):
        if callable(getattr(np.ndarray, name)):
            return BuiltinMethod(value, name)
        raise Break("GB123", f"attribute {name!r} of a numpy array")
    raise attributes.NoAttribute(name, "numpy.ndarray")


def _getter(name: str) -> Callable[[Any], Any]:
    def get(array: Any) -> Any:
        return getattr(array, name)

    get.__name__ = name
    return get


def call_method(m: Machine, value: Array, name: str, args: Args, kwargs: Kwargs) -> Value:
    """array.name(*args, **kwargs)"""
    meaning = registry.DUNDERS.get(name)
    if meaning is not None:
        return BUILTINS[meaning](m, [value, *args], kwargs)
    if name not in METHODS:
        raise Break("GB123", f"method {name!r} of a numpy array")
    return evaluate(m, getattr(np.ndarray, name), [value, *args], kwargs)


def ufunc_attr(m: Machine, value: Obj, name: str) -> Value:
    """np.add.reduce and the like."""
    if name not in UFUNC_METHODS:
        raise Break("GB123", f"attribute {name!r} of a function of numpy")
    return Method(Obj(vars(np.ufunc)[name]), value)


def call_ufunc_method(m: Machine, ufunc: Value, name: str, args: Args, kwargs: Kwargs) -> Value:
    """np.add.reduce(...) and the like."""
    real = ufunc.value if isinstance(ufunc, Obj) else None
    if type(real) is not np.ufunc or real not in BUILTINS or name not in UFUNC_METHODS:
        raise Break("GB123", f"method {name!r} of a function of numpy")
    return evaluate(m, getattr(real, name), args, kwargs)


def operate(m: Machine, fn: Callable[..., Any], operands: Args) -> Value:
    """An operator or builtin with an array among its operands."""
    if any(isinstance(value, Tensor) for value in operands):
        raise Break("GB123", "an operator between a tensor and a numpy array")
    return evaluate(m, fn, operands, {})


def truth(m: Machine, value: Array) -> bool:
    result = evaluate(m, bool, [value], {})
    assert isinstance(result, Const)
    return bool(result.value)


def iterate(m: Machine, value: Array) -> Iterator:
    """iter(array): each item is looked up when the loop reaches it."""
    if not value.array.ndim:
        raise containers.raises("TypeError: iteration over a 0-d array")

    def step(made: Iterator) -> Value | None:
        index = made.parts[1]
        if index >= len(value.array):
            return None
        made.parts[1] = index + 1
        return operate(m, operator.getitem, [value, Const(index)])

    return Iterator("items of an object", [value, 0], step)


# -- tensors over an array's memory ----------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A tensor of the graph over an array's memory; the root's instruction `index` made it."""

    owner: np.ndarray
    store: Store
    index: int
    inlined: tuple[Location, ...]

    def refused(self) -> ArrayShares:
        return ArrayShares(self.index, self.inlined)


def share(m: Machine, value: Array) -> Value:
    """torch.from_numpy(array): in the graph, a separate tensor with a copy of the numbers."""
    array = value.array
    if min(array.strides, default=0) < 0 or not array.flags.writeable:
        raise Break("GB123", "a tensor over an array with negative strides, or that is read only")
    made = m.tracer.run(helpers.tensor_of, (array.copy(order="K"), array.strides), {}, m.where)
    made._store.borrowed = True
    m.activity += 1
    inlined = (m.where,) if len(m.frames) > 1 and m.where is not None else ()
    m.heap.shared.append(Shared(_owner(array), made._store, m.root_index, inlined))
    return calls.from_result(m, made)


_OF_TENSORS = frozenset(
    {
        *(torch.float16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)


def of_tensor(m: Machine, value: Tensor, args: Args, kwargs: Kwargs) -> Value:
    """value.numpy(), which replacement code makes of a result of the graph."""
    raw = attributes.class_attribute(m, value, "numpy")
    ghost = value.ghost
    plain = ghost.device.type == "cpu" and ghost.dtype in _OF_TENSORS and not ghost.requires_grad
    known = plain and raw is vars(torch._C.TensorBase)["numpy"] and not (args or kwargs)
    if not known or m.inner or m.modes or m.differentiating:
        return calls.call_tensor_method(m, value, "numpy", args, kwargs)
    return Array(None, of=value, shut=_read_of_tensor)


def _read_of_tensor(value: Array, numbers: bool) -> Any:
    raise Break("GB104", "Tensor.numpy()")


def _from_numpy(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if m.modes:
        return calls.call_torch(m, torch.from_numpy, args, kwargs)
    if len(args) == 1 and isinstance(args[0], Array) and not kwargs:
        return share(m, args[0])
    raise Break("GB123", "from_numpy()")


def _as_tensor(fn: Any) -> Model:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if m.modes or not args or not isinstance(args[0], Array):
            return calls.call_torch(m, fn, args, kwargs)
        if len(args) > 1 or not kwargs.keys() <= {"dtype", "device"}:
            raise Break("GB123", f"{fn.__name__}() of a numpy array")
        tensor = share(m, args[0])
        if all(is_none(value) for value in kwargs.values()):
            return tensor
        return calls.call_torch(m, torch.Tensor.to, [tensor], kwargs)

    return model


# -- arrays that leave the frame
# -------------------------------------------------------------------------
def fresh(e: Emitter, value: Array) -> None:
    """Emit the construction of this array, and of its owner, which others may share."""
    if value.of is not None:
        tensor = value.of
        e.asm.call_const(torch.Tensor.numpy, lambda: e.push(tensor))
        return
    m, array = e.m, value.array
    owner = _owner(array)
    e.arrays.append(owner)
    if owner is array:
        content = array.copy(order="K")
        content.flags.writeable = array.flags.writeable
        e.asm.call_const(helpers.copy_of, lambda: e.asm.load_const(content))
        return
    offset = array.ctypes.data - owner.ctypes.data
    form = (array.shape, array.dtype, offset, array.strides, array.flags.writeable)
    e.asm.call_const(
        helpers.view_of, lambda: e.push(value_of(m, owner)), lambda: e.asm.load_const(form)
    )


def check_shared(m: Machine, outputs: list[Tensor], left: list[np.ndarray]) -> None:
    """Raise if two objects that share memory are visible, or one after a write to the other.

    They are tensors among the graph's outputs, and arrays that leave the frame (`left`: their
    owners).
    """
    seen = {id(value.ghost._store) for value in outputs}
    for owner in {id(shared.owner): shared.owner for shared in m.heap.shared}.values():
        over = [shared for shared in m.heap.shared if shared.owner is owner]
        seen_array = any(owner is array for array in (*left, *m.heap.arrays))
        sides = len(over) + seen_array
        shown = sum(id(shared.store) in seen for shared in over) + sides - len(over)
        if shown > 1 or (sides > 1 and any(shared.store.written for shared in over)):
            raise over[-1].refused()


# -- registration
# ----------------------------------------------------------------------------------------
def _model(fn: Any) -> Model:
    return lambda m, args, kwargs: evaluate(m, fn, args, kwargs)


for _fn in FUNCTIONS:
    BUILTINS.setdefault(_fn, _model(_fn))
BUILTINS[torch.from_numpy] = _from_numpy
BUILTINS[torch.as_tensor] = _as_tensor(torch.as_tensor)
BUILTINS[torch.asarray] = _as_tensor(torch.asarray)


def refuse_text(values: list[Value]) -> None:
    """Break: numpy's text of a number depends on its print options."""
    for value in values:
        if concerns(value) or symbolic_numbers.is_of(value, np.generic):
            raise Break("GB123", "numpy's way of writing a number")


def from_outside(value: Value) -> bool:
    """Whether this is an array of the program's: its numbers may change at any time."""
    return isinstance(value, Obj) and is_kind(value.value, np.ndarray)


ITERABLES[Array] = iterate
