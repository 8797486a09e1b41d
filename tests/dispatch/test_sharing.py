"""One compilation for what is equal: functions made again, instances of one class."""

from __future__ import annotations

import types

import torch

import graftjit
from graftjit import JitConfig, jit
from graftjit.runtime.events.events import Captured

X = torch.tensor([0.5, -1.0])
O0 = JitConfig(jit_level="O0", dynamic=False)


def captures(run):
    return sum(type(event) is Captured for event in graftjit.report(run).events)


# -- functions ---------------------------------------------------------------------------------------------
def test_functions_made_again_as_arguments():
    @jit(config=O0)
    def apply(x, fn, table):
        return fn(x) + table["act"](x)

    for n in range(5):
        found = apply(X, lambda x: x * 2, {"act": lambda x, k=3: x - k})
        assert torch.equal(found, X * 2 + (X - 3)), n
    assert captures(apply) == 1


def test_what_functions_are_made_of_is_held():
    def make(n, k):
        def inner(x, k=k):
            return x * n + k

        return inner

    @jit(config=O0)
    def apply(x, fn):
        return fn(x)

    expected = 0
    for n, k in [(1, 2), (1, 2), (3, 2), (3, 5), (1, 2), (3, 5)]:
        assert torch.equal(apply(X, make(n, k)), X * n + k)
    expected = captures(apply)
    assert expected == 3
    other = make(1, 2)
    other.__code__ = (lambda n: lambda x, k=0: x - n - k)(0).__code__
    assert torch.equal(apply(X, other), X - 3)
    assert captures(apply) == expected + 1
    again = make(1, 2)
    again.__globals__["unread"] = 1
    assert torch.equal(apply(X, again), X + 2)
    assert captures(apply) == expected + 1


def test_functions_of_other_globals():
    def go(x):
        return x * LATER_SCALE  # noqa: F821

    @jit(config=O0)
    def apply(x, fn):
        return fn(x)

    for scale in (2, 3, 2):
        fn = types.FunctionType(go.__code__, {"LATER_SCALE": scale})
        assert torch.equal(apply(X, fn), X * scale)


def test_a_function_asked_who_it_is():
    @jit(config=O0)
    def same(x, one, other):
        return one(x) + 1 if one is other else other(x) - 1

    def make():
        return lambda x: x * 2

    first = make()
    for pair in [(first, first), (make(), make()), (first, make()), (first, first)]:
        expected = X * 2 + 1 if pair[0] is pair[1] else X * 2 - 1
        assert torch.equal(same(X, *pair), expected)


# -- objects -----------------------------------------------------------------------------------------------
class Scaled:
    offset = 1

    def __init__(self, n):
        self.n, self.w = n, torch.ones(2) * n

    def go(self, x):
        return x * self.w + self.offset


def test_instances_of_one_class():
    @jit(config=O0)
    def f(x, o):
        return o.go(x)

    for n in range(4):
        assert torch.equal(f(X, Scaled(n)), X * n + 1)
    assert captures(f) == 1
