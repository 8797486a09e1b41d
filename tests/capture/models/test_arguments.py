"""Arguments that the library refuses, and data on which capture itself would fail: what Python does happens."""

from __future__ import annotations

import collections
import functools
import importlib
import itertools
import sys
from typing import Any

import pytest
import torch

import graftjit

from ..harness import agrees


class Changes:
    """Empties a deque while it is compared."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        self.of.clear()
        return False

    __hash__ = None  # type: ignore[assignment]


def outcome(call: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except (TypeError, ValueError, IndexError, RuntimeError, MemoryError, RecursionError) as error:
        return type(error).__name__


@agrees(level="O1")
def test_iterators_with_arguments_that_python_refuses() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        said = [outcome(itertools.combinations, "abc", -1)]
        said.append(outcome(itertools.combinations_with_replacement, "abc", -1))
        said.append(outcome(itertools.permutations, "abc", -1))
        said.append(outcome(itertools.islice, "abc"))
        said.append(outcome(itertools.repeat, 1, "2"))
        return y * 2, said

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_slice_whose_step_is_zero() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        try:
            found: Any = [1, 2][::0]
        except ValueError:
            found = "refused"
        return y * 2, found

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_deques_with_arguments_that_python_refuses() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        made = [outcome(collections.deque, "ab", 1, 2), outcome(collections.deque, "ab", wrong=1)]
        return y * 2, made, outcome(collections.deque, "ab", iterable="c")

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_deque_that_changes_while_it_is_searched() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        d: Any = collections.deque([1, 2])
        first = outcome(d.count, Changes(d))
        d = collections.deque([1, 2])
        second = outcome(d.__contains__, Changes(d))
        return y * 2, first, second, [2, 1, 2].count(2), 2 in collections.deque([1, 2])

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_another_copy_of_a_module_in_c_changes_the_list_too() -> tuple:
    first = sys.modules.pop("_bisect")
    other = importlib.import_module("_bisect")
    sys.modules["_bisect"] = first

    def fn(x: Any) -> Any:
        y = x + 1
        kept = [1, 3]
        other.insort(kept, 2)
        other.insort_left(a=kept, x=0)
        return y * 2, kept

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_nan_is_itself() -> tuple:
    nan = float("nan")

    def fn(x: Any, nan: Any, kept: Any) -> Any:
        y = x + 1
        return y * 2, kept[0] is nan, sum(1 for one in kept if one is nan or one == nan)

    return fn, (torch.ones(2), nan, [nan, 1.0])


@agrees(level="O1")
def test_a_named_tuple_without_fields() -> tuple:
    zero = collections.namedtuple("Zero", "")

    def fn(x: Any) -> Any:
        y = x + 1
        return y * 2, zero()._asdict(), zero()._fields, zero()._replace()

    return fn, (torch.ones(2),)


@pytest.mark.parametrize("depth", [5_000])
def test_data_deeper_than_the_stack(depth: int) -> None:
    from graftjit import jit

    def fn(x: Any) -> Any:
        y = x + 1
        nested: Any = []
        for _ in range(depth):
            nested = [nested]
        return y * 2, outcome(repr, nested), nested

    plain, compiled = fn(torch.ones(2)), jit(fn)(torch.ones(2))
    assert plain[1] == compiled[1]  # "RecursionError" but where C has room for more (Python 3.13)
    assert functools.reduce(lambda one, _: one[0], range(depth), compiled[2]) == []


@agrees(level="O1")
def test_more_than_there_is_memory_for() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        kept = [0, 1]
        try:
            kept *= 2**61
        except MemoryError:
            kept.append(2)
        return y * 2, kept

    return fn, (torch.ones(2),)


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize(
    "make",
    [lambda: "ab" * int("3"), lambda: bytes([97]) * int("3"), lambda: complex("1j"), lambda: 10 ** int("20"), lambda: float("1.5")],
    ids=["str", "bytes", "complex", "int", "float"],
)  # fmt: skip
def test_constants_that_are_held_are_given_out_themselves(make, level):
    def straight(x, held):
        return held[0], {"k": held[1]}, x + 1

    def after_a_break(x, held):
        one, two = held
        print(end="")
        return one, {"k": two}, x + 1

    def by_number(x, held):
        return id(held[0]) == id(held[1]), [id(one) for one in held], x + 1

    for f in (straight, after_a_break):
        jitted = graftjit.jit(f, config=graftjit.JitConfig(jit_level=level))
        for _ in range(3):
            one, two = make(), make()
            found = jitted(torch.ones(2), (one, two))
            assert found[0] is one and found[1]["k"] is two
    jitted = graftjit.jit(by_number, config=graftjit.JitConfig(jit_level=level))
    for same in (False, True, False):
        one = make()
        two = one if same else make()
        assert jitted(torch.ones(2), (one, two))[:2] == (same, [id(one), id(two)])
