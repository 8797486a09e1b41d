"""Bodies of loops that tensor data skip: `if n == 0: continue`, `for i in mask.nonzero(): ...`.

A branch on tensor data in a loop would need a graph for each combination of outcomes. Where one way
only goes on with the loop, and the other one changes nothing but memory of the graph until it does,
or tensors of locals (`replaced_tensors`), both are one graph: a part that runs only if the number
is not zero (`ir.trace.conditional`). So a loop over the rows of `nonzero()` of a vector is a loop
over the positions of the vector, of which each step is such a part; the position is a constant
there, for example of a list of modules.

`replaced_tensors.begin` opens a body at a jump, `begin_step` at a step of a loop; where both ways
meet, it is closed (`joined`). If the walk breaks or ends before, or if the body did something else,
the walk begins again, and the branch is an ordinary one (`Machine.not_skipped`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import root
from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import Symbol
from ...ir.trace import conditional
from ...ir.trace.conditional_backward import INNER
from ...ir.trace.joint_graph import Declined
from ..breaks import Restart
from ..bytecode.branches import place_of
from ..bytecode.decoder import Instr
from ..bytecode.liveness import WRITES, live_locals
from ..values.frames import Frame
from ..values.value import Array, Const, Iterator, Sequence, Tensor, Value
from .value_questions import data_numbers

if TYPE_CHECKING:
    from ...ir.graph.nodes import Graph
    from ..interpreter.machine import Machine

# In `Machine.not_skipped`: tensors that bodies have replaced are copied behind them.
APART = "a tensor that a body has replaced is a result that others depend on"
# Of one loop, and of all loops of a walk: each step is compiled for itself.
_MOST_ROWS, _MOST_STEPS = 64, 512


@dataclass(slots=True, eq=False)
class Open:
    """A body, or (without `state`) a loop over rows.

    `head`: the instruction behind it, the loop's first one where it is the rest of a step; `start`:
    the jump or loop that begins it; `row`: the row that it is for.
    """

    frame: Frame
    head: int
    place: tuple[int, int]
    start: int
    state: Any = None
    row: Any = None


# -- bodies


def may_begin(m: Machine, frame: Frame) -> bool:
    if (
        frame.decoded.is_generator
        or m.inner
        or m.modes
        or m.varied.plain
        or m.differentiating
        or m.tracer is not m.root_tracer
    ):
        return False
    # A cast that autocast keeps would be made in a body and used after it.
    casts = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    return not (casts or m.tracer.regions is not None)


def open_body(
    m: Machine,
    body: Open,
    taken: Any,
    depth: int,
    choices: Callable[[_State, Symbol], list[Any]] | None = None,
) -> bool:
    """Begin a part that runs if this truth value of the graph holds.

    `choices`: the tensors that the body may replace (see `replaced_tensors`).
    """
    symbol = m.facts.form(taken.expr)
    if not isinstance(symbol, Symbol):
        return False
    body.state = state = _State(m, body, depth)
    if choices is not None:
        state.chosen = choices(state, symbol)
    m.open_bodies.append(body)
    ghosts = [*state.ghosts(), *(one.ghost for one in state.chosen)]
    conditional.begin(m.tracer, symbol, m.users_line, ghosts)
    return True


def joined(m: Machine, frame: Frame, head: int) -> None:
    """Close the bodies that end at an instruction."""
    while m.open_bodies and m.open_bodies[-1].state is not None:
        one = m.open_bodies[-1]
        if one.frame is not frame or one.head != head:
            if any(o.frame is frame and o.head == head and o.state for o in m.open_bodies):
                give_up(m)
            return
        written = one.row is not None and _is_written(one.row)
        if written or not one.state.is_kept(m):
            give_up(m)
        replaced = one.state.replace(m)
        m.open_bodies.pop()
        m.numbers.places, m.numbers.masks = one.state.numbers
        m.activity += 1
        m.has_bodies.add(one.place)
        conditional.end(m.tracer, m.users_line, replaced)
        one.state.leave(m)


def forget(m: Machine) -> bool:
    """Make ordinary branches of the open bodies in the next walk; whether there are some."""
    m.not_skipped.update(one.place for one in m.open_bodies)
    if m.open_bodies:
        m.forget_steps()
    return bool(m.open_bodies)


def leave(m: Machine) -> None:
    """Begin again before a break, if it is in a body."""
    if m.open_bodies:
        give_up(m)


def give_up(m: Machine) -> NoReturn:
    """Begin again with the open bodies as ordinary branches."""
    forget(m)
    raise Restart


def refuse(m: Machine) -> None:
    """Begin again without such bodies, if there are any."""
    if m.open_bodies or m.has_bodies:
        m.not_skipped.update(m.has_bodies)
        forget(m)
        m.forget_steps()
        raise Restart


def check(m: Machine, outputs: list[Tensor]) -> None:
    """Begin again if a body has an effect outside of it."""
    leave(m)
    if not m.has_bodies:
        return
    origins = m.facts.symbols
    read = {s: o[1]._node for s, o in origins.items() if o[0] == "data"}
    _, nodes = m.root_tracer.values()
    results = [value.ghost._node for value in outputs]
    # A backward in the frame runs through all bodies.
    if m.root_tracer.spends or not conditional.is_apart(nodes, results, read):
        _give_all_up(m)
    if m.chosen and not m.chosen.are_apart(m, nodes, results):
        _give_all_up(m)


def check_backward(m: Machine, graph: Graph) -> None:
    """Begin again without bodies if the graph has no backward of its own because of them.

    A result that others depend on has a node of autograd behind all bodies first (`APART`).
    """
    if not m.has_bodies or not isinstance(graph.joint, Declined):
        return
    if INNER in graph.joint.reason and m.chosen and APART not in m.not_skipped:
        m.not_skipped.add(APART)
        m.forget_steps()
        raise Restart
    _give_all_up(m)


def ask_history(m: Machine, ghost: Any) -> None:
    """Begin again without bodies if they decide whether a tensor has a history."""
    if m.has_bodies and not conditional.is_always_tracked(m.root_tracer, ghost):
        _give_all_up(m)


def _give_all_up(m: Machine) -> NoReturn:
    m.not_skipped.update(m.has_bodies)
    m.forget_steps()
    raise Restart


class _State:
    """What a body must leave as it is: the values of the frames, and what they contain."""

    def __init__(self, m: Machine, body: Open, depth: int) -> None:
        self.frame = frame = body.frame
        self.chosen: list[Any] = []
        self.stacks = [list(map(id, one.stack)) for one in m.frames]
        self.stacks[-1] = self.stacks[-1][:depth]
        self.contents: dict[int, tuple[Value, Any]] = {}
        self.numbers = dict(m.numbers.places), dict(m.numbers.masks)
        self.done = _done(m)
        head = frame.decoded.instrs[body.head]
        first, end = body.start, body.head
        if head.op == "FOR_ITER" and body.head <= body.start:
            first, end = body.head, head.target  # type: ignore[assignment]
        inside = frame.decoded.instrs[first + 1 : end]
        stored = {one.arg for one in inside if one.op in WRITES}
        # Where a `with` block suppresses an exception, the walk begins again (`refuse`).
        live = live_locals(frame.decoded, body.head, suppressed=False) & stored
        self.locals = {name: frame.locals.get(name) for name in live}
        roots = [*_values(m), *[v for one in m.frames for v in [*one.stack, *one.cells.values()]]]
        for one in m.frames:
            roots += dict.values(one.locals)
        self._add(roots)

    def replace(self, m: Machine) -> list[Any]:
        """Give the locals that the body has replaced their values behind it; begin again if there
        is none. The tensors of these values."""
        known: dict[int, tuple[Any, Tensor]] = {}
        for name, before in self.locals.items():
            after = self.frame.locals.get(name)
            if after is before:
                continue
            if id(before) not in known:
                one = next(one for one in self.chosen if one.before is before)
                made = one.becomes(m, after)
                known[id(before)] = after, made or give_up(m)
            if known[id(before)][0] is not after:
                give_up(m)
            self.frame.locals[name] = known[id(before)][1]
        if len({id(after) for after, _ in known.values()}) < len(known):
            give_up(m)
        return [made.ghost for _, made in known.values()]

    def leave(self, m: Machine) -> None:
        """Behind the body, give the locals that it has replaced copies, if that is wanted."""
        if APART not in m.not_skipped:
            return
        for one in self.chosen:
            if one.after is not None:
                made = one.copied(m)
                names = [n for n in self.locals if self.frame.locals.get(n) is one.made]
                self.frame.locals |= dict.fromkeys(names, made)

    def ghosts(self) -> list[Any]:
        """The tensors, but for those that the frame has not written to."""
        return [value.ghost for value, _ in self.contents.values() if isinstance(value, Tensor)]

    def _add(self, pending: list[Any]) -> None:
        while pending:
            value = pending.pop()
            if not isinstance(value, Value) or id(value) in self.contents:
                continue
            if _is_read_only(value):  # what it contains was there before, too
                continue
            parts = _parts(value)
            self.contents[id(value)] = value, _identities(parts)
            pending += _nested(parts)

    def is_kept(self, m: Machine) -> bool:
        if self.stacks != [list(map(id, one.stack)) for one in m.frames]:
            return False
        chosen = {id(one.before) for one in self.chosen}
        for name, value in self.locals.items():
            if self.frame.locals.get(name) is not value and id(value) not in chosen:
                return False
        if self.done != _done(m) or any(
            isinstance(one, Array) for one, _ in self.contents.values()
        ):
            return False
        return all(_identities(_parts(value)) == before for value, before in self.contents.values())


def _values(m: Machine) -> list[Any]:
    heap = m.heap
    stored = [v for names in heap.overlay.values() for v in names.values()]
    held = [*heap.overlay, *heap.storages.values(), *heap.dicts.values(), *heap.globals.values()]
    return [*stored, *held, *heap.variables.values(), *m.handling.stack]


def _done(m: Machine) -> Any:
    """Counts and contents of what the frame has done so far."""
    heap, journal = m.heap, m.journal
    overlay = [(id(k), [(n, id(v)) for n, v in names.items()]) for k, names in heap.overlay.items()]
    # Not `gone`, which says what the frame may have dropped: here a local's tensor from before.
    lists = (journal.effects, journal.cleared, journal.unhooked, journal.shown)
    kept = (heap.data, heap.variables, heap.leaves, heap.shared, heap.cached, heap.recordings)
    stored = [(key, id(value)) for key, value in heap.globals.items()]
    others = (journal.clocks, m.contexts, m.numbers.called)
    counts = [len(one) for one in (*lists, *kept, *others)]  # type: ignore[arg-type]
    return overlay, stored, counts, len(m.handling.stack), torch.is_grad_enabled()


def _is_read_only(value: Value) -> bool:
    """Whether a change of it would be an effect: it was there before the frame, which has not
    written to it."""
    moves = isinstance(value, Iterator) or getattr(value, "changed", False)
    return value.source is not None and not moves


def _parts(value: Value) -> list[Any]:
    if isinstance(value, Const):  # a read of a number may bind the entry to it
        return []
    names = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    parts = [getattr(value, name, None) for name in names]
    if isinstance(value, Tensor):
        parts += [value.ghost._node, value.ghost._store]
    if isinstance(value, Iterator):
        frames = [one for one in value.parts if isinstance(one, Frame)]  # of a generator
        parts += [(f.pc, f.result, [*f.stack], [*dict.values(f.locals)]) for f in frames]
    return parts


def _nested(parts: list[Any]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        if isinstance(part, (list, tuple, set, frozenset)):
            found += _nested(list(part))
        elif isinstance(part, dict):
            found += _nested([*part.keys(), *part.values()])
        else:
            found.append(part)
    return found


def _identities(part: Any) -> Any:
    if isinstance(part, (list, tuple)):
        return [_identities(one) for one in part]
    if isinstance(part, dict):
        return [(_identities(key), _identities(one)) for key, one in part.items()]
    if isinstance(part, (bool, int, str)):
        return part
    return id(part)


# -- loops over the rows of `nonzero`


def listed(m: Machine, value: Tensor) -> Sequence | None:
    """`value.tolist()` of the positions that `nonzero()` has found, for a `for` loop.

    Any other use of the list begins the walk again, with a break at the call.
    """
    frame = m.frames[-1]
    place = place_of(frame.code, frame.decoded.instrs[frame.pc - 1])
    node = _column(m, value.ghost)
    if node is None or place in m.not_skipped or not may_begin(m, frame):
        return None
    vector = m.rows_of[node]
    if _length(m, vector) is None or _is_written(value.ghost, vector):
        return None

    def read() -> NoReturn:
        m.not_skipped.add(place)
        give_up(m)

    made = Sequence([], list, shut=read)
    m.rows_of[made] = value.ghost
    m.has_bodies.add(place)
    m.activity += 1
    return made


def _length(m: Machine, vector: Any) -> int | None:
    """The length of a vector, if a loop may have as many steps more."""
    (length,) = vector._node.meta.shape
    few = type(length) is int and 0 < length <= min(_MOST_ROWS, _MOST_STEPS - m.row_steps)
    return length if few else None


def _column(m: Machine, ghost: Any) -> Node | None:
    """The `nonzero()` of a vector whose elements, without the dimension of columns, these are."""
    node, meta = root(ghost._node), ghost._node.meta
    if node not in m.rows_of or len(meta.shape) != 1 or meta.offset != 0:
        return None
    return node if meta.shape[0] == node.meta.shape[0] and meta.stride == (1,) else None


def rows(m: Machine, frame: Frame, value: Value) -> Iterator | None:
    """An iterator over the positions of a vector whose `nonzero()` this is, for a `for` loop."""
    if frame.decoded.instrs[frame.pc].op != "FOR_ITER":
        return None
    ghost = value.ghost if isinstance(value, Tensor) else m.rows_of.get(value)
    if ghost is None or (isinstance(value, Sequence) and value.added):
        return None
    head = frame.decoded.instrs[frame.pc]
    place = place_of(frame.code, head)
    column = _column(m, ghost)
    node = _whole(ghost._node) if column is None else column
    vector = m.rows_of.get(node)
    if vector is None or place in m.not_skipped or not may_begin(m, frame):
        return None
    length = _length(m, vector)
    if length is None or vector._node is not node.args[0] or _is_written(ghost, vector):
        return None
    made = _steps(m, vector, length, (1,) if column is None else ())
    if made is None:
        return None
    m.open_bodies.append(Open(frame, head.index, place, head.index))
    m.has_bodies.add(place)
    m.row_steps += length
    positions, chosen = made

    def step(made: Iterator) -> Value | None:
        at = made.parts[1]
        if at >= length:
            m.open_bodies.pop()
            return None
        if _is_written(ghost, vector) or (isinstance(value, Sequence) and value.added):
            give_up(m)
        made.parts[1] = at + 1
        return positions[at] if isinstance(value, Tensor) else Const(at)

    return Iterator("rows", [chosen, 0], step)


def _whole(node: Node) -> Node:
    """The node whose elements this is a view of, in the same places: that of `t` for `t[:]`."""
    while node.alias is not None and (before := node.alias.meta) is not None:
        if (before.shape, before.stride, before.offset) != (
            node.meta.shape,
            node.meta.stride,
            node.meta.offset,
        ):
            break
        node = node.alias
    return node


def _steps(
    m: Machine, vector: Any, length: int, shape: tuple[int, ...]
) -> tuple[list[Tensor], list[Value]] | None:
    """For each position its row of `nonzero()`, in this shape, and whether there is such a row.

    All of them are computed before the first step: what is copied from a GPU is copied once.
    """
    flags = m.tracer.run(_flags, (vector,), where=m.users_line)
    if not data_numbers().may_read(m, Tensor(flags[0], torch.Tensor)):
        return None
    rows = m.tracer.run(_rows, (length, shape, vector.device), where=m.users_line)
    positions: list[Tensor] = []
    for row in rows:
        m.positions[row._node] = len(positions)
        positions.append(m.heap.tensor(row))
    return positions, [data_numbers().truth(m, flag) for flag in flags]


def _flags(vector: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (vector.detach() != 0).cpu().unbind(0)


def _rows(length: int, shape: tuple[int, ...], device: Any) -> list[torch.Tensor]:
    return [torch.full(shape, at, dtype=torch.int64, device=device) for at in range(length)]


def _is_written(*ghosts: Any) -> bool:
    return any(one._store.written for one in ghosts)


def begin_step(m: Machine, frame: Frame, head: Instr, iterator: Iterator) -> None:
    """Begin the body of a step of such a loop."""
    chosen, after = iterator.parts
    place, depth = place_of(frame.code, head), len(frame.stack) - 1
    if not open_body(m, Open(frame, head.index, place, head.index), chosen[after - 1], depth):
        give_up(m)
    row = frame.peek(1)
    m.open_bodies[-1].row = row.ghost if isinstance(row, Tensor) else None
