"""The plain-Python mirror of the native guard program, and the texts for a failed guard.

In: the rows of an entry and a view of a frame. Out: -1, or the index of the first row that fails,
and (now, before) texts for that row. The mirror walks sources and checks rows as
`runtime.guards.sources` and `runtime.guards.rows` define them, and runs no user code. Under
GRAFTJIT_CHECK=1 `check_verdict` compares each native verdict with it.
"""

from __future__ import annotations

import abc
import functools
import itertools
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch

from ...ir.dataclass import dataclass
from .. import _native
from ..autograd.differentiate import nested
from ..errors import CheckError
from ..events.events import GuardLine
from ..safe_access import (
    MISSING,
    dict_get,
    dict_keys,
    dict_lacks,
    equal_keys,
    equal_set,
    in_classes,
    in_set,
    instance_dict,
    is_a,
    item,
    length_of,
    mro_of,
    same_constant,
    show,
    show_tensor,
    shown,
)
from . import leaves, tensor_access
from .interpreter_state import State, current_device, snapshot
from .relations import Relation, holds_for, read_number, row_name
from .rows import Row, TensorSpec
from .sources import Source, steps
from .weak_ref import Gone, given


@dataclass(frozen=True, slots=True)
class FrameView:
    """The inputs of a guard program: the bound arguments in the order of co_varnames, the globals
    and builtins dicts, and the closure tuple (None without free variables)."""

    code: types.CodeType
    locals_vector: Sequence[Any]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[Any, ...] | None = None


# --- sources --------------------------------------------------------------------------------------

_FUNCTION_MEMBERS = frozenset((
    "__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__dict__",
    "__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__",
))  # fmt: skip
_MEMBERS: dict[type, frozenset[str]] = {
    types.FunctionType: _FUNCTION_MEMBERS,
    types.MethodType: frozenset(("__func__", "__self__")),
    functools.partial: frozenset(("func", "args", "keywords")),
    property: frozenset(("fget", "fset", "fdel")),
    classmethod: frozenset(("__func__", "__wrapped__")),
    staticmethod: frozenset(("__func__", "__wrapped__")),
    types.BuiltinFunctionType: frozenset(("__self__", "__name__")),
    deque: frozenset(("maxlen",)),
}


def _from_vector(frame: FrameView, name: str) -> Any:
    try:
        index = frame.code.co_varnames.index(name)
    except ValueError:
        return MISSING
    return frame.locals_vector[index] if index < len(frame.locals_vector) else MISSING


def _cell(frame: FrameView, name: str) -> Any:
    names = frame.code.co_freevars
    if frame.closure is None or name not in names:
        return MISSING
    return frame.closure[names.index(name)]


def _in_context(_frame: FrameView, key: Any) -> Any:
    try:
        return key.get() if type(key) is ContextVar else key()
    except Exception:
        return MISSING


_ROOTS: dict[str, Callable[[FrameView, Any], Any]] = {
    "local": _from_vector,
    "global": lambda frame, key: dict_get(frame.globals, key),
    "globals": lambda frame, _key: frame.globals,
    "builtin": lambda frame, key: dict_get(frame.builtins, key),
    "cell": _cell,
    "context": _in_context,
    "const": lambda _frame, key: MISSING if given(key) is Gone else given(key),
}


def _contents(base: Any, _key: Any) -> Any:
    if type(base) is not types.CellType:
        return MISSING
    try:
        return base.cell_contents
    except ValueError:  # an empty cell
        return MISSING


def _attr(base: Any, key: Any) -> Any:
    own = instance_dict(base)
    return MISSING if own is MISSING else dict_get(own, key)


def _slot(base: Any, key: Any) -> Any:
    descriptor = in_classes(type(base), key)
    if type(descriptor) is not types.MemberDescriptorType:
        return MISSING
    try:
        return descriptor.__get__(base, type(base))
    except AttributeError:  # never assigned
        return MISSING


def _nth_key(base: Any, key: Any) -> Any:
    keys = dict_keys(base)
    return MISSING if keys is MISSING else next(itertools.islice(keys, key, None), MISSING)


