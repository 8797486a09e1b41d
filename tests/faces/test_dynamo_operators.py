"""torch's database of operators through `torch.compile(..., backend="graftjit")`: values, gradients and strides."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

PARTS = 24
# their results are memory that nothing has written
UNWRITTEN = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")  # fmt: skip
OPERATORS = sorted(
    (
        op
        for op in op_db
        if torch.float32 in op.supported_dtypes("cpu") and op.name not in UNWRITTEN
    ),
    key=lambda op: (op.name, op.variant_test_name),
)


def own(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return copy.copy(value)
    return value.detach().clone().requires_grad_(value.requires_grad)


def outcome(f: Any, sample: Any) -> tuple[Any, ...]:
    """Results, gradients of the inputs, and the results' dtypes and strides."""
    torch.manual_seed(0)
    x, args, kwargs = tree_map(own, (sample.input, sample.args, sample.kwargs))
    made = [one for one in tree_leaves(f(x, *args, **kwargs)) if isinstance(one, torch.Tensor)]
    inputs = [
        one
        for one in tree_leaves((x, args, kwargs))
        if isinstance(one, torch.Tensor) and one.requires_grad
    ]
    sums = [one.abs().sum() for one in made if one.requires_grad]
    found = torch.autograd.grad(sum(sums), inputs, allow_unused=True) if sums and inputs else ()
    return [one.detach() for one in made], found, [(one.dtype, one.stride()) for one in made]


def chosen(op: Any) -> Any:
    """One of the operator's samples that eager mode runs; None if there is none."""
    try:
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
        sample = random.Random(op.name).choice(samples)
        outcome(op, sample)
    except Exception:
        return None
    return sample


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part: int) -> None:
    ran = 0
    for op in OPERATORS[part::PARTS]:
        sample = chosen(op)
        if sample is None:
            continue
        ran += 1

        def f(x: Any, *args: Any, op: Any = op, **kwargs: Any) -> Any:
            return op(x, *args, **kwargs)

        torch.compiler.reset()
        wanted = outcome(f, sample)
        found = outcome(torch.compile(f, backend="graftjit"), sample)
        torch.testing.assert_close(
            found[:2], wanted[:2], equal_nan=True, rtol=1e-4, atol=1e-5, msg=lambda m, op=op: f"{op.name}: {m}"
        )  # fmt: skip
        if found[2] != wanted[2]:
            torch.compiler.reset()
            # where Dynamo itself changes them
            wanted = outcome(torch.compile(f, backend="eager"), sample)
        assert found[2] == wanted[2], op.name
    assert ran > 0.8 * len(OPERATORS[part::PARTS])
