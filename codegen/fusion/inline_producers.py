"""Inlined producers: if other kernels read a kernel's result at positions of their own, those
kernels compute it where they read it.

`fuse` puts nodes with the same iteration into one kernel. A value between two kernels is read
through views that cut or transpose the iteration (windows, heads, patches), or it was moved (roll,
flip, padding). In: the units that `fusion` made. Out: `fusion.absorbed`, the units that never run.
Each element is still computed once, or at most twice if it takes only loads and light operators.
The readers do not get more accesses across their lanes than both kernels had before. `schedule`
calls `absorb` before units of one operator are left to ATen.
"""

from __future__ import annotations

from typing import Any

from ...ir.graph.effects import is_random
from ...ir.graph.nodes import Meta, Node
from ...ir.ops.may_raise import may_raise
from ..analysis.dataflow import is_plain_view
from ..analysis.products import LETTERS
from ..cpp import loop_plan
from ..loops import loop_nest
from ..loops.extents import estimated
from ..loops.loop_nest import LoopNest
from . import nest_builder
from .fuse import LIGHT, MAX_BUFFERS, MAX_NODES, Fusion, Unit
from .places import row_places

VECTOR_BYTES = 64  # the vector size for the decision; it holds for other machines too
MAX_READS = 4  # reads of a value that is computed at each of them
# loads under masks in a kernel; MASKED_COPY: in a kernel that would else be a copy by ATen
MAX_MASKED = 8
MASKED_COPY = 2
MOVED = 8  # a reader of a moved tensor may have this many times as many elements


def absorb(fusion: Fusion) -> None:
    """Fill `fusion.absorbed`, from the last unit to the first: a reader may itself be absorbed."""
    if fusion.flow.writes_memory or not fusion.enabled:
        return
    last = {unit: max(fusion.position[node] for node in unit.nodes) for unit in fusion.alive}
    for unit in sorted(last, key=lambda unit: -last[unit]):
        if _may_go(fusion, unit):
            readers = _readers(fusion, unit)
            if readers:
                _try(fusion, unit, readers)


def _may_go(fusion: Fusion, unit: Unit) -> bool:
    """Whether its members are pointwise, and do not write, raise or draw random numbers."""
    if not unit.is_kernel or unit.folded is not None or unit.rows is not None:
        return False
    for node in unit.nodes:
        rule = fusion.rules.get(node)
        if rule is None or rule.kind != "pointwise" or not isinstance(node.meta, Meta):
            return False
        if node in fusion.flow.whole or may_raise(node) or is_random(node):
            return False
    return True


def _readers(fusion: Fusion, unit: Unit) -> tuple[Unit, ...]:
    """The kernels that would compute it; empty if it must be in memory, or would be computed too
    often.
    """
    outside = _edges(fusion, unit)
    if not outside:
        return ()
    moves = all(fusion.rules[node].moves for node in unit.nodes)
    light = moves or (len(unit.nodes) <= 3 and all(node.target in LIGHT for node in unit.nodes))
    found: dict[Unit, None] = {}
    for reader in outside:
        rule = fusion.rules.get(reader)
        if (
            rule is None
            or reader in fusion.begun
            or (rule.far is not None and not rule.moves and not moves)
        ):
            return ()
        home = fusion.unit_of(reader)
        found.update(dict.fromkeys(fusion.absorbed.get(home, (home,))))
    if len(outside) > (MAX_READS if light else 1) or (len(found) > 1 and not moves):
        return ()
    size = estimated(unit.shape or ())
    fits = all(
        _has_room(fusion, unit, other, (MOVED if moves else 2 if light else 1) * size)
        for other in found
    )
    return tuple(found) if fits else ()


def _edges(fusion: Fusion, unit: Unit) -> list[Node]:
    """The readers of members from outside, one entry per read; empty if a member is a result of the
    graph.
    """
    found: list[Node] = []
    outputs = {fusion.source(node) for node in fusion.flow.graph.outputs}
    for member in unit.nodes:
        if member in outputs:
            return []
        queue = [member]
        while queue:
            for user in fusion.flow.users.get(queue.pop(), ()):
                if user.op == "get" or is_plain_view(user):
                    queue.append(user)
                elif fusion.home.get(user) is None or fusion.unit_of(user) is not unit:
                    found.append(user)
    return found


def _has_room(fusion: Fusion, unit: Unit, reader: Unit, size: int) -> bool:
    if not reader.is_kernel or reader.rows is not None or reader is unit:
        return False
    if any(node.target in LETTERS for node in reader.nodes):
        return False
    taken = [other for other, into in fusion.absorbed.items() if reader in into]
    count = sum(len(one.nodes) for one in (unit, reader, *taken))
    loaded = sum(len(one.reads) for one in (unit, reader, *taken))
    fits = count <= MAX_NODES and loaded <= MAX_BUFFERS
    return fits and estimated(_computed_at(unit, reader)) <= size


def _computed_at(unit: Unit, reader: Unit) -> tuple[Any, ...]:
    """The sizes of the positions at which the reader would compute the unit's values. On a GPU a
    value of a row is computed once per row.
    """
    shape, folded = reader.shape or (), reader.folded
    if reader.device is None or reader.device.type != "cuda" or folded is None:
        return shape
    rows = [sizes for sizes, _where in row_places(shape, folded)]
    return rows[0] if unit.shape in rows else shape


def _try(fusion: Fusion, unit: Unit, readers: tuple[Unit, ...]) -> None:
    """Absorb the unit, if each reader's positions are affine and no reader has more accesses across
    its lanes than both kernels had.
    """
    before = [_built(fusion, reader) for reader in readers]
    alone = _built(fusion, unit)
    fusion.absorbed[unit] = readers
    try:
        after = [_built(fusion, reader) for reader in readers]
    except nest_builder.NotAffine:
        del fusion.absorbed[unit]
        return
    across = _across(alone)
    for reader, old, new in zip(readers, before, after, strict=True):
        masked = sum(value.op == "load_if" for value in new.values)
        most = MASKED_COPY if _is_copy(fusion, reader) else MAX_MASKED
        if _across(new) > _across(old) + across or masked > most:
            del fusion.absorbed[unit]
            return


def _is_copy(fusion: Fusion, unit: Unit) -> bool:
    calls = [node for node in unit.nodes if node.op == "call"]
    return len(calls) == 1 and fusion.rules[calls[0]].moves


def _built(fusion: Fusion, unit: Unit) -> LoopNest:
    outside = {fusion.source(node) for node in fusion.flow.graph.outputs}
    for node in unit.nodes:
        users = fusion.flow.users.get(node, ())
        if any(fusion.home.get(user) is None or fusion.unit_of(user) is not unit for user in users):
            outside.add(node)
    stored = [node for node in unit.nodes if node in outside and isinstance(node.meta, Meta)]
    return nest_builder.build(fusion, unit, "trial", stored, set()).nest


def _across(made: LoopNest) -> int:
    """The number of accesses that go lane by lane."""
    plan = loop_plan.make_plan(made, loop_plan.lane_count(made, VECTOR_BYTES))
    if plan.vector is None or plan.tile is not None:
        return 0
    moves = loop_nest.moving(made, [plan.vector])
    found = 0
    for value in made.values:
        if value.op in loop_nest.LOADS:
            offsets = value.args[2:] if value.op == "load_if" else value.args
            apart = value.attr[1].strides[plan.vector] not in (0, 1, -1)
            found += apart or any(moves[arg] for arg in offsets)
    return found + sum(s.index.strides[plan.vector] not in (0, 1) for s in made.stores)
