"""Greedy generation, token by token, with a cache that grows and with one of fixed size.

Small decoders in the manner of GPT-2, BERT, Llama, T5 and Mixtral: the tokens are those of plain Python, nothing is
compiled after the third token, and a token is one call of one graph.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

WIDTH, HEADS, LENGTH, TOKENS, WORDS = 16, 2, 16, 6, 19


class Growing:
    """Keys and values of a layer, with those of new tokens behind."""

    def __init__(self):
        self.keys = self.values = None

    def update(self, keys, values, at):
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class Static:
    """Memory for all positions; those of new tokens are written."""

    def __init__(self):
        self.keys = torch.zeros(2, HEADS, LENGTH, WIDTH // HEADS)
        self.values = torch.zeros(2, HEADS, LENGTH, WIDTH // HEADS)

    def update(self, keys, values, at):
        self.keys.index_copy_(2, at, keys)
        self.values.index_copy_(2, at, values)
        return self.keys, self.values


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def rotated(x, at):
    angles = at[:, None] / 10.0 ** torch.arange(0, x.shape[-1], 2).repeat(2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


class Attention(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.all = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.rotary = rotary

    def forward(self, x, at, cache):
        parts = self.all(x).view(*x.shape[:2], 3 * HEADS, -1).transpose(1, 2).chunk(3, dim=1)
        queries, keys, values = parts
        if self.rotary:
            queries, keys = rotated(queries, at), rotated(keys, at)
        keys, values = cache.update(keys, values, at)
        seen = torch.arange(keys.shape[2]) <= at[:, None]
        found = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return self.out(found.transpose(1, 2).flatten(2))


class Crossed(nn.Module):
    """Attention to the states of an encoder, with a bias by position."""

    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Embedding(LENGTH, 5)

    def forward(self, x, at, states):
        scores = self.query(x) @ states.transpose(1, 2) / math.sqrt(WIDTH) + self.bias(at)
        return self.out(scores.softmax(-1) @ states)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.gate(flat).softmax(-1).topk(2)
        mask = F.one_hot(chosen, 4).permute(2, 1, 0)
        out = torch.zeros_like(flat)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            rank, token = torch.where(mask[expert].squeeze(0))
            found = self.experts[expert](flat[token]) * weights[token, rank, None]
            out.index_add_(0, token, found)
        return out.reshape(x.shape)


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        rms = kind in ("llama", "mixtral", "t5")
        self.norms = nn.ModuleList(Norm() if rms else nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention = Attention(kind in ("llama", "mixtral"))
        self.crossed = Crossed() if kind == "t5" else None
        mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.mlp = Experts() if kind == "mixtral" else mlp
        self.after = kind == "bert"

    def forward(self, x, at, cache, states):
        first, second, third = self.norms
        if self.after:
            x = first(x + self.attention(x, at, cache))
            return second(x + self.mlp(x))
        x = x + self.attention(first(x), at, cache)
        if self.crossed is not None:
            x = x + self.crossed(third(x), at, states)
        return x + self.mlp(second(x))


class Decoder(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer(kind) for _ in range(2))
        self.placed = kind in ("gpt2", "bert")

    def forward(self, tokens, at, caches, states):
        x = self.words(tokens)
        if self.placed:
            x = x + self.places(at)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, at, cache, states)
        return x @ self.words.weight.T


def tokens_of(model, caches, states, after=lambda: None):
    """The tokens; `after()` is called after each."""
    tokens = torch.arange(10).view(2, 5) % WORDS
    at = torch.arange(5)
    given = tokens
    for _ in range(TOKENS):
        given = model(given, at, caches, states)[:, -1].argmax(-1, keepdim=True)
        tokens, at = torch.cat([tokens, given], dim=1), at[-1:] + 1
        after()
    return tokens


@pytest.mark.sweep(3)
@pytest.mark.parametrize("cache", [Growing, Static])
@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama", "t5", "mixtral"])
@torch.no_grad()
def test_greedy_generation(kind, cache):
    torch.manual_seed(3)
    model, states = Decoder(kind).eval(), torch.randn(2, 5, WIDTH)
    wanted = tokens_of(model, [cache() for _ in model.layers], states)
    compiled = graftjit.compile(model)
    made = []
    found = tokens_of(
        compiled,
        [cache() for _ in model.layers],
        states,
        lambda: made.append(graftjit.report(compiled).graph_count),
    )
    report = graftjit.report(compiled)
    assert found.tolist() == wanted.tolist()
    assert report.break_count == 0, report
    assert made[2] == made[-1], report
    # Another text of the same length meets what has been compiled.
    again = tokens_of(compiled, [cache() for _ in model.layers], states)
    assert again.tolist() == wanted.tolist()
    assert graftjit.report(compiled).graph_count == made[-1], report
