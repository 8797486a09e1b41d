"""Bodies of loops that tensor data skip: `if n == 0: continue`, `for i in mask.nonzero(): ...`.

A branch on tensor data in a loop would need a graph for each combination of outcomes. Where one way
only goes on with the loop, and the other one changes nothing but memory of the graph until it does,
both are one graph: a part that runs only if the number is not zero (`ir.trace.conditional`). So a
loop over the rows of `nonzero()` of a vector is a loop over the positions of the vector, of which
each step is such a part; the position is a constant there, for example of a list of modules.

`begin` opens a body at a jump, `begin_step` at a step of a loop; the next step closes it
(`joined`). If the walk breaks or ends before, or if the body did something else, the walk begins
again, and the branch is an ordinary one (`Machine.not_skipped`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import is_fresh, root, writes
from ...ir.graph.nodes import Node
from ...ir.ops.checks import assumed
from ...ir.symbolic.expr import Symbol
from ...ir.trace import conditional
from ...ir.trace.joint_graph import Declined
from ..breaks import Restart
from ..bytecode.branches import place_of
from ..bytecode.decoder import Instr
from ..bytecode.liveness import WRITES, live_locals
from ..values.frames import Frame
from ..values.symbolic_sizes import has_one_element
from ..values.value import Array, Const, Iterator, Sequence, Tensor, Value
from .value_questions import constant, data_numbers, may_ask

if TYPE_CHECKING:
    from ...ir.graph.nodes import Graph
    from ..interpreter.machine import Machine

# Of one loop, and of all loops of a walk: each step is compiled for itself.
_MOST_ROWS, _MOST_STEPS = 64, 512


@dataclass(slots=True, eq=False)
class Open:
    """A body, or (without `state`) a loop over rows.

    `head`: the instruction behind it, the loop's first one where it is the rest of a step; `start`:
    the jump or loop that begins it; `row`: the row that it is for; `replaces`: whether it may
    replace tensors of locals.
    """

    frame: Frame
    head: int
    place: tuple[int, int]
    start: int
    state: Any = None
    row: Any = None
    replaces: bool = True


# -- branches


def begin(m: Machine, frame: Frame, jump: Instr, tensor: Tensor) -> bool | None:
    """The outcome to go on with, if the other one only goes on where both meet."""
    place = place_of(frame.code, jump)
    if jump.target is None or place in m.not_skipped or not _may_begin(m, frame):
        return None
    jumps, falls = (jump.target, jump.index + 1)
    for skips, at, other in (
        (jump.arg == "true", jumps, falls),
        (jump.arg != "true", falls, jumps),
    ):
        join = _join(frame, jump, at, other)
        if join is None:
            continue
        # the number of a row is known
        known = constant(m, tensor.ghost)
        if known is not None:
            return bool(known)
        in_loop = frame.decoded.instrs[join].op == "FOR_ITER"
        asked = may_ask(m, tensor)
        if in_loop:
            if frame.stack and isinstance(frame.stack[-1], Iterator):
                return _begun(m, frame, join, jump, tensor.ghost, skips, not asked)
        elif not asked:
            if join == at and _sets_truths(m, frame, join, other, tensor.ghost, not skips):
                return skips
            return _begun(m, frame, join, jump, tensor.ghost, skips, True)
    return None


def _begun(
    m: Machine, frame: Frame, join: int, jump: Instr, ghost: Any, skips: bool, replaces: bool
) -> bool | None:
    if not data_numbers().may_read(m, Tensor(ghost, torch.Tensor)):
        return None
    if not has_one_element(m, ghost):
        return None
    if skips:
        ghost = m.tracer.run(torch.logical_not, (ghost,), where=m.users_line)
    elif ghost.dtype is not torch.bool:
        ghost = m.tracer.run(data_numbers().is_not_zero, (ghost,), where=m.users_line)
    taken = data_numbers().truth(m, ghost)
    body = Open(frame, join, place_of(frame.code, jump), replaces=replaces, start=jump.index)
    return not skips if _open(m, body, taken, len(frame.stack)) else None


def _join(frame: Frame, jump: Instr, at: int, other: int) -> int | None:
    """The instruction at which one side of a jump meets the other side, if nothing comes before it
    there but constants for locals that nothing reads from then on: the head of the loop around the
    jump, or an instruction behind the other side."""
    instrs = frame.decoded.instrs
    stored: set[Any] = set()
    for _ in range(8):
        instr = instrs[at]
        if _meet(instrs, jump, at, other):
            live = live_locals(frame.decoded, at, suppressed=False)
            return at if live.isdisjoint(stored) else None
        if instr.op == "JUMP" and instr.target is not None:
            at = instr.target
        elif instr.op == "LOAD_CONST" and instrs[at + 1].op == "STORE_FAST":
            stored.add(instrs[at + 1].arg)
            at += 2
        else:
            return None
    return None


def _meet(instrs: Sequence[Instr], jump: Instr, at: int, other: int) -> bool:
    head = instrs[at]
    if head.op == "FOR_ITER" and head.target is not None and at < jump.index < head.target:
        return True
    if not jump.index < other < at:
        return False
    last = instrs[at - 1]
    falls = last.op not in ("JUMP", *_ENDS)
    return falls or any(one.op == "JUMP" and one.target == at for one in instrs[other:at])


_ENDS = ("RETURN_VALUE", "RAISE", "RERAISE")


def _sets_truths(m: Machine, frame: Frame, join: int, at: int, ghost: Any, when: bool) -> bool:
    """Give locals the truth of a tensor where a branch that is taken at this outcome only stores
    other truth values in them."""
    instrs = frame.decoded.instrs[at:join]
    pairs = list(zip(instrs[::2], instrs[1::2], strict=False))
    if len(instrs) % 2 or not all(
        load.op == "LOAD_CONST"
        and type(load.arg) is bool
        and store.op == "STORE_FAST"
        and store.arg not in frame.decoded.cells
        for load, store in pairs
    ):
        return False
    if not data_numbers().may_read(m, Tensor(ghost, torch.Tensor)) or not has_one_element(m, ghost):
        return False
    stored = {store.arg: load.arg for load, store in pairs}
    for name in stored:
        before = frame.locals.get(name)
        if type(before) is not Const or type(before.value) is not bool:
            return False
    for name, value in stored.items():
        if frame.locals[name].value is not value:
            known = data_numbers().truth(m, ghost)
            frame.locals[name] = known if value is when else data_numbers().inverted(m, known)
    return True


def _may_begin(m: Machine, frame: Frame) -> bool:
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


def _open(m: Machine, body: Open, taken: Any, depth: int) -> bool:
    """Begin a part that runs if this truth value of the graph holds."""
    symbol = m.facts.form(taken.expr)
    if not isinstance(symbol, Symbol):
        return False
    body.state = state = _State(m, body, depth)
    if body.replaces:
        state.chosen = [_Chosen(m, value, symbol) for value in state.replaceable(m)]
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
    ways = _apart(m.chosen, nodes, results) if m.chosen else []
    if ways is None or not all(_leave_at(m, way) for way in ways):
        _give_all_up(m)


def check_backward(m: Machine, graph: Graph) -> None:
    """Begin again without bodies if the graph has no backward of its own because of them."""
    if m.has_bodies and isinstance(graph.joint, Declined):
        _give_all_up(m)


def ask_history(m: Machine, ghost: Any) -> None:
    """Begin again without bodies if they decide whether a tensor has a history."""
    if m.has_bodies and not conditional.is_always_tracked(m.root_tracer, ghost):
        _give_all_up(m)


def _give_all_up(m: Machine) -> NoReturn:
    m.not_skipped.update(m.has_bodies)
    m.forget_steps()
    raise Restart


# -- tensors that a body replaces


class _Chosen:
    """A local's tensor, or the one that takes its place in a body: memory of the graph, which the
    body overwrites (`h = layer(h)`).

    In eager mode it is one of both. So nothing may write to any of them from then on, or compare
    their identities, and only one of them may leave the graph (`_apart`).
    """

    def __init__(self, m: Machine, before: Tensor, taken: Symbol) -> None:
        self.before, self.taken = before, taken
        self.nested = bool(m.open_bodies)
        self.ghost = m.tracer.run(_copied, (before.ghost,), where=m.users_line)
        self.after: Any = None
        self.nodes: set[Node] = set()  # those that overwrite it
        self.now: list[Any] = []  # what the tensors were behind the body

    def becomes(self, m: Machine, after: Any) -> Tensor | None:
        """The value of the local behind the body; None if another tensor cannot be that."""
        if not isinstance(after, Tensor) or not _is_plain(m, after):
            return None
        before, ghost = self.before.ghost, after.ghost
        if _layout(ghost) != _layout(self.ghost) or _layout(before) != _layout(self.ghost):
            return None
        tracked = conditional.is_always_tracked(m.root_tracer, ghost)
        if before.requires_grad and not (ghost.requires_grad and tracked):
            return None  # whether it has a history would be two questions
        if ghost.requires_grad and not torch.is_grad_enabled():
            return None
        self.after = after
        known = len(m.root_tracer.values()[1])
        m.tracer.run(conditional.overwrite, (self.ghost, ghost), where=m.users_line)
        self.nodes = set(m.root_tracer.values()[1][known:])
        self.now = self._now()
        m.chosen.append(self)
        return m.heap.tensor(self.ghost)

    def roots(self) -> list[Node]:
        """What made the memory of the tensors: of this one, the one before and the one after."""
        return [root(node) for node, _ in self.now]

    def is_assigned(self) -> bool:
        """Whether one of the tensors has other values than behind the body."""
        return any(
            a is not b or v != w for (a, v), (b, w) in zip(self._now(), self.now, strict=True)
        )

    def _now(self) -> list[Any]:
        some = (self, self.before, self.after)
        return [(one.ghost._node, one.ghost._version) for one in some]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def _layout(ghost: Any) -> Any:
    meta = ghost._node.meta
    return meta.shape, meta.stride, meta.dtype, meta.device


def _is_plain(m: Machine, value: Tensor) -> bool:
    """Whether this is a tensor of torch's own class, without lazy bits."""
    ghost = value.ghost
    plain = value.cls is torch.Tensor and m.tracer.owns(ghost)
    return plain and not (ghost.is_conj() or ghost.is_neg())


