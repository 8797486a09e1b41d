"""The line below which no system comes: the time in which this machine copies as many bytes as a workload has to move.

`curve` measures, `Tensor.copy_` between buffers of several sizes, with torch's threads: (bytes read plus written, seconds). Small
copies stay in caches, so the bandwidth depends on the size, and the line with it.
`moved` counts, of a workload: the storages of its inputs, its module's parameters and buffers, and its results, each once. Left out are
tables that are read in few places (`Workload.sparse`, weights of `nn.Embedding`) and results that share memory with an input.
`copy_seconds` reads the curve at that number, between measured sizes in proportion of logarithms, beyond the last at its bandwidth.
It is a bound of traffic only: what a matrix product computes is not in it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .errors import leaves
from .steps import Step

Curve = Sequence[tuple[int, float]]
SIZES = tuple(1 << n for n in range(13, 28, 2))


def curve(sizes: Sequence[int] = SIZES, seconds: float = 0.08) -> list[tuple[int, float]]:
    """Best of several samples a size: other work of the machine can only slow a copy down."""
    found = []
    for size in sizes:
        source = torch.ones(size // 8, dtype=torch.float32)
        target = torch.empty_like(source)
        found.append(
            (size, _best(lambda target=target, source=source: target.copy_(source), seconds))
        )
    # A larger copy is never quicker than a smaller one.
    for place in range(len(found) - 2, -1, -1):
        found[place] = (found[place][0], min(found[place][1], found[place + 1][1]))
    return found


def _best(run: Callable[[], Any], seconds: float) -> float:
    run()
    best, until = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(4):
            run()
        best = min(best, (time.perf_counter() - start) / 4)
    return best


def copy_seconds(nbytes: int, points: Curve) -> float:
    """Seconds of a copy that reads half of `nbytes` and writes the other half."""
    if nbytes <= points[0][0]:
        return points[0][1]
    for (low, low_time), (high, high_time) in itertools.pairwise(points):
        if nbytes <= high:
            part = math.log(nbytes / low) / math.log(high / low)
            return math.exp(math.log(low_time) * (1 - part) + math.log(high_time) * part)
    last, last_time = points[-1]
    return last_time * nbytes / last


def gigabytes_a_second(points: Curve) -> float:
    """Of the largest copy measured: bytes read plus written."""
    last, seconds = points[-1]
    return last / seconds / 1e9


def _storages(tensors: Any) -> dict[int, int]:
    """Address -> bytes that the tensors cover of each storage."""
    found: dict[int, int] = {}
    for value in tensors:
        storage = value.untyped_storage()
        covered = min(storage.nbytes(), value.numel() * value.element_size())
        found[storage.data_ptr()] = max(covered, found.get(storage.data_ptr(), 0))
    return found


def moved(function: Any, inputs: tuple[Any, ...], result: Any, sparse: Sequence[int] = ()) -> int:
    """Bytes that a call has to read and to write at least."""
    read = [value for place, value in enumerate(inputs) if place not in sparse]
    tables = [inputs[place] for place in sparse]
    updated: list[torch.Tensor] = []
    if isinstance(function, Step):  # forward and backward read the weights
        updated, function = function.updated(), function.module
    if isinstance(function, torch.nn.Module):
        for module in function.modules():
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            (tables if isinstance(module, torch.nn.Embedding) else read).extend(own)
    reads, known = _storages(leaves(read)), _storages(leaves([read, tables]))
    writes = {at: n for at, n in _storages(leaves(result)).items() if at not in known}
    return sum(reads.values()) + sum(writes.values()) + sum(_storages(updated).values())
