"""The model set on a device: forward and backward beside eager on the same device, step by step and as CUDA graphs.

Tiny models run on the fake device, too; those of the benchmarks' small size, and bfloat16, need a GPU.
"""

from __future__ import annotations

import pytest
import torch

import graftjit

NAMES = ("bert", "gpt2", "llama", "resnet", "vit", "mlp")


@pytest.fixture(autouse=True)
def float32():
    """Convolutions of float32 without TF32, whose roundings batch norms of few elements enlarge."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def distance(found, wanted):
    """Of all results together, relative: gradients that cancel to nothing have errors of the size of what cancelled."""
    wide = [(one.double(), other.double()) for one, other in zip(found, wanted, strict=True)]
    size = max(float(other.norm()) for _, other in wide)
    worst = max(float((one - other).norm()) / max(float(other.norm()), 1e-3 * size) for one, other in wide)  # fmt: skip
    return worst


def results(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def forward(bench, name, scale, device, mode, dtype=None):
    nets = bench("gpu.nets")
    net, inputs = nets.made(name, scale, device, 0)
    if dtype is not None:
        net, inputs = net.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)  # fmt: skip
    compiled = graftjit.compile(net, config=graftjit.JitConfig(exec_mode=mode))
    allowed = 3e-2 if dtype is not None else 1e-3
    with torch.no_grad():
        for call in range(5):
            if call == 4:  # other values in the same memory
                for parameter in net.parameters():
                    parameter.mul_(1.01)
            found, wanted = results(compiled(*inputs)), results(net(*inputs))
            assert [x.stride() for x in found] == [x.stride() for x in wanted]
            assert distance(found, wanted) < allowed
    seen = graftjit.report(compiled)
    assert seen.graph_count == 1 and seen.break_count == 0, str(seen)


def steps(bench, name, scale, device, mode):
    nets, found = bench("gpu.nets"), []
    for kind in ("ours", "eager"):
        net, inputs = nets.made(name, scale, device, 0)
        module = nets.training(net)
        called = module
        if kind == "ours":
            called = graftjit.compile(module, config=graftjit.JitConfig(exec_mode=mode))
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
        values = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = called(*inputs)
            loss.backward()
            optimizer.step()
            values.append(loss.detach().clone())
        asked = [p for p in module.parameters() if p.grad is not None]
        found.append([*values, *[p.grad for p in asked], *[p.detach() for p in asked]])
    assert distance(*found) < 5e-3


@pytest.mark.parametrize("name", NAMES)
def test_forward(bench, cuda_device, graphs, name):
    forward(bench, name, "tiny", cuda_device, "sink")
    assert graphs.made >= 1


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_training(bench, cuda_device, graphs, name):
    steps(bench, name, "tiny", cuda_device, "sink")
    assert graphs.made >= 2


@pytest.mark.parametrize("mode", ["auto", "sink"])
@pytest.mark.parametrize("name", NAMES)
def test_forward_of_larger_ones(bench, real_cuda, graphs, name, mode):
    forward(bench, name, "small", real_cuda, mode)


@pytest.mark.parametrize("name", NAMES)
def test_forward_in_bfloat16(bench, real_cuda, name):
    forward(bench, name, "small", real_cuda, "auto", torch.bfloat16)


@pytest.mark.parametrize("mode", ["auto", "sink"])
@pytest.mark.parametrize("name", NAMES)
def test_training_of_larger_ones(bench, real_cuda, graphs, name, mode):
    steps(bench, name, "small", real_cuda, mode)


def test_autocast(bench, cuda_device):
    net, inputs = bench("gpu.nets").made("mlp", "tiny", cuda_device, 0)
    compiled = graftjit.compile(net)
    for _ in range(3):
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            found, wanted = compiled(*inputs), net(*inputs)
        assert found.dtype == wanted.dtype and distance([found], [wanted]) < 3e-2


def test_the_benchmarks_cases_are_on_the_device(bench, cuda_device, graphs, tmp_path):
    """What `python -m benchmarks.gpu` measures, small: every family gives eager's values, and a model has its graph."""
    sections, measure = bench("gpu.sections"), bench("gpu.measure")
    place = measure.Device("cpu")  # for the clock
    place.device = cuda_device
    systems = ("eager", "graftjit", "graftjit sink")
    job = sections.Job(place, tmp_path / "r.jsonl", systems, True, 0, float("inf"))
    families = bench("gpu.families").FAMILIES
    for name, make in families.items():
        case = make(1 << 14, cuda_device)
        with torch.set_grad_enabled(case.trains):
            runs, rows = sections.prepared(job, case.function, case.inputs, case.asked, systems[:2])
        assert runs.keys() == {"eager", "graftjit"}, (name, rows)
    with torch.no_grad():
        net, inputs = bench("gpu.nets").made("mlp", "tiny", cuda_device, 0)
        runs, rows = sections.prepared(job, net, inputs, (), systems)
    assert "graftjit sink" in runs and graphs.made == 1, rows