def _member(base: Any, key: Any) -> Any:
    if type(base) is types.FunctionType and key == "__wrapped__":
        return _attr(base, key)
    if is_a(base, type) and key in ("__name__", "__qualname__"):
        return vars(type)[key].__get__(base)
    if key not in _MEMBERS.get(type(base), ()):
        return MISSING
    return getattr(base, key)


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "contents": _contents,
    "referent": lambda base, _key: base() if type(base) is weakref.ref else MISSING,
    "type": lambda base, _key: type(base),
    "attr": _attr,
    "dict": lambda base, _key: instance_dict(base),
    "class_attr": lambda base, key: in_classes(type(base), key),
    "mro_attr": lambda base, key: in_classes(base, key) if is_a(base, type) else MISSING,
    "slot": _slot,
    "grad": lambda base, _key: leaves.gradient(base) if type(base) in leaves.PLAIN else MISSING,
    "item": lambda base, key: item(base, given(key)),
    "key": _nth_key,
    "member": _member,
    "iterated": lambda base, key: next(iter(_native.iterated(base, key)), MISSING),
}


class Reader:
    """Evaluates sources over one frame, each source once."""

    def __init__(self, frame: FrameView) -> None:
        self.frame = frame
        self._seen: dict[Source, Any] = {}

    def __call__(self, source: Source | None) -> Any:
        """The value at a source, or MISSING where the path does not exist."""
        if source is None:
            return None
        found = self._seen.get(source, self)
        if found is self:
            root = _ROOTS.get(source.kind)
            if root is not None:
                found = root(self.frame, source.key)
            else:
                base = self(source.base)
                found = MISSING if base is MISSING else _STEPS[source.kind](base, source.key)
            self._seen[source] = found
        return found


# --- rows -----------------------------------------------------------------------------------------


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """The TensorSpec that describes a tensor as it is now."""
    with torch._C.DisableTorchFunction():
        return TensorSpec(
            type=type(tensor),
            dtype=tensor.dtype,
            device=tensor.device,
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()) if tensor.layout is torch.strided else (),
            requires_grad=tensor.requires_grad,
            keys=torch._C._dispatch_keys(tensor).raw_repr(),
        )


def _meets(value: Any, expected: TensorSpec) -> bool:
    if type(value) is not expected.type:
        return False
    found = tensor_spec(value)
    if None not in expected.shape and None not in expected.stride:
        return found == expected
    sizes = zip(found.shape, expected.shape, strict=False)
    steps = zip(found.stride, expected.stride, strict=False)
    return (
        len(found.shape) == len(expected.shape)
        and len(found.stride) == len(expected.stride)
        and all(
            now >= 2 if size is None else now == size  # type: ignore[operator]
            for now, size in sizes
        )
        and all(step is None or now == step for now, step in steps)
        and replace(found, shape=expected.shape, stride=expected.stride) == expected
    )


def _number(value: Any, expected: tuple[type, int | None, int | None]) -> bool:
    cls, low, high = expected
    if type(value) is not cls or not isinstance(value, int):
        return type(value) is cls
    low = -(1 << 63) if low is None else low
    return low <= value <= ((1 << 63) - 1 if high is None else high)


def _related(expected: Relation, read: Reader) -> bool:
    values = [read(source) for source in expected.sources]
    return not any(value is MISSING for value in values) and holds_for(expected, values)


_Extent = tuple[torch.device, int, int]


def _extent(tensor: Any) -> _Extent | None:
    """(device, first byte, last byte + 1) of the memory a tensor can access; None if unknown."""
    with torch._C.DisableTorchFunction():
        if tensor.layout is not torch.strided:
            return None
        try:
            start = tensor.data_ptr()
        except RuntimeError:  # a wrapper without storage of its own
            return None
        if start == 0 or tensor.numel() == 0:  # no memory to share
            return (tensor.device, 0, 0)
        reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        return (tensor.device, start, start + (reach + 1) * tensor.element_size())


def _distinct(read: Reader, sources: tuple[Source, ...]) -> bool:
    values = [read(source) for source in sources]
    if any(value is MISSING for value in values) or len({id(v) for v in values}) < len(values):
        return False
    spans = [_extent(value) for value in values if is_a(value, torch.Tensor)]
    if None in spans:
        return len(spans) < 2
    # If some of them overlap, two neighbours do, in the order of their first bytes.
    held = sorted((str(span[0]), *span[1:]) for span in spans if span and span[1] < span[2])
    return not any(
        left[0] == right[0] and right[1] < left[2] for left, right in itertools.pairwise(held)
    )


def _is_disjoint(value: Any, sources: tuple[Source, ...], read: Reader) -> bool:
    others = [read(source) for source in sources]
    if any(other is MISSING for other in others):
        return False
    if type(value) is dict:
        return not any(instance_dict(other) is value for other in others)
    own = instance_dict(value)
    return not any(other is own for other in others)


def _state() -> Any:
    return snapshot()


def _history(tensor: torch.Tensor) -> str:
    return tensor_access.history(tensor)


