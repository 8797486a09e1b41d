"""A GPU program as a CUDA graph, which is launched as a whole.

`Graphed(program, facts, tell)` is called like the program. For each layout (combination of sizes),
the first call runs the program, the second runs it on the recording stream, the third records its
launches, and later calls replay them. A recording contains addresses. Inputs and constants whose
address has not changed are *fixed*: they are read and written in place, and each call compares
their addresses. If one has changed, another recording may match (that of another model of the same
class); else a new one is made, which copies an input that has moved before and is no parameter. All
other inputs are copied into buffers. Results visible to the user are copies. Internal results
(`Facts.inner`: tensors that a forward saves for its backward) stay in the recording's memory, and
while one of them is in use the program runs step by step.

Only one replay is enqueued per device at a time, and it waits for the previous one if that was on
another stream, since buffers and workspaces of libraries are shared. A call during another one runs
the program. A failure to record is reported by `tell(code, reason)`; from then on the program runs
step by step. `codegen.cuda_graphs` decides which programs are recorded.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ..program.registers import values_of
from . import streams
from .graph_outputs import NotRecorded, Results, like, no_overlap

Program = Callable[..., tuple[Any, ...]]

CALLS_BEFORE = 2  # runs of a layout before it is recorded; the last one is the warm-up
MOVES = 8  # limit of recordings of a layout because of changed addresses
KEPT = 4  # recordings kept per layout
LAYOUTS = 8  # recorded layouts per program

# Cost model: processor time of a launched step in seconds, against copied bytes per second.
STEP_SECONDS, COPIED_A_SECOND = 3e-6, 2e12


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a program that its graphs depend on.

    device      the index of its device
    n_inputs    tensor inputs; numbers may follow
    constants   tensors of the program
    given       result -> input, if the result is the input itself
    held        result -> constant, likewise
    symbols     origins of its sizes, as in `ProgramSpec.symbols`
    written     inputs that it writes to
    consumes    callers do not observe what its results share memory with
    inner       results that only graftjit uses
    random      it draws random numbers
    steps       least number of launches per run
    """

    device: int
    n_inputs: int
    constants: tuple[Any, ...] = ()
    given: dict[int, int] = field(default_factory=dict)
    held: dict[int, Any] = field(default_factory=dict)
    symbols: dict[Any, Any] = field(default_factory=dict)
    written: frozenset[int] = frozenset()
    consumes: bool = False
    inner: frozenset[int] = frozenset()
    random: bool = False
    steps: int = 1 << 30


