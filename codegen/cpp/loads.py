"""Loads in C++: plain, at offsets that are values, and under a mask; and the check of offsets.

In: a kernel being written (`renderer.Kernel`) and one of its values. Out: the expression of its
register. An offset or a mask that is the same in all lanes is a scalar beside a plain load. A mask
that is affine along the lanes (`inside`) is a span of lanes, which costs two comparisons per
vector. Anything else goes lane by lane (sections of math.h).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..loops.loop_nest import LoopNest, Value

if TYPE_CHECKING:
    from .renderer import Kernel


def load(kernel: Kernel, number: int, row: bool) -> str:
    """The text of a load or load_if."""
    value = kernel.nest.values[number]
    moved, stride = kernel.where(value.attr[1], row)
    pointer = kernel.pointers[value.attr] + moved
    guarded = value.op == "load_if"
    offsets = value.args[2:] if guarded else value.args
    moving = [number for number in offsets if kernel.along[number]]
    pointer += "".join(f" + {one(kernel, each)}" for each in offsets if each not in moving)
    spread = _spread(kernel, moving, stride, guarded)
    if not guarded:
        return f"ldg({pointer}, {spread}, n)" if spread else _plain(kernel, pointer, stride)
    mask, other = value.args[0], f"v{value.args[1]}"
    always, span = _conditions(kernel, mask, row)
    if not always and not span:  # a mask that differs from lane to lane
        return f"ldm({pointer}, {spread or _steps(kernel, stride)}, v{mask}, {other}, n)"
    if not span:
        text = f"ldg({pointer}, {spread}, n)" if spread else _plain(kernel, pointer, stride)
    elif stride in (1, -1) and not spread:
        text = f"{'ldif' if stride == 1 else 'ldrif'}({pointer}, {span}, {other}, n)"
    else:
        text = f"ldsp({pointer}, {spread or _steps(kernel, stride)}, {span}, {other}, n)"
    return f"{always} ? {text} : {other}" if always else text


def _spread(kernel: Kernel, offsets: list[int], stride: Any, guarded: bool) -> str:
    """The offsets of the lanes from the pointer, if they are not a plain stride; 32 bits if all of
    them are int32.
    """
    if not offsets:
        return ""
    kinds = {kernel.nest.values[number].dtype for number in offsets}
    narrow = kinds == {torch.int32} and stride == 0 and not guarded
    names = [
        f"v{number}"
        if narrow or kernel.nest.values[number].dtype == torch.int64
        else f"conv<i64>(v{number})"
        for number in offsets
    ]
    return " + ".join((*names, *([f"lanes<i64>(0) * {kernel.n(stride)}"] if stride else [])))


def one(kernel: Kernel, number: int) -> str:
    """A value that is the same in all lanes, as a plain number."""
    return f"v{number}" if number in kernel.scalars else f"v{number}[0]"


def _plain(kernel: Kernel, pointer: str, stride: Any) -> str:
    if stride == 0:
        return f"one({pointer})"
    if stride in (1, -1):
        return f"{'ld' if stride == 1 else 'ldr'}({pointer}, n)"
    return f"lds({pointer}, {kernel.n(stride)}, n)"


def _steps(kernel: Kernel, stride: Any) -> str:
    return f"lanes<i64>(0) * {kernel.n(stride)}"


def _conditions(kernel: Kernel, number: int, row: bool) -> tuple[str, str]:
    """(a condition for all lanes, a span of lanes); each is empty if there is none."""
    mask = kernel.nest.values[number]
    if mask.op != "inside":
        return ("", "") if kernel.along[number] else (one(kernel, number), "")
    if any(kernel.along[arg] for arg in mask.args):
        return "", ""
    always, spans = _bounds(kernel, mask, row)
    always += [one(kernel, arg) for arg in mask.args]
    return " && ".join(always), " & ".join(spans)


def _bounds(kernel: Kernel, mask: Value, row: bool) -> tuple[list[str], list[str]]:
    """The bounds of an `inside`: conditions for all lanes, and spans of lanes."""
    always: list[str] = []
    spans: list[str] = []
    for form, low, high in mask.attr:
        moved, stride = kernel.where(form, row)
        rows = kernel.offset(form, kernel.plan.rows, with_offset=False)
        place = f"{kernel.n(form.offset)}{rows}{moved}".removeprefix("0 + ")
        if stride == 0:
            always.append(f"{place} >= {kernel.n(low)} && {place} < {kernel.n(high)}")
        else:
            name = {1: "up", -1: "down"}.get(stride, "apart")
            step = f", {kernel.n(stride)}" if name == "apart" else ""
            spans.append(f"{name}({kernel.n(low)}, {kernel.n(high)}, {place}{step})")
    return always, spans


def mask(kernel: Kernel, number: int, row: bool) -> str:
    """The text of an `inside` value that is used as a bool."""
    value = kernel.nest.values[number]
    turned = [arg for arg in value.args if kernel.along[arg]]
    always, spans = _bounds(kernel, value, row)
    always += [one(kernel, arg) for arg in value.args if arg not in turned]
    parts = [f"within({' & '.join(spans)})"] if spans else []
    parts += [f"splat<mask>(-({' && '.join(always)}))"] if always else []
    return " & ".join((*parts, *(f"v{arg}" for arg in turned)))


def only_spans(nest: LoopNest, along: tuple[bool, ...]) -> set[int]:
    """The `inside` values that only masked loads use; the loads write their spans."""
    used = {
        arg for value in nest.values for place, arg in enumerate(value.args)
        if value.op != "load_if" or place != 0
    }  # fmt: skip
    used |= {store.value for store in nest.stores}
    used |= {n for n, value in enumerate(nest.values) if any(along[arg] for arg in value.args)}
    return {n for n, value in enumerate(nest.values) if value.op == "inside"} - used


def check(kernel: Kernel, number: int, row: bool) -> str:
    """The text of a `checked` value."""
    value = kernel.nest.values[number]
    low, high = (kernel.n(bound) for bound in value.attr)
    count = "n" if kernel.along[number] else "1"
    return f"checked(v{value.args[0]}, {low}, {high}, trouble, {count})"
