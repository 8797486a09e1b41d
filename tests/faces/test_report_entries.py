"""Reports of real programs: entries with their calls, what resumes after a break, guards' paths, what failed."""

from __future__ import annotations

import torch

import graftjit
from graftjit import JitConfig, jit
from graftjit.runtime.events.events import Counted
from graftjit.runtime.process.session import SESSION

HERE = __file__


def work(x, flag=True):
    y = x.relu() * 2
    if y.sum().item() > 1e9:
        y = y + 1
    for _ in range(2):
        y = y.tanh()
    return y - 1


FIRST = work.__code__.co_firstlineno


def test_entries_are_numbered_in_the_frame_and_count_their_calls():
    run = jit(work)
    x = torch.ones(3)
    for _ in range(4):
        run(x)
    for _ in range(2):
        run(x, False)
    report = run.report()
    assert [entry.number for entry in report.entries] == list(range(1, len(report.entries) + 1))
    begun = [entry for entry in report.entries if not entry.resumed]
    assert [entry.hits for entry in begun] == [5]  # the flag is not looked at
    resumed = [entry for entry in report.entries if entry.resumed]
    assert resumed and all(entry.graph and entry.alive for entry in report.entries)
    assert sum(entry.guards for entry in report.entries) >= len(report.guards)
    assert {guard.entry for guard in report.guards} <= {entry.number for entry in report.entries}
    assert [entry.file for entry in report.entries] == [HERE] * len(report.entries)
    assert {name for name, _ in begun[0].stages} >= {"capture", "compile", "guards"}


def test_lines_that_run_in_a_resume_function():
    run = jit(work)
    run(torch.ones(3))
    (frame,) = run.report().frames
    assert frame.resumed_lines == ((FIRST + 4, FIRST + 6),)  # after the branch


def looped(x):
    total = x * 0
    for k in range(2):
        total = total + x
        print(end="")
        total = total * 2
    return total


def test_a_break_in_a_loop_resumes_the_whole_loop():
    run = jit(looped)
    run(torch.ones(3))
    first = looped.__code__.co_firstlineno
    (frame,) = run.report().frames
    assert frame.resumed_lines[0] == (first + 2, first + 6)


def test_totals_of_a_resume_function_name_its_break():
    run = jit(work)
    run(torch.ones(3))
    report = run.report()
    after = [e.after for e in report.events if type(e) is Counted]
    (found,) = report.breaks
    assert after[0] is None
    assert {place.line for place in after[1:]} == {found.line} == {FIRST + 2}


def test_a_second_callable_of_the_kind_has_entries_and_breaks_of_its_own():
    def made():
        def inner(x):
            y = x.sin()
            print(end="")
            return y + 1

        return jit(inner)

    one, two = made(), made()
    x = torch.ones(3)
    one(x), two(x), two(x)
    report = two.report()
    assert [(e.number, e.adopted, e.hits) for e in report.entries] == [(1, True, 1), (2, True, 1)]
    assert [e.after is None for e in report.events if type(e) is Counted] == [True, False]


def test_a_recompile_says_what_kept_the_call_from_each_entry():
    run = jit(lambda x, k: x * k, config=JitConfig(dynamic=False))
    run(torch.ones(3), 1)
    run(torch.ones(4), 1)
    run(torch.ones(5), 1)
    first, second = run.report().recompiles
    assert [(f.entry, f.source) for f in first.failed] == [(1, "x")]
    assert [f.entry for f in second.failed] == [2, 1]
    assert second.failed[0].now == "cpu f32[5]" and second.failed[1].before == "cpu f32[3]"
    assert (second.entries, second.at > first.at > 0) == (2, True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])
        self.scale = {"by": 2}

    def forward(self, x):
        return self.layers[0](x) * self.scale["by"]


def test_guards_have_their_way_to_the_value():
    net = graftjit.compile(Net())
    with torch.no_grad():
        net(torch.ones(2, 3))
    paths = {guard.source: guard.path for guard in graftjit.report(net).guards}
    (scale,) = (path for source, path in paths.items() if source.endswith("scale['by']"))
    assert scale[-2:] == (".scale", "['by']")
    for source, path in paths.items():
        assert "".join(path) == source or source.startswith(("type(", "list("))


def test_what_was_taken_over_has_its_kernels_graphs_and_times():
    nets = [graftjit.compile(Net()) for _ in range(2)]
    with SESSION.override(check=False), torch.no_grad():
        for net in nets:
            for _ in range(20):
                net(torch.ones(2, 3))
    first, second = (graftjit.report(net) for net in nets)
    assert [e.adopted for e in second.entries] == [True] * len(first.entries)
    assert [k.name for k in second.kernels] == [k.name for k in first.kernels] != []
    assert [g.text for g in second.graphs] == [g.text for g in first.graphs] != []
    assert all(kernel.samples and kernel.entry == 1 for kernel in second.kernels)
    mine, other = second.entries[0], first.entries[0]
    assert (mine.kernels, mine.library, mine.graph) == (other.kernels, other.library, other.graph)
    assert second.frames[0].lines == first.frames[0].lines != ()
    assert not second.libraries  # nothing was built for it


def test_what_value_guards_take_stands_beside_what_guards_take():
    @jit
    def f(x, mask):
        return x + 1 if mask.all() else x - 1

    mask = torch.ones(64, 64, dtype=torch.bool)
    for _ in range(100):
        f(torch.ones(3), mask)
    report = f.report()
    (entry,) = report.entries
    assert 0 < entry.value_seconds < entry.guard_seconds
    assert "of it for tensor values" in str(report)

    plain = jit(lambda x: x + 1)
    for _ in range(100):
        plain(torch.ones(3))
    (entry,) = plain.report().entries
    assert entry.guard_seconds and not entry.value_seconds


def test_a_claim_is_told():
    def f(x):
        return x * 2 if torch.compiler.is_compiling() else x * 3

    for claims in (True, False):
        run = jit(f, config=JitConfig(claims_compiling=claims))
        run(torch.ones(3))
        report = run.report()
        assert [entry.claimed for entry in report.entries] == [claims]
        assert ("is_compiling() said True" in str(report)) == claims
