"""Custom autograd functions in the forms that programs use: shared by the tests and the fuzzer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

T = torch.Tensor


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        return 3 * x * g  # not the derivative: it must be this backward that runs


class Swish(Function):
    """With recomputation, and an intermediate in an attribute."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.gate = torch.sigmoid(x)
        ctx.save_for_backward(x)
        return x * ctx.gate

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        return g * (ctx.gate * (1 + x * (1 - torch.sigmoid(x))))


class Reversed(Function):
    """A view of its argument."""

    @staticmethod
    def forward(ctx: Any, x: T, strength: float) -> T:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, None]:
        return g.neg() * ctx.strength, None


class Same(Function):
    """Its argument itself, with another gradient."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        return x

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        return g * 0.5


class Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        return g


class Clamped(Function):
    """A backward that is not linear, and saves nothing."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        return g.clamp(-0.5, 0.5) + 0.125


class Product(Function):
    """Two results."""

    @staticmethod
    def forward(ctx: Any, x: T, w: T) -> tuple[T, T]:
        ctx.save_for_backward(x, w)
        return x * w, x + w

    @staticmethod
    def backward(ctx: Any, g: T, h: T) -> tuple[T, T]:
        x, w = ctx.saved_tensors
        return g * w + h, g * x + h + 1


class Sparse(Function):
    """Gradients may be None, and None comes back."""

    @staticmethod
    def forward(ctx: Any, x: T, w: T) -> tuple[T, T]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        return x * 2, w * 3

    @staticmethod
    def backward(ctx: Any, g: T | None, h: T | None) -> tuple[T | None, T | None]:
        x, _ = ctx.saved_tensors
        return (None if g is None else g * 2 * x), (None if h is None else h * 3)


class Times(Function):
    """setup_context, and a rule for vmap that torch derives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: T, y: T) -> T:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[T, T], output: T) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, None]:
        return g * ctx.saved_tensors[1] * 3, None


class Scaled(Function):
    """setup_context; the saved tensor is the result."""

    @staticmethod
    def forward(x: T, k: float) -> T:
        return (x * 0.1).exp() * k

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: T) -> None:
        ctx.save_for_backward(output)
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, None]:
        (y,) = ctx.saved_tensors
        return g * y * 0.1, None


class InPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        x.mul_(2).tanh_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (y,) = ctx.saved_tensors
        return 2 * g * (1 - y * y)


class Affine(Function):
    """Asks which gradients are needed; an argument may be None."""

    @staticmethod
    def forward(ctx: Any, x: T, w: T, b: T | None = None) -> T:
        ctx.save_for_backward(x, w, b)
        y = x @ w.t()
        return y if b is None else y + b

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T | None, ...]:
        x, w, b = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = g @ w
        if ctx.needs_input_grad[1]:
            gw = g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])
        if b is not None and ctx.needs_input_grad[2]:
            gb = g.reshape(-1, g.shape[-1]).sum(0)
        return (gx, gw, gb)[: len(ctx.needs_input_grad)]


class Largest(Function):
    """A result without a gradient, and a constant."""

    @staticmethod
    def forward(ctx: Any, x: T) -> tuple[T, T, int]:
        values, places = x.max(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return values, places, x.dim()

    @staticmethod
    def backward(ctx: Any, g: T, _places: T, _dim: None) -> T:
        (places,) = ctx.saved_tensors
        zeros = g.new_zeros(ctx.shape)
        return zeros.scatter(-1, places.unsqueeze(-1), g.unsqueeze(-1))


class Once(Square):
    """An inherited forward, and a backward that is not differentiable."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Asks(Function):
    """Asks what its context is an instance of."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        known = isinstance(ctx, torch.autograd.function.FunctionCtx)
        other = isinstance(ctx, (torch.Tensor, str)) or isinstance(ctx, Mapping)
        return x * (2 if known and not other else 3)

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        return g * (5 if isinstance(ctx, torch.Tensor) else 2)


class Cast(Function):
    """The decorators for autocast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: T, w: T) -> T:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: T) -> tuple[T, T]:
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


class Nested(Function):
    """A Function inside of a forward, and one inside of a backward."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        return Square.apply(x) + 1

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        return Rounded.apply(g * 4) * x


class Packed(Function):
    """Saved tensors in containers in attributes; a tensor inside of a list is no argument."""

    @staticmethod
    def forward(ctx: Any, x: T, more: list[T]) -> T:
        ctx.parts = [x.sin(), (x.cos(), 2.0)]
        ctx.table = {"scale": more[0].detach() * 1}
        return x * 2 + more[0].detach()

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, None]:
        first, (second, k) = ctx.parts
        return g * first * second * k * ctx.table["scale"], None


class OfClass(Function):
    """Class methods in place of static methods."""

    @classmethod
    def power(cls, x: T) -> T:
        return x * x * x

    @classmethod
    def forward(cls, ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        return cls.power(x)

    @classmethod
    def backward(cls, ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        return cls.power(x) * g


class Contiguous(Function):
    """Asks for the memory layout of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (x,) = ctx.saved_tensors
        if not g.is_contiguous():
            g = g.contiguous()
        return 2 * x * g.view(-1).view(x.shape)


class Options(Function):
    """Arguments of all kinds."""

    @staticmethod
    def forward(ctx: Any, x: T, dims: Any, dtype: Any, options: Any, function: Any, size: Any) -> T:
        ctx.size, ctx.options = size, options
        return function(x).to(dtype).sum(dims, keepdim=True)

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[Any, ...]:
        return (g.expand(ctx.size) * ctx.options["scale"], *[None] * 5)


class Sized(Function):
    """Computes with sizes."""

    @staticmethod
    def forward(ctx: Any, x: T, k: float) -> T:
        ctx.save_for_backward(x)
        ctx.rows, ctx.k = x.shape[0], k
        return (x * x).view(x.shape[0], -1) * k

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, None]:
        (x,) = ctx.saved_tensors
        return 2 * x * g * ctx.k / ctx.rows, None


class Mapped(Function):
    """With a rule for vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: T) -> T:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: T) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        (y,) = ctx.saved_tensors
        return g * y * 2


def closed(scale: float) -> Any:
    """A Function in a closure."""

    class Closed(Function):
        @staticmethod
        def forward(ctx: Any, x: T) -> T:
            return x * scale

        @staticmethod
        def backward(ctx: Any, g: T) -> T:
            return g * scale * 2

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    Closed.change = staticmethod(change)
    return Closed


class Keeps(Function):
    """Keeps its arguments in attributes of `ctx`, and saves none."""

    @staticmethod
    def forward(ctx: Any, x: T, w: T) -> T:
        ctx.x, ctx.w = x, w
        return (x * w).sin()

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, T]:
        inner = (ctx.x * ctx.w).cos() * g
        return inner * ctx.w, inner * ctx.x


class HoldsResult(Function):
    """Keeps its result in an attribute of `ctx`."""

    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx: Any, g: T) -> T:
        return g * ctx.y
