"""Loop nests for tests, written as a program: `Build` gives the nest and the tensors of its buffers. Below: those that several
tests share, of softmax, log-sum-exp and layer norm."""

from __future__ import annotations

from typing import Any

import torch

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from graftjit.codegen.triton import renderer as triton

from .worker import Worker

_TO_BOOL = {"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "isfinite", "signbit"}
NARROW = (torch.bfloat16, torch.float16)


class Build:
    """Values are numbers. Loads broadcast their tensor to outer + inner, right-aligned as torch does."""

    def __init__(self, name: str, outer: tuple[int, ...], inner: tuple[int, ...]) -> None:
        self.name, self.outer, self.inner = name, outer, inner
        self.buffers: list[Buffer] = []
        self.tensors: list[torch.Tensor] = []
        self.values: list[Value] = []
        self.stores: list[Store] = []

    def _add(self, *fields: Any) -> int:
        self.values.append(Value(*fields))
        return len(self.values) - 1

    def _buffer(self, tensor: torch.Tensor, written: bool) -> int:
        prefix = "out" if written else "in"
        name = f"{prefix}{sum(b.written == written for b in self.buffers)}"
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        self.buffers.append(Buffer(name, tensor.dtype, shape, stride, written))
        self.tensors.append(tensor)
        return len(self.buffers) - 1

    def load(self, tensor: torch.Tensor) -> int:
        """bfloat16 and float16 come as float32, the way lowering writes it."""
        view = tensor.expand(self.outer + self.inner)
        index = Index(tuple(view.stride()))
        number = self._add("load", (), tensor.dtype, (self._buffer(tensor, False), index))
        return self.cast(number, torch.float32) if tensor.dtype in NARROW else number

    def cast(self, value: int, dtype: torch.dtype) -> int:
        return value if self.values[value].dtype == dtype else self._add("cast", (value,), dtype)

    def const(self, number: Any, dtype: torch.dtype) -> int:
        return self._add("const", (), dtype, number)

    def index(self, strides: tuple[int, ...], offset: int = 0) -> int:
        return self._add("index", (), torch.int64, Index(strides, offset))

    def op(self, name: str, *args: int) -> int:
        dtype = torch.bool if name in _TO_BOOL else self.values[args[-1]].dtype
        return self._add(name, args, dtype)

    def scan(self, name: str, value: int) -> int:
        return self._add("scan", (value,), self.values[value].dtype, name)

    def reduce(self, name: str, value: int) -> int:
        dtype = torch.int64 if name in ("argmax", "argmin") else self.values[value].dtype
        return self._add("reduce", (value,), dtype, name)

    def store(
        self, value: int, dtype: torch.dtype | None = None, row: bool = False
    ) -> torch.Tensor:
        """Into a fresh contiguous tensor of all elements, or of all rows."""
        value = self.cast(value, dtype or self.values[value].dtype)
        shape = self.outer if row else self.outer + self.inner
        return self.store_to(value, torch.zeros(shape, dtype=self.values[value].dtype), row)

    def store_to(self, value: int, tensor: torch.Tensor, row: bool = False) -> torch.Tensor:
        strides = tuple(tensor.stride()) + ((0,) * len(self.inner) if row else ())
        self.stores.append(Store(self._buffer(tensor, True), Index(strides), value))
        return tensor

    def nest(self, *covers: str) -> LoopNest:
        nest = LoopNest(
            self.name, self.outer, self.inner, tuple(self.buffers), tuple(self.values),
            tuple(self.stores), covers,
        )  # fmt: skip
        loops.check(nest)
        return nest

    def outputs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [t for t, b in zip(tensors, self.buffers, strict=True) if b.written]


def run(worker: Worker, build: Build, **options: Any) -> list[torch.Tensor]:
    """The outputs of a nest's kernel, run by the worker."""
    kernel = triton.render(build.nest(), **options)
    return build.outputs(worker.run(kernel, build.tensors))


def close(found: Any, wanted: Any, **tolerance: Any) -> None:
    torch.testing.assert_close(found, wanted, equal_nan=True, **tolerance)


def hard_rows(columns):
    """Rows with infinities, nan, huge and rising numbers."""
    inf, nan = float("inf"), float("nan")
    x = torch.randn(7, columns) * 3
    x[1, : columns // 2] = -inf
    x[2] = -inf
    x[3, columns // 3] = inf
    x[4, columns // 2] = nan
    x[5] = torch.arange(columns) * 40.0 - 300
    x[6] = -1e4 - torch.arange(columns)
    return x


def softmax(x):
    build = Build("softmax", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a = build.load(x)
    e = build.op("exp", build.op("sub", a, build.reduce("max", a)))
    build.store(build.op("div", e, build.reduce("sum", e)), x.dtype)
    return build


def logsumexp(x):
    build = Build("logsumexp", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a = build.load(x)
    top = build.reduce("max", a)
    top = build.op("where", build.op("isinf", top), build.const(0.0, torch.float32), top)
    total = build.reduce("sum", build.op("exp", build.op("sub", a, top)))
    build.store(build.op("add", build.op("log", total), top), row=True)
    return build


def layer_norm(x, weight, eps=1e-5):
    """Of each row, with mean and 1 / deviation beside it, and x + 1, which needs no fold."""
    build = Build("layer_norm", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    a, w = build.load(x), build.load(weight)
    kind = build.values[a].dtype
    build.store(build.op("add", a, build.const(1.0, kind)), x.dtype)
    count = build.const(float(x.shape[-1]), kind)
    mean = build.op("div", build.reduce("sum", a), count)
    gap = build.op("sub", a, mean)
    variance = build.op("div", build.reduce("sum", build.op("mul", gap, gap)), count)
    scale = build.op("rsqrt", build.op("add", variance, build.const(eps, kind)))
    build.store(mean, row=True)
    build.store(scale, row=True)
    build.store(build.op("mul", build.op("mul", gap, scale), w), x.dtype)
    return build


def softmax_to(x, out=None):
    """The softmax of each row, into memory of any strides."""
    build = Build("softmax", tuple(x.shape[:-1]), tuple(x.shape[-1:]))
    element = build.load(x)
    top = build.reduce("max", element)
    power = build.op("exp", build.op("sub", element, top))
    found = build.op("div", power, build.reduce("sum", power))
    build.store_to(build.cast(found, x.dtype), torch.zeros_like(x) if out is None else out)
    return build
