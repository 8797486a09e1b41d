"""Architectures of the transformers library, by small random configurations: no model hub is asked.

Needs `pip install transformers` (4.57.6 is the version it was written for). A configuration is shrunk by the names of its numbers (`small`),
inputs are made for the names of the arguments of `forward` (`forms`), and the first combination that plain Python accepts is a case.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from typing import Any

import torch

from .case import Case, Given, Size, disturbed, fitting
from .forms import SIZES, combinations, forms, parameters
from .looks import TOKENS
from .small import ONLY_COUNTS, VARIANTS, Variant, shrink
from .torchvision_import import load as load_torchvision

NEEDS = "transformers==4.57.6"
LARGEST = 60_000_000  # parameters


def load() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    with contextlib.suppress(ImportError):  # a few models have a backbone of theirs
        load_torchvision()
    import transformers
    import transformers.generation
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")


def names() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)


def prepared(name: str) -> Case:
    """The first variant that plain Python accepts. Raises what the first one raised where it accepts none."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, MODEL_MAPPING

    kind = CONFIG_MAPPING[name]
    chosen = MODEL_MAPPING if kind in MODEL_MAPPING else MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING
    problem: Exception | None = None
    for variant in VARIANTS:
        try:
            model, config = _built(chosen[kind], kind, variant)
            return fitting(
                lambda combination: _case(model, config, combination, kind, variant),  # noqa: B023
                combinations(model, config),
            )
        except Exception as error:
            problem = problem or error
    raise problem or ValueError("forward has no argument of a known name")


def _built(classes: Any, kind: Any, variant: Variant) -> tuple[Any, Any]:
    torch.manual_seed(0)
    config = shrink(kind, variant)
    cls = classes[0] if isinstance(classes, list | tuple) else classes
    if variant is ONLY_COUNTS and _size(cls, config) > LARGEST:
        raise ValueError("no small configuration of it is known")
    return disturbed(cls(config)), config


def _size(cls: Any, config: Any) -> int:
    """The number of parameters; 0 for a model that needs values while it is built."""
    try:
        with torch.device("meta"):
            return sum(x.numel() for x in cls(copy.deepcopy(config)).parameters())
    except (NotImplementedError, RuntimeError):
        return 0


def _case(model: Any, config: Any, combination: Any, kind: Any, variant: Variant) -> Case:
    known = parameters(model)

    def make(size: Size, masked: bool) -> Given:
        made = {name: forms(name, config, *size)[number] for name, number in combination}
        ids = made.get("input_ids")
        if masked and ids is not None and ids.dim() == 2 and "attention_mask" in known:
            made["attention_mask"] = mask = torch.ones(size, dtype=torch.long)
            mask[1:, size[1] - 3 :] = 0  # padding
        return (), made

    maskable = "attention_mask" in make(SIZES[0], True)[1]
    return Case(model, make, SIZES, maskable, lambda: _generating(kind, variant))


def _generating(kind: Any, variant: Variant) -> Case | None:
    """The model with a head, where plain Python generates from one of these inputs."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    )

    for mapping, name in (
        (MODEL_FOR_CAUSAL_LM_MAPPING, "input_ids"),
        (MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, "input_ids"),
        (MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, "input_features"),
        (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, "input_ids"),
    ):
        if kind not in mapping:
            continue
        try:
            model, config = _built(mapping[kind], kind, variant)
        except Exception:
            continue
        options = _options(model)
        for number in range(len(forms(name, config, *SIZES[0]))):

            def make(size: Size, masked: bool, number: int = number) -> Given:
                return (), {name: forms(name, config, *size)[number], **options}  # noqa: B023

            case = Case(model, make, SIZES)
            try:
                for size in SIZES:
                    model.generate(**case.given(size, masked=False, seed=1)[1])
                return case
            except Exception:
                continue
    return None


def _options(model: Any) -> dict[str, Any]:
    """Greedy, as many tokens in any case. Ids that the small vocabulary does not have are replaced."""
    given = model.generation_config
    given.eos_token_id = None
    given.pad_token_id = 0
    if given.decoder_start_token_id is None or given.decoder_start_token_id > 80:
        given.decoder_start_token_id = 1
    return {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
