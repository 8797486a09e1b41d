"""What CUDA graphs need of torch.cuda, in one object that tests replace: streams, a warm run, a recording.

`CUDA` is used by `cuda_graph.Graphed`. A warm run and a recording are done on a stream of the library's own, one a device:
what libraries set up for a stream at its first use is there when the recording begins. The rules are those of
`torch.cuda.graph`: nothing else is on that stream, the device is idle when a recording begins, memory comes from a pool of the
recording's own.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

Run = Callable[[], tuple[Any, ...]]


class Cuda:
    """torch.cuda, as far as graphs need it. `kind`: the type of the devices."""

    kind = "cuda"

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}
        # current_stream() makes an object at each call, at several times the cost
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[int], int] = raw or self._stream

    @staticmethod
    def _stream(index: int) -> int:
        """The number of the device's current stream."""
        return torch.cuda.current_stream(index).cuda_stream

    @staticmethod
    def capturing() -> bool:
        """Is somebody recording what the current stream is given?"""
        return torch.cuda.is_current_stream_capturing()

    def warm(self, index: int, run: Run) -> tuple[Any, ...]:
        """What `run` gives, on the stream that recordings are made on."""
        side, current = self._side(index), torch.cuda.current_stream(index)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            found = run()
        current.wait_stream(side)
        for one in found:  # memory of the one stream that is used, and let go of, on the other
            if isinstance(one, torch.Tensor) and one.is_cuda:
                self.hand_over(one, current)
        return found

    @staticmethod
    def hand_over(tensor: Any, stream: Any) -> None:
        """Memory that another stream than its own uses is not given away before that one is done."""
        tensor.record_stream(stream)

    def record(self, index: int, run: Run) -> tuple[Any, tuple[Any, ...]]:
        """(a graph of what `run` launches, what it gives). Nothing of it is computed before the graph's replay."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(index)
        # What a collection frees may call what a recording forbids.
        with _uncollected(), torch.cuda.stream(self._side(index)):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                found = run()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the first error is the reason
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph, found

    def mark(self, index: int) -> Any:
        """A point of the current stream for `follow`."""
        return torch.cuda.current_stream(index).record_event()

    def follow(self, index: int, mark: Any) -> None:
        """What is launched on the current stream from now on comes after this point; None: after the default stream."""
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
