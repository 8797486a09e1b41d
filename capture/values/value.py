"""Values: the symbolic machine's knowledge of each object on its stack.

In: real objects read at Sources, and results of captured operations. Out: one `Value` per object;
two names of one object are one Value, so identity and aliasing are kept. Handlers dispatch on the
class. A value that existed before the frame has a `source`; one made inside the frame has none.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

from ...ir.dataclass import dataclass, field
from ...runtime.guards.sources import Source


@dataclass(eq=False, slots=True)
class Value:
    """Base class. `source`: where a pre-existing value can be loaded again."""

    source: Source | None = field(default=None, kw_only=True)


@dataclass(eq=False, slots=True)
class Null(Value):
    """The NULL that call instructions keep on the stack."""


NULL = Null()

LOADED = Null()
"""The NULL of a method load, where Python may have left the method and its receiver instead."""


# A handler's saved slot: the exception that is handled outside of it.
PREVIOUS = Value()


@dataclass(eq=False, slots=True)
class Handled(Value):
    """A handler's saved slot on the root's stack at a break, with the exception being handled.

    `error` is None if that handler has ended.
    """

    error: Value | None


@dataclass(eq=False, slots=True)
class Const(Value):
    """An immutable value known at capture: numbers, strings, None, dtypes, tuples, ranges."""

    value: Any


def is_none(value: Value | None) -> bool:
    """Whether this is None; a read of a number's value would bind the entry to it."""
    return type(value) is Const and value.value is None


@dataclass(eq=False, slots=True)
class Tensor(Value):
    """A tensor of the graph. `cls` is the type that the program sees, `origin` the real one."""

    ghost: Any
    cls: type
    origin: Any = None


@dataclass(eq=False, slots=True)
class Awaited(Tensor):
    """A tensor that waits for a message where it is first read (see `models.async_tensors`).

    `elem` is the tensor behind it, with the same ghost; `settled` waits, and returns that.
    `completed`: something has waited. `make`: makes the real one of `elem` and `completed`.
    """

    elem: Any = None
    make: Any = None
    completed: bool = False
    settled: Any = None


@dataclass(eq=False, slots=True)
class Obj(Value):
    """A real object known by identity: a function, class, module, or instance of a user's class.

    A function that the program may make again is guarded by its parts. Where its identity matters,
    `pin` adds a guard on that.
    """

    value: Any
    pin: Callable[[], None] | None = None


@dataclass(eq=False, slots=True)
class Unread(Value):
    """An argument of the root frame that nothing has read, and no guard checks.

    It may be moved and returned. `read` gives its Value.
    """

    read: Callable[[], Value]


# An unread item of a pre-existing container.
UNREAD = Value()


@dataclass(eq=False, slots=True)
class Sequence(Value):
    """A list or tuple. `origin` is the pre-existing object; `changed` marks a written list.

    A pre-existing list may be `shut`: until its length or an item is read, nothing of it is
    guarded, and appended items are stored separately. While it is not `whole`, its first `kept`
    items are at their original positions, except the `placed` ones, which were assigned. A `whole`
    list was read, and is written back as a whole.
    """

    _items: list[Value]
    cls: type
    origin: Any = None
    changed: bool = False
    # Guards the length and returns it.
    shut: Callable[[], int] | None = None
    kept: int = 0
    placed: set[int] = field(default_factory=set)
    whole: bool = False
    # Of the deque that this list represents: changes that end its iterators.
    moves: int = 0

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
        """The items after the kept ones."""
        return self._items if self.shut is not None else self._items[self.kept :]

    def grow(self, items: list[Value]) -> None:
        """Append without reading the content."""
        self._items.extend(items)


@dataclass(eq=False, slots=True)
class Dict(Value):
    """A dict. `items` maps a frozen key to (key value, item value).

    A pre-existing dict is `opened` (all its keys guarded) only when its order, length or whole
    content matters; until then each look-up is guarded alone. Items `placed` under a key are
    written back alone. A `whole` dict was read, and is written back as a whole.
    """

    items: dict[Any, tuple[Value, Value]]
    cls: type = dict
    origin: Any = None
    opened: bool = True
    changed: bool = False
    placed: dict[Any, None] = field(default_factory=dict)
    whole: bool = False
    # Instructions of the root that added or removed a key.
    moves: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class DictView(Value):
    """keys(), values() or items() of a dict; it follows the dict's changes."""

    of: Dict
    kind: str


