"""Schedules by measurement: what is asked, measured, chosen, remembered; and that it changes nothing but the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import graftjit
from graftjit import JitConfig, jit
from graftjit.codegen.build import background
from graftjit.codegen.build import cxx as build
from graftjit.codegen.cpp import renderer as cpp
from graftjit.codegen.loops.loop_nest import Hints
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.schedule.program_writer import spec as spec_of
from graftjit.codegen.tuning import cpu as tune
from graftjit.codegen.tuning import timing as clock
from graftjit.codegen.tuning.timing import Timing
from graftjit.runtime.errors import BuildError
from graftjit.runtime.executor.lower import load
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.program.program import Launch

from ..harness import make

O2 = JitConfig(jit_level="O2")


@pytest.fixture
def best(monkeypatch):
    """`best("chunk 256")`: the clock finds this way the fastest, wherever it is tried. Gives the races so far."""
    races = []

    def decide(name):
        def timed(question, addresses, seconds):
            races.append(question)
            names = [tune.named_way(way) for way in question.ways]
            found = [5e-5 if each == name else 1e-4 for each in names]
            return [Timing(time, time * 0.99, time * 1.01) for time in found]

        monkeypatch.setattr(tune, "_timed", timed)
        return races

    return decide


def transposed(x, y):
    return x.t() * 2 + y


def columns(x):
    return x.sum(0), x.amax(0)


def inputs(function):
    x = torch.randn(256, 320)
    return (x, torch.randn(320, 256)) if function is transposed else (x,)


def schedules(made):
    return made.report().schedules


# -- the clock ------------------------------------------------------------------------------------------------


class FakeTime:
    """A clock that moves when something is run."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def run(self, seconds):
        def step():
            self.now += seconds

        return step


def test_a_race_is_run_in_turn_and_gives_medians():
    time = FakeTime()
    slow, quick = clock.race([time.run(3e-3), time.run(1e-3)], 1.0, time)
    assert (slow.median, quick.median) == (pytest.approx(3e-3), pytest.approx(1e-3))
    assert time.now == pytest.approx(8e-3 * (clock.MOST + 1))


def test_short_runs_are_repeated_until_the_clock_can_see_them():
    time, calls = FakeTime(), []
    step = time.run(1e-6)
    (found,) = clock.race([lambda: (calls.append(1), step())], 1.0, time)
    assert found.median == pytest.approx(1e-6) and len(calls) >= 90 * clock.MOST


