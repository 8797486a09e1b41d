"""Tracebacks of compiled code: the same frames, lines, columns and messages as plain Python's, to the last caret.

Each program fails in one of its calls: in the middle of a graph, in callees three deep, in loops and comprehensions,
after a break, while something else is handled. The whole text of `traceback.format_exception` is compared, what
the arguments are left like, and the calls before and after.
"""

# ruff: noqa: F821, B018, E731, B904, PLR1714, SIM105

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest
import torch

from graftjit import JitConfig, jit

GOOD, BAD = (torch.ones(2, 3), torch.ones(3, 3)), (torch.ones(2, 3), torch.ones(4, 5))


def inner3(a, b):
    c = a * 2
    return c @ b


def inner2(a, b):
    return [inner3(a, b) + i for i in range(2)]


def inner1(a, b):
    return sum(inner2(a * 1, b))


def three(a, b):
    y = a + 1
    z = inner1(y, b)
    return z * 2


def in_loop(a, b):
    for i in range(4):
        a = a + i
        if i == 2:
            a = torch.cat([a, b.reshape(3, 9) if i else a], dim=1)
    return a


def in_comp(a, b):
    return [x + 1 for x in [a, a * 2, (a @ b)]]


def in_genexp(a, b):
    return sum(x @ b for x in [a, a])


def in_lambda(a, b):
    f = lambda x: x.view(7)
    return f(a + 1)


def after_break(a, b):
    a = a + 1
    print(end="")
    c = a * 2
    d = c @ b
    return d


def mutated(a, b):
    a.add_(1)
    a = a.mul_(2) @ b
    return a


def effects(a, b, log):
    log.append(1)
    c = a * 2
    log.append(2)
    d = c @ b
    log.append(3)
    return d


def index(a, i):
    y = a * 2
    z = y[i]
    return z + 1


def emb(a, i):
    y = torch.nn.functional.embedding(i, a) + 1
    return y.sum()


def div(a, b):
    return (a.long() // b.long()) + 1


def meth(a, b):
    return a.nothing_here + b


def typ(a, b):
    return torch.add(a, "x")


def kw(a, b):
    return torch.sum(a, dim=0, keepdims="q", foo=3)


def unpack(a, b):
    p, q, r = a
    return p


def boolean(a, b):
    if a > 0:
        return a
    return b


def name(a, b):
    y = a + 1
    return y + undefined


def call(a, b):
    y = a + 1
    return inner3(y)


def key(a, d):
    y = a + 1
    return y * d["k"]["z"]


def idx(a, l):
    y = a + 1
    return y * l[3]


def attr(a, o):
    y = a + 1
    return y * o.thing.other


def raise_custom(a, b):
    y = a + 1
    if y.shape[0] == 2:
        raise ValueError(f"bad shape {tuple(y.shape)}")
    return y


def asserts(a, b):
    y = a + 1
    assert y.shape == b.shape, f"shapes {y.shape}"
    return y


class M(torch.nn.Module):
    def __init__(s):
        super().__init__()
        s.l = torch.nn.Linear(5, 2)
        s.s = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(9, 9))

    def forward(s, x):
        x = s.l(x)
        return s.s(x)


mod = M()


def module(a, b):
    y = b * 2
    return mod(y)


def rec(a, b, n=3):
    a = a + 1
    return rec(a, b, n - 1) if n else a @ b


def deco(f):
    @functools.wraps(f)
    def w(*a, **k):
        return f(*a, **k)

    return w


@deco
def decorated(a, b):
    return a @ b


def gen(a, b):
    def g():
        yield a
        yield a @ b

    out = []
    for x in g():
        out.append(x)
    return out


def suppressed(a, b):
    try:
        a = a @ b
    except RuntimeError as e:
        raise KeyError("other") from e
    return a


def suppressed2(a, b):
    try:
        a = a @ b
    except RuntimeError as e:
        raise KeyError("other") from None
    finally:
        a = a + 1


def ctx(a, b):
    try:
        a = a @ b
    except RuntimeError as e:
        b = b + 1
        a.foo
    return a


def with_grad(a, b):
    with torch.no_grad():
        y = a * 2
        return y @ b


def setattr_(a, b):
    y = a * 2
    y.shape = 3
    return y


def item(a, b):
    return a.item() + 1


def multi(a, b):
    return torch.stack([a, a * 2, b], dim=0)


def chained(a, b):
    return (a + 1).mul(2).view(3, 2).matmul(b).sum()


def nested_call(a, b):
    return torch.relu(torch.sigmoid(torch.matmul(a, b)))


def inplace(a, b):
    a += b
    return a


def where(a, b):
    return torch.where(a > 0, a, b)


def subscript_store(a, b):
    a[5] = 1
    return a


def slice_(a, b):
    y = a * 2
    y[:, 0] = b
    return y


def dividezero(a, b):
    y = a * 2
    n = 3 - y.shape[1]
    return y * (1 / n)


CALLS: dict[Any, tuple] = {
    effects: ((GOOD[0], BAD[1], []), (*GOOD, []), (GOOD[0], BAD[1], [])),
    key: ((GOOD[0], {}), (GOOD[0], {"k": {}}), (GOOD[0], {"k": {"z": 1}}), (GOOD[0], {})),
    idx: ((GOOD[0], []), (GOOD[0], [1, 2, 3, 4]), (GOOD[0], [])),
    attr: ((GOOD[0], 3), (GOOD[0], torch), (GOOD[0], 3)),
    index: tuple((GOOD[0], torch.tensor([0, i])) for i in (7, 1, 7)),
    emb: tuple((GOOD[0], torch.tensor([0, i])) for i in (7, 1, 7)),
    div: ((GOOD[0], torch.zeros(2, 3)), (GOOD[0], GOOD[0]), (GOOD[0], torch.zeros(2, 3)), BAD),
}
HELPERS = (inner1, inner2, inner3, deco)
PROGRAMS = [
    one
    for one in list(globals().values())
    if hasattr(one, "__code__") and one.__module__ == __name__ and one not in HELPERS
]


def outcome(fn: Any, args: tuple) -> tuple[Any, ...]:
    """The result or the whole text of the traceback, and the arguments after it."""
    args = tuple(
        arg.clone()
        if isinstance(arg, torch.Tensor)
        else list(arg)
        if isinstance(arg, list)
        else arg
        for arg in args
    )
    try:
        found = str(fn(*args))
    except Exception as error:
        own = error.__traceback__.tb_next if error.__traceback__ else None
        found = "".join(traceback.format_exception(type(error), error, own))
    return found, str(args)


@pytest.mark.parametrize("level", ("O0", "O1"))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_tracebacks(program: Any, level: str) -> None:
    run = jit(program, config=JitConfig(jit_level=level))
    failed = 0
    for args in CALLS.get(program, (BAD, BAD, GOOD, BAD, GOOD)):
        plain = outcome(program, args)
        assert outcome(run, args) == plain
        failed += plain[0].startswith("Traceback")
    assert failed
    assert "PL205" not in {row.code for row in run.report().notes}
