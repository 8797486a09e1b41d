"""Lowering from a `ProgramSpec` to a callable: the native executor, or its plain-Python mirror.

Codegen calls `load(spec)`. The native `Program` calls `lower(spec)` for its steps as plain tuples.
The mirror, `PythonProgram`, runs the same spec with torch calls and ctypes. It serves where a
native route is missing, and in tests that compare the two. Both take n_inputs tensors and return a
tuple of outputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.ops.checks import checking, leave_unless
from ...ir.symbolic.expr import Expr, evaluate, is_symbolic
from ...ir.trace.autocast_cache import AUTOCAST_DEVICES, cached_cast
from .. import _native
from ..cuda import launches
from ..process.session import SESSION
from ..program.program import (
    COMPUTES,
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    Launch,
    Otherwise,
    ProgramSpec,
    Scratch,
    Slot,
    View,
)
from ..program.registers import NotNative, Registers, values_of
from . import aten_calls, promises
from .grad_mode import keeping, saves

_BUMP_VERSION = "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"

NEVER = 2**31 - 1  # greater than the number of any step

Program = Callable[..., tuple[torch.Tensor, ...]]
Mirror = Callable[[list[Any], Any], None]


def load(spec: ProgramSpec) -> Program:
    """The callable for a spec. It keeps the `keep` objects of its launches alive. GPU kernels are
    loaded on their devices; raises BuildError if that fails."""
    launches.prepare(spec)
    if _native.tensor_routes()["executor"] == "native" and _reachable(spec):
        try:
            return _native.Program(spec)
        except NotNative:
            pass  # an expression without a native form
    return PythonProgram(spec)


def consuming(program: Any) -> Callable[[list[Any]], Any]:
    """The program as a function that takes its arguments in a list. One with `consume` drops each
    argument after its last use."""
    return getattr(program, "consume", None) or (lambda arguments: program(*arguments))


def _reachable(spec: ProgramSpec) -> bool:
    """Whether the native executor can run the steps.

    The C shim must have numbers for every allocated dtype and device. If kernels write to inputs,
    version counters must be accessible.
    """
    for step in spec.steps:
        writes = isinstance(step, Launch | DeviceLaunch) and step.writes
        if writes and not _native.has_symbol(_BUMP_VERSION):
            return False
        if isinstance(step, Alloc):
            try:
                _native.dtype_code(step.dtype)
            except RuntimeError:
                return False
            if not _native.has_symbol(f"aoti_torch_device_type_{step.device.type}"):
                return False
    return True


# --- operands -------------------------------------------------------------------------------------


def slots_of(value: Any) -> Iterator[int]:
    """The slots in an operand, in order."""
    if isinstance(value, Slot):
        yield value.index
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from slots_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from slots_of(item)


def _as_results(value: Any) -> tuple[Any, ...]:
    """An operator's return value as a tuple of results."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def call_form(
    step: Aten,
) -> tuple[Callable[..., tuple[Any, ...]], tuple[int, ...], tuple[Any, ...]]:
    """The operator call as a function of tensors; the slots of these tensors; and the expressions
    whose values are passed after them.

    The function is compiled from text, `lambda t3, t4: results(op(t3, [c0, t4], dim=c1))`, so that
    the call has little overhead over the operator.
    """
    slots = tuple(dict.fromkeys(slots_of((step.args, step.kwargs))))
    op = keeping(step.op) if saves(step) else step.op
    names: dict[str, Any] = {"op": op, "results": _as_results}
    numbers: dict[Expr, str] = {}
    arguments = [_written(value, names, numbers) for value in step.args]
    arguments += [
        f"{name}={_written(value, names, numbers)}" for name, value in step.kwargs.items()
    ]
    parameters = ", ".join([*(f"t{slot}" for slot in slots), *numbers.values()])
    call = f"op({', '.join(arguments)})"
    if step.promised is not None:
        names["kept"] = promises.keeper(step.op)
        given = ", ".join(f"t{slot}" for slot in slots)
        call = f"kept({call}, {_written(step.promised, names, numbers)}, [{given}])"
        parameters = ", ".join([*(f"t{slot}" for slot in slots), *numbers.values()])
    text = f"lambda {parameters}: results({call})"
    return eval(text, names), slots, tuple(numbers)


