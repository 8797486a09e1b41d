"""Greedy fusion: which nodes run in one kernel.

Nodes are taken in order. A node that can be lowered joins the group that keeps most bytes out of
memory. Candidates are the groups that compute its operands, and those that read a tensor it reads
too. Its map in that group's iteration must be affine, and no path through other work may lead from
the group to it. Groups that a node joins together become one. The result is a list of units
(kernels, single ATen calls), each with those that it must follow; `schedule` orders them.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Meta, Node
from ...ir.graph.schema import plan_of
from ...ir.ops.may_raise import may_raise
from ..analysis.dataflow import Flow, is_plain_view
from ..analysis.products import LETTERS
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import dense, estimated
from ..lower import scatter
from ..lower.builder import CONSTANTS, Rule, first_meta, rule_for, scatters
from . import column_folds, rowwise
from .places import identity, place_of, places, row_places
from .precedence import Placed

MAX_NODES = 96  # a bound on compile time and registers
MAX_BUFFERS = 32
LARGE = 1 << 16  # in bytes
Kinds = frozenset[str]
KINDS: Kinds = frozenset(("cpu", "cuda"))  # types of devices for which there are renderers

aten = torch.ops.aten
LIGHT = frozenset({
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.neg.default, aten.abs.default,
    aten.relu.default, aten._to_copy.default, aten.clone.default, aten.where.self, aten.lt.Scalar,
    aten.gt.Scalar, aten.eq.Scalar, aten.ne.Scalar, aten.le.Scalar, aten.ge.Scalar,
    aten.logical_not.default, aten.bitwise_not.default, aten.rsub.Scalar, aten.arange.start_step,
})  # fmt: skip


@dataclass(eq=False, slots=True)
class Unit(Placed):
    """A kernel (`shape` is set) or one ATen call, in the order of units.

    device  of the results of its members: a kernel runs on one
    shape   sizes of the iteration; `folded`: its reduced dimensions (None: none yet)
    where   for each member with a value: its map over `shape` (empty in a unit of `rows`)
    """

    nodes: list[Node] = field(default_factory=list)
    device: torch.device | None = None
    shape: tuple[int, ...] | None = None
    folded: tuple[int, ...] | None = None
    where: dict[Node, Map] = field(default_factory=dict)
    reads: dict[Node, int] = field(default_factory=dict)  # root -> bytes, for loads
    rows: Any = None  # the number of rows of a unit whose columns are unrolled (`rowwise`)
    stores: bool = False  # whether a member is a copy that writes into an input
    raises: bool = False  # whether a member may raise
    keeps: bool = False  # whether a member writes into one of `Fusion.alone`

    @property
    def is_kernel(self) -> bool:
        return self.shape is not None


def size_in_bytes(meta: Meta) -> int:
    """The size of a tensor in cost decisions; `extents.estimate` gives unknown sizes."""
    return estimated(meta.shape) * meta.dtype.itemsize


def fusable(node: Node, placed: bool = False) -> Rule | None:
    """The rule, if the node can be inside a kernel: it has dense results and at least one element.

    `placed`: the result is a part of other memory, in which no two elements overlap.
    """
    rule = rule_for(node)
    if rule is None:
        return None
    metas = [node.meta] if isinstance(node.meta, Meta) else list(node.meta)
    for meta in metas:
        if meta is None or 0 in meta.shape or not (placed or dense(meta)):
            return None if rule.kind != "pointwise" or meta is metas[0] else rule
    return rule


class Fusion:
    """The state of one run; `units` is the result (units with `merged` set are gone).

    near     no node joins a group from before the last operator that made something large:
             the plan then needs no more memory at a time than eager
    alone    the inputs whose stores no kernel does beside other work
    kinds    the types of devices that have kernels
    refused  the nodes that stay calls of ATen
    begun    the nodes that begin a kernel: it reads their operands from memory
    """

    def __init__(
        self,
        flow: Flow,
        kinds: Kinds,
        near: bool,
        alone: frozenset[Node],
        refused: frozenset[Node],
        begun: frozenset[Node],
    ) -> None:
        self.flow, self.kinds, self.near = flow, kinds, near
        self.alone, self.refused, self.begun = alone, refused, begun
        self.across = column_folds.found(flow) if "cuda" in kinds else {}
        self.first_open = 0  # number of the first unit that may be joined
        self.units: list[Unit] = []
        self.home: dict[Node, Unit] = {}
        self.rules: dict[Node, Rule] = {}
        # a unit that never runs -> the kernels that compute it (`inline_producers`)
        self.absorbed: dict[Unit, tuple[Unit, ...]] = {}
        # node -> kernels that did not take it in, and why
        self.apart: dict[Node, list[tuple[Unit, str]]] = {}
        self.position = {node: index for index, node in enumerate(flow.nodes)}

    def run(self) -> None:
        """Place each node in a unit."""
        for node in self.flow.nodes:
            if node.op == "get":
                self._place_get(node)
            elif not is_plain_view(node):
                self._place(node)
        column_folds.settle(self)

    @property
    def enabled(self) -> bool:
        return bool(self.kinds)

    @property
    def alive(self) -> list[Unit]:
        return [unit for unit in self.units if unit.merged is None]

    def finish(self) -> list[Unit]:
        """The units; a kernel that ATen does as well becomes a call."""
        taken = {reader for readers in self.absorbed.values() for reader in readers}
        units = self.alive
        for unit in units:
            if unit not in self.absorbed and unit not in taken:
                self._leave_to_aten(unit)
        return units

    def runs_elsewhere(self, source: Node) -> bool:
        """Whether only its readers compute it."""
        return source in self.home and self.unit_of(source) in self.absorbed

    def _leave_to_aten(self, unit: Unit) -> None:
        """Turn a kernel of one operator into the ATen call, if that is as fast."""
        calls = [node for node in unit.nodes if node.op == "call"]
        if (
            unit.is_kernel
            and len(calls) == 1
            and not self.rules[calls[0]].is_better_alone(calls[0])
        ):
            unit.nodes, unit.shape, unit.where = calls, None, {}
            del self.rules[calls[0]]
            unit.put_after(self._before(calls[0], None))

    # --- placing ---

    def _place_get(self, node: Node) -> None:
        call = node.args[0]
        unit = self.home.get(call)
        if unit is None:
            return
        unit = self.unit_of(call)
        self.home[node] = unit
        if unit.is_kernel:
            unit.nodes.append(node)
            if unit.rows is not None:
                unit.where[node] = ()
                return
            rule = self.rules[call]
            unit.where[node] = (
                unit.where[call] if rule.kind == "pointwise"
                else place_of(unit.shape, unit.folded, node.meta.shape, node.target in rule.rows)
            )  # fmt: skip

    def _place(self, node: Node) -> None:
        enabled = self.enabled and node not in self.flow.joins
        enabled = enabled and (not self.refused or self.flow.call(node) not in self.refused)
        rule = fusable(node, node in self.flow.whole) if enabled else None
        if rule is not None and rule.kind == "pointwise" and not isinstance(node.meta, Meta):
            users = self.flow.users.get(node, [])
            wanted = rule.every or all(user.target == 0 for user in users)
            # its result is not read; it is called only because it may raise
            rule = rule if users and wanted else None
        if rule is not None and _device(node).type not in self.kinds:
            rule = None
        if rule is not None and rule.kind == "create" and node in self.flow.written:
            rule = None  # it must be in memory: later reads see what was written to it
        before = self._before(node, rule)
        if rule is None or rule.kind == "create":
            unit = self._new(node, before)
            if rule is not None:
                self.rules[node] = rule
            elif self.near and _is_large(node):
                self.first_open = unit.number + 1
            return
        self.rules[node] = rule
        joined: Unit | None = None
        for unit in () if node in self.begun else self._candidates(node, rule):
            if joined is None:
                why, place = self._against(node, rule, unit, before)
                if not why:
                    self._join(node, rule, unit, before, place)
                    joined = unit
            elif unit is not joined:
                why = self._against_merging(joined, unit)
                if not why:
                    self._merge(joined, unit)
            else:
                continue
            if why:
                self.apart.setdefault(node, []).append((unit, why))
        if joined is None:
            unit = self._new(node, before)
            unit.rows = rowwise.begins(node)
            unit.shape, unit.folded = (
                _space(node, rule) if unit.rows is None else ((unit.rows,), None)
            )
            unit.folded = None if node in self.across else unit.folded
            self._enter(node, rule, unit)

    def _new(self, node: Node, before: list[Unit]) -> Unit:
        number = len(self.units)
        unit = Unit(number, bits=1 << number, nodes=[node], device=_device(node))
        unit.put_after(before)
        self.units.append(unit)
        self.home[node] = unit
        self._note(node, unit)
        return unit

    def _note(self, node: Node, unit: Unit) -> None:
        """Register what `_quiet` asks about a member."""
        stores = self.flow.is_store(node)
        unit.stores |= stores
        unit.raises |= may_raise(node)
        unit.keeps |= stores and self.flow.memory(node) in self.alone

    def unit_of(self, node: Node) -> Unit:
        unit: Unit = self.home[node].now()
        return unit

    def source(self, node: Node) -> Node:
        """The node that computes the value of this node, through plain views."""
        while is_plain_view(node):
            node = node.alias  # type: ignore[assignment]
        return node

    def _before(self, node: Node, rule: Rule | None) -> list[Unit]:
        """The units that this node must directly follow."""
        found: list[Unit] = []
        before = [self.source(operand) for operand in self.flow.reads(node)]
        before += self.flow.after.get(node, [])
        far = reads(node) if rule is None else () if rule.far is None else rule.far(node)
        stored = [self.source(other) for other in far]
        for other in before:
            if other in self.home and (other in stored or not self._inlined(other)):
                found.append(self.unit_of(other))
        return found

    def far(self, node: Node) -> tuple[Node, ...]:
        """The operands that a node of a kernel reads from memory, whatever made them."""
        rule = self.rules.get(node)
        return () if rule is None or rule.far is None else rule.far(node)

    def _inlined(self, node: Node) -> bool:
        rule = self.rules.get(node)
        return rule is not None and rule.kind == "create"

    def copied(self, operand: Node, unit: Unit, far: bool = False) -> bool:
        """Whether the unit computes this value itself, because it is small and cheap.

        It is a chain of at most three light operators over a tensor of at most half the unit's
        elements. A far operand without other readers is also computed where it is read, if that is
        at most about twice per element. False if the graph writes memory: a read might then come
        after a write.
        """
        if not unit.is_kernel or unit.rows is not None or self.flow.writes_memory:
            return False
        if self.runs_elsewhere(self.source(operand)):
            return True
        node = operand
        while is_plain_view(node):
            if not affine.always_affine(node):
                return False
            node = node.alias  # type: ignore[assignment]
        if node not in self.rules or not isinstance(node.meta, Meta) or self.unit_of(node) is unit:
            return False
        if node.meta.device != unit.device:
            return False
        size, reads_of_it = estimated(node.meta.shape), estimated(unit.shape or ())
        small = 2 * size <= reads_of_it
        if far:
            small = self._read_once(operand) and (small or reads_of_it <= 2 * size)
        return small and self._light(node, 3)

    def _read_once(self, node: Node) -> bool:
        while is_plain_view(node) and len(self.flow.users.get(node, ())) == 1:
            node = node.alias  # type: ignore[assignment]
        outputs = self.flow.graph.outputs
        return len(self.flow.users.get(node, ())) == 1 and not any(node is one for one in outputs)

    def _light(self, node: Node, allowance: int) -> bool:
        """Whether it is a chain of at most `allowance` light operators over tensors in memory."""
        if node.target not in LIGHT or allowance == 0:
            return False
        for operand in reads(node):
            source = self.source(operand)
            if source in self.rules and not self._inlined(source):
                return self._light(source, allowance - 1) or self.rules[source].kind != "pointwise"
        return True

    # --- joining ---

    def _candidates(self, node: Node, rule: Rule) -> list[Unit]:
        """Kernels that share tensors with this node, those that save most bytes first."""
        saved: dict[Unit, int] = {}
        shape, device = _space(node, rule)[0], _device(node)
        for operand in dict.fromkeys(reads(node)):
            source = self.source(operand)
            if source in self.home and not self._inlined(source):
                unit = self.unit_of(source)
                if unit.is_kernel:
                    saved[unit] = saved.get(unit, 0) + 2 * size_in_bytes(operand.meta)
        bases = {root(operand) for operand in reads(node)}
        for unit in self.units[-64:]:
            if unit.merged is None and unit.shape == shape:
                shared = sum(n for base, n in unit.reads.items() if base in bases)
                if shared and shared >= size_in_bytes_of(shape, 1):
                    saved[unit] = saved.get(unit, 0) + shared
        open_ones = []
        for unit in saved:
            if unit.number < self.first_open:
                self.apart.setdefault(node, []).append((unit, "NF705"))
            elif unit.device == device:
                open_ones.append(unit)
        # on a GPU a row value belongs to the kernel of its rows: alone it is one more launch
        wide = device is not None and device.type == "cuda"
        sizes = {unit: estimated(unit.shape or ()) if wide else 0 for unit in open_ones}
        return sorted(open_ones, key=lambda unit: (-saved[unit], -sizes[unit], -unit.number))

    def _against(
        self, node: Node, rule: Rule, unit: Unit, before: list[Unit]
    ) -> tuple[str, Map | None]:
        """(why a node cannot join a kernel, as a code, else "", and its map there)."""
        if self._full(unit, node):
            return "NF702", None
        if unit.leads_to(before):
            return "NF704", None
        alone = Unit(-1)
        self._note(node, alone)
        if not self._quiet(alone, unit):
            return "NF706", None
        place = self._place_in(node, rule, unit)
        return ("NF703" if place is None else ""), place

    def _quiet(self, other: Unit, unit: Unit) -> bool:
        """Whether no kernel of both would store into an input and also report an error."""
        if not self.flow.moves and not self.flow.apart:
            return True
        if not (other.stores or unit.stores):
            return True
        if unit.rows is not None or other.keeps or unit.keeps:
            return False
        return not (other.stores and unit.raises) and not (unit.stores and other.raises)

    def _full(self, unit: Unit, *more: Node) -> bool:
        """Whether the unit cannot take these nodes too: a bound on compile time and registers."""
        if unit.rows is not None:
            return rowwise.full([*unit.nodes, *more], unit.rows, len(unit.reads))
        return len(unit.nodes) >= MAX_NODES or len(unit.reads) >= MAX_BUFFERS

    def _place_in(self, node: Node, rule: Rule, unit: Unit) -> Map | None:
        """The map of the node's result in the unit's iteration, None if there is none."""
        assert unit.shape is not None
        shape, folded = _space(node, rule)
        if self.across and rule.kind != "pointwise":
            if node in self.across:
                return column_folds.place_in(self, node, unit)
            if column_folds.rows_of(self, unit) not in (None, folded):
                return None
        if rule.kind == "scatter":
            plain = unit.rows is None and unit.folded is None and shape == unit.shape
            full = identity(unit.shape)
            fits = plain and self._all_agree(node, rule, full, shape, unit)
            return full if fits and _cheap_beside(node, unit) else None
        if unit.rows is not None:
            return self._place_in_rows(node, rule, unit)
        if rule.kind != "pointwise" and any(map(scatters, unit.nodes)):
            return None
        if rule.kind == "product":  # its factors are loaded, each at its own map
            apart = not any(self.source(operand) in unit.where for operand in reads(node))
            fits = shape == unit.shape and unit.folded == folded and apart
            return row_places(unit.shape, unit.folded)[1][1] if fits else None
        if rule.kind != "pointwise":
            if shape != unit.shape or unit.folded not in (None, folded):
                return None
            full = identity(unit.shape)
            operand = rule.folds(node)[0]  # type: ignore[index, misc]
            if not self._agrees(operand, full, unit):
                return None
            others = [other for other in reads(node) if other is not operand]
            if any(self.source(other) in unit.where for other in others):
                return None
            return full
        if node.target not in LIGHT and any(member.target in LETTERS for member in unit.nodes):
            return None  # operators after a product are computed for one number at a time
        members = column_folds.without(self, unit.where)
        for where in places(unit.shape, unit.folded, members, shape):
            if self._all_agree(node, rule, where, shape, unit):
                return where
        return None

    def _all_agree(self, node: Node, rule: Rule, where: Map, shape: Any, unit: Unit) -> bool:
        """Whether a pointwise node with this map can have all its operands in this unit."""
        far = () if rule.far is None else rule.far(node)
        if any(not self._elsewhere(self.source(other), unit, node) for other in far):
            return False
        if rule.near is not None:
            near = rule.near(node, where)
        else:
            near = [
                (other, affine.broadcast(where, shape, other.meta.shape))
                for other in reads(node) if other not in far
            ]  # fmt: skip
        return all(self._agrees(operand, place, unit) for operand, place in near)

    def _elsewhere(self, source: Node, unit: Unit, reader: Node) -> bool:
        """Whether the unit can have a value elsewhere than at its own position: loaded or
        recomputed.
        """
        if source not in unit.where:
            return True
        rule = self.rules.get(source)  # the result of an operator with several results has no rule
        if unit.folded is None or rule is None or not isinstance(source.meta, Meta):
            return False
        once = rule.kind == "pointwise" and rule.far is None and source.target in LIGHT
        # A reader that picks elements may use the reduced row; one with masked parts may not.
        picks = source.target is aten._log_softmax.default and _picks(reader)
        return (once or picks) and all(
            self._elsewhere(self.source(operand), unit, reader)
            and (self.source(operand) is operand or self.source(operand) not in unit.where)
            for operand in reads(source)
        )

    def _place_in_rows(self, node: Node, rule: Rule, unit: Unit) -> Map | None:
        def member(operand: Node) -> bool:
            return self.source(operand) in unit.where

        made = [source for source in map(self.source, reads(node)) if self._inlined(source)]
        plain = all(source.target in CONSTANTS for source in made)
        return () if plain and rowwise.fits(node, rule, unit.rows, member) else None

    def _agrees(self, operand: Node, where: Map, unit: Unit) -> bool:
        """Whether the operand at `where` is loaded, or computed in the unit at exactly
        that position.
        """
        assert unit.shape is not None
        axes = unit.shape
        where = affine.clean(where, operand.meta.shape, axes)
        node = operand
        inside = self.source(operand) in unit.where
        if inside and (scatters(self.source(operand)) or self.source(operand) in self.across):
            return False  # its value is complete only when the kernel has ended
        while is_plain_view(node):
            if inside:
                moved = affine.through_view(node, where, axes)
                if moved is None:
                    return False
                where = affine.clean(moved, node.alias.meta.shape, axes)  # type: ignore[union-attr]
            node = node.alias  # type: ignore[assignment]
        return not inside or where == affine.clean(unit.where[node], node.meta.shape, axes)

    def _join(
        self, node: Node, rule: Rule, unit: Unit, before: list[Unit], place: Map | None
    ) -> None:
        unit.nodes.append(node)
        self.home[node] = unit
        self._note(node, unit)
        if rule.kind != "pointwise" and unit.rows is None and node not in self.across:
            unit.folded = _space(node, rule)[1]
        self._enter(node, rule, unit, place)
        unit.put_after(before)

    def _enter(self, node: Node, rule: Rule, unit: Unit, place: Map | None = None) -> None:
        """Register the node's map and its loads. `place`: the map, if it is known."""
        if unit.rows is not None:
            unit.where[node] = ()
        elif isinstance(node.meta, Meta) or rule.kind == "pointwise":
            meta = first_meta(node)
            if rule.kind == "pointwise":
                place = self._place_in(node, rule, unit) if place is None else place
                assert place is not None
            elif rule.kind == "scatter" or node in self.across:
                # its value exists at no position of the iteration
                place = (affine.zero(len(unit.shape or ())),) * len(meta.shape)
            else:
                place = place_of(
                    unit.shape, unit.folded, meta.shape, rule.kind in ("fold", "product")
                )
            unit.where[node] = place
        else:  # of several results only the gets have values; this is the map of result 0
            unit.where[node] = place_of(unit.shape, unit.folded, node.meta[0].shape, 0 in rule.rows)
        for operand in reads(node):
            if self.source(operand) not in unit.where and not self._inlined(self.source(operand)):
                base = root(operand)
                unit.reads[base] = max(unit.reads.get(base, 0), size_in_bytes(operand.meta))

    # --- merging ---

    def _against_merging(self, unit: Unit, other: Unit) -> str:
        """Why two kernels cannot be one, as a code; empty if they can."""
        if (unit.shape, unit.rows, unit.device) != (other.shape, other.rows, other.device):
            return "NF703"
        if self._full(unit, *other.nodes) or len(unit.nodes) + len(other.nodes) > MAX_NODES:
            return "NF702"
        if None not in (unit.folded, other.folded) and unit.folded != other.folded:
            return "NF703"
        if other.leads_to(unit.before) or unit.leads_to(other.before):
            return "NF704"
        if not self._quiet(other, unit):
            return "NF706"
        both = {**unit.where, **other.where}
        folded = unit.folded or other.folded
        trial = Unit(-1, shape=unit.shape, folded=folded, where=both, rows=unit.rows)
        trial.nodes = [*unit.nodes, *other.nodes]
        fits = all(self._still_fits(node, trial) for node in (*unit.nodes, *other.nodes))
        return "" if fits else "NF703"

    def _still_fits(self, node: Node, trial: Unit) -> bool:
        """Whether the node's operands are at their positions when both groups are one."""
        if node.op == "get":
            return True
        rule = self.rules[node]
        if rule.kind == "scatter" or node in self.across:
            return self._place_in(node, rule, trial) is not None
        if trial.rows is not None:
            return self._place_in_rows(node, rule, trial) is not None
        if rule.kind == "product":
            return not any(self.source(operand) in trial.where for operand in reads(node))
        if rule.kind != "pointwise":
            if any(map(scatters, trial.nodes)):
                return False
            operand = rule.folds(node)[0]  # type: ignore[index, misc]
            return self._agrees(operand, identity(trial.shape), trial)  # type: ignore[arg-type]
        return self._all_agree(node, rule, trial.where[node], _space(node, rule)[0], trial)

    def _merge(self, unit: Unit, other: Unit) -> None:
        unit.nodes = sorted({*unit.nodes, *other.nodes}, key=self.position.__getitem__)
        unit.where.update(other.where)
        unit.folded = unit.folded if unit.folded is not None else other.folded
        for base, size in other.reads.items():
            if base not in unit.where:
                unit.reads[base] = size
        for base in [base for base in unit.reads if base in unit.where]:
            del unit.reads[base]
        unit.stores |= other.stores
        unit.raises |= other.raises
        unit.keeps |= other.keeps
        unit.absorb(other)


