"""The Triton dialect: how kernels write operators, their helpers and their reductions.

Text only: this file imports no triton. Math goes to libdevice, the library behind CUDA's own exp,
tanh, pow, so results agree with eager's on a GPU. Division and square root are the correctly
rounded ones (`tl.div_rn`), because Triton's `/` and `tl.sqrt` are approximations in float32. Narrow
floats are computed in float32.
"""

from __future__ import annotations

import math
import re

import torch

from ...ir.dataclass import dataclass
from ..loops import operators
from ..loops.loop_nest import REDUCTIONS, Value

# dtype -> (name in triton.language, name in a kernel's signature)
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("tl.float32", "fp32"),
    torch.float64: ("tl.float64", "fp64"),
    torch.bfloat16: ("tl.bfloat16", "bf16"),
    torch.float16: ("tl.float16", "fp16"),
    torch.bool: ("tl.int1", "i1"),
    torch.uint8: ("tl.uint8", "u8"),
    torch.int8: ("tl.int8", "i8"),
    torch.int16: ("tl.int16", "i16"),
    torch.int32: ("tl.int32", "i32"),
    torch.int64: ("tl.int64", "i64"),
}
_NARROW_FLOATS = (torch.bfloat16, torch.float16)


def const(number: bool | int | float, dtype: torch.dtype) -> str:
    """A typed scalar: with a bare literal Triton's promotion would choose the type."""
    if dtype in _NARROW_FLOATS:
        return f"{const(number, torch.float32)}.to({TYPES[dtype][0]})"
    if dtype == torch.bool:
        return f"tl.full((), {int(bool(number))}, tl.int1)"
    if not dtype.is_floating_point:
        return f"tl.full((), {int(number)}, {TYPES[dtype][0]})"
    value = float(number)
    if dtype == torch.float32:
        value = operators.single(value)
    if value == 0 and math.copysign(1, value) < 0:  # tl.full makes +0 of every zero
        return f"(tl.full((), -1.0, {TYPES[dtype][0]}) * 0.0)"
    return f"tl.full((), {literal(value)}, {TYPES[dtype][0]})"


