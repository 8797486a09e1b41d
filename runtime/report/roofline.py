"""What this machine can do: bytes and floating-point operations a second, measured once; and how near a step comes.

`roofs()` gives rows, measured in a fifth of a second when a report first has run times to judge, and kept beside the
kernels for this processor, this number of threads and this torch. The processor's bandwidth is taken for three sizes of
what is moved, for what lies in a cache is limited by that; peak rates are those of torch's own product in each type. GRAFTJIT_ROOFLINE=0: nothing is
measured, nothing judged. `judged` is the roofline (Williams, Waterman and Patterson, Communications of the ACM 52, 2009):
a step takes at least the time that its bytes take, and at least that of its operations. Asked by `clocks` and
`fold_programs`. Nothing is said of GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ..process import hardware as device
from ..process.session import SESSION
from ..store import notes as kept_notes

# (what, up to how many bytes that are moved, rate): "memory" in bytes a second, a type ("f32") in operations a second
Row = tuple[str, float, float]

_SIZES = (
    1 << 19,
    1 << 23,
    1 << 28,
)  # of source and target together: in L2, in L3 or not, in memory
_TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
_PRODUCT = 512  # rows, columns and depth of the product that is timed
_BUDGET = 0.02  # seconds for one measurement, but for its first run
_FORM = "roofline 1"
# A step that the machine could do in less than this, and does not, is not limited by the machine: calling it takes as long.
_CALL = 1e-6

MOST = (
    2  # measurements beyond the first; from then on one a minute, for who was busy then may be done
)
NOISE = 1.05  # a share up to here is one of 1, by the clock's error
# A step that is still somewhat quicker after the machine was measured again shows what it can do, and is at its limit; one
# that is quicker than this is not judged.
BEYOND = 1.5

_known: dict[tuple[str, int], tuple[Row, ...]] = {}
_MINUTE = 60.0
_again: list[float] = []  # when it was measured beyond the first time


def roofs() -> tuple[Row, ...]:
    """What is known of the processor; empty where that is switched off."""
    if not SESSION.options.roofline:
        return ()
    key = device.cpu().identity, torch.get_num_threads()
    found = _known.get(key)
    if found is None:
        found = _known[key] = _recalled(*key)
    return found


def _recalled(processor: str, threads: int) -> tuple[Row, ...]:
    texts = (_FORM, str(threads), torch.__version__)
    kept = kept_notes.recall(SESSION.store, texts, processor, "none")
    if kept is not None:
        return tuple([(str(what), float(most), float(rate)) for what, most, rate in kept])
    measured = _measured()
    kept_notes.keep(SESSION.store, texts, processor, "none", [list(row) for row in measured])
    return measured


def again() -> tuple[Row, ...]:
    """Measured once more, for a step was quicker than what is known: of each row the better one, kept for later processes.
    At most twice, and then once a minute."""
    found = roofs()
    if not found or (len(_again) >= MOST and time.monotonic() < _again[-1] + _MINUTE):
        return found
    _again.append(time.monotonic())
    key = device.cpu().identity, torch.get_num_threads()
    better = tuple(
        (what, most, max(rate, now))
        for (what, most, rate), (_, _, now) in zip(found, _measured(), strict=True)
    )
    texts = (_FORM, str(key[1]), torch.__version__)
    kept_notes.keep(SESSION.store, texts, key[0], "none", [list(row) for row in better])
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
    """The least of several runs, of which the first does not count."""
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
    """(share of the roofline, over 1 where the step was quicker than what was measured; what limits the step: "memory", "compute", "overhead" or ""). `moved`: bytes read and
    written; `dtype`: what it computes with, a type that was not measured as float32."""
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
