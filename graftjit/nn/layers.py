"""Linear, embedding, convolution, normalisation and pooling layers of `graftjit.nn`, which compute
through their counterparts in `torch.nn`.

In: the arguments and defaults of static-graph systems. Out: cells with torch's state_dict keys, on
the context's device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..context import current_context
from ..runtime.errors import OptionError, did_you_mean
from .activations import get_activation
from .cell import Cell, begin

_INITIALISERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "zeros": torch.nn.init.zeros_,
    "ones": torch.nn.init.ones_,
    "normal": lambda t: torch.nn.init.normal_(t, std=0.01),
    "uniform": lambda t: torch.nn.init.uniform_(t, -0.07, 0.07),
    "xavier_uniform": torch.nn.init.xavier_uniform_,
    "he_uniform": torch.nn.init.kaiming_uniform_,
    "heuniform": torch.nn.init.kaiming_uniform_,
    "he_normal": torch.nn.init.kaiming_normal_,
}


def _initialise(parameter: torch.Tensor | None, wanted: Any) -> None:
    """Fill a parameter by a name, a number or a tensor. None keeps torch's initialisation."""
    if wanted is None or parameter is None:
        return
    with torch.no_grad():
        if isinstance(wanted, str):
            fill = _INITIALISERS.get(wanted.lower())
            if fill is None:
                raise OptionError(
                    f"there is no initialiser {wanted!r}" + did_you_mean(wanted, _INITIALISERS),
                    expected=", ".join(_INITIALISERS),
                    found=repr(wanted),
                )
            fill(parameter)
        elif isinstance(wanted, torch.Tensor):
            parameter.copy_(wanted)
        else:
            parameter.fill_(wanted)


def _device() -> Any:
    return current_context().device


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


# -- layers with parameters ------------------------------------------------------------------------


