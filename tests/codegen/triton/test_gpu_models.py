"""The model set for GPUs: every kernel of forward and backward has a text; a few of them are compiled here.

All of them: `python -m tests.codegen.triton.gpu_models --compile 90 80`.
"""

from __future__ import annotations

import functools
import importlib.util

import pytest

from .gpu_models import MODELS, Texts, compiled

# Results with gradients, where a model has more than one: BERT's states and its pooled state.
RESULTS = {"bert": 2}


@functools.cache
def texts(name):
    return Texts(name)


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_of_a_model_has_a_text(name):
    found = texts(name)
    # The forward, and a backward for each result that is differentiated apart.
    assert found.graphs == 1 + RESULTS.get(name, 1)
    assert found.launches > len(found.texts) > 10
    assert not found.declined


@pytest.mark.parametrize("name", MODELS)
def test_what_is_left_to_aten_is_what_it_does_better(name):
    left = {
        str(step.target)
        for plan in texts(name).plans
        for step in plan.steps
        if hasattr(step, "target")
    }
    few = (
        "mm",
        "addmm",
        "bmm",
        "embedding",
        "cat",
        # The gradient of a slice alone: it moves values as `cat` does.
        "pad",
        "convolution",
        "pool",
        "attention",
        "dropout",
        "bernoulli",
        "rand",
        "empty",
    )
    if not texts(name).declined:
        assert not [one for one in left if not any(word in one for word in few)]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_some_of_the_texts_compile():
    made = sorted(texts("llama").texts.items())
    assert [compiled(text, 90) for _key, text in made[::10]] == [""] * len(made[::10])
