"""What an exception object holds: context, cause, notes, traceback, groups and their parts; with `except*`."""

from __future__ import annotations

import sys
import traceback

from graftjit import jit

from ..harness import agrees, t


def chain(error):
    """All that hangs on an exception, as text."""
    if error is None:
        return None
    inner = [chain(one) for one in getattr(error, "exceptions", ())]
    held = (chain(error.__cause__), chain(error.__context__), error.__suppress_context__)
    return type(error).__name__, str(error), held, getattr(error, "__notes__", None), inner


class Refused(Exception):
    pass


class Own(Exception):
    def __init__(self, code, extra=2):
        super().__init__(code)
        self.code, self.extra = code, extra

    def __str__(self):
        return f"<{self.code}, {self.extra}>"


class Bare(Exception):
    def __init__(self, code):
        self.code = code


class Team(ExceptionGroup):
    def derive(self, members):
        return Team(self.message + "'", members)


@agrees(graphs=1, breaks=0)
def test_context():
    def f(x):
        try:
            try:
                raise ValueError("a")
            except ValueError:
                raise KeyError("b")  # noqa: B904
        except KeyError as error:
            return x + 1, chain(error), error.__context__.__context__

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_cause():
    def f(x, n):
        out = []
        for cause in (ValueError("c"), None, ValueError):
            try:
                try:
                    raise OSError if n > 5 else Refused(n)
                except Refused:
                    raise KeyError("b") from cause
            except KeyError as error:
                out.append((chain(error), error.__cause__ is error.__context__))
        return x + 1, out

    return f, (t(3), 1)


@agrees(graphs=1, breaks=0)
def test_no_circle_of_contexts():
    def f(x):
        first, second = ValueError("1"), KeyError("2")
        try:
            try:
                raise first
            except ValueError:
                raise second
        except KeyError:
            try:
                raise first
            except ValueError as error:
                return x + 1, chain(error), error.__context__ is second, second.__context__

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_raised_again_has_its_context_still():
    def f(x):
        try:
            try:
                raise ValueError("1")
            except ValueError as error:
                kept = error
                raise  # noqa: PLE0704
        except ValueError as error:
            return x + 1, chain(error), kept is error

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_set_by_hand():
    def f(x):
        error = ValueError("a")
        error.__cause__ = KeyError("c")
        error.__context__ = KeyError("d")
        error.__suppress_context__ = False
        other = ValueError("b").with_traceback(None)
        other.__cause__ = error
        return x + 1, chain(error), chain(other), other.__traceback__

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_notes():
    def f(x):
        error = Refused("a")
        error.add_note("one")
        try:
            raise error
        except Refused as caught:
            caught.add_note("two")
            return x + 1, caught.__notes__, hasattr(ValueError(), "__notes__")

    return f, (t(3),)


@agrees()
def test_notes_that_are_none():
    def f(x):
        error = Refused("a")
        error.__notes__ = 3
        try:
            error.add_note("one")
        except TypeError as wrong:
            return x + 1, str(wrong)

    return f, (t(3),)


@agrees(breaks=0)
def test_made_and_handed_out():
    def f(x, out):
        errors = [ValueError("a", 1), Own(3, extra=x), Bare(4), StopIteration(5), KeyError()]
        errors[0].add_note("noted")
        errors[1].__cause__ = errors[0]
        out.extend(errors)
        return x + 1, errors, [chain(one) for one in errors[2:]], StopIteration(7).value

    return f, (t(3), [])


@agrees()
def test_made_before_a_break_and_raised_after():
    def f(x):
        error = Own(3)
        y = x + 1
        print("here", error.code)
        try:
            raise error
        except Own as caught:
            return y * 2, caught is error, str(error)

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_messages_of_python():
    class Box:
        pass

    def f(x, d):
        out = []
        for fails in (
            lambda: d["no"],
            lambda: d.pop((1, 2)),
            lambda: [1][len(d) + 3],
            lambda: (1, 2)[-4 - len(d)],
            lambda: {1}.remove(3),
            lambda: Box().nothing,
            lambda: 1 // 0,
            lambda: int("x"),
        ):
            try:
                fails()
            except (LookupError, AttributeError, ValueError, ZeroDivisionError) as error:
                out.append((type(error).__name__, str(error), error.args))
        return x + 1, out

    return f, (t(3), {"yes": 1})


