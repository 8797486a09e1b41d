"""Places that data names, in Triton text: gathers, masked loads, checks and scatters, in its interpreter against eager.

The programs are what is planned for real functions (`made`); the interpreter takes more than the compiler
does, so each family is compiled, too.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.loops.loop_nest import Buffer, Index, LoopNest, Scatter, Store, Value
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton import scatter as triton_scatter
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.errors import BuildError

from ..harness import trace
from .made import TritonMade
from .nests import Build

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def r(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def whole(low, high, *shape, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


def outer_pad(x):
    return F.pad(x * 2, (2, 1, 0, 3), value=1.5)


def shifted(x):
    return torch.roll(x, (1, -2), (0, 1)) + x


def norm_of_embedding(w, i, g, b):
    return F.layer_norm(F.embedding(i, w), (w.shape[1],), g, b)


def put(x, i, v, accumulate=False):
    return torch.index_put(x, (i,), v * 2, accumulate=accumulate)


def of_dtype(dtype):
    x = (torch.arange(24).reshape(4, 6) % 2).to(dtype)
    return (lambda x, i: (x[i], F.pad(x, (1, 2)), torch.cat([x, x], 1)), [x, whole(-4, 4, 9)])


READS = {
    "rows": (lambda x, i: x[i] * 2, [r(5, 7), whole(-5, 5, 11)]),
    "rows of int32": (lambda x, i: x[i] * 2, [r(5, 7), whole(0, 5, 11, dtype=torch.int32)]),
    "columns": (lambda x, i: x[:, i] + 1, [r(40, 9), whole(-9, 9, 33)]),
    "two indices": (lambda x, i, j: x[i, :, j].exp(), [r(4, 5, 6), whole(0, 4, 3, 1), whole(-6, 6, 7)]),
    "of a transposed tensor": (lambda x, i: x.t()[i] * 2, [r(7, 1030), whole(0, 1030, 40)]),
    "index_select": (lambda x, i: torch.index_select(x, 1, i) * x[:, :1], [r(3, 8), whole(0, 8, 5)]),
    "gather": (lambda x, i: torch.gather(x, 1, i).tanh(), [r(6, 10), whole(0, 10, 6, 4)]),
    "one place": (lambda x, i: x[i] * 2, [r(6), whole(0, 6, 1)]),
    "beyond a tile": (lambda x, i: x[i] * 2, [r(3, 3), whole(0, 3, 700)]),
    "in two branches": (lambda x, i: x[i] * 2, [r(3, 5), whole(0, 3, 13211)]),
    "embedding and norm": (norm_of_embedding, [r(11, 24), whole(0, 11, 3, 5), r(24), r(24)]),
    "embedding and norm of long rows": (norm_of_embedding, [r(4, 1100), whole(0, 4, 3), r(1100), r(1100)]),
    "softmax of rows": (lambda x, i: x[i].softmax(-1), [r(5, 13), whole(0, 5, 6)]),
    "sum of places": (lambda x, i: torch.gather(x, 1, i).sum(-1), [r(6, 10), whole(0, 10, 6, 37)]),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), [r(9, 30), whole(0, 30, 9)]),
    "cross entropy, some ignored": (
        lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=2, reduction="none"),
        [r(9, 4), whole(0, 4, 9), torch.rand(4)],
    ),
    "cross entropy of long rows": (lambda x, t: F.cross_entropy(x, t), [r(3, 1500), whole(0, 1500, 3)]),
    "pad": (outer_pad, [r(2, 5, 7)]),
    "reflected": (lambda x: F.pad(x, (3, 2), mode="reflect") * 2, [r(2, 4, 6)]),
    "pad, norm": (lambda x: F.pad(x * 2, (1, 1)).softmax(-1), [r(5, 12)]),
    "pad, sum of long rows": (lambda x: F.pad(x, (100, 1)).square().sum(-1), [r(2, 1200)]),
    "how many are inside": (lambda x: F.pad(torch.ones_like(x), (2, 2)).sum(-1), [r(4, 6)]),
    "cat": (lambda x, y: torch.cat([x, y * 2, x], 1) + 1, [r(3, 4), r(3, 5)]),
    "cat of computed halves": (
        lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1) * x, [r(2, 3, 8)],
    ),
    "stack": (lambda x, y: torch.stack([x.sin(), y]), [r(5, 3), r(5, 3)]),
    "rolled": (shifted, [r(6, 9)]),
    "diagonals": (lambda x: (x.tril(1), x.triu(-2) * 2, x.tril().sum(-1)), [r(6, 9)]),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), [r(1, 3, 7, 9)]),
    "mean pool": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [r(1, 3, 7, 9)]),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0) * 2, [r(1, 2, 4, 5)]),
    "bilinear": (lambda x: F.interpolate(x, (7, 6), mode="bilinear"), [r(1, 2, 4, 5)]),
    "chosen under a mask": (lambda x, m, y: torch.where(m, x, y[:, :1]), [r(4, 5), r(4, 5) > 0, r(4, 5)]),
    "slices": (lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 5, 2), [r(4, 6)]),
    **{
        f"of {str(dtype).removeprefix('torch.')}": of_dtype(dtype)
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int64, torch.bfloat16, torch.float64)
    },
}  # fmt: skip

NAN = float("nan")
TOP = torch.tensor([0.0, -0.5, -NAN, 3.0, -1.0, NAN])
AT = torch.tensor([0, 1, 2, 3, 0, 4, 1, 5])
WHAT = torch.tensor([-1.0, 0.25, 1.0, -NAN, 2.0, NAN, -7.0, 9.0])
SCATTERS = {
    "index_add": (lambda x, i, y: x.index_add(0, i, y * 2), [r(5, 3), whole(0, 5, 700), r(700, 3)]),
    "index_add of columns": (lambda x, i, y: x.index_add(1, i, y * 2), [r(3, 5), whole(0, 5, 9), r(3, 9)]),
    "added to nothing": (
        lambda i, y: torch.zeros(6, 3, dtype=torch.float64).index_add(0, i, y.sin()),
        [whole(0, 6, 9), r(9, 3, dtype=torch.float64)],
    ),
    "scatter_add": (
        lambda i, y: torch.zeros(4, 10, dtype=torch.int64).scatter_add(1, i, y * y),
        [whole(0, 10, 4, 30), whole(-9, 9, 4, 30)],
    ),
    "of int32": (
        lambda x, i, y: x.scatter_add(0, i, y * y),
        [whole(0, 9, 7, dtype=torch.int32), whole(0, 7, 20), whole(-9, 9, 20, dtype=torch.int32)],
    ),
    "the last one": (put, [r(6, 3), torch.tensor([1, 1, -2, 1]), r(4, 3)]),
    "the last one of bools": (
        lambda x, i, v: torch.index_put(x, (i,), ~v), [r(6) > 0, torch.tensor([1, -1, 1]), r(3) > 0]
    ),
    "put and add": (lambda x, i, v: put(x, i, v, True), [r(6, 3), whole(-6, 6, 20), r(20, 3)]),
    "filled": (lambda x, i: x.index_fill(0, i, 3.0) + 0, [r(6, 3), whole(0, 6, 4)]),
    "copied": (lambda x, i, y: x.index_copy(1, i, y.exp()), [r(3, 6), torch.tensor([4, 0, 1]), r(3, 3)]),
    "scattered": (lambda x, i, y: x.scatter(1, i, y.exp()), [r(3, 6), torch.tensor([[4, 0], [1, 2], [5, 3]]), r(3, 2)]),
    "embedding's gradient": (
        lambda g, i: torch.ops.aten.embedding_dense_backward(g * 2, i, 9, 3, False),
        [r(4, 6, 8), whole(0, 9, 4, 6)],
    ),
    "two at once": (
        lambda i, y: (torch.zeros(5).index_add(0, i, y.sin()), torch.ones(5).index_add(0, i, y.sin() * 2)),
        [whole(0, 5, 12), r(12)],
    ),
    "greatest": (
        lambda x, i, y: x.scatter_reduce(0, i[:, None].expand(8, 2), y * 1, "amax"),
        [TOP[:, None].repeat(1, 2), AT, WHAT[:, None].repeat(1, 2)],
    ),
    "least": (
        lambda x, i, y: x.scatter_reduce(0, i[:, None].expand(8, 2), y * 1, "amin"),
        [TOP[:, None].repeat(1, 2), AT, WHAT[:, None].repeat(1, 2)],
    ),
    "greatest integers": (
        lambda i, y: torch.full((4,), -3).scatter_reduce(0, i, y * 2, "amax"),
        [whole(0, 4, 30), whole(-40, 40, 30)],
    ),
}  # fmt: skip


def compare(worker, fn, tensors):
    with torch.no_grad():
        wanted = fn(*[tensor.clone() for tensor in tensors])
    made = TritonMade(trace(fn, *tensors), worker)
    assert made.rendered and not made.declined, made.declined
    found = made.run(*tensors)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for ours, eager in zip(found, wanted, strict=True):
        problem = differs(ours, eager)
        assert not problem, f"{problem}\nours {ours}\neager {eager}"
    return made


@needs_triton
@pytest.mark.parametrize("name", READS)
def test_reads(worker, name):
    compare(worker, *READS[name])


@needs_triton
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(worker, name):
    made = compare(worker, *SCATTERS[name])
    assert any(kernel.nest.scatters for kernel in made.kernels), "ATen does it"


@needs_triton
@pytest.mark.parametrize("fn", [lambda x, i: x[i] * 2, lambda x, i: x.index_add(0, i, x[:3] * 2)])
@pytest.mark.parametrize("beyond", [5, -6])
def test_out_of_range_is_asserted(worker, fn, beyond):
    x, places = r(5, 3), torch.tensor([0, beyond, 1])
    made = TritonMade(trace(fn, x, torch.tensor([0, 1, 2])), worker)
    assert any(kernel.debug for kernel in made.rendered.values())
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        fn(x, places)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        made.run(x, places)


@needs_triton
def test_elements_that_are_not_there_are_not_asserted(worker):
    """A tile reaches beyond the end; what is loaded there is anything."""
    x, places = r(3000)[2000:], torch.arange(999, -1, -1)[:13]
    compare(worker, lambda x, i: x[i] * 2, [x, places])


# -- nests by hand --------------------------------------------------------------------------------------


def taking(kind, stride, size):
    """out[i] = in[8 + stride * i + index[i]] for an index of this type."""
    source, places = torch.randn(size), torch.randint(0, 5, (33,), dtype=kind)
    build = Build("taking", (), (33,))
    at = build.load(places)
    base = build._buffer(source, False)
    build.store(build._add("load", (at,), torch.float32, (base, Index((stride,), 8))))
    return build, source[8 + stride * torch.arange(33) + places.long()]


@needs_triton
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_offsets_beside_a_stride(worker, kind):
    build, wanted = taking(kind, 3, 200)
    kernel = triton.render(build.nest())
    assert torch.equal(build.outputs(worker.run(kernel, build.tensors))[0], wanted)


def test_offsets_of_32_bits_are_added_to_pointers():
    """The sum of two of them might not be one of 32 bits."""
    build, _wanted = taking(torch.int32, 3, 200)
    assert "tl.load(in1 + 3 * x + 8 + v0, mask=x_mask)" in triton.render(build.nest()).source


def guarded(mask, other):
    """out = in where a mask holds, else other; rows by columns, mask and other of one column or row each."""
    build = Build("guarded", (5,), (9,))
    values = [build.load(mask), build.load(other)]
    source = torch.randn(5, 9)
    base = build._buffer(source, False)
    value = build._add("load_if", tuple(values), torch.float32, (base, Index((9, 1))))
    build.store(value)
    build.store(build.reduce("sum", value), row=True)
    wanted = torch.where(mask, source, other)
    return build, wanted


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
@pytest.mark.parametrize("mask", [(5, 1), (1, 9), (1, 1), (5, 9)])
@pytest.mark.parametrize("other", [(5, 1), (1, 9), (1, 1)])
def test_masks_and_what_stands_elsewhere(worker, limit, mask, other):
    build, wanted = guarded(torch.rand(mask) > 0.5, torch.randn(other))
    kernel = triton.render(build.nest(), tiling=triton.Tiling(columns=limit))
    found, total = build.outputs(worker.run(kernel, build.tensors))
    assert torch.equal(found, wanted)
    torch.testing.assert_close(total, wanted.sum(-1), rtol=1e-5, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("inner", [True, False])
def test_one_place_under_a_mask_of_many(worker, inner):
    build = Build("one", *(((5,), (9,)) if inner else ((), (5, 9))))
    mask, other, source = torch.rand(5, 9) > 0.5, torch.randn(5, 1), torch.randn(())
    values = build.load(mask), build.load(other)
    base = build._buffer(source, False)
    build.store(build._add("load_if", values, torch.float32, (base, Index((0, 0)))))
    kernel = triton.render(build.nest())
    (found,) = build.outputs(worker.run(kernel, build.tensors))
    assert torch.equal(found, torch.where(mask, source, other))


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
@pytest.mark.parametrize("bounds", [(0, 9), (2, 5), (-3, 0), (9, 12), (8, 100), (-5, 1)])
def test_bounds(worker, limit, bounds):
    """What sizes show to hold is not asked: the value is one number then."""
    build = Build("bounds", (5,), (9,))
    value = build._add("inside", (), torch.bool, ((Index((0, 1)), *bounds),))
    build.store(build.reduce("sum", build.cast(value, torch.float32)), row=True)
    build.store(value)
    kernel = triton.render(build.nest(), tiling=triton.Tiling(columns=limit))
    total, found = build.outputs(worker.run(kernel, build.tensors))
    place = torch.arange(9)
    wanted = ((place >= bounds[0]) & (place < bounds[1])).expand(5, 9)
    assert torch.equal(found, wanted) and torch.equal(total, wanted.sum(-1).float())


def test_positions_of_32_bits():
    build = Build("positions", (), (9,))
    number = build._add("index", (), torch.int32, Index((1,)))
    build.store(number)
    assert ".to(tl.int32)" in triton.render(build.nest()).source


def scattering(how, dtype, filled=True):
    buffers = (
        Buffer("base", dtype, (4,), (1,)), Buffer("at", torch.int64, (9,), (1,)),
        Buffer("what", dtype, (9,), (1,)), Buffer("out", dtype, (4,), (1,), True),
    )  # fmt: skip
    values = (
        Value("load", (), torch.int64, (1, Index((1,)))), Value("load", (), dtype, (2, Index((1,)))),
        Value("const", (), dtype, 0),
    )  # fmt: skip
    scatter = Scatter(0, how, 2 if filled else None, None if filled else (0, 0))
    nest = LoopNest("s", (), (9,), buffers, values, (Store(3, Index((0,)), 1, scatter),))
    loops.check(nest)
    return nest


def test_parts_of_a_scatter():
    """What is there before is written by a kernel of its own; each part names the buffers that it takes."""
    fill, after = triton_scatter.split(scattering("sum", torch.float32))
    assert fill.buffers == (3,) and after.buffers == (1, 2, 3)
    copy, after = triton_scatter.split(scattering("max", torch.float32, filled=False))
    assert copy.buffers == (0, 3) and after.buffers == (1, 2, 3)
    for part in (fill, copy, after):
        loops.check(part.nest)
    assert not any(value.op == "const" and value.attr == 0 for value in after.nest.values)
    (alone,) = triton_scatter.split(after.nest)
    assert alone.nest == after.nest


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("prod", torch.float32), ("sum", torch.int8), ("sum", torch.bfloat16), ("max", torch.uint8)],
)
def test_merges_without_an_atomic_operation_are_declined(how, dtype):
    *_before, after = triton_scatter.split(scattering(how, dtype))
    with pytest.raises(BuildError, match="atomic"):
        triton.render(after.nest)


def test_a_scatter_that_was_not_split_is_declined():
    with pytest.raises(BuildError, match="split"):
        triton.render(scattering("sum", torch.float32))


# -- the text, and the compiler -------------------------------------------------------------------------

FAMILIES = {
    "gather_norm": READS["embedding and norm"],
    "cat_parts": READS["cat of computed halves"],
    "scatter_add": SCATTERS["index_add"],
    "pooled": READS["max pool"],
}


def rendered(fn, tensors):
    plan = schedule.plan(optimize(trace(fn, *tensors)))
    parts = [part for kernel in plan.kernels for part in triton_scatter.split(kernel.nest)]
    return [triton.render(part.nest) for part in parts]


@pytest.mark.parametrize("name", FAMILIES)
def test_golden(name, golden):
    text = "\n\n".join(kernel.source for kernel in rendered(*FAMILIES[name]))
    golden(f"{name}.triton.py", text)


COMPILED = (
    "rows",
    "cross entropy of long rows",
    "of bool",
    "index_add",
    "least",
    "greatest integers",
    "two at once",
)


@needs_triton
@pytest.mark.parametrize("name", COMPILED)
def test_compiles(name):
    kernels = rendered(*{**READS, **SCATTERS}[name])
    for number, kernel in enumerate(kernels):
        assert triton.compile_kernel(kernel, (80, 90)[number % 2]).cubin