def _same_mro(mro: tuple[type, ...], expected: Any) -> bool:
    if type(expected) is not tuple or len(mro) != len(expected):
        return False
    return all(cls is given(other) for cls, other in zip(mro, expected, strict=True))


def _empty_cell(value: Any) -> bool:
    return type(value) is types.CellType and _contents(value, None) is MISSING


Check = Callable[[Any, Any, Reader], bool]

_CHECKS: dict[str, Check] = {
    "type": lambda value, expected, _read: type(value) is given(expected),
    "is": lambda value, expected, _read: value is given(expected),
    "equals": lambda value, expected, _read: same_constant(value, expected),
    "len": lambda value, expected, _read: length_of(value) == expected,
    "keys": lambda value, expected, _read: equal_keys(value, tuple(map(given, expected))),
    "set": lambda value, expected, _read: equal_set(value, expected),
    "element": lambda value, expected, _read: in_set(value, given(expected)) is True,
    "no_element": lambda value, expected, _read: in_set(value, given(expected)) is False,
    "no_attr": lambda value, expected, _read: _attr(value, expected) is MISSING,
    "no_item": lambda value, expected, _read: dict_lacks(value, given(expected)),
    "no_global": lambda _value, expected, read: dict_lacks(read.frame.globals, expected),
    "no_class_attr": lambda value, expected, _read: in_classes(type(value), expected) is MISSING,
    "no_mro_attr": lambda value, expected, _read: (
        is_a(value, type) and in_classes(value, expected) is MISSING
    ),
    "mro": lambda value, expected, _read: is_a(value, type) and _same_mro(mro_of(value), expected),
    "tensor": lambda value, expected, _read: _meets(value, expected),
    "same": lambda value, expected, read: value is read(expected),
    "distinct": lambda _value, expected, read: _distinct(read, expected),
    "own_dict": _is_disjoint,
    "unhooked": lambda value, _expected, _read: (
        type(value) in leaves.PLAIN and not leaves.hooked(value)
    ),
    "history": lambda value, expected, _read: (
        is_a(value, torch.Tensor) and _history(value) == expected
    ),
    "state": lambda _value, expected, _read: _state() == expected,
    "unbound_cell": lambda value, _expected, _read: _empty_cell(value),
    "abc": lambda _value, expected, _read: abc.get_cache_token() == expected,
    "number": lambda value, expected, _read: _number(value, expected),
    "relation": lambda _value, expected, read: _related(expected, read),
    "value": lambda _value, expected, read: expected.holds(read),
    "unhandled": lambda _value, _expected, _read: sys.exception() is None,
    "nested": lambda _value, expected, _read: nested() is expected,
    "device": lambda _value, expected, _read: current_device() == expected,
    "position": lambda value, expected, _read: _native.iterator_position(value) == expected,
}


def holds(row: Row, read: Reader) -> bool:
    """Whether one row holds. A row whose source cannot be read does not."""
    value = read(row.source)
    return value is not MISSING and _CHECKS[row.kind](value, row.expected, read)


def mirror(rows: Sequence[Row], frame: FrameView) -> int:
    """-1 if all rows hold for the frame, else the index of the first that fails."""
    read = Reader(frame)
    for index, row in enumerate(rows):
        if not holds(row, read):
            return index
    return -1


def _names_the_dead(row: Row) -> bool:
    """Whether a row refers to a weakly held object that no longer exists."""
    named = list(row.expected) if type(row.expected) is tuple else [row.expected]
    source = row.source
    while source is not None:
        named.append(source.key)
        source = source.base
    return any(given(one) is Gone for one in named)


def check_verdict(rows: Sequence[Row], frame: FrameView, native: int) -> None:
    """Raise CheckError if the native guard program's verdict is not the mirror's."""
    ours = mirror(rows, frame)
    if ours == native or (native == -1 and _names_the_dead(rows[ours])):
        return  # the object may have been collected after the native check

    def words(index: int) -> str:
        if index < 0:
            return "all rows hold"
        if index >= len(rows):
            return f"row {index} of {len(rows)}"
        now, before = explain_failure(rows[index], frame)
        return f"row {index} fails: {row_text(rows[index])} (now {now}, before {before})"

    failing = max(ours, native)
    raise CheckError(
        "the native guard program and its Python mirror disagree",
        where=rows[failing].where if 0 <= failing < len(rows) else None,
        expected=f"mirror: {words(ours)}",
        found=f"native: {words(native)}",
    )


# --- words ----------------------------------------------------------------------------------------