class Dense(Cell, torch.nn.Linear):
    """`activation(x @ weight.T + bias)`: x [..., in_channels] -> [..., out_channels].

    activation: None, a name ("relu"), or a cell.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Any = None,
        bias_init: Any = None,
        has_bias: bool = True,
        activation: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        begin(
            self,
            torch.nn.Linear,
            in_channels,
            out_channels,
            bias=has_bias,
            device=_device(),
            dtype=dtype,
        )
        _initialise(self.weight, weight_init)
        _initialise(self.bias, bias_init)
        self.activation = get_activation(activation)

    def construct(self, x: Any) -> Any:
        x = F.linear(x, self.weight, self.bias)
        return x if self.activation is None else self.activation(x)


class Embedding(Cell, torch.nn.Embedding):
    """Rows of a table: integers [...] -> [..., embedding_size]."""

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        use_one_hot: bool = False,
        embedding_table: Any = "normal",
        dtype: torch.dtype | None = None,
        padding_idx: int | None = None,
    ) -> None:
        begin(
            self,
            torch.nn.Embedding,
            vocab_size,
            embedding_size,
            padding_idx=padding_idx,
            device=_device(),
            dtype=dtype,
        )
        _initialise(self.weight, embedding_table)
        if padding_idx is not None:
            with torch.no_grad():
                self.weight[padding_idx].fill_(0)

    def construct(self, ids: Any) -> Any:
        return F.embedding(ids, self.weight, self.padding_idx)


_PAD_MODES = ("same", "valid", "pad")


def _check_pad_mode(pad_mode: str, padding: Any, modes: tuple[str, ...] = _PAD_MODES) -> None:
    if pad_mode not in modes:
        hint = did_you_mean(pad_mode, modes) if isinstance(pad_mode, str) else ""
        raise OptionError(
            f"pad_mode={pad_mode!r} is not allowed{hint}",
            expected=" or ".join(repr(mode) for mode in modes),
            found=repr(pad_mode),
        )
    if pad_mode != "pad" and padding not in (0, (0, 0), (0, 0, 0, 0)):
        raise OptionError(
            f"padding={padding!r} needs pad_mode='pad'",
            expected=f"padding=0 with pad_mode={pad_mode!r}",
            found=repr(padding),
        )


def _four_sides(padding: Any) -> tuple[int, int, int, int]:
    """(left, right, top, bottom) for F.pad, from one number, (height, width) or
    (top, bottom, left, right)."""
    if isinstance(padding, int):
        return (padding,) * 4
    if len(padding) == 2:
        return (padding[1], padding[1], padding[0], padding[0])
    top, bottom, left, right = padding
    return (left, right, top, bottom)


def _same_sides(x: Any, kernel: Any, stride: Any, dilation: Any) -> tuple[int, int, int, int]:
    """Padding for a result with ceil(size / stride) rows and columns. An odd one is added at the
    end."""
    sides: list[int] = []
    for axis in (1, 0):  # F.pad starts with the last axis
        size = x.shape[axis - 2]
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        total = max((-(-size // stride[axis]) - 1) * stride[axis] + reach - size, 0)
        sides += [total // 2, total - total // 2]
    return sides[0], sides[1], sides[2], sides[3]


class Conv2d(Cell, torch.nn.Conv2d):
    """Convolution of [N, C, H, W] (or [C, H, W]).

    pad_mode: "same" (the default: ceil(size / stride) rows and columns in the result), "valid" (no
    padding) or "pad" (`padding` zeros: one number, (height, width), or (top, bottom, left, right)).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        pad_mode: str = "same",
        padding: Any = 0,
        dilation: Any = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Any = None,
        bias_init: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_pad_mode(pad_mode, padding)
        begin(
            self,
            torch.nn.Conv2d,
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            dilation=dilation,
            groups=group,
            bias=has_bias,
            device=_device(),
            dtype=dtype,
        )
        self.pad_mode = pad_mode
        self.sides = _four_sides(padding)
        _initialise(self.weight, weight_init)
        _initialise(self.bias, bias_init)

    def construct(self, x: Any) -> Any:
        sides = self.sides
        if self.pad_mode == "same":
            sides = _same_sides(x, self.kernel_size, self.stride, self.dilation)
        left, right, top, bottom = sides
        padding = (top, left)
        if left != right or top != bottom:
            x = F.pad(x, sides)
            padding = (0, 0)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _BatchNorm(Cell):
    """Base of BatchNorm1d and BatchNorm2d. `momentum` is the weight of the old statistics (0.9),
    that is, one minus torch's. use_batch_statistics: None follows the training mode."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        gamma_init: Any = None,
        beta_init: Any = None,
        moving_mean_init: Any = None,
        moving_var_init: Any = None,
        use_batch_statistics: bool | None = None,
    ) -> None:
        begin(
            self,
            torch.nn.modules.batchnorm._BatchNorm,
            num_features,
            eps,
            1.0 - momentum,
            affine,
            device=_device(),
        )
        self.use_batch_statistics = use_batch_statistics
        _initialise(self.weight, gamma_init)
        _initialise(self.bias, beta_init)
        _initialise(self.running_mean, moving_mean_init)
        _initialise(self.running_var, moving_var_init)

    def construct(self, x: Any) -> Any:
        self._check_input_dim(x)
        from_batch = self.use_batch_statistics
        if from_batch is None:
            from_batch = self.training
        if from_batch and self.training:
            self.num_batches_tracked.add_(1)
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            from_batch,
            self.momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):
    """Over [N, C] or [N, C, L]."""


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):
    """Over [N, C, H, W]."""


class LayerNorm(Cell, torch.nn.LayerNorm):
    """Over the last `len(normalized_shape)` axes. begin_norm_axis, begin_params_axis: -1, or the
    first of these axes."""

    def __init__(
        self,
        normalized_shape: Any,
        begin_norm_axis: int = -1,
        begin_params_axis: int = -1,
        gamma_init: Any = None,
        beta_init: Any = None,
        epsilon: float = 1e-7,
        dtype: torch.dtype | None = None,
    ) -> None:
        begin(
            self, torch.nn.LayerNorm, normalized_shape, eps=epsilon, device=_device(), dtype=dtype
        )
        self.begin_axes = (begin_norm_axis, begin_params_axis)
        _initialise(self.weight, gamma_init)
        _initialise(self.bias, beta_init)

    def construct(self, x: Any) -> Any:
        count = len(self.normalized_shape)
        for axis in self.begin_axes:
            if axis not in (-1, -count, x.dim() - count):
                raise OptionError(
                    f"begin_norm_axis and begin_params_axis {self.begin_axes} do not fit the last "
                    f"{count} axes of a tensor with {x.dim()}",
                    expected=f"-1, {-count} or {x.dim() - count}",
                    found=str(axis),
                )
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


# -- layers without parameters ---------------------------------------------------------------------


class Flatten(Cell, torch.nn.Flatten):
    """[N, a, b, ...] -> [N, a*b*...]: the batch axis is kept."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        begin(self, torch.nn.Flatten, start_dim, end_dim)

    def construct(self, x: Any) -> Any:
        return torch.flatten(x, self.start_dim, self.end_dim)


