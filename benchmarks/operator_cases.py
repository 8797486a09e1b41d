"""The cases of `benchmarks.operators`: every lowered operator over sizes, dtypes and layouts, alone and between neighbours.

The operators come from the registry of code generation, so a new rule is met here without being named; how one is called
comes from its schema, or from `CALLS` where a schema does not say enough. `cases()` gives them all, in a fixed order; each
makes a function of its own (entries belong to code) and its inputs from a seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

SIZES = {"tiny": 8, "small": 64 * 64, "medium": 512 * 512, "large": 2048 * 2048}
DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool, "f16": torch.float16,
    "f64": torch.float64,
}  # fmt: skip
MAIN_DTYPES = ("f32", "bf16", "i64")
LAYOUTS = ("plain", "turned", "crossed", "channels", "sliced", "row", "column")
WAYS = ("alone", "chain")

# How an operator is called, over x, y, z (one dtype), m (bool), i (places in x), {shape}, {n} (last size), {dim}; "": not met
# alone, since it computes nothing that could be slow.
CALLS: dict[str, str] = {
    "rsub.Scalar": "torch.rsub(x, 2)",
    "pow.Scalar": "torch.pow(2, x)",
    "clamp.default": "x.clamp(-1, 2)",
    "clamp.Tensor": "torch.clamp(x, y, z)",
    "clamp_min.default": "x.clamp_min(1)",
    "clamp_max.default": "x.clamp_max(1)",
    "threshold.default": "F.threshold(x, 0.1, 1.0)",
    "_prelu_kernel.default": "F.prelu(x, y.select(0, 0).reshape(-1)[:1])",
    "leaky_relu_backward.default": "torch.ops.aten.leaky_relu_backward(y, x, 0.1, False)",
    "elu_backward.default": "torch.ops.aten.elu_backward(y, 1.0, 1.0, 1.0, False, x)",
    "where.self": "torch.where(m, x, y)",
    "masked_fill.Scalar": "x.masked_fill(m, 0)",
    "masked_fill.Tensor": "x.masked_fill(m, y.reshape(-1)[0])",
    "lerp.Scalar": "torch.lerp(x, y, 0.3)",
    "logit.default": "torch.logit(x, 1e-6)",
    "xlogy.Scalar_Self": "torch.xlogy(2, x)",
    "clone.default": "x.clone()",
    "_to_copy.default": "x.to(torch.float32 if x.dtype != torch.float32 else torch.bfloat16)",
    "contiguous.default": "x.contiguous()",
    "copy.default": "torch.empty_like(x).copy_(y)",
    "fill.Scalar": "torch.full_like(x, 2)",
    "fill.Tensor": "torch.fill(x, y.reshape(-1)[0])",
    "arange.start_step": "torch.arange(0, {count}, 1, dtype=x.dtype)",
    "div.Tensor_mode": "torch.div(x, y, rounding_mode='floor')",
    "div.Scalar_mode": "torch.div(x, 3, rounding_mode='trunc')",
    "floor_divide.Scalar": "x // 7",
    "remainder.Scalar": "x % 7",
    "fmod.Scalar": "torch.fmod(x, 7)",
    "native_batch_norm.default": "",
    "cudnn_batch_norm.default": "",
    "_native_batch_norm_legit_no_training.default": "F.batch_norm(x, c, c.abs(), c, c)",
    "embedding.default": "F.embedding(i, x)",
    "index_select.default": "x.index_select(0, i)",
    "gather.default": "x.gather(0, g)",
    "index.Tensor": "x[i]",
    "_unsafe_index.Tensor": "",
    "scatter.src": "x.scatter(0, g, z)",
    "scatter.value": "x.scatter(0, g, 2)",
    "scatter.reduce": "torch.ops.aten.scatter.reduce(x, 0, g, z, reduce='add')",
    "scatter.value_reduce": "torch.ops.aten.scatter.value_reduce(x, 0, g, 2, reduce='add')",
    "scatter_add.default": "x.scatter_add(0, g, z)",
    "scatter_reduce.two": "x.scatter_reduce(0, g, z, 'amax')",
    "index_add.default": "x.index_add(0, i, z)",
    "index_copy.default": "x.index_copy(0, i, z)",
    "index_fill.int_Scalar": "x.index_fill(0, i, 2)",
    "index_fill.int_Tensor": "x.index_fill(0, i, z.reshape(-1)[0])",
    "index_put.default": "torch.index_put(x, (i,), z, accumulate=True)",
    "_unsafe_index_put.default": "",
    "embedding_dense_backward.default": "torch.ops.aten.embedding_dense_backward(x, i, x.shape[0], -1, False)",
    "nll_loss_forward.default": "F.nll_loss(x, i.remainder({n})[:1].expand(x.shape[0]))",
    "constant_pad_nd.default": "F.pad(x, (3, 2), value=0)",
    "cat.default": "torch.cat((x, y), -1)",
    "roll.default": "torch.roll(x, 3, -1)",
    "flip.default": "x.flip(-1)",
    "reflection_pad1d.default": "F.pad(x, (2, 2), mode='reflect')",
    "replication_pad1d.default": "F.pad(x, (2, 2), mode='replicate')",
    "reflection_pad2d.default": "F.pad(x[None, None], (1, 1, 1, 1), mode='reflect')",
    "replication_pad2d.default": "F.pad(x[None, None], (1, 1, 1, 1), mode='replicate')",
    "upsample_nearest1d.default": "F.interpolate(x[None], scale_factor=2)",
    "upsample_nearest2d.default": "F.interpolate(x[None, None], scale_factor=2)",
    "upsample_nearest3d.default": "F.interpolate(x[None, None, None], scale_factor=2)",
    "_upsample_nearest_exact1d.default": "F.interpolate(x[None], scale_factor=1.7, mode='nearest-exact')",
    "_upsample_nearest_exact2d.default": "F.interpolate(x[None, None], scale_factor=1.7, mode='nearest-exact')",
    "_upsample_nearest_exact3d.default": "",
    "upsample_linear1d.default": "F.interpolate(x[None], scale_factor=2, mode='linear')",
    "upsample_bilinear2d.default": "F.interpolate(x[None, None], scale_factor=2, mode='bilinear')",
    "upsample_trilinear3d.default": "",
    "upsample_bicubic2d.default": "F.interpolate(x[None, None], scale_factor=2, mode='bicubic')",
    "max_pool2d_with_indices.default": "F.max_pool2d(x[None, None], 3, 2, 1)",
    "max_pool3d_with_indices.default": "F.max_pool3d(x[None, None, None], (1, 2, 2))",
    "adaptive_max_pool2d.default": "F.adaptive_max_pool2d(x[None, None], (x.shape[0] // 2, {n} // 2))",
    "adaptive_max_pool3d.default": "",
    "avg_pool2d.default": "F.avg_pool2d(x[None, None], 2)",
    "avg_pool3d.default": "F.avg_pool3d(x[None, None, None], (1, 2, 2))",
    "_adaptive_avg_pool2d.default": "F.adaptive_avg_pool2d(x[None, None], (x.shape[0] // 2, {n} // 2))",
    "_adaptive_avg_pool3d.default": "",
    "ldexp.Tensor": "torch.ldexp(x, y)",
    "scalar_tensor.default": "",
    "full_like.default": "torch.full_like(x, 2)",
    "full.default": "torch.full({shape}, 2, dtype=x.dtype)",
    "new_full.default": "",
    "zeros.default": "torch.zeros({shape}, dtype=x.dtype)",
    "new_zeros.default": "",
    "new_ones.default": "",
    "ones.default": "torch.ones({shape}, dtype=x.dtype)",
    # along one dimension
    "sum.dim_IntList": "x.sum({dim})",
    "prod.dim_int": "x.prod({dim})",
    "max.dim": "torch.max(x, {dim})",
    "min.dim": "torch.min(x, {dim}).values",
    "amax.default": "x.amax({dim})",
    "amin.default": "x.amin({dim})",
    "aminmax.default": "torch.aminmax(x, dim={dim})",
    "argmax.default": "x.argmax({dim})",
    "argmin.default": "x.argmin({dim})",
    "any.dim": "x.any({dim})",
    "all.dim": "x.all({dim})",
    "any.dims": "x.any(dim=({dim},))",
    "all.dims": "",
    "mean.dim": "x.mean({dim})",
    "var.correction": "x.var({dim})",
    "std.correction": "x.std({dim})",
    "var_mean.correction": "torch.var_mean(x, {dim})",
    "std_mean.correction": "",
    "logsumexp.default": "x.logsumexp({dim})",
    "linalg_vector_norm.default": "torch.linalg.vector_norm(x, dim={dim})",
    "nansum.default": "x.nansum({dim})",
    "count_nonzero.dim_IntList": "x.count_nonzero({dim})",
    "_softmax.default": "torch.softmax(x, {dim})",
    "_log_softmax.default": "torch.log_softmax(x, {dim})",
    "native_layer_norm.default": "F.layer_norm(x, ({n},), r, r)",
    "_fused_rms_norm.default": "F.rms_norm(x, ({n},), r)",
    # products: x [a, b] and what fits
    "mm.default": "x[:64] @ y[:64].t()",
    "addmm.default": "F.linear(x[:4], y[:64], y[:64, 0])",
    "bmm.default": "torch.bmm(x[None, :16], y[None, :16].mT)",
    "baddbmm.default": "",
    "mv.default": "x @ r",
    "addmv.default": "torch.addmv(x[:, 0], x, r)",
    "dot.default": "torch.dot(x.reshape(-1), y.reshape(-1))",
    "vdot.default": "",
}  # fmt: skip
# Beside the registry: programs of a few operators of which some stay with ATen.
PROGRAMS: dict[str, str] = {
    "sin_of_large": "torch.sin(x * 50000)",
    "sum_of_all": "x.sum()",
    "max_of_all": "x.max()",
    "isnan_any": "x.isnan().any()",
    "bincount": "torch.bincount(x.reshape(-1).long().clamp(0, 99))",
    "topk_sample": "torch.softmax(torch.topk(x, min(5, {n}), -1).values, -1)",
    "cat_rows": "torch.cat((x, y), 0)",
    "stack": "torch.stack((x, y), 1)",
    "quantile_scale": "(x - x.median(0).values) / (x.amax(0) - x.amin(0) + 1)",
    "sort_scale": "x.sort(-1).values * 2",
    "cat_parts": "torch.cat((x[:, : {n} // 2] * 2, y), -1)",
    "pad_2d": "F.pad(x, (1, 1, 1, 1))",
    "flip_rows": "x.flip(0)",
    "roll_rows": "torch.roll(x, 3, 0)",
    "transpose_copy": "x.t().contiguous()",
    "permute_copy": "x.view({rows}, -1, 2).permute(1, 0, 2).contiguous()",
    "repeat": "x.repeat(1, 2)",
    "tile_rows": "x.repeat(2, 1)",
    "repeat_interleave": "x.repeat_interleave(2, -1)",
    "outer": "x[:, :1] * y[:1]",
    "one_hot": "F.one_hot(i.remainder(16), 16)",
    "standardise": "(x - x.mean(0)) / (x.std(0) + 1e-5)",
    "unit_rows": "x / x.norm(dim=-1, keepdim=True)",
    "conv_cat": "torch.cat((F.conv1d(x[None, :4], y[:4, :12].reshape(4, 4, 3), padding=1)[0], x[:4]), 0)",
}  # fmt: skip

NEIGHBOURS = {
    "float": ("x = x * 0.5", "+ 1"),
    "int": ("x = x + 1", "* 2"),
    "bool": ("x = ~x", "| True"),
}
POSITIVE = (
    "log",
    "sqrt",
    "rsqrt",
    "pow",
    "xlog",
    "digamma",
    "lgamma",
    "entr",
    "acosh",
    "reciprocal",
)
UNIT = ("asin", "acos", "atanh", "logit", "erfinv")
PRODUCTS = ("mm", "addmm", "bmm", "mv", "addmv", "dot")
FLAT_ONLY = re.compile(
    r"\[None|\.t\(\)|x @|x\[|bincount|conv1d|x\.view|permute|repeat\(|tile|nll_loss"
)


@dataclass(frozen=True, slots=True)
class Case:
    """`text`: the function's body as one expression; `shape`, `dim`: of x, and what is folded."""

    operator: str
    text: str
    dtype: str
    size: str
    layout: str
    way: str
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        sizes = "x".join(map(str, self.shape))
        return f"{self.operator} {self.dtype} {sizes} {self.layout} {self.way}"

    @property
    def names(self) -> list[str]:
        """The tensors that the text uses."""
        return [name for name in "xyzmigrc" if re.search(rf"(?<![\w.]){name}(?!\w|\()", self.text)]

    def function(self) -> Callable[..., Any]:
        """A function with code of its own."""
        arguments = ", ".join(dict.fromkeys(["x", *self.names]))
        lines = [f"def case({arguments}):"]
        kind = _kind(DTYPES[self.dtype])
        if self.way == "chain":
            lines.append(f"    {NEIGHBOURS[kind][0]}")
        lines.append(f"    r_ = {self.text}")
        if self.way == "chain":
            lines.append("    r_ = r_ if isinstance(r_, torch.Tensor) else r_[0]")
            lines.append("    r_ = ~r_ if r_.dtype == torch.bool else r_ + 1")
        lines.append("    return r_")
        space: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), space)
        made: Callable[..., Any] = space["case"]
        return made

    def inputs(self, seed: int = 0) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [self._tensor(name) for name in dict.fromkeys(["x", *self.names])]

    def _tensor(self, name: str) -> torch.Tensor:
        shape, dtype = self.shape, DTYPES[self.dtype]
        if name == "i":
            return torch.randint(0, shape[0], (shape[0],))
        if name == "g":
            return torch.randint(0, shape[0], shape)
        if name == "r":
            return self._values((shape[-1],), dtype)
        if name == "c":
            return self._values((shape[1],), dtype)
        if name == "m":
            dtype = torch.bool
        if name == "y" and self.layout in ("row", "column"):
            row = self.layout == "row"
            return self._values((shape[-1],) if row else (*shape[:-1], 1), dtype)
        layout = self.layout
        if layout == "crossed":
            layout = "turned" if name == "x" else "plain"
        return _laid(layout, shape, lambda sizes: self._values(sizes, dtype))

    def _values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(shape) < 0.5
        if not dtype.is_floating_point:
            return torch.randint(1, 100, shape, dtype=dtype)
        name = self.operator.removeprefix("special_")
        if name.startswith(POSITIVE):
            return (torch.rand(shape) * 3 + (1 if name.startswith("acosh") else 0.1)).to(dtype)
        if name.startswith(UNIT):
            return (torch.rand(shape) * 0.98 + 0.01).to(dtype)
        return torch.randn(shape).to(dtype)


