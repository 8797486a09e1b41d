"""Functions over tensors, as people write them in the middle of a model: what `benchmarks.workloads` has rows for.

They are written for any floating dtype: the float64 reference of `benchmarks.errors` runs the same code.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


# -- calls: what a system costs on top of the work -------------------------------------------------


def sin_add(x: Tensor, y: Tensor) -> Tensor:
    return torch.sin(x) + y * 2


def add_eight(a, b, c, d, e, f, g, h):
    return a + b + c + d + e + f + g + h


# -- pointwise -------------------------------------------------------------------------------------


def chain(x: Tensor) -> Tensor:
    return torch.sigmoid(torch.tanh(F.gelu(x)))


def bias_gelu(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b, approximate="tanh")


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def scale_gate(x: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    """A chain that is run in bfloat16, rounded where eager rounds."""
    return F.gelu(x * scale + 0.5) * torch.sigmoid(gate) + x


def int_where_mod(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x % 7 > 3, x // 5 + y, (x - y) % 11)


def thirty(x: Tensor, y: Tensor) -> Tensor:
    """Thirty operators of a single pass over the data."""
    for number in range(6):
        x = torch.tanh(x * 0.5 + y) - y.abs() * (0.1 * number + 0.1)
    return x


def normalise_image(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 images to floats, as before a vision model."""
    return (x.to(mean.dtype) / 255 - mean[:, None, None]) / std[:, None, None]


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: float = 1e-3):
    """One step of Adam that gives new tensors."""
    m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
    return p - rate * (m / 0.271) / ((v / 0.002997).sqrt() + 1e-8), m, v


def mish_clamp(x: Tensor) -> Tensor:
    return F.hardswish(F.mish(x).clamp(-1.0, 2.0)) + F.softplus(x)


# -- normalisations and reductions -----------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax((x * 0.125).masked_fill(mask, float("-inf")), dim=-1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def residual_layer_norm(x, r, w, b):
    y = x + r
    return y, F.layer_norm(y, (y.shape[-1],), w, b)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def column_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(dim=0), x.std(dim=0)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target, label_smoothing=0.1)


def rms_rotary(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[batch, length, heads, size]: RMS norm over the last dimension, then rotary positions."""
    y = rms_norm(x, w)
    first, second = y.chunk(2, dim=-1)
    return y * cos + torch.cat((-second, first), dim=-1) * sin


def group_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 32, w, b))


def top_sampling(logits: Tensor) -> tuple[Tensor, Tensor]:
    """A step of generation: temperature, the best fifty, their probabilities."""
    best, where = (logits / 0.7).topk(50, dim=-1)
    return torch.softmax(best, dim=-1), where


def contrastive(a: Tensor, b: Tensor) -> Tensor:
    """The loss of pairs: cosine similarities of all with all, cross-entropy both ways."""
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() * 14.3
    labels = torch.arange(scores.shape[0])
    return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2


def gaussian_loss(mean: Tensor, log_var: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of a variational autoencoder: divergence and squared error, summed."""
    divergence = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1).mean()
    return divergence + (x - y).pow(2).mean()


def any_nan_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.isnan().any(), x.amin(), x.amax()


# -- movement: transposes, broadcasts, indices -----------------------------------------------------


def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def pairwise(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances of all rows from all rows."""
    return (a[:, None, :] - b[None, :, :]).pow(2).sum(-1).sqrt()


def embed(tokens: Tensor, words: Tensor, places: Tensor, w: Tensor, b: Tensor) -> Tensor:
    x = F.embedding(tokens, words) + places[: tokens.shape[1]]
    return F.layer_norm(x, (x.shape[-1],), w, b)


def cat_cumsum(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x, y * 2), dim=1).cumsum(dim=1)


def histogram(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Counts a bin and the mean of each bin."""
    bins = torch.bucketize(x, edges)
    zeros = torch.zeros(edges.shape[0] + 1, dtype=x.dtype)
    counts = zeros.scatter_add(0, bins, torch.ones_like(x))
    return counts, zeros.index_add(0, bins, x) / counts.clamp(min=1)


def robust_scale(x: Tensor, q: Tensor) -> Tensor:
    """Columns less their median over the range between quartiles."""
    low, middle, high = torch.quantile(x, q, dim=0)
    return (x - middle) / (high - low + 1e-6)


def augment(x: Tensor) -> Tensor:
    """Flip, shift, pad and crop of images."""
    x = torch.roll(x.flip(-1), shifts=(3, -5), dims=(-2, -1))
    return F.pad(x, (4, 4, 4, 4), value=0.5)[..., 2:-6, 6:-2].contiguous()


def windows(x: Tensor) -> Tensor:
    """Shifted windows of a Swin transformer: [batch, h, w, c] -> [windows, 8 * 8, c]."""
    batch, h, w, c = x.shape
    x = torch.roll(x, shifts=(-4, -4), dims=(1, 2))
    x = x.view(batch, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, 64, c) * 0.5


def neighbours(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Mean of neighbours, one layer of a graph network: gather along edges, add up at their ends."""
    total = torch.zeros_like(x).index_add(0, target, x[source])
    degree = torch.zeros(x.shape[0], dtype=x.dtype)
    degree = degree.scatter_add(0, target, torch.ones(target.shape[0], dtype=x.dtype))
    return torch.relu(total / degree.clamp(min=1)[:, None] + x)