class _Device:
    """One device: the lock for enqueuing replays, and the end of the last one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stream, self._mark = 0, None

    def turn(self, index: int) -> _Device:
        """A block whose work waits for that of the previous one, on any stream. The lock is
        held."""
        self._index = index
        return self

    def __enter__(self) -> None:
        stream = self._now = streams.CUDA.stream(self._index)
        if stream != self._stream:
            streams.CUDA.follow(self._index, self._mark)

    def __exit__(self, *_: Any) -> None:
        self._stream = self._now
        # The default stream always exists and needs no event.
        self._mark = streams.CUDA.mark(self._index) if self._now else None


_DEVICES: dict[int, _Device] = {}


@dataclass(slots=True)
class _Layout:
    """State of the calls with equal sizes. `addresses`: those of the last call; `fixed`: positions
    whose address never changed; `moved`: positions whose address changed later; `recorded`:
    recordings, the last used one first."""

    calls: int = 0
    addresses: tuple[int, ...] = ()
    fixed: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)  # position -> version increments per run
    moved: set[int] = field(default_factory=set)
    moves: int = 0
    recorded: list[Recorded] = field(default_factory=list)


class Graphed:
    """See the module's docstring."""

    def __init__(self, program: Program, facts: Facts, tell: Callable[[str, str], None]) -> None:
        self.program, self.facts, self._tell = program, facts, tell
        self.off = False
        self._waited = 0  # calls with a seed of attention on the CPU
        self._layouts: dict[Any, _Layout] = {}
        self._one = _Layout()  # the layout of a program without symbolic sizes
        self._device = _DEVICES.setdefault(facts.device, _Device())
        self._warm = threading.local()  # `here`: this thread has had a warm-up run
        self._told: set[str] = set()

    @property
    def spec(self) -> Any:
        return self.program.spec  # type: ignore[attr-defined]

    @property
    def n_inputs(self) -> int:
        return self.program.n_inputs  # type: ignore[attr-defined]

    @property
    def recordings(self) -> int:
        """The number of recordings."""
        return sum(len(layout.recorded) for layout in (self._one, *self._layouts.values()))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        found = self._tried(inputs)
        return self.program(*inputs) if found is None else found

    def consume(self, arguments: list[Any]) -> tuple[Any, ...]:
        """A call with the arguments in a list, which is emptied, so that unreferenced ones are
        freed early."""
        found = self._tried(arguments)
        if found is None:
            run = getattr(self.program, "consume", None)
            return self.program(*arguments) if run is None else run(arguments)
        arguments.clear()
        return found

    def _tried(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """The results of the call, or None if the program has to run step by step."""
        lock = self._device.lock
        if self.off or not lock.acquire(False):  # used by another thread or by an enclosing call
            return None
        try:
            layout = self._one if not self.facts.symbols else self._layout(inputs)
            if layout is None:
                return None
            if not layout.recorded:
                return self._prepared(layout, inputs)
            # Another recording would include these launches.
            if streams.CUDA.capturing():
                return None
            recorded = layout.recorded[0]
            if recorded.addresses(inputs) != recorded.known:
                other = self._other(layout, inputs)
                if other is None:
                    return self._moved(layout, inputs)
                recorded = other
            if not recorded.is_free():
                self._say("FB337", "the tensors that the last forward saved are still alive")
                return None
            return self._replayed(recorded, inputs)
        finally:
            lock.release()

    def _replayed(self, recorded: Recorded, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        try:
            found = recorded.run(inputs, self._device)
        except torch.OutOfMemoryError as error:
            if recorded.written or self.facts.random:  # the writes must not happen twice
                raise
            self._stop("FB334", f"out of memory: {_first_line(error)}")
            return None
        if recorded.written:
            recorded.count(inputs)  # the recorded run incremented them itself
        return found

    # -- before there is a recording

    def _layout(self, inputs: Sequence[Any]) -> _Layout | None:
        """The layout of these inputs; None beyond the limit of layouts."""
        values = values_of(self.facts.symbols, inputs).values()
        # the text distinguishes 0.0 from -0.0
        key = tuple([one if type(one) is int else repr(one) for one in values])
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) == LAYOUTS:
                self._say("FB336", f"more than {LAYOUTS} combinations of sizes")
                return None
            found = self._layouts[key] = _Layout()
        return found

    def _prepared(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """A normal run that gathers addresses and versions; or the first recording."""
        cuda = streams.CUDA
        if cuda.capturing():
            return None
        tensors = [*inputs[: self.facts.n_inputs], *self.facts.constants]
        strange = next((one for one in tensors if not self._is_here(one)), None)
        if strange is not None:
            self._waited += 1
            if not self._is_seed(strange) or self._waited > MOVES:
                self._stop(*_away(strange, cuda.kind))
            return None
        addresses = tuple([one.data_ptr() for one in tensors])
        if not layout.calls:
            layout.fixed = set(range(len(tensors)))
            layout.written = dict.fromkeys(self.facts.written, 0)
        else:
            layout.fixed = {
                at
                for at in layout.fixed
                if addresses[at] == layout.addresses[at] or type(tensors[at]) is torch.nn.Parameter
            }
        layout.addresses = addresses
        layout.calls += 1
        if layout.calls > CALLS_BEFORE:
            return self._recorded(layout, inputs)
        before = _versions(tensors)
        if layout.calls < CALLS_BEFORE:
            found = self.program(*inputs)
        else:
            found = self._warmed(inputs)
        for at, (now, then) in enumerate(zip(_versions(tensors), before, strict=True)):
            if now != then:
                layout.written[at] = now - then
        return found

    def _warmed(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """A run on the recording stream, whose workspaces replays use. Libraries make their handles
        once per thread, which a recording forbids."""
        with self._device.turn(self.facts.device):
            found = streams.CUDA.warm(self.facts.device, lambda: self.program(*inputs))
        self._warm.here = True
        return found

    def _is_seed(self, tensor: Any) -> bool:
        """Whether this is a random seed of attention, which is on the CPU until a recorded forward
        returns it."""
        return self.facts.consumes and tensor.dtype == torch.int64 and not tensor.dim()

    def _is_here(self, tensor: Any) -> bool:
        device = tensor.device
        return device.type == streams.CUDA.kind and (device.index or 0) == self.facts.device

    def _recorded(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """Make a recording and replay it. None: nothing was computed."""
        if not hasattr(self._warm, "here"):
            return self._warmed(inputs)
        try:
            recorded = Recorded(self.program, self.facts, layout, inputs)
        except NotRecorded as error:
            self._stop(*error.args)
            return None
        except torch.OutOfMemoryError as error:
            self._stop("FB334", f"out of memory: {_first_line(error)}")
            return None
        except RuntimeError as error:
            self._stop("FB334", _first_line(error))
            return None
        layout.recorded = [recorded, *layout.recorded][:KEPT]
        return recorded.run(inputs, self._device)

    @staticmethod
    def _other(layout: _Layout, inputs: Sequence[Any]) -> Recorded | None:
        """The recording with these addresses, which becomes the first."""
        for at, one in enumerate(layout.recorded):
            if one.addresses(inputs) == one.known:
                layout.recorded.insert(0, layout.recorded.pop(at))
                return one
        return None

    def _moved(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """A fixed tensor has a new address: make a recording for this address, or one that copies
        it."""
        layout.moves += 1
        if layout.moves > MOVES:
            self._stop("FB336", f"{MOVES} calls had addresses that no recording has")
            return None
        recorded, n = layout.recorded[0], self.facts.n_inputs
        pairs = zip(recorded.fixed, recorded.known, recorded.addresses(inputs), strict=True)
        gone = {at for at, then, now in pairs if then != now}
        again = {at for at in gone & layout.moved if at < n and at not in layout.written}
        layout.fixed -= {at for at in again if type(inputs[at]) is not torch.nn.Parameter}
        layout.moved |= gone
        return self._recorded(layout, inputs)

    # -- reporting

    def _stop(self, code: str, reason: str) -> None:
        """Run step by step from now on."""
        self.off = True
        self._layouts.clear()
        self._one = _Layout()
        self._say(code, reason)

    def _say(self, code: str, reason: str) -> None:
        if code not in self._told:
            self._told.add(code)
            self._tell(code, reason)


class Recorded:
    """One recording: the fixed addresses, the copied inputs, and how to make results."""

    def __init__(
        self, program: Program, facts: Facts, layout: _Layout, inputs: Sequence[Any]
    ) -> None:
        """Raises NotRecorded, and what torch raises during recording."""
        n = self._n = facts.n_inputs
        self._index = facts.device
        tensors = [*inputs[:n], *facts.constants]
        self.fixed = sorted(layout.fixed | layout.written.keys() | set(range(n, len(tensors))))
        self._constants = facts.constants
        self.known = [tensors[at].data_ptr() for at in self.fixed]
        self._read = _picked([at for at in self.fixed if at < n])
        copied = sorted(set(range(n)) - set(self.fixed))
        for at in copied:
            no_overlap(tensors[at])
        buffers: dict[int, Any] = {}

        def run() -> tuple[Any, ...]:
            with torch.inference_mode(False), torch.no_grad():
                # These buffers are in the recording's memory.
                buffers.update((at, like(tensors[at])) for at in copied)
            return program(*[buffers.get(at, one) for at, one in enumerate(inputs)])

        self._graph, made = streams.CUDA.record(self._index, run, facts.random)
        self._copies = _by_dtype(buffers)
        self.written = [(at, by) for at, by in layout.written.items() if by]
        self._results = Results(made, facts, [*tensors, *buffers.values()])
        _worth(facts, buffers.values(), self._results.bytes)

    def addresses(self, inputs: Sequence[Any]) -> list[int]:
        """The present addresses of the fixed tensors."""
        found = [one.data_ptr() for one in self._read(inputs)]
        found += [one.data_ptr() for one in self._constants]
        return found

    def count(self, inputs: Sequence[Any]) -> None:
        """Increment the versions of the tensors that a replay has written, as a run would."""
        tensors = [*inputs[: self._n], *self._constants]
        for at, by in self.written:
            one = tensors[at]
            if not one.is_inference():
                torch._C._autograd._unsafe_set_version_counter(  # type: ignore[attr-defined]
                    (one,), (one._version + by,)
                )

    def is_free(self) -> bool:
        """Whether no tensor that a replay would overwrite is in use."""
        return self._results.is_free()

    def run(self, inputs: Sequence[Any], device: _Device) -> tuple[Any, ...]:
        """One replay. The device's lock is held."""
        with device.turn(self._index):
            for buffers, picked in self._copies:
                torch._foreach_copy_(buffers, picked(inputs), True)
            self._graph.replay()
            return self._results.of(inputs)


# -- parts


def _picked(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that selects the items at these positions."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda items: [items[at] for at in positions]


def _by_dtype(buffers: dict[int, Any]) -> list[tuple[list[Any], Any]]:
    """(buffers, function that selects their inputs): one call copies those of one dtype."""
    groups: dict[Any, list[int]] = {}
    for at, one in buffers.items():
        groups.setdefault(one.dtype, []).append(at)
    return [([buffers[at] for at in places], _picked(places)) for places in groups.values()]


def _worth(facts: Facts, buffers: Any, results: int) -> None:
    """Raise NotRecorded if copying costs more than the launches."""
    nbytes = results + sum(one.numel() * one.element_size() for one in buffers)
    if 2 * nbytes / COPIED_A_SECOND > facts.steps * STEP_SECONDS:
        raise NotRecorded(
            "FB335", f"{nbytes >> 20} MiB would be copied to save {facts.steps} launches"
        )


def _versions(tensors: Sequence[Any]) -> list[int]:
    """The version counters; 0 for inference tensors."""
    return [0 if one.is_inference() else one._version for one in tensors]


def _away(tensor: Any, kind: str) -> tuple[str, str]:
    device = tensor.device
    if device.type == kind:
        return "FB331", f"an input is on {device}"
    return "FB330", f"an input is on {device}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
