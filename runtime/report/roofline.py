"""The limits of this machine in bytes and floating-point operations per second, and the share of
them that a step reaches.

`roofs()` returns the limits. They are measured in a fifth of a second when a report first has run
times to compare, and stored beside the kernels for this processor, number of threads and version of
torch. Bandwidth is measured for three sizes, since small data is in a cache; peak rates are those
of torch's matrix product in each type. With GRAFTJIT_ROOFLINE=0 nothing is measured or compared.
`judged` is the roofline model (Williams, Waterman and Patterson, Communications of the ACM 52,
2009): a step takes at least the time of its bytes, and at least that of its operations. `timings`
and `program_folds` use this module. GPUs are not covered.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ..process import hardware
from ..process.session import SESSION
from ..store import notes

# (kind, limit in bytes, rate): "memory" in bytes per second for up to so many moved bytes, or a
# type ("f32") in operations per second.
Row = tuple[str, float, float]

# Bytes of source and target together: in L2, in L3 or not, in memory.
_SIZES = (1 << 19, 1 << 23, 1 << 28)
_TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
_PRODUCT = 512  # rows, columns and depth of the timed product
_BUDGET = 0.02  # seconds per measurement, without its first run
_FORM = "roofline 1"
# A step with a smaller limit than this, in seconds, is limited by the overhead of a call.
_CALL = 1e-6

# Number of measurements after the first. Later ones are at least a minute apart: a process that
# disturbed the earlier ones may have ended.
MOST = 2
NOISE = 1.05  # a share up to this is within the error of the clock
# A step that is still faster than the limit after another measurement counts as being at the limit,
# up to this share. A step beyond it is not judged.
BEYOND = 1.5

_known: dict[tuple[str, int], tuple[Row, ...]] = {}
_MINUTE = 60.0
_again: list[float] = []  # times of the measurements after the first


def roofs() -> tuple[Row, ...]:
    """The limits of the processor; empty if the option is off."""
    if not SESSION.options.roofline:
        return ()
    key = hardware.cpu().identity, torch.get_num_threads()
    found = _known.get(key)
    if found is None:
        found = _known[key] = _recalled(*key)
    return found


def _recalled(processor: str, threads: int) -> tuple[Row, ...]:
    texts = (_FORM, str(threads), torch.__version__)
    kept = notes.recall(SESSION.store, texts, processor, "none")
    if kept is not None:
        return tuple([(str(what), float(most), float(rate)) for what, most, rate in kept])
    measured = _measured()
    notes.keep(SESSION.store, texts, processor, "none", [list(row) for row in measured])
    return measured


def again() -> tuple[Row, ...]:
    """Measure again because a step was faster than the limits, and keep the better rate of each
    row, also for later processes. This is done at most twice, then once per minute."""
    found = roofs()
    if not found or (len(_again) >= MOST and time.monotonic() < _again[-1] + _MINUTE):
        return found
    _again.append(time.monotonic())
    key = hardware.cpu().identity, torch.get_num_threads()
    better = tuple(
        (what, most, max(rate, now))
        for (what, most, rate), (_, _, now) in zip(found, _measured(), strict=True)
    )
    texts = (_FORM, str(key[1]), torch.__version__)
    notes.keep(SESSION.store, texts, key[0], "none", [list(row) for row in better])
    _known[key] = better
    return better


def _measured() -> tuple[Row, ...]:
    with torch.inference_mode(), torch._C.DisableTorchFunction():
        rows = [("memory", float(size), size / _seconds(_copy(size))) for size in _SIZES]
        for name, dtype in _TYPES.items():
            rows.append((name, 0.0, 2 * _PRODUCT**3 / _seconds(_product(dtype))))
    return tuple(rows)


def _copy(size: int) -> Callable[[], object]:
    source = torch.ones(size // 8, dtype=torch.float32, device="cpu")
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def _product(dtype: torch.dtype) -> Callable[[], object]:
    left = torch.ones(_PRODUCT, _PRODUCT, dtype=dtype, device="cpu")
    result = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=result)


def _seconds(run: Callable[[], object]) -> float:
    """The shortest of several runs; the first run does not count."""
    run()
    least, end = float("inf"), time.perf_counter() + _BUDGET
    while True:
        before = time.perf_counter()
        run()
        now = time.perf_counter()
        least = min(least, now - before)
        if now > end:
            return least


def judged(
    rows: tuple[Row, ...], seconds: float, moved: int, flops: int, dtype: str
) -> tuple[float, str]:
    """(share of the roofline, bound).

    The share is over 1 if the step was faster than the measured limit. The bound is "memory",
    "compute", "overhead" or "". `moved`: bytes read and written. `dtype`: the type of the
    computation; a type that was not measured counts as float32.
    """
    speeds = [row for row in rows if row[0] == "memory"]
    rates = {what: rate for what, _, rate in rows if what != "memory"}
    rate = rates.get(dtype) or rates.get("f32", 0.0)
    if seconds <= 0 or not speeds or rate <= 0:
        return 0.0, ""
    speed = next((speed for _, most, speed in speeds if moved <= most), speeds[-1][2])
    moving, computing = moved / speed, flops / rate
    least = max(moving, computing)
    share = least / seconds
    if least < _CALL and share < 0.5:
        return share, "overhead"
    return share, "memory" if moving >= computing else "compute"
