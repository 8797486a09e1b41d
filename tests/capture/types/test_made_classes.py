"""Classes that a frame defines: one break, at the call that makes the class."""

from __future__ import annotations

import collections
import dataclasses

import torch

from ..harness import agrees, t


@agrees(codes=("GB126",))
def test_a_class_in_a_frame():
    def f(x, scale):
        y = x + 1

        class Base:
            factor = scale

            def double(self, z):
                return z * scale

        return y * 2, Base.__qualname__, Base().double(y), Base.factor

    return f, (t(3), 2)


@agrees()
def test_classes_with_bases_and_decorators():
    def f(x):
        @dataclasses.dataclass
        class Pair:
            a: torch.Tensor
            b: int = 3

        class More(Pair, metaclass=type):
            def total(self):
                return super().__eq__(self), self.a * self.b

        pair = More(x + 1)
        pair.b = 4
        return pair.total(), dataclasses.astuple(pair)[1], type(pair).__name__

    return f, (t(3),)


@agrees(codes=("GB126",))
def test_a_named_tuple_in_a_frame():
    def f(x):
        pair = collections.namedtuple("Pair", "a b", defaults=(3,))
        made = pair(x + 1)
        return made.a * made.b, made._fields, made._replace(b=x).b, type(made).__name__

    return f, (t(3),)


@agrees()
def test_the_builtin_is_replaced():
    names = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
    real = names["__build_class__"]

    def f(x):
        class Made:
            pass

        return x * 2, Made

    def replaced():
        names["__build_class__"] = lambda fn, name, *bases, **more: name

    def put_back():
        names["__build_class__"] = real

    return lambda x: f(x)[1] == "Made", (t(3),), [replaced, put_back]
