"""What may be another one at the next call: a tensor's device, the current device and stream, autocast, sizes."""

from __future__ import annotations

import pytest
import torch

import graftjit

from .fake_programs import check, cuda, same

pytestmark = pytest.mark.usefixtures("fake_gpu")


def _reasons(compiled):
    return [found.text for found in graftjit.report(compiled).recompiles]


def test_a_tensor_that_moves_to_another_device():
    compiled = graftjit.jit(lambda x: (x * 2 + 1, x.device.index))
    for index in (0, 1, 0, 1):
        x = cuda(4, index=index)
        same(compiled(x), (x * 2 + 1, index))
    x = torch.randn(4)
    same(compiled(x), (x * 2 + 1, None))
    assert graftjit.report(compiled).recompile_count == 2


def test_a_parameter_that_moves_to_another_device():
    model = torch.nn.Linear(3, 2).cuda()
    compiled = graftjit.jit(model)
    for device in ("cuda:0", "cuda:1", "cpu", "cuda:0"):
        model.to(device)
        x = torch.randn(5, 3, device=device)
        same(compiled(x), model(x))


MAKES = {
    "factory": lambda x: torch.zeros(2, device="cuda") + 1,
    "method": lambda x: x.cuda() * 2,
    "to a name": lambda x: x.to("cuda") * 2,
    "to a device": lambda x: x.to(torch.device("cuda")) + 1,
    "keyword": lambda x: x.to(device="cuda", dtype=torch.float64) + 1,
    "like": lambda x: torch.ones_like(x, device="cuda"),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="cuda") * 2,
    "asked": lambda x: x * torch.cuda.current_device(),
    "default device": None,
}


def _under_a_default_device(x):
    with torch.device("cuda"):
        return torch.ones(3) * 2


@pytest.mark.parametrize("case", MAKES)
def test_the_current_device_is_asked_at_each_call(case):
    fn = MAKES[case] or _under_a_default_device
    compiled = graftjit.jit(fn)
    x = torch.randn(4)
    for index in (0, 1, 1, 0):
        with torch.cuda.device(index):
            same(compiled(x), fn(x))
    assert graftjit.report(compiled).recompile_count == 1


def test_a_device_with_a_number_asks_nobody():
    compiled = graftjit.jit(lambda x: (x.cuda(1) + 1, x.to("cuda:0"), x.to(1) * 2))
    x = torch.randn(4)
    for index in (0, 1):
        with torch.cuda.device(index):
            same(compiled(x), (x.cuda(1) + 1, x.to("cuda:0"), x.to(1) * 2))
    assert graftjit.report(compiled).recompile_count == 0


def test_streams_are_those_of_the_caller():
    compiled = graftjit.jit(lambda x: x * 2 + 1)
    x = cuda(4)
    for stream in (None, torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            same(compiled(x), x * 2 + 1)
    assert graftjit.report(compiled).recompile_count == 0


def test_autocast_comes_and_goes():
    weight = cuda(3, 4)
    compiled = graftjit.jit(lambda x: torch.nn.functional.linear(x, weight).relu())
    x = cuda(5, 4)
    for enabled in (False, True, True, False):
        with torch.autocast("cuda", torch.bfloat16, enabled):
            found = compiled(x)
        assert found.dtype == (torch.bfloat16 if enabled else torch.float32)


def _autocast_inside(x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        y = x @ weight
        return y, y.softmax(-1), torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")


def test_autocast_inside_of_a_frame():
    check(_autocast_inside, lambda: (cuda(3, 4), cuda(4, 5)))


def test_sizes_become_symbols():
    compiled = graftjit.jit(lambda x, y: ((x + y).relu().sum(-1), x.shape[0] * 2))
    for size in (3, 5, 7, 9):
        x, y = cuda(size, 6), cuda(6)
        same(compiled(x, y), ((x + y).relu().sum(-1), size * 2))
    assert graftjit.report(compiled).recompile_count <= 1
