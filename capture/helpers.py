"""Functions that replacement code calls to rebuild values and to write containers back.

In: parts on the stack. Out: the object that plain Python would have at this point. They use the
builtin types' own methods, so they run no code of a subclass that plain Python would not have run.
"""

from __future__ import annotations

import _warnings
import logging
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..runtime.errors import GraftError, InternalError
from ..runtime.process import fault_origin, faults
from ..runtime.process.session import SESSION
from ..runtime.safe_access import instance_dict


def make_record(cls: type, items: tuple[Any, ...]) -> Any:
    """A named tuple, torch.Size or C struct sequence of these items."""
    make = getattr(cls, "_make", None)
    return make(items) if make is not None else cls(items)


def make_function(
    code: types.CodeType,
    scope: dict[str, Any],
    names: tuple[str, str],
    defaults: tuple[Any, ...],
    kwdefaults: dict[str, Any],
    closure: tuple[types.CellType, ...],
    annotations: Any,
    fields: dict[str, Any],
) -> types.FunctionType:
    """The function that MAKE_FUNCTION would have made."""
    made = types.FunctionType(code, scope, names[0], defaults or None, closure or None)
    made.__qualname__ = names[1]
    made.__kwdefaults__ = kwdefaults or None
    if annotations is not None:
        if isinstance(annotations, tuple):
            annotations = dict(zip(annotations[::2], annotations[1::2], strict=True))
        made.__annotations__ = annotations
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def bound(descriptor: Any, receiver: Any) -> Any:
    """A C method of this object; some need the type, without which CPython 3.11 crashes."""
    return descriptor.__get__(receiver, type(receiver))


def attributes_of(made: Any) -> dict[str, Any]:
    """The instance dict of an object just made."""
    found: dict[str, Any] = instance_dict(made)
    return found


