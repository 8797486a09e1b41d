"""Value guards: conditions on tensor data that are computed from a frame's inputs before the graph.

A condition such as `mask.all()` decides which branch a frame takes. Where a few cheap operators
compute it from input tensors (`ir.graph.asked`), capture makes a `ValueProgram` of them, and a
"value" row expects its outcome (`ValueCheck`). There is one entry per outcome. The native guard
program runs the value program after all other rows hold, once per call for all entries that share
it. The mirror runs the same steps with the executor's mirror. If the program raises, no entry
matches.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...ir.dataclass import dataclass
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import Expr, mapped
from ..executor.lower import PythonProgram, load
from ..program.program import Aten, ProgramSpec, Slot
from ..safe_access import MISSING, same_constant, show
from .sources import Source

_TEXT = 160  # longest text of an expression, in characters
# The size limit of numpy arrays whose content is guarded, in bytes.
MOST_ARRAY_BYTES = 1 << 13
_TRUTHS = (torch.tensor(False), torch.tensor(True))


class ValueProgram:
    """ATen operators over the tensors and Python numbers at some sources. The result is a tensor of
    one element. `program_of` returns the same object for equal programs."""

    def __init__(self, spec: ProgramSpec, key: Any) -> None:
        self.spec = spec
        self.key = key

    @cached_property
    def run(self) -> Any:
        """The callable that the native guard program runs."""
        return load(self.spec)

    @property
    def seconds(self) -> float:
        """The time of a run; 0.0 if not sampled."""
        return float(self.run.times()[2])

    @cached_property
    def _mirror(self) -> PythonProgram:
        return PythonProgram(self.spec)

    def compute(self, values: Sequence[Any], truth: bool) -> Any:
        """The outcome for these values, computed by the mirror. Raises what an operator raises."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            found = self._mirror(*values)[0].item()
        return bool(found) if truth else found

    def text(self, names: Sequence[str]) -> str:
        """The program as an expression over the names of its inputs."""
        written = dict(enumerate(names))
        for slot in self.spec.constants:
            written[slot] = "a constant tensor"
        into: int | None
        for step in self.spec.steps:
            assert isinstance(step, Aten)
            given = [_written(value, written) for value in step.args]
            given += [f"{name}={_written(value, written)}" for name, value in step.kwargs.items()]
            text = f"{step.op._opname}({', '.join(given)})"
            for at, into in enumerate(step.results):
                if into is not None:
                    written[into] = text if len(step.results) == 1 else f"{text}[{at}]"
        return written[self.spec.outputs[0]]


def _written(value: Any, names: dict[int, str]) -> str:
    if isinstance(value, Slot):
        return names[value.index]
    if type(value) in (tuple, list):
        return f"[{', '.join(_written(item, names) for item in value)}]"
    return str(value) if isinstance(value, (Expr, torch.dtype)) else repr(value)


_known: weakref.WeakValueDictionary[Any, ValueProgram] = weakref.WeakValueDictionary()


def program_of(
    nodes: Sequence[Node],
    inputs: dict[Node, int],
    n_inputs: int,
    symbols: dict[Any, tuple[Any, ...]],
    n_numbers: int,
    form: Callable[[Any], Any],
) -> ValueProgram:
    """The program of ordered nodes; the last node is its result.

    `inputs` maps input nodes to positions among `n_inputs` tensors. `symbols` and `n_numbers` are
    those of a `ProgramSpec`. `form` converts the constants and expressions of operands.
    """
    slots, constants, steps = dict(inputs), {}, []
    count = n_inputs

    def operand(value: Any) -> Any:
        return Slot(slots[value]) if type(value) is Node else form(value)

    for node in nodes:
        if node in inputs:
            continue
        slots[node] = count
        count += 1
        if node.op == "constant":
            constants[slots[node]] = node.target
    for node in nodes:
        if node.op == "call":
            args, kwargs = mapped(node.args, operand), mapped(node.kwargs, operand)
            results: tuple[int | None, ...] = (slots[node],)
            if not isinstance(node.meta, Meta):
                gets = {
                    one.target: slots[one] for one in nodes if node in one.args and one.op == "get"
                }
                results = tuple(gets.get(at) for at in range(len(node.meta)))
            steps.append(Aten(node.target, args, kwargs, results))
    spec = ProgramSpec(
        "value guard",
        n_inputs,
        count,
        tuple(steps),
        (slots[nodes[-1]],),
        constants=constants,
        symbols=symbols,
        n_numbers=n_numbers,
        names=tuple(str(step.op) for step in steps),
    )
    said = repr(
        (n_inputs, spec.outputs, n_numbers, sorted((str(s), o) for s, o in symbols.items()))
    )
    key = said, repr(spec.steps), tuple((slot, id(one)) for slot, one in constants.items())
    found = _known.get(key)
    if found is None:
        found = _known[key] = ValueProgram(spec, key)
    return found


class ArrayContent:
    """A program over a numpy array: whether it has the form and the numbers that it has now.

    `key`: dtype, shape, strides, whether it may be written, and, if `numbers`, their bytes.
    """

    seconds = 0.0  # no run is timed

    def __init__(self, array: np.ndarray, numbers: bool) -> None:
        self._numbers = numbers
        self.key = self._of(array)

    def _of(self, array: np.ndarray) -> tuple[Any, ...]:
        form = (array.dtype.str, array.shape, array.strides, array.flags.writeable)
        read = self._numbers and array.nbytes <= MOST_ARRAY_BYTES
        return (*form, array.tobytes() if read else b"")

    def run(self, array: np.ndarray) -> tuple[torch.Tensor]:
        """What the native guard program runs."""
        return (_TRUTHS[self._of(array) == self.key],)

    def compute(self, values: Sequence[Any], truth: bool) -> bool:
        return self._of(values[0]) == self.key

    def text(self, names: Sequence[str]) -> str:
        return f"{names[0]} has the same {'numbers' if self._numbers else 'form'}"


class GeneratorDevice:
    """A program over a `torch.Generator`: whether it is one of this device."""

    seconds = 0.0  # no run is timed

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def run(self, generator: torch.Generator) -> tuple[torch.Tensor]:
        """What the native guard program runs."""
        return (_TRUTHS[generator.device == self._device],)

    def compute(self, values: Sequence[Any], truth: bool) -> bool:
        return bool(values[0].device == self._device)

    def text(self, names: Sequence[str]) -> str:
        return f"{names[0]}.device == {self._device}"


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """The expected value of a "value" row: `program` over the values at `sources` gives `outcome`,
    as a bool if `truth`, else as a number."""

    program: ValueProgram | ArrayContent | GeneratorDevice
    sources: tuple[Source, ...]
    truth: bool
    outcome: Any

    def __str__(self) -> str:
        return f"{self.expression} is {show(self.outcome)}"

    @property
    def expression(self) -> str:
        text = self.program.text([str(source) for source in self.sources])
        return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."

    def now(self, read: Callable[[Source], Any]) -> str:
        """The outcome for the values that `read` finds at the sources, as text."""
        try:
            return show(self._outcome(read))
        # What an operator raises here, the frame raises itself when it runs.
        except Exception as error:
            return type(error).__name__

    def holds(self, read: Callable[[Source], Any]) -> bool:
        try:
            return same_constant(self._outcome(read), self.outcome)
        except Exception:  # see `now`
            return False

    def _outcome(self, read: Callable[[Source], Any]) -> Any:
        """The outcome, or MISSING where a source has no value."""
        values = [read(source) for source in self.sources]
        gone = any(value is MISSING for value in values)
        return MISSING if gone else self.program.compute(values, self.truth)
