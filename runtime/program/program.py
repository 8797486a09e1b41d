"""What the executor runs: a program as data.

Codegen makes a `ProgramSpec`; `runtime.executor.lower.load(spec)` turns it into a callable: the native executor,
or the Python mirror of it where a native route is missing. A program takes its inputs as positional tensors
and returns a tuple of its outputs. Slots 0..n_inputs-1 are the inputs; every other slot is written once by
the step that produces it. Where sizes are not known, numbers are expressions (`ir.symbolic.expr`) over `ProgramSpec.symbols`;
the program takes the Python numbers among those after its tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.dataclass import dataclass, field

MAX_PROGRAMS = 2**31 - 1  # of a launch on a GPU, in x


@dataclass(frozen=True, slots=True)
class Slot:
    """A reference to a slot inside the arguments of an `Aten` step."""

    index: int


@dataclass(frozen=True, slots=True)
class Alloc:
    """A fresh uninitialised tensor: sizes and strides in elements."""

    slot: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Scratch:
    """Raw memory that only kernels touch: `nbytes` at byte `offset` of the program's arena (64-byte aligned), or of
    the uint8 tensor in slot `base`. Never an output, never an argument of an `Aten` or `View` step."""

    slot: int
    offset: Any
    nbytes: Any
    base: int = -1


@dataclass(frozen=True, slots=True)
class Launch:
    """Call a compiled kernel: `void kernel(void **buffers, int32_t threads, int64_t *numbers)` at `address`.

    buffers[i] is the data pointer (storage offset included) of slots[i]; the one after the last is that of an int32,
    which a kernel that meets trouble (an index out of range) sets to 1. `threads` is torch's thread count
    at run time. `keep` keeps the library alive. `writes`: slots of inputs and constants, or of views of them,
    that the kernel changes: their version counters move as under an operator in place. `numbers`: expressions
    that it takes, an int64 or the bits of a double each.
    """

    kernel: str
    address: int
    slots: tuple[int, ...]
    keep: Any = None
    writes: tuple[int, ...] = ()
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """Launch a kernel on a GPU, on torch's current stream of `device` (with its index).

    `function` is the driver's handle of the kernel and `keep` what it lives as long as (`runtime.cuda.driver.load`). Its
    parameters are the data pointers of `slots`, then `numbers` (numbers or expressions; `kinds` has a letter for each:
    "i" int32, "q" int64, "f" float32, "d" float64), then `hidden` null pointers. The grid is `programs` (a number or an
    expression, at most MAX_PROGRAMS) in x; none at all is no launch. `threads` of a program, and `shared` bytes of
    dynamic shared memory. `writes`: as for a `Launch`.

    `aligned`: positions among `slots` of what the kernel takes to begin at a multiple of 16 bytes though nobody knows.
    A launch looks; where one does not, it is `general`'s kernel, which asks for nothing and takes the same: called once
    and without arguments, it gives (function, shared bytes) and keeps it loaded.
    """

    kernel: str
    function: int
    slots: tuple[int, ...]
    device: torch.device
    programs: Any
    threads: int
    shared: int
    hidden: int = 0
    numbers: tuple[Any, ...] = ()
    kinds: str = ""
    keep: Any = None
    writes: tuple[int, ...] = ()
    aligned: tuple[int, ...] = ()
    general: Any = None


@dataclass(frozen=True, slots=True)
class Otherwise:
    """If the kernels before met trouble: call(*tensors, *numbers) of these slots and expressions, which raises."""

    call: Any
    slots: tuple[int, ...]
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Aten:
    """Call an ATen operator below autograd's need: `results = op(*args, **kwargs)`; args may hold `Slot`s and
    expressions, also nested in lists. results[i] is the slot for result i, or None where it is not needed or not a tensor."""

    op: Any  # torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class View:
    """slot = base.as_strided(shape, stride, offset): offset in elements from the *base's storage* start when
    `absolute`, else relative to the base's own offset."""

    slot: int
    base: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Free:
    """These slots are dead from here on."""

    slots: tuple[int, ...]


COMPUTES = (Launch, DeviceLaunch, Aten)
Step = Alloc | Scratch | Launch | DeviceLaunch | Otherwise | Aten | View | Free


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A whole program. `constants` fills slots with real tensors before the first step.

    arena     bytes of scratch memory needed during a call (one arena a running call; calls may overlap in
              threads)
    outputs   slots of the results, in order; a slot may occur twice, and may be an input
    joined    positions of the outputs of which nobody is to know what they are views of (see `ir.graph.nodes.Graph`)
    names     of each step that computes (`Launch`, `DeviceLaunch`, `Aten`), in order, what reports call it; empty: nothing
    symbols   where each symbol comes from, as `Graph.symbols` has it; `n_numbers`: Python numbers that a call brings
    """

    name: str
    n_inputs: int
    n_slots: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    arena: Any = 0
    constants: dict[int, Any] = field(default_factory=dict)
    symbols: dict[Any, Any] = field(default_factory=dict)
    n_numbers: int = 0
    joined: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()
