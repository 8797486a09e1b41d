"""Programs as data, the input of the executor.

Codegen makes a `ProgramSpec`. `runtime.executor.lower.load(spec)` makes a callable of it: the
native executor, or its Python mirror where a native route is missing. A program takes its inputs as
positional tensors and returns a tuple of outputs. Slots 0..n_inputs-1 are the inputs. Each other
slot is written once, by the step that produces it. Symbolic sizes are expressions
(`ir.symbolic.expr`) over `ProgramSpec.symbols`; Python numbers among the symbols follow the tensors
as arguments.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ...ir.dataclass import dataclass, field

MAX_PROGRAMS = 2**31 - 1  # limit of CUDA for a grid in x


@dataclass(frozen=True, slots=True)
class Slot:
    """A reference to a slot within the arguments of an `Aten` step."""

    index: int


@dataclass(frozen=True, slots=True)
class Alloc:
    """A new uninitialised tensor. Sizes and strides are in elements."""

    slot: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Scratch:
    """Raw memory for kernels only: `nbytes` at byte `offset` of the program's arena (64-byte
    aligned), or of the uint8 tensor in slot `base`. It is never an output, nor an argument of an
    `Aten` or `View` step."""

    slot: int
    offset: Any
    nbytes: Any
    base: int = -1


@dataclass(frozen=True, slots=True)
class Launch:
    """Call a compiled kernel, `void kernel(void **buffers, int32_t threads, int64_t *numbers)` at
    `address`.

    buffers[i] is the data pointer of slots[i], storage offset included. One more buffer is an int32
    that the kernel sets to 1 on an error (an index out of range). `threads` is torch's thread count
    at run time. `keep` keeps the library loaded. `writes`: slots of inputs and constants, or of
    views of them, that the kernel changes; their version counters are incremented, as by an
    operator in place. `numbers`: expressions passed as an int64 or as the bits of a double each.
    """

    kernel: str
    address: int
    slots: tuple[int, ...]
    keep: Any = None
    writes: tuple[int, ...] = ()
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """Launch a GPU kernel on torch's current stream of `device` (which has an index).

    `function` is the driver's handle of the kernel; it is valid while `keep` lives
    (`runtime.cuda.driver.load`). Parameters are the data pointers of `slots`, then `numbers`
    (numbers or expressions; `kinds` has a letter for each: "i" int32, "q" int64, "f" float32, "d"
    float64), then `hidden` null pointers. The grid has `programs` blocks in x (a number or an
    expression, at most MAX_PROGRAMS; with 0 nothing is launched), each with `threads` threads and
    `shared` bytes of dynamic shared memory. `writes` is that of a `Launch`.

    `aligned`: positions in `slots` of pointers that the kernel assumes to be multiples of 16
    although the planner could not prove it. Each launch checks them. If one is not aligned, the
    launch uses the kernel of `general`, which makes no such assumption and takes the same
    parameters: `general()` loads it, once, and returns (function, shared bytes).
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
    """If a kernel before this step reported an error, call(*tensors, *numbers) with these slots and
    expressions, which raises."""

    call: Any
    slots: tuple[int, ...]
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Aten:
    """Call an ATen operator without autograd: `results = op(*args, **kwargs)`. Arguments may
    contain `Slot`s and expressions, also in nested lists. results[i] is the slot of result i, or
    None if it is unused or not a tensor. `promised`: of an operator of another library, what its
    results look like by its fake rule (`runtime.executor.promises`)."""

    op: Any  # torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]
    promised: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """slot = base.as_strided(shape, stride, offset). The offset is in elements, from the start of
    the base's storage if `absolute`, else from the base's own offset."""

    slot: int
    base: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Free:
    """The program no longer needs these slots."""

    slots: tuple[int, ...]


COMPUTES = (Launch, DeviceLaunch, Aten)
Step = Alloc | Scratch | Launch | DeviceLaunch | Otherwise | Aten | View | Free
# Program -> the programs of the slices that run in its place: the latest division.
SLICES: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A whole program. `constants` are real tensors that fill slots before the first step.

    arena     bytes of scratch memory needed during a call (one arena per running call, since calls
              in threads may overlap)
    outputs   slots of the results, in order; a slot may occur twice, and may be an input
    joined    positions of outputs that are returned as tensors of their own, not as views (see
              `ir.graph.nodes.Graph`)
    names     label in reports of each computing step (`Launch`, `DeviceLaunch`, `Aten`), in order;
              empty: none
    symbols   origin of each symbol, as in `Graph.symbols`
    n_numbers   Python numbers passed to a call after the tensors
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