def _kind(dtype: torch.dtype) -> str:
    return "bool" if dtype == torch.bool else "float" if dtype.is_floating_point else "int"


def _laid(layout: str, shape: tuple[int, ...], make: Callable[..., torch.Tensor]) -> torch.Tensor:
    if layout == "turned":
        return make((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)
    if layout == "channels":
        return make(shape).contiguous(memory_format=torch.channels_last)
    if layout == "sliced":
        return make((*shape[:-1], shape[-1] + 32))[..., : shape[-1]]
    return make(shape)


def _text_of(op: Any) -> str | None:
    """The call of an operator, from its schema: tensors, then numbers."""
    name = str(op).removeprefix("aten.")
    if name in CALLS:
        return CALLS[name]
    needed = [one for one in op._schema.arguments if not one.has_default_value()]
    kinds = ["dim" if one.name == "dim" else str(one.type) for one in needed]
    if not set(kinds) <= {"Tensor", "number", "dim"} or kinds.count("Tensor") > 3:
        return None
    tensors = iter("xyz")
    others = {"number": "2", "dim": "{dim}"}
    given = ", ".join(next(tensors) if kind == "Tensor" else others[kind] for kind in kinds)
    base = name.split(".")[0]
    for where, space in (("torch", torch), ("F", F), ("torch.special", torch.special)):
        plain = base.removeprefix("special_") if where == "torch.special" else base
        if hasattr(space, plain):
            return f"{where}.{plain}({given})"
    return f"torch.ops.aten.{name}({given})"


def texts() -> dict[str, str]:
    """Operator -> its call, for all lowered ones that are met, and the programs."""
    found: dict[str, str] = {}
    for op in _lowered():
        name, text = str(op).removeprefix("aten.").removesuffix(".default"), _text_of(op)
        if text and text not in found.values():
            found[name] = text
    return found | PROGRAMS


def unmet() -> list[str]:
    """Lowered operators that neither a schema nor `CALLS` says how to call."""
    return [str(op) for op in _lowered() if _text_of(op) is None]


def _lowered() -> list[Any]:
    from graftjit.codegen import pipeline as planned  # noqa: F401  (fills the rules)
    from graftjit.codegen.lower.builder import RULES

    return list(RULES)


def _shapes(text: str, size: str, layout: str) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """(shape of x, dimension) that an operator is met with."""
    count = SIZES[size]
    side = {"tiny": 2, "small": 64, "medium": 512, "large": 2048}[size]
    if "batch_norm" in text or layout == "channels":
        wide = max(2, side // 16)
        square = (2, 4, 1, 1) if size == "tiny" else (4, count // 4 // wide**2, wide, wide)
        if "{dim}" not in text:
            yield square, None
        return
    if "{dim}" not in text:
        yield (side, count // side), None
        if layout == "plain" and not re.search(r"y|z|\[", text) and size in ("medium", "large"):
            yield (8, count // 8), None
            yield (count // 8, 8), None
        return
    third = round(count ** (1 / 3))
    families = [((side, count // side), (0, 1))]
    if layout == "plain" and size != "tiny":
        families += [((8, count // 8), (0, 1)), ((count // 8, 8), (0, 1)), ((1, count), (1,)),
                     ((count, 1), (0,)), ((third, third, third), (0, 1))]  # fmt: skip
    for shape, dims in families:
        for dim in dims:
            yield shape, dim


def cases() -> Iterator[Case]:
    """All of them."""
    for operator, text in texts().items():
        for size, elements in SIZES.items():
            for layout in LAYOUTS:
                if layout in ("crossed", "row", "column") and not re.search(r"\by\b", text):
                    continue
                flat = FLAT_ONLY.search(text) or operator.split(".")[0] in PRODUCTS
                if layout not in ("plain", "turned", "sliced") and ("torch.clamp(" in text or flat):
                    continue
                if layout == "channels" and re.search(
                    r"\{shape\}|cat|layer_norm|rms_norm|\[", text
                ):
                    continue
                for shape, dim in _shapes(text, size, layout):
                    if operator.split(".")[0] in PRODUCTS and size == "large":
                        continue
                    full = text.format(
                        dim=dim, n=shape[-1], shape=shape, rows=shape[0], count=elements
                    )
                    label = operator if dim is None else f"{operator}({dim})"
                    for dtype in DTYPES:
                        for way in WAYS:
                            yield Case(label, full, dtype, size, layout, way, shape)
