"""Cures that know the case, and the table's where nothing more can be said."""

from __future__ import annotations

import pytest

from graftjit.runtime import codes
from graftjit.runtime.report import cures


@pytest.mark.parametrize(
    ("code", "reason", "part"),
    [
        ("GB104", "Tensor.item()", "remove .item()"),
        ("GB104", "Tensor.tolist()", "reductions"),
        ("GB104", "float() of a tensor", "keep the tensor"),
        ("GB104", "a tensor in an f-string", "write the text after"),
        (
            "GB123",
            "percentile() of a value that is not a constant or an array made here",
            "torch.quantile",
        ),
        (
            "GB123",
            "concatenate() of a value that is not a constant or an array made here",
            "use torch.cat",
        ),
        ("GB123", "sin() of a value that is not a constant or an array made here", "use torch.sin"),
        (
            "GB114",
            "a backward through a history from outside of the graph",
            "fix the breaks before",
        ),
    ],
)
def test_breaks(code, reason, part):
    assert part in cures.of_break(code, reason)


@pytest.mark.parametrize(("code", "reason"), [("GB103", "print()"), ("GB104", "'in' on a tensor"),
                                              ("GB123", "busday_count() of a value that is not a constant or an array made here")])  # fmt: skip
def test_breaks_of_which_no_more_is_known(code, reason):
    assert cures.of_break(code, reason) == codes.lookup(code).cure


def test_every_function_of_torch_that_is_named_is_there():
    import re

    import torch

    for seen in cures.OF_NUMPY.values():
        for path in re.findall(r"torch((?:\.\w+)+)", seen):
            at = torch
            for step in path.strip(".").split("."):
                at = getattr(at, step)


@pytest.mark.parametrize(
    ("code", "source", "now", "before", "part"),
    [
        ("RC402", "x", "cpu f64[2]", "cpu f32[2]", "x.to(torch.float32)"),
        ("RC402", "x", "cpu f32[2, 3]", "cpu f32[2]", "number of dimensions"),
        ("RC402", "x", "cpu f32[3]", "cpu f32[2]", "becomes an input"),
        ("RC402", "x", "cpu f32[3] requires_grad", "cpu f32[3]", "no_grad"),
        ("RC402", "x", "cuda:0 f32[3]", "cpu f32[3]", "one device"),
        ("RC403", "k", "3", "2", "pass k as a tensor: torch.tensor(3)"),
        ("RC403", "self.k", "3.5", "2.5", "keep self.k in a tensor"),
        ("RC403", ".stack0", "np.float32(1.5)", "np.float32(2.5)", "fix the break"),
        ("RC403", "the result of f(x)", "0.25", "0.5", "after three values, graphs take it"),
        ("RC403", "self.mode", "'a'", "'b'", "each value of self.mode"),
        ("RC405", "self.seen", "3", "2", "each length of self.seen"),
        ("RC405", "self.state", "[a, b]", "[]", "none, if the first call fills it"),
        ("RC405", "self.masks", "[3, 4]", "[3]", "self.masks grows"),
        ("RC411", "relation", "x.shape[0] = 9", "x.shape[0] == 5", "x.shape[0] is looked up"),
    ],
)
def test_recompiles(code, source, now, before, part):
    assert part in cures.of_recompile(code, source, now, before)


@pytest.mark.parametrize(("code", "now", "before"), [("RC401", "int", "str"), ("RC402", "a", "b"), ("RC405", "[b]", "[a]"),
                                                     ("RC411", "x.shape[0] < 4", "x.shape[0] >= 4")])  # fmt: skip
def test_recompiles_of_which_no_more_is_known(code, now, before):
    assert cures.of_recompile(code, "x", now, before) == codes.lookup(code).cure
