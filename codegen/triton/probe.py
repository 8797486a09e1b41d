"""For `python -m graftjit doctor`: whether kernels of GPUs can be compiled here. One small kernel
is compiled and not kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...runtime.doctor import Check
from ...runtime.process import hardware
from . import compile_client
from .compiler import Fault

_SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def probe(x, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1.0)
"""
_USUAL = 90  # the capability to compile for without a GPU


def kernels() -> Iterator[Check]:
    """A row with the time to start a compiling process and to compile a kernel; none
    without triton.
    """
    if compile_client.missing() is not None:
        return  # the row of triton reports it
    found = hardware.gpus()
    capability = max((10 * g.capability[0] + g.capability[1] for g in found), default=_USUAL)
    job = {
        "name": "probe", "source": _SOURCE, "arguments": (("x", "*fp32"), ("BLOCK", "constexpr")),
        "constants": {"BLOCK": 128}, "aligned": (), "warps": 4, "stages": 1, "fp_fusion": False,
        "debug": False, "registers": 0, "capability": capability,
    }  # fmt: skip
    state = "fix" if found else "note"
    pool, start = compile_client.Workers(), time.perf_counter()
    try:
        pool.prepare()
        pool.compile([job])
        middle = time.perf_counter()
        answer = pool.compile([job])[0]
        end = time.perf_counter()
    except Fault as fault:
        yield Check("test kernel, GPU", state, _words(fault), fault.todo or "please report it")
        return
    finally:
        pool.close()
    if isinstance(answer, Fault):
        yield Check("test kernel, GPU", state, _words(answer), answer.todo or "please report it")
        return
    yield Check(
        "test kernel, GPU",
        "ok",
        f"compiled for sm_{capability} in {(middle - start) * 1e3:.0f} ms"
        " including the start of a process,"
        f" {(end - middle) * 1e3:.0f} ms without it; {compile_client.most()} at a time",
    )


def _words(fault: Fault) -> str:
    lines = fault.found.strip().splitlines()
    return ": ".join([fault.what, *lines[-1:]])
