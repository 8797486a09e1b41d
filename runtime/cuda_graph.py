"""A program for a GPU as a CUDA graph: launched as a whole, in place of a launch a step.

`Graphed(program, facts, tell)` is called like the program. The first call of a layout runs it as it is, the second on the stream
that recordings are made on; at the third its launches are recorded, and from there on replayed. A recording knows
addresses. Inputs and constants whose address has stayed the same are *fixed*: read (and written) where they are, and their
addresses are compared at each call; a change makes a new recording in which they are copied, a few times. All other inputs are
copied into buffers. Results that somebody sees are copies; those that only the library sees (`Facts.inner`: what a forward
saves for its backward) lie in the recording's own memory, and while one of them is held the program runs as it is.

One replay on a device is enqueued at a time, and each waits for the one before it where that was on another stream: buffers and
libraries' workspaces are shared. A call that finds another one at it runs the program. Whatever goes wrong while recording is
told by `tell(code, reason)`, and the program runs as it is from there on. Made by `codegen.graphing`, which says which programs may.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.dataclass import dataclass, field
from . import cuda_streams
from .numbers import values_of

Program = Callable[..., tuple[Any, ...]]

CALLS_BEFORE = 2  # runs of a layout before it is recorded; the last of them is the warm one
MOVES = 4  # recordings of one layout that are thrown away because an address changed
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
    steps: int = 1 << 30


class NotRecorded(Exception):
    """Why a program cannot be recorded: (code, reason)."""


class _Device:
    """Of one device: who enqueues replays, and after what the next one comes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stream, self.mark = 0, None


_DEVICES: dict[int, _Device] = {}


@dataclass(slots=True)
class _Layout:
    """What is known of calls with the same sizes. `addresses`: those of the last call; `fixed`: whose was the same each time."""

    calls: int = 0
    addresses: tuple[int, ...] = ()
    fixed: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)  # position -> versions that a run adds
    moves: int = 0
    recorded: Recorded | None = None


