"""Values: what the symbolic machine knows about each thing on its stack.

In: real objects met through Sources, and results of captured operations. Out: one `Value` an object; two
names of one object are one Value, so identity and aliasing survive. Handlers dispatch on the class; a value
that existed before the frame has a `source`, one made inside the frame has none.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass, field
from ...runtime.guards.sources import Source


@dataclass(eq=False, slots=True)
class Value:
    """Base; `source` says where a pre-existing value can be loaded again."""

    source: Source | None = field(default=None, kw_only=True)


@dataclass(eq=False, slots=True)
class Null(Value):
    """The NULL that call instructions keep on the stack."""


NULL = Null()


PREVIOUS = Value()  # what a handler saves when it is entered: the exception handled outside of it


@dataclass(eq=False, slots=True)
class Handled(Value):
    """A saved slot of the root's stack at a break, with the exception whose handler saved it; None if that
    handler is over."""

    error: Value | None


@dataclass(eq=False, slots=True)
class Const(Value):
    """An immutable Python value known at capture: numbers, strings, None, dtypes, tuples of those, ranges."""

    value: Any


def is_none(value: Value | None) -> bool:
    """Whether this is None. To ask a number for its value would bind the entry to it."""
    return type(value) is Const and value.value is None


@dataclass(eq=False, slots=True)
class Tensor(Value):
    """A tensor of the graph. `cls` is the type that the program sees, `origin` the pre-existing tensor."""

    ghost: Any
    cls: type
    origin: Any = None


@dataclass(eq=False, slots=True)
class Obj(Value):
    """A real object that is known by itself: a function, class, module, or instance of a user's class.

    A function that the program may make again is held by what it is made of. Where it matters which one it is,
    `pin` adds the guard that says so.
    """

    value: Any
    pin: Callable[[], None] | None = None


@dataclass(eq=False, slots=True)
class Unread(Value):
    """An argument of the root frame that nobody has looked at: it may be moved about and handed on, and no guard
    asks for it. `read` gives the Value to look at."""

    read: Callable[[], Value]


UNREAD = Value()  # an item of a pre-existing container that nobody has asked for yet


@dataclass(eq=False, slots=True)
class Sequence(Value):
    """A list or tuple. `origin` is the pre-existing object; `changed` marks a list written to.

    A pre-existing list may be `shut`: until its length or an item is asked for, nothing of it is guarded, and what
    is appended is known apart. While it is not `whole`, its first `kept` items stand where they stood before the
    frame, some of them `placed` anew; a `whole` one has been read and is written back as a whole.
    """

    _items: list[Value]
    cls: type
    origin: Any = None
    changed: bool = False
    shut: Callable[[], int] | None = None  # guards the length and gives it
    kept: int = 0
    placed: set[int] = field(default_factory=set)
    whole: bool = False
    moves: int = 0  # of the deque that this list is: changes that end iterators over it

    def __post_init__(self) -> None:
        self.kept = len(self._items)

    @property
    def items(self) -> list[Value]:
        if self.shut is not None:
            size, self.shut = self.shut(), None
            self._items[:0] = [UNREAD] * size
            self.kept = size
        return self._items

    @property
    def added(self) -> list[Value]:
        """What stands after the kept items."""
        return self._items if self.shut is not None else self._items[self.kept :]

    def grow(self, items: list[Value]) -> None:
        """Append, without a look at what is there."""
        self._items.extend(items)


@dataclass(eq=False, slots=True)
class Dict(Value):
    """A dict. `items` maps a frozen key to (key value, item value).

    A pre-existing dict is `opened` (its keys guarded as a whole) only when its order, length or content as a
    whole matters; until then single look-ups are guarded one by one. What is `placed` under a key is written back
    alone; a `whole` one has been read and is written back as a whole.
    """

    items: dict[Any, tuple[Value, Value]]
    cls: type = dict
    origin: Any = None
    opened: bool = True
    changed: bool = False
    placed: dict[Any, None] = field(default_factory=dict)
    whole: bool = False
    moves: list[int] = field(
        default_factory=list
    )  # instructions of the root that added or removed a key


@dataclass(eq=False, slots=True)
class DictView(Value):
    """keys(), values() or items() of a dict: follows its changes."""

    of: Dict
    kind: str


@dataclass(eq=False, slots=True)
class Set(Value):
    """A set or frozenset. `history` holds the steps made in the frame (see `sets`), after `made` if it began as the
    result of an operator: (fn, left, right). Not `exact` when they do not tell the order.

    A pre-existing set may be `shut`: until somebody asks what it holds, nothing of that is guarded, and what is
    added is known apart.
    """

    _items: dict[Any, Value]
    cls: type = set
    origin: Any = None
    changed: bool = False
    history: list[tuple[str, Value]] = field(default_factory=list)
    exact: bool = True
    made: tuple[Any, Value, Value] | None = None
    whole: bool = False
    shut: Callable[[], dict[Any, Value]] | None = None  # guards what it holds and gives it
    moves: list[int] = field(
        default_factory=list
    )  # instructions of the root that added or removed an item

    @property
    def unread(self) -> dict[Any, Value]:
        """What is known of a set that is still shut: what the frame has added."""
        return self._items

    @property
    def items(self) -> dict[Any, Value]:
        if self.shut is not None:
            held = self.shut()
            self.shut, self._items = None, {**self._items, **held}
        return self._items


@dataclass(eq=False, slots=True)
class Array(Value):
    """A numpy array made inside the frame: `array` is capture's own, and holds what the program's holds."""

    array: Any


@dataclass(eq=False, slots=True)
class Slice(Value):
    """A slice object with parts that may be values of the frame."""

    start: Value
    stop: Value
    step: Value


@dataclass(eq=False, slots=True)
class Method(Value):
    """A bound method of a Python function (or another callable) and its receiver."""

    func: Value
    receiver: Value


@dataclass(eq=False, slots=True)
class BuiltinMethod(Value):
    """A method of a value whose type the machine models itself: `[].append`, `x.relu`, `"".join`."""

    receiver: Value
    name: str


@dataclass(eq=False, slots=True)
class Cell(Value):
    """A closure cell. `content` is None while empty; `name` is set for cells of the root frame."""

    content: Value | None = None
    name: str | None = None
    changed: bool = False


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function made inside the frame."""

    code: types.CodeType
    globals: Any  # a machine.Scope
    name: str
    qualname: str
    defaults: tuple[Value, ...] = ()
    kwdefaults: dict[str, Value] = field(default_factory=dict)
    closure: tuple[Cell, ...] = ()
    annotations: Value | None = None
    # __module__ and __doc__, once set; tuples of defaults and cells, once read
    fields: dict[str, Value] = field(default_factory=dict)
    namespace: Dict | None = None  # __dict__, once it matters


