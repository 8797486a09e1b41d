"""Devices, streams and errors: what a compiled program does on a device when something around it changes, or goes wrong."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import graftjit
from graftjit import jit
from graftjit.ir.graph.nodes import meta_of
from graftjit.ir.graph.schema import plan_of
from graftjit.ir.ops.infer import infer
from graftjit.runtime.process.session import SESSION


def work(x, y):
    return (x * y + 1).relu().sum(-1), x - y


def same(found, wanted, rtol=1e-5, atol=1e-5):
    for one, other in zip(found, wanted, strict=True):
        assert one.device == other.device and one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def pair(device, rows=5):
    return tuple(torch.randn(rows, 33, device=device) for _ in range(2))


def test_another_device_is_another_entry(cuda_device):
    f = jit(work)
    places = [cuda_device, "cpu", cuda_device]
    if torch.cuda.device_count() > 1:
        places += ["cuda:1", "cuda:0", "cuda:1"]
    for place in places:
        given = pair(place)
        same(f(*given), work(*given))


def test_tensors_of_two_devices_raise_as_eager(cuda_device):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    f = jit(work)
    x, y = torch.randn(3, device="cuda:0"), torch.randn(3, device="cuda:1")
    with pytest.raises(RuntimeError) as plain:
        work(x, y)
    for _ in range(2):
        with pytest.raises(RuntimeError) as ours:
            f(x, y)
        assert str(ours.value) == str(plain.value)


def test_a_device_that_is_not_current(cuda_device):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    f = jit(work)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            given = pair("cuda:1")
            same(f(*given), work(*given))
            assert torch.cuda.current_device() == current


def test_streams(cuda_device):
    """Launches go to the current stream: behind what was launched there, before what comes."""
    f = jit(work)
    x, y = pair(cuda_device)
    f(x, y)
    for _ in range(5):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            a = x * 2
            for _ in range(20):
                a = a * 1.0 + 0.0
            found = f(a, y)
            wanted = work(a, y)
        torch.cuda.current_stream().wait_stream(stream)
        same(found, wanted)


def test_a_stream_that_is_busy(real_cuda):
    """On a stream that waits, a compiled call waits as well, and the host does not."""
    f = jit(work)
    x, y = pair(real_cuda)
    done = torch.cuda.Event()
    with SESSION.override(check=False):  # a comparison waits
        f(x, y)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            x.mul_(3)
            found = f(x, y)
            done.record()
        assert not done.query()
    done.synchronize()
    same(found, work(x, y))


def test_threads(real_cuda):
    f, errors = jit(work), []

    def run(seed):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                generator = torch.Generator("cuda").manual_seed(seed)
                for _ in range(30):
                    x, y = (
                        torch.randn(5, 33, device="cuda", generator=generator) for _ in range(2)
                    )
                    same(f(x, y), work(x, y))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert not errors


def test_out_of_memory(real_cuda):
    """As eager: the error, and everything goes on."""
    f = jit(lambda x: (x + 1).expand(1 << 20, -1) * 2)
    small = torch.ones(4, device=real_cuda)
    f(small)
    large = torch.ones(1 << 24, device=real_cuda)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            f(large)
    assert torch.equal(f(small)[5], small * 2 + 2)


def test_a_program_for_tensors_without_elements(cuda_device):
    f = jit(lambda x, y: (x * y + 1, x.sum(0), x.cumsum(0)))
    for rows in (3, 0, 3):
        x, y = (torch.randn(rows, 7, device=cuda_device) for _ in range(2))
        same(f(x, y), (x * y + 1, x.sum(0), x.cumsum(0)))


def test_values_of_the_host_between(cuda_device):
    def steps(x):
        y = (x * 2).sum()
        if y.item() > 0:
            return x + y
        return x - y

    f = jit(steps)
    for sign in (1, -1, 1):
        x = torch.ones(5, device=cuda_device) * sign
        torch.testing.assert_close(f(x), steps(x))


def test_the_report_names_what_runs_on_the_device(cuda_device):
    f = jit(work)
    given = pair(cuda_device)
    f(*given)
    seen = f.report()
    assert seen.graph_count == 1 and seen.frames[0].operators == 5, str(seen)
    if torch.version.cuda is not None:
        assert sum(frame.kernels for frame in seen.frames) >= 1, str(seen)
        assert "triton" in seen.kernels[0].source or "tl." in seen.kernels[0].source


def test_in_place_and_views(cuda_device):
    def steps(x, cache):
        cache[1:] = x[:-1] * 2
        cache.add_(1)
        view = cache.view(-1)[3:]
        view.mul_(0.5)
        return view, cache.sum()

    f = jit(steps)
    ours, theirs = (torch.zeros(4, 5, device=cuda_device) for _ in range(2))
    for _ in range(4):
        x = torch.randn(4, 5, device=cuda_device)
        same(f(x, ours), steps(x, theirs))
        same([ours], [theirs])


def test_an_index_out_of_range_is_told(real_cuda):
    """A device-side assertion ends the context, as in eager: so in a process of its own."""
    import subprocess
    import sys

    program = (
        "import torch, graftjit\n"
        "f = graftjit.jit(lambda x, i: x[i] * 2 + 1)\n"
        "x = torch.ones(5, 4, device='cuda')\n"
        "f(x, torch.tensor([1, 2], device='cuda'))\n"
        "try:\n    f(x, torch.tensor([1, 7], device='cuda'))\n    torch.cuda.synchronize()\n"
        "except RuntimeError as error:\n    print('told:', 'assert' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert "told: True" in done.stdout, done.stdout + done.stderr


def test_explain_and_reset(cuda_device):
    given = pair(cuda_device)
    assert graftjit.explain(work, *given).graph_count == 1
    f = jit(work)
    f(*given)
    f.reset()
    same(f(*given), work(*given))


LAYOUTS = {
    "plain": (torch.float32, torch.contiguous_format, 1),
    "channels last": (torch.float32, torch.channels_last, 1),
    "in double": (torch.float64, torch.channels_last, 1),
    "each channel by itself": (torch.float32, torch.channels_last, 4),
}


@pytest.mark.parametrize("name", LAYOUTS)
@torch.no_grad()
def test_results_of_libraries_lie_as_in_eager(cuda_device, name):
    """The device is asked: kernels behind a library's call read what it gives by the strides that are expected of it."""
    dtype, layout, groups = LAYOUTS[name]
    x = torch.randn(2, 4, 5, 6, device=cuda_device).to(dtype).contiguous(memory_format=layout)
    w = torch.randn(4, 4 // groups, 3, 3, device=cuda_device).to(dtype)
    op, rest = torch.ops.aten.convolution.default, (None, (1, 1), (1, 1), (1, 1), False, (0, 0), groups)  # fmt: skip
    found = infer(plan_of(op), (meta_of(x), meta_of(w), *rest), {})
    assert found == meta_of(op(x, w, *rest))
    f = jit(lambda x: F.conv2d(x, w, padding=1, groups=groups) * 2 + 1)
    for _ in range(2):
        ours, theirs = f(x), F.conv2d(x, w, padding=1, groups=groups) * 2 + 1
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"])  # fmt: skip
def test_attention(real_cuda, backend, heads_first):
    def attended(x, w):
        q, k, v = (x @ w).unflatten(-1, (3, 4, 64)).unbind(-3)
        q, k, v = (one.transpose(1, 2) for one in (q * 0.5, k, v))
        if heads_first:
            q, k, v = (one.contiguous() for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.relu(y.transpose(1, 2).flatten(-2)) + x

    f = jit(attended)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        for _ in range(3):
            x = torch.randn(2, 100, 256, device=real_cuda, dtype=torch.bfloat16)
            w = torch.randn(256, 768, device=real_cuda, dtype=torch.bfloat16) / 16
            with torch.no_grad():
                same([f(x, w)], [attended(x, w)], rtol=2e-2, atol=2e-2)
            found = []
            for function in (f, attended):
                leaves = [one.clone().requires_grad_() for one in (x, w)]
                y = function(*leaves)
                y.float().square().mean().backward()
                found.append((y.detach(), *(one.grad for one in leaves)))
            for one, other in zip(*found, strict=True):
                assert one.stride() == other.stride()
                assert (one - other).norm() <= 2e-2 * other.norm()
    assert f.report().break_count == 0, str(f.report())