_FORMS: dict[str, str] = {
    "type": "type({source}) is {expected}",
    "is": "{source} is {expected}",
    "equals": "{source} == {expected}",
    "len": "len({source}) == {expected}",
    "keys": "list({source}) == {expected}",
    "set": "{source} == {expected}",
    "element": "{expected} in {source}",
    "no_element": "{expected} not in {source}",
    "no_attr": "{source} has no attribute {expected} of its own",
    "no_item": "{expected} not in {source}",
    "no_global": "no global {expected}",
    "no_class_attr": "no class of {source} has {expected}",
    "no_mro_attr": "{source} and its bases have no {expected}",
    "mro": "the bases of {source} are unchanged",
    "tensor": "{source}: {expected}",
    "same": "{source} is {expected}",
    "distinct": "{expected} are different objects and share no memory",
    "own_dict": "{source} shares no attributes with {expected}",
    "history": "autograd sees {source} as a {expected}",
    "unhooked": "{source} has no hooks and no grad_dtype for its gradient",
    "state": "interpreter state is unchanged",
    "unbound_cell": "{source} is empty",
    "abc": "no class was registered with an ABC since capture",
    "unhandled": "no exception is being handled",
    "nested": "the caller is being differentiated: {expected}",
    "device": "the current CUDA device is {expected}",
    "position": "{source} is at {expected}",
    "number": "{source} is {expected}",
    "relation": "{expected}",
    "value": "{expected}",
}

RECOMPILE_CODES: dict[str, str] = {
    "type": "RC401", "tensor": "RC402", "equals": "RC403", "is": "RC404", "len": "RC405",
    "keys": "RC405", "set": "RC405", "element": "RC405", "no_element": "RC405", "no_attr": "RC406",
    "no_item": "RC406", "no_global": "RC406", "no_class_attr": "RC406", "no_mro_attr": "RC406",
    "mro": "RC404", "state": "RC407", "abc": "RC407", "unhandled": "RC407", "nested": "RC407",
    "device": "RC407", "same": "RC408", "distinct": "RC408", "own_dict": "RC408",
    "history": "RC402", "unhooked": "RC402", "unbound_cell": "RC406", "number": "RC403",
    "position": "RC405",
    "relation": "RC411", "value": "RC412",
}  # fmt: skip


def _show_spec(spec: TensorSpec) -> str:
    text = show_tensor(spec.dtype, spec.device, spec.shape, spec.stride, spec.requires_grad)
    return text if spec.type is torch.Tensor else f"{spec.type.__name__} {text}"


def _show_keys(keys: Any) -> str:
    return "[" + ", ".join(show(given(key), 24) for key in itertools.islice(keys, 8)) + "]"


def _show_number(cls: type, low: int | None, high: int | None) -> str:
    ends = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    return " ".join([f"{'an' if cls is int else 'a'} {cls.__name__}", " and ".join(ends)]).rstrip()


def expected_text(row: Row) -> str:
    """The expected side of a row, as a short text."""
    expected = given(row.expected)
    if row.kind == "tensor":
        return _show_spec(expected)
    if row.kind in ("distinct", "own_dict"):
        return ", ".join(str(source) for source in expected)
    if row.kind == "same":
        return str(expected)
    if row.kind == "keys":
        return _show_keys(expected)
    if row.kind in ("relation", "value"):
        return str(expected)
    if row.kind == "number":
        return _show_number(*expected)
    return show(expected).removeprefix("class ") if row.kind == "type" else show(expected)


def row_text(row: Row, known: dict[int, str] | None = None) -> str:
    """A row as one readable condition. `known` is that of `Source.text`."""
    source = None if row.source is None else row.source.text({} if known is None else known)
    return _FORMS[row.kind].format(source=source, expected=expected_text(row))


def guard_lines(rows: Sequence[Row]) -> tuple[GuardLine, ...]:
    """The rows as the text records that events and reports carry."""
    known: dict[int, str] = {}
    paths: dict[int, tuple[str, ...]] = {}
    return tuple(
        GuardLine(
            kind=row.kind,
            source="" if row.source is None else row.source.text(known),
            expected=row_text(row, known),
            where=row.where,
            path=() if row.source is None else steps(row.source, paths, known),
        )
        for row in rows
    )


def explain_failure(row: Row, frame: FrameView) -> tuple[str, str]:
    """(now, before) of a failed row: the value found, and the value that the entry expects."""
    read = Reader(frame)
    value = read(row.source)
    if value is MISSING:
        return "missing", "present" if row.kind.startswith("no_") else expected_text(row)
    words = _NOW.get(row.kind)
    now = show(value) if words is None else words(value, row, read)
    if row.kind == "value":
        return now, show(row.expected.outcome)
    return now, _BEFORE.get(row.kind) or expected_text(row)


