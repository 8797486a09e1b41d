"""Values that are told apart: 0.0 and -0.0, nan, True and 1, subclasses of int, float and str, numbers of numpy."""

from __future__ import annotations

import decimal
import fractions
import math

import numpy as np
import torch

from .kinds import SAME, kind
from .objects import Box

X = torch.tensor([0.5, -1.0])


@kind
def minus_zero():
    o = Box(n=0.0)

    def f(x):
        return x * 0 + o.n, math.copysign(1, o.n)

    yield f, (X,)
    o.n = -0.0
    yield
    o.n = 0.0
    yield SAME


@kind
def minus_zero_divides():
    o = Box(n=0.0)

    def f(x):
        return 1 / (torch.zeros(2) * x * x * 0 + o.n)

    yield f, (X,)
    o.n = -0.0
    yield
    o.n = 0.0
    yield SAME


@kind
def minus_zero_argument():
    def f(x, n):
        return torch.full((2,), n) * x.abs(), math.atan2(n, -1)

    yield f, (X, 0.0)
    yield X, -0.0
    yield X, 0.0


@kind
def minus_zero_in_a_tuple():
    def f(x, pair):
        return x * 0 + pair[0], math.copysign(1, pair[0])

    yield f, (X, (0.0, 1))
    yield X, (-0.0, 1)


@kind
def minus_zero_of_a_complex():
    def f(x, c):
        return x + c.real, math.copysign(1, c.imag)

    yield f, (X, complex(1, 0.0))
    yield X, complex(1, -0.0)


@kind
def nan_objects():
    one, two = float("nan"), float("nan")
    o = Box(a=one, b=one)

    def f(x):
        return x + 1 if o.a in [o.b] else x - 1, o.a == o.b, x * o.a

    yield f, (X,)
    o.b = two
    yield
    o.b = one
    yield


@kind
def nan_stays_nan():
    o = Box(n=float("nan"))

    def f(x):
        return x + o.n

    yield f, (X,)
    o.n = float("inf")
    yield
    o.n = float("nan")
    yield SAME


@kind
def true_for_one():
    o = Box(n=1)

    def f(x):
        return x + o.n, type(o.n), torch.tensor([o.n])

    yield f, (X,)
    o.n = True
    yield
    o.n = 1.0
    yield
    o.n = 1
    yield SAME


@kind
def true_for_one_in_a_list():
    items = [1, 0]

    def f(x):
        return x + 1, torch.tensor(items)

    yield f, (X,)
    items[:] = [True, False]
    yield
    items[:] = [1.0, 0]
    yield


@kind
def true_for_one_argument():
    def f(x, n):
        return x * n, isinstance(n, bool)

    yield f, (X, 1)
    yield X, True
    yield X, 1


@kind
def int_for_float_in_a_division():
    o = Box(n=2)

    def f(x):
        return torch.ones(2, dtype=torch.int64) * o.n + x.long(), o.n // 2

    yield f, (X,)
    o.n = 2.0
    yield
    o.n = 2
    yield SAME


@kind
def int_subclass_with_a_value():
    class Size(int):
        def __add__(self, other):
            return 100

    o = Box(n=3)

    def f(x):
        return x + (o.n + 1)

    yield f, (X,)
    o.n = Size(3)
    yield
    del Size.__add__
    yield
    o.n = Size(4)
    yield


@kind
def int_subclass_with_attributes():
    class Size(int):
        unit = 1

    o = Box(n=Size(3))

    def f(x):
        return x + int(o.n) * o.n.unit

    yield f, (X,)
    o.n = Size(4)
    yield
    o.n.unit = 5
    yield
    Size.__int__ = lambda self: 9
    yield


@kind
def float_subclass():
    class Real(float):
        pass

    o = Box(n=Real(1.5))

    def f(x):
        return x * o.n

    yield f, (X,)
    o.n = Real(2.5)
    yield
    Real.__rmul__ = lambda self, other: 4
    yield


@kind
def str_subclass():
    class Word(str):
        __slots__ = ()

    o = Box(mode="up")

    def f(x):
        return x + 1 if o.mode == "up" else x - len(o.mode)

    yield f, (X,)
    o.mode = Word("up")
    yield
    o.mode = Word("other")
    yield
    Word.__eq__ = lambda self, other: True
    Word.__hash__ = str.__hash__
    yield
    Word.__len__ = lambda self: 50
    del Word.__eq__
    yield


@kind
def strings():
    o = Box(mode="up")

    def f(x):
        return {"up": x + 1, "down": x - 1}.get(o.mode, x), f"{o.mode}!"

    yield f, (X,)
    o.mode = "down"
    yield
    o.mode = "u" + "p" * (len("a"))
    yield SAME