def size_in_bytes_of(shape: tuple[int, ...], itemsize: int) -> int:
    return estimated(shape) * itemsize


def _is_large(node: Node) -> bool:
    """Whether it makes a tensor whose lifetime in memory matters."""
    metas = [node.meta] if isinstance(node.meta, Meta) else (node.meta or ())
    return node.alias is None and any(meta and size_in_bytes(meta) >= LARGE for meta in metas)


def _device(node: Node) -> Any:
    """The device of its (first) result; None if it returns no tensor."""
    metas = [node.meta] if isinstance(node.meta, Meta) else (node.meta or ())
    return next((meta.device for meta in metas if isinstance(meta, Meta)), None)


def _space(node: Node, rule: Rule) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """(full sizes of the node's iteration, reduced dimensions)."""
    if rule.space is not None:
        return rule.space(node)
    if rule.folds is not None:
        operand, dims, _keep = rule.folds(node)  # type: ignore[misc]
        return operand.meta.shape, dims
    meta = first_meta(node)
    return meta.shape, None


def _cheap_beside(node: Node, unit: Unit) -> bool:
    """Whether one thread may do the unit's other work too, if a scatter leaves all to one
    thread.
    """
    if scatter.spread_over_threads(node):
        return True
    return all(
        one.target in LIGHT or _picks(one) or scatters(one)
        for one in unit.nodes
        if one.op == "call"
    )


def _picks(node: Node) -> bool:
    """Whether it reads at positions given by another tensor."""
    row = plan_of(node.target).row
    return row is not None and row.kind in ("index", "loss")