@agrees(graphs=1, breaks=0)
def test_generators_keep_what_they_handle():
    def steps(log):
        try:
            raise ValueError("inside")
        except ValueError:
            yield 1
            try:
                raise  # noqa: PLE0704
            except ValueError as error:
                log.append(str(error))
            try:
                raise KeyError("next")
            except KeyError as error:
                log.append(chain(error))
            yield 2

    def f(x):
        log = []
        for i in steps(log):
            x = x + i
            try:
                raise  # noqa: PLE0704
            except RuntimeError:
                log.append("nothing to raise")
            try:
                raise IndexError("outside")
            except IndexError as error:
                log.append(chain(error))
        return x, log

    return f, (t(3),)


def handling(fn):
    """What fn gives where nothing is being handled, in a handler, and so on."""
    out = [fn(t(3))]
    try:
        raise OSError("outside")
    except OSError:
        out.append(fn(t(3)))
        try:
            raise KeyError("inner")
        except KeyError:
            out.append(fn(t(3)))
    return [*out, fn(t(3))]


def test_called_in_handlers():
    def context(x):
        try:
            raise ValueError("inside")
        except ValueError as error:
            return x + 1, chain(error)

    def again(x):
        try:
            raise  # noqa: PLE0704
        except (RuntimeError, OSError, KeyError) as error:
            return x + 1, chain(error)

    def raised_in_a_loop(x):
        for i in range(2):
            try:
                raise ValueError(i)
            except ValueError as error:
                x = x + len(chain(error))
        return x

    for fn in (context, again, raised_in_a_loop):
        run = jit(fn)
        assert str(handling(run)) == str(handling(fn)), fn
        assert str(handling(run)) == str(handling(fn)), fn
        assert run.report().graph_count > 0
    own = [one for one in run.report().recompiles if one.frame.endswith(fn.__name__)]
    assert len(own) == 1  # handling nothing, and handling something


@agrees(graphs=1, breaks=0)
def test_generators_see_what_their_caller_handles():
    def steps(log):
        try:
            raise  # noqa: PLE0704
        except ValueError as error:
            log.append(str(error))
        yield 1
        try:
            raise KeyError("k")
        except KeyError as error:
            log.append(chain(error))
        yield 2

    def f(x):
        log = []
        try:
            raise ValueError("a")
        except ValueError:
            made = steps(log)
            x = x + next(made)
        try:
            raise ValueError("b")
        except ValueError:
            x = x + next(made)
        return x, log

    return f, (t(3),)


# -- groups ----------------------------------------------------------------------------------------------
def groups():
    one, two, three = ValueError(1), TypeError("t"), KeyError("k")
    inner = ExceptionGroup("inner", [two, ExceptionGroup("deep", (ValueError(2), three))])
    return ExceptionGroup("outer", [one, inner])


@agrees(graphs=1, breaks=0)
def test_parts_of_groups():
    def f(x):
        group = groups()
        group.add_note("noted")
        found, left = group.split(ValueError)
        same, none = group.split(ExceptionGroup)
        found.add_note("more")
        return (
            x + 1,
            chain(found),
            chain(left),
            same is group,
            none,
            chain(group.subgroup((TypeError, KeyError))),
            group.subgroup(OSError),
            chain(group.derive([OSError(1)])) if x is None else group.derive([Refused()]).message,
            group.message,
            len(group.exceptions),
            found.exceptions[0] is group.exceptions[0],
            group.args[0],
            str(group),
            repr(left),
            group.__notes__,
        )

    return f, (t(3),)


@agrees(breaks=0)
def test_groups_that_leave():
    def f(x, out):
        group = BaseExceptionGroup("g", [ValueError(1), Refused(x)])
        out.append(group)
        return x + 1, group, group.split(ValueError), isinstance(group, ExceptionGroup)

    return f, (t(3), [])


@agrees()
def test_groups_that_cannot_be():
    def f(x):
        out = []
        for make in (
            lambda: ExceptionGroup("g", []),
            lambda: ExceptionGroup("g", [KeyboardInterrupt()]),
            lambda: ExceptionGroup("g", [3]),
            lambda: ExceptionGroup("g"),
            lambda: ExceptionGroup(3, [ValueError()]),
        ):
            try:
                make()
            except (ValueError, TypeError) as error:
                out.append(str(error))
        return x + 1, out

    return f, (t(3),)


