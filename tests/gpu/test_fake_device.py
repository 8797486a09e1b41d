"""The fake device itself: plain eager on it gives what the CPU gives, and it is gone after its block."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ..fake_cuda.memory import memory

pytestmark = pytest.mark.usefixtures("fake_cuda")


def test_a_tensor_goes_and_comes_back():
    x = torch.randn(3, 4).t()
    there = x.cuda(1)
    assert there.device == torch.device("cuda:1") and there.is_cuda
    assert there.stride() == x.stride() and torch.equal(there.cpu(), x)
    assert torch.equal(there.to("cuda").cpu(), x) and there.to("cuda").device.index == 0
    assert there[1, 2].item() == x[1, 2].item()


def test_views_share_memory_and_versions():
    x = torch.zeros(4, 4, device="cuda")
    view = x.t()[1:, 2]
    assert view._base is x and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    view.fill_(3)
    assert x._version == view._version == 1 and x[2, 1:].tolist() == [3, 3, 3]


def test_a_device_is_current():
    with torch.cuda.device(1):
        assert torch.zeros(2, device="cuda").device.index == 1
    assert torch.zeros(2, device="cuda").device.index == 0
    with pytest.raises(RuntimeError, match="same device"):
        torch.zeros(2, device="cuda:1") + torch.ones(2, device="cuda")


def test_streams_are_current_by_device():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_random_numbers_come_from_the_device():
    before = torch.get_rng_state()
    torch.cuda.manual_seed(3)
    first = F.dropout(torch.ones(50, device="cuda")), torch.randn(5, device="cuda")
    torch.cuda.manual_seed(3)
    second = F.dropout(torch.ones(50, device="cuda")), torch.randn(5, device="cuda")
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_training_is_what_the_cpu_does(make):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2, bias=False), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(),
        nn.Linear(64, 8), nn.LayerNorm(8), nn.Linear(8, 3),
    )  # fmt: skip
    state = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = torch.randn(5, 2, 6, 6), torch.tensor([0, 1, 2, 0, 1])
    found = {}
    for device in ("cpu", "cuda"):
        model.load_state_dict(state)
        model.to(device)
        optimizer = make(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        found[device] = [value.cpu().clone() for value in model.state_dict().values()]
    for there, here in zip(found["cuda"], found["cpu"], strict=True):
        torch.testing.assert_close(there, here)


def test_attention_and_its_gradient():
    q = torch.randn(2, 2, 5, 4)
    results = []
    for device in ("cpu", "cuda:1"):
        leaf = q.clone().to(device).requires_grad_()
        F.scaled_dot_product_attention(leaf, leaf, leaf, is_causal=True).sum().backward()
        results.append(leaf.grad.cpu())
    torch.testing.assert_close(*results)


def test_memory_is_the_devices_and_comes_back():
    before = memory().used
    x = torch.empty(1000, device="cuda")
    start, size = memory().block_of(x.data_ptr())
    assert (start, size) == (x.data_ptr(), 4000) and start % 512 == 0
    assert memory().block_of(x[10:].data_ptr()) == (start, size)
    assert memory().block_of(torch.ones(3).data_ptr()) is None
    assert x.isnan().all()  # nobody has written to it
    kept = x[10:]
    del x
    assert memory().used > before
    del kept
    assert memory().used == before and memory().block_of(start) is None


def test_memory_runs_out(monkeypatch):
    monkeypatch.setattr(memory(), "limit", memory().used + 4096)
    with pytest.raises(RuntimeError, match="out of memory"):
        torch.empty(10000, device="cuda")


def test_what_overlaps_is_refused():
    x = torch.zeros(5, device="cuda")
    with pytest.raises(RuntimeError, match="memory location"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(5)