@dataclass(eq=False, slots=True)
class Set(Value):
    """A set or frozenset.

    `history` has the steps made in the frame (see `types.sets`), after `made` if an operator made
    the set: (fn, left, right). Not `exact`: they do not determine the order. A pre-existing set may
    be `shut`: until its content is read, nothing of it is guarded, and added items are stored
    separately.
    """

    _items: dict[Any, Value]
    cls: type = set
    origin: Any = None
    changed: bool = False
    history: list[tuple[str, Value]] = field(default_factory=list)
    exact: bool = True
    made: tuple[Any, Value, Value] | None = None
    whole: bool = False
    # Guards the content and returns it.
    shut: Callable[[], dict[Any, Value]] | None = None
    # Instructions of the root that added or removed an item.
    moves: list[int] = field(default_factory=list)

    @property
    def unread(self) -> dict[Any, Value]:
        """The items that the frame added to a set that is still shut."""
        return self._items

    @property
    def items(self) -> dict[Any, Value]:
        if self.shut is not None:
            held = self.shut()
            self.shut, self._items = None, {**self._items, **held}
        return self._items


@dataclass(eq=False, slots=True)
class Array(Value):
    """A numpy array: `array` is capture's own, with the program's content.

    One from outside, which is `origin`, is `shut` until its content is read, and guarded. One over
    the memory of a tensor `of` the graph stays shut: a read is a break.
    """

    _array: Any
    origin: Any = None
    of: Tensor | None = None
    # Guards the content, or the form alone; returns an array that has it.
    shut: Callable[[Array, bool], Any] | None = None

    @property
    def array(self) -> Any:
        if self.shut is not None:
            self._array = self.shut(self, True)
            self.shut = None
        return self._array

    @property
    def form(self) -> Any:
        """An array of which only dtype, shape and strides may be read."""
        return self._array if self.shut is None else self.shut(self, False)


@dataclass(eq=False, slots=True)
class Slice(Value):
    """A slice object; its parts may be values of the frame."""

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
    """A method of a value of a modelled type: `[].append`, `x.relu`, `"".join`."""

    receiver: Value
    name: str


@dataclass(eq=False, slots=True)
class Cell(Value):
    """A closure cell. `content` is None while empty; `name` is set for cells of the root frame.

    `origin` is the pre-existing cell.
    """

    content: Value | None = None
    origin: Any = None
    name: str | None = None
    changed: bool = False


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function made inside the frame."""

    code: types.CodeType
    globals: Any  # a frames.Scope
    name: str
    qualname: str
    defaults: tuple[Value, ...] = ()
    kwdefaults: dict[str, Value] = field(default_factory=dict)
    closure: tuple[Cell, ...] = ()
    annotations: Value | None = None
    # __module__ and __doc__ after a store; tuples of defaults and cells after a read
    fields: dict[str, Value] = field(default_factory=dict)
    # __dict__, from its first use
    namespace: Dict | None = None


@dataclass(eq=False, slots=True)
class Rest(Value):
    """A function for the rest of an inlined one: see `emit.continuations`."""

    code: types.CodeType
    globals: Any  # a frames.Scope
    cells: tuple[Cell, ...]


@dataclass(eq=False, slots=True)
class Instance(Value):
    """An object of a user's class made inside the frame.

    Its attributes are in the machine's overlay; its content as a list or dict is in `storage` (see
    `types.container_subclasses`).
    """

    cls: Value
    storage: Any = None


@dataclass(eq=False, slots=True)
class Held(Value):
    """An object of capture in a cell of torch. `stop` is raised where it would be rebuilt."""

    held: Any
    stop: Exception


@dataclass(eq=False, slots=True)
class Super(Value):
    """`super(cls, receiver)`: attribute look-up continues after `cls` in the receiver's type."""

    cls: type
    receiver: Value


@dataclass(eq=False, slots=True)
class Partial(Value):
    """functools.partial, pre-existing or made inside the frame.

    `held` is its tuple of arguments and its dict of keywords, which the program may change. A
    pre-existing partial has it; another has it from the first read of one of them.
    """

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
    """An iterator of a modelled kind.

    `kind` names its builder, `parts` its contents. Use `iteration.take` for its next item: `step`
    does not check `over`.
    """

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
    before: bool = False  # of a grad mode: its attribute `prev`
    index: int = 0  # the root's instruction that entered it


@dataclass(eq=False, slots=True)
class Token(Value):
    """The result of a context variable's `set`; `previous` is the frame's token before it."""

    variable: Value
    value: Value
    previous: Token | None
    used: bool = False


@dataclass(eq=False, slots=True)
class ContextExit(Value):
    """The bound `__exit__` of a Context, on the stack inside its `with`."""

    context: Context


def awaited_among(values: Iterable[Value]) -> list[Awaited]:
    """Each `Awaited` among these, and in the lists and tuples among them."""
    found: list[Awaited] = []
    for one in values:
        if isinstance(one, Awaited):
            found.append(one)
        elif isinstance(one, Sequence):
            found += awaited_among(one.items)
    return found


def settle(values: Iterable[Value]) -> None:
    """Wait for the messages that write to these."""
    for one in values:
        if isinstance(one, Awaited):
            one.settled()
