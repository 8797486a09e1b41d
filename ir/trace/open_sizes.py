"""Substitutes for torch functions whose C++ needs plain sizes or data, for ghosts of symbolic size.

In: the function of a traced call, with ghosts. Out: the operators that torch's own body would run,
in its order, over expressions in place of plain numbers. For all other arguments, torch's own
function runs (and raises if they are invalid). `substitutes.AS_PLAIN` contains this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .ghost import Ghost

aten = torch.ops.aten


def is_open(*tensors: Any) -> bool:
    """Whether all are ghosts, and at least one size of one is symbolic."""
    return all(type(one) is Ghost for one in tensors) and any(
        type(extent) is not int for one in tensors for extent in one.shape
    )


def _kron(real: Callable[..., Any]) -> Callable[..., Any]:
    def product(input: Any, other: Any, **options: Any) -> Any:
        if options or not is_open(input, other):
            return real(input, other, **options)
        rank = max(input.dim(), other.dim())
        left = [1] * (rank - input.dim()) + list(input.shape)
        right = [1] * (rank - other.dim()) + list(other.shape)
        spread = aten._unsafe_view(input, [n for one in left for n in (one, 1)])
        repeated = aten._unsafe_view(other, [n for one in right for n in (1, one)])
        sizes = [a * b for a, b in zip(left, right, strict=True)]
        return aten._unsafe_view(aten.mul.Tensor(spread, repeated), sizes)

    return product


def _gradient(real: Callable[..., Any]) -> Callable[..., Any]:
    def differences(input: Any, *args: Any, **options: Any) -> Any:
        step, dims = options.get("spacing", 1), options.get("dim")
        if (
            args
            or not options.keys() <= {"spacing", "dim"}
            or type(step) not in (int, float)
            or not (dims is None or type(dims) is int)
            or not is_open(input)
            or not input.is_floating_point()
            or (dims is not None and not -input.dim() <= dims < input.dim())
            or any(type(extent) is int and extent < 2 for extent in input.shape)
        ):
            return real(input, *args, **options)
        along = range(input.dim()) if dims is None else (dims % input.dim(),)
        return tuple([_along(input, dim, float(step)) for dim in along])

    return differences


def _along(x: Any, dim: int, step: float) -> Any:
    between = (aten.slice(x, dim, 2) - aten.slice(x, dim, 0, -2)) / step
    first = (aten.slice(x, dim, 1, 2) - aten.slice(x, dim, 0, 1)) / step
    last = (aten.slice(x, dim, -1) - aten.slice(x, dim, -2, -1)) / step
    return torch.cat([first, between / 2, last], dim)


def _covariance(x: Any, correction: Any) -> Any:
    """torch.cov(x), or None.

    torch's C++ reads a tensor to check that there are enough observations; sizes show it as well.
    """
    fits = type(x) is Ghost and x.dim() in (1, 2) and x.dtype in (torch.float32, torch.float64)
    if not fits or type(correction) is not int:
        return None
    rows = x if x.dim() == 2 else x.view(1, -1)
    count = rows.shape[1]
    if not count - correction > 0:  # torch warns
        return None
    whole = {"dtype": torch.int64, "device": x.device}
    mean = rows.sum(1).div(aten.scalar_tensor.default(count, **whole))
    rows = rows - mean.unsqueeze(1)
    factor = aten.scalar_tensor.default(count - correction, **whole)
    return rows.mm(rows.t()).true_divide(factor).squeeze()


def _cov(real: Callable[..., Any]) -> Callable[..., Any]:
    def covariance(input: Any, *, correction: Any = 1, **weights: Any) -> Any:
        weighed = any(one is not None for one in weights.values())
        found = None if weighed else _covariance(input, correction)
        return real(input, correction=correction, **weights) if found is None else found

    return covariance


def _corrcoef(real: Callable[..., Any]) -> Callable[..., Any]:
    def coefficients(input: Any) -> Any:
        found = _covariance(input, 1)
        if found is None:
            return real(input)
        if found.dim() == 0:
            return found / found
        deviation = found.diagonal().sqrt()
        found = found.div(deviation.view(-1, 1)).div(deviation.view(1, -1))
        return found.clamp(-1, 1)

    return coefficients


def _stft(real: Callable[..., Any]) -> Callable[..., Any]:
    def transformed(
        input: Any,
        n_fft: Any,
        hop_length: Any = None,
        win_length: Any = None,
        window: Any = None,
        center: bool = True,
        pad_mode: str = "reflect",
        normalized: bool = False,
        onesided: Any = None,
        return_complex: Any = None,
        align_to_window: Any = None,
    ) -> Any:
        options = (hop_length, win_length, window, center, pad_mode, normalized, onesided)
        step = n_fft // 4 if hop_length is None and type(n_fft) is int else hop_length
        if (
            type(n_fft) is not int
            or type(step) is not int
            or min(n_fft, step) <= 0
            or not is_open(input)
            or input.dim() not in (1, 2)
            or input.dtype not in (torch.float32, torch.float64)
            or not (win_length is None or win_length == n_fft)
            or not _is_window(window, input, n_fft)
            or onesided not in (None, True)
            or return_complex is not True
            or align_to_window is not None
        ):
            return real(input, n_fft, *options, return_complex, align_to_window)
        signal = _extended(input, n_fft // 2, pad_mode) if center else input
        rows = signal.unsqueeze(0) if signal.dim() == 1 else signal
        if rows.shape[1] < n_fft:  # torch raises
            return real(input, n_fft, *options, return_complex, align_to_window)
        # The same view as torch's own, with a gradient over symbolic sizes.
        frames = rows.unfold(1, n_fft, step)
        if window is not None:
            frames = frames.mul(window)
        found = aten._fft_r2c(frames, [2], 1 if normalized else 0, True)
        found.transpose_(1, 2)
        return found.squeeze_(0) if input.dim() == 1 else found

    return transformed


def _is_window(window: Any, input: Any, length: int) -> bool:
    if window is None:
        return True
    same = isinstance(window, torch.Tensor) and window.dtype == input.dtype
    return same and window.dim() == 1 and window.shape[0] == length


def _extended(signal: Any, by: int, mode: str) -> Any:
    """torch.stft's padding, which pads the signal as a tensor of three dimensions."""
    sizes = [1] * (3 - signal.dim()) + list(signal.shape)
    padded = F.pad(signal.view(sizes), [by, by], mode)
    return padded.view(padded.shape[-signal.dim() :])