class Dropout(Cell, torch.nn.Dropout):
    """In training, each element is zero with probability `p`, and the others are scaled by
    1 / (1 - p).

    Use `p=` or `keep_prob=`: a positional number would mean one in torch and the other in older
    programs.
    """

    def __init__(
        self, *unclear: Any, p: float | None = None, keep_prob: float | None = None
    ) -> None:
        if unclear:
            raise OptionError(
                f"Dropout({unclear[0]!r}) could mean p or keep_prob",
                expected=f"Dropout(p={unclear[0]!r}) or Dropout(keep_prob={unclear[0]!r})",
                found=f"Dropout({unclear[0]!r})",
            )
        if p is None:
            p = 0.5 if keep_prob is None else 1.0 - keep_prob
        begin(self, torch.nn.Dropout, p)

    def construct(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training)


class MaxPool2d(Cell, torch.nn.MaxPool2d):
    """Maximum over windows. pad_mode: "valid", "same" or "pad"; padding is never the maximum."""

    def __init__(
        self,
        kernel_size: Any = 1,
        stride: Any = 1,
        pad_mode: str = "valid",
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        _check_pad_mode(pad_mode, padding)
        begin(
            self,
            torch.nn.MaxPool2d,
            kernel_size,
            stride,
            padding,
            dilation,
            return_indices,
            ceil_mode,
        )
        self.pad_mode = pad_mode

    def construct(self, x: Any) -> Any:
        if self.pad_mode == "same":
            sides = _same_sides(
                x, _pair(self.kernel_size), _pair(self.stride), _pair(self.dilation)
            )
            x = F.pad(x, sides, value=float("-inf"))
        return F.max_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class AvgPool2d(Cell, torch.nn.AvgPool2d):
    """Mean over windows. pad_mode "same" excludes the padding from the mean; with "pad",
    `count_include_pad` decides."""

    def __init__(
        self,
        kernel_size: Any = 1,
        stride: Any = 1,
        pad_mode: str = "valid",
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        _check_pad_mode(pad_mode, padding)
        begin(
            self,
            torch.nn.AvgPool2d,
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
        )
        self.pad_mode = pad_mode

    def construct(self, x: Any) -> Any:
        if self.pad_mode != "same":
            return torch.nn.AvgPool2d.forward(self, x)
        kernel, stride = _pair(self.kernel_size), _pair(self.stride)
        sides = _same_sides(x, kernel, stride, (1, 1))
        total = F.avg_pool2d(F.pad(x, sides), kernel, stride)
        share = F.avg_pool2d(F.pad(torch.ones_like(x), sides), kernel, stride)
        return total / share
