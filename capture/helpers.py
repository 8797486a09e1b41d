"""Small functions that replacement code calls to rebuild values and to write containers back.

In: parts on the stack. Out: the object that plain Python would have at this point. They use the builtin
types' own methods, so no code of a subclass runs that plain Python would not have run.
"""

from __future__ import annotations

import sys
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
    """What MAKE_FUNCTION would have made."""
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
    """A C method of this object. Without the type CPython 3.11 crashes where a method takes its defining class."""
    return descriptor.__get__(receiver, type(receiver))


def attributes_of(made: Any) -> dict[str, Any]:
    """The instance dict of an object just made."""
    found: dict[str, Any] = instance_dict(made)
    return found


def make_context(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls(*args, **kwargs)


def grad_context(cls: type, before: bool, args: tuple[Any, ...]) -> Any:
    """A grad mode of torch that found `before`; the mode itself is left as it is."""
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
    """The dict holds just these pairs, in this order."""
    if isinstance(target, OrderedDict):
        _rewrite_ordered(target, pairs)
        return
    held = tuple(dict.keys(target))
    if len(held) > len(pairs) // 2 or not all(map(_same_key, held, pairs[::2])):
        dict.clear(target)
    fill_dict(target, pairs)


def _rewrite_ordered(target: OrderedDict[Any, Any], pairs: tuple[Any, ...]) -> None:
    """Its order is a list beside its dict: keys that stay are moved, not made again."""
    wanted = set(pairs[::2])
    for key in [key for key in OrderedDict.keys(target) if key not in wanted]:
        OrderedDict.__delitem__(target, key)
    fill_dict(target, pairs)
    for key in pairs[::2]:
        OrderedDict.move_to_end(target, key)


def _same_key(left: Any, right: Any) -> bool:
    """One key to a dict, without a user's __eq__: a constant may be another object of the same value."""
    return left is right or (
        type(left) is type(right) and type(left) in (str, int, float, bytes) and left == right
    )


def rewrite_list(target: list[Any], items: tuple[Any, ...]) -> None:
    list.__setitem__(target, slice(None), items)


def change_list(
    target: list[Any], items: tuple[Any, ...], places: tuple[int, ...], kept: int | None
) -> None:
    """The first items come to these places, the others after the first `kept` (None: at the end)."""
    for at, item in zip(places, items, strict=False):
        list.__setitem__(target, at, item)
    if kept is not None:
        list.__delitem__(target, slice(kept, None))
    list.extend(target, items[len(places) :])


def replay_set(target: set[Any], steps: tuple[str, ...], items: tuple[Any, ...]) -> None:
    """What was done to a set, done again: its order is a matter of its history."""
    for step, item in zip(steps, items, strict=True):
        if step == "clear":
            set.clear(target)
        else:
            getattr(set, step)(target, item)


def copy_of(array: np.ndarray) -> np.ndarray:
    """An array of these numbers in this form, in memory of its own."""
    made = array.copy(order="K")
    made.flags.writeable = array.flags.writeable
    return made


def view_of(owner: np.ndarray, form: tuple[Any, ...]) -> np.ndarray:
    """A view of an array; `form`: shape, dtype, offset in bytes, strides, whether it may be written to."""
    shape, dtype, offset, strides, writeable = form
    made: np.ndarray = np.ndarray(shape, dtype, owner, offset, strides)
    if not writeable:
        made.flags.writeable = False
    return made


def tensor_of(array: np.ndarray, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor of its own with these numbers, in the form that `torch.from_numpy` gives an array of these strides."""
    made = torch.tensor(array, device="cpu")
    steps = tuple(stride // array.itemsize for stride in strides)
    if array.size == 0 or steps == made.stride():
        return made
    size = 1 + sum((n - 1) * step for n, step in zip(array.shape, steps, strict=True))
    room = torch.empty(size, dtype=made.dtype, device="cpu")
    room.as_strided(made.shape, steps).copy_(made)
    return room.as_strided(made.shape, steps)


def keep_size(tensor: torch.Tensor) -> None:
    """Make the tensor's memory one that cannot be resized, as that of `torch.from_numpy` is: a look from numpy does."""
    tensor.detach().numpy()


def sequence_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter(of) as it is after `index` steps."""
    made: Any = list.__iter__(of) if isinstance(of, list) else tuple.__iter__(of)
    made.__setstate__(index)
    return made


def item_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter() of an object with __getitem__ alone, after `index` steps."""
    made: Any = iter(of)
    made.__setstate__(index)
    return made


def constant_iterator(of: Any, index: int) -> Iterator[Any]:
    """iter() of a string, bytes, a tuple or a range, after `index` steps."""
    made: Any = iter(of)
    made.__setstate__(index)
    return made


def reversed_list(of: list[Any], index: int) -> Iterator[Any]:
    """reversed(of) that gives the item at `index` next."""
    made: Any = list.__reversed__(of)
    made.__setstate__(index)
    return made


def reversed_constant(of: Any, index: int) -> Iterator[Any]:
    return _after(reversed(of), index)


def set_iterator(of: Any, index: int) -> Iterator[Any]:
    return _after((frozenset if isinstance(of, frozenset) else set).__iter__(of), index)


def dict_iterator(of: dict[Any, Any], kind: str, index: int, backward: bool) -> Iterator[Any]:
    """An iterator over a dict as it is after `index` steps."""
    view = getattr(OrderedDict if isinstance(of, OrderedDict) else dict, kind)(of)
    return _after(reversed(view) if backward else iter(view), index)


def _after(made: Iterator[Any], steps: int) -> Iterator[Any]:
    for _ in range(steps):
        next(made)
    return made


class _NoItems:
    """With the old protocol of iteration, and nothing to give."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


_LONG = range(1 << 70)
_HELD: tuple[Any, ...] = (
    [], (), "", "\xe9", b"", range(0), _LONG, set(), _NoItems(),
    *(getattr(kind(), view)() for kind in (dict, OrderedDict) for view in ("keys", "values", "items")),
)  # fmt: skip


def _one_of_each() -> Iterator[Any]:
    """A new iterator of each type that replacement code makes."""
    yield iter(int, 0)
    for held in _HELD:
        yield iter(held)
        if hasattr(held, "__reversed__") or isinstance(held, tuple):
            yield reversed(held)


def spent_iterator(kind: type) -> Iterator[Any]:
    """An iterator of this type that has come to its end."""
    made: Any = next(one for one in _one_of_each() if type(one) is kind)
    if kind is type(iter(_LONG)):
        made.__setstate__(_LONG.stop)
    else:
        list(made)
    return made  # type: ignore[no-any-return]


def program_failed(error: BaseException) -> None:
    """A compiled program of the calling frame raised before anything was changed. What plain Python must see itself is raised on."""
    if isinstance(error, GraftError) and not isinstance(error, InternalError):
        raise error
    name = sys._getframe(1).f_code.co_qualname
    faults.safely(SESSION.emit, faults.of_a_run(name, error))


def failed_before(error: BaseException) -> None:
    """An instruction of the calling frame, which is replacement code, raised before anything was changed."""
    frame = sys._getframe(1)
    ours = fault_origin.is_ours(error) or fault_origin.raised_in(error, frame)
    faults.safely(SESSION.emit, faults.of_a_run(frame.f_code.co_qualname, error, ours))


def failed_halfway(error: BaseException) -> BaseException:
    """What is to be raised where such an instruction has, and the frame has begun to change what others see."""
    frame = sys._getframe(1)
    ours = fault_origin.is_ours(error) or fault_origin.raised_in(error, frame)
    return faults.halfway(frame.f_code.co_qualname, error) if ours else error


def size_of(tensor: torch.Tensor, dim: int) -> int:
    """tensor.shape[dim], whatever mode is active."""
    with torch._C.DisableTorchFunction():
        return tensor.shape[dim]


def stride_of(tensor: torch.Tensor, dim: int) -> int:
    """tensor.stride(dim), whatever mode is active."""
    with torch._C.DisableTorchFunction():
        return tensor.stride(dim)


def nothing(*_: Any) -> tuple[Any, ...]:
    """The program of a frame that computes no tensor."""
    return ()