def make_context(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls(*args, **kwargs)


class AttentionBackends:
    """`torch.nn.attention.sdpa_kernel(backends)`, which can be entered at each run of a graph.

    backends: the numbers of some `SDPBackend`s
    """

    def __init__(self, *backends: int) -> None:
        self._backends = list(map(torch.nn.attention.SDPBackend, backends))
        self._open: list[Any] = []

    def __enter__(self) -> Any:
        self._open.append(torch.nn.attention.sdpa_kernel(self._backends))
        return self._open[-1].__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._open.pop().__exit__(*error)


def grad_context(cls: type, before: bool, args: tuple[Any, ...]) -> Any:
    """A grad mode of torch that found `before`; the current mode does not change."""
    made: Any = object.__new__(cls)
    made.prev = before
    if args:
        made.mode = args[0]
    return made


def fill_dict(target: dict[Any, Any], pairs: tuple[Any, ...]) -> None:
    store = (OrderedDict if isinstance(target, OrderedDict) else dict).__setitem__
    for at in range(0, len(pairs), 2):
        store(target, pairs[at], pairs[at + 1])


def rewrite_dict(target: dict[Any, Any], pairs: tuple[Any, ...]) -> None:
    """Make the dict have exactly these pairs, in this order."""
    if isinstance(target, OrderedDict):
        _rewrite_ordered(target, pairs)
        return
    held = tuple(dict.keys(target))
    if len(held) > len(pairs) // 2 or not all(map(_same_key, held, pairs[::2])):
        dict.clear(target)
    fill_dict(target, pairs)


def _rewrite_ordered(target: OrderedDict[Any, Any], pairs: tuple[Any, ...]) -> None:
    """The order is a list beside the dict: remaining keys are moved, not made again."""
    wanted = set(pairs[::2])
    for key in [key for key in OrderedDict.keys(target) if key not in wanted]:
        OrderedDict.__delitem__(target, key)
    fill_dict(target, pairs)
    for key in pairs[::2]:
        OrderedDict.move_to_end(target, key)


def _same_key(left: Any, right: Any) -> bool:
    """Whether these are one dict key, without a user's __eq__; constants compare by value."""
    return left is right or (
        type(left) is type(right) and type(left) in (str, int, float, bytes) and left == right
    )


def rewrite_list(target: list[Any], items: tuple[Any, ...]) -> None:
    list.__setitem__(target, slice(None), items)


def change_list(
    target: list[Any], items: tuple[Any, ...], places: tuple[int, ...], kept: int | None
) -> None:
    """Set the first items at these places, the others after `kept` items (None: all)."""
    for at, item in zip(places, items, strict=False):
        list.__setitem__(target, at, item)
    if kept is not None:
        list.__delitem__(target, slice(kept, None))
    list.extend(target, items[len(places) :])


def replay_set(target: set[Any], steps: tuple[str, ...], items: tuple[Any, ...]) -> None:
    """Repeat the operations done on a set: its order depends on its history."""
    for step, item in zip(steps, items, strict=True):
        if step == "clear":
            set.clear(target)
        else:
            getattr(set, step)(target, item)


def copy_of(array: np.ndarray) -> np.ndarray:
    """A copy of an array, with its layout and its writeable flag."""
    made = array.copy(order="K")
    made.flags.writeable = array.flags.writeable
    return made


def view_of(owner: np.ndarray, form: tuple[Any, ...]) -> np.ndarray:
    """A view of an array; `form`: shape, dtype, offset in bytes, strides, writeable flag."""
    shape, dtype, offset, strides, writeable = form
    made: np.ndarray = np.ndarray(shape, dtype, owner, offset, strides)
    if not writeable:
        made.flags.writeable = False
    return made


def tensor_of(array: np.ndarray, strides: tuple[int, ...]) -> torch.Tensor:
    """A new tensor of these numbers, with the strides of `torch.from_numpy` for such an array."""
    made = torch.tensor(array, device="cpu")
    steps = tuple(stride // array.itemsize for stride in strides)
    if array.size == 0 or steps == made.stride():
        return made
    size = 1 + sum((n - 1) * step for n, step in zip(array.shape, steps, strict=True))
    memory = torch.empty(size, dtype=made.dtype, device="cpu")
    memory.as_strided(made.shape, steps).copy_(made)
    return memory.as_strided(made.shape, steps)


def keep_size(tensor: torch.Tensor) -> None:
    """Make the memory impossible to resize, as after `torch.from_numpy`: a numpy view does that."""
    tensor.detach().numpy()


def sequence_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter(of) after `index` steps."""
    made: Any = list.__iter__(of) if isinstance(of, list) else tuple.__iter__(of)
    made.__setstate__(index)
    return made


def item_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter() of an object with only __getitem__, after `index` steps."""
    made: Any = iter(of)
    made.__setstate__(index)
    return made


def constant_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter() of a string, bytes, a tuple or a range, after `index` steps."""
    made: Any = iter(of)
    made.__setstate__(index)
    return made


def reversed_list(of: list[Any], index: int) -> Iterator[Any]:
    """reversed(of) whose next item is at `index`."""
    made: Any = list.__reversed__(of)
    made.__setstate__(index)
    return made


def reversed_constant(of: Any, index: int) -> Iterator[Any]:
    return _after(reversed(of), index)


def set_iterator(of: Any, index: int) -> Iterator[Any]:
    return _after((frozenset if isinstance(of, frozenset) else set).__iter__(of), index)


def dict_iterator(of: dict[Any, Any], kind: str, index: int, backward: bool) -> Iterator[Any]:
    """An iterator over a dict after `index` steps."""
    view = getattr(OrderedDict if isinstance(of, OrderedDict) else dict, kind)(of)
    return _after(reversed(view) if backward else iter(view), index)


def _after(made: Iterator[Any], steps: int) -> Iterator[Any]:
    for _ in range(steps):
        next(made)
    return made


class _NoItems:
    """An empty object with the old iteration protocol."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


_LONG = range(1 << 70)
_HELD: tuple[Any, ...] = (
    [],
    (),
    "",
    "\xe9",
    b"",
    range(0),
    _LONG,
    set(),
    _NoItems(),
    *(
        getattr(kind(), view)()
        for kind in (dict, OrderedDict)
        for view in ("keys", "values", "items")
    ),
)


def _one_of_each() -> Iterator[Any]:
    """A new iterator of each type that replacement code makes."""
    yield iter(int, 0)
    for held in _HELD:
        yield iter(held)
        if hasattr(held, "__reversed__") or isinstance(held, tuple):
            yield reversed(held)


def advance(iterator: Iterator[Any], steps: int) -> None:
    """Take these steps of an iterator; the last one may find its end."""
    for _ in range(steps):
        next(iterator, None)


def spent_iterator(kind: type) -> Iterator[Any]:
    """An exhausted iterator of this type."""
    made: Any = next(one for one in _one_of_each() if type(one) is kind)
    if kind is type(iter(_LONG)):
        made.__setstate__(_LONG.stop)
    else:
        list(made)
    return made  # type: ignore[no-any-return]


def program_failed(error: BaseException) -> None:
    """Handle an exception of a compiled program of the calling frame, raised before any change.

    An exception meant for the user is raised again.
    """
    if isinstance(error, GraftError) and not isinstance(error, InternalError):
        raise error
    name = sys._getframe(1).f_code.co_qualname
    faults.safely(SESSION.emit, faults.of_a_run(name, error))


def failed_before(error: BaseException) -> None:
    """Handle an exception of replacement code (the calling frame), raised before any change."""
    frame = sys._getframe(1)
    ours = fault_origin.is_ours(error) or fault_origin.raised_in(error, frame)
    faults.safely(SESSION.emit, faults.of_a_run(frame.f_code.co_qualname, error, ours))


def failed_halfway(error: BaseException) -> BaseException:
    """The exception to raise if replacement code failed after it began visible changes."""
    frame = sys._getframe(1)
    ours = fault_origin.is_ours(error) or fault_origin.raised_in(error, frame)
    return faults.halfway(frame.f_code.co_qualname, error) if ours else error


def number_from(
    kind: str, bounds: tuple[float | None, float | None], step: Any, *args: Any, **kwargs: Any
) -> Any:
    """step(*args, **kwargs), a number as the frame's code was compiled for."""
    found = step(*args, **kwargs)
    low, high = bounds
    if type(found).__name__ != kind or not (low is None or low <= found <= high):
        raise ValueError(f"{step.__name__}() gives {found!r} instead of an usual {kind}")
    return found


_DRAWN = threading.local()


def first_drawn(step: Any, *args: Any, **kwargs: Any) -> Any:
    """The first of the numbers in the list step(*args, **kwargs); `next_drawn` gives the others."""
    first, *rest = step(*args, **kwargs)
    _DRAWN.rest = iter(rest)
    return first


def next_drawn() -> Any:
    """The next number of the last call of `first_drawn`."""
    return next(_DRAWN.rest)


def shuffled(generator: Any, numbers: list[Any]) -> list[Any]:
    generator.shuffle(numbers)
    return numbers


def states_of(*generators: Any) -> list[tuple[Any, Any]]:
    """The states of generators of random numbers, for `drawn_again`."""
    return [(one, _state_of(one)) for one in generators]


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if hasattr(generator, "getstate"):
        return generator.getstate()
    return generator.get_state(legacy=False)


def drawn_like(
    name: str, form: tuple[Any, ...], *args: Any, generator: torch.Generator, **kwargs: Any
) -> torch.Tensor:
    """A new tensor, drawn by the method of that name; `form`: shape, strides, dtype, device."""
    shape, strides, dtype, device = form
    with torch.no_grad():
        made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        drawn = getattr(torch.Tensor, name)(made, *args, generator=generator, **kwargs)
    return drawn  # type: ignore[no-any-return]


def drawn_again(error: BaseException, states: list[tuple[Any, Any]]) -> None:
    """Handle an exception of the frame's program, after which Python draws the same numbers."""
    for generator, state in states:
        (generator.setstate if hasattr(generator, "setstate") else generator.set_state)(state)
    program_failed(error)


def size_of(tensor: torch.Tensor, dim: int) -> int:
    """tensor.shape[dim] under any mode."""
    with torch._C.DisableTorchFunction():
        return tensor.shape[dim]


def stride_of(tensor: torch.Tensor, dim: int) -> int:
    """tensor.stride(dim) under any mode."""
    with torch._C.DisableTorchFunction():
        return tensor.stride(dim)


def item_of(tensor: torch.Tensor) -> Any:
    """tensor.item() under any mode."""
    with torch._C.DisableTorchFunction():
        return tensor.item()


def nothing(*_: Any) -> tuple[Any, ...]:
    """The program of a frame that computes no tensor."""
    return ()


# -- output ----------------------------------------------------------------------------------------
class Shown(str):
    """The text of an object in output: its str(), and in a container its repr()."""

    in_containers: str

    def __new__(cls, text: str, in_containers: str) -> Shown:
        made = super().__new__(cls, text)
        made.in_containers = in_containers
        return made

    def __repr__(self) -> str:
        return self.in_containers


def warn_at(
    text: str,
    category: type[Warning],
    file: str,
    line: int,
    names: dict[str, Any] | None = None,
) -> None:
    """`warnings.warn` of a frame at that line, with these globals or the caller's."""
    names = sys._getframe(1).f_globals if names is None else names
    module = names.get("__name__", "<string>")
    if not isinstance(module, (str, type(None))):
        module = "<string>"
    registry = names.setdefault("__warningregistry__", {})
    _warnings.warn_explicit(text, category, file, line, module, registry)


def log_at(
    logger: logging.Logger,
    level: int,
    text: str,
    args: tuple[Any, ...],
    extra: dict[str, Any] | None,
    place: tuple[str, int, str],
) -> None:
    """`Logger._log` of a frame at that file, line and function."""
    file, line, function = place
    record = logger.makeRecord(logger.name, level, file, line, text, args, None, function, extra)
    logger.handle(record)


def log_above(
    logger: logging.Logger,
    level: int,
    text: str,
    args: tuple[Any, ...],
    extra: dict[str, Any] | None,
    above: int,
) -> None:
    """`Logger._log` for a frame that many frames above the caller."""
    frame = sys._getframe(1)
    while above and frame.f_back is not None:
        frame = frame.f_back
        above -= frame.f_code.co_filename != logging._srcfile
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    log_at(logger, level, text, args, extra, place)
