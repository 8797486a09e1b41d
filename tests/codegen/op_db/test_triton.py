"""A seeded part of the sweep of triton.py: torch's operator database with Triton's kernels, in its interpreter."""

from __future__ import annotations

import importlib.util
import os
import random

import pytest
import torch

from .cases import DTYPES, case, infos, name_of, samples_of

SEED = int(os.environ.get("GRAFTJIT_OP_DB_SEED", "0"))
MANY = 60
SLOW = ("linalg", "signal", "fft", "masked", "sparse")  # much to trace, hardly any kernels
ALWAYS = ("gather", "index_add", "nn.functional.pad.replicate", "cat", "nn.functional.embedding")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(torch.__version__ < "2.13", reason="the table is that of torch 2.13"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton"),
]


def test_samples_with_tritons_kernels_agree_with_eager() -> None:
    from .triton import Worker, sweep

    rng = random.Random(SEED)
    every = [info for info in infos() if not info.name.startswith(SLOW)]
    chosen = rng.sample(every, MANY) + [info for info in every if name_of(info) in ALWAYS]
    some = []
    for info in chosen:
        dtype = DTYPES[rng.choice(("float32", "float32", "bfloat16", "float64", "int64", "bool"))]
        if name_of(info) in ALWAYS:
            dtype = torch.float32
        if dtype in info.supported_dtypes("cpu"):
            sample = next(iter(samples_of(info, dtype, seed=SEED)), None)
            one = sample and case(info, dtype, 0, sample, rng.choice(("plain", "chain")))
            some += [one] if one is not None else []
    with Worker() as worker:
        found = sweep(some, worker)
    wrong = [f"{one.case.where}: {one.said}" for one in found if one.state == "differs"]
    assert not wrong, "\n".join(wrong)
    assert sum(one.kernels for one in found) > 20
