"""Small configurations of the transformers library.

In: a configuration class. Out: an instance that is small in all its parts. Numbers are chosen by the names of the constructor's parameters, so that no
architecture needs an entry of its own; `VARIANTS` are further choices for those that the first one does not fit. Called by `transformers_models`.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

VOCABULARY = 99

# A number becomes what is beside the first pattern that its name matches, if it is greater.
NUMBERS: tuple[tuple[str, int], ...] = (
    (r"type_vocab_sizes?|modality_type_vocab_size|.*experts_per_tok(en)?|moe_top_?k|moe_k|n_groups?|topk_group", 2),
    (r".*vocab.*size.*|.*_vocab|num_embeddings|n_token", VOCABULARY),
    (r"codebook_size", 64),  # a power of two
    (r"max_2d_position_embeddings|max_xpath.*", 128),
    (r"max_source_positions|num_mel_bins|feature_size|input_feat_per_channel|feature_projection_input_dim", 16),
    (r".*max.*position.*|n_positions|n_ctx|max_seq_len|context_length|seq_length|.*context_window", 64),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num", 2),
    (r".*attention_heads|num_heads|n_heads?|.*num_head|num_.*_heads", 4),
    (r".*(hidden_layers|num_layers|n_layers?|_layers|num_blocks|depth)|num_hidden_groups", 2),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|linear_units|intermediate_dim)", 64),
    (r"d_ff|dff|dim_ff|n_inner|.*(dim_feedforward|feedforward_dim)", 64),
    (r".*head_dim|d_kv|d_head|kv_channels|attention_head_size|dim_head|.*_rank|patch_size|encoder_stride", 8),
    (r"qk_rope_head_dim|rotary_dim", 4),
    (r".*num_(local_)?experts|n_(routed_)?experts|zero_expert_num|num_frames|frames_per_clip", 4),
    (r"image_size|pretrain_image_size|visual_feature_size", 32),
    (r"num_quer.*|num_latents|num_detection_tokens|.*num_proposals|num_denoising", 8),
    (r"num_conv_pos_embeddings|.*chunk_size|block_size|sliding_window|attention_window|local_radius", 8),
    (r"attention_window_size|window_size", 8),
    (r"num_conv_pos_embedding_groups|conv_depthwise_kernel_size", 4),
    (r"(de|en)coder_kernel_size", 3),
    (r".*(hidden_size|d_model|n_embd|embedding_size|dim|_width|_channels)|mask_feature_size", 32),
    (r"d_inner|state_size|d_latents|entity_emb_size", 32),
)  # fmt: skip
# Parameters that are None by default, and are then derived from others in a way that the small numbers do not fit.
UNSET = {"head_dim": 8, "vocab_size": VOCABULARY, "prediction_length": 8, "pad_token_id": 1, "num_experts_per_tok": 2, "n_routed_experts": 4}  # fmt: skip
# Kernels that other packages bring.
OFF = ("use_mamba_kernels",)
# What another part selects of this one.
SELECTED = ("out_features",)
# Derived from numbers of layers, which differ by now.
DERIVED = ("layer_types", "layers_block_type", "layer_type", "attention_layers", "no_rope_layers", "mlp_layer_types")  # fmt: skip
RANDOM = re.compile(r".*(dropout|drop_rate|drop_path|layerdrop|pdrop|dropatt|mask_time_prob|mask_feature_prob|apply_spec_augment|drop_prob|jitter_noise).*")  # fmt: skip
LAYERS = re.compile(r"depths?|.*(num_blocks|block_repeats|numb_of_layers|_layers)|layers_per_stage|n_attn_blocks")  # fmt: skip
WIDTHS = re.compile(r"(?!.*(kernel|patch|pool|window|output|stride|image|train)).*(sizes|dims?|channels)")  # fmt: skip

# The numbers whose change no architecture minds: those of layers, words and experts.
COUNTS = re.compile(r".*vocab.*size.*|.*_vocab|.*(layers|n_layers?|num_blocks|depth|experts)|.*experts_per_tok(en)?|moe_top_?k|moe_k|n_group|topk_group")  # fmt: skip
ONLY_COUNTS = {"": 0}
Variant = dict[str, Any]
VARIANTS: tuple[Variant, ...] = (
    {},
    {"num_key_value_heads": 4, "head_dim": 8},
    {"hidden_size": 64, "d_model": 64, "image_size": 64, "patch_size": 16},
    {"image_size": 64, "hidden_size": 128, "d_model": 128, "num_hidden_layers": 4, "attention_window": 4},
    {"head_dim": 16, "feature_size": 32},
    {"rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
    ONLY_COUNTS,
)  # fmt: skip


def shrink(kind: Any, variant: Variant, given: Any = None) -> Any:
    """A small configuration of the class `kind`, with the parts that `given`, or one by default, has."""
    from transformers import PretrainedConfig

    given = kind() if given is None else given
    chosen: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        part = getattr(given, name, None)
        if isinstance(part, PretrainedConfig):
            chosen[name] = shrink(type(part), variant, part)
        elif name not in DERIVED and parameter.default is not inspect.Parameter.empty:
            value = _unset(name, variant)
            if part is not None:
                value = part if name in SELECTED else small(name, parameter.default, variant)
            if value is not None and value != parameter.default:
                chosen[name] = value
    try:  # most classes want their parts as dicts, some as objects
        config = kind(**{key: value.to_dict() if isinstance(value, PretrainedConfig) else value for key, value in chosen.items()})  # fmt: skip
    except Exception:
        config = kind(**chosen)
    for name, value in list(vars(config).items()):  # what the class hands on to its base
        if RANDOM.fullmatch(name) or (name.endswith("_token_id") and name not in chosen):
            setattr(config, name, small(name, value, variant))
    if getattr(config, "pad_token_id", None) is not None and config.pad_token_id >= VOCABULARY - 9:
        config.pad_token_id = 1
    return config


def _unset(name: str, variant: Variant) -> Any:
    """What stands for None."""
    if variant is ONLY_COUNTS and name != "vocab_size":
        return None
    return UNSET.get(name, variant.get(name))


def small(name: str, value: Any, variant: Variant) -> Any:
    """What stands for `value` of the parameter `name`: a number of NUMBERS, a list as long as it is, or itself."""
    if RANDOM.fullmatch(name):
        return _without(value)
    if name in OFF:
        return False
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith(("token_id", "token_index", "_id")) and value >= VOCABULARY:
            return VOCABULARY - 9 + sum(map(ord, name)) % 9
        if variant is ONLY_COUNTS and not COUNTS.fullmatch(name):
            return value
        table = (number for pattern, number in NUMBERS if re.fullmatch(pattern, name) and number < value)  # fmt: skip
        return variant.get(name, next(table, value))
    if (
        not isinstance(value, list | tuple)
        or not value
        or any(type(item) is not int for item in value)
    ):
        return value
    if LAYERS.fullmatch(name) and max(value) < 30 and "encode_proj" not in name:
        return type(value)([1] * len(value))
    if variant is ONLY_COUNTS:
        return value
    if name.endswith("heads"):
        return type(value)([min(item, 2) for item in value])
    if WIDTHS.fullmatch(name) and min(value) >= 16:
        # Of what follows a backbone without its first stage.
        least = 32 if name.endswith("coder_in_channels") else 16
        return type(value)([max(16, item * least // min(value) // 8 * 8) for item in value])
    return value


def _without(value: Any) -> Any:
    """The probability of nothing, in the form of `value`."""
    if isinstance(value, list | tuple):
        return type(value)([0.0] * len(value))
    return False if value is True else 0.0 if isinstance(value, float) else value