def _written(value: Any, names: dict[str, Any], numbers: dict[Expr, str]) -> str:
    """An operand as text. Constants become names in `names`, expressions names in `numbers`."""
    if isinstance(value, Slot):
        return f"t{value.index}"
    if isinstance(value, Expr):
        return numbers.setdefault(value, f"n{len(numbers)}")
    if isinstance(value, list):
        return f"[{', '.join(_written(item, names, numbers) for item in value)}]"
    if isinstance(value, tuple) and (any(True for _ in slots_of(value)) or is_symbolic(value)):
        return f"({''.join(_written(item, names, numbers) + ', ' for item in value)})"
    name = f"c{len(names)}"
    names[name] = value
    return name


def view_form(step: View) -> Callable[..., tuple[torch.Tensor]]:
    rank = len(step.shape)

    def call(base: torch.Tensor, *numbers: int) -> tuple[torch.Tensor]:
        shape, stride, offset = step.shape, step.stride, step.offset
        if numbers:
            shape, stride, offset = numbers[:rank], numbers[rank:-1], numbers[-1]
        offset += 0 if step.absolute else base.storage_offset()
        return (torch.as_strided(base, shape, stride, offset),)

    return call


# --- lowering to the native executor --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lowering:
    """Context for lowering the steps of one program: slots of plain views (see `plain_views`), and
    the registers of its expressions."""

    plain: set[int]
    numbers: Registers


def lower(spec: ProgramSpec) -> tuple[Any, ...]:
    """The tuple that `_native.Program` reads: (inputs, number inputs, slots, arena, register of the
    arena's size or -1, steps, outputs, constants, numbers, labels, first step that writes to
    inputs)."""
    to = _Lowering(plain_views(spec), Registers(spec.symbols))
    steps = tuple(_LOWER[type(step)](step, to) for step in spec.steps)
    symbolic = is_symbolic(spec.arena)
    arena, register = (0, to.numbers.of(spec.arena)) if symbolic else (spec.arena, -1)
    return (
        spec.n_inputs,
        spec.n_numbers,
        spec.n_slots,
        arena,
        register,
        steps,
        spec.outputs,
        dict(spec.constants),
        to.numbers.lowered(),
        labels(spec),
        first_write(spec),
    )


def labels(spec: ProgramSpec) -> tuple[str | None, ...]:
    """Labels of the ranges of `torch.profiler`: that of the program, then one per step, None for
    steps that compute nothing."""
    names = iter(spec.names)
    each = [next(names, "") or None if type(step) in COMPUTES else None for step in spec.steps]
    return (f"graftjit: {spec.name}", *each)


def first_write(spec: ProgramSpec) -> int:
    """The index of the first step that may write to an input, a constant, or a view of one."""
    outside = {*range(spec.n_inputs), *spec.constants}
    for at, step in enumerate(spec.steps):
        if isinstance(step, Launch | DeviceLaunch):
            if not outside.isdisjoint(step.writes):
                return at
        elif isinstance(step, View):
            outside.update([step.slot] if step.base in outside else ())
        elif isinstance(step, Aten):
            follows: dict[int, set[int]] = {}
            wanted = set[int]()
            note_aliases(step, follows, wanted)
            if not outside.isdisjoint(wanted):
                return at
            for slot in outside & follows.keys():
                outside |= follows[slot]
    return NEVER


def plain_views(spec: ProgramSpec) -> set[int]:
    """Slots of views that can be represented as a mere alias of memory.

    No output is made of such a view and no operator writes to it, so it does not matter that it
    shares version counter and `_base` with its base.
    """
    follows: dict[int, set[int]] = {}
    wanted = {slot for at, slot in enumerate(spec.outputs) if at not in spec.joined}
    for step in spec.steps:
        if isinstance(step, View):
            follows.setdefault(step.base, set()).add(step.slot)
        elif isinstance(step, Launch | DeviceLaunch):
            wanted.update(step.writes)
        elif isinstance(step, Aten):
            note_aliases(step, follows, wanted)
    plain = set()
    for step in spec.steps:
        if isinstance(step, View) and not _reaches(step.slot, follows, wanted):
            plain.add(step.slot)
    return plain


