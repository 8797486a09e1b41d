"""Programs over open sizes and numbers, as a table: compiled for the CPU and by Triton's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

T = torch.Tensor


def r(*shape: int) -> T:
    return torch.randn(*shape)


W, B, G, C = r(8, 16), r(16), r(8), r(8)

Row = tuple[str, Callable[..., Any], Callable[[int], Any], list[list[int]], int, int]

# name, function, inputs of a size, open dimensions of each tensor, kernels, library calls
ROWS: tuple[Row, ...] = (
    ("pointwise", lambda x: torch.sin(x) + x * 2, lambda n: [r(n)], [[0]], 1, 0),
    ("batch", lambda x: torch.sin(x) + x * 2, lambda n: [r(n, 8)], [[0]], 1, 0),
    ("two sizes", lambda x, y: x.sin() + y, lambda n: [r(n, n + 3), r(n, n + 3)], [[0, 1]] * 2, 1, 0),
    ("broadcast", lambda x, y: x + y, lambda n: [r(n, 5), r(5)], [[0], []], 1, 0),
    ("broadcast rows", lambda x, y: x * y, lambda n: [r(n, n + 1), r(n, 1)], [[0, 1], [0]], 1, 0),
    ("transposed", lambda x, y: x.t() + y, lambda n: [r(n, 7), r(7, n)], [[0], [1]], 1, 0),
    ("float", lambda x, a: x * a + 1, lambda n: [r(n), n * 0.3], [[0]], 1, 0),
    ("float expression", lambda x, a: x / (a * 2 + 1) - a, lambda n: [r(n), n * 0.3], [[0]], 1, 0),
    ("int", lambda x, a: x * a + a, lambda n: [r(n), n], [[0]], 1, 0),
    ("int64", lambda x, a: x.long() * a - a, lambda n: [r(n) * 9, n], [[0]], 1, 0),
    ("compared", lambda x, a: torch.where(x > a, x, 0), lambda n: [r(n), 0.01 * n], [[0]], 1, 0),
    ("bfloat16", lambda x, a: x * a + 1, lambda n: [r(n, 3).bfloat16(), n * 0.37], [[0]], 1, 0),
    ("float64", lambda x, a: x * a + a, lambda n: [r(n, 3).double(), n * 0.37], [[0]], 1, 0),
    ("size as a number", lambda x: x / x.shape[0] + x.numel(), lambda n: [r(n, 2)], [[0]], 1, 0),
    ("sum of all", lambda x: x.sum(), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("sum of rows", lambda x: x.sum(-1), lambda n: [r(7, n)], [[1]], 1, 0),
    ("sum of columns", lambda x: x.sum(0), lambda n: [r(n, 70)], [[0]], 1, 0),
    ("mean", lambda x: x.mean(0), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("middle", lambda x: x.mean(1), lambda n: [r(3, n, 5)], [[1]], 1, 0),
    ("variance", lambda x: x.var(0) + x.std(0, correction=0), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("argmax", lambda x: (x.argmax(0), x.argmax()), lambda n: [r(n, n)], [[0, 1]], 2, 0),
    ("max", lambda x: x.max(1), lambda n: [r(5, n)], [[1]], 1, 0),
    ("softmax batch", lambda x: F.softmax(x, -1), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("softmax", lambda x: F.softmax(x, -1), lambda n: [r(4, n)], [[1]], 1, 0),
    ("log softmax", lambda x: F.log_softmax(x, 0), lambda n: [r(n, 5)], [[0]], 1, 0),
    ("few classes", lambda x: F.log_softmax(x, -1) * 2, lambda n: [r(n, 37)], [[0]], 1, 0),
    ("best class", lambda x: x.argmax(-1), lambda n: [r(3, n, 16).double()], [[1]], 1, 0),
    ("logsumexp", lambda x: x.logsumexp(1), lambda n: [r(3, n)], [[1]], 1, 0),
    ("layer norm", lambda x: F.layer_norm(x, (8,), G, C), lambda n: [r(n, 8)], [[0]], 1, 0),
    ("layer norm over", lambda x: F.layer_norm(x, x.shape[1:]), lambda n: [r(4, n)], [[1]], 1, 0),
    ("gelu dropout", lambda x: F.gelu(x) * 0.5, lambda n: [r(n, 2, 3)], [[0]], 1, 0),
    ("matmul", lambda x: torch.matmul(x, W) + B, lambda n: [r(n, 3, 8)], [[0]], 1, 1),
    ("cat", lambda x, y: torch.cat([x, y]) * 2, lambda n: [r(n, 8), r(n + 1, 8)], [[0], [0]], 2, 0),
    ("slices", lambda x: x[1:] * x[:-1], lambda n: [r(n, 8)], [[0]], 1, 0),
    ("steps", lambda x: x[::2] + 1, lambda n: [r(n, 8)], [[0]], 1, 0),
    ("select", lambda x: x[-1] + x[0], lambda n: [r(n, 8)], [[0]], 1, 0),
    ("view", lambda x: (x + 1).view(-1, 2) * 3, lambda n: [r(n, 8)], [[0]], 2, 0),
    ("heads", lambda x: (x + 1).view(2, -1, 2, 4).transpose(1, 2) * 2, lambda n: [r(2, n, 8)], [[1]], 1, 0),
    ("flat", lambda x: (x + 1).flatten().sum(), lambda n: [r(2, n, 8)], [[1]], 2, 0),
    ("arange", lambda x: torch.arange(x.shape[0]) * x, lambda n: [r(n)], [[0]], 1, 0),
    ("mask", lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0]).triu(1) > 0, -9.0),
     lambda n: [r(n, n)], [[0, 1]], 1, 0),
    ("tril", lambda x: x.tril(), lambda n: [r(n, n)], [[0, 1]], 1, 0),
    ("created", lambda x: torch.zeros(x.shape) + x, lambda n: [r(n, 2)], [[0]], 1, 0),
    ("attention", lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1) @ v,
     lambda n: [r(2, n, 8), r(2, n, 8), r(2, n, 8)], [[1]] * 3, 1, 2),
    ("flash", lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + 1,
     lambda n: [r(1, 2, n, 8), r(1, 2, n, 8), r(1, 2, n, 8)], [[2]] * 3, 1, 1),
)  # fmt: skip