def caught(make):
    """A program that takes a group up in parts."""

    def f(x):
        out = []
        try:
            try:
                raise make()
            except* ValueError as group:
                x = x + len(group.exceptions)
                out.append(chain(group))
            except* (TypeError, IndexError) as group:
                x = x * 2
                out.append(chain(group))
            else:
                x = x - 1
            finally:
                x = x * 3
        except BaseException as error:
            out.append(("left", chain(error)))
        return x, out

    return f


@agrees(graphs=1, breaks=0)
def test_a_group_with_a_rest():
    return caught(groups), (t(3),)


@agrees(graphs=1, breaks=0)
def test_a_group_taken_whole():
    return caught(lambda: ExceptionGroup("g", [ValueError(1), TypeError(2)])), (t(3),)


@agrees(graphs=1, breaks=0)
def test_a_naked_exception():
    return caught(lambda: ValueError("naked")), (t(3),)


@agrees(graphs=1, breaks=0)
def test_a_naked_exception_that_nobody_takes():
    return caught(lambda: KeyError("naked")), (t(3),)


@agrees()
def test_a_group_of_the_programs_own():
    return caught(lambda: Team("t", [ValueError(1), KeyError(2), TypeError(3)])), (t(3),)


@agrees(graphs=1, breaks=0)
def test_raised_in_the_handlers():
    def f(x):
        try:
            try:
                raise groups()
            except* ValueError:
                raise OSError if x is None else Refused("first")  # noqa: B904
            except* TypeError:
                raise  # noqa: B904
            except* KeyError as group:
                raise group
        except BaseException as error:
            return x + 1, chain(error)

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_all_raised_again():
    def f(x):
        try:
            try:
                raise groups()
            except* ValueError:
                raise  # noqa: PLE0704
            except* KeyError:
                raise  # noqa: PLE0704
        except ExceptionGroup as error:
            return x + 1, chain(error)

    return f, (t(3),)


@agrees(graphs=1, breaks=0)
def test_groups_in_loops():
    def f(x):
        out = []
        for i in range(3):
            try:
                if i:
                    raise ExceptionGroup(str(i), [ValueError(i), Refused(i)])
                x = x + 1
            except* Refused as group:
                x = x * i
                out.append(group.message)
            except* ValueError:
                x = x - 1
        return x, out

    return f, (t(3),)


@agrees()
def test_breaks_between_the_parts():
    def f(x):
        out = []
        try:
            y = x + 1
            try:
                print("raising")
                raise groups()
            except* ValueError as group:
                y = y + len(group.exceptions)
                print("values", group)
                y = y * 2
                out.append(chain(group))
            except* TypeError:
                print("types")
                raise Refused("in the middle")  # noqa: B904
        except* Refused as group:
            y = y - 1
            out.append(chain(group))
            print("refused")
        except* KeyError as group:
            y = y - 2
            out.append("".join(traceback.format_exception(group)))
        return y, out

    return f, (t(3),)


@agrees()
def test_groups_that_nobody_takes():
    def f(x, n):
        y = x + 1
        try:
            y = y * 2
            if n:
                raise groups()
        except* OSError:
            y = y + 1
        return y

    return f, (t(3), 1), [lambda: (t(3), 0), lambda: (t(3), 1)]


@agrees()
def test_except_star_with_what_is_none():
    def f(x, kind):
        try:
            try:
                raise ValueError(1)
            except* kind:
                x = x + 1
        except TypeError as error:
            return x * 2, str(error)
        return x

    return f, (t(3), ExceptionGroup), [lambda: (t(3), 3), lambda: (t(3), ValueError)]


@agrees(breaks=0)
def test_the_exception_being_handled_is_asked_for():
    def f(x, n):
        try:
            if n:
                raise ValueError("asked")
            y = x * 2
        except ValueError as error:
            kind, value, trace = sys.exc_info()
            inside = sys.exception() is value is error, trace is None
            y = x + len(str(value)), kind, inside
        return y, sys.exc_info(), sys.exception()

    return f, (t(3), 0), [lambda *_: (t(3), 1), lambda *_: (t(3), 0)]


def test_the_exception_that_the_caller_handles_is_asked_for():
    @jit
    def f(x):
        return x * 2, sys.exception(), sys.exc_info()[1]

    assert f(t(3))[1:] == (None, None)
    try:
        raise KeyError("outside")
    except KeyError as error:
        for _ in range(2):
            assert all(found is error for found in f(t(3))[1:])
    assert f(t(3))[1:] == (None, None)
