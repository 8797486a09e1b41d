"""Symbolic numbers: canonical forms, ranges, and the numbers that they stand for."""

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftjit.ir.symbolic import expr as symbols
from graftjit.ir.symbolic.expr import Symbol, decided, evaluate, fold, substituted
from graftjit.ir.symbolic.shape_env import Facts

S0, S1 = Symbol("s0", "int", 8, 2), Symbol("s1", "int", 5, 2)
N0 = Symbol("n0", "int", -3, None, -1)
F0 = Symbol("f0", "float", 0.5)

LEAVES = st.sampled_from([S0, S1, N0]) | st.integers(-4, 4)
OPS = st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "min", "max"])


@st.composite
def expressions(draw, depth=3):
    """An expression beside the plain function that it should be."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(LEAVES)
        return leaf, lambda values: evaluate(leaf, values)
    op = draw(OPS)
    (a, f), (b, g) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    if op in ("floordiv", "mod") and symbols.hint_of(b) == 0:
        op = "add"
    return symbols.made(op, a, b), lambda values: symbols.OPS[op](f(values), g(values))


@given(expressions(), st.integers(2, 20), st.integers(2, 20), st.integers(-20, -1))
def test_an_expression_is_the_number_that_python_computes(pair, s0, s1, n0):
    expr, plain = pair
    values = {"s0": s0, "s1": s1, "n0": n0}
    try:
        expected = plain(values)
    except ZeroDivisionError:
        return
    assert evaluate(expr, values) == expected
    low, high = symbols.bounds_of(expr)
    assert low <= expected <= high
    walked = fold(
        expr,
        lambda n: n,
        lambda s: values[s.name],
        lambda op, _kind, *args: symbols.OPS[op](*args),
    )
    assert walked == expected
    swapped = substituted(expr, {S1: S0 + 1}) if _no_zero_divisor(expr) else None
    if swapped is not None and s1 == s0 + 1:
        assert evaluate(swapped, values) == expected


def _no_zero_divisor(expr):
    return "//" not in str(expr) and "%" not in str(expr)


@pytest.mark.parametrize(
    ("made", "plain"),
    [
        (S0 * 4 // 4, S0),
        ((S0 * 4 + 3) // 4, S0),
        ((S0 * 4 + 3) % 4, 3),
        (S0 * S1 // S1, S0),
        (S0 * S1 % S1, 0),
        (S0 - S0, 0),
        (S0 * 2, S0 + S0),
        ((S0 + S1) * S0, S0 * S0 + S1 * S0),
        (symbols.least(S0, 1), 1),
        (symbols.greatest(S0, 2), S0),
    ],
)
def test_equal_numbers_have_one_form(made, plain):
    assert made == plain
    assert str(made) == str(plain)


def test_ranges_answer_questions():
    assert decided("==", S0, 1) is False
    assert decided(">=", S0 * S1, 4) is True
    assert decided("<", N0, 0) is True
    assert decided("==", S0, S1) is None
    with pytest.raises(TypeError, match="outside of a trace"):
        operator.lt(S0, S1)


def test_floats_keep_the_order_of_the_program():
    made = F0 * 2 + 1
    assert str(made) == "(f0 * 2) + 1"
    for value in itertools.chain((0.1, -0.0, 1e308), (float("inf"),)):
        assert evaluate(made, {"f0": value}) == value * 2 + 1


def test_what_an_equation_gives_is_no_further_question():
    """Expressions are compared by form on the way: == would ask, and ask again within that."""
    facts = Facts()
    n, k = (facts.symbol("int", 8, ("number", place), 2) for place in "ab")
    with facts.active():
        assert n // 3 == 2
        assert (n * (k // 3) + n * 4) // n == k // 3 + 4
    assert [str(relation) for relation in facts.relations] == ["n0 // 3 == 2"]
