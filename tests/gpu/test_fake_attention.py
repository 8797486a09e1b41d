"""Attention by the libraries for GPUs, whose operators give numbers and no tensors beside tensors: on the fake device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

import graftjit
from graftjit import jit

from ..fake_cuda.attention import chosen

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
pytestmark = pytest.mark.parametrize("backend", BACKENDS, ids=lambda one: one.name)


def attended(x, w, mask=None):
    q, k, v = (x @ w).unflatten(-1, (3, 2, 8)).unbind(-3)
    q, k, v = (one.transpose(1, 2) for one in (q * 2, k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return torch.relu(y.transpose(1, 2).flatten(-2)) + x


def given(mask):
    x, w = torch.randn(2, 5, 16, device="cuda"), torch.randn(16, 48, device="cuda") / 4
    return (x, w, torch.randn(2, 1, 5, 5, device="cuda")) if mask else (x, w)


def masks(backend):
    return (False,) if backend is SDPBackend.FLASH_ATTENTION else (False, True)


@torch.no_grad()
def test_forward(fake_gpu, backend):
    with chosen(backend):
        for mask in masks(backend):
            f = jit(attended)
            for _ in range(3):
                inputs = given(mask)
                torch.testing.assert_close(f(*inputs), attended(*inputs))
            assert (f.report().graph_count, f.report().break_count) == (1, 0), str(f.report())


@pytest.mark.parametrize("mode", ["auto", "sink"])
def test_gradients(fake_gpu, graphs, backend, mode):
    with chosen(backend):
        f = jit(attended, config=graftjit.JitConfig(exec_mode=mode))
        for _ in range(6):
            inputs = given(False)
            found = []
            for function in (f, attended):
                x, w = (one.clone().requires_grad_() for one in inputs)
                function(x, w).square().sum().backward()
                found.append((x.grad, w.grad))
            torch.testing.assert_close(*found)
        assert (graphs.made > 1) == (mode == "sink")
        assert not [row for row in f.report().notes if row.code == "FB330"], str(f.report())
        assert (f.report().graph_count, f.report().break_count) == (1, 0), str(f.report())


@torch.no_grad()
def test_sizes_that_vary(fake_gpu, backend):
    with chosen(backend):
        f = jit(attended, dynamic=True)
        for length in (5, 7, 9, 5, 12):
            x, w = (
                torch.randn(2, length, 16, device="cuda"),
                torch.randn(16, 48, device="cuda") / 4,
            )
            torch.testing.assert_close(f(x, w), attended(x, w))
