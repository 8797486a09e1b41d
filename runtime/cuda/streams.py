"""The functions of torch.cuda that CUDA graphs need, in one object that tests replace.

`cuda.graphs.Graphed` uses `CUDA`. A warm-up run and a recording use a stream of graftjit's own, one
per device, so that everything libraries set up at the first use of a stream exists before the
recording. The rules are those of `torch.cuda.graph`: that stream has no other work, the device is
idle when a recording begins, and memory comes from a private pool of the recording. Recordings do
not share a pool: it dies with its last recording, and a later recording in it fails in torch 2.11.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

Run = Callable[[], tuple[Any, ...]]


class Cuda:
    """The part of torch.cuda that graphs need. `kind`: the type of the devices."""

    kind = "cuda"

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}
        # current_stream() makes an object at each call and costs several times as much.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[int], int] = raw or self._stream

    @staticmethod
    def _stream(index: int) -> int:
        """The handle of the device's current stream."""
        return torch.cuda.current_stream(index).cuda_stream

    @staticmethod
    def capturing() -> bool:
        """Whether the current stream is being recorded."""
        return torch.cuda.is_current_stream_capturing()

    def warm(self, index: int, run: Run) -> tuple[Any, ...]:
        """The results of `run` on the recording stream."""
        side, current = self._side(index), torch.cuda.current_stream(index)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            found = run()
        current.wait_stream(side)
        # This memory is allocated on one stream, and used and freed on the other.
        for one in found:
            if isinstance(one, torch.Tensor) and one.is_cuda:
                self.hand_over(one, current)
        return found

    @staticmethod
    def hand_over(tensor: Any, stream: Any) -> None:
        """Keep the allocator from reusing the memory until this other stream has finished with
        it."""
        tensor.record_stream(stream)

    def record(self, index: int, run: Run, draws: bool) -> tuple[Any, tuple[Any, ...]]:
        """(graph of the launches of `run`, its results). Nothing is computed before a replay.
        `draws`: `run` draws random numbers."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(index)
        torch.cuda.empty_cache()  # what the warm-up run used, which no other stream can use
        # Objects freed by a collection may make calls that a recording forbids.
        with _uncollected(), torch.cuda.stream(self._side(index)):
            try:
                with contextlib.nullcontext() if draws else self.spare_generator(index):
                    graph.capture_begin(capture_error_mode="thread_local")
                try:
                    found = run()
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # report the first error
                        graph.capture_end()
                    raise
                graph.capture_end()
            except BaseException:
                if draws:
                    self._end_recording_of_generator(index)
                raise
        return graph, found

    @staticmethod
    @contextlib.contextmanager
    def spare_generator(index: int) -> Iterator[None]:
        """Let a recording that begins within the block register a copy of the random state.

        A recorded state refuses draws by other threads until the recording ends, and for good if
        it fails."""
        generator = torch.cuda.default_generators[index]
        own, spare = generator.graphsafe_get_state(), generator.clone_state()
        before = spare.get_offset()
        generator.graphsafe_set_state(spare)
        try:
            yield
        finally:
            generator.graphsafe_set_state(own)
            # Another thread may have drawn from the copy. A recorded stream cannot ask for it.
            with torch.cuda.stream(torch.cuda.default_stream(index)):
                drawn = spare.get_offset() - before
                if drawn:
                    own.set_offset(own.get_offset() + drawn)

    @staticmethod
    def _end_recording_of_generator(index: int) -> None:
        """After a recording that failed: torch ends the recording of the random state only when a
        recording ends well, so make one of a single launch."""
        graph = torch.cuda.CUDAGraph()
        with contextlib.suppress(RuntimeError):
            graph.capture_begin(capture_error_mode="thread_local")
            torch.zeros(1, device=torch.device("cuda", index))
            graph.capture_end()

    def mark(self, index: int) -> Any:
        """An event on the current stream, for `follow`."""
        return torch.cuda.current_stream(index).record_event()

    def follow(self, index: int, mark: Any) -> None:
        """Make later work on the current stream wait for this event; None: for the default
        stream."""
        current = torch.cuda.current_stream(index)
        if mark is None:
            current.wait_stream(torch.cuda.default_stream(index))
        else:
            current.wait_event(mark)

    def _side(self, index: int) -> Any:
        if index not in self._own:
            self._own[index] = torch.cuda.Stream(index)
        return self._own[index]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


CUDA = Cuda()
