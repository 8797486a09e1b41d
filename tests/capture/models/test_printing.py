"""Printed text and texts of numbers and tensors: the output of plain Python, without a break."""

from __future__ import annotations

import contextlib
import enum
import io
import logging
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch

from graftjit import jit

from ..harness import t

CALLS = 3
LOG = logging.getLogger("graftjit.tests.printing")
LOG.propagate = False
LOG.setLevel(logging.INFO)
KEPT: list[Any] = []


def x23() -> torch.Tensor:
    """Sums of its elements are exact in any order."""
    return torch.arange(6.0).reshape(2, 3)


def outcomes(fn: Any, *args: Any) -> list[Any]:
    """Results or exceptions, and what is printed and logged, for each call."""
    found = []
    KEPT.clear()
    for at in range(CALLS):
        printed = io.StringIO()
        handler = logging.StreamHandler(printed)
        handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s %(message)s"))
        LOG.handlers[:] = [handler]
        with contextlib.redirect_stdout(printed):
            try:
                result = fn(*[one + at if isinstance(one, torch.Tensor) else one for one in args])
                outcome = result.tolist() if isinstance(result, torch.Tensor) else result
            except Exception as error:
                outcome = type(error).__name__, str(error)
        found.append((outcome, printed.getvalue()))
    return [*found, list(KEPT)]


def same(fn: Any, *args: Any, breaks: int = 0) -> Any:
    run = jit(fn)
    wanted, got = outcomes(fn, *args), outcomes(run, *args)
    assert wanted == got, run.report()
    assert run.report().break_count == breaks, run.report()
    return run.report()


def constants(x):
    print("hello", 3, None, sep="-", end="!\n")
    print()
    return x * 2


def shapes(x):
    y = x @ x.T
    print("shape", y.shape, y.dtype, x.size(0), [1, "a"], {"k": (x.dim(),)})
    return y + 1


def tensors(x):
    y = x.sum()
    print("sum:", y, [x, 1], {"of": y})
    return x / (y + 1)


def numbers(x):
    y = x.sum()
    print("sum", y.item(), int(y), y.item() * 2, x.max().item() + 1)
    return x - y


def f_strings(x):
    y = x.sum()
    text = f"sum {y.item():.3f} {y} {x} {y.item()!r:>8} {x.shape[0]:d}"
    print(text + "!", "a" + text)
    return text, x.size(0)


def old_forms(x):
    y = x.sum().item()
    print("%.3f of %s" % (y, "text"), "%d" % y, "{:.2f} {n}".format(y, n=x.size(1)))
    print(", ".join([f"{y}", "b"]).upper().ljust(20) + "|")
    return x + y


def logged(x):
    loss = (x * x).sum()
    LOG.info("loss %.2f of %s", loss.item(), tuple(x.shape))
    LOG.info(f"loss {loss.item():.1f}")
    LOG.warning("tensor %s", loss)
    LOG.debug("not shown %s", loss)
    return loss


def in_order(x):
    print("first")
    KEPT.append("second")
    LOG.info("third %s", x.sum().item())
    print("fourth")
    return x + 1


def a_step(x):
    w = x.clone().requires_grad_()
    loss = (w * w).sum()
    loss.backward()
    print("loss", loss.item(), "grad", w.grad.sum().item())
    return w.grad


def without_gradient(x):
    with torch.no_grad():
        y = x * 2
        print("inside", y)
    return y


def changed_after(x):
    items = [1, 2]
    print(items)
    items.append(x.size(0))
    print(items)
    return x + len(items)


def streams(x):
    sys.stdout.write("a text\n")
    sys.stdout.flush()
    print("flushed", flush=True)
    return x + 1


@pytest.mark.parametrize(
    "fn",
    [
        *(constants, shapes, tensors, numbers, f_strings, old_forms, logged, in_order, a_step),
        *(without_gradient, changed_after),
    ],
)
def test_output_without_a_break(fn):
    same(fn, x23())


def test_a_stream_that_is_the_same_at_each_call():
    printed = io.StringIO()
    run = jit(streams)
    with contextlib.redirect_stdout(printed):
        for _ in range(CALLS):
            run(x23())
    assert printed.getvalue() == "a text\nflushed\n" * CALLS
    assert run.report().break_count == 0


def test_a_tensor_that_is_written_after_it_was_printed():
    def f(x):
        y = x * 2
        print(y)
        y.add_(1)
        return y

    same(f, x23(), breaks=1)


