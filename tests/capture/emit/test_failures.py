"""Operators that fail because of their data: what came before has happened, what comes after has not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ..harness import agrees

IN, OUT = [0, 1], [0, 9]


def i(values):
    return torch.tensor(values)


class Box:
    n = 0


def steps(*more):
    return [lambda: (torch.zeros(3), i(OUT), torch.eye(3), Box()), lambda: (torch.zeros(3), i(IN), torch.eye(3), Box()),
            lambda: (torch.zeros(3), i(OUT), -torch.eye(3), Box()), *more]  # fmt: skip


def start():
    return torch.zeros(3), i(IN), torch.eye(3), Box()


LEVELS = ("O0", "O1")


@pytest.mark.parametrize("level", LEVELS)
def test_a_write_then_a_look_up_that_is_caught(level):
    @agrees(level=level)
    def world():
        def f(x, idx, w, o):
            o.n += 1
            try:
                x.add_(1)
                y = w[idx]
                o.n += 10
                return y + x
            except IndexError:
                o.m = "caught"
                return x

        return f, start(), steps()

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_effects_before_a_write_and_a_look_up(level):
    @agrees(level=level)
    def world():
        def f(x, idx, w, o):
            o.n += 1
            x.add_(1)
            y = F.embedding(idx, w)
            o.n += 10
            return y

        return f, start(), steps()

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_look_up_then_a_write(level):
    @agrees(level=level)
    def world():
        def f(x, idx, w, o):
            o.n = 5
            y = w[idx]
            x.add_(1)
            o.n = 6
            return y + x

        return f, start(), steps()

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_no_write_at_all(level):
    @agrees(level=level)
    def world():
        def f(x, idx, w, o):
            o.n = 5
            try:
                y = torch.linalg.cholesky(w)[idx]
            except IndexError:
                print("index")
                return x
            except RuntimeError as error:
                return str(error)
            finally:
                o.m = 6
            o.n = 7
            return y * 2

        return f, start(), steps()

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_grad_mode_after_a_failure(level):
    @agrees(level=level)
    def world():
        def inside(x, idx):
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return x[idx] * 2

        def written(x, idx):
            x.add_(1)
            with torch.no_grad():
                return x[idx] * 2

        def f(x, idx, w, o):
            out = []
            for fn in (inside, written):
                try:
                    out.append(fn(x, idx))
                except IndexError:
                    out.append(torch.is_grad_enabled())
            return out, torch.is_grad_enabled()

        return f, start(), steps()

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_random_numbers_after_a_failure(level):
    @agrees(level=level)
    def world():
        def draw(w, idx):
            a = torch.rand(3)
            return w[idx] + a, torch.rand(1)

        def f(x, idx, w, o):
            try:
                return draw(w, idx)
            except IndexError:
                return torch.rand(2)

        return f, start(), steps(lambda: (torch.zeros(3), i(IN), torch.eye(3), Box()))

    world(level)


@pytest.mark.parametrize("level", LEVELS)
def test_integers_divided_by_zero(level):
    @agrees(level=level)
    def world():
        def f(a, b, o):
            o.n = 1
            try:
                a += 1
                c = a // b
                o.n = 2
                d = a % b
            except RuntimeError as error:
                o.n += 10
                return str(error)
            return c, d

        return f, (i([3, 4]), i([1, 2]), Box()), [
            lambda: (i([3, 4]), i([0, 2]), Box()), lambda: (i([3, 4]), i([2, 2]), Box()),
        ]  # fmt: skip

    world(level)


@agrees()
def test_modes_set_for_good_before_a_failure():
    def f(x, idx):
        x.mul_(2)
        torch.set_grad_enabled(False)
        y = x[idx]
        torch.set_grad_enabled(True)
        return y

    def g(x, idx):
        try:
            return f(x, idx), torch.is_grad_enabled()
        except IndexError:
            before = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
            return before

    return (
        g,
        (torch.ones(3), i(IN)),
        [lambda: (torch.ones(3), i(OUT)), lambda: (torch.ones(3), i(IN))],
    )


@agrees()
def test_draws_of_floats_into_integers_are_caught():
    """torch finds out when it draws, not by shapes and dtypes."""

    def f(x, whole):
        y, found = x + 1, []
        for fill in (
            torch.Tensor.normal_,
            torch.Tensor.uniform_,
            torch.Tensor.exponential_,
            torch.Tensor.random_,
        ):
            try:
                found.append((fill(whole) * 0).tolist())
            except RuntimeError as error:
                found.append(type(error).__name__)
        return y, found

    return f, (torch.ones(2), i(IN))