def subject_of(row: Row) -> str:
    """What a row is about: a source or a condition; else the kind of the row."""
    return row.expected.expression if row.kind == "value" else str(row.source or row.kind)


def failure_code(row: Row, frame: FrameView) -> str:
    """The recompile code (RC...) of a failed row."""
    found = Reader(frame)(row.source)
    if found is MISSING:
        return "RC409"
    if row.kind == "equals" and type(found) is not type(row.expected):
        return "RC401"
    return RECOMPILE_CODES[row.kind]


def _tensor_now(value: Any, row: Row, _read: Reader) -> str:
    if not is_a(value, torch.Tensor):
        return show(value)
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"tensor of {show(type(value))}"
    with torch._C.DisableTorchFunction():
        if value.layout is not torch.strided:
            return show(value)
    spec = tensor_spec(value)
    text = _show_spec(spec)
    if text == _show_spec(row.expected):
        changed = torch._C._dispatch_keys(value)
        return f"{text} with dispatch keys {changed}"
    return text


def _numbers_now(relation: Relation, read: Reader) -> str:
    values = [read(source) for source in relation.sources]
    if any(value is MISSING for value in values):
        return "missing"
    found = [
        f"{row_name(relation.sources[at], what, dim)} = {read_number(values[at], what, dim)}"
        for at, what, dim in relation.reads
    ]
    return ", ".join(found)


def _distinct_now(_value: Any, row: Row, read: Reader) -> str:
    for left, right in itertools.combinations(row.expected, 2):
        if not _distinct(read, (left, right)):
            verb = "is" if read(left) is read(right) else "shares memory with"
            return f"{left} {verb} {right}"
    return "unchanged"


_NOW: dict[str, Callable[[Any, Row, Reader], str]] = {
    "element": lambda _value, row, _read: f"without {show(given(row.expected))}",
    "no_element": lambda _value, row, _read: f"with {show(given(row.expected))}",
    "type": lambda value, _row, _read: show(type(value)).removeprefix("class "),
    "len": lambda value, _row, _read: show(length_of(value)),
    "keys": lambda value, _row, _read: (
        show(value) if shown(value) is MISSING else _show_keys(shown(value))
    ),
    "tensor": _tensor_now,
    "no_attr": lambda value, row, _read: show(_attr(value, row.expected)),
    "no_item": lambda value, row, _read: show(dict_get(value, given(row.expected))),
    "no_global": lambda _value, row, read: show(dict_get(read.frame.globals, row.expected)),
    "no_class_attr": lambda value, row, _read: show(in_classes(type(value), row.expected)),
    "no_mro_attr": lambda value, row, _read: (
        show(in_classes(value, row.expected)) if is_a(value, type) else show(value)
    ),
    "same": lambda _value, _row, _read: "another object",
    "distinct": _distinct_now,
    "own_dict": lambda _value, _row, _read: "shares a __dict__ with one of them",
    "unhooked": lambda _value, _row, _read: "a tensor with hooks or a grad_dtype",
    "history": lambda value, _row, _read: (
        show(_history(value)) if is_a(value, torch.Tensor) else show(value)
    ),
    "state": lambda _value, row, _read: _state_change(row.expected, _state()),
    "unbound_cell": lambda value, _row, _read: show(_contents(value, None)),
    "abc": lambda _value, _row, _read: "registered",
    "relation": lambda _value, row, read: _numbers_now(row.expected, read),
    "value": lambda _value, row, read: row.expected.now(read),
    "nested": lambda _value, _row, _read: show(nested()),
    "device": lambda _value, _row, _read: show(current_device()),
    "position": lambda value, _row, _read: show(_native.iterator_position(value)),
    "unhandled": lambda _value, _row, _read: f"handling a {type(sys.exception()).__name__}",
    "mro": lambda _value, _row, _read: "other bases",
}

_BEFORE: dict[str, str] = {
    "element": "with it", "no_element": "without it", "no_attr": "absent", "no_item": "absent",
    "no_global": "absent", "no_class_attr": "absent", "no_mro_attr": "absent",
    "state": "as captured", "distinct": "distinct", "unhooked": "without hooks",
    "own_dict": "a dict of its own", "unbound_cell": "empty", "abc": "not registered",
    "unhandled": "handling no exception", "mro": "as captured",
}  # fmt: skip


def _state_change(before: Any, now: Any) -> str:
    """The part of the interpreter state that differs, as far as the snapshot shows it."""
    if isinstance(before, State) and isinstance(now, State):
        return now.difference(before)
    if type(before) is tuple and type(now) is tuple and len(before) == len(now):
        places = [str(i) for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
        return f"differs at index {', '.join(places)}"
    return "differs"
