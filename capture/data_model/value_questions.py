"""Reads of tensor data that are answered before the graph, as in `if mask.all():`.

In: a tensor of one element whose truth or number the program reads. Out: the answer, with a "value"
guard on it, if a few cheap operators compute it from the frame's tensors (`ir.graph.asked`,
`runtime.guards.value_guards`); else None, and the caller breaks. A condition has an entry per
outcome. Of an int three values are compiled, of a float one; then it is a break. It is also a break
if each step of a loop computes the value from the previous one, or if it depends on floats that are
arguments, which usually differ at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import symbols_of
from ...runtime.guards.sources import Source
from ...runtime.guards.value_guards import ValueCheck, ValueProgram, program_of
from ...runtime.process import fault_origin
from ..breaks import Break
from ..values.symbolic_sizes import has_one_element
from ..values.value import Awaited, Const, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# Per frame. Plain Python would run the same operators; of constants, capture runs them.
MOST_ASKED = 512


def truth(m: Machine, value: Tensor) -> bool:
    """bool(tensor)"""
    value = value.settled() if isinstance(value, Awaited) else value
    found = certain(m, value)
    if found is None:
        found = _answer(m, value, True)
    if found is None:
        raise Break("GB105", "the truth of a tensor decides")
    return bool(found)


def data_numbers() -> Any:
    # few programs read numbers that the graph computes
    from . import data_numbers

    return data_numbers


def truth_value(m: Machine, value: Tensor) -> Value:
    """bool(tensor) that nothing depends on yet."""
    found = number(m, value, "__bool__")
    return Const(truth(m, value)) if found is None else found


def number(m: Machine, value: Value, name: str, at: int = 0) -> Value | None:
    """tensor.name() for the names in `NUMBERS`; None: a break.

    `at`: its place among the numbers that the instruction reads.
    A number that is not known before the graph runs is read by the graph (`data_numbers`).
    """
    if not isinstance(value, Tensor):
        return None
    value = value.settled() if isinstance(value, Awaited) else value
    found = certain(m, value) if name in _TRUTHS else None
    if found is None and name != "tolist":
        found = _answer(m, value, name in _TRUTHS, at)
    if found is None:
        return data_numbers().number(m, value, name)  # type: ignore[no-any-return]
    if name == "item":
        return Const(found)
    if name in _TRUTHS:
        return Const(found)
    if value.ghost.requires_grad or isinstance(found, complex):
        return None  # torch warns or raises
    if name == "__index__":
        whole = not isinstance(found, float) and value.ghost.dim() == 0
        return Const(int(found)) if whole else None
    try:
        return Const(int(found) if name == "__int__" else float(found))
    except (OverflowError, ValueError):  # int(nan)
        return None


_TRUTHS = ("__bool__", "is_nonzero")
NUMBERS = frozenset({"item", "tolist", "__int__", "__float__", "__index__", *_TRUTHS})


def certain(m: Machine, value: Tensor) -> bool | None:
    """The truth that the range of an operator decides."""
    ghost = value.ghost
    if m.inner or m.modes or not m.tracer.owns(ghost) or not has_one_element(m, ghost):
        return None
    return m.tracer.certain_truth(ghost)


def answered(m: Machine, value: Tensor) -> bool | None:
    """The truth of a tensor, if it is answered before the graph."""
    found = _answer(m, value, True)
    return None if found is None else bool(found)


def constant(m: Machine, ghost: Any) -> Any:
    """The number in a tensor that was computed of constants only, else None."""
    part = _producing(m, ghost)
    question = None if part is None else _Question.of(m, part[0])
    if question is None or question[1]:
        return None
    return _computed(question[0], [], False)


def _producing(m: Machine, ghost: Any) -> Any:
    """(nodes, their work) that compute a tensor of one element, or None."""
    if m.inner or m.modes or not m.tracer.owns(ghost) or not has_one_element(m, ghost):
        return None
    # Guards come before the call that waits for a message: they would read the tensor too early.
    if m.heap.arrived:
        return None
    return m.tracer.producing(ghost)


def _computed(program: ValueProgram, values: list[Any], as_truth: bool) -> Any:
    try:
        return program.compute(values, as_truth)
    except Exception as error:
        # The program itself meets the exception, at its place.
        if fault_origin.is_ours(error):
            raise
        return None


def of_sizes(m: Machine, value: Tensor) -> Const | None:
    """The number in a tensor that follows from sizes and numbers of the frame, whatever its
    tensors contain; the entry is bound to it.
    """
    part = _producing(m, value.ghost)
    question = None if part is None else _Question.of(m, part[0])
    if question is None or any(node.op == "input" for node in part[0]):
        return None
    program, sources, values = question
    found = _computed(program, values, False)
    if found is None:
        return None
    if sources:
        m.guard("value", None, ValueCheck(program, sources, False, found))
    return Const(found)


def may_ask(m: Machine, value: Tensor) -> bool:
    """Whether the truth of a tensor may be answered before the graph."""
    part = _producing(m, value.ghost)
    if part is None:
        return False
    origins = [m.tracer.origin(node.target) for node in part[0] if node.op == "input"]
    if not symbols_of([(one.args, one.kwargs) for one in part[0]]).isdisjoint(m.numbers.called):
        return False
    return not any(
        not isinstance(source, Source) or tensor is None or _varies(source, tensor)
        for source, tensor in origins
    )


def lasting(m: Machine, value: Tensor, at: int) -> Any:
    """The guarded number in a tensor that follows from sizes and from what outlives a call, as
    buffers do; None for other tensors. `at`: as in `number`."""
    part = _producing(m, value.ghost)
    if part is None:
        return None
    sources = [m.tracer.origin(node.target)[0] for node in part[0] if node.op == "input"]
    if any(not isinstance(one, Source) or _is_argument(one) for one in sources):
        return None
    return _answer(m, value, False, at)


def _answer(m: Machine, value: Tensor, as_truth: bool, at: int = 0) -> Any:
    """The guarded answer; None if the read cannot be answered before the graph."""
    part = _producing(m, value.ghost)
    if part is None:
        return None
    nodes, work = part
    place = (at, *((id(frame.code), frame.pc) for frame in m.frames))
    if work > m.asked.setdefault(place, work):
        return None
    question = _Question.of(m, nodes)
    if question is None:
        return None
    program, sources, values = question
    # The tensors come first; of those behind them only sizes are read.
    read = sum(node.op == "input" for node in nodes)
    if any(map(_varies, sources[:read], values)):
        return None
    if not sources and m.questions == MOST_ASKED:
        return None
    found = _computed(program, values, as_truth)
    if found is None or not sources:  # it depends on constants only
        m.questions += 1
        return found
    check = ValueCheck(program, sources, as_truth, found)
    if not m.varied.answered((program.key, *map(str, sources), as_truth), found):
        return None
    if ("value", None, check) not in m.guards.rows and m.questions == MOST_ASKED:
        return None
    m.questions += ("value", None, check) not in m.guards.rows
    m.guard("value", None, check)
    return found


def _varies(source: Source, value: Any) -> bool:
    """Whether these are floats that the frame gets as an argument, or as an item of one."""
    floats = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return floats and _is_argument(source)


def _is_argument(source: Source) -> bool:
    """Whether this is an argument of the frame, or an item of one."""
    while source.kind == "item" and source.base is not None:
        source = source.base
    return source.kind == "local"


class _Question:
    """Builds the program of one read: its tensors and numbers, with their values at capture."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.tensors: list[tuple[Source, Any]] = []
        self.numbers: list[tuple[Source, Any]] = []

    @classmethod
    def of(
        cls, m: Machine, nodes: list[Node]
    ) -> tuple[ValueProgram, tuple[Source, ...], list[Any]] | None:
        made = cls(m)
        inputs: dict[Node, int] = {}
        for node in nodes:
            if node.op == "input":
                source, tensor = m.tracer.origin(node.target)
                if not isinstance(source, Source) or tensor is None or tensor.is_meta:
                    return None
                inputs[node] = len(made.tensors)
                made.tensors.append((source, tensor))
        symbols = made.symbols(
            m.facts.form([(node.args, node.kwargs) for node in nodes if node.op == "call"])
        )
        if symbols is None:
            return None
        n = len(made.tensors)
        program = program_of(nodes, inputs, n, symbols, len(made.numbers), m.facts.form)
        given = [*made.tensors, *made.numbers]
        return program, tuple(source for source, _ in given), [real for _, real in given]

    def symbols(self, arguments: Any) -> dict[Any, tuple[Any, ...]] | None:
        """Origins of the symbols, in the form of `Graph.symbols`; None if one cannot be read."""
        found: dict[Any, tuple[Any, ...]] = {}
        numbers = []
        for symbol in sorted(symbols_of(arguments), key=str):
            what, source, *dim = self.m.facts.symbols[symbol]
            if what == "data" or symbol in self.m.facts.called:
                return None
            if what == "number":
                numbers.append(symbol)
                self.numbers.append((source, self.m.numbers.held[source].real))
                continue
            at = self._tensor(source)
            if at is None:
                return None
            found[symbol] = (what, at, *dim)
        for at, symbol in enumerate(numbers):
            found[symbol] = ("number", len(self.tensors) + at)
        return found

    def _tensor(self, source: Source) -> int | None:
        """The index of this source's tensor; a tensor of which only sizes are read is added."""
        for at, (known, _) in enumerate(self.tensors):
            if known == source:
                return at
        real = next((one.origin for one in self.m.inputs if one.source == source), None)
        if real is None:
            return None
        self.tensors.append((source, real))
        return len(self.tensors) - 1
