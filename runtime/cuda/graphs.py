"""A program for a GPU as a CUDA graph: launched as a whole, in place of a launch a step.

`Graphed(program, facts, tell)` is called like the program. The first call of a layout runs it as it is, the second on the stream
that recordings are made on; at the third its launches are recorded, and from there on replayed. A recording knows
addresses. Inputs and constants whose address has stayed the same are *fixed*: read (and written) where they are, and their
addresses are compared at each call. Where one has changed another recording may know it (of two models of one class, say); else one
is made, in which an input that has moved before, and is no parameter, is copied. All other inputs are copied into buffers. Results that somebody sees are copies; those that only the library sees (`Facts.inner`: what a forward
saves for its backward) lie in the recording's own memory, and while one of them is held the program runs as it is.

One replay on a device is enqueued at a time, and each waits for the one before it where that was on another stream: buffers and
libraries' workspaces are shared. A call that finds another one at it runs the program. Whatever goes wrong while recording is
told by `tell(code, reason)`, and the program runs as it is from there on. Made by `codegen.cuda_graphs`, which says which programs may.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ..program.registers import values_of
from . import streams as cuda_streams
from .graph_outputs import NotRecorded, Results, like, no_overlap

Program = Callable[..., tuple[Any, ...]]

CALLS_BEFORE = 2  # runs of a layout before it is recorded; the last of them is the warm one
MOVES = 8  # recordings of one layout that are made because an address changed
KEPT = 4  # those that are kept
LAYOUTS = 8  # layouts of one program that are recorded

# Of a launch, against copying: a step costs the processor this long; memory moves this much a second.
STEP_SECONDS, COPIED_A_SECOND = 3e-6, 2e12


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a program graphs depend on.

    device      the index of its device
    n_inputs    its tensors; numbers may follow
    constants   tensors that it holds
    given       result -> input, where the result is the input itself; `held`: result -> constant, the same of those
    symbols     where its sizes come from, as `ProgramSpec.symbols` has them
    written     inputs that it writes to
    consumes    nobody sees what its results share memory with
    inner       results that only the library sees
    random      it draws random numbers
    steps       launches of a run, at least
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
    """Of one device: who enqueues replays, and after what the next one comes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stream, self._mark = 0, None

    def turn(self, index: int) -> _Device:
        """A block whose work comes after that of the one before, on whichever streams. The lock is held."""
        self._index = index
        return self

    def __enter__(self) -> None:
        stream = self._now = cuda_streams.CUDA.stream(self._index)
        if stream != self._stream:
            cuda_streams.CUDA.follow(self._index, self._mark)

    def __exit__(self, *_: Any) -> None:
        self._stream = self._now
        # The default stream is there for ever: it needs no mark.
        self._mark = cuda_streams.CUDA.mark(self._index) if self._now else None


_DEVICES: dict[int, _Device] = {}


@dataclass(slots=True)
class _Layout:
    """What is known of calls with the same sizes. `addresses`: those of the last call; `fixed`: whose was the same each time;
    `moved`: those of which it was not, afterwards; `recorded`: recordings, the last used one first."""

    calls: int = 0
    addresses: tuple[int, ...] = ()
    fixed: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)  # position -> versions that a run adds
    moved: set[int] = field(default_factory=set)
    moves: int = 0
    recorded: list[Recorded] = field(default_factory=list)


