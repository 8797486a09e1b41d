"""Kept values in C++: which values of a row's elements a later pass reads back instead of computing
them again, and where they are kept.

In: a kernel being written (`renderer.Kernel`), before its text (`choose`) and while it is written.
A value is kept in place of a store, if the last pass stores another value of the same type at the
same element. That memory holds any number of elements, so softmax needs no memory beside its
result. Otherwise the value is kept in an array on the stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.symbolic.expr import Expr
from ..loops import loop_nest
from .dialect import SCALAR, register
from .loop_plan import KEEP_COST, KEPT_ON_STACK, ROW_BUFFER_BYTES, Pass, of_bytes

if TYPE_CHECKING:
    from .renderer import Kernel


def choose(kernel: Kernel, before: list[Pass], now: Pass, roots: list[int]) -> None:
    """Register the values of earlier passes that this pass needs again and that are expensive to
    compute.
    """
    earlier = {number for one_pass in before for number in one_pass.body}
    again = earlier.intersection(now.body)
    fresh = set(now.body) - again
    border = {arg for number in fresh for arg in kernel.nest.values[number].args} | set(roots)
    for number in sorted(border & again):
        if _cost(kernel, number) <= KEEP_COST:
            continue
        home = _home(kernel, number)
        if home is not None:
            kernel.homes[number] = home
        elif kernel.plan.split or not _has_room(kernel):
            continue
        kernel.kept.add(number)
        next(p for p in before if number in p.body).keeps.append(number)


def _home(kernel: Kernel, number: int) -> loop_nest.Store | None:
    """A store of the last pass whose memory can hold the value until then."""
    nest, plan = kernel.nest, kernel.plan
    last = max(kernel.phase)
    for store in nest.stores:
        alone = sum(other.buffer == store.buffer for other in nest.stores) == 1
        taken = any(home.buffer == store.buffer for home in kernel.homes.values())
        strides = store.index.strides
        one_place = all(
            stride or size == 1 for stride, size in zip(strides, kernel.sizes, strict=True)
        )
        if (
            alone and one_place and not taken and plan.vector is not None and strides[plan.vector]
            # stores across the lanes go by squares, not by element
            and (strides[plan.vector] == 1 or not plan.squares)
            and kernel.phase[store.value] == last
            and nest.buffers[store.buffer].dtype == nest.values[number].dtype
        ):  # fmt: skip
            return store
    return None


def _has_room(kernel: Kernel) -> bool:
    """Whether the stack has memory for one more row.

    A row of unknown length gets a fixed part of the stack, and the heap if that is too short.
    """
    columns = kernel.nest.columns
    length = KEPT_ON_STACK if isinstance(columns, Expr) else columns * _width(kernel)
    arrays = len(kernel.kept) - len(kernel.homes) + 1
    return arrays * length * 8 <= ROW_BUFFER_BYTES


def _width(kernel: Kernel) -> int:
    return kernel.lanes if kernel.plan.lanes_are_rows else 1


def _cost(kernel: Kernel, number: int) -> int:
    rows = frozenset(n for n, element in enumerate(kernel.level) if not element)
    return sum(
        kernel.cost_of(n) for n in loop_nest.needed(kernel.nest, [number], rows | kernel.kept)
    )


def declare(kernel: Kernel, number: int) -> None:
    """Declare the memory for one value of a row."""
    if number in kernel.homes:
        return
    columns = kernel.nest.columns
    kind = register(kernel.nest.values[number].dtype)
    kind = "i8_t" if kind == "mask" and of_bytes(kernel.nest) else SCALAR[kind]
    if not isinstance(columns, Expr):
        kernel.put(f"alignas(64) {kind} t{number}[{max(columns, 1) * _width(kernel)}];")
        return
    count = kernel.n(columns * _width(kernel))
    kernel.put(f"alignas(64) {kind} r{number}[{KEPT_ON_STACK}];")
    kernel.put(
        f"{kind} *const t{number} = {count} <= {KEPT_ON_STACK} ? r{number}"
        f" : ({kind} *)__builtin_malloc({count} * sizeof({kind}));"
    )


def free(kernel: Kernel) -> None:
    """Free what `declare` took from the heap."""
    if isinstance(kernel.nest.columns, Expr):
        for number in sorted(kernel.kept - set(kernel.homes)):
            kernel.put(f"if (t{number} != r{number}) __builtin_free(t{number});")


def write(kernel: Kernel, number: int) -> None:
    """Store the element that was computed."""
    if number in kernel.homes:
        home = kernel.homes[number]
        kernel.store(loop_nest.Store(home.buffer, home.index, number))
    else:
        count = "full{}" if kernel.plan.lanes_are_rows else "n"
        kernel.put(f"put({_at(kernel, number)}, v{number}, {count});")


def read(kernel: Kernel, number: int) -> None:
    """Declare the value, read from where it was kept."""
    kind = register(kernel.nest.values[number].dtype)
    if number in kernel.homes:
        home = kernel.homes[number]
        moved, stride = kernel.where(home.index, False)
        pointer = kernel.pointers[(home.buffer, home.index)] + moved
        text = f"ld({pointer}, n)" if stride == 1 else f"lds({pointer}, {kernel.n(stride)}, n)"
    else:
        count = "full{}" if kernel.plan.lanes_are_rows else "n"
        text = f"raw<{kind}>({_at(kernel, number)}, {count})"
    kernel.put(f"const {kind} v{number} = {text};")


def _at(kernel: Kernel, number: int) -> str:
    """The address of the current element in the array of a kept value."""
    plan = kernel.plan
    position = ""
    for axis in plan.folds:
        size = kernel.n(kernel.sizes[axis])
        position = f"({position}) * {size} + x{axis}" if position else f"x{axis}"
    if plan.lanes_are_rows:
        return f"t{number} + ({position or 0}) * {kernel.lanes}"
    if position and plan.vector is not None:
        position = f"({position}) * {kernel.n(kernel.sizes[plan.vector])} + "
    return f"t{number} + {position}i"