@kind
def bytes_and_bytearrays():
    o = Box(data=b"ab")

    def f(x):
        return x + o.data[0] + len(o.data)

    yield f, (X,)
    o.data = b"cd"
    yield
    o.data = bytearray(b"ab")
    yield
    o.data[0] = 3
    yield


@kind
def none_for_a_tensor():
    def f(x, mask):
        return x if mask is None else x * mask

    yield f, (X, None)
    yield X, X + 1
    yield X, None


@kind
def large_ints():
    o = Box(n=2**70)

    def f(x):
        return x + o.n % 7

    yield f, (X,)
    o.n = 2**70 + 1
    yield
    o.n = 2**70
    yield SAME


@kind
def complex_numbers():
    o = Box(n=1 + 2j)

    def f(x):
        return x * o.n

    yield f, (X,)
    o.n = 1 - 2j
    yield
    o.n = 1.0
    yield


@kind
def fractions_and_decimals():
    o = Box(a=fractions.Fraction(1, 2), b=decimal.Decimal("1.5"))

    def f(x):
        return x * float(o.a) + float(o.b)

    yield f, (X,)
    o.a = fractions.Fraction(1, 3)
    yield
    o.b = decimal.Decimal("2.5")
    yield
    o.a._numerator = 5
    yield


@kind
def numpy_scalars():
    o = Box(n=np.float32(1.5))

    def f(x):
        return x * o.n, type(o.n)

    yield f, (X,)
    o.n = np.float32(2.5)
    yield
    o.n = np.float64(1.5)
    yield
    o.n = np.int64(2)
    yield
    o.n = np.float32(1.5)
    yield


@kind
def numpy_arrays():
    data = np.array([1.0, 2.0])
    o = Box(data=data)

    def f(x):
        return x + torch.from_numpy(o.data)

    yield f, (X,)
    data[0] = 7
    yield
    o.data = np.array([1, 2])
    yield
    o.data = np.array([[1.0, 2.0], [3.0, 4.0]])
    yield
    o.data = np.array([1.0, 2.0, 9.0, 9.0])[::2]
    yield


@kind
def numpy_array_items():
    data = np.array([1, 2])

    def f(x):
        return x + int(data[0]) + data.shape[0] + float(data.sum())

    yield f, (X,)
    data[0] = 7
    yield
    data.resize(1, refcheck=False)
    yield


@kind
def slices_and_ellipsis():
    o = Box(at=slice(0, 1))
    y = torch.arange(6.0).reshape(2, 3)

    def f(x):
        return y[o.at] + x[0]

    yield f, (X,)
    o.at = slice(None, None)
    yield
    o.at = ...
    yield
    o.at = (slice(None), 1)
    yield
    o.at = [0]
    yield
    o.at = slice(0, 1)
    yield SAME


@kind
def dtypes_and_devices():
    o = Box(dtype=torch.float32, device=torch.device("cpu"))

    def f(x):
        return x.to(device=o.device, dtype=o.dtype)

    yield f, (X,)
    o.dtype = torch.float64
    yield
    o.dtype, o.device = torch.float32, "cpu"
    yield


@kind
def sizes_and_formats():
    o = Box(size=torch.Size([2, 1]), format=torch.contiguous_format)

    def f(x):
        return x.reshape(o.size).clone(memory_format=o.format)

    yield f, (X,)
    o.size = torch.Size([1, 2])
    yield
    o.size = (2, 1)
    yield
    o.size = [1, 1, 2]
    yield


@kind
def type_objects():
    o = Box(kind=int)

    def f(x):
        return x + o.kind("3") if o.kind is not str else x

    yield f, (X,)
    o.kind = float
    yield
    o.kind = str
    yield
    o.kind = int
    yield SAME


@kind
def numbers_compared_by_chains():
    o = Box(low=0, high=5)

    def f(x, n):
        return x + 1 if o.low <= n < o.high else x - 1

    yield f, (X, 3)
    o.high = 2
    yield
    o.low, o.high = 0, 5
    yield
    yield X, 9


@kind
def strings_interned_or_not():
    o = Box(name="some_name")

    def f(x):
        return x + 1 if o.name in {"some_name": 1} else x

    yield f, (X,)
    o.name = "".join(["some", "_", "name"])
    yield SAME
    o.name = "other"
    yield


@kind
def constants_of_math():
    before = math.pi

    def f(x):
        return x * math.pi

    try:
        yield f, (X,)
        math.pi = 3.0
        yield
    finally:
        math.pi = before
    yield SAME
