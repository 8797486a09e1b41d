"""The workloads, as one table: what is computed, on what, and the bounds that it has to keep.

In: nothing. Out: `WORKLOADS`, rows of a name, the measurements and the group it belongs to, and `make`, which gives the
function or module and its inputs, the same ones for the same seed. Used by `steady_state` (in one process)
and `first_call` (one process a measurement). `LIMITS` has the bounds of all rows, `GROUP_LIMITS` those of geometric means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from . import kernels as k
from .models import (
    attention,
    bert,
    gpt2,
    large,
    llama,
    mamba,
    mlp,
    moe,
    recurrent,
    t5,
    trained,
    vision,
    whisper,
)
from .steps import Loss, Step, training, whole

Made = tuple[Callable[..., Any], tuple[Any, ...]]
PEER, EAGER = "torch.compile", "eager"

# Groups, in the order of reports.
GROUPS: dict[str, str] = {
    "call": "calls on tiny inputs",
    "pointwise": "pointwise",
    "reductions": "normalisations and reductions",
    "movement": "transposes, broadcasts, indices",
    "models": "small models",
    "large": "first calls of large graphs",
    "training": "steps of training",
    "steps": "whole steps of training, with the optimizer",
}

# What every workload keeps: the most that graftjit's may be of another system's. `time` is judged on the quartiles of
# the rounds' ratios; `memory` on peak bytes of a call; `error` on errors against float64, in units of eager's.
LIMITS: dict[str, dict[str, float]] = {
    "time": {EAGER: 1.03},
    "memory": {EAGER: 1.0, PEER: 1.0},
    "error": {EAGER: 2.0},
}
# The same for the geometric mean of the ratios of time in a group.
GROUP_LIMITS: dict[str, dict[str, float]] = {
    "models": {PEER: 1 / 1.15},
    "training": {PEER: 1 / 1.1},
    "steps": {PEER: 1 / 1.1},
}


@dataclass(frozen=True, slots=True)
class Workload:
    """`make` gives a function, a module, or a `steps.Step`. `bounds`: other system -> the most that graftjit's time may be of its time, beyond `LIMITS`.
    `sparse`: which inputs are read in few places (tables), so that their bytes do not count as moved."""

    name: str
    what: tuple[str, ...]  # of "call", "first", "steady"
    group: str
    make: Callable[[], Made]
    note: str
    bounds: dict[str, float] = field(default_factory=dict)
    sparse: tuple[int, ...] = ()

    @property
    def time_bounds(self) -> dict[str, float]:
        return LIMITS["time"] | self.bounds


def on(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Made]:
    """A function on normal random tensors of these shapes."""
    return lambda: (function, tuple(torch.randn(shape) for shape in shapes))


def model(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], Made]:
    """A module in evaluation mode on normal random tensors."""
    return lambda: (build().eval(), tuple(torch.randn(shape) for shape in shapes))


def with_inputs(
    function: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]]
) -> Callable[[], Made]:
    return lambda: (function, inputs())


def reading(
    build: Callable[[], nn.Module], *shapes: tuple[int, ...], words: int = 1000
) -> Callable[[], Made]:
    """A module in evaluation mode on tokens."""
    return lambda: (build().eval(), tuple(torch.randint(0, words, shape) for shape in shapes))


def _bert() -> Made:
    kept = (torch.arange(64)[None] < torch.tensor([64, 50, 37, 11])[:, None]).long()
    return bert.Bert().eval(), (torch.randint(0, 2000, (4, 64)), torch.randint(0, 2, (4, 64)), kept)


def _digits(build: Callable[[], nn.Module], count: int = 32) -> Callable[[], Made]:
    """Training on images of digits."""
    return lambda: (
        training(Loss(build(), nn.functional.cross_entropy, 1)), trained.digits(count),
    )  # fmt: skip


def _squares(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], Made]:
    """Training of a module, on normal random tensors, towards nothing."""
    return lambda: (
        training(Loss(build(), trained.squares)), tuple(torch.randn(shape) for shape in shapes),
    )  # fmt: skip


def _conv_net() -> Made:
    module = Loss(trained.large_convolutions(), nn.functional.cross_entropy, 1)
    return training(module), (torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,)))


def _trained_bert() -> Made:
    module, inputs = _bert()
    assert isinstance(module, nn.Module)
    return training(Loss(module, trained.squares)), inputs


def _trained_llama() -> Made:
    words = torch.randint(0, 2000, (2, 65))
    module = Loss(llama.Llama(), trained.next_word, 1)
    return training(module), (words[:, :-1].contiguous(), words[:, 1:].contiguous())


def _whole(make: Callable[[], Made], optimizer: str = "AdamW") -> Callable[[], Made]:
    """The same training with its optimizer, as one function."""

    def made() -> Made:
        step, inputs = make()
        assert isinstance(step, Step)
        return whole(step.module, optimizer), inputs

    return made


def _characters() -> Made:
    module = Loss(trained.Characters(), trained.next_word, 1)
    return training(module), trained.characters(8, 32)


def _bf16_chain() -> tuple[Any, ...]:
    return tuple(torch.randn(1 << 20).bfloat16() for _ in range(3))


def _bf16_mlp() -> Made:
    return mlp.Residual().bfloat16().eval(), (torch.randn(32, 256).bfloat16(),)


def _integers() -> tuple[Any, ...]:
    return tuple(torch.randint(-1000, 1000, (1 << 20,)) for _ in range(2))


def _images() -> tuple[Any, ...]:
    return (torch.randint(0, 256, (8, 3, 224, 224), dtype=torch.uint8), torch.rand(3), torch.rand(3) + 0.1)  # fmt: skip


def _adam() -> tuple[Any, ...]:
    p, g, m = (torch.randn(1 << 19) for _ in range(3))
    return p, g, m, torch.rand(1 << 19)


def _rotary() -> tuple[Any, ...]:
    angles = torch.rand(512, 1, 64) * 6
    return torch.randn(2, 512, 8, 64), torch.randn(64), angles.cos(), angles.sin()


def _masked_attention() -> Made:
    padding = torch.arange(128)[None] >= torch.tensor([128, 100, 77, 20])[:, None]
    return attention.MaskedAttention().eval(), (torch.randn(4, 128, 256), padding)


def _embedding() -> tuple[Any, ...]:
    tables = torch.randn(20000, 256), torch.randn(512, 256), torch.randn(256), torch.randn(256)
    return torch.randint(0, 20000, (8, 128)), *tables


def _graph() -> tuple[Any, ...]:
    return (torch.randn(4000, 64), torch.randint(0, 4000, (20000,)), torch.randint(0, 4000, (20000,)))  # fmt: skip


_CALL, _FIRST, _STEADY, _BOTH = ("call",), ("call", "first"), ("steady",), ("steady", "first")
_LARGE = ("first",)
_ROWS, _WIDE = (4096, 1024), (1024,)
_EVEN = {PEER: 1.0}
_MODEL = {PEER: 1 / 0.95}

WORKLOADS: tuple[Workload, ...] = (
    Workload("sin_add", _FIRST, "call", on(k.sin_add, (8,), (8,)), "sin(x) + y*2 on 8 floats",
             {EAGER: 1.0, PEER: 1 / 4}),
    # It does nothing: what is measured is a call of nothing, beside one of Python's.
    Workload("identity", _CALL, "call", on(lambda x: x, (8,)), "lambda x: x", {EAGER: 2.0}),
    Workload("add_eight", _CALL, "call", on(k.add_eight, *[(8,)] * 8), "sum of eight tensors of 8 floats"),
    Workload("network_1", _FIRST, "call", model(mlp.Network, (1, 1, 28, 28)), "Flatten+784-512-512-10, batch 1",
             {EAGER: 1.0, PEER: 1 / 1.6}),
    Workload("network_64", _CALL, "call", model(mlp.Network, (64, 1, 28, 28)), "Flatten+784-512-512-10, batch 64",
             {EAGER: 1.0}),
    Workload("deep_narrow", _CALL, "call", model(mlp.deep_narrow, (1, 4)), "64 x (Linear(4) + LayerNorm + ReLU), 1 row"),
    Workload("deep_narrow_2", _CALL, "call", model(mlp.deep_narrow, (2, 4)),
             "64 x (Linear(4) + LayerNorm + ReLU), 2 rows", {PEER: 1 / 2}),

    Workload("chain", _STEADY, "pointwise", on(k.chain, (1 << 20,)), "gelu, tanh, sigmoid on 1M floats", _EVEN),
    Workload("swiglu", _STEADY, "pointwise", on(k.swiglu, (512, 3072), (512, 3072)), "silu(x) * y [512, 3072]", _EVEN),
    Workload("bias_gelu", _STEADY, "pointwise", on(k.bias_gelu, (512, 3072), (3072,)), "gelu-tanh(x + b) [512, 3072]"),
    Workload("bf16_chain", _STEADY, "pointwise", with_inputs(k.scale_gate, _bf16_chain), "gated gelu, 1M bfloat16", _EVEN),
    Workload("int_where_mod", _STEADY, "pointwise", with_inputs(k.int_where_mod, _integers), "where, %, // on 1M int64", _EVEN),
    Workload("thirty", _STEADY, "pointwise", on(k.thirty, (1 << 18,), (1 << 18,)), "30 operators on 256k floats", _EVEN),
    Workload("normalise_image", _STEADY, "pointwise", with_inputs(k.normalise_image, _images), "uint8 [8, 3, 224, 224] to floats"),
    Workload("adam", _STEADY, "pointwise", with_inputs(k.adam, _adam), "a step of Adam on 512k floats"),
    Workload("mish_clamp", _STEADY, "pointwise", on(k.mish_clamp, (1 << 19,)), "mish, clamp, hardswish, softplus"),

    Workload("softmax", _STEADY, "reductions", on(k.softmax, _ROWS), "softmax [4096, 1024]", _EVEN),
    Workload("layer_norm", _STEADY, "reductions", on(k.layer_norm, _ROWS, _WIDE, _WIDE), "layer norm [4096, 1024]", _EVEN),
    Workload("softmax_long", _STEADY, "reductions", on(k.softmax, (8, 200000)), "softmax [8, 200000]", _EVEN),
    Workload("column_stats", _STEADY, "reductions", on(k.column_statistics, _ROWS), "mean, std of columns [4096, 1024]", _EVEN),
    Workload("cross_entropy", _STEADY, "reductions",
             with_inputs(k.cross_entropy, lambda: (torch.randn(512, 10000), torch.randint(0, 10000, (512,)))),
             "cross-entropy [512, 10000]", _EVEN),
    Workload("rms_rotary", _STEADY, "reductions", with_inputs(k.rms_rotary, _rotary), "RMS norm, rotary [2, 512, 8, 64]", _EVEN),
    Workload("residual_norm", _STEADY, "reductions", on(k.residual_layer_norm, _ROWS, _ROWS, _WIDE, _WIDE),
             "x + r, then layer norm [4096, 1024]"),
    Workload("rms_norm", _STEADY, "reductions", on(k.rms_norm, _ROWS, _WIDE), "RMS norm [4096, 1024]"),
    Workload("masked_softmax", _STEADY, "reductions",
             with_inputs(k.masked_softmax, lambda: (torch.randn(1024, 1024), torch.rand(1024, 1024) > 0.7)),
             "scale, mask, softmax [1024, 1024]"),
    Workload("group_norm_silu", _STEADY, "reductions", on(k.group_norm_silu, (2, 128, 48, 48), (128,), (128,)),
             "group norm, silu [2, 128, 48, 48]"),
    Workload("top_sampling", _STEADY, "reductions", on(k.top_sampling, (16, 32000)), "top 50 of [16, 32000], softmax"),
    Workload("contrastive", _STEADY, "reductions", on(k.contrastive, (256, 256), (256, 256)), "contrastive loss [256, 256]"),
    Workload("gaussian_loss", _STEADY, "reductions", on(k.gaussian_loss, (256, 64), (256, 64), (256, 784), (256, 784)),
             "loss of a variational autoencoder"),
    Workload("value_range", _STEADY, "reductions", on(k.any_nan_range, (1 << 20,)), "isnan.any, amin, amax of 1M floats"),

    Workload("transpose_add", _STEADY, "movement", on(k.transpose_add, (1536, 1536), (1536, 1536)), "x.t() + y [1536, 1536]", _EVEN),
    Workload("pairwise", _STEADY, "movement", on(k.pairwise, (384, 64), (384, 64)), "distances [384, 64] x [384, 64]", _EVEN),
    Workload("embedding", _STEADY, "movement", with_inputs(k.embed, _embedding), "embedding, positions, layer norm [8, 128, 256]",
             _EVEN, sparse=(1, 2)),
    Workload("cat_cumsum", _STEADY, "movement", on(k.cat_cumsum, (1024, 512), (1024, 512)), "cat, cumsum [1024, 1024]", _EVEN),
    Workload("histogram", _STEADY, "movement",
             with_inputs(k.histogram, lambda: (torch.randn(100000), torch.linspace(-3, 3, 63))), "counts and means of 64 bins"),
    Workload("robust_scale", _STEADY, "movement",
             with_inputs(k.robust_scale, lambda: (torch.randn(2000, 32), torch.tensor([0.25, 0.5, 0.75]))),
             "quantiles of columns [2000, 32]"),
    Workload("augment", _STEADY, "movement", on(k.augment, (8, 3, 128, 128)), "flip, roll, pad, crop [8, 3, 128, 128]"),
    Workload("windows", _STEADY, "movement", on(k.windows, (4, 56, 56, 96)), "shifted windows [4, 56, 56, 96]"),
    Workload("neighbours", _STEADY, "movement", with_inputs(k.neighbours, _graph), "graph layer, 4000 nodes, 20000 edges"),

    Workload("block", _STEADY, "models", model(attention.Block, (4, 64, 256)), "transformer block [4, 64, 256]", _MODEL),
    Workload("bert", _BOTH, "models", _bert, "BERT-like, 3 layers of 256, [4, 64]", _MODEL),
    Workload("gpt2", _STEADY, "models", reading(gpt2.Gpt2, (2, 64)), "GPT-2-like, 3 layers of 256, [2, 64]", _MODEL),
    Workload("llama", _BOTH, "models", reading(llama.Llama, (2, 64)), "Llama-like, 3 layers of 256, [2, 64]", _MODEL),
    Workload("t5", _STEADY, "models", reading(t5.T5, (2, 64), (2, 32)), "T5-like, 2 + 2 layers of 256, [2, 64]", _MODEL),
    Workload("vit", _STEADY, "models", model(vision.Vit, (2, 3, 96, 96)), "ViT-like, 3 layers of 256, [2, 3, 96, 96]", _MODEL),
    Workload("resnet", _BOTH, "models", model(vision.ResNet, (2, 3, 96, 96)), "ResNet-18-like, narrow, [2, 3, 96, 96]", _MODEL),
    Workload("whisper", _STEADY, "models", model(whisper.Whisper, (2, 80, 200)), "Whisper-like encoder, 200 frames", _MODEL),
    Workload("mamba", _STEADY, "models", reading(mamba.Mamba, (2, 40)), "Mamba-like, 2 layers of 96, scan of 40", _MODEL),
    Workload("unet_block", _STEADY, "models",
             model(vision.UnetBlock, (2, 64, 32, 32), (2, 128)), "U-Net block [2, 64, 32, 32]", _MODEL),
    Workload("autoencoder", _STEADY, "models", model(vision.Autoencoder, (4, 1, 64, 64)), "convolutional autoencoder", _MODEL),
    Workload("masked_attention", _STEADY, "models", _masked_attention, "attention, mask, dropout off [4, 128, 256]", _MODEL),
    Workload("lstm_loop", _STEADY, "models", model(recurrent.LstmLoop, (8, 24, 64)), "LSTM cell, 24 steps", _MODEL),
    Workload("gru_loop", _STEADY, "models", model(recurrent.GruLoop, (8, 24, 64)), "GRU written out, 24 steps", _MODEL),
    Workload("mlp_bf16", _STEADY, "models", _bf16_mlp, "residual MLP in bfloat16 [32, 256]", _MODEL),
    Workload("moe_routed", _STEADY, "models", model(moe.Routed, (128, 128)), "experts by indices, 128 tokens", _MODEL),
    Workload("moe_dense", _STEADY, "models", model(moe.Dense, (128, 128)), "experts in one product, 128 tokens", _MODEL),
    Workload("transformer", ("first",), "models", model(attention.stack, (4, 64, 256)), "four transformer blocks"),

    Workload("straight", _LARGE, "large", on(large.straight, (64,), (64,)), "800 pointwise operators in 500 lines"),
    Workload("layers_24", _LARGE, "large", model(large.layers, (2, 8, 64)), "24 transformer blocks"),
    Workload("resnet_50", _LARGE, "large", model(large.resnet, (1, 3, 32, 32)), "of the shape of ResNet-50, narrow"),
    Workload("loop_500", _LARGE, "large", lambda: (large.loop, (torch.randn(4, 16), torch.randn(16, 16) / 16)),
             "a recurrence of 500 steps"),
    Workload("train_block", _BOTH, "training", _squares(attention.Block, (4, 64, 256)), "transformer block [4, 64, 256]", _MODEL),
    Workload("train_conv", _BOTH, "training", _conv_net, "convolutions, batch norm [8, 3, 16, 16]", _MODEL),
    Workload("train_narrow", _BOTH, "training", _squares(mlp.deep_narrow, (2, 4)), "64 x (Linear(4) + LayerNorm + ReLU), 2 rows", _MODEL),
    Workload("train_bert", _BOTH, "training", _trained_bert, "BERT-like, 3 layers of 256, [4, 64]", _MODEL),
    Workload("train_llama", _BOTH, "training", _trained_llama, "Llama-like, 3 layers of 256, [2, 64]", _MODEL),
    Workload("train_digits", _BOTH, "training", _digits(trained.perceptron), "perceptron on digits, batch 32", _MODEL),
    Workload("train_images", _BOTH, "training", _digits(trained.convolutions), "convolutions on digits, batch 32", _MODEL),
    Workload("train_text", _BOTH, "training", _characters, "transformer over characters, [8, 32]", _MODEL),
    Workload("step_block", _BOTH, "steps", _whole(_squares(attention.Block, (4, 64, 256))), "transformer block [4, 64, 256], AdamW", _MODEL),
    Workload("step_conv", _BOTH, "steps", _whole(_conv_net, "SGD, momentum"), "convolutions, batch norm [8, 3, 16, 16], SGD", _MODEL),
    Workload("step_narrow", _BOTH, "steps", _whole(_squares(mlp.deep_narrow, (2, 4))), "64 x (Linear(4) + LayerNorm + ReLU), 2 rows, AdamW", _MODEL),
    Workload("step_bert", _BOTH, "steps", _whole(_trained_bert), "BERT-like, 3 layers of 256, [4, 64], AdamW", _MODEL),
    Workload("step_llama", _BOTH, "steps", _whole(_trained_llama), "Llama-like, 3 layers of 256, [2, 64], AdamW", _MODEL),
)  # fmt: skip

BY_NAME: dict[str, Workload] = {row.name: row for row in WORKLOADS}

# Seconds beyond importing torch that a first call may take: workload -> (empty caches, warm store).
FIRST_CALL_BOUNDS: dict[str, tuple[float, float]] = {"network_1": (1.0, 0.3)}
# The same over torch.compile's: workload, or else group -> (empty caches, warm store). A network is no tiny function.
FIRST_CALL_RATIOS: dict[str, tuple[float, float]] = {
    "network_1": (1 / 15, 1 / 20),
    "call": (1 / 60, 1 / 20),
    "models": (1 / 15, 1 / 20),
    "large": (1 / 15, 1 / 20),
    "training": (1 / 15, 1 / 20),
    "steps": (1 / 15, 1 / 20),
}
