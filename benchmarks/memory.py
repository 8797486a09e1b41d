"""Peak memory of one call.

In: a function without arguments, warmed up. Out: `Peak`. It sums the events of torch's CPU allocator (`torch.profiler` with
`profile_memory`) over one call and takes the highest sum: bytes beyond what was alive before, the result included. Sizes are those
asked for.

Seen: every tensor that torch allocates, in eager, in steps of graftjit's programs and in code of torch.compile, and buffers that
operators take from that allocator.
Seen otherwise: graftjit's workspace. What lies between kernels is one block from C's allocator, which the thread keeps for the
next call of any program (`runtime/native/executor/workspace.h`), so it counts in full, as `kept`, and is part of `peak`: a process of its
own for each workload makes it this workload's. One that is too large to be kept counts as the largest of the programs alive;
`unknown` counts those whose sizes depend on the call, where nothing is kept.
Not seen, for any system: memory that oneDNN or MKL take for themselves (packed panels), stack buffers and thread-local buffers of
kernels, code, Python objects. Weights that a system keeps as copies (constants folded, packed weights) are alive before the
call and not part of its peak.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

KEPT = 64 << 20  # bytes of the largest workspace that a thread keeps (workspace.cpp)


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes. `peak` includes `kept`; `left` is what the call left alive in torch's allocator."""

    peak: int
    kept: int = 0
    left: int = 0
    unknown: int = 0


def peak(run: Callable[[], Any]) -> Peak:
    """Of one call of `run`; its result dies within the measurement."""
    # Not inside of the profile, where both would be counted: cycles that others left.
    gc.collect()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        result = run()
        del result
    highest, live = _highest(_events(seen))
    kept, unknown = arenas()
    return Peak(highest + kept, kept, live, unknown)


def _events(seen: torch.profiler.profile) -> list[tuple[int, int]]:
    """(address, bytes: negative where they are given back), in order of time."""
    found: list[tuple[int, int, int]] = []
    waiting = list(seen.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            fields = event.extra_fields
            if fields.device.type == "cpu":
                found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    return [(at, nbytes) for _time, at, nbytes in sorted(found, key=lambda event: event[0])]


def _highest(events: list[tuple[int, int]]) -> tuple[int, int]:
    """(peak, bytes left). Frees of memory from before the call do not count: torch knows its size only if an earlier
    profile happened to see the same address, so the systems of one process would be told apart by their order."""
    highest = live = 0
    sizes: dict[int, int] = {}
    for at, nbytes in events:
        if nbytes > 0:
            sizes[at] = nbytes
            live += nbytes
        else:
            live -= sizes.pop(at, 0)
        highest = max(highest, live)
    return highest, live


def arenas() -> tuple[int, int]:
    """Bytes of the workspace, and how many programs have one of unknown size if none is kept."""
    import sys

    if "graftjit" not in sys.modules:  # nothing of it has run: do not import it for this
        return 0, 0
    from graftjit.runtime import _native

    sizes = [item.spec.arena for item in gc.get_objects() if type(item) is _native.Program]
    large = [size for size in sizes if isinstance(size, int) and size > KEPT]
    kept = _native.kept_workspace()
    unknown = sum(not isinstance(size, int) for size in sizes)
    return max([kept, *large]), 0 if kept else unknown
