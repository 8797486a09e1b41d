"""Operators by name, and tensors with special values: what tests of operators run over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    0.5,
    -0.5,
    1.5,
    2.5,
    88.5,
    -103.5,
)

UNARY: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh"
        " tanh asinh acosh atanh erf erfc sigmoid neg abs sign floor ceil trunc round isnan isinf relu"
        " frac nan_to_num square isfinite signbit logical_not positive deg2rad rad2deg isposinf isneginf sgn angle"
        " sinc hardshrink logit"
    ).split()
} | {
    "gelu": lambda x: F.gelu(x.clamp(-30, 30)),  # eager makes nan of infinity
    "softshrink": lambda x: F.softshrink(x, 0.7),
    "threshold": lambda x: F.threshold(x, 0.3, -2.5),
    "prelu": lambda x: F.prelu(x, torch.tensor(0.3, dtype=x.dtype)),
    "entr": torch.special.entr,
    "logit_eps": lambda x: torch.logit(x, 0.01),
    "xlogy_self": lambda x: torch.xlogy(1.5, x),
    "xlogy_other": lambda x: torch.xlogy(x, 2.5),
    "nansum": lambda x: x.nansum(-1),
    "count_nonzero": lambda x: x.count_nonzero(0),
    "aminmax": lambda x: torch.aminmax(x, dim=-1).max + torch.aminmax(x, dim=-1).min,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "mish": F.mish,
    "clamp": lambda x: x.clamp(-0.7, 0.9),
    "clamp_low": lambda x: x.clamp(min=-0.7),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow0.5": lambda x: x**0.5,
    "pow-1": lambda x: x**-1,
    "pow-2": lambda x: x**-2,
    "pow2.5": lambda x: x**2.5,
    "rpow": lambda x: 2.5**x,
    "add_number": lambda x: x + 0.3,
    "sub_number": lambda x: x - 1.7,
    "rsub_number": lambda x: 1.7 - x,
    "mul_number": lambda x: x * 0.3,
    "div_number": lambda x: x / 0.3,
    "rdiv_number": lambda x: 0.3 / x,
    "lt_number": lambda x: x < 0.5,
    "ne_number": lambda x: x != 0.5,
    "to_double": lambda x: x.double(),
    "to_float": lambda x: x.float(),
    "to_bool": lambda x: x.bool(),
    "to_bfloat16": lambda x: x.bfloat16(),
    "to_half": lambda x: x.half(),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -2.0),
    "where_number": lambda x: torch.where(x > 0, x, 0.0),
    "ones_like": lambda x: x + torch.ones_like(x),
    "full_like": lambda x: x * torch.full_like(x, 2.5),
}

BINARY: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in (
        "add sub mul div maximum minimum fmax fmin atan2 hypot fmod remainder floor_divide pow lt le gt ge eq"
        " ne logical_and logical_or logical_xor copysign heaviside logaddexp logaddexp2 xlogy"
    ).split()
} | {
    "xlog1py": torch.special.xlog1py,
    "ldexp": lambda x, y: torch.ldexp(x, y.clamp(-9, 9).nan_to_num()),
    "ldexp_int": lambda x, y: torch.ldexp(x, y.clamp(-9, 9).nan_to_num().int()),
    "add_alpha": lambda x, y: torch.add(x, y, alpha=0.3),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "where": lambda x, y: torch.where(x > y, x, y),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.4),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x, value=0.4),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp_tensor": lambda x, y: torch.lerp(x, y, x),
    "clamp_tensor": lambda x, y: torch.clamp(x, y, y + 0.5),
    "mul_scalar_tensor": lambda x, y: x * y.flatten()[0],
}


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random numbers with the special ones strewn in."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    flat = x.flatten()
    count = min(len(SPECIAL), flat.numel())
    flat[torch.randperm(flat.numel(), generator=generator)[:count]] = torch.tensor(
        SPECIAL[:count], dtype=torch.float64
    )
    return flat.reshape(shape).to(dtype)