# What must be known of numbers, all of it: whether each is zero.
_Way = tuple[tuple[Symbol, bool], ...]
_MOST_WAYS = 8


def _apart(chosen: list[_Chosen], nodes: list[Node], outputs: list[Node]) -> list[_Way] | None:
    """When somebody can tell a chosen tensor from a copy of it (see `_Chosen`): it is one that was
    there before the graph. None: also at other times."""
    if any(one.is_assigned() for one in chosen):
        return None
    together: dict[Node, set[Node]] = {}
    overwriting = {node: one for one in chosen for node in one.nodes}
    for node in nodes:
        one = overwriting.get(node)
        if one is None:
            if any(len(together.get(root(target), ())) > 1 for target in writes(node)):
                return None
            continue
        whole = set(one.roots()).union(*(together.get(each, ()) for each in one.roots()))
        together |= dict.fromkeys(whole, whole)
    left = {root(node) for node in outputs}
    if any(len(together[node] & left) > 1 for node in left & together.keys()):
        return None
    ways: dict[Node, list[_Way]] = {}
    for one in chosen:
        here, before, after = one.roots()
        found = [((one.taken, True), *way) for way in ways.get(before, _from_outside(before))]
        found += [((one.taken, False), *way) for way in ways.get(after, _from_outside(after))]
        if found and (one.nested or len(found) > _MOST_WAYS):
            return None
        ways[here] = found
    return [way for node in left for way in ways.get(node, ())]


