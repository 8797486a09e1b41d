"""The metadata of an operator's results: by our rule, or by asking torch.

Called by the recorder for each operator and by the verifier for each node.
"""

from __future__ import annotations

from typing import Any

import torch

from .errors import DataDependent, NoRule, Unsupported
from .probe import can_sample, pinned_all, run_meta, run_sample
from .schema import Plan
from .several_sizes import over_sizes


def infer(
    plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], slow_ops: list[str] | None = None
) -> Any:
    """Meta of the result (a tuple of them for many). `slow_ops` gets the name if no rule of ours answered."""
    if plan.row is not None:
        try:
            return plan.row.rule(plan.op, *args, **kwargs)
        except NoRule:
            pass
    if slow_ops is not None and plan.name not in slow_ops:
        slow_ops.append(plan.name)
    pure = plan.kind == "pure"
    if not plan.random:
        open_sizes = over_sizes(plan.op, args, kwargs, pure)
        if open_sizes is not None:
            return open_sizes
    args, kwargs = pinned_all(args), pinned_all(kwargs)  # torch is asked with plain sizes
    if not plan.random and can_sample(plan.op, args, kwargs):
        try:
            return run_sample(plan.op, args, kwargs, pure)
        except torch._C._LinAlgError:  # type: ignore[attr-defined]
            pass  # zeros are singular; the metadata is asked for below
        except torch.OutOfMemoryError:
            pass  # of the device: the program needs it
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
