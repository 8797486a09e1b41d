"""CUDA graphs (exec_mode="sink"): jitted programs give what plain Python gives, call after call; and why there is none.

On a GPU, and without one on the fake device, whose graphs run the recorded operators again over the same memory.
"""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import JitConfig, compile, jit, report
from graftjit.codegen import cuda_graphs as graphing
from graftjit.runtime.codes import CODES
from graftjit.runtime.cuda import graph_outputs as cuda_results
from graftjit.runtime.cuda import graphs as cuda_graph
from graftjit.runtime.cuda.graphs import Facts, Graphed
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.program.program import Aten, ProgramSpec, Slot

pytestmark = pytest.mark.usefixtures("graphs")
SINK = JitConfig(exec_mode="sink")
DEVICE = "cuda"


def sunk(function, **options):
    return jit(function, config=JitConfig(exec_mode="sink", **options))


def reported(jitted):
    """Codes about graphs."""
    return {row.code for row in jitted.report().notes if row.code.startswith("FB33")}


def rand(*shape):
    return torch.randn(*shape, device=DEVICE)


def same(found, wanted):
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-5, atol=1e-5)


def affine(x, w):
    return torch.relu(x @ w) + 1


# -- values, call after call ---------------------------------------------------------------------------


@torch.no_grad()
def test_new_inputs_and_a_weight(graphs):
    w, f = rand(4, 4), sunk(affine)
    kept = []
    for call in range(7):
        x = rand(3, 4)
        y = f(x, w)
        same(y, affine(x, w))
        kept.append((y, y.clone()))
        if call == 4:
            w.mul_(2)  # in place: seen by the replay
    assert graphs.made == 1 and reported(f) == set()
    for y, then in kept:  # nobody writes into what was given before
        assert torch.equal(y, then)


@torch.no_grad()
def test_a_weight_elsewhere_is_recorded_anew(graphs):
    w, f = rand(4, 4), sunk(affine)
    x = rand(3, 4)
    kept = [w.data]  # so that no address is used again
    for call in range(10):
        if call in (4, 7):
            w.data = rand(4, 4)
            kept.append(w.data)
        same(f(x, w), affine(x, w))
    assert graphs.made == 3 and reported(f) == set()
    other = rand(4, 4)
    same(f(x, other), affine(x, other))


@torch.no_grad()
def test_two_models_of_one_class_have_their_recordings(graphs):
    """They share a program, not weights."""
    nets = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(DEVICE) for _ in range(2)]
    ours = [compile(net, config=SINK) for net in nets]
    for call in range(12):
        x = rand(3, 4)
        for f, net in zip(ours, nets, strict=True):
            same(f(x), net(x))
        if call == 8:
            nets[1][0].weight.mul_(2)
    assert graphs.made == 2


@torch.no_grad()
def test_an_input_that_moves_is_copied(graphs):
    f, w, x = sunk(affine), rand(4, 4), rand(3, 4)
    kept = []
    for call in range(9):
        if call > 3:  # never again where it was
            kept.append(x)
            x = rand(3, 4)
        same(f(x, w), affine(x, w))
    assert graphs.made == 3 and reported(f) == set()


@torch.no_grad()
def test_results_that_are_inputs_and_constants():
    table = rand(3)
    f = sunk(lambda x, y: (x, x + y, y, table))
    for _ in range(5):
        x, y = rand(3), rand(3)
        a, b, c, d = f(x, y)
        assert a is x and c is y and d is table
        same(b, x + y)


@torch.no_grad()
def test_results_that_share_memory(graphs):
    def part(x, w):
        y = torch.tanh(x @ w)
        return y, y[:, -1], y.t()

    f = sunk(part)
    w = rand(4, 4)
    for _ in range(6):
        x = rand(3, 4)
        found, wanted = f(x, w), part(x, w)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
            assert one.stride() == other.stride()
        found[1].fill_(7)
        assert torch.equal(found[0][:, -1], found[1]) and torch.equal(found[2], found[0].t())
        same(f(x, w)[0], wanted[0])


@torch.no_grad()
def test_one_result_twice(graphs):
    f = sunk(lambda x, w: [x @ w] * 2)
    w = rand(4, 4)
    for _ in range(5):
        x = rand(3, 4)
        a, b = f(x, w)
        assert a is b
        same(a, x @ w)
    assert graphs.made == 1


