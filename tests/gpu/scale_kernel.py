"""A Triton kernel for tests of launches: `y = tanh(x) * by`."""

from __future__ import annotations

from graftjit.codegen.triton.renderer import TritonKernel

SOURCE = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def scale(x, y, size, by, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + place, place < size)
    tl.store(y + place, libdevice.tanh(value) * by.to(tl.float32), place < size)
"""

KERNEL = TritonKernel(
    name="scale",
    source=SOURCE,
    arguments=(("x", "*fp32"), ("y", "*fp32"), ("size", "i64"), ("by", "fp64"), ("block", "constexpr")),
    constants={"block": 16},
    programs=3,
    aligned=(1,),
)  # fmt: skip
