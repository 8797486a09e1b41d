"""torch's operator database as cases: an operator, a dtype, a sample of its arguments, and the way in which it is met.

`cases_of(info, dtype, ...)` gives `Case`s: a function of tensors only, with the tensors to call it on. The ways are
    plain     the operator by itself
    chain     its operands are computed in the graph (the negative of what is given, negated), and so is its
              result's negative: the operator is met inside of kernels
    turned, gaps, spread, channels    operands that are transposed, strided, expanded, channels-last
    open      sizes are symbols
    inplace   the operator's in-place variant, on a copy
Negation is exact, so a chain has the values of the plain sample.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

DRAWS = 12  # values beside a case, where its own rounding is to be seen
SEED = 42  # what the database's own wrappers of random operators seed with
WAYS = ("plain", "chain", "turned", "gaps", "spread", "channels", "open", "inplace")
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
                  torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64)
}  # fmt: skip


@dataclass(slots=True)
class Case:
    """`fn(*inputs)` gives a list of tensors. `number` tells the sample; `where` is how a report names all of it."""

    info: Any
    dtype: torch.dtype
    number: int
    way: str
    fn: Callable[..., list[Any]]
    inputs: list[torch.Tensor] = field(repr=False)

    @property
    def name(self) -> str:
        return name_of(self.info)

    @property
    def where(self) -> str:
        return f"{self.name} {short(self.dtype)} {self.number} {self.way}"


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def infos() -> list[Any]:
    """The operators, those of torch's test-suite alone left out."""
    foreign = ("jiterator", "ops.aten", "torch.ops")
    return [info for info in op_db if not info.name.startswith(foreign)]


def swap(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same structure with each tensor replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(swap(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(swap(item, change) for item in value)
    if isinstance(value, dict):
        return {key: swap(item, change) for key, item in value.items()}
    return value


def leaves(value: Any) -> list[Any]:
    """Tensors (ghosts and numbers, too) of a result, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


def samples_of(info: Any, dtype: torch.dtype, many: bool = False, seed: int = 0) -> Iterator[Any]:
    """The database's samples; many: those of its reference tests, too (extremal values, broadcasting)."""
    torch.manual_seed(seed)
    make = info.reference_inputs if many else info.sample_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from make("cpu", dtype, requires_grad=False)


def negated(x: Any) -> Any:
    return torch.logical_not(x) if x.dtype == torch.bool else torch.neg(x)


def _given_as(way: str, x: torch.Tensor) -> torch.Tensor | None:
    """The operand in another order of memory; None where there is none."""
    if way in ("plain", "open", "inplace"):
        return x
    if x.layout is not torch.strided:
        return None
    if way == "chain":
        return negated(x)
    if x.ndim == 0:
        return x
    if way == "turned":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if way == "gaps":
        return torch.stack([x, x], -1)[..., 0]
    if way == "spread":
        return x[..., :1].expand(x.shape) if x.shape[-1] else x
    if x.ndim in (4, 5):
        last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=last)
    return x


def case(info: Any, dtype: torch.dtype, number: int, sample: Any, way: str) -> Case | None:
    """A sample met in one way; None where it does not apply."""
    arguments = (sample.input, *sample.args)
    originals: list[torch.Tensor] = []

    def collect(x: torch.Tensor) -> None:
        if not any(x is known for known in originals):
            originals.append(x)

    swap((arguments, sample.kwargs), collect)
    given = [_given_as(way, x) for x in originals]
    if any(x is None or x.layout is not torch.strided for x in given):
        return None
    if way == "inplace" and not (info.inplace_variant and isinstance(sample.input, torch.Tensor)):
        return None
    if way not in ("plain", "chain", "inplace") and all(
        x.stride() == y.stride() for x, y in zip(given, originals, strict=True)
    ):
        if way != "open" or all(x.ndim == 0 for x in originals):
            return None
    order = {id(x): i for i, x in enumerate(originals)}

    def fn(*tensors: Any) -> list[Any]:
        if way == "chain":
            tensors = tuple(negated(x) for x in tensors)
        now = swap((arguments, sample.kwargs), lambda x: tensors[order[id(x)]])
        if way == "inplace":
            target = now[0][0].clone()
            info.inplace_variant(target, *now[0][1:], **now[1])
            return [target]
        found = [leaf for leaf in leaves(info.op(*now[0], **now[1])) if hasattr(leaf, "dtype")]
        return [negated(x) for x in found] if way == "chain" else found

    return Case(info, dtype, number, way, fn, given)


def cases_of(info: Any, dtype: torch.dtype, ways: Any = WAYS, most: int | None = None,
             many: bool = False, seed: int = 0) -> Iterator[Case]:  # fmt: skip
    """The cases of an operator, sample by sample."""
    for number, sample in enumerate(itertools.islice(samples_of(info, dtype, many, seed), most)):
        for way in ways:
            found = case(info, dtype, number, sample, way)
            if found is not None:
                yield found


def copies(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Deep copies with the same strides."""
    made = []
    for x in inputs:
        fresh = torch.empty(0, dtype=x.dtype)
        fresh.set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())
        made.append(fresh)
    return made


def eager(fn: Callable[..., list[Any]], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What plain torch gives, on copies."""
    torch.manual_seed(SEED)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(*copies(inputs))


def widened(value: Any) -> Any:
    """A structure with float64 in place of narrower floats (complex128 of complex numbers); in place of integers where
    there are no floats."""
    narrow = (torch.float32, torch.bfloat16, torch.float16, torch.complex64)
    there: list[torch.dtype] = []
    swap(value, lambda x: there.append(x.dtype))
    if not any(dtype in narrow for dtype in there):
        narrow = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    return swap(value, lambda x: x.to(_wide(x.dtype)) if x.dtype in narrow else x)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def exactly(found: Case) -> list[torch.Tensor] | None:
    """The result computed in float64 from the same values; None where the operator cannot."""
    return _plainly(found.fn, widened(found.inputs))


def _plainly(fn: Callable[..., list[Any]], inputs: Any) -> list[torch.Tensor] | None:
    torch.manual_seed(SEED)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*inputs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def nearby(found: Case) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """(eager's result, the same in float64) of a case, on its values and on some a little beside them: one may be exact
    by luck.

    Nothing is wider than float64 to judge a float64 result by; but what an operator loses is as many units in the last
    place in float32, and there it can be seen.
    """
    rng = torch.Generator().manual_seed(SEED)
    for draw in range(DRAWS):
        narrow = [_moved(x, rng, draw > 0) for x in found.inputs]
        ours, wide = (_plainly(found.fn, given) for given in (narrow, widened(narrow)))
        if ours is not None and wide is not None and len(ours) == len(wide):
            yield ours, wide


def _moved(x: torch.Tensor, rng: torch.Generator, away: bool) -> torch.Tensor:
    """Other values in the same order of memory."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex) or x.layout is not torch.strided:
        return x
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    noise = 1 + 1e-3 * torch.rand(memory.shape, generator=rng, dtype=torch.float64) * away
    kind = torch.float32 if x.dtype == torch.float64 else x.dtype
    return (memory * noise).to(kind).as_strided(x.shape, x.stride(), x.storage_offset())