def note_aliases(step: Aten, follows: dict[int, set[int]], wanted: set[int]) -> None:
    """Note that results may be views of the operands that the schema marks, and which operands are
    written to. Operators tagged as silently aliasing may alias or write any operand."""
    results = {slot for slot in step.results if slot is not None}
    schema = step.op._schema
    silent = torch.Tag.maybe_aliasing_or_mutating in step.op.tags
    values = aten_calls.bound_values(step.op, step.args, step.kwargs)
    for argument, value in zip(schema.arguments, values, strict=True):
        for slot in slots_of(value):
            alias = argument.alias_info
            if silent or (alias is not None and alias.is_write):
                wanted.add(slot)
            if silent or alias is not None:
                follows.setdefault(slot, set()).update(results)


def _reaches(slot: int, follows: dict[int, set[int]], wanted: set[int]) -> bool:
    pending, seen = [slot], {slot}
    while pending:
        at = pending.pop()
        if at in wanted:
            return True
        fresh = follows.get(at, set()) - seen
        seen |= fresh
        pending.extend(fresh)
    return False


def _lower_alloc(step: Alloc, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    rank = len(step.shape)

    def call(*numbers: int) -> tuple[torch.Tensor]:
        return (_empty(step, *((numbers[:rank], numbers[rank:]) if numbers else ())),)

    plan = _alloc_plan(step, to)
    if is_symbolic((step.shape, step.stride)):
        sizes, strides = to.numbers.each(step.shape), to.numbers.each(step.stride)
        numbers = to.numbers.handed((*step.shape, *step.stride))
        rest = (step.dtype, step.device, 0, call, True, numbers, plan)
        return "alloc", (step.slot, sizes, strides, *rest)
    span = sum((size - 1) * stride for size, stride in zip(step.shape, step.stride, strict=True))
    nbytes = 0 if 0 in step.shape else (span + 1) * step.dtype.itemsize
    rest = (step.dtype, step.device, nbytes, call, False, (), plan)
    return "alloc", (step.slot, step.shape, step.stride, *rest)


def _alloc_plan(step: Alloc, to: _Lowering) -> tuple[Any, ...] | None:
    """A plan to call the allocation operator itself on a GPU.

    Out-of-memory is common there and must raise at once, whereas the C shim (torch 2.11) writes to
    stderr and reports only that it failed. The shim is faster on the CPU.
    """
    if step.device.type == "cpu" or not aten_calls.usable("operators" in SESSION.left_out):
        return None
    kwargs = {"dtype": step.dtype, "device": step.device}
    op = torch.ops.aten.empty_strided.default
    return aten_calls.plan(op, (list(step.shape), list(step.stride)), kwargs, to.numbers)


def _lower_scratch(step: Scratch, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    if is_symbolic((step.offset, step.nbytes)):
        return "scratch", (step.slot, to.numbers.of(step.offset), 0, True, step.base)
    return "scratch", (step.slot, step.offset, step.nbytes, False, step.base)


def _lower_launch(step: Launch, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    return "launch", (step.address, step.slots, step.writes, to.numbers.handed(step.numbers))


def _lower_device(step: DeviceLaunch, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    return launches.lowered(step, to.numbers)


def _lower_otherwise(step: Otherwise, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    return "otherwise", (step.call, step.slots, (), to.numbers.handed(step.numbers))


def _lower_aten(step: Aten, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    call, slots, expressions = call_form(step)
    numbers = to.numbers.handed(expressions)
    native = aten_calls.usable("operators" in SESSION.left_out)
    if native and step.op is cached_cast:
        (weight, dtype, device), (result,) = step.args, step.results
        return "cast", (result, weight.index, dtype, device, call)
    if step.op is leave_unless:
        return "check", (checking(step.args[1]), slots, step.args[1])
    native = native and not saves(step)
    plan = aten_calls.plan(step.op, step.args, step.kwargs, to.numbers) if native else None
    if plan is None:
        return "python", (call, slots, step.results, numbers)
    return "aten", (plan, call, slots, step.results, numbers)


def _lower_view(step: View, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    layout = (*step.shape, *step.stride, step.offset)
    symbolic = is_symbolic(layout)
    if step.slot in to.plain:
        sizes, strides, offset = step.shape, step.stride, step.offset
        if symbolic:
            numbers = to.numbers
            sizes, strides, offset = numbers.each(sizes), numbers.each(strides), numbers.of(offset)
        return "view", (step.slot, step.base, sizes, strides, offset, step.absolute, symbolic)
    if step.absolute or step.offset == 0:
        start = step.offset if step.absolute else None
        args = (Slot(step.base), step.shape, step.stride, start)
        op = torch.ops.aten.as_strided.default
        return "followed", _lower_aten(Aten(op, args, {}, (step.slot,)), to)
    handed = to.numbers.handed(layout) if symbolic else ()
    return "followed", ("python", (view_form(step), (step.base,), (step.slot,), handed))


def _lower_free(step: Free, to: _Lowering) -> tuple[str, tuple[Any, ...]]:
    return "free", (step.slots,)


_LOWER: dict[type, Callable[[Any, _Lowering], tuple[str, tuple[Any, ...]]]] = {
    Alloc: _lower_alloc,
    Scratch: _lower_scratch,
    Launch: _lower_launch,
    DeviceLaunch: _lower_device,
    Otherwise: _lower_otherwise,
    Aten: _lower_aten,
    View: _lower_view,
    Free: _lower_free,
}


# --- the mirror -----------------------------------------------------------------------------------


def _empty(step: Alloc, shape: Any = None, stride: Any = None) -> torch.Tensor:
    shape, stride = (step.shape, step.stride) if shape is None else (shape, stride)
    return torch.empty_strided(shape, stride, dtype=step.dtype, device=step.device)


class PythonProgram:
    """The executor in plain Python: the same steps, each as one torch or ctypes call."""

    def __init__(self, spec: ProgramSpec) -> None:
        self.spec = spec
        self._steps = [] if spec.symbols else [_MIRROR[type(step)](step) for step in spec.steps]

    def _steps_of(self, inputs: Sequence[Any]) -> list[Mirror]:
        """The steps of one call. Those of a symbolic program get this call's numbers."""
        if not self.spec.symbols:
            return self._steps
        values = values_of(self.spec.symbols, inputs)
        return [_MIRROR[type(step)](_plain(step, values)) for step in self.spec.steps]

    def _arena_of(self, inputs: Sequence[Any]) -> Any:
        spec = self.spec
        size = spec.arena
        if is_symbolic(size):
            size = evaluate(size, values_of(spec.symbols, inputs))
        return ctypes.create_string_buffer(size + 64) if size else None

    @property
    def n_inputs(self) -> int:
        return self.spec.n_inputs + self.spec.n_numbers

    @property
    def n_outputs(self) -> int:
        return len(self.spec.outputs)

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spec = self.spec
        if len(inputs) != self.n_inputs:
            raise TypeError(f"a program of {self.n_inputs} inputs was called with {len(inputs)}")
        tensors = inputs[: spec.n_inputs]
        for number, value in enumerate(tensors):
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"input {number} of a program is no tensor: {type(value)}")
        steps = self._steps_of(inputs)
        # The flag of kernels that failed has a slot of its own, the last one.
        trouble = ctypes.c_int32(0)
        slots: list[Any] = [*tensors, *[None] * (spec.n_slots - spec.n_inputs), trouble]
        for slot, constant in spec.constants.items():
            slots[slot] = constant
        arena = self._arena_of(inputs)
        with _ambient_off([*tensors, *spec.constants.values()]):
            for step in steps:
                step(slots, arena)
        outputs = (slots[slot] for slot in spec.outputs)
        return tuple(
            one.detach() if at in spec.joined and one._is_view() else one
            for at, one in enumerate(outputs)
        )


@contextlib.contextmanager
def _ambient_off(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Disable autocast, and grad mode if an input requires a gradient: see autograd_scope.h."""
    with contextlib.ExitStack() as stack:
        for device in AUTOCAST_DEVICES:
            if torch._C.is_autocast_enabled(device):
                torch._C.set_autocast_enabled(device, False)
                stack.callback(torch._C.set_autocast_enabled, device, True)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            stack.enter_context(torch.no_grad())
        yield


def _plain(step: Any, values: dict[str, Any]) -> Any:
    """The same step with numbers in place of expressions."""
    changed = {
        one.name: evaluate(before, values)
        for one in fields(step)
        if is_symbolic(before := getattr(step, one.name))
    }
    return replace(step, **changed) if changed else step


def _mirror_alloc(step: Alloc) -> Mirror:
    def run(slots: list[Any], arena: Any) -> None:
        slots[step.slot] = _empty(step)

    return run


def _mirror_scratch(step: Scratch) -> Mirror:
    def run(slots: list[Any], arena: Any) -> None:
        if step.base >= 0:
            base = slots[step.base].data_ptr()
        else:
            start = ctypes.addressof(arena)
            base = start + -start % 64
        slots[step.slot] = base + step.offset

    return run


def _mirror_launch(step: Launch) -> Mirror:
    kinds = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    kernel = ctypes.CFUNCTYPE(None, *kinds)(step.address)
    form = "".join("d" if type(number) is float else "q" for number in step.numbers)
    numbers = struct.pack(form, *step.numbers)

    def run(slots: list[Any], arena: Any) -> None:
        values = [slots[slot] for slot in step.slots]
        pointers = [value if isinstance(value, int) else value.data_ptr() for value in values]
        pointers.append(ctypes.addressof(slots[-1]))
        kernel((ctypes.c_void_p * len(pointers))(*pointers), torch.get_num_threads(), numbers)
        _move_versions(step.writes, slots)

    return run


def _move_versions(writes: Sequence[int], slots: list[Any]) -> None:
    # Writes no element, but increments the version counter or raises.
    for slot in writes:
        torch.as_strided(slots[slot], (0,), (1,)).zero_()


def _mirror_device(step: DeviceLaunch) -> Mirror:
    launch = launches.mirrored(step)

    def run(slots: list[Any], arena: Any) -> None:
        launch(slots, arena)
        _move_versions(step.writes, slots)

    return run


def _mirror_otherwise(step: Otherwise) -> Mirror:
    def run(slots: list[Any], arena: Any) -> None:
        if slots[-1].value:
            step.call(*[slots[slot] for slot in step.slots], *step.numbers)

    return run


def _mirror_aten(step: Aten) -> Mirror:
    call, sources, _numbers = call_form(step)

    def run(slots: list[Any], arena: Any) -> None:
        results = _native.warned_call(call, *[slots[slot] for slot in sources])
        for slot, value in zip(step.results, results, strict=False):
            if slot is not None:
                slots[slot] = value

    return run


def _mirror_view(step: View) -> Mirror:
    call = view_form(step)

    def run(slots: list[Any], arena: Any) -> None:
        base = slots[step.base]
        # A view that is made without grad mode cannot be written to later.
        with torch.set_grad_enabled(torch.is_grad_enabled() or not base.requires_grad):
            slots[step.slot] = call(base)[0]

    return run


def _mirror_free(step: Free) -> Mirror:
    def run(slots: list[Any], arena: Any) -> None:
        for slot in step.slots:
            slots[slot] = None

    return run


_MIRROR: dict[type, Callable[[Any], Mirror]] = {
    Alloc: _mirror_alloc,
    Scratch: _mirror_scratch,
    Launch: _mirror_launch,
    DeviceLaunch: _mirror_device,
    Otherwise: _mirror_otherwise,
    Aten: _mirror_aten,
    View: _mirror_view,
    Free: _mirror_free,
}