def literal(number: float) -> str:
    """A float literal for Triton."""
    return repr(float(number)) if math.isfinite(number) else f'float("{number}")'


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion as torch's `.to`: narrow floats through float32, floats to narrow integers
    through wide ones.
    """
    if source == target:
        return text
    if target == torch.bool:
        wide = cast(text, source, torch.float32) if source in _NARROW_FLOATS else text
        return f"({wide} != 0)"
    steps = [target]
    if target in _NARROW_FLOATS and source != torch.float32:
        steps.insert(0, torch.float32)
    elif source.is_floating_point and target in (torch.uint8, torch.int8, torch.int16):
        steps.insert(0, torch.int64 if target == torch.uint8 else torch.int32)
    if source in _NARROW_FLOATS and steps[0] != torch.float32:
        steps.insert(0, torch.float32)
    return text + "".join(f".to({TYPES[step][0]})" for step in steps)


def _by_float(single: str, double: str) -> operators.Form:
    """One form for float32, another for float64."""

    def form(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
        return (double if dtypes[0] == torch.float64 else single).format(*args)

    return form


def _signbit(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
    whole = "tl.int64" if dtypes[0] == torch.float64 else "tl.int32"
    return f"{args[0]}.to({whole}, bitcast=True) < 0"


def _shift(name: str) -> operators.Form:
    def form(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
        return f"{name}({args[0]}, {args[1]}, {torch.iinfo(dtypes[0]).bits})"

    return form


def _not(value: Value, args: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> str:
    # triton 3.6's interpreter cannot compute ~ of unsigned integers
    return f"{args[0]} ^ 255" if dtypes[0] == torch.uint8 else f"~{args[0]}"


def _library(op: str, name: str = "") -> str:
    return operators.call(op, f"libdevice.{name or op}")


def inverse(text: str) -> str:
    """1 / x in float32, correctly rounded."""
    return f"tl.div_rn(tl.full((), 1.0, tl.float32), {text})"


_NAN = ", propagate_nan=tl.PropagateNan.ALL)"
FORMS: dict[str, operators.Form] = {
    # Triton's // and % of integers are C's
    **operators.INFIX,
    "int_trunc_div": "{0} // {1}",
    "div": _by_float("tl.div_rn({0}, {1})", "{0} / {1}"),
    "fma": "tl.fma({0}, {1}, {2})",
    "neg:f": "{0} * -1.0",  # Triton's -x is 0 - x, which loses the sign of zero
    "neg:i": "-{0}",
    "abs": "tl.abs({0})",
    "sign": "({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype)",
    "fmod": _library("fmod"),
    "remainder": "_remainder({0}, {1})",
    "floor_div": "_floor_div({0}, {1})",
    "int_floor_div": "_int_floor_div({0}, {1})",
    "int_remainder": "_int_remainder({0}, {1})",
    "maximum:f": "tl.maximum({0}, {1}" + _NAN,
    "minimum:f": "tl.minimum({0}, {1}" + _NAN,
    "maximum:i": "tl.maximum({0}, {1})",
    "minimum:i": "tl.minimum({0}, {1})",
    "fmax": "_fmax({0}, {1})",
    "fmin": "_fmin({0}, {1})",
    "not": _not,
    "shl": _shift("_shl"),
    "shr": _shift("_shr"),
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "isfinite": 'tl.abs({0}) < float("inf")',
    "signbit": _signbit,
    "where": "tl.where({0}, {1}, {2})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": _library("round", "rint"),
    "sqrt": _by_float("tl.sqrt_rn({0})", "tl.sqrt({0})"),
    "rsqrt": _library("rsqrt"),
    "reciprocal": _by_float(inverse("{0}"), "1.0 / {0}"),
    "sigmoid": _by_float(
        inverse("1.0 + libdevice.exp(-{0})"), "1.0 / (1.0 + libdevice.exp(-{0}))"
    ),
    "erf": _by_float("_erf({0})", "libdevice.erf({0})"),
    "tanh": _by_float("_tanh({0})", "libdevice.tanh({0})"),
    **{
        name: _library(name)
        for name in (
            "trunc", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
            "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
            "erfc", "pow", "atan2", "hypot", "copysign",
        )
    },
}  # fmt: skip

DIALECT = operators.Dialect("triton", FORMS, const, cast)


@dataclass(frozen=True, slots=True)
class Fold:
    """The text of one reduction, over {x} (a tile whose masked elements hold the identity).

    step    combines the accumulator {acc} of the same shape with another tile (in loops)
    finish  one value per row, kept as a column
    """

    step: str
    finish: str


def _reduce(helper: str) -> str:
    return "tl.reduce({x}, 1, " + helper + ", keep_dims=True)"


# "reduction" or "reduction:kind"; those of positions have a pair (value, position)
FOLDS: dict[str, Fold] = {
    "sum": Fold("{acc} + {x}", "tl.sum({x}, 1, keep_dims=True)"),
    "prod": Fold("{acc} * {x}", _reduce("_product")),
    "max:f": Fold("_nan_max({acc}, {x})", _reduce("_nan_max")),
    "min:f": Fold("_nan_min({acc}, {x})", _reduce("_nan_min")),
    "max:i": Fold("tl.maximum({acc}, {x})", "tl.max({x}, 1, keep_dims=True)"),
    "min:i": Fold("tl.minimum({acc}, {x})", "tl.min({x}, 1, keep_dims=True)"),
    "any": Fold("{acc} | {x}", "tl.max({x}.to(tl.int32), 1, keep_dims=True) != 0"),
    "all": Fold("{acc} & {x}", "tl.min({x}.to(tl.int32), 1, keep_dims=True) != 0"),
    "argmax": Fold("_first_max({acc}, {position}, {x}, {c})", _reduce("_first_max")),
    "argmin": Fold("_first_min({acc}, {position}, {x}, {c})", _reduce("_first_min")),
}


# The helper by which a scan combines two neighbours, and the blocks before with the current one.
COMBINE = {"sum": "_total", "prod": "_product", "max": "_nan_max", "min": "_nan_min"}


def fold_of(reduction: str, dtype: torch.dtype) -> Fold:
    """The row of FOLDS; dtype is the argument's."""
    reduction = reduction.removeprefix("first ")
    return FOLDS.get(f"{reduction}:{operators.kind_of(dtype)}") or FOLDS[reduction]


def identity(reduction: str, dtype: torch.dtype) -> str:
    """The value of masked elements and the start of accumulators: a number of the argument's own
    dtype.
    """
    number = REDUCTIONS[reduction].start(dtype)
    if dtype == torch.bool:
        return const(number, dtype)
    return literal(number) if dtype.is_floating_point else str(number)