def _from_outside(node: Node) -> list[_Way]:
    return [] if is_fresh(node) else [()]


def _leave_at(m: Machine, way: _Way) -> bool:
    """Record that Python runs the frame again if all of this holds."""
    held = [m.numbers.read[symbol].ghost for symbol, _ in way]
    if not all(map(m.tracer.owns, held)) or not m.may_check():
        return False
    m.tracer.run(_leaves, (held, [zero for _, zero in way]), where=m.users_line)
    return True


def _leaves(numbers: list[torch.Tensor], zero: list[bool]) -> None:
    found = [(one == 0) == is_zero for one, is_zero in zip(numbers, zero, strict=True)]
    assumed(torch.stack(found).all(), False)


class _State:
    """What a body must leave as it is: the values of the frames, and what they contain."""

    def __init__(self, m: Machine, body: Open, depth: int) -> None:
        self.frame = frame = body.frame
        self.chosen: list[_Chosen] = []
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

    def replaceable(self, m: Machine) -> list[Tensor]:
        """The tensors of locals that the body may replace."""
        keeps = torch.is_grad_enabled()
        found = {
            id(value): value
            for value in self.locals.values()
            if isinstance(value, Tensor)
            and _is_plain(m, value)
            and (keeps or not value.ghost.requires_grad)
        }
        return list(found.values())

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
    lists = (journal.effects, journal.cleared, journal.gone, journal.unhooked, journal.shown)
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
    if node is None or place in m.not_skipped or not _may_begin(m, frame):
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
    if vector is None or place in m.not_skipped or not _may_begin(m, frame):
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
    if not _open(m, Open(frame, head.index, place, head.index), chosen[after - 1], depth):
        give_up(m)
    row = frame.peek(1)
    m.open_bodies[-1].row = row.ghost if isinstance(row, Tensor) else None