def test_a_race_on_a_busy_machine_gives_nothing():
    time, turn = FakeTime(), iter(range(10**6))
    calm, busy = time.run(1e-3), time.run(3e-3)
    assert clock.race([lambda: (busy if next(turn) // 20 % 2 else calm)(), calm], 9.0, time) == []


def test_a_race_that_would_take_too_long_gives_nothing():
    time = FakeTime()
    assert clock.race([time.run(0.2), time.run(0.2)], 1.0, time) == []
    assert time.now < 2


@pytest.mark.parametrize(
    "medians, spread, chosen",
    [((1.0, 0.9, 0.8), 0.01, 2), ((1.0, 0.98), 0.001, 0), ((1.0, 0.9), 0.2, 0), ((1.0, 1.2), 0.01, 0)],
    ids=["the fastest", "gains too little", "within the noise", "slower"],
)  # fmt: skip
def test_another_way_is_taken_only_where_it_is_clearly_faster(medians, spread, chosen):
    times = [Timing(m, m * (1 - spread), m * (1 + spread)) for m in medians]
    assert tune.choose(times) == chosen


# -- from the program to the choice ---------------------------------------------------------------------------


def rows(x):
    return torch.softmax(x, -1), x.argmax(-1)


@pytest.mark.parametrize("function", [transposed, columns, rows])
def test_the_chosen_way_is_in_the_program_and_in_the_report(store, best, function):
    nest = make(function, *inputs(function)).kernels[0].nest
    way = tune.ways_of(tune._written(nest))[-1]
    best(tune.named_way(way))
    made = jit(function, config=O2)
    given = inputs(function)
    for ours, theirs in zip(made(*given), function(*given), strict=True):
        torch.testing.assert_close(ours, theirs)
    record = schedules(made)[0]
    assert record.chosen == tune.named_way(way) and not record.remembered
    assert record.now == 5e-5 and record.before == 1e-4
    assert record.chosen in made.report().text() and record.chosen in made.report().html()


def test_below_o2_nothing_is_measured_and_the_module_is_not_imported(store):
    code = (
        "import sys, torch, graftjit\n"
        "f = graftjit.jit(lambda x, y: x.t() * 2 + y)\n"
        "f(torch.randn(256, 320), torch.randn(320, 256))\n"
        "assert not [n for n in sys.modules if n.endswith(('codegen.tune', 'codegen.clock'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("off", ["option", "environment"])
def test_it_can_be_switched_off(store, best, off):
    races = best("chunk 256")
    with SESSION.override(tune=off != "environment"):
        made = jit(transposed, config=O2.replace(tune=off != "option"))
        made(*inputs(transposed))
    assert not races and not schedules(made)


def test_what_was_measured_is_remembered(store, best):
    races = best("chunk 256")
    for _ in range(2):
        graftjit.dispatch.shared_entries.SHARED.forget()
        made = jit(transposed, config=O2)
        made(*inputs(transposed))
    assert len(races) == 1
    (record,) = schedules(made)
    assert record.remembered and record.chosen == "chunk 256"


def test_another_process_measures_nothing(tmp_path):
    code = (
        "import torch, graftjit\n"
        "from graftjit.codegen.tuning import cpu as tune, timing as clock\n"
        "clock.NOISE, tune.BUDGET = 1e9, 60\n"  # however busy the machine is
        "f = graftjit.jit(lambda x, y: x.t() * 2 + y, config=graftjit.JitConfig(jit_level='O2'))\n"
        "f(torch.randn(512, 640), torch.randn(640, 512))\n"
        "print([s.remembered for s in f.report().schedules])\n"
    )
    environment = {**os.environ, "GRAFTJIT_CACHE_DIR": str(tmp_path), "GRAFTJIT_CHECK": "0"}
    emitted = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert emitted == ["[False]", "[True]"]


def damage(path: Path, how: str) -> None:
    if how == "bytes":
        path.write_bytes(b"[[]]")
    elif how == "a link":
        path.rename(path.with_suffix(".moved"))
        path.symlink_to(path.with_suffix(".moved"))
    else:  # whole, but not what we write
        data = json.dumps([["default", -1.0, 1.0, 1.0]] if how == "values" else {"a": 1}).encode()
        digest = graftjit.runtime.store.kernel_file.digest_of(data)
        name = graftjit.runtime.store.kernel_file.parse_name(path.name)
        path.unlink()
        (path.parent / str(replace(name, digest=digest))).write_bytes(data)


@pytest.mark.parametrize("how", ["bytes", "a link", "values", "form"])
def test_a_damaged_note_is_as_if_it_were_not_there(store, best, how):
    races = best("chunk 256")
    jit(transposed, config=O2)(*inputs(transposed))
    (path,) = store.folder.rglob("*.note")
    damage(path, how)
    graftjit.dispatch.shared_entries.SHARED.forget()
    made = jit(transposed, config=O2)
    made(*inputs(transposed))
    assert len(races) == 2 and schedules(made)[0].chosen == "chunk 256"
    emitted = [note.code for note in made.report().notes]
    assert emitted == (["FB307"] if how in ("bytes", "a link") else [])


def test_other_threads_are_another_question(store, best):
    races = best("chunk 256")
    for threads in (2, 1):
        torch.set_num_threads(threads)
        graftjit.dispatch.shared_entries.SHARED.forget()
        jit(transposed, config=O2)(*inputs(transposed))
    assert len(races) == 2


def test_notes_are_counted_with_the_kernels_but_are_none(store, best):
    best("chunk 256")
    jit(transposed, config=O2)(*inputs(transposed))
    assert store.stats().files == 1 and len(store.files()) == 2
    assert store.clear() == 1 and not store.files()


def test_in_the_background_it_is_measured_in_the_background(store, best):
    races = best("chunk 256")
    config = O2.replace(background=True)
    made, given = jit(transposed, config=config), inputs(transposed)
    assert torch.equal(made(*given), transposed(*given))
    assert graftjit.wait(60) and background.BACKGROUND.wait(60)
    assert len(races) == 1 and [s.chosen for s in schedules(made)] == ["chunk 256"]
    assert torch.equal(made(*given), transposed(*given))
    graftjit.dispatch.shared_entries.SHARED.forget()
    again = jit(transposed, config=config)  # known: there at once
    again(*given)
    assert len(races) == 1 and [n.code for n in again.report().notes] == []


def test_what_cannot_be_built_keeps_its_default(store, monkeypatch):
    def fails(source, symbols):
        raise BuildError("no room for a measurement")

    monkeypatch.setattr(build, "once", fails)
    with SESSION.override(check=False):
        made, given = jit(transposed, config=O2), inputs(transposed)
        assert torch.equal(made(*given), transposed(*given))
    assert [n.code for n in made.report().notes] == ["FB316"] and not schedules(made)


# -- effects --------------------------------------------------------------------------------------------------


def test_no_tensor_of_the_user_is_touched(store, monkeypatch):
    """A kernel that writes to what it was given is measured on other memory."""

    def program(x, y):
        y.add_(x.t())
        return y * 2

    x, y = torch.randn(256, 320), torch.randn(320, 256)
    expected = program(x, y.clone())
    seen, run = [], clock.run_at

    def watched(address, scratch, threads):
        seen.extend(scratch.addresses)
        return run(address, scratch, threads)

    monkeypatch.setattr(clock, "run_at", watched)
    state = torch.get_rng_state()
    found = jit(program, config=O2)(x, y)
    assert torch.equal(found, expected) and torch.equal(y * 2, expected)
    assert torch.equal(torch.get_rng_state(), state)
    mine = (
        range(x.data_ptr(), x.data_ptr() + x.nbytes),
        range(y.data_ptr(), y.data_ptr() + y.nbytes),
    )
    assert seen and not any(address in each for address in seen if address for each in mine)


@pytest.mark.parametrize(
    "function, shapes",
    [
        (transposed, [(70, 90), (90, 70)]),
        (lambda x: x.flip(0, 1)[:, 3:].t() + 1, [(70, 90)]),
        (lambda x: x.t()[None] + x.t()[:5, None], [(70, 90)]),
        (columns, [(300, 90)]),
    ],
)
def test_scratch_memory_has_room_for_all_that_a_kernel_touches(function, shapes):
    """Each index of the nest lies in the span that is given to it."""
    nest = make(function, *(torch.randn(shape) for shape in shapes)).kernels[0].nest
    spans = clock.spans(nest)
    sizes = nest.outer + nest.inner
    places = torch.cartesian_prod(*(torch.arange(s) for s in sizes)).reshape(-1, len(sizes))
    used = [value.attr for value in nest.values if value.op == "load"]
    used += [(store.buffer, store.index) for store in nest.stores]
    for number, index in used:
        at = places @ torch.tensor(index.strides) + index.offset
        width = nest.buffers[number].dtype.itemsize
        low, high = spans[number]
        assert low <= at.min() * width and (at.max() + 1) * width <= high


@pytest.mark.parametrize("function", [lambda x, i: x[i] + 1, lambda x, i: x.gather(1, i[:, None])])
def test_what_reads_at_computed_places_stays_in_its_memory(function):
    """Whatever the indices are: a kernel that is run on others than it was made for tells of trouble at the most."""
    made = make(function, torch.randn(2, 2), torch.randint(0, 2, (2,)))
    nest = made.kernels[0].nest
    assert clock.measurable(nest)
    scratch = clock.Scratch(nest)
    (address,) = {step.address for step in made.spec.steps if isinstance(step, Launch)}
    clock.run_at(address, scratch, 1)()
    assert scratch.trouble.value == 1


# -- every way is the same function ---------------------------------------------------------------------------

# what is computed, the shapes, and whether the order of what is added up may differ
PROGRAMS = {
    "transposed": (transposed, [(170, 190), (190, 170)], False),
    "columns": (columns, [(333, 170)], True),
    "column statistics": (lambda x: (x.mean(0), x.std(0)), [(333, 170)], True),
    "softmax of columns": (lambda x: torch.softmax(x, 0), [(65, 170)], True),
    "greatest of columns": (lambda x: x.max(0), [(65, 170)], False),
    "softmax": (lambda x: torch.softmax(x, -1), [(65, 1000)], True),
    "layer norm": (lambda x, w: F.layer_norm(x, (515,), w), [(65, 515), (515,)], True),
    "gelu": (F.gelu, [(65, 515)], False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_way_gives_what_eager_gives(name, dtype):
    function, shapes, adds = PROGRAMS[name]
    given = [torch.randn(shape).to(dtype) for shape in shapes]
    plan = make(function, *given).plan
    (kernel,) = plan.kernels
    written = tune._written(kernel.nest)
    ways = {Hints(), *tune.ways_of(written), *(Hints(**{f.name: 1}) for f in fields(Hints))}
    if written.plan.groups == 1:  # may not have more
        ways = {replace(way, groups=0) for way in ways}
    kernels = [
        replace(kernel, nest=replace(kernel.nest, name=f"way{number}", hints=way))
        for number, way in enumerate(ways)
    ]
    symbols: dict[str, str] = {}
    nests = [each.nest for each in kernels]
    library = build.load(cpp.render(nests, build.vector_bytes(), {}, symbols), [*symbols.values()])
    addresses = {name: library.addresses[of] for name, of in symbols.items()}
    theirs = function(*given)
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    default = None
    for way, each in zip(ways, kernels, strict=True):
        spec = spec_of(replace(plan, steps=[each]), addresses, library)
        found = load(spec)(*given)
        default = found if default is None else default
        for ours, first, one in zip(found, default, theirs, strict=True):
            assert not differs(ours, one), way
            assert adds or torch.equal(ours, first), way
