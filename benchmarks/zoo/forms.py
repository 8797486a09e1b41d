"""Tensors for the arguments of `forward` of the transformers library.

In: the name of an argument and a configuration. Out: the tensors that it may want, the likeliest first. `combinations` lists which arguments
are given together, in which forms. Called by `transformers_models`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from .small import VOCABULARY

SIZES = ((2, 8), (3, 13))  # (batch, length)
# Arguments that are given together; those that `forward` does not have are left out.
GROUPS = (
    ("input_ids", "pixel_values", "bbox", "image", "input_features", "input_values", "decoder_input_ids", "past_values", "inputs"),
    ("input_ids", "decoder_input_ids"), ("pixel_values",), ("pixel_values_videos",), ("input_features", "decoder_input_ids"), ("input_values",),
    ("input_ids", "pixel_values"), ("input_ids", "input_features"), ("input_ids", "input_values"), ("spectrogram",),
    ("pixel_values", "decoder_input_ids"), ("pixel_values", "task_inputs"), ("input_ids", "visual_feats", "visual_pos"),
    ("past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features"),
)  # fmt: skip
# Of time series, beside `past_values`.
SERIES = ("past_time_features", "past_observed_mask", "future_values", "future_time_features")


def parameters(model: Any) -> Any:
    return inspect.signature(model.forward).parameters


def combinations(model: Any, config: Any) -> Iterator[tuple[tuple[str, int], ...]]:
    for group in GROUPS:
        known = [name for name in group if name in parameters(model)]
        counts = [range(len(forms(name, config, *SIZES[0]))) for name in known]
        if known:
            yield from (tuple(zip(known, one, strict=True)) for one in itertools.product(*counts))


def forms(name: str, config: Any, batch: int, length: int) -> list[torch.Tensor]:
    """Tensors that an argument of this name may want, the likeliest first."""
    if name in ("input_ids", "decoder_input_ids"):
        vocabulary = attribute(attribute(config, "text_config", default=config), "vocab_size", "src_vocab_size", default=50)  # fmt: skip
        most = min(vocabulary, VOCABULARY - 9) if isinstance(vocabulary, int) else 16
        codes = attribute(config, "num_codebooks", "num_channels", default=8)
        return [torch.randint(2, most, (batch, length)), torch.randint(2, most, (batch, length, codes))]  # fmt: skip
    if name == "bbox":
        corners = torch.randint(0, 60, (batch, length, 2))
        return [torch.cat([corners, corners + torch.randint(0, 30, (batch, length, 2))], -1)]
    mels = attribute(config, "num_mel_bins", "input_feat_per_channel", "input_feat_size", "feature_size", "feature_projection_input_dim", default=16)  # fmt: skip
    past = attribute(config, "context_length", default=32)
    if name == "past_values":
        lags = max(attribute(config, "lags_sequence", default=[0]))
        shapes = [(past, attribute(config, "num_input_channels", default=1)), (past + lags,), (past,)]  # fmt: skip
        return [torch.rand(batch, *shape) for shape in shapes]
    if name in SERIES:
        steps = attribute(config, "prediction_length", default=8)
        if name.startswith("past"):
            steps = past + max(attribute(config, "lags_sequence", default=[0]))
        number = (attribute(config, "num_time_features", default=0),)
        shape = (batch, steps, *number) if "features" in name else (batch, steps)
        return [torch.ones(shape) if "mask" in name else torch.rand(shape)]
    if name in ("visual_feats", "visual_pos"):
        size = attribute(config, f"{name}_dim".replace("feats", "feat"), default=4)
        return [torch.rand(batch, length, size)]
    if name == "task_inputs":
        return [torch.randint(2, 40, (batch, attribute(config, "task_seq_len", default=77))).float()]  # fmt: skip
    if name in ("pixel_values", "pixel_values_videos", "image"):
        return [torch.randn(batch, *shape) for shape in _pictures(name, config)]
    if name in ("input_features", "spectrogram"):
        steps = 2 * attribute(config, "max_source_positions", default=16)
        shapes = [(steps, mels), (mels, steps), (1, 64, mels), (steps, 32)]
    elif name == "input_values":
        samples = 200 * length
        shapes = [(samples,), (1, samples), (attribute(config, "max_length", default=64), mels)]
    else:
        shapes = [(length, attribute(config, "d_model", default=32))]
    return [torch.randn(batch, *shape) for shape in shapes]


def _pictures(name: str, config: Any) -> list[tuple[int, ...]]:
    size = attribute(config, "image_size", "img_size", "crop_size", default=64)
    both = (size, size) if isinstance(size, int) else tuple(size)[:2] if isinstance(size, list | tuple) else (64, 64)  # fmt: skip
    channels = attribute(config, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    frames = attribute(config, "num_frames", "frames_per_clip", default=4)
    film = (frames, channels, *both)
    if name != "pixel_values":
        return [film, (3, 64, 64)]
    return [(channels, *both), film, (channels, 64, 64), (2, channels, *both)]


def attribute(config: Any, *names: str, default: Any) -> Any:
    """The first of these attributes that the configuration or a part of it has."""
    from transformers import PretrainedConfig

    parts = [config, *[part for part in vars(config).values() if isinstance(part, PretrainedConfig)]]  # fmt: skip
    values = (getattr(part, name, None) for name, part in itertools.product(names, parts))
    return next((value for value in values if value is not None), default)
