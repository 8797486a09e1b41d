"""Fuzz programs of tensor operators: indices, views, writes, `out=`, mixed dtypes, unusual values and layouts.

    python -m tests.fuzz.operators --seed 0 --count 200
    python -m tests.fuzz.operators --seed 17 --show

A program is a straight function of three tensors, a mask, indices and two numbers. Its calls have the same
arguments, others of the same layout (with nan, infinities, -0.0, the ends of the integers), and then other layouts
and dtypes. Each statement is chosen so that it runs for the first call's arguments, or, now and then, raises;
later calls may raise as they like. Running, comparing and making small are `tests.fuzz.programs`.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
import types
import warnings
from typing import Any

import torch

from . import programs
from .statements import Program, Statement, parse

PRELUDE = """\
import math
import torch
import torch.nn.functional as F
def data(shape, dtype, start=1, odd=()):
    count = math.prod(shape)
    whole = [(start * 7 + n * 5) % 23 - 9 for n in range(count)]
    for at, value in enumerate(odd):
        if count:
            whole[(at * 3 + start) % count] = value
    if dtype.is_floating_point:
        whole = [float(n) / 4 for n in whole]
    elif dtype.is_complex:
        whole = [complex(n / 4, (n * 3 % 7 - 3) / 2) for n in whole]
    elif dtype == torch.bool:
        whole = [n % 3 == 0 for n in whole]
    elif dtype == torch.uint8:
        whole = [n % 256 for n in whole]
    elif dtype == torch.int8:
        whole = [(n + 128) % 256 - 128 for n in whole]
    elif dtype == torch.int16:
        whole = [(n + 2**15) % 2**16 - 2**15 for n in whole]
    elif dtype == torch.int32:
        whole = [(n + 2**31) % 2**32 - 2**31 for n in whole]
    return torch.tensor(whole, dtype=dtype).reshape(shape)