# Functions that kernels call: put before a kernel whose text names them.
HELPERS: dict[str, str] = {
    "_remainder": """
def _remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_divide": """
def _divide(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)
""",
    "_floor_div": """
def _floor_div(a, b):
    quotient = _divide(a, b)
    rest = libdevice.fmod(a, b)
    exact = _divide(a - rest, b)
    exact = tl.where((rest != 0) & ((rest < 0) != (b < 0)), exact - 1.0, exact)
    down = tl.floor(exact)
    down = tl.where(exact - down > 0.5, down + 1.0, down)
    down = tl.where(exact != 0, down, libdevice.copysign(exact * 0.0, quotient))
    return tl.where(b == 0, quotient, down)
""",
    # Without these conditions triton 3.6's interpreter keeps nan where a GPU drops it.
    "_fmax": """
def _fmax(a, b):
    return tl.where(a != a, b, tl.where(b != b, a, tl.maximum(a, b)))
""",
    "_fmin": """
def _fmin(a, b):
    return tl.where(a != a, b, tl.where(b != b, a, tl.minimum(a, b)))
""",
    "_int_floor_div": """
def _int_floor_div(a, b):
    quotient = a // b
    uneven = (a - quotient * b != 0) & ((a < 0) != (b < 0))
    return quotient - uneven.to(quotient.dtype)
""",
    "_int_remainder": """
def _int_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_shl": """
def _shl(a, count, BITS: tl.constexpr):
    outside = (count < 0) | (count >= BITS)
    return tl.where(outside, a * 0, a << tl.where(outside, count * 0, count))
""",
    "_shr": """
def _shr(a, count, BITS: tl.constexpr):
    outside = (count < 0) | (count >= BITS)
    shifted = a >> tl.where(outside, count * 0, count)
    return tl.where(outside, tl.where(a < 0, a * 0 - 1, a * 0), shifted)
""",
    "_total": """
def _total(a, b):
    return a + b
""",
    "_product": """
def _product(a, b):
    return a * b
""",
    "_nan_max": """
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_nan_min": """
def _nan_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    # Instructions of a GPU, of about 1 ulp; results below 2**-126 are 0.
    "_ex2": """
def _ex2(x):
    text: tl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(text, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
""",
    "_rcp": """
def _rcp(x):
    text: tl.constexpr = "rcp.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(text, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
""",
    # The values of libdevice's erf and tanh, to the bit. Those have branches, which lanes of a warp
    # take both; here each lane selects its coefficients or its result.
    "_erf": """
def _erf(x):
    size = tl.abs(x)
    far = size >= 1.002959966659546
    s = tl.where(far, size, x * x)
    p = tl.where(far, 1.6425845387857407e-05, 8.483494457323104e-05)
    p = tl.fma(p, s, tl.where(far, -0.0004680210549850017, -0.0008213091641664505))
    p = tl.fma(p, s, tl.where(far, 0.0052647641859948635, 0.005213488824665546))
    p = tl.fma(p, s, tl.where(far, -0.034303076565265656, -0.026868773624300957))
    p = tl.fma(p, s, tl.where(far, 0.1532936990261078, 0.11284004896879196))
    p = tl.fma(p, s, tl.where(far, 0.9163130521774292, -0.37612664699554443))
    p = tl.fma(p, s, tl.where(far, 0.6282998323440552, 0.12837915122509003))
    near = tl.where(far, -size, x)
    near = tl.fma(p, near, near)
    return tl.where(far, libdevice.copysign(1.0 - _ex2(near), x), near)
""",
    "_tanh": """
def _tanh(x):
    size = tl.abs(x)
    far = tl.fma(_rcp(_ex2(size * 2.885390043258667) + 1.0), -2.0, 1.0)
    far = tl.where(size >= 9.010913848876953, 1.0, far)
    s = x * x
    p = tl.fma(s, 0.01573968306183815, -0.05230396240949631)
    p = tl.fma(p, s, 0.13315297663211823)
    p = tl.fma(p, s, -0.33332768082618713)
    p = tl.fma(p, s, 0.0)
    return tl.where(size >= 0.6000000238418579, libdevice.copysign(far, x), tl.fma(p, x, x))
""",
    # Where a result is rounded to 16 bits (`rounding`). 1 + f(x), as eager's kernels compute it:
    # near -1 their f is a multiple of 2**-24, and so it is here.
    "_one_plus_erf": """
def _one_plus_erf(x):
    size = tl.abs(x)  # erfc(size) = 2 ** (size * p), fitted for an absolute error of 3e-7
    p = tl.fma(size, -6.484371169790393e-06, 7.927819387987256e-05)
    p = tl.fma(p, size, -0.00012306374264881015)
    p = tl.fma(p, size, -0.003334599081426859)
    p = tl.fma(p, size, 0.030779756605625153)
    p = tl.fma(p, size, -0.14974769949913025)
    p = tl.fma(p, size, -0.9181325435638428)
    p = tl.fma(p, size, -1.6279288530349731)
    return 1.0 + libdevice.copysign(1.0 - _ex2(p * size), x)
""",
    "_one_plus_tanh": """
def _one_plus_tanh(x):
    far = tl.fma(_rcp(_ex2(tl.abs(x) * 2.885390043258667) + 1.0), -2.0, 1.0)
    return 1.0 + libdevice.copysign(far, x)
""",
    # A quarter of exp(-x), so that no result that is a normal number becomes 0.
    "_sigmoid_16": """
def _sigmoid_16(x):
    return _rcp(_ex2(tl.fma(x, -1.4426950408889634, -2.0)) + 0.25) * 0.25
""",
    "_exp_16": """
def _exp_16(x):
    return tl.exp2(x * 1.4426950408889634)
""",
    # A lane's largest element so far, its sum of exp(element - largest), and another element: one
    # exp, whose error is greatest where it adds least.
    "_exp_in": """
def _exp_in(top, total, x):
    away = tl.where(x == top, 0.0, x - top)
    if x.dtype == tl.float64:
        scale = libdevice.exp(-tl.abs(away))
    else:
        scale = _ex2(tl.abs(away) * -1.4426950408889634)
    return tl.where(away > 0, total * scale + 1.0, total + scale)
""",
    "_exp_out": """
def _exp_out(tops, totals, top, shift):
    total = tl.sum(totals * libdevice.exp(tops - top), 1, keep_dims=True)
    return tl.where(tl.abs(top) == float("inf"), libdevice.exp(top - shift), total)
""",
    # A lane's mean of the elements so far and its sum of squares about that mean (Welford).
    "_squares_in": """
def _squares_in(mean, squares, x, count):
    away = x - mean
    mean = mean + away * (1.0 / count)
    return mean, squares + away * (x - mean)
""",
    "_squares_out": """
def _squares_out(means, squares, counts, shift):
    away = means - shift
    return tl.sum(squares + counts * (away * away), 1, keep_dims=True)
""",
    # Partial results that programs hand to each other, 32 bits with a bit that says that they have
    # come: one word is never seen by halves, so that no fence is needed.
    "_tell": """
def _tell(place, value):
    word = value.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    tl.store(place, word | (1 << 32), cache_modifier=".cg")
""",
    "_word": """
def _word(place, there):
    return tl.load(place, mask=there, other=1 << 32, volatile=True)
""",
    "_hear": """
def _hear(place, there):
    word = _word(place, there)
    while tl.min(word >> 32) == 0:
        word = _word(place, there)
    return word.to(tl.int32)
""",
    "_hear_two": """
def _hear_two(place, other, there):
    word, more = _word(place, there), _word(other, there)
    while tl.min((word & more) >> 32) == 0:
        word, more = _word(place, there), _word(other, there)
    return word.to(tl.int32), more.to(tl.int32)
""",
    # What exps of a piece are about, and what makes exps about the shift of the row of them.
    "_exp_about": """
def _exp_about(top):
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)
""",
    "_exp_scale": """
def _exp_scale(top, shift):
    return libdevice.exp(tl.where(top == float("inf"), 0.0, top) - shift)
""",
    "_first_max": """
def _first_max(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    left = (same & (i < j)) | (a > b) | ((a != a) & (b == b))
    return tl.where(left, a, b), tl.where(left, i, j)
""",
    "_first_min": """
def _first_min(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    left = (same & (i < j)) | (a < b) | ((a != a) & (b == b))
    return tl.where(left, a, b), tl.where(left, i, j)
""",
}


def helpers_of(text: str) -> list[str]:
    """The helpers that a kernel's text names, and those that these name, in the order of
    the table.
    """
    found: set[str] = set()
    queue = [text]
    while queue:
        words = set(re.findall(r"\b_\w+", queue.pop()))
        queue.extend(HELPERS[name] for name in words & HELPERS.keys() - found)
        found |= words & HELPERS.keys()
    return [name for name in HELPERS if name in found]