@torch.no_grad()
def test_strided_inputs(graphs):
    f, w = sunk(affine), rand(4, 4)
    for _ in range(6):
        x = rand(4, 6).t()[::2]
        same(f(x, w), affine(x, w))
    assert graphs.made == 1


@torch.no_grad()
def test_random_numbers_are_eagers():
    def drop(x):
        return F.dropout(x, 0.5) * 2 + torch.rand_like(x)

    f = sunk(drop)
    x = rand(64)
    torch.cuda.manual_seed(5)
    found = [f(x) for _ in range(6)]
    torch.cuda.manual_seed(5)
    for one in found:
        same(one, drop(x))


def test_inference_mode(graphs):
    f, w = sunk(affine), rand(4, 4)
    with torch.inference_mode():
        for _ in range(5):
            x = rand(3, 4)
            y = f(x, w)
            same(y, affine(x, w))
            assert y.is_inference()
    x = rand(3, 4)
    for _ in range(5):
        y = f(x, w)
        assert not y.is_inference()
        same(y, affine(x, w))


@torch.no_grad()
def test_sizes_that_vary(graphs):
    f, w = sunk(affine, dynamic=True), rand(4, 4)
    for rows in (3, 5, 3, 5, 3, 5, 3, 5, 7):
        x = rand(rows, 4)
        same(f(x, w), affine(x, w))
    assert graphs.made == 2
    for rows in range(10, 10 + cuda_graph.LAYOUTS):
        x = rand(rows, 4)
        same(f(x, w), affine(x, w))
    assert reported(f) == {"FB336"}


@torch.no_grad()
def test_numbers_that_vary(graphs):
    def scaled(x, w, rate):
        return (x @ w) * rate

    f, w = sunk(scaled, dynamic=True), rand(4, 4)
    for rate in (0.5, 0.25, -0.0, 0.0, 0.25, -0.0, 0.0, -0.0, 0.0, 0.25, 0.25):
        x = rand(3, 4)
        found, wanted = f(x, w, rate), scaled(x, w, rate)
        same(found, wanted)
        assert torch.equal(found.signbit(), wanted.signbit())


@torch.no_grad()
def test_a_model(graphs):
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(DEVICE)
    ours = compile(net, config=SINK)
    for call in range(6):
        x = rand(5, 6)
        same(ours(x), net(x))
        if call == 4:
            net[0].weight.mul_(1.5)
            net[3].bias = nn.Parameter(rand(3))
    assert graphs.made >= 1


# -- programs that write, as steps: see `runtime.program.program` -------------------------------------------------------


def written_cache():
    """`cache = cache / 2 + x` in place; its double."""
    aten, rest = torch.ops.aten, (Slot(0), 0.5)
    steps = (
        Aten(aten.mul_.Tensor, rest, {}, (None,)),
        Aten(aten.add_.Tensor, (Slot(0), Slot(1)), {}, (None,)),
        Aten(aten.mul.Tensor, (Slot(0), 2.0), {}, (2,)),
    )
    reasons = []
    facts = Facts(0, 2, written=frozenset({0}), steps=3)
    program = executor.load(ProgramSpec("cache", 2, 3, steps, (2, 0)))
    facts.given[1] = 0
    return Graphed(program, facts, lambda *reason: reasons.append(reason)), reasons


@torch.no_grad()
def test_a_written_input_and_its_versions(graphs):
    f, reasons = written_cache()
    ours = rand(8)
    theirs = ours.clone()
    for _ in range(6):
        x, before = rand(8), ours._version
        theirs.mul_(0.5).add_(x)
        doubled, given = f(ours, x)
        assert given is ours and ours._version == before + 2
        same(doubled, theirs * 2)
        same(ours, theirs)
    assert graphs.made == 1 and not reasons


@torch.no_grad()
def test_addresses_that_never_stay_end_it():
    f, reasons = written_cache()
    kept = []  # so that no address is used again
    for _ in range(12):
        x, cache = rand(64), rand(64)
        kept.append(cache)
        wanted = cache * 0.5 + x
        same(f(cache, x)[0], wanted * 2)
        same(cache, wanted)
    assert [code for code, _ in reasons] == ["FB336"] and f.recordings == 0


@torch.no_grad()
def test_a_recording_of_two_caches():
    """Each time that the cache is another one there is another recording."""
    f, reasons = written_cache()
    caches = [rand(8), rand(8)]
    wanted = [one.clone() for one in caches]
    for call in range(8):
        x, at = rand(8), int(call > 4)
        wanted[at].mul_(0.5).add_(x)
        f(caches[at], x)
        for one, other in zip(caches, wanted, strict=True):
            same(one, other)
    assert not reasons and f.recordings == 2