class Graphed:
    """See the module's docstring."""

    def __init__(self, program: Program, facts: Facts, tell: Callable[[str, str], None]) -> None:
        self.program, self.facts, self._tell = program, facts, tell
        self.off = False
        self._waited = 0  # calls with seeds of attention on the processor
        self._layouts: dict[Any, _Layout] = {}
        self._one = _Layout()  # where sizes are known
        self._device = _DEVICES.setdefault(facts.device, _Device())
        self._told: set[str] = set()

    @property
    def spec(self) -> Any:
        return self.program.spec  # type: ignore[attr-defined]

    @property
    def n_inputs(self) -> int:
        return self.program.n_inputs  # type: ignore[attr-defined]

    @property
    def recordings(self) -> int:
        """How many there are."""
        return sum(len(layout.recorded) for layout in (self._one, *self._layouts.values()))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        found = self._tried(inputs)
        return self.program(*inputs) if found is None else found

    def consume(self, arguments: list[Any]) -> tuple[Any, ...]:
        """The same with the arguments in a list, which is empty afterwards: those that nobody else holds die early."""
        found = self._tried(arguments)
        if found is None:
            run = getattr(self.program, "consume", None)
            return self.program(*arguments) if run is None else run(arguments)
        arguments.clear()
        return found

    def _tried(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """What the call gives; None where the program has to run as it is."""
        lock = self._device.lock
        if self.off or not lock.acquire(False):  # another thread, or what this one's call runs
            return None
        try:
            layout = self._one if not self.facts.symbols else self._layout(inputs)
            if layout is None:
                return None
            if not layout.recorded:
                return self._prepared(layout, inputs)
            if cuda_streams.CUDA.capturing():  # the program's own recording takes our launches up
                return None
            recorded = layout.recorded[0]
            if recorded.addresses(inputs) != recorded.known:
                other = self._other(layout, inputs)
                if other is None:
                    return self._moved(layout, inputs)
                recorded = other
            if not recorded.is_free():
                self._say("FB337", "what the last forward saved is still held")
                return None
            return self._replayed(recorded, inputs)
        finally:
            lock.release()

    def _replayed(self, recorded: Recorded, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        try:
            found = recorded.run(inputs, self._device)
        except torch.OutOfMemoryError as error:
            if recorded.written or self.facts.random:  # it must not happen twice
                raise
            self._stop("FB334", f"out of memory: {_first_line(error)}")
            return None
        if recorded.written:
            recorded.count(inputs)  # the run that was recorded has counted by itself
        return found

    # -- before there is a recording

    def _layout(self, inputs: Sequence[Any]) -> _Layout | None:
        """The layout of these inputs; None if it is one too many."""
        values = values_of(self.facts.symbols, inputs).values()
        key = tuple([one if type(one) is int else repr(one) for one in values])  # 0.0 is not -0.0
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) == LAYOUTS:
                self._say("FB336", f"more than {LAYOUTS} combinations of sizes")
                return None
            found = self._layouts[key] = _Layout()
        return found

    def _prepared(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """A run as it is, after which more is known; or the first recording."""
        cuda = cuda_streams.CUDA
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
        else:  # on the recordings' stream, whose workspaces replays use
            with self._device.turn(self.facts.device):
                found = cuda.warm(self.facts.device, lambda: self.program(*inputs))
        for at, (now, then) in enumerate(zip(_versions(tensors), before, strict=True)):
            if now != then:
                layout.written[at] = now - then
        return found

    def _is_seed(self, tensor: Any) -> bool:
        """What attention saves of random numbers lies on the processor until a recorded forward gives it."""
        return self.facts.consumes and tensor.dtype == torch.int64 and not tensor.dim()

    def _is_here(self, tensor: Any) -> bool:
        device = tensor.device
        return device.type == cuda_streams.CUDA.kind and (device.index or 0) == self.facts.device

    def _recorded(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """A recording, and its first replay. None: nothing has been computed."""
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
        """The recording of these addresses, first in line from now on."""
        for at, one in enumerate(layout.recorded):
            if one.addresses(inputs) == one.known:
                layout.recorded.insert(0, layout.recorded.pop(at))
                return one
        return None

    def _moved(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """Something fixed is where it never was: a recording for this place, or one that copies it."""
        layout.moves += 1
        if layout.moves > MOVES:
            self._stop("FB336", f"addresses that no recording knew at {MOVES} calls")
            return None
        recorded, n = layout.recorded[0], self.facts.n_inputs
        pairs = zip(recorded.fixed, recorded.known, recorded.addresses(inputs), strict=True)
        gone = {at for at, then, now in pairs if then != now}
        again = {at for at in gone & layout.moved if at < n and at not in layout.written}
        layout.fixed -= {at for at in again if type(inputs[at]) is not torch.nn.Parameter}
        layout.moved |= gone
        return self._recorded(layout, inputs)

    # -- telling

    def _stop(self, code: str, reason: str) -> None:
        """The program as it is, from now on."""
        self.off = True
        self._layouts.clear()
        self._one = _Layout()
        self._say(code, reason)

    def _say(self, code: str, reason: str) -> None:
        if code not in self._told:
            self._told.add(code)
            self._tell(code, reason)


class Recorded:
    """One recording: what it reads where, what is copied in, and how results are made of it."""

    def __init__(
        self, program: Program, facts: Facts, layout: _Layout, inputs: Sequence[Any]
    ) -> None:
        """Raises NotRecorded, and what torch raises while it records."""
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
                buffers.update(
                    (at, like(tensors[at])) for at in copied
                )  # the recording's own memory
            return program(*[buffers.get(at, one) for at, one in enumerate(inputs)])

        self._graph, made = cuda_streams.CUDA.record(self._index, run)
        self._copies = _by_dtype(buffers)
        self.written = [(at, by) for at, by in layout.written.items() if by]
        self._results = Results(made, facts, [*tensors, *buffers.values()])
        _worth(facts, buffers.values(), self._results.bytes)

    def addresses(self, inputs: Sequence[Any]) -> list[int]:
        """Where what is fixed is now."""
        found = [one.data_ptr() for one in self._read(inputs)]
        found += [one.data_ptr() for one in self._constants]
        return found

    def count(self, inputs: Sequence[Any]) -> None:
        """The versions of what a replay has written, as a run would have left them."""
        tensors = [*inputs[: self._n], *self._constants]
        for at, by in self.written:
            one = tensors[at]
            if not one.is_inference():
                torch._C._autograd._unsafe_set_version_counter((one,), (one._version + by,))  # type: ignore[attr-defined]

    def is_free(self) -> bool:
        """Does nobody hold what a replay would write over?"""
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
    """The items at these positions."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda items: [items[at] for at in positions]


def _by_dtype(buffers: dict[int, Any]) -> list[tuple[list[Any], Any]]:
    """(buffers, what picks their inputs): one call copies those of one dtype."""
    groups: dict[Any, list[int]] = {}
    for at, one in buffers.items():
        groups.setdefault(one.dtype, []).append(at)
    return [([buffers[at] for at in places], _picked(places)) for places in groups.values()]


def _worth(facts: Facts, buffers: Any, results: int) -> None:
    """Raises NotRecorded where copies cost more than launches do."""
    nbytes = results + sum(one.numel() * one.element_size() for one in buffers)
    if 2 * nbytes / COPIED_A_SECOND > facts.steps * STEP_SECONDS:
        raise NotRecorded(
            "FB335", f"{nbytes >> 20} MiB would be copied, for {facts.steps} launches"
        )


def _versions(tensors: Sequence[Any]) -> list[int]:
    """How often each has been written to; those of inference mode do not count."""
    return [0 if one.is_inference() else one._version for one in tensors]


def _away(tensor: Any, kind: str) -> tuple[str, str]:
    device = tensor.device
    if device.type == kind:
        return "FB331", f"an input is on {device}"
    return "FB330", f"an input is on {device}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
