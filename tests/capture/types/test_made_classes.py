"""Classes that a frame defines: one break, at the call that makes the class."""

from __future__ import annotations

import collections
import dataclasses
from typing import TypeVar

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


@agrees(level="O1")
def test_a_union_that_varies_in_an_alias_and_in_a_union():
    values = [int | str, list[int] | str, int | float, int | str]

    def f(x, kind):
        return x + 1, repr(list[kind]), repr(dict[str, kind]), repr(kind | None), repr(bytes | kind)

    return f, (t(2), values[0]), [lambda _, kind=kind: (t(2), kind) for kind in values[1:]]


@agrees(level="O1")
def test_a_union_of_what_the_frame_made_before_a_break():
    def f(x):
        y = x + 1
        made = TypeVar("made")
        return y * 2, list[int | list[made]].__parameters__[0] is made

    return f, (t(2),)
