"""Rows that several programs hold together (`codegen.triton.teams`), in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.loops.loop_nest import Index
from graftjit.codegen.schedule.gpu_kernels import Gpu
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton import teams, tiling

from ..on_cuda import Machine, written
from .nests import Build, close, hard_rows, layer_norm, logsumexp, softmax
from .nests import softmax_to as rows_of_softmax

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture
def small(monkeypatch):
    """Rows of more than 32 elements are long, and a program of a team holds 16."""
    monkeypatch.setattr(tiling, "THREADS_OF_TEAMS", 0)
    monkeypatch.setattr(tiling, "REGISTERS", 80)
    monkeypatch.setattr(tiling, "PIECES", (16, 16))
    monkeypatch.setattr(tiling, "COLUMN_BLOCK", 8)


def run_team(worker, build, multiprocessors=16, aligned=False):
    """(outputs, the texts of the kernels). `aligned`: all buffers start at multiples of 16 bytes."""
    found = teams.team(build.nest(), multiprocessors)
    assert found is not None
    tensors = list(build.tensors)
    tensors += [torch.full((one.size,), 77, dtype=one.dtype) for one in found.between]
    texts = []
    for nest, places in zip(found.nests, found.places, strict=True):
        loops.check(nest)
        promised = range(len(places) * aligned)
        how = nest.hints.tiling or tiling.Tiling()
        kernel = triton.render(nest, aligned=promised, tiling=how)
        texts.append(kernel.source)
        left = worker.run(kernel, [tensors[place] for place in places])
        for place, tensor in zip(places, left, strict=True):
            tensors[place] = tensor
    return build.outputs(tensors[: len(build.tensors)]), texts


@pytest.fixture
def turns(small, monkeypatch):
    """A multiprocessor holds one program: of 16, there are four teams."""
    monkeypatch.setattr(tiling, "REGISTERS_OF_ALL", 1024)


@pytest.mark.parametrize("columns", [64, 61])
def test_softmax(worker, small, columns):
    x = hard_rows(columns)
    build = softmax(x)
    (found,), (_zeros, text) = run_team(worker, build)
    assert text.count("tl.load(in0") == 1 and text.count("_hear_two(") == 2
    close(found, torch.softmax(x, -1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_and_values_of_rows(worker, small, dtype):
    x = (torch.randn(7, 61) * 3 + 100).to(dtype)
    weight = torch.randn(61).to(dtype)
    build = layer_norm(x, weight)
    (more, mean, scale, found), (_zeros, text) = run_team(worker, build)
    assert "mask=(member == 0)" in text.replace("mask=r_mask & ", "mask=")
    # What is the same in each row is loaded when it is needed.
    assert text.index("tl.load(in1") > text.rindex("_hear_two(")
    wide = x.double()
    exact = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    close(more, x + 1, rtol=1e-5, atol=0)
    close(mean.double(), wide.mean(-1), rtol=1e-5, atol=0)
    close(scale.double(), exact, rtol=1e-5, atol=0)
    wanted = (wide - wide.mean(-1, keepdim=True)) * exact[:, None] * weight.double()
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-4
    close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("columns", [64, 61])
@pytest.mark.parametrize("rows", [8, 9, 15])
def test_teams_take_rows_in_turn(worker, turns, rows, columns):
    x = torch.cat((hard_rows(columns), torch.randn(1, columns), hard_rows(columns)))[:rows]
    (found,), (_zeros, text) = run_team(worker, softmax(x))
    assert f"for row in range(team, {rows}, 4):" in text
    assert text.count("tl.load(in0") == 2
    # The next row is on its way before there is any wait.
    assert text.index("ahead = ") < text.rindex("tl.load(in0") < text.index("_tell(between")
    close(found, torch.softmax(x, -1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_of_rows_that_teams_take_in_turn(worker, turns, dtype):
    x = (torch.randn(3, 3, 61) * 3 + 100).to(dtype).transpose(0, 1)
    weight = torch.randn(61).to(dtype)
    (more, mean, scale, found), (_zeros, text) = run_team(worker, layer_norm(x, weight))
    assert "for row in range(team, 9, 4):" in text
    wide = x.double()
    exact = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    close(more, x + 1, rtol=1e-5, atol=0)
    close(mean.double(), wide.mean(-1), rtol=1e-5, atol=0)
    close(scale.double(), exact, rtol=1e-5, atol=0)
    wanted = (wide - wide.mean(-1, keepdim=True)) * exact[..., None] * weight.double()
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-4
    close(found.double(), wanted, rtol=tolerance, atol=tolerance)


def test_rows_of_two_tensors_in_turn(worker, turns):
    """Both are loaded ahead; a scale of each row and one of each column as well, or when used."""
    x, y = torch.randn(11, 61), torch.randn(11, 61)
    scale, weight = torch.rand(11), torch.randn(61)
    build = Build("both", (11,), (61,))
    a, b, s = build.load(x), build.load(y), build.load(scale[:, None].expand(11, 61))
    w = build.load(weight.expand(11, 61))
    total = build.op("mul", build.op("add", a, b), s)
    gap = build.op("sub", total, build.reduce("max", total))
    build.store(build.op("mul", build.op("div", gap, build.reduce("sum", gap)), w))
    (found,), (_zeros, text) = run_team(worker, build)
    assert [text.count(f"tl.load(in{at}") for at in range(4)] == [2, 2, 2, 1]
    assert text.index("tl.load(in3") > text.rindex("_hear(between")
    total = (x + y) * scale[:, None]
    gap = total - total.amax(1, keepdim=True)
    close(found, gap / gap.sum(1, keepdim=True) * weight, rtol=1e-4, atol=1e-6)


def test_loads_come_right_before_their_first_use(worker, small):
    """Each of them fills registers from there on."""
    x, weight, bias = torch.randn(7, 61), torch.randn(61), torch.randn(61)
    build = Build("late", (7,), (61,))
    a, w, b = build.load(x), build.load(weight), build.load(bias)
    gap = build.op("sub", a, build.reduce("max", a))
    part = build.op("div", gap, build.reduce("sum", gap))
    build.store(build.op("add", build.op("mul", part, w), b))
    (found,), (_zeros, text) = run_team(worker, build)
    between = text[text.index("tl.load(in1") : text.index("tl.load(in2")]
    assert "* v1" in between
    gap = x - x.amax(1, keepdim=True)
    close(found, gap / gap.sum(1, keepdim=True) * weight + bias, rtol=1e-4, atol=1e-6)


def test_few_rows_have_a_team_each(turns, monkeypatch):
    def count(rows):
        return teams.team(softmax(torch.empty(rows, 64)).nest(), 16).nests[1].hints.tiling.teams

    assert [count(7), count(8)] == [0, 4]
    monkeypatch.setattr(teams, "TURNS", False)
    assert count(8) == 0


def test_squares_about_what_is_no_mean(worker, small):
    """The means of the pieces are told, too."""
    x = torch.randn(7, 61) + 5
    build = Build("about", (7,), (61,))
    a = build.load(x)
    gap = build.op("sub", a, build.reduce("max", a))
    build.store(build.op("div", gap, build.reduce("sum", build.op("mul", gap, gap))))
    (found,), (_zeros, text) = run_team(worker, build)
    assert text.count("_tell(between") == 3
    gap = x - x.amax(1, keepdim=True)
    close(found, gap / (gap * gap).sum(1, keepdim=True), rtol=1e-4, atol=1e-6)


def test_reductions_of_one_phase_take_one_exchange(worker, small):
    x = torch.randint(-100, 100, (7, 50), dtype=torch.int32)
    build = Build("both", (7,), (50,))
    a = build.load(x)
    low, high, total = (build.reduce(kind, a) for kind in ("min", "max", "sum"))
    build.store(build.op("add", build.op("mul", a, low), build.op("sub", high, total)))
    (found,), (_zeros, text) = run_team(worker, build)
    tells, hears = text.rindex("_tell("), text.index("_hear_two(between")
    assert tells < hears  # all are told before any is heard
    wide = x.long()
    wanted = wide * wide.amin(1)[:, None] + (wide.amax(1) - wide.sum(1))[:, None]
    close(found, wanted.int(), rtol=0, atol=0)


ROWS = [  # length, dtype, how far rows are apart, how many programs hold one
    (131, torch.float32, 131, 9),
    (143, torch.float32, 143, 10),  # of some rows, the last program has no element
    (130, torch.float32, 133, 9),
    (129, torch.float32, 132, 9),
    (257, torch.bfloat16, 257, 17),
    (250, torch.bfloat16, 251, 17),
]


def apart(length, dtype, stride):
    """7 rows, between which there is nan."""
    found = torch.full((7, stride), float("nan"), dtype=dtype)[:, :length]
    found.copy_(hard_rows(length))
    return found


def untouched(found):
    length, stride = found.shape[1], found.stride(0)
    beside = found.as_strided((6, stride - length), (stride, 1), length)
    return bool(beside.isnan().all())


@pytest.mark.parametrize(("length", "dtype", "stride", "members"), ROWS)
def test_softmax_of_rows_at_any_address(worker, small, length, dtype, stride, members):
    x = apart(length, dtype, stride)
    build = rows_of_softmax(x, apart(length, dtype, stride))
    (found,), (_zeros, text) = run_team(worker, build, 4 * members, aligned=True)
    assert f"pid % {members}\n" in text and "mask=c_near" in text and "mask=c_whole" in text
    close(found, torch.softmax(x, -1))
    assert untouched(found)


@pytest.mark.parametrize(("length", "dtype", "stride", "members"), ROWS)
def test_layer_norm_of_rows_at_any_address(worker, small, length, dtype, stride, members):
    x = apart(length, dtype, stride)
    x.copy_(torch.randn(7, length) * 3 + 100)
    build = Build("norm", (7,), (length,))
    a, weight = build.load(x), torch.randn(length)
    count = build.const(float(length), torch.float32)
    mean = build.op("div", build.reduce("sum", a), count)
    gap = build.op("sub", a, mean)
    variance = build.op("div", build.reduce("sum", build.op("mul", gap, gap)), count)
    build.store(variance, row=True)
    scaled = build.op("mul", build.op("mul", gap, build.op("rsqrt", variance)), build.load(weight))
    build.store_to(build.cast(scaled, dtype), apart(length, dtype, stride))
    (spread, found), (_zeros, text) = run_team(worker, build, 4 * members, aligned=True)
    assert f"pid % {members}\n" in text and "mask=c_near" in text and "mask=c_whole" in text
    wide = x.double()
    exact = wide.var(-1, correction=0)
    close(spread.double(), exact, rtol=1e-5, atol=0)
    wanted = (wide - wide.mean(-1, keepdim=True)) * exact[:, None].rsqrt() * weight.double()
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-4
    close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    assert untouched(found)


def test_squares_about_a_maximum_in_a_slice(worker, small):
    """Means that are told, reductions without pairs, and rows that start inside a group."""
    whole = torch.randint(-100, 100, (7, 150), dtype=torch.int32)
    build = Build("about", (7,), (139,))
    number = build._buffer(whole, False)
    a = build._add("load", (), torch.int32, (number, Index((150, 1), 6)))
    build.store(build.op("sub", build.reduce("min", a), build.reduce("sum", a)), row=True)
    wide = build.cast(a, torch.float32)
    gap = build.op("sub", wide, build.reduce("max", wide))
    build.store(build.op("div", gap, build.reduce("sum", build.op("mul", gap, gap))))
    (rows, found), (_zeros, text) = run_team(worker, build, 40, aligned=True)
    assert "+ 2) % 4" in text and text.count("_tell(between") == 5
    x = whole[:, 6:145].long()
    close(rows, (x.amin(1) - x.sum(1)).int(), rtol=0, atol=0)
    gap = (x - x.amax(1, keepdim=True)).double()
    close(found.double(), gap / (gap * gap).sum(1, keepdim=True), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("aligned", [(0, 1), (0,), (1,), ()])
def test_a_team_has_words_for_all_its_programs(small, aligned):
    """Whichever addresses are known: a shift takes no more programs than the words serve."""
    x, y = torch.empty(7, 144), torch.empty(7, 145)[:, :144]
    found = teams.team(rows_of_softmax(x, y).nest(), 40)
    nest = found.nests[1]
    kernel = triton.render(nest, aligned=aligned, tiling=nest.hints.tiling)
    assert kernel.programs * 2 == found.between[0].size and "c_shift" not in kernel.source


def test_who_has_a_team(small):
    def has(build, multiprocessors=16):
        return teams.team(build.nest(), multiprocessors) is not None

    assert has(softmax(torch.empty(7, 64)))
    assert not has(softmax(torch.empty(7, 16)))  # one program holds the row
    assert not has(softmax(torch.empty(1, 64)))  # too few programs
    assert not has(softmax(torch.empty(7, 64)), 15)  # a team might not fit
    assert not has(logsumexp(torch.empty(7, 64)))  # one pass, which stores nothing along the row
    columns = Build("columns", (7,), (64,))
    a = columns.load(torch.empty(64, 7).t())
    columns.store_to(columns.op("sub", a, columns.reduce("max", a)), torch.empty(64, 7).t())
    assert not has(columns)
    x = torch.empty(7, 64)
    build = Build("place", (7,), (64,))
    a = build.load(x)
    build.store(build.op("sub", build.cast(a, torch.int64), build.reduce("argmax", a)))
    assert not has(build)  # a pair of values


def test_rows_of_an_h100():
    """What a program holds, and how many hold a row."""

    def members(shape, dtype=torch.float32):
        found = teams.team(softmax(torch.empty(shape, dtype=dtype)).nest(), 132)
        if found is None:
            return None
        nest = found.nests[1]
        form = nest.hints.tiling
        kernel = triton.render(nest, aligned=range(3), tiling=form)
        if form.teams:  # all programs are on the device at a time
            held = tiling.REGISTERS_OF_ALL // (kernel.registers * kernel.warps * tiling.WARP)
            assert kernel.programs <= 132 * held
        assert bool(form.teams) == (dtype == torch.bfloat16)
        return kernel.programs / (form.teams or shape[0]), kernel.constants["CBLOCK"], kernel.warps

    assert members((1 << 14, 1 << 14)) is None
    assert members((1 << 13, 1 << 15)) == (4, 8192, 8)
    assert members((1 << 11, 1 << 17)) == (16, 8192, 8)
    assert members((1 << 11, 1 << 18), torch.bfloat16) == (32, 8192, 8)
    assert members((5000, 50257)) == (13, 4096, 4)
    assert members((3000, 20000)) == (5, 4096, 4)
    assert members((5000, 32767)) == (9, 4096, 4)  # 8 would hold a row that starts with a group


def test_teams_compile():
    if not triton.available():
        pytest.skip("triton is not installed")
    x = torch.empty(1 << 12, 1 << 15, dtype=torch.bfloat16)
    for build in (softmax(x), layer_norm(x, torch.empty(1 << 15))):
        found = teams.team(build.nest(), 132)
        for capability in (80, 90):
            kernel = triton.render(
                found.nests[1],
                aligned=range(len(found.places[1])),
                tiling=found.nests[1].hints.tiling,
            )
            made = triton.compile_kernel(kernel, capability)
            assert made.registers <= kernel.registers <= 128
            assert made.stack < 192  # of 4 * 48 bytes: 32 elements, and 32 narrow ones ahead


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loads_and_stores_of_rows_at_any_address_take_16_bytes(dtype):
    """Narrow stores are those at the ends of a row, in a branch of the programs that have them."""
    if not triton.available():
        pytest.skip("triton is not installed")
    build = softmax(torch.empty(5000, 50257, dtype=dtype))
    found = teams.team(build.nest(), 132)
    kernel = triton.render(found.nests[1], aligned=range(3), tiling=found.nests[1].hints.tiling)
    made = triton.compile_kernel(kernel, 90)
    loads = re.findall(r"ld\.global\S*", made.ptx)
    assert loads and set(loads) == {"ld.global.v4.b32"}
    # With turns, those of the first row and of the next one.
    turns = 2 if found.nests[1].hints.tiling.teams else 1
    assert turns * len(re.findall(r"st\.global\.v4\.b32", made.ptx)) == len(loads)
    assert made.stack <= 0 and made.registers <= 128


def test_a_program_with_a_team(worker, small):
    """The words begin at zero in each run, in the program's own memory."""
    x = torch.randn(9, 61)
    made = written(lambda x: torch.softmax(x * 2, -1), x, of=lambda device: Gpu(90, 16))
    assert len(made.launches) == 2 and not made.aten
    for _time in range(2):
        (found,) = Machine(worker).run(made, x)
        close(found, torch.softmax(x * 2, -1), rtol=1e-5, atol=1e-7)