class Graphed:
    """See the module's docstring."""

    def __init__(self, program: Program, facts: Facts, tell: Callable[[str, str], None]) -> None:
        self.program, self.facts, self._tell = program, facts, tell
        self.off = False
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
        """How many layouts are replayed."""
        layouts = (self._one, *self._layouts.values())
        return sum(layout.recorded is not None for layout in layouts)

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
            recorded = layout.recorded
            if recorded is None:
                return self._prepared(layout, inputs)
            if cuda_streams.CUDA.capturing():  # the program's own recording takes our launches up
                return None
            if recorded.addresses(inputs) != recorded.known:
                return self._moved(layout, inputs)
            if not recorded.is_free():
                self._say("FB337", "what the last forward saved is still held")
                return None
            found = recorded.run(inputs, self._device)
            if recorded.written:
                recorded.count(inputs)  # the run that was recorded has counted by itself
            return found
        finally:
            lock.release()

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
            self._stop(*_away(strange, cuda.kind))
            return None
        addresses = tuple([one.data_ptr() for one in tensors])
        if not layout.calls:
            layout.fixed = set(range(len(tensors)))
            layout.written = dict.fromkeys(self.facts.written, 0)
        else:
            layout.fixed = {at for at in layout.fixed if addresses[at] == layout.addresses[at]}
        layout.addresses = addresses
        layout.calls += 1
        if layout.calls > CALLS_BEFORE:
            return self._recorded(layout, inputs)
        before = _versions(tensors)
        run = lambda: self.program(*inputs)  # noqa: E731
        found = cuda.warm(self.facts.device, run) if layout.calls == CALLS_BEFORE else run()
        for at, (now, then) in enumerate(zip(_versions(tensors), before, strict=True)):
            if now != then:
                layout.written[at] = now - then
        return found

    def _is_here(self, tensor: Any) -> bool:
        device = tensor.device
        return device.type == cuda_streams.CUDA.kind and (device.index or 0) == self.facts.device

    def _recorded(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """A recording, and its first replay. None: nothing has been computed."""
        try:
            layout.recorded = recorded = Recorded(self.program, self.facts, layout, inputs)
        except NotRecorded as error:
            self._stop(*error.args)
            return None
        except torch.OutOfMemoryError as error:
            self._stop("FB334", f"out of memory: {_first_line(error)}")
            return None
        except RuntimeError as error:
            self._stop("FB334", _first_line(error))
            return None
        return recorded.run(inputs, self._device)

    def _moved(self, layout: _Layout, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """Something fixed is elsewhere: it is copied from now on."""
        recorded = layout.recorded
        assert recorded is not None
        now = dict(zip(recorded.fixed, recorded.addresses(inputs), strict=True))
        gone = {
            at for at, old in zip(recorded.fixed, recorded.known, strict=True) if now[at] != old
        }
        layout.recorded = None
        layout.moves += 1
        if layout.moves > MOVES:
            self._stop("FB336", f"other addresses at {MOVES} calls")
            return None
        constants = range(self.facts.n_inputs, self.facts.n_inputs + len(self.facts.constants))
        layout.fixed -= (
            gone - layout.written.keys() - set(constants)
        )  # those have to be where they are
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
            _no_overlap(tensors[at])
        buffers: dict[int, Any] = {}

        def run() -> tuple[Any, ...]:
            with torch.inference_mode(False), torch.no_grad():
                buffers.update(
                    (at, _like(tensors[at])) for at in copied
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
        cuda, index = cuda_streams.CUDA, self._index
        stream = cuda.stream(index)
        if stream != device.stream:
            cuda.follow(index, device.mark)
        for buffers, picked in self._copies:
            torch._foreach_copy_(buffers, picked(inputs), True)
        self._graph.replay()
        found = self._results.of(inputs)
        device.stream = stream
        device.mark = cuda.mark(index) if stream else None  # the default stream is there for ever
        return found


class Results:
    """From the memory that a replay writes to what a call gives."""

    def __init__(self, made: Sequence[Any], facts: Facts, tensors: Sequence[Any]) -> None:
        """`made`: what the program gave while it was recorded; `tensors`: what it read. Raises NotRecorded."""
        self._given, self._held, self._n = facts.given, facts.held, len(made)
        outside = {_storage(one) for one in tensors} - {0}
        groups: dict[int, dict[int, Any]] = {}
        for at, one in enumerate(made):
            if at in facts.given or at in facts.held:
                continue
            if not facts.consumes and _storage(one) in outside:
                raise NotRecorded("FB333", "a result is a view of an input or of a constant")
            groups.setdefault(_storage(one) or -1 - at, {})[at] = one
        self._bases: list[tuple[Any, bool]] = []  # memory that is copied; without holes?
        self._views: list[tuple[int, int, tuple[Any, ...] | None]] = []  # result, base, its layout
        self._lent: dict[int, Any] = {}
        for members in groups.values():
            if facts.inner.issuperset(members):
                self._lent.update(members)
            else:
                self._group(members, facts)
        self._simple = [at for at, _base, _layout in self._views] == list(range(self._n)) and all(
            at == base and layout is None for at, base, layout in self._views
        )
        self._stores = list(
            {_storage(one): one.untyped_storage() for one in self._lent.values()}.values()
        )
        self._keys = [store._cdata for store in self._stores]
        self._free = [_holders(key) for key in self._keys]
        self.bytes = sum(one.numel() * one.element_size() for one, _ in self._bases)

    def _group(self, members: dict[int, Any], facts: Facts) -> None:
        """Results that share memory: one copy of it, and views of that as there were."""
        roots: list[Any] = []
        for at, one in members.items():
            root = one if one._base is None else one._base
            place = next((n for n, other in enumerate(roots) if other is root), len(roots))
            if place == len(roots):
                if roots and not facts.consumes:
                    raise NotRecorded(
                        "FB333", "results share memory and are no views of one tensor"
                    )
                _no_overlap(root)
                roots.append(root)
            self._views.append(
                (at, len(self._bases) + place, None if one is root else _within(one, root))
            )
        self._bases += [(root, _is_dense(root)) for root in roots]

    def is_free(self) -> bool:
        """Are the tensors of the last call that were lent gone?"""
        return [_holders(key) for key in self._keys] == self._free

    def of(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What a call gives, after the replay has been launched."""
        copies = [one.clone() if dense else _like(one).copy_(one) for one, dense in self._bases]
        if self._simple:
            return tuple(copies)
        found: list[Any] = [None] * self._n
        for at, base, layout in self._views:
            found[at] = copies[base] if layout is None else copies[base].as_strided(*layout)
        for at, where in self._given.items():
            found[at] = inputs[where]
        for at, constant in self._held.items():
            found[at] = constant
        for at, one in self._lent.items():
            found[at] = one.detach()  # a tensor of the call's own: who holds it holds the memory
        return tuple(found)


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


def _like(tensor: Any) -> Any:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


_holders = torch._C._storage_Use_Count  # type: ignore[attr-defined]


def _within(view: Any, root: Any) -> tuple[Any, ...]:
    """(sizes, strides, offset) of a view in memory that begins with its root. Raises NotRecorded where it is not in it."""
    offset = view.storage_offset() - root.storage_offset()
    last = offset + _span(view) - 1
    if offset < 0 or (view.numel() and last >= _span(root)):
        raise NotRecorded("FB333", "a result reaches out of what it is a view of")
    return tuple(view.shape), view.stride(), offset


def _span(tensor: Any) -> int:
    """From the first element to the last, in elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 0 if not tensor.numel() else 1 + sum((size - 1) * stride for size, stride in pairs)


def _is_dense(tensor: Any) -> bool:
    """Without holes, so that a clone has the same strides."""
    return _span(tensor) == tensor.numel()


def _no_overlap(tensor: Any) -> None:
    """Raises NotRecorded where two elements may be one place of memory, which cannot be copied to."""
    reach = 0
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in dims:
        if size < 2:
            continue
        if stride <= reach:
            raise NotRecorded("FB333", "an input or a result has several elements in one place")
        reach += (size - 1) * stride


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