def turned(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() else x
def part(x):
    return torch.stack([x, x, x], -1)[..., 1]
def behind(x):
    return torch.cat([x.reshape(-1)[:1].expand(3), x.reshape(-1)])[3:].view(x.shape) if x.numel() else x
def spread(x):
    return x[:1].expand(x.shape) if x.dim() else x
def grad(x):
    return x.requires_grad_()
class H:
    pass
"""
ODD_FLOATS = (
    "float('nan')",
    "float('inf')",
    "-float('inf')",
    "-0.0",
    "1e30",
    "-1e-30",
    "0.0",
    "70000.0",
    "2.5",
)
ODD_INTS = (
    "2**63 - 1",
    "-(2**63)",
    "2**31 - 1",
    "-(2**31)",
    "127",
    "-128",
    "255",
    "0",
    "-1",
    "32767",
    "64",
)
SHAPES = (  # of x, y, z; most broadcast
    ((2, 3), (3,), (2, 1)), ((2, 3), (2, 3), (2, 3)), ((4,), (4,), (1,)), ((3, 5), (3, 5), (5,)), ((), (), (3,)),
    ((5,), (), (1, 5)), ((2, 3, 4), (3, 4), (4,)), ((0, 3), (3,), (1, 3)), ((3, 0), (3, 0), (3, 1)), ((1, 1), (3, 1), (1, 4)),
    ((33,), (33,), ()), ((3, 40), (40,), (3, 1)), ((4, 4), (4, 4), (4,)), ((2, 1, 3), (4, 1), (3,)), ((3, 3), (3, 3), (3, 3)),
    ((1,), (1,), (1,)), ((70,), (70,), (70,)), ((2, 2, 2, 2), (2, 2), (2,)), ((0,), (0,), (1,)), ((17, 3), (3,), (17, 1)),
)  # fmt: skip
DTYPES = (
    "float32", "float32", "float32", "float32", "int64", "int64", "bool", "bfloat16", "float16", "float64", "int32", "uint8",
    "int8", "complex64", "int16", "complex128",
)  # fmt: skip
LAYOUTS = ("turned", "part", "behind", "spread", "spread", "grad")
ARGUMENTS = ("x", "y", "z", "m", "n", "i", "k")
PLACE = re.compile(r"\{([a-z])\}")
KINDS = {"t": "xyz", "m": "m", "n": "n", "i": "i", "k": "k"}
TRIES = 12  # of a statement that is to run


# -- the templates ------------------------------------------------------------------------------------

# Expressions with places for what they work on: {t} a tensor, {m} a mask, {n} indices, {i} a whole number, {k} a float,
# {s} a number of any kind; {d} a dtype, {a} an axis, {x} what is in an index. A family is drawn first, then a template.
SCALARS = (
    "2", "0", "1", "-1", "-3", "7", "True", "False", "0.5", "-1.5", "2.0", "0.0", "-0.0", "0.1", "3.7", "float('nan')",
    "float('inf')", "-float('inf')", "2**31", "2**40", "300", "-200", "1e-3", "1e5", "1j",
)  # fmt: skip
CONTENTS = {
    "d": (
        "torch.float32", "torch.int64", "torch.bool", "torch.float64", "torch.bfloat16", "torch.float16", "torch.int32", "torch.uint8",
        "torch.int8", "torch.int16", "torch.complex64", "{t}.dtype",
    ),
    "a": ("0", "-1", "0", "-1", "1", "-2", "{i}"),
    "x": (
        "0", "-1", "1", "{i}", ":", "...", "None", "::2", "1:", ":-1", ":{i}", "{i}:", "-2:", "1:2", "5:2", "2:9", "True", "{n}", "{n}", "[0, -1]",
        "[0]", "{m}", "{t} > 0", "[1, 0, 1]", "{n}[:, None]", "torch.tensor(0)", "{n} * 0", "slice(None, {i})", "torch.tensor([True, False])",
    ),
    "f": (
        "abs", "neg", "sign", "sgn", "floor", "ceil", "round", "trunc", "frac", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "rsqrt",
        "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma",
        "digamma", "sigmoid", "logit", "square", "logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "signbit", "angle",
        "positive", "nan_to_num", "deg2rad", "rad2deg", "relu", "bitwise_not", "sinc", "i0", "conj", "conj_physical", "real", "clone", "resolve_conj",
    ),
    "g": (
        "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign",
        "nextafter", "ldexp", "logaddexp", "logaddexp2", "xlogy", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
        "bitwise_right_shift", "gcd", "lcm", "heaviside", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "float_power",
        "true_divide", "isclose", "rsub", "dist", "equal", "allclose",
    ),
    "h": (
        "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "tanhshrink", "softsign", "logsigmoid", "hardshrink",
        "softshrink", "softplus", "leaky_relu", "hardtanh", "relu",
    ),
    "o": ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%"),
    "p": ("+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="),
    "q": (
        "add_", "sub_", "mul_", "div_", "floor_divide_", "remainder_", "fmod_", "pow_", "copy_", "copysign_", "bitwise_and_", "bitwise_or_", "eq_", "lt_",
        "ge_", "logical_and_", "logical_xor_", "atan2_", "hypot_", "xlogy_", "masked_fill_", "clamp_min_", "clamp_max_", "fill_", "float_power_",
    ),
    "u": (
        "abs_", "neg_", "sign_", "floor_", "ceil_", "round_", "trunc_", "frac_", "exp_", "log_", "sqrt_", "rsqrt_", "reciprocal_", "sin_", "tanh_", "sigmoid_",
        "relu_", "zero_", "logical_not_", "bitwise_not_", "nan_to_num_", "square_", "t_", "squeeze_", "detach_", "erf_", "acos_", "conj_physical_",
    ),
    "r": (
        "sum", "prod", "mean", "std", "var", "amax", "amin", "argmax", "argmin", "any", "all", "logsumexp", "softmax", "log_softmax", "cumsum", "cumprod",
        "logcumsumexp", "count_nonzero", "nansum", "nanmean", "norm", "sort", "argsort", "max", "min", "median", "nanmedian", "mode", "cummax", "cummin",
        "aminmax", "unique_consecutive", "diff", "softmin", "flip", "unbind", "msort",
    ),
    "w": ("'trunc'", "'floor'", "None"),
    "z": ("sum", "prod", "amax", "amin", "mean"),
}  # fmt: skip

POINTWISE = (
    "torch.{f}({t})", "{t}.{f}()", "torch.{f}({t}.to({d}))", "torch.{f}(-{t}.abs())", "F.{h}({t})", "F.{h}({t} * 4)", "torch.{g}({t}, {t})", "torch.{g}({t}, {s})",
    "torch.{g}({t}, {t}.to({d}))", "torch.{g}({s}, {t})", "{t}.{g}({t})", "{t}.{g}({s})", "{t} {o} {t}", "{t} {o} {s}", "{s} {o} {t}", "{t} {o} {m}", "{t} {o} {t}[..., :1]",
    "{t} {o} {t}.to({d})", "-{t}", "~{t}", "abs({t})", "+{t}", "({t} {o} {t}) {o} {s}", "{t} {o} torch.tensor({s})", "torch.tensor({s}) {o} {t}", "{t} {o} {t}.sum()",
    "torch.div({t}, {t}, rounding_mode={w})", "torch.div({t}, {s}, rounding_mode={w})", "torch.add({t}, {t}, alpha={s})", "torch.sub({t}, {s}, alpha={s})", "torch.round({t} * 1.7, decimals={i})",
    "torch.clamp({t}, {s}, {s})", "{t}.clamp(min={s})", "{t}.clamp(max={t})", "torch.clamp({t}, {t}, {t})", "{t}.clip({s}, {s})", "torch.nan_to_num({t}, 1.5, 2, -3)", "{t}.nan_to_num(nan={s})",
    "torch.lerp({t}, {t}, {s})", "torch.lerp({t}, {t}, {t})", "torch.addcmul({t}, {t}, {t}, value={s})", "torch.addcdiv({t}, {t}, {t}, value={s})", "torch.threshold({t}, {s}, {s})",
    "torch.where({m}, {t}, {t})", "torch.where({m}, {t}, {s})", "torch.where({m}, {s}, {t})", "torch.where({m}, {s}, {s})", "torch.where({t} > {s}, {t}, {s})", "{t}.where({m}, {s})", "{t}.where({m}, {t})",
    "torch.where({m}, torch.tensor({s}), {t})", "torch.where({t}.isnan(), {s}, {t})", "{t}.masked_fill({m}, {s})", "{t}.masked_fill({m}, torch.tensor({s}))", "torch.polygamma(1, {t})",
    "torch.special.{f}({t})", "torch.special.xlog1py({t}, {s})", "torch.special.zeta({t}, 2.0)", "torch.special.entr({t})", "torch.special.ndtr({t})", "torch.special.erfcx({t})", "torch.special.log_ndtr({t})",
    "torch.bitwise_left_shift({t}, {i})", "F.softplus({t}, beta={s}, threshold=3)", "F.elu({t}, alpha={s})", "F.leaky_relu({t}, {s})", "F.gelu({t}, approximate='tanh')", "F.hardtanh({t}, {s}, {s})",
    "F.threshold({t}, {s}, {s})", "F.glu({t}, {a})", "F.prelu({t}, torch.tensor([0.25]))", "F.rrelu({t})", "{t} ** 2", "{t} ** -1", "{t} ** 0.5", "{t} ** 3", "2 ** {t}", "{t} * {t} + {t}", "{t} - {t} * {s}", "{t}.mvlgamma(1)",
    "torch.frexp({t})[0]", "torch.frexp({t})[1]", "torch.ldexp({t}, {n})", "torch.complex({t}, {t})", "torch.polar({t}, {t})", "{t}.mul({t}).add({s})", "torch.fake_quantize_per_tensor_affine({t}, 0.1, 0, -5, 5)",
)  # fmt: skip
CASTS = (
    "{t}.to({d})", "{t}.float()", "{t}.int()", "{t}.long()", "{t}.bool()", "{t}.half()", "{t}.bfloat16()", "{t}.double()", "{t}.byte()", "{t}.char()", "{t}.short()", "{t}.cfloat()", "{t}.type({d})",
    "{t}.type_as({t})", "{t}.to({t})", "{t}.to({d}).to({d})", "{t}.view({d})", "{t}.view(torch.int32)", "{t}.contiguous().view(torch.uint8)", "torch.view_as_real({t})", "torch.view_as_complex({t})", "{t}.to({d}, copy=True)",
    "{t}.type(torch.IntTensor)", "torch.as_tensor({t}, dtype={d})", "torch.asarray({t}, dtype={d})", "{t}.real", "{t}.imag", "{t}.H", "{t}.mT", "{t}.T", "{t}.conj()", "{t}.adjoint()", "{t}.to({d}) {o} {t}",
    "torch.tensor({t}.tolist())", "torch.tensor({t}.sum().item())", "({t} * 1.5).to({d})", "({t} * 100).to({d})", "({t} / 3).to({d})", "({t} - 300).to({d})", "({t} > 0).to({d})", "{t}.to({d}).sum({a})", "{t}.neg().conj()",
)  # fmt: skip
VIEWS = (
    "{t}.reshape(-1)", "{t}.view(-1)", "{t}.t()", "{t}.transpose(0, -1)", "{t}.permute(*reversed(range({t}.dim())))", "{t}.unsqueeze({a})", "{t}.squeeze()", "{t}.squeeze({a})", "{t}.flatten()", "{t}.expand(2, *{t}.shape)",
    "{t}.expand_as({t})", "{t}.broadcast_to({t}.shape)", "{t}.unflatten({a}, (-1, 1))", "{t}.movedim(0, -1)", "{t}.swapaxes(0, -1)", "{t}.diagonal()", "{t}.diagonal({i})", "{t}.unfold({a}, 2, 1)", "{t}.view({t}.shape)", "{t}.view_as({t})",
    "{t}.contiguous()", "{t}.ravel()", "torch.atleast_1d({t})", "torch.atleast_3d({t})", "{t}.detach()", "{t}.narrow({a}, 0, 1)", "{t}.narrow({a}, {i}, 1)", "{t}.select({a}, {i})", "{t}.unbind({a})[-1]", "{t}.chunk(2, {a})[0]", "{t}.split(1, {a})[-1]",
    "{t}.tensor_split(2, {a})[1]", "{t}.as_strided((2, 2), (1, 1))", "{t}.as_strided((2,), (1,), 1)", "{t}.flip({a})", "{t}.roll(1, {a})", "{t}.roll({i})", "{t}.rot90()", "{t}.fliplr()", "{t}.tril({i})", "{t}.triu()", "{t}.diag()", "{t}.diag_embed()",
    "torch.diagflat({t})", "{t}.repeat(2, *[1] * {t}.dim())", "{t}.repeat_interleave(2, {a})", "{t}.repeat_interleave({n}.abs(), 0)", "{t}.tile(2)", "{t}.hsplit(1)[0]", "{t}.reshape({t}.shape[::-1])", "{t}.reshape(2, -1)", "{t}.resize_as_({t})",
    "{t}.index_select({a}, {n})", "{t}.take({n})", "torch.broadcast_tensors({t}, {t})[1]", "{t}.expand(-1, 3)", "{t}.reshape({t}.shape)", "{t}.unsafe_chunk(2)[0]", "{t}.view(-1, 1)", "{t}.view(1, -1)[0]", "torch.narrow_copy({t}, 0, 0, 1)",
    "{t}.transpose(0, -1).reshape(-1)", "{t}.expand(3, *{t}.shape).reshape(-1)", "{t}[None].expand(2, *{t}.shape).contiguous()", "{t}.T.flatten()", "{t}.clone(memory_format=torch.contiguous_format)", "{t}.sum_to_size({t}.shape)",
)  # fmt: skip
INDEX = (
    "{t}[{x}]", "{t}[{x}]", "{t}[{x}, {x}]", "{t}[{x}, {x}]", "{t}[..., {x}]", "{t}[{x}, ..., {x}]", "{t}[{x}, {x}, {x}]", "{t}[:, {x}]", "{t}[{x}][{x}]", "{t}[{m}]", "{t}[~{m}]", "{t}[{n}]", "{t}[{n}, {n}]", "{t}[{n}][{x}]", "{t}[:, {n}]",
    "{t}[{n}, None]", "{t}[None, {n}]", "{t}[{n}, ..., None]", "{t}.take_along_dim({n}, 0)", "{t}.gather(0, {n})", "{t}.gather({a}, {t}.argsort({a}))", "{t}.masked_select({m})", "torch.index_select({t}, {a}, {n})", "{t}.index_fill({a}, {n}, {s})",
    "{t}.index_add({a}, {n}, {t})", "{t}.index_copy({a}, {n}, {t}[{n}])", "{t}.scatter(0, {n}, {s})", "{t}.scatter(0, {n}, {t})", "{t}.scatter_add(0, {n}, {t})", "{t}.scatter_reduce(0, {n}, {t}, '{z}')", "{t}.index_reduce(0, {n}, {t}[{n}], '{z}')",
    "{t}.scatter_reduce(0, {n}, {t}, '{z}', include_self=False)", "{t}.masked_scatter({m}, {t})", "{t}.index_put(({n},), {t}[{n}])", "{t}.index_put(({n},), torch.tensor({s}))", "{t}.index_put(({n},), {t}[{n}], accumulate=True)", "{t}.put({n}, {t}.reshape(-1)[:1])",
    "F.embedding({n}, {t})", "F.one_hot({n}.abs())", "torch.nonzero({t})", "torch.nonzero({t}, as_tuple=True)", "torch.argwhere({t})", "torch.where({m})", "{t}.select_scatter({t}[0], 0, {i})", "{t}.slice_scatter({t}[:1], 0, 1, 2)", "{t}.diagonal_scatter({t}.diagonal() * 2)",
    "{t}[{i}].item()", "{t}.reshape(-1)[{n}]", "{t}[torch.randperm({t}.shape[0])]", "{t}[{t}.shape[0] - 1]", "{t}[{t}.argmax()]", "{t}[{n} % 2]", "{t}[{n}.to(torch.int32)]", "{t}[{n}.abs().to(torch.uint8)]", "torch.take({t}, {n})", "torch.isin({t}, {t})", "{t}.__getitem__({x})",
)  # fmt: skip
REDUCTIONS = (
    "{t}.{r}({a})", "{t}.{r}()", "{t}.{r}(dim={a}, keepdim=True)", "torch.{r}({t}, {a})", "torch.{r}({t}.to({d}), {a})", "torch.{r}({t}, dim={a}, dtype={d})", "{t}.{r}({a}).{r}({a})", "{t} - {t}.{r}({a}, keepdim=True)", "({t} {o} {t}).{r}({a})",
    "{t}.sum(dtype={d})", "{t}.sum((0, -1))", "{t}.sum(())", "{t}.sum([0], keepdim=True, dtype={d})", "{t}.mean(dtype={d})", "{t}.amax((0, -1))", "{t}.amax(())", "{t}.var({a}, unbiased=False)", "{t}.std({a}, correction=0)", "torch.var_mean({t}, {a})", "torch.std_mean({t})",
    "torch.max({t}, {a})", "torch.min({t}, {a})[1]", "torch.max({t}, {t})", "torch.aminmax({t}, dim={a})", "torch.topk({t}, 1, {a})", "torch.topk({t}, {i}, {a}, largest=False)", "torch.kthvalue({t}, 1, {a})", "torch.sort({t}, {a}, descending=True)", "torch.sort({t}, stable=True, dim={a})",
    "torch.norm({t}, {s})", "torch.linalg.vector_norm({t}, {s})", "torch.linalg.vector_norm({t}, 1, {a})", "torch.norm({t}, 'fro')", "torch.quantile({t}, 0.3, {a})", "torch.nanquantile({t}, 0.5)", "torch.bincount({n}.abs())", "torch.histc({t}, 4)", "torch.unique({t})",
    "torch.unique({t}, return_inverse=True, return_counts=True)", "torch.searchsorted({t}.sort()[0], {t})", "torch.bucketize({t}, torch.tensor([-1.0, 0.0, 1.0]), right=True)", "torch.cumsum({t}, {a}, dtype={d})", "torch.cumprod({t}, {a}, dtype={d})", "torch.trapezoid({t})", "torch.diff({t}, 1, {a}, {t})",
    "torch.softmax({t}, {a}, dtype={d})", "F.softmax({t}, {a}) @ {t}", "torch.logsumexp({t}, (0, -1))", "torch.any({t})", "torch.all({t}, {a}, keepdim=True)", "{t}.nansum({a}, dtype={d})", "torch.count_nonzero({t}, (0,))", "{t}.cov()", "{t}.corrcoef()", "torch.renorm({t}, 2, 0, 1.0)", "F.normalize({t}, dim={a})",
    "F.layer_norm({t}, {t}.shape[-1:])", "F.mse_loss({t}, {t})", "F.l1_loss({t}, {t}, reduction='sum')", "F.smooth_l1_loss({t}, {t})", "F.cosine_similarity({t}, {t}, {a})", "F.pairwise_distance({t}, {t})", "torch.cdist({t}, {t})", "torch.linalg.norm({t})", "F.cross_entropy({t}, {n}.abs()[:1].expand({t}.shape[0]))",
    "F.kl_div({t}, {t}, reduction='none')", "F.huber_loss({t}, {t})", "F.binary_cross_entropy_with_logits({t}, {t})", "torch.segment_reduce({t}, 'sum', lengths=torch.tensor([{t}.shape[0]]))", "{t}.argmax({a}, keepdim=True)", "{t}.sum() / {t}.numel()", "{t}.logsumexp({a}) {o} {s}", "{m}.sum()", "{m}.float().mean({a})",
)  # fmt: skip
PRODUCTS = (
    "{t} @ {t}", "{t} @ {t}.mT", "torch.mm({t}, {t}.t())", "torch.bmm({t}[None], {t}.t()[None])", "torch.mv({t}, {t}[0])", "torch.dot({t}.reshape(-1), {t}.reshape(-1))", "torch.vdot({t}, {t})", "torch.outer({t}.reshape(-1)[:3], {t}.reshape(-1)[:2])", "torch.addmm({t}, {t}, {t}.t(), beta={s}, alpha={s})", "F.linear({t}, {t}, {t})",
    "torch.addmv({t}, {t}, {t}, beta=0)", "torch.baddbmm({t}, {t}[None], {t}[None])", "torch.einsum('...i,...i->...', {t}, {t})", "torch.einsum('ij->ji', {t})", "torch.tensordot({t}, {t}, 1)", "torch.kron({t}, {t})", "torch.inner({t}, {t})", "torch.cross({t}, {t}, dim=-1)", "torch.matrix_power({t}, 2)", "torch.trace({t})", "torch.chain_matmul({t}, {t})", "torch.addr({t}, {t}[0], {t}[0])",
    "torch.linalg.det({t})", "torch.matmul({t}[None], {t})", "torch.block_diag({t}, {t})", "torch.cartesian_prod({t}.reshape(-1)[:2], {t}.reshape(-1)[:2])", "torch.combinations({t}.reshape(-1)[:3])", "torch.vander({t})", "torch.meshgrid({t}.reshape(-1)[:2], {t}.reshape(-1)[:3], indexing='ij')[1]", "torch.conv1d({t}[None], {t}[:, None, :2])",
)  # fmt: skip
MADE = (
    "torch.cat([{t}, {t}])", "torch.cat([{t}, {t}], {a})", "torch.cat([{t}, {t}.to({d})], -1)", "torch.stack([{t}, {t}])", "torch.stack([{t}, {t}], {a})", "torch.hstack([{t}, {t}])", "torch.vstack([{t}, {t}])", "torch.dstack([{t}, {t}])", "torch.column_stack([{t}, {t}])", "torch.cat([{t}, torch.tensor([])])", "torch.stack([{t}[0], {t}[-1] * 2])",
    "torch.arange({i})", "torch.arange({s}, 5)", "torch.arange(5, {i}, -1)", "torch.arange(0, 2, 0.3)", "torch.arange({i}, 4, dtype={d})", "torch.linspace({s}, {s}, 5)", "torch.linspace(0, 3, 4, dtype={d})", "torch.logspace(0, 2, 3)", "torch.full((2, 3), {s})", "torch.full((3,), {s}, dtype={d})", "torch.full_like({t}, {s})", "torch.full_like({t}, {s}, dtype={d})",
    "torch.tensor({s})", "torch.tensor([{s}, {s}])", "torch.tensor([{s}, 1], dtype={d})", "torch.tensor([{i}, {k}])", "torch.zeros_like({t})", "torch.ones_like({t}, dtype={d})", "torch.zeros({t}.shape, dtype={d}) + {s}", "{t}.new_full((2,), {s})", "{t}.new_ones({t}.shape)", "{t}.new_zeros(3)", "{t}.new_tensor([1, 2])", "torch.eye(3, dtype={d})", "torch.eye(2, 3)", "torch.scalar_tensor({s})",
    "torch.scalar_tensor({s}, dtype={d})", "torch.as_tensor({s})", "torch.as_tensor([{s}])", "torch.empty({t}.shape).fill_({s})", "torch.empty_like({t}).fill_({s})", "torch.tril_indices(3, 3)", "torch.triu(torch.ones(3, 3), {i})", "torch.ones(0) * {s}", "torch.zeros(2, 0).sum({a})", "torch.ones(()) * {s}", "torch.rand({t}.shape)", "torch.randn_like({t})", "torch.randint(0, 5, {t}.shape)",
    "torch.randint_like({t}, 4)", "torch.bernoulli(torch.sigmoid({t}))", "F.dropout({t}, 0.5)", "torch.randperm(5)", "torch.rand_like({t}, dtype={d})", "torch.normal({t}, 1.0)", "torch.rand(3, dtype={d})", "F.pad({t}, (1, 2))", "F.pad({t}, (1, -1), value={s})", "F.pad({t}[None], (1, 1), mode='reflect')", "F.pad({t}[None], (1, 1), mode='replicate')", "torch.constant_pad_nd({t}, (1, 0, 0, 1), {s})",
    "F.avg_pool1d({t}[None], 2)", "F.max_pool1d({t}[None], 2, 1)", "F.max_pool2d({t}[None, None], 2)", "F.interpolate({t}[None, None], scale_factor=2)", "F.unfold({t}[None, None], 2)", "torch.hann_window(4)", "torch.clone({t})", "torch.result_type({t}, {s})", "torch.result_type({t}, {t})", "torch.promote_types({d}, {d})", "torch.can_cast({d}, {d})", "torch.empty(0, dtype={d})",
)  # fmt: skip
QUESTIONS = (
    "({t}.dtype, {t}.shape, {t}.stride())", "{t}.is_contiguous()", "{t}.is_floating_point()", "torch.is_complex({t})", "{t}.storage_offset()", "{t}.requires_grad", "{t}.is_conj()", "{t}.element_size()", "{t}._version", "{t} is {t}", "torch.equal({t}, {t})", "torch.allclose({t}, {t}, equal_nan=True)", "{t}.tolist()", "{t}.sum().item()", "{t}.reshape(-1)[0].item()", "bool({t}.any())",
    "int({t}.reshape(-1)[0])", "float({t}.sum())", "complex({t}.sum())", "len({t})", "{t}.data_ptr() == {t}.data_ptr()", "{t}.is_set_to({t})", "{t}.numel()", "torch.is_nonzero({t}.sum())", "{t}.is_leaf", "{t}._base is None", "{t}.is_same_size({t})", "{t}.dim()", "{t}.is_signed()", "torch.is_tensor({t})", "({s} in {t})", "{t}.any().item() and {i}", "list({t})", "[e * 2 for e in {t}]", "{t}.nbytes", "torch.numel({t})",
)  # fmt: skip
MASKS = ("{t} > 0", "{t} == {t}", "{t} != {s}", "{t}.bool()", "{m} & {m}", "{m} | ({t} < 1)", "~{m}", "{m} ^ {m}", "{t}.isnan()", "{t} >= {t}.reshape(-1)[:1]", "torch.isfinite({t})", "{m}.logical_not()", "{m}.clone()", "{t} <= {s}", "{t}.lt({s})", "torch.signbit({t})", "torch.ones_like({t}, dtype=torch.bool)", "{m}.t()", "{m}[..., :1]", "{t}.logical_and({t})")  # fmt: skip
INDICES = ("{n} * 0", "{n}.abs()", "{n}[:1]", "{n} - 1", "{n}.flip(0)", "torch.tensor([0, -1])", "torch.tensor([], dtype=torch.int64)", "torch.arange({t}.shape[0])", "torch.tensor([[0, -1], [0, 0]])", "{n}.to(torch.int32)", "torch.tensor({i})", "{n}.expand(2, -1)", "{t}.argsort(0)", "{n} % 2", "torch.cat([{n}, {n}])")  # fmt: skip
NUMBERS = ("{t}.shape[0]", "{t}.dim()", "{t}.size({a})", "{i} + 1", "-{i}", "{i} * 2", "{i} // 2", "len({t})", "{n}.numel()", "int({t}.reshape(-1)[0])", "{n}.sum().item()", "{m}.sum().item()", "{t}.argmax().item()", "min({i}, 2)", "{t}.stride({a})", "{t}._version")  # fmt: skip

WRITES = (
    "{t}[{x}] = {s}", "{t}[{x}] = {t}", "{t}[{x}] = {t}[{x}]", "{t}[{x}, {x}] = {s}", "{t}[{x}, {x}] = {t}", "{t}[{m}] = {s}", "{t}[{m}] = {t}[{m}]", "{t}[{n}] = {s}", "{t}[{n}] += {s}", "{t}[{x}] {p} {s}", "{t}[{x}] {p} {t}", "{t}[..., {x}] *= {s}", "{t}[{n}] = {t}[{n}] * 2", "{t}[...] = {t}", "{t}[:] = {t}", "{t}[{n}, {x}] = {s}", "{t}[{m}] *= {s}",
    "{t} {p} {s}", "{t} {p} {t}", "{t}.{q}({t})", "{t}.{q}({s})", "{t}.{u}()", "{t}[{x}].{q}({s})", "{t}[{x}].{u}()", "{t}[:1].{q}({t}[-1:])", "{t}.view(-1)[:2].{q}({s})", "{t}.t().{q}({t})", "{t}.transpose(0, -1).{u}()", "{t}.diagonal().{q}({s})", "{t}.masked_fill_({m}, {s})", "{t}.masked_scatter_({m}, {t})", "{t}.index_fill_({a}, {n}, {s})", "{t}.index_add_({a}, {n}, {t}, alpha={s})",
    "{t}.index_copy_({a}, {n}, {t}[{n}])", "{t}.index_put_(({n},), {t}[{n}], accumulate=True)", "{t}.index_put_(({m},), torch.tensor({s}))", "{t}.scatter_({a}, {n}, {s})", "{t}.scatter_add_(0, {n}, {t})", "{t}.scatter_reduce_(0, {n}, {t}, '{z}')", "{t}.put_({n}, {t}.reshape(-1)[{n}])", "{t}.fill_diagonal_({s})", "{t}.clamp_({s}, {s})", "{t}.lerp_({t}, {s})", "{t}.addcmul_({t}, {t}, value={s})", "{t}.copy_({t})",
    "{t}.copy_({t}.to({d}))", "{t}.fill_({s})", "{t}.fill_({t}.sum())", "{t}.zero_()", "{t}.expand(2, *{t}.shape)[0].{q}({s})", "{t}.unsqueeze(0)[0].{q}({s})", "{t}[::2].{q}({s})", "{t}[1:] {p} {t}[:-1]", "{t}[:-1] = {t}[1:]", "{t}[1:] = {t}[:-1] + {s}", "{t}.data.{q}({s})", "{t}.detach().{q}({s})", "{t}.cumsum_({a})", "{t}.tril_()", "{t}.t_()", "{t}.unsqueeze_(0)", "{t}.squeeze_()", "{t}.transpose_(0, -1)",
    "{t}.swapaxes_(0, -1)", "{t}.resize_(2, 2).fill_(1)", "{t}.random_(0, 3)", "{t}.uniform_()", "{t}.bernoulli_(0.5)", "{t}.normal_()", "{t}.sub_({t}, alpha={s})", "{t}.real.{q}({s})", "{t}.imag.zero_()", "torch.view_as_real({t}).mul_(2)", "{t}.view(torch.int32).{q}(1)", "{t}.addmm_({t}, {t})", "{t}.renorm_(2, 0, 1.0)", "{t}.set_({t})", "{t}[0], {t}[-1] = {t}[-1], {t}[0]", "{t}[0], {t}[-1] = {t}[-1].clone(), {t}[0].clone()",
)  # fmt: skip
OUT = (
    "t1 = torch.empty(0)\ntorch.{g}({t}, {t}, out=t1)", "t1 = torch.zeros_like({t})\ntorch.{g}({t}, {s}, out=t1)", "t1 = torch.zeros({t}.shape, dtype={d})\ntorch.{g}({t}, {t}, out=t1)", "torch.{g}({t}, {t}, out={t})", "torch.{f}({t}, out={t})", "t1 = torch.zeros_like({t})\nt2 = torch.{f}({t}, out=t1)", "t1 = torch.zeros({t}.shape, dtype={d})\nt2 = torch.{f}({t}, out=t1)",
    "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.{f}({t}, out=t1)", "t1 = torch.zeros(5)\nt2 = torch.sum({t}, 0, out=t1)", "t1 = torch.empty(0, dtype={d})\nt2 = torch.sum({t}, {a}, dtype={d}, out=t1)", "t1 = torch.empty(0)\nt2 = torch.{r}({t}, {a}, out=t1)", "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.cat([{t}, {t}], out=t1)", "t1 = torch.zeros(9, dtype={t}.dtype)\nt2 = torch.add({t}, {t}, out=t1[:3])",
    "t1 = torch.zeros(2, 9, dtype={t}.dtype)\nt2 = torch.mul({t}, {s}, out=t1[:, ::3])", "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.empty(0, dtype=torch.int64)\nt3 = torch.max({t}, {a}, out=(t1, t2))", "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.empty(0, dtype=torch.int64)\nt3 = torch.sort({t}, out=(t1, t2))", "t1 = torch.zeros(4, dtype={d})\ntorch.arange(4, out=t1)",
    "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.matmul({t}, {t}, out=t1)", "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.index_select({t}, 0, {n}, out=t1)", "t1 = torch.empty(0, dtype={t}.dtype)\ntorch.where({m}, {t}, {t}, out=t1)", "torch.clamp({t}, {s}, {s}, out={t})", "t1 = {t}.clone()\ntorch.add(t1[:1], {s}, out=t1[:1])", "t1 = {t}.clone()\ntorch.mul(t1, 2, out=t1.t())", "t1 = torch.empty(0)\nt2 = torch.full((2,), {s}, out=t1)",
    "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.cumsum({t}, {a}, out=t1)", "t1 = torch.zeros_like({t})\ntorch.sub({t}, {t}, alpha={s}, out=t1)", "t1 = torch.empty(2, 3, dtype={d}).fill_(0)\nt2 = torch.stack([{t}, {t}], out=t1)", "t1 = torch.empty(0, dtype={t}.dtype)\nt2 = torch.masked_select({t}, {m}, out=t1)", "t1 = torch.zeros({t}.shape, dtype=torch.bool)\ntorch.gt({t}, {s}, out=t1)", "t1 = torch.zeros({t}.shape)\ntorch.isnan({t}, out=t1)",
)  # fmt: skip
LINES = (
    "t1 = {t}.clone()\nt2 = t1[{x}]\nt2.{q}({s})", "t1 = {t}.clone()\nt2 = t1.view(-1)\nt1.{q}({s})", "t1 = {t} * 1\nt1[{x}] = {t}", "t1 = {t}.clone()\nt1[{m}] = {s}", "t1 = {t} + 0\nt1 {p} {t}", "t1 = {t}\nt1 {p} {s}", "t1 = {t}.clone()\nt1[1:] = t1[:-1]", "t1 = {t}.clone()\nt1[{n}] += 1", "t1 = {t}.contiguous()\nt1.{q}({s})", "t1 = {t}.reshape(-1)\nt1.{q}({s})", "t1 = {t}.to({d})\nt1.{q}({s})", "t1 = {t}.expand(2, *{t}.shape)\nt1.{q}({s})",
    "t1, t2 = {t}.clone().chunk(2, {a})\nt1.{q}({s})", "t1 = torch.zeros(3, 4)\nt1[1] = {s}\nt1[:, 2] = {t}", "t1 = {t}.detach()\nt1.{q}({s})", "t1 = {t}.flatten()\nt1 += {s}", "with torch.no_grad():\n    {t}.{q}({s})", "with torch.no_grad():\n    t1 = {t} {o} {t}", "if {m}.any():\n    t1 = {t} + 1", "if {t}.shape == {t}.shape:\n    t1 = {t} {o} {t}", "for e in range(2):\n    {t}[{x}] {p} {s}", "for e in {t}:\n    t1 = e {o} {s}", "t1 = {t}.clone().{q}({s}).{q}({t})",
    "try:\n    t1 = {t} {o} {t}\nexcept Exception as error:\n    i1 = type(error).__name__", "try:\n    t1 = {t}[{x}, {x}]\nexcept (IndexError, RuntimeError) as error:\n    i1 = str(error)[:40]", "try:\n    {t}.{q}({t})\nexcept RuntimeError as error:\n    i1 = str(error)[:40]", "t1 = {t}.clone()\nt1.requires_grad_()\nt2 = (t1 {o} {s}).sum()\nt2.backward()\nt3 = t1.grad", "t1 = {t}.detach().clone().requires_grad_()\nt2 = F.{h}(t1).sum()\nt3 = torch.autograd.grad(t2, t1)[0]",
    "t1 = {t}.detach().clone().requires_grad_()\nt2 = torch.{f}(t1[{x}]).sum()\nt3 = torch.autograd.grad(t2, t1)[0]", "t1 = {t}.detach().clone().requires_grad_()\nt2 = torch.{r}(t1, {a}).sum()\nt3 = torch.autograd.grad(t2, t1)[0]", "t1 = {t}.detach().clone().requires_grad_()\nt2 = torch.{g}(t1, {t})\nt3 = torch.autograd.grad(t2.sum(), t1)[0]", "with torch.autocast('cpu', torch.bfloat16):\n    t1 = {t} @ {t}.mT\n    t2 = t1 + {t}", "with torch.inference_mode():\n    t1 = {t} {o} {t}",
)  # fmt: skip

TENSORS = (POINTWISE, POINTWISE, POINTWISE, CASTS, VIEWS, INDEX, INDEX, REDUCTIONS, REDUCTIONS, MADE, PRODUCTS)  # fmt: skip
FORMS = {"t": TENSORS, "m": (MASKS,), "n": (INDICES,), "i": (NUMBERS, QUESTIONS)}
STATEMENTS = (WRITES, WRITES, OUT, LINES)


# -- the calls ----------------------------------------------------------------------------------------


class _Calls:
    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.shapes = dict(zip("xyz", r.choice(SHAPES), strict=True))
        self.dtypes = {name: r.choice(DTYPES) for name in "xyz"}
        if r.random() < 0.5:
            self.dtypes["y"] = self.dtypes["x"]
        self.layouts = {name: r.choice(LAYOUTS) if r.random() < 0.3 else "" for name in "xyz"}
        self.shared = r.random() < 0.08  # y is a view of x's memory, or x itself

    def call(self, odd: bool = False, other: bool = False, shared: bool = False) -> str:
        r = self.r
        dtypes, layouts = dict(self.dtypes), dict(self.layouts)
        shapes = dict(self.shapes)
        if other and r.random() < 0.4:  # one size of all tensors is another one
            size, more = r.choice([n for n in (*shapes["x"], 3) if n != 1]), r.choice((1, 2, 5))
            shapes = {
                name: tuple(n + more if n == size else n for n in shape)
                for name, shape in shapes.items()
            }
        if other:
            name = r.choice("xyz")
            dtypes[name] = r.choice(DTYPES)
            layouts[r.choice("xyz")] = r.choice(("", *LAYOUTS))
        texts = {
            name: self._tensor(shapes[name], dtypes[name], layouts[name], odd) for name in "xyz"
        }
        if shared:
            texts["x"], texts["y"] = (
                "H.x",
                r.choice(("H.x", "H.x[..., :]", "H.x.view(-1)", "H.x[:1]")),
            )
        start, shape = r.randrange(9), shapes["x"]
        size = shape[0] if shape else 1
        places = [r.randrange(-size, size) if size else 0 for _ in range(r.choice((1, 2, 3)))]
        if odd and r.random() < 0.1:
            places[0] = size + 1
        parts = [f"{name}={texts[name]}" for name in "xyz"]
        parts += [
            f"m=data({shape}, torch.bool, {start})",
            f"n=torch.tensor({places if size or odd else []}, dtype=torch.int64)",
            f"i={r.choice((0, 1, 2, -1, -2, 3)) if odd else 1}",
            f"k={r.choice(ODD_FLOATS) if odd and r.random() < 0.3 else r.choice((0.5, -1.5, 2.0))}",
        ]
        return f"({', '.join(parts)})"

    def _tensor(self, shape: tuple[int, ...], dtype: str, layout: str, odd: bool) -> str:
        r = self.r
        floating = dtype.startswith(("float", "bfloat"))
        values = ODD_FLOATS if floating else ODD_INTS
        extra = (
            ", odd=[" + ", ".join(r.sample(values, 3)) + "]"
            if odd and "complex" not in dtype
            else ""
        )
        text = f"data({shape}, torch.{dtype}, {r.randrange(9)}{extra})"
        if layout == "grad" and not floating:
            layout = ""
        return f"{layout}({text})" if layout else text

    def steps(self) -> list[str]:
        first = self.call()
        steps = [first, first, self.call(odd=True), self.call(odd=True)]
        for _ in range(self.r.randint(1, 2)):
            steps.append(self.call(odd=self.r.random() < 0.5, other=True))
        if self.shared:
            held = f"H.x = data({self.shapes['x']}, torch.{self.dtypes['x']})"
            steps[2:2] = [held, self.call(shared=True)]
        return steps


# -- the body -----------------------------------------------------------------------------------------


class _Body:
    """Statements over names that are bound by then: `t*` tensors, `m*` masks, `n*` indices, `i*` and `k*` numbers."""

    def __init__(self, r: random.Random, space: dict[str, Any]) -> None:
        self.r, self.space = r, space
        self.names: dict[str, list[str]] = {kind: list(names) for kind, names in KINDS.items()}
        self.made: list[str] = []

    def fill(self, template: str, depth: int = 0) -> str:
        return PLACE.sub(lambda found: self._place(found[1], depth), template)

    def _place(self, kind: str, depth: int) -> str:
        r = self.r
        if kind in CONTENTS:  # one of a list: {d} a dtype, {a} an axis, {x} an index
            return self.fill(r.choice(CONTENTS[kind]), depth + 1)
        if kind == "s":
            return r.choice((*SCALARS, *self.names["i"], *self.names["k"]))
        names = self.names[kind]
        if kind in FORMS and depth < 3 and r.random() < 0.25 - 0.08 * depth:
            return "(" + self.fill(r.choice(r.choice(FORMS[kind])), depth + 1) + ")"
        return r.choice(names[-4:] if r.random() < 0.5 else names)

    def statement(self) -> list[Statement]:
        r = self.r
        if r.random() < 0.35:
            return parse(self.fill(r.choice(r.choice(STATEMENTS))))
        kind = r.choice("ttttttmni")
        name = f"{kind}{10 + len(self.made)}"
        return [Statement(f"{name} = {self.fill(r.choice(r.choice(FORMS[kind])))}")]

    def runs(self, statements: list[Statement]) -> bool:
        """Whether they run after what there is; then their names are bound."""
        source = "\n".join(line for one in statements for line in one.lines(0))
        before = set(self.space)
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(source, "<statement>", "exec"), self.space)
        except Exception:
            return False
        for name in sorted(set(self.space) - before):
            if not name[1:].isdigit():
                continue
            value, kind = self.space[name], name[0]
            self.made.append(name)
            if isinstance(value, torch.Tensor):
                if value.numel() > 5000:
                    return True
                kind = "t" if kind == "t" else "m" if value.dtype == torch.bool else kind
            elif kind in "tmn" or isinstance(value, bool):
                continue
            if kind in self.names and (kind != "i" or isinstance(value, int) and abs(value) < 9):
                self.names[kind].append(name)
        return True


def generate(seed: int, size: int = 7) -> Program:
    r = random.Random(seed)
    calls = _Calls(r)
    prelude = parse(PRELUDE)
    space = vars(types.ModuleType("fuzzed"))
    exec(PRELUDE, space)
    steps = calls.steps()
    exec(f"globals().update(dict{steps[0]})", space)
    body = _Body(r, space)
    lines: list[Statement] = []
    for _ in range(r.randint(1, size)):
        for attempt in range(TRIES):
            statements = body.statement()
            if body.runs(statements) or (attempt == 0 and r.random() < 0.04):
                lines += statements
                break
    lines += [Statement("r = []"), *(Statement(f"r.append({name})") for name in body.made)]
    head = f"def f({', '.join(ARGUMENTS)}):"
    body_lines = [*lines, Statement("return r")]
    # What raises after it has begun to write to an argument raises at once, not in the frame again.
    return Program(seed, prelude, head, body_lines, steps, traced=False)


def main(arguments: list[str] | None = None) -> int:
    return programs.main(arguments, generate, size=7, description=__doc__)


if __name__ == "__main__":
    sys.exit(main())