def test_the_history_of_a_printed_tensor():
    def f(x):
        y = (x * x).sum()
        print(y)
        return y

    run, x = jit(f), x23().requires_grad_()
    for fn in (f, run, run):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            fn(x).backward()
        assert printed.getvalue() == "tensor(55., grad_fn=<SumBackward0>)\n"


def test_an_exception_after_the_output():
    def f(x, at):
        print("before")
        y = x.index_select(0, at)
        print("after")
        return y

    same(f, x23(), torch.tensor([0, 7]) - 1)


def test_a_raise_between_two_lines():
    def f(x):
        print("before", x.sum().item())
        if x.dim() == 2:
            raise ValueError("stop")
        return x

    same(f, x23(), breaks=1)


def test_output_in_a_try_block_is_a_break():
    def f(x):
        try:
            print("inside")
            y = x + 1
        except ValueError:
            y = x
        return y

    same(f, x23(), breaks=1)


def test_a_stream_of_the_program_sees_what_happened_before():
    seen = []

    class Own(io.StringIO):
        def write(self, text):
            seen.append((text, list(KEPT)))
            return super().write(text)

    def f(x):
        print("one")
        KEPT.append(1)
        return x + 1

    run = jit(f)
    run(x23())  # compiled for a stream of the library
    for fn in (f, run):
        seen.clear()
        KEPT.clear()
        with contextlib.redirect_stdout(Own()):
            fn(x23())
        assert seen == [("one", []), ("\n", [])]


def test_a_closed_stream_raises():
    def f(x):
        print("one")
        return x + 1

    run = jit(f)
    run(x23())
    closed = io.StringIO()
    closed.close()
    for fn in (f, run):
        with contextlib.redirect_stdout(closed), pytest.raises(ValueError, match="closed file"):
            fn(x23())


def test_a_replaced_print_is_called():
    def f(x):
        print("one", x.size(0))
        return x + 1

    shown = []
    scope = {"print": lambda *parts: shown.append(parts)}
    run = jit(types.FunctionType(f.__code__, scope))
    run(x23())
    assert shown == [("one", 2)]


def test_a_counter_in_a_text_costs_no_recompile():
    def f(x, step):
        print(f"step {step}")
        return x + 1

    run = jit(f)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for step in range(8):
            run(x23(), step)
    assert printed.getvalue() == "".join(f"step {step}\n" for step in range(8))
    assert run.report().recompile_count == 0


def test_a_text_of_a_number_as_a_key_binds_it():
    def f(x, at):
        return x * {"a1": 2, "a2": 3}[f"a{at}"]

    run = jit(f)
    for at in (1, 2, 1, 2):
        assert torch.equal(run(x23(), at), f(x23(), at))
    with pytest.raises(KeyError, match="a3"):
        run(x23(), 3)


def test_a_text_from_data_that_decides_is_a_break():
    def f(x):
        text = f"{x.sum().item():.0f}"
        y = x + 1
        if text == "15":
            y = y * 2
        return y

    run = jit(f)
    for add in (0, 1, 0):
        assert torch.equal(run(x23() + add), f(x23() + add))
    assert [one.code for one in run.report().breaks] == ["GB104"]


def test_a_format_that_raises():
    def f(x):
        return x + 1, f"{x.sum().item():d}"

    same(f, t(3), breaks=1)


class Colour(enum.Enum):
    red = "r"


class Own:
    def __repr__(self):
        return "as repr()"

    def __str__(self):
        return "as str()"


OBJECTS = {
    "a_member": Colour.red,
    "an_object": Own(),
    "a_range": range(0, 3),
    "a_class": int,
    "a_number_of_numpy": np.float32(0.5),
    "a_slice": slice(1, 2),
    "a_tuple": (1, (2.5, "it's")),
    "a_set": {1},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_in_containers_are_shown_by_repr(name):
    def f(x, one):
        print(one, [one, one], (one,), {"k": [one]}, [x.sum(), one, f"{x.sum():.1f}"])
        return x * 2

    same(f, x23(), OBJECTS[name])


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("text", ["%s", "%r", "%-12r|", "%a", "%(k)s %(k)r"])
def test_objects_that_are_logged(name, text):
    def f(x, one):
        LOG.info(text, {"k": one})
        if "(" not in text:
            LOG.info(text, one)
            LOG.info(text + " %s", one, [one])
        return x * 2

    same(f, x23(), OBJECTS[name])


def test_keys_of_printed_dicts():
    def f(x, own):
        print({Colour.red: x.sum(), (1, "k"): own, int: None})
        return x * 2

    def g(x, own):
        print({own: 1})
        return x * 2

    same(f, x23(), Own())
    same(g, x23(), Own(), breaks=1)
