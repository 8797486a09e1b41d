"""What Triton makes of the texts for a GPU: the widest loads and stores, no division of an index, no detour through shared
memory. A text may be right and slow; these compile some of each kind for sm_90 and read the PTX."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import renderer as triton
from graftjit.ir.passes.pipeline import optimize

from ..harness import trace
from ..on_cuda import written
from ..symbolic import trace_open

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def b(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


Row = tuple[str, Callable[..., Any], list[torch.Tensor], Any, int]
# name, function, inputs, open dimensions of each (None: none are), places that are not reached by 16 bytes
ROWS: tuple[Row, ...] = (
    ("contiguous", lambda x: x * 2, [r(1 << 16)], None, 0),
    ("bfloat16", lambda x, y: F.gelu(x + y), [b(512, 768), b(768)], None, 0),
    ("a value a row", lambda x, y: x * y, [r(512, 1024), r(512, 1)], None, 1),
    ("a value a channel", lambda x, y: x * y[:, None, None], [r(8, 64, 56, 56), r(64)], None, 2),
    ("slices", lambda x: (x[..., :768] * 2, x[..., 768:] + 1), [b(64, 1536)], None, 0),
    ("transposed", lambda x, y: x.t() + y, [r(512, 1024), r(1024, 512)], None, 0),
    ("short rows", lambda x, w: F.layer_norm(x, (256,), w), [b(512, 256), b(256)], None, 0),
    ("odd", lambda x: x * 2, [b((1 << 17) + 3)], None, -1),
    ("open", lambda x: x * 2, [r(1 << 16)], [[0]], -1),
    ("open batch", lambda x, y: F.gelu(x + y), [b(512, 768), b(768)], [[0], []], 0),
    ("open rows", lambda x, w: F.layer_norm(x, (768,), w), [b(512, 768), b(768)], [[0], []], 0),
    ("open heads", lambda x: x.view(x.shape[0], x.shape[1], 12, 64).transpose(1, 2).contiguous() * 2,
     [b(8, 128, 768)], [[0, 1]], 0),
    ("open channels", lambda x: x.mean((0, 2, 3)), [r(32, 64, 28, 28)], [[0]], 0),
)  # fmt: skip
LAST_TILE = -1  # all but those of the last tile, which has a branch of its own
MOVED = ("transposed",)  # rows become columns in shared memory


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_memory_is_reached_in_the_widest_way(row: Row) -> None:
    name, fn, inputs, dims, narrow = row
    graph = trace(fn, *inputs) if dims is None else trace_open(fn, inputs, dims)[0]
    (kernel,) = schedule.plan(optimize(graph, check=True)).kernels
    aligned = range(len(kernel.nest.buffers))
    ptx = triton.compile_kernel(triton.render(kernel.nest, aligned=aligned), 90).ptx
    loads = [line for line in ptx.splitlines() if re.search(r"(ld|st)\.global", line)]
    wide = [line for line in loads if ".v4." in line or (".v2." in line and "64" in line)]
    left = {line[line.index("[") :].split("]")[0] for line in loads if line not in wide}
    reduced = kernel.nest.has_reduction and not kernel.nest.moves_inner(kernel.nest.stores[0].index)
    if narrow == LAST_TILE:
        assert {"ld", "st"} <= {line.split(".")[0].split()[-1] for line in wide}
    else:
        assert len(left) <= narrow + reduced, loads
    assert not re.search(r"\b(div|rem)\.[us]64", ptx)
    outer = [line for line in ptx.splitlines() if re.search(r"\b(div|rem)\.[us]32", line)]
    assert len(outer) <= (dims is not None)  # a program's number, by how many there are
    assert "bar.sync" not in ptx or name in MOVED or kernel.nest.has_reduction


ZEROS = {
    "relu": (lambda x: x.relu(), "max"),
    "relu6": (lambda x: F.relu6(x), "max min"),
    "clamp": (lambda x: x.clamp(-1.0, 1.0), "max min"),
    "clamp_min": (lambda x: x.clamp_min(0.0), "max"),
    "clamp_max": (lambda x: x.clamp_max(0.0), "min"),
    "clamp by a tensor": (lambda x: x.clamp(min=x[:1]), "max"),
    "maximum": (lambda x: torch.maximum(x, x * 2), "max"),
    "minimum": (lambda x: torch.minimum(x, x * 2), "min"),
}


@pytest.mark.parametrize("name", ZEROS)
def test_extremes_of_zeros_are_those_of_the_device(name: str) -> None:
    """Its instructions order -0.0 before 0.0, whichever comes first, and eager's kernels on a GPU use them."""
    fn, extremes = ZEROS[name]
    made = written(fn, r(1 << 12))
    (kernel,) = made.texts.values()
    ptx = triton.compile_kernel(kernel, 90).ptx
    found = re.findall(r"\b(max|min)\.NaN\.f32", ptx)
    assert sorted({*found}) == extremes.split() and "selp" not in ptx
