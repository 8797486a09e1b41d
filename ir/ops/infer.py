"""Metadata of an operator's results: from our result rule, or from torch.

The recorder calls it for each operator and the verifier for each node.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import DataDependent, NoRule, Unsupported
from ..graph.nodes import Meta
from ..graph.opdef import OPS
from ..graph.schema import Plan
from ..symbolic.expr import ACTIVE, hints
from .meta_kernels import can_sample, pinned_all, run_meta, run_sample
from .several_sizes import over_sizes

MAX_RANK = 64  # the limit of most torch kernels
# Kinds whose rules do not check that a kernel exists for a dtype, and the dtypes that all kernels
# support.
DTYPES_OF_KERNELS = frozenset(
    {"reduction", "scan", "sort", "normalize", "window", "loss", "matmul"}
)
COMMON = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.int64})
_asked: set[Any] = set()


def infer(
    plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], slow_ops: list[str] | None = None
) -> Any:
    """Meta of the result (a tuple for many). `slow_ops` collects operators without a rule."""
    _check_ranks(args)
    found = _found(plan, args, kwargs, slow_ops)
    _check_sizes(plan, found)
    return found


def _found(
    plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], slow_ops: list[str] | None
) -> Any:
    row, facts = plan.row, ACTIVE.facts
    if row is None and facts is not None and facts.from_data(args):
        row = OPS.get(plan.name.replace("_.", ".", 1))  # torch cannot be asked for such sizes
    if row is not None:
        try:
            found = row.rule(plan.op, *args, **kwargs)
        except NoRule:
            pass
        else:
            if row.kind in DTYPES_OF_KERNELS:
                _check_dtypes(plan, args, kwargs)
            return found
    if slow_ops is not None and plan.name not in slow_ops:
        slow_ops.append(plan.name)
    pure = plan.kind == "pure"
    if not plan.random:
        open_sizes = over_sizes(plan.op, args, kwargs, pure)
        if open_sizes is not None:
            return open_sizes
    if ACTIVE.facts is not None:
        ACTIVE.facts.need((args, kwargs), plan.name)
    args, kwargs = pinned_all(args), pinned_all(kwargs)  # torch gets plain sizes
    if not plan.random and can_sample(plan.op, args, kwargs):
        try:
            return run_sample(plan.op, args, kwargs, pure)
        except torch._C._LinAlgError:  # type: ignore[attr-defined]
            pass  # a matrix of zeros is singular: ask the meta kernel below
        except torch.OutOfMemoryError:
            pass  # on the device: the program needs the memory
        except NotImplementedError as error:
            raise Unsupported("no-rule", f"{plan.name}: {error}") from error
    try:
        return run_meta(plan.op, args, kwargs)
    except NotImplementedError as error:
        raise Unsupported("no-rule", f"{plan.name}: {error}") from error
    except RuntimeError as error:
        kind = type(error).__name__
        if kind in ("DynamicOutputShapeException", "DataDependentOutputException"):
            shape = kind == "DynamicOutputShapeException"
            raise DataDependent(plan.name, str(error), shape) from error
        raise


def _check_ranks(args: tuple[Any, ...]) -> None:
    """Raise for tensors of more dimensions than torch's kernels take."""
    for one in args:
        if type(one) is Meta and len(one.shape) > MAX_RANK:
            raise Unsupported("rank", f"a tensor of {len(one.shape)} dimensions")


def _check_sizes(plan: Plan, found: Any) -> None:
    """Raise for negative sizes, which torch's kernels refuse and formulas for sizes do not."""
    for one in found if type(found) is tuple else (found,):
        if type(one) is Meta and any(type(size) is int and size < 0 for size in one.shape):
            raise RuntimeError(f"{plan.name}: a negative size in {one.shape}")


def _check_dtypes(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check that the operator has a kernel for these dtypes, once for each combination of them."""
    dtypes = tuple([one.dtype if type(one) is Meta else None for one in args])
    if all(dtype is None or dtype in COMMON for dtype in dtypes):
        return
    key = (plan.name, dtypes)
    if key in _asked:
        return
    args, kwargs = hints(args), hints(kwargs)
    if any(type(one) is Meta and one.device.type != "cpu" for one in args):
        return
    if can_sample(plan.op, args, kwargs):
        try:
            run_sample(plan.op, args, kwargs, plan.kind == "pure")
        except NotImplementedError as error:
            raise Unsupported("no-rule", f"{plan.name}: {error}") from error
        _asked.add(key)