def _stft_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """torch.Tensor.stft passes its arguments by name to torch.stft."""
    transformed = _stft(torch.stft)

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return (
            transformed(self, *args, **options) if is_open(self) else real(self, *args, **options)
        )

    return method


def _counted(real: Callable[..., Any], operator: Any, numbers: int) -> Callable[..., Any]:
    """A substitute for a function of `numbers` numbers and a size, which makes a tensor.

    Its schema takes a plain size only; the substitute records `operator` with a symbolic one.
    """

    def made(*args: Any, **options: Any) -> Any:
        mode = _get_current_dispatch_mode()
        recorder = getattr(mode, "recorder", None)
        if (
            recorder is None
            or len(args) != numbers + 1
            or type(args[-1]) is not torch.SymInt
            or any(type(one) not in (int, float) for one in args[:-1])
            or not options.keys() <= {"dtype"}
            or options.get("dtype") not in (None, torch.float32, torch.float64)
            or torch.get_default_device().type != "cpu"
        ):
            return real(*args, **options)
        settings = {"device": torch.device("cpu"), "pin_memory": False}
        return recorder.dispatch(operator, args, {**options, **settings})

    return made


OPEN: dict[Callable[..., Any], Callable[..., Any]] = {
    **{real: _kron(real) for real in (torch.kron, torch.Tensor.kron)},
    torch.gradient: _gradient(torch.gradient),
    **{real: _cov(real) for real in (torch.cov, torch.Tensor.cov)},
    **{real: _corrcoef(real) for real in (torch.corrcoef, torch.Tensor.corrcoef)},
    torch.stft: _stft(torch.stft),
    torch.Tensor.stft: _stft_of(torch.Tensor.stft),
    torch.linspace: _counted(torch.linspace, aten.linspace.default, 2),
    torch.logspace: _counted(torch.logspace, aten.logspace.default, 2),
    torch.hann_window: _counted(torch.hann_window, aten.hann_window.default, 0),
    torch.hamming_window: _counted(torch.hamming_window, aten.hamming_window.default, 0),
}
