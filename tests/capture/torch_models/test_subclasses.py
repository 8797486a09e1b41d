"""Tensor subclasses, and objects with `__torch_function__`."""

from __future__ import annotations

import torch
from torch import nn

from ..harness import agrees, t


class Units(torch.Tensor):
    """A tensor with a unit."""

    @staticmethod
    def of(data, unit):
        made = data.as_subclass(Units)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = {a.unit for a in args if isinstance(a, Units) and hasattr(a, "unit")}
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Units) and len(units) == 1:
            result.unit = next(iter(units))
        return result


@agrees()
def test_subclasses_as_arguments_and_attributes():
    class Box:
        pass

    box = Box()
    box.w = Units.of(t(3), "m")

    def f(x, u):
        a = u * 2
        b = x + box.w
        c = torch.stack([u, u])
        return (
            a,
            a.unit,
            type(a).__name__,
            b,
            b.unit,
            type(c).__name__,
            u.sum(),
            u.shape,
            isinstance(u, torch.Tensor),
        )

    return f, (t(3), Units.of(t(3), "s")), [
        lambda: (t(3), Units.of(t(3), "kg")), lambda: setattr(box.w, "unit", "km"), lambda: (t(3), Units.of(t(2), "s")),
    ]  # fmt: skip


@agrees()
def test_subclasses_made_inside():
    def f(x):
        u = Units.of(x * 2, "m")
        y = u + 1
        v = y.as_subclass(torch.Tensor)
        w = torch.Tensor._make_subclass(Units, x)
        return y, y.unit, v + 1, type(v).__name__, type(w).__name__, type(x + u).__name__

    return f, (t(3),)


@agrees()
def test_subclasses_without_overrides():
    class Plain(torch.Tensor):
        def twice(self):
            return self * 2

        @property
        def half(self):
            return self / 2

    def f(x, p):
        return x + p, p.twice(), p.half, type(p + 1).__name__, torch.relu(p), p[0], p.T.shape

    return f, (t(3), t(3, 1).as_subclass(Plain)), [lambda: (t(3), t(4, 1)[1:].as_subclass(Plain))]


@agrees()
def test_parameters_and_buffers_of_subclasses():
    class Marked(nn.Parameter):
        pass

    layer = nn.Linear(3, 2)
    layer.weight = Marked(t(2, 3))

    def f(x):
        p = nn.Parameter(x)
        return (
            layer(x),
            type(layer.weight).__name__,
            isinstance(p, nn.Parameter),
            p * 2,
            p.requires_grad,
            p.is_leaf,
        )

    return f, (t(1, 3),)


@agrees()
def test_objects_with_torch_function_that_are_no_tensors():
    class Scaled:
        def __init__(self, data, scale):
            self.data, self.scale = data, scale

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            plain = [a.data * a.scale if isinstance(a, Scaled) else a for a in args]
            return Scaled(func(*plain, **(kwargs or {})), 1)

        def __add__(self, other):
            return torch.add(self, other)

    outer = Scaled(t(3), 2)

    def f(x, s):
        a = torch.add(s, x)
        b = torch.relu(outer)
        c = Scaled(x, 5) + x
        d = torch.cat([outer, x])
        return a.data, b.data, c.data, a.scale, d.data

    return (
        f,
        (t(3), Scaled(t(3), 3)),
        [lambda: setattr(outer, "scale", 4), lambda: (t(3), Scaled(t(3), -1))],
    )


@agrees()
def test_modes_of_torch_functions():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.sin else result

    def g(x):
        return torch.sin(x)

    def f(x):
        a = g(x)
        with Double():
            b = g(x)
            with torch._C.DisableTorchFunction():
                c = g(x)
        return a, b, c, g(x), list(seen)

    return f, (t(3),)


@agrees()
def test_dispatch_modes_and_wrapper_subclasses():
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.inner if isinstance(a, Wrapped) else a for a in args]
            out = func(*plain, **(kwargs or {}))
            return Wrapped(out) if isinstance(out, torch.Tensor) else out

    def f(x):
        with Log():
            y = torch.relu(x) + 1
        w = Wrapped(x)
        z = torch.relu(w * 2)
        return y, z.inner, list(names)

    return f, (t(3),)
