"""Attention as torch's libraries for GPUs answer it: nine or four results, some of them numbers, some no tensors.

`chosen(backend)` is a block in which `scaled_dot_product_attention` on the fake devices takes a backend, by
`torch.nn.attention.SDPBackend`. Without one it is written out, as everywhere else.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend

aten = torch.ops.aten


@contextlib.contextmanager
def chosen(backend: SDPBackend) -> Iterator[None]:
    """Within the block. torch's own choice is C++ that a build without CUDA lacks."""
    library = torch._C._dispatch_library("IMPL", "aten", "AutogradCUDA", __file__, 0)
    name = aten.scaled_dot_product_attention.default._name
    library.impl(name, "AutogradCUDA", functools.partial(_attention, backend), False)
    yield


def _attention(
    backend: SDPBackend, q, k, v, mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
) -> torch.Tensor:  # fmt: skip
    with_sums = torch.is_grad_enabled() and q.requires_grad
    if backend is SDPBackend.FLASH_ATTENTION:
        assert mask is None
        return aten._scaled_dot_product_flash_attention(
            q, k, v, dropout_p, is_causal, False, scale=scale
        )[0]
    if mask is not None:
        mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if backend is SDPBackend.EFFICIENT_ATTENTION:
        call = aten._scaled_dot_product_efficient_attention
        return call(q, k, v, mask, with_sums, dropout_p, is_causal, scale=scale)[0]
    call = aten._scaled_dot_product_cudnn_attention
    return call(q, k, v, mask, with_sums, dropout_p, is_causal, False, scale=scale)[0]


def _scores(q: Any, k: Any, bias: Any, is_causal: bool, scale: float | None) -> torch.Tensor:
    scores = q.float() @ k.float().transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if is_causal:
        rows, columns = scores.shape[-2:]
        kept = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~kept, float("-inf"))
    return scores if bias is None else scores + bias


def _forward(
    q: Any, k: Any, v: Any, bias: Any, is_causal: bool, scale: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _scores(q, k, bias, is_causal, scale)
    return (scores.softmax(-1) @ v.float()).to(q.dtype), scores.logsumexp(-1)


def _backward(
    grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, sums: Any, is_causal: bool, scale: Any
) -> tuple[torch.Tensor, ...]:
    of_q = scale or q.shape[-1] ** -0.5
    p = (_scores(q, k, bias, is_causal, scale) - sums.unsqueeze(-1)).exp()
    grad, out = grad.float(), out.float()
    of_p = grad @ v.float().transpose(-1, -2)
    of_s = p * (of_p - (grad * out).sum(-1, keepdim=True))
    found = (of_s @ k.float() * of_q, of_s.transpose(-1, -2) @ q.float() * of_q, p.transpose(-1, -2) @ grad, of_s)  # fmt: skip
    return tuple(one.to(q.dtype) for one in found)


def _nothing(q: Any, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=q.device)


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    out, sums = _forward(q, k, v, None, is_causal, scale)
    seeds = _nothing(q, 2, dtype=torch.uint64), _nothing(q, dtype=torch.uint64)
    mask = _nothing(q, 0, dtype=q.dtype)
    return torch.empty_like(q).copy_(out), sums, None, None, q.shape[2], k.shape[2], *seeds, mask


def flash_backward(
    grad, q, k, v, out, sums, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):  # fmt: skip
    assert (max_q, max_k) == (q.shape[2], k.shape[2]) and seed.dtype == torch.uint64
    found = _backward(grad, q, k, v, None, out, sums, is_causal, scale)
    return tuple(torch.empty_like(one).copy_(g) for one, g in zip((q, k, v), found, strict=False))


def efficient(q, k, v, bias, with_sums, dropout_p=0.0, is_causal=False, *, scale=None):
    out, sums = _forward(q, k, v, bias, is_causal, scale)
    padded = _nothing(q, *sums.shape[:2], -(-sums.shape[2] // 32) * 32 if with_sums else 0, dtype=torch.float32)  # fmt: skip
    if with_sums:
        padded[..., : sums.shape[2]] = sums
    out = out.transpose(1, 2).contiguous().transpose(1, 2)
    recorded = torch.cuda.is_current_stream_capturing()
    seeds = (torch.zeros((), dtype=torch.int64, device=q.device if recorded else "cpu") for _ in range(2))  # fmt: skip
    return out, padded, *seeds


def efficient_backward(
    grad, q, k, v, bias, out, sums, seed, offset, dropout_p, asked, is_causal=False, *, scale=None
):
    sums = sums[..., : q.shape[2]]
    *found, of_s = _backward(grad, q, k, v, bias, out, sums, is_causal, scale)
    found = [one.transpose(1, 2).contiguous().transpose(1, 2) for one in found]
    return *found, of_s if asked[3] else None


def cudnn(
    q, k, v, bias, with_sums, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    out, sums = _forward(q, k, v, bias, is_causal, scale)
    seeds = _nothing(q), _nothing(q)
    sums = sums.unsqueeze(-1) if with_sums else None
    return torch.empty_like(q).copy_(out), sums, None, None, q.shape[2], k.shape[2], *seeds, None


def cudnn_backward(
    grad, q, k, v, out, sums, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *, scale=None
):  # fmt: skip
    found = _backward(grad, q, k, v, bias, out, sums.squeeze(-1), is_causal, scale)
    return tuple(torch.empty_like(one).copy_(g) for one, g in zip((q, k, v), found, strict=False))


KERNELS = {
    aten._fused_sdp_choice.default: lambda *args, **kwargs: SDPBackend.MATH.value,
    aten._scaled_dot_product_flash_attention.default: flash,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_efficient_attention.default: efficient,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    aten._scaled_dot_product_cudnn_attention.default: cudnn,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
}
