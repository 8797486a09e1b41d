"""try, except, finally, raise, with, iterators and generators: what is handled inside stays in the graph."""

from __future__ import annotations

import contextlib

import pytest
import torch

from graftjit import jit

from ..harness import agrees, t


class Refused(Exception):
    def __init__(self, code, message="refused"):
        super().__init__(message)
        self.code = code


class Log:
    """A context manager that writes down what happens, and may swallow."""

    def __init__(self, lines, swallow=False):
        self.lines = lines
        self.swallow = swallow

    def __enter__(self):
        self.lines.append("in")
        return self

    def __exit__(self, kind, value, traceback):
        self.lines.append(kind.__name__ if kind else "out")
        return self.swallow


class Count:
    def __init__(self, n):
        self.i, self.n = 0, n

    def __iter__(self):
        return self

    def __next__(self):
        self.i += 1
        if self.i > self.n:
            raise StopIteration
        return self.i


class Items:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i * 2


def checked(x, n):
    if n > 2:
        raise ValueError("too big")
    return x + n


def both(f, *others):
    """A world that calls f with a value that passes and one that does not."""
    return f, (t(3), 1, *others), [lambda: (t(3), 4, *others)] * 2


@agrees(calls=3)
def test_missing_keys():
    def f(x, d):
        try:
            y = x + d["k"]
        except KeyError:
            y = x - 1
        return y * 2

    x = t(3)
    return f, (x, {}), [lambda: (x, {"k": 2}), lambda: (x, {})]


@agrees()
def test_classes_of_the_users():
    def f(x):
        try:
            raise Refused(3, "no")
        except Refused as error:
            return x * error.code, str(error), error.args

    return f, (t(3),)


@agrees(calls=3)
def test_else_and_finally():
    def f(x, n):
        out = []
        try:
            y = checked(x, n)
        except (TypeError, ValueError) as error:
            y = x
            out.append(str(error))
        else:
            out.append("else")
        finally:
            out.append("finally")
        return y * 2, out

    return both(f)


@agrees(calls=3)
def test_context_managers():
    def f(x, n):
        lines = []
        with Log(lines, swallow=True):
            x = checked(x, n)
            lines.append("body")
        try:
            with Log(lines), Log(lines):
                x = checked(x, n)
        except ValueError:
            lines.append("outer")
        return x * 2, lines

    return both(f)


@agrees(calls=3)
def test_a_break_inside_with():
    def f(x, n):
        lines = []
        try:
            with Log(lines) as log:
                y = checked(x, n)
                print("inside", len(log.lines))
                y = y * 2
        except ValueError:
            y = x
        return y + 1, lines

    return both(f)


@agrees(calls=3)
def test_a_break_inside_a_handler():
    def f(x, n):
        try:
            y = checked(x, n)
        except ValueError as error:
            print("handling", error)
            y = x * 3
        return y + 1

    return both(f)


@agrees(calls=3)
def test_exceptions_that_are_kept():
    def f(x, n, kept):
        try:
            y = checked(x, n)
        except ValueError as error:
            kept.append(error)
            y = x
        return y + 1, [str(one) for one in kept], [type(one.__traceback__).__name__ for one in kept]

    return both(f, [])


@agrees(calls=3)
def test_exceptions_that_leave():
    def f(x, n, seen):
        y = x + 1
        seen.append(n)
        return checked(y, n) * 2

    return both(f, [])


@agrees(calls=3)
def test_raise_from_and_again():
    def f(x, n):
        try:
            try:
                checked(x, n)
            except ValueError as error:
                raise RuntimeError("outer") from error
        except RuntimeError as error:
            return x + 1, str(error), type(error.__cause__).__name__
        try:
            try:
                return x + {}["no"]
            except KeyError:
                raise
        except LookupError:
            return x * 2

    return both(f)


@agrees(calls=3)
def test_loops_with_finally():
    def f(x, n):
        for i in range(n):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                x = checked(x, i)
            finally:
                x = x * 2
        else:
            x = x - 100
        return x

    return both(f)


@agrees(calls=3)
def test_assertions():
    def f(x, n):
        assert n < 3, f"bad {n}"
        return x + n

    return both(f)


@agrees()
def test_iterators_of_the_users():
    def f(x):
        for i in Count(3):
            x = x + i
        one = Count(2)
        return x, sum(Count(4)), next(Count(0), "none"), list(Items()), [*one], iter(one) is one

    return f, (t(3),)


@agrees()
def test_generators_in_full():
    def echo(log):
        got = None
        try:
            while True:
                try:
                    got = yield got
                except ValueError as error:
                    got = str(error)
        finally:
            log.append("closed")

    def f(x):
        log = []
        one = echo(log)
        out = [next(one), one.send(x), one.throw(ValueError("thrown")), one.send(3)]
        one.close()
        try:
            next(one)
        except StopIteration as stop:
            out.append(stop.value)
        return x * 2, out, log

    return f, (t(3),)


@agrees()
def test_what_a_generator_returns():
    def parts(x):
        yield x
        return x + 1

    def whole(x):
        last = yield from parts(x)
        yield last * 2

    def f(x):
        one = parts(x)
        next(one)
        try:
            next(one)
        except StopIteration as stop:
            return list(whole(x)), stop.value

    return f, (t(3),)


@agrees(calls=3)
def test_contextlib():
    @contextlib.contextmanager
    def scaled(log):
        log.append("start")
        try:
            yield 5
        except ValueError:
            log.append("caught")
        finally:
            log.append("end")

    def f(x, n):
        log = []
        with scaled(log) as factor:
            x = checked(x * factor, n)
        with contextlib.suppress(ValueError):
            x = checked(x, n)
        with contextlib.nullcontext(3) as three:
            return x * three, log

    return both(f)


@agrees(calls=3)
def test_contextlib_with_a_break():
    @contextlib.contextmanager
    def noted(log):
        log.append("start")
        yield
        log.append("end")

    def f(x, n):
        log = []
        with noted(log):
            x = checked(x, n)
            print("inside")
        return x, log

    return both(f)


@agrees(calls=3)
def test_lookup_hooks_that_raise():
    class Box:
        def __getattr__(self, name):
            if name == "no":
                raise AttributeError(name)
            return 3

    def f(x, n):
        box = Box()
        return x * box.yes, hasattr(box, "no"), getattr(box, "no", n)

    return both(f)


def test_what_is_handled_inside_is_no_break():
    def f(x, n):
        try:
            y = checked(x, n)
        except ValueError:
            y = x
        with Log([], swallow=True):
            y = checked(y, n)
        return y * 2

    run = jit(f)
    torch.testing.assert_close(run(t(3), 4), f(t(3), 4))
    report = run.report()
    assert (report.graph_count, report.breaks) == (1, [])


def test_tracebacks_hold_the_users_lines():
    run = jit(lambda x, n: checked(x + 1, n) * 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="too big") as caught:
            run(t(3), 5)
        names = [entry.name for entry in caught.traceback]
        assert names[-2:] == ["<lambda>", "checked"], names
        torch.testing.assert_close(run(t(3), 1), (t(3) + 2) * 2)
