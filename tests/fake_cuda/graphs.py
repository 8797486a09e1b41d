"""CUDA graphs of the fake device: what is called while one is recorded runs again, over the same memory, at its replay.

`recording()` puts `CUDAGraph` and what goes with it into `torch.cuda` for as long as its block is open, inside of a `fake_cuda()`
block. As on a device nothing is computed while a graph is recorded: memory of results holds nan until the first replay, what
operators write in place is not written, generators stay where they are. Memory lives as long as the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from . import device, operators

REFUSED = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"}


class CUDAGraph:
    """`torch.cuda.CUDAGraph`. `refuses`: a recording ends with this error."""

    refuses: BaseException | None = None
    made = 0

    def __init__(self) -> None:
        self.steps: list[Callable[[], Any]] = []
        self.kept: list[Any] = []
        self.replays = 0
        CUDAGraph.made += 1

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert not operators.RECORDER, "a recording is under way"
        assert torch.cuda.current_stream() != torch.cuda.default_stream()
        self._states = [one.get_state() for one in operators.GENERATORS]
        operators.RECORDER.append(self._step)

    def capture_end(self) -> None:
        operators.RECORDER.clear()
        for generator, state in zip(operators.GENERATORS, self._states, strict=True):
            generator.set_state(state)
        if CUDAGraph.refuses is not None:
            raise CUDAGraph.refuses

    def replay(self) -> None:
        assert not operators.RECORDER
        self.replays += 1
        for step in self.steps:
            step()

    def launch(self, run: Callable[[], Any]) -> None:
        """A kernel of the driver's."""
        self.steps.append(run)

    def _step(self, compute: Callable[..., Any], op: Any, args: Any, kwargs: Any) -> Any:
        name = op._schema.name
        if name in REFUSED or _leaves(op, args, kwargs):
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        out = kwargs.get("out")
        if isinstance(out, torch.Tensor) and not out.numel():  # it gets its size now
            compute(op, *args, **kwargs)
        given = _bare(args), _bare(kwargs)
        self.kept.append((args, kwargs))
        if op._schema.is_mutable:
            self.steps.append(lambda: compute(op, *given[0], **given[1]))
            return _written(op, args, kwargs)
        result = compute(op, *args, **kwargs)
        fresh = [(n, one) for n, one in enumerate(_tensors(result)) if not _is_part(one, given)]
        if fresh and not name.startswith("aten::empty"):
            targets = [(n, one.detach()) for n, one in fresh]
            self.steps.append(lambda: _refill(compute(op, *given[0], **given[1]), targets))
        for _n, one in fresh:
            self.kept.append(one.detach())
            _spoil(one)
        return result


def _leaves(op: Any, args: Any, kwargs: Any) -> bool:
    """Does it bring data from the host or to it?"""
    if "copy_" not in op._schema.name:
        return False
    return any(not one.is_cuda for one in (*_tensors(args), *_tensors(kwargs)))


def _refill(again: Any, targets: list[tuple[int, torch.Tensor]]) -> None:
    found = list(_tensors(again))
    for n, target in targets:
        operators.to_host(target).copy_(operators.to_host(found[n]))


def _spoil(tensor: torch.Tensor) -> None:
    host = operators.to_host(tensor)
    host.fill_(float("nan") if host.is_floating_point() else 1)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _bare(value: Any) -> Any:
    """The operands over the same memory, with versions of their own."""
    if isinstance(value, torch.Tensor):
        return value.data
    if isinstance(value, dict):
        return {name: _bare(item) for name, item in value.items()}
    return type(value)(_bare(item) for item in value) if isinstance(value, (list, tuple)) else value


def _is_part(tensor: torch.Tensor, given: Any) -> bool:
    place = tensor.untyped_storage().data_ptr()
    return any(one.untyped_storage().data_ptr() == place for one in _tensors(list(given)))


def _written(op: Any, args: Any, kwargs: Any) -> Any:
    """What an operator that writes returns: the operands that it has written."""
    names = [argument.name for argument in op._schema.arguments]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    marked = {
        name: argument.alias_info.before_set
        for name, argument in zip(names, op._schema.arguments, strict=True)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    results = []
    for result in op._schema.returns:
        wanted = result.alias_info.before_set if result.alias_info is not None else set()
        results.append(next((bound[name] for name, sets in marked.items() if sets & wanted), None))
    return results[0] if len(results) == 1 else tuple(results) if results else None


class _Event:
    """An event: everything on the fake device is done when the call returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


@contextlib.contextmanager
def recording() -> Iterator[type[CUDAGraph]]:
    """`torch.cuda.CUDAGraph` of the fake device."""
    stand_ins = {
        "CUDAGraph": CUDAGraph,
        "is_current_stream_capturing": lambda: bool(operators.RECORDER),
    }
    events = {
        "record_event": lambda self, event=None: _Event(),
        "wait_event": lambda self, event: None,
    }
    with contextlib.ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        for name, stand_in in events.items():
            stack.enter_context(mock.patch.object(device.Stream, name, stand_in, create=True))
        CUDAGraph.made, CUDAGraph.refuses = 0, None
        stack.callback(operators.RECORDER.clear)
        yield CUDAGraph