# -- streams, threads, recordings of others ---------------------------------------------------------------


@torch.no_grad()
def test_streams(graphs):
    f, w = sunk(affine), rand(4, 4)
    others = [torch.cuda.Stream() for _ in range(2)]
    for call in range(9):
        stream = [torch.cuda.default_stream(), *others][call % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = rand(3, 4)
            same(f(x, w), affine(x, w))
    assert graphs.made == 1


@torch.no_grad()
def test_a_call_while_another_one_is_at_it_runs_as_it_is(graphs):
    f, w = sunk(affine), rand(4, 4)
    x = rand(3, 4)
    for _ in range(4):
        f(x, w)
    device = cuda_graph._DEVICES[0]
    with device.lock:
        same(f(x, w), affine(x, w))
    errors = []

    def work():
        try:
            with torch.no_grad():
                for _ in range(20):
                    x = rand(3, 4)
                    same(f(x, w), affine(x, w))
        except BaseException as error:
            errors.append(error)

    if torch.version.cuda is not None:  # the fake device is of one thread
        threads = [threading.Thread(target=work) for _ in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    assert not errors


@torch.no_grad()
def test_inside_of_the_programs_own_recording(graphs):
    f, w = sunk(affine), rand(4, 4)
    x = rand(3, 4)
    for _ in range(4):
        f(x, w)
    assert graphs.made == 1
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.capture_begin()
        y = f(x, w)
        graph.capture_end()
    x.copy_(rand(3, 4))
    graph.replay()
    torch.cuda.synchronize()
    same(y, affine(x, w))


# -- training ---------------------------------------------------------------------------------------------


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(DEVICE)


@pytest.mark.parametrize("clones", ["torch's", "by one product"])
def test_steps_of_training(graphs, monkeypatch, clones):
    if clones == "by one product":
        monkeypatch.setattr(cuda_results, "_clones", None)
    ours, theirs = make_net(), make_net()
    f = compile(ours, config=SINK)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (ours, theirs)]
    for _ in range(8):
        x, target = rand(5, 6), rand(5, 3)
        losses = []
        for net, optimizer in zip((f, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (net(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        same(*losses)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(one.grad, other.grad)
            same(one, other)
    assert graphs.made == 2, f  # a forward and a backward
    assert "FB337" not in {row.code for row in report(f).notes}


def test_what_was_saved_and_is_held_stays(graphs):
    """By the program's own hands, or by a view."""
    net = make_net()
    f = compile(net, config=SINK)
    for hold in ("no", "no", "no", "no", "tensors", "views", "no"):
        y = f(rand(5, 6))
        saved = y.grad_fn.saved_tensors
        kept = {"no": [], "tensors": list(saved), "views": [one.view(-1) for one in saved]}[hold]
        then = [one.clone() for one in kept]
        del saved
        y.sum().backward()
        del y
        f(rand(5, 6)).sum().backward()
        for one, before in zip(kept, then, strict=True):
            assert torch.equal(one, before)
        kept.clear()


def test_another_program_between_a_forward_and_its_backward(graphs):
    """Its replay leaves the saved values as they are."""
    ours, theirs = make_net(), make_net()
    f, w = compile(ours, config=SINK), rand(64, 64)
    g = sunk(lambda x, w: torch.relu(torch.relu(x @ w) @ w) @ w)
    for _ in range(8):
        x, wide = rand(5, 6), rand(64, 64)
        found, wanted = f(x), theirs(x)
        with torch.no_grad():
            same(g(wide, w), torch.relu(torch.relu(wide @ w) @ w) @ w)
        for y, net in ((found, ours), (wanted, theirs)):
            net.zero_grad()
            y.square().sum().backward()
        for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(one.grad, two.grad)


def test_two_forwards_before_a_backward(graphs):
    ours, theirs = make_net(), make_net()
    f = compile(ours, config=SINK)
    for call in range(8):
        results = []
        for net in (f, theirs):
            torch.manual_seed(call)
            first, second = net(rand(5, 6)), net(rand(5, 6))
            (first.sum() + (second * first).sum()).backward()
            results.append([p.grad.clone() for p in net.parameters()])  # they add up
        for one, other in zip(*results, strict=True):
            same(one, other)
    assert "FB337" in {row.code for row in report(f).notes}


def test_a_backward_twice(graphs):
    ours, theirs = make_net(), make_net()
    f = compile(ours, config=SINK)
    for call in range(6):
        results = []
        for net in (f, theirs):
            torch.manual_seed(call)
            y = net(rand(5, 6)).square().sum()
            y.backward(retain_graph=True)
            again = net(rand(5, 6)).sum()
            y.backward()
            again.backward()
            results.append([p.grad.clone() for p in net.parameters()])
        for one, other in zip(*results, strict=True):
            same(one, other)


# -- why there is none ----------------------------------------------------------------------------------------


def two_devices(x, y):
    return x + 1, y * 2


@pytest.mark.parametrize(
    ("code", "function", "inputs"),
    [
        ("FB330", lambda x, y: x.cpu() + y, lambda: (rand(3), torch.randn(3))),
        ("FB330", lambda x, y: x * y, lambda: (rand(3), torch.randn(()))),
        ("FB331", two_devices, lambda: (rand(3), torch.randn(3, device="cuda:1"))),
        ("FB332", lambda x, h: x.histc(4) + h, lambda: (rand(8), rand(4))),
        ("FB333", lambda x, y: (x[1:], x + y), lambda: (rand(3), rand(3))),
        ("FB333", lambda x, y: x + y, lambda: (rand(1).expand(3), rand(3))),
    ],
)
@torch.no_grad()
def test_reasons(graphs, code, function, inputs):
    if code == "FB331" and torch.cuda.device_count() < 2:
        pytest.skip("one device")
    f = sunk(function)
    for _ in range(5):
        given = inputs()
        for one, other in zip(f(*given), function(*given), strict=True):
            same(one, other)
    assert code in reported(f), f.report()


@torch.no_grad()
def test_an_input_that_is_a_view_of_a_written_one():
    def step(whole, part):
        whole.add_(1)
        return part * 2

    f = sunk(step)
    ours = rand(8)
    theirs = ours.clone()
    for call in range(6):
        same(f(ours, ours[call : call + 2]), step(theirs, theirs[call : call + 2]))
        same(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize(
    "error", [RuntimeError("operation not permitted"), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_a_recording_that_fails(graphs, error):
    graphs.refuses = error
    f, w = sunk(affine), rand(4, 4)
    for _ in range(6):
        x = rand(3, 4)
        same(f(x, w), affine(x, w))
    assert graphs.made == 1 and reported(f) == {"FB334"}


@torch.no_grad()
def test_what_would_not_pay(graphs, monkeypatch):
    monkeypatch.setattr(cuda_graph, "STEP_SECONDS", 1e-15)
    f, w = sunk(affine), rand(4, 4)
    for _ in range(6):
        x = rand(3, 4)
        same(f(x, w), affine(x, w))
    assert reported(f) == {"FB335"}


@torch.no_grad()
def test_a_program_that_is_to_be_exchanged(graphs):
    f = sunk(affine, background=True)
    w = rand(4, 4)
    for _ in range(4):
        x = rand(3, 4)
        same(f(x, w), affine(x, w))
    assert graphs.made in (0, 1)  # without kernels there is nothing to wait for


def test_modes_and_levels(graphs):
    w, made = rand(4, 4), {}
    for config in (
        JitConfig(), JitConfig(exec_mode="no_sink", jit_level="O2"), JitConfig(jit_level="O2"), SINK,
        JitConfig(exec_mode="sink", jit_level="O0"),
    ):  # fmt: skip
        f = jit(lambda x, w: affine(x, w), config=config)
        before = graphs.made
        for _ in range(5):
            f(rand(3, 4), w)
        made[config.jit_level, config.exec_mode] = graphs.made - before
    assert made == {
        ("O1", "auto"): 0, ("O2", "no_sink"): 0, ("O2", "auto"): 1, ("O1", "sink"): 1, ("O0", "sink"): 0,
    }  # fmt: skip


def test_on_the_processor_sink_means_what_it_meant():
    f = sunk(lambda x: x + 1)
    for _ in range(4):
        assert f(torch.ones(2)).tolist() == [2, 2]
    assert reported(f) == set()


def test_codes_are_in_the_table():
    for number in range(330, 338):
        assert f"FB{number}" in CODES
    assert graphing.CUDA.kind == "cuda"
