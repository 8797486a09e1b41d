"""numpy functions, methods and attributes that may run at capture.

Their results depend on their arguments alone: equal numbers give equal results, no changeable state
is read, and nothing is printed. They may write only to an array among their arguments, made by the
frame itself. Others are breaks: random numbers, files, printing, settings, and functions with
callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.safe_access import ARRAY_SCALARS

_CREATE = """
array asarray asanyarray ascontiguousarray asfortranarray copy zeros ones empty full zeros_like
ones_like empty_like full_like arange linspace logspace geomspace eye identity diag diagflat tri
tril triu vander meshgrid indices hanning hamming blackman bartlett kaiser tril_indices triu_indices
diag_indices broadcast_shapes
"""
_SHAPE = """
reshape ravel transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis expand_dims squeeze
broadcast_to concatenate concat stack vstack hstack dstack column_stack unstack split array_split
hsplit vsplit dsplit tile repeat flip fliplr flipud roll rot90 pad append insert delete resize
atleast_1d atleast_2d atleast_3d block trim_zeros ndim size shape
"""
_REDUCE = """
sum prod cumsum cumprod mean var std median average min max amin amax ptp argmin argmax any all
count_nonzero percentile quantile diff ediff1d gradient trapezoid nansum nanprod nanmin nanmax
nanmean nanstd nanvar nanmedian cov corrcoef histogram bincount
"""
_SEARCH = """
sort argsort lexsort partition argpartition searchsorted unique where nonzero flatnonzero argwhere
extract digitize isin intersect1d union1d setdiff1d take take_along_axis choose compress select clip
unravel_index ravel_multi_index isclose allclose array_equal array_equiv isscalar isreal iscomplex
isrealobj iscomplexobj
"""
_ALGEBRA = """
dot vdot inner outer tensordot einsum kron cross trace diagonal convolve correlate interp polyval
poly roots round around fix real imag angle nan_to_num i0 sinc unwrap
"""
_WRITE = "copyto put place putmask fill_diagonal put_along_axis"
_MEMORY_AND_TYPES = """
shares_memory may_share_memory result_type promote_types can_cast min_scalar_type issubdtype
"""
_LINALG = """
norm inv pinv solve lstsq det slogdet eig eigh eigvals eigvalsh qr svd cholesky matrix_rank
matrix_power multi_dot cond
"""
_FFT = "fft ifft rfft irfft fft2 ifft2 fftn ifftn rfft2 irfft2 fftfreq rfftfreq fftshift ifftshift"


def _named(module: Any, names: str) -> list[Any]:
    """The functions of a module under these names; some versions of numpy lack some."""
    return [getattr(module, name) for name in names.split() if hasattr(module, name)]


def _functions() -> list[Callable[..., Any]]:
    groups = (_CREATE, _SHAPE, _REDUCE, _SEARCH, _ALGEBRA, _WRITE, _MEMORY_AND_TYPES)
    ufuncs = [value for value in vars(np).values() if type(value) is np.ufunc]
    types = [*ARRAY_SCALARS, np.dtype, np.finfo, np.iinfo]
    named = [fn for names in groups for fn in _named(np, names)]
    return [*named, *_named(np.linalg, _LINALG), *_named(np.fft, _FFT), *ufuncs, *types]


FUNCTIONS: list[Callable[..., Any]] = _functions()

METHODS = frozenset(
    [
        "all",
        "any",
        "argmax",
        "argmin",
        "argpartition",
        "argsort",
        "astype",
        "byteswap",
        "choose",
        "clip",
        "compress",
        "conj",
        "conjugate",
        "copy",
        "cumprod",
        "cumsum",
        "diagonal",
        "dot",
        "fill",
        "flatten",
        "item",
        "max",
        "mean",
        "min",
        "nonzero",
        "partition",
        "prod",
        "ptp",
        "put",
        "ravel",
        "repeat",
        "reshape",
        "round",
        "searchsorted",
        "sort",
        "squeeze",
        "std",
        "sum",
        "swapaxes",
        "take",
        "tobytes",
        "tolist",
        "trace",
        "transpose",
        "var",
        "view",
        "is_integer",
        "bit_count",
        "as_integer_ratio",
        "hex",
    ]
)
"""Methods of arrays and of scalars."""

UFUNC_METHODS = frozenset({"reduce", "accumulate", "reduceat", "outer", "at"})

ATTRIBUTES = frozenset(
    ["shape", "dtype", "ndim", "size", "T", "mT", "real", "imag", "itemsize", "nbytes", "strides"]
)
"""Attributes of arrays and of scalars."""

NUMBER_CLASSES = ARRAY_SCALARS | {
    bool,
    int,
    float,
    complex,
    np.generic,
    np.number,
    np.integer,
    np.signedinteger,
    np.unsignedinteger,
    np.inexact,
    np.floating,
    np.complexfloating,
}
"""Classes that numpy accepts as a dtype or in class queries."""
