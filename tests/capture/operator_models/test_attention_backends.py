"""`sdpa_kernel`: the kernels that attention may use in a block."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..harness import agrees, t

ENABLED = (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.math_sdp_enabled)


def enabled():
    return [ask() for ask in ENABLED]


@agrees(breaks=0, backward=True)
def test_attention_with_chosen_kernels():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.project = nn.Linear(8, 24)
            self.backends = [SDPBackend.MATH]

        def forward(self, x):
            q, k, v = self.project(x).chunk(3, -1)
            with sdpa_kernel(self.backends) as entered:
                inside = enabled()
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y, inside, enabled(), entered

    model = Attention()

    def others():
        model.backends[:] = [SDPBackend.FLASH_ATTENTION]

    def both():
        model.backends.append(SDPBackend.MATH)

    return model, (t(1, 2, 4, 8),), [lambda *_: None, lambda *_: others(), lambda *_: both()]


@agrees(breaks=0)
def test_the_recorded_attention_is_that_of_the_block():
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(q, q, q)
        return y, F.scaled_dot_product_attention(y, q, q), enabled()

    return f, (t(1, 2, 4, 8),)


@agrees()
def test_a_break_inside_of_the_block():
    def f(q, log, n):
        with contextlib.ExitStack() as stack:
            stack.enter_context(sdpa_kernel([SDPBackend.MATH]))
            y = F.scaled_dot_product_attention(q, q, q)
            log.append(str(y.flatten().tolist()[:1])[:3])
            log.append(enabled())
            y = F.scaled_dot_product_attention(y, q, q)
            if n:
                raise ValueError("left")
        return y, enabled()

    log: list = []
    return f, (t(1, 2, 4, 8), log, 0), [lambda *_: None, lambda *_: (t(1, 2, 4, 8), log, 1)]


@agrees()
def test_an_order_of_kernels_is_a_break():
    def f(q):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
            y = F.scaled_dot_product_attention(q, q, q)
        return y

    return f, (t(1, 2, 4, 8),)
