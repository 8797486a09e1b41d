"""A dispatch mode that compares our result rules with what torch's CPU kernels give."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graftjit.ir.errors import DataDependent, NoRule, Unsupported
from graftjit.ir.graph.nodes import Meta, meta_of
from graftjit.ir.graph.schema import Plan, plan_of
from graftjit.ir.ops import table as _ops  # noqa: F401


def strip(value: Any) -> Any:
    """Operands with a Meta for each tensor."""
    if isinstance(value, torch.Tensor):
        return meta_of(value)
    if isinstance(value, (list, tuple)):
        return tuple(strip(item) for item in value)
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


class RuleChecker(TorchDispatchMode):
    """Runs every operator for real; `mismatches` lists (operator, arguments, rule's answer, the truth)."""

    def __init__(self) -> None:
        super().__init__()
        self.mismatches: list[tuple[str, str, str, str]] = []
        self.checked: Counter[str] = Counter()
        self.without: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        plan = plan_of(func)
        said = self._ask(plan, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            if said is not None and not isinstance(said, Exception):
                self._note(plan, args, kwargs, said, f"raises {type(error).__name__}: {error}")
            raise
        if plan.kind == "pure":
            sources = {t.untyped_storage()._cdata for t in flat((args,)) if is_plain(t)}
            for item in flat(result):
                if is_plain(item) and item.untyped_storage()._cdata in sources:
                    self._note(plan, args, kwargs, said, "shares memory in silence")
        if said is not None:
            self._compare(plan, args, kwargs, said, result)
        return result

    def _ask(self, plan: Plan, args: Any, kwargs: Any) -> Any:
        tensors = [t for t in flat((args, tuple(kwargs.values()))) if isinstance(t, torch.Tensor)]
        if any(t.layout is not torch.strided or t.is_conj() or t.is_neg() for t in tensors):
            return None
        if plan.row is None:
            self.without[plan.name] += 1
            return None
        try:
            said = plan.row.rule(
                plan.op, *map(strip, args), **{k: strip(v) for k, v in kwargs.items()}
            )
        except (NoRule, DataDependent, Unsupported):
            self.without[plan.name] += 1
            return None
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            return error
        self.checked[plan.name] += 1
        return said

    def _note(self, plan: Plan, args: Any, kwargs: Any, said: Any, truth: Any) -> None:
        self.mismatches.append(
            (plan.name, f"{strip(args)} {strip(tuple(kwargs.items()))}", str(said), str(truth))
        )

    def _compare(self, plan: Plan, args: Any, kwargs: Any, said: Any, result: Any) -> None:
        if isinstance(said, Exception):
            self._note(plan, args, kwargs, said, "does not raise")
            return
        truth = flat(strip(result))
        given = flat(said)
        given = [
            None if isinstance(b, torch.Tensor) and not isinstance(a, Meta) else a
            for a, b in zip(given, truth)
        ]
        if len(truth) != len(flat(said)) or any(
            a is not None and not same(a, b) for a, b in zip(given, truth, strict=True)
        ):
            self._note(plan, args, kwargs, said, truth)
        if plan.kind == "view":
            base = args[plan.view_of].untyped_storage()._cdata
            for item in flat(result):
                if item.untyped_storage()._cdata != base:
                    self._note(plan, args, kwargs, said, "does not share memory")


def same(said: Any, truth: Any) -> bool:
    """Equal metadata; strides of dimensions of size 1 and of empty tensors count as well."""
    return said == truth