@dataclass(eq=False, slots=True)
class Instance(Value):
    """An object of a user's class made inside the frame; its attributes are in the machine's overlay, what it
    holds as a list or dict is in `storage` (see `hybrids`)."""

    cls: Value
    storage: Any = None


@dataclass(eq=False, slots=True)
class Super(Value):
    """`super(cls, receiver)`: attribute look-up goes on after `cls` in the receiver's type."""

    cls: type
    receiver: Value


@dataclass(eq=False, slots=True)
class Partial(Value):
    """functools.partial, pre-existing or made inside the frame. `held` is its tuple of arguments and its
    dict of keywords, which the program may change: of a pre-existing one, and of another once the program has asked
    for one of them."""

    func: Value
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    held: tuple[Sequence, Dict] | None = None


@dataclass(eq=False, slots=True)
class Getter(Value):
    """operator.itemgetter, attrgetter or methodcaller made inside the frame."""

    kind: Any
    args: tuple[Value, ...]
    kwargs: dict[str, Value]


@dataclass(eq=False, slots=True)
class Iterator(Value):
    """An iterator of a modelled kind: `kind` names how it is rebuilt, `parts` what it holds. Use `iteration.take`
    for its next item: `step` does not know that the iterator is `over`."""

    kind: str
    parts: list[Any]
    step: Callable[[Iterator], Value | None]
    over: bool = False


@dataclass(eq=False, slots=True)
class Context(Value):
    """A torch context manager (`no_grad`, `autocast`, ...) made inside the frame."""

    cls: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    undo: list[Callable[[], None]] = field(default_factory=list)
    before: bool = False  # of a grad mode: the mode that it found, as its attribute `prev` holds it


@dataclass(eq=False, slots=True)
class Token(Value):
    """What `variable.set(value)` of a context variable gave; `previous` is that of the set before it in this frame."""

    variable: Value
    value: Value
    previous: Token | None
    used: bool = False


@dataclass(eq=False, slots=True)
class ContextExit(Value):
    """The bound `__exit__` of a Context that is on the stack inside its `with`."""

    context: Context
