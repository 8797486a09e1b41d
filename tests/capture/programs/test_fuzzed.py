"""What the program fuzzer has found, made small: each of these once gave something else than plain Python."""

import collections
import enum
import gc
import itertools
import random
import sys
import traceback

import pytest
import torch

from ..harness import agrees


class Stack(list):
    pass


class Table(dict):
    def __missing__(self, key):
        return 3


class Asked(dict):
    def get(self, key, default=None):
        return default


def matched(s, x):
    match s:
        case []:
            return "empty"
        case [a]:
            return x + a
        case [a, b]:
            return x * a + b
        case [_, a, *r]:
            return x * a, r
        case {"a": t, **rest}:
            return x * t, rest
        case {"z": t}:
            return x * t
        case _:
            return x


@agrees()
def test_patterns_match_what_is_flagged_as_sequence_or_mapping():
    def f(x, i):
        subjects = [
            Stack([i, i]), Stack([]), collections.deque([i]), [1, i, 3], (1, i), "ab", b"ab", range(3), {1, 2},
            collections.OrderedDict(a=i, b=2), Table(a=i, c=1), Table(q=1), Asked(a=1), collections.defaultdict(list, a=2), x, None,
        ]  # fmt: skip
        return [matched(subject, x) for subject in subjects]

    return f, (torch.ones(3), 2)


@agrees()
def test_patterns_match_arguments_that_are_flagged():
    def f(x, *subjects):
        return [matched(subject, x) for subject in subjects]

    more = collections.OrderedDict(a=2, b=2), Table(a=2, c=1), Table(q=1), Asked(a=1), None
    return f, (torch.ones(2), Stack([2, 2]), Stack([]), collections.deque([2]), *more)


class Counted:
    def __init__(self):
        self.seen = []

    def __delattr__(self, name):
        self.seen.append(name)
        object.__delattr__(self, name)


@agrees()
def test_a_delattr_of_the_users_runs_once():
    o = Counted()

    def f(x):
        o.odd = 3
        del o.odd
        return x + 1

    return f, (torch.ones(2),)


@agrees()
def test_class_methods_of_c_are_new_at_each_look_up():
    def f(x, i):
        made = dict.fromkeys("ab", i), Table.fromkeys("c", i)
        return x * made[0]["a"], list(made), list(itertools.chain.from_iterable([[1], [i]]))

    return f, (torch.ones(2), 3)


@agrees()
def test_bound_methods_of_c_are_not_held():
    """A guard that held `made.send` kept the generator alive: its finally never ran."""
    log = []

    def echo(start):
        total = start
        try:
            while True:
                got = yield total
                total += got
        finally:
            log.append("echo")

    def f(x, i):
        def outer(t, n):
            yield from echo(n)

        made = outer(x, i)
        next(made)
        print("a")
        log.append(made.send(2))
        return x + 1

    return f, (torch.ones(2), 2)


class Vague:
    def __init__(self, gives):
        self.gives = gives

    def __format__(self, spec):
        return self.gives

    __len__ = __hash__ = __int__ = __float__ = __str__ = __repr__ = __iter__ = lambda self: (
        self.gives
    )


@agrees()
def test_what_special_methods_give_is_asked_for():
    def f(x, *gives):
        emitted = []
        for given in gives:
            for asked in (len, hash, int, float, str, repr, format, iter):
                try:
                    emitted.append(asked(Vague(given)) * 1)
                except (TypeError, ValueError) as error:
                    emitted.append(str(error))
        return x + 1, emitted

    return f, (torch.ones(2), None, True, -1, 3, "a", 2.5, 1 << 70)


class Summed(dict):
    total = len
    first = max


@agrees()
def test_builtins_called_with_arguments_that_they_do_not_take():
    def f(x):
        emitted = []
        for call in (
            lambda: Summed(a=x).total(), lambda: Summed(a=1).first(), lambda: len(), lambda: len([], 1), lambda: abs(1, x=2),
            lambda: isinstance(1), lambda: [].__len__(3), lambda: {}.__getitem__(), lambda: sorted(), lambda: sum(),
            lambda: getattr(), lambda: next(), lambda: range(), lambda: list([1], [2]), lambda: getattr(1),
        ):  # fmt: skip
            try:
                emitted.append(call())
            except TypeError as error:
                emitted.append(str(error))
        return x + 1, emitted

    return f, (torch.ones(2),)


class Rank(enum.IntEnum):
    LOW = 1


@agrees()
def test_count_gives_plain_numbers():
    def f(x, i, *starts):
        given = [next(itertools.count(start)) for start in (*starts, i, True, 2.5)]
        return x + 1, given, next(itertools.count(True, 2)), next(itertools.count(True, True))

    return f, (torch.ones(2), True, Rank.LOW, 0, 1 << 70)


@agrees()
def test_empty_cells_are_those_of_locals():
    """In a resume function a cell of the function itself comes by the closure: the error is still a local's."""

    def f(x, way):
        def read():
            return y

        def gone():
            nonlocal z
            del z

        z = x
        if way == 0:
            y = x + 1
        emitted = []
        for n in range(3):
            print("a break")
            try:
                if n == 0:
                    emitted.append(read())
                elif n == 1:
                    emitted.append(y)
                else:
                    gone()
                    print(z)
            except NameError as error:
                emitted.append((type(error).__name__, str(error)))
        if way == 2:
            del y
        return x + 1, emitted, y

    return f, (torch.ones(2), 0), [lambda: (torch.ones(2), 1), lambda: (torch.ones(2), 2)]


class Slotted:
    __slots__ = ("w",)
    kind = 3

    @property
    def read(self):
        return self.w

    def call(self):
        return self.w


@agrees()
def test_objects_without_a_dict_refuse_what_is_no_slot():
    """A new object took any attribute: its class was never asked whether there is a place for it."""
    old = Slotted()

    def f(x, *names):
        new, emitted = Slotted(), []
        for o in (new, old):
            for name in names:
                try:
                    setattr(o, name, x + 1)
                    emitted.append(o.w)
                except AttributeError as error:
                    emitted.append((str(error), error.name, error.obj is o))
                try:
                    delattr(o, name)
                except AttributeError as error:
                    emitted.append(str(error))
        return emitted

    return f, (torch.ones(2), "w", "kind", "read", "call", "none")


@agrees()
def test_writes_that_autograd_refuses_are_refused_at_their_place():
    """A ghost is no view: the graph raised where Python had already done what stands before the write."""
    log = []
    leaf = torch.ones(2, 3, requires_grad=True)

    def f(x, w):
        log.append(1)
        try:
            x.mul_(w)
            log.append(2)
            x[0].add_(1)
        except RuntimeError as error:
            log.append(str(error))
        return x * 2

    def fresh():
        return (leaf * 1).view(3, 2)

    with torch.no_grad():
        quiet = torch.ones(3, 2).view(3, 2)
    return f, (leaf.t() * 1, 2), [
        lambda: (leaf.view(3, 2), 2),
        lambda: (fresh(), 2),
        lambda: (torch.ones(3, 2, requires_grad=True), 2),
        lambda: ((leaf * 1).view(1, 3, 2).unbind()[0], 2),
        lambda: (torch.ones(3, 2), fresh()),
        lambda: (quiet, fresh()),
        lambda: (leaf.detach().view(3, 2), 2),
    ]  # fmt: skip


@agrees()
def test_a_break_in_the_operands_of_a_refused_write():
    def f(x):
        view = x.t()
        view.mul_(random.random() * 0 + 2)
        return view

    def g(x):
        try:
            return f(x)
        except RuntimeError as error:
            return str(error), [entry.name for entry in traceback.extract_tb(error.__traceback__)]

    return g, (torch.ones(2, 3, requires_grad=True),)


class Gives:
    def __init__(self, what):
        self.what = what

    def __iter__(self):
        return self if self.what == "self" else self.what


class NoneNext:
    __next__ = None


@agrees()
def test_what_iter_gives_is_an_iterator():
    """The first step of the loop raised it, in other words."""

    def f(x, *gives):
        emitted = []
        for what in gives:
            try:
                for each in Gives(what):
                    emitted.append(each)
            except TypeError as error:
                emitted.append(str(error))
            try:
                made = iter(Gives(what))
                emitted.append("made")
                emitted.append(next(made))
            except TypeError as error:
                emitted.append(str(error))
        return x + 1, emitted

    things = "self", 3, None, [1], iter([1, 2]), torch.ones(2), {1: 2}, NoneNext()
    return f, (torch.ones(2), *things)


class Mortal:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


def uncollected(f):
    """The function, with no help of the collector while it runs."""

    def g(*args):
        before = gc.isenabled()
        gc.disable()
        try:
            return f(*args), list(args[-1])
        finally:
            if before:
                gc.enable()

    return g


@agrees()
def test_a_transform_that_is_probed_keeps_no_frames():
    """What the transform handed to its function travelled on the exception that stopped it: all frames with it."""
    torch.func.grad(torch.sum)(torch.ones(1))  # imports what it needs

    def f(x, log):
        mortal = Mortal(log)
        print("a break")
        return torch.func.grad(lambda t: (t * 2).sum())(x), mortal.log is log

    return uncollected(f), (torch.ones(2), [])


@agrees()
def test_exceptions_of_the_walk_keep_no_frames():
    """One that a variable of ours named held its traceback, and that the arguments."""

    def f(x, log):
        mortal = Mortal(log)

        def steps(t):
            yield t

        made = steps(x)
        made.close()
        try:
            made.throw(KeyError(1))
        except KeyError:
            log.append("caught")
        return x + 1, mortal.log is log

    return uncollected(f), (torch.ones(2), [])


@agrees()
def test_what_was_taken_of_an_iterator_is_not_taken_twice():
    """list() had taken items when what map() calls raised: Python's list() began after them."""

    def f(x, items):
        doubled = map(abs, items)
        return list(doubled), x + 1

    return f, (torch.ones(2), [1, -2, [3]])


@agrees()
def test_an_iterator_goes_on_after_what_raised():
    def f(x, items):
        kept = filter(lambda one: one + 1 > 1, iter(items))
        first = next(kept)
        try:
            sum(kept)
        except TypeError:
            pass
        return first, list(kept), x + 1

    return f, (torch.ones(2), [1, -2, "three", 4, 5])


@agrees()
def test_enumerate_from_what_is_no_integer():
    def f(x, items, start):
        try:
            return list(enumerate(items, start)), x + 1
        except TypeError as error:
            return str(error), x

    steps = [lambda _: None]
    return f, (torch.ones(2), [1], "a"), steps


class Level(enum.IntEnum):
    HIGH = 3


class Two:
    def __eq__(self, other):
        return other == 2

    __hash__ = None


@agrees()
def test_members_that_are_no_constants():
    """Looked for in what is no container they were just not there, and in a range by identity alone."""

    def f(x, held):
        found = [Level.HIGH in (1, 3), Level.HIGH in range(5), Two() in range(4), Two() in range(2)]
        try:
            found.append(Level.HIGH in held)
        except TypeError as error:
            found.append(str(error))
        return found, x + 1

    return f, (torch.ones(1), 0)


@agrees()
def test_a_view_without_a_history_comes_in():
    """It was an internal fault: merely asking such a tensor whether it is a leaf raises."""

    def stale(x):
        view = (x * 2).unbind(0)[0]
        print("a break")
        view.detach().add_(1)
        return view

    def f(x):
        view = stale(x)
        print("and one with the view at hand")
        seen = view.shape, view.requires_grad
        try:
            return torch.add(x, 1, out=view), seen
        except RuntimeError as error:
            return str(error), x * 2, seen

    return f, (torch.ones(2, 3, requires_grad=True),)


class Ending:
    log: list = []

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Ending.log.append(self.name)


@pytest.mark.xfail(
    sys.version_info >= (3, 13), strict=False,
    reason="under GRAFTJIT_CHECK an object ends later than in plain Python; without it they are equal",
)  # fmt: skip
@agrees()
def test_locals_end_in_the_order_of_the_functions_locals():
    """What a break left on the stack is the first argument of what goes on after it, and went first."""
    Ending.log.clear()

    def two(x):
        a = Ending("a")
        b = Ending("b")
        x.mul_(2)

    def stored_first(x):
        b = None
        a = Ending("a")
        b = Ending("b")
        return x * 2

    def in_a_list(x):
        a = Ending("a")
        held = [Ending("b"), a]
        c = Ending("c")
        a = None
        return x + 1

    def returned(x):
        a = Ending("a")
        b = Ending("b")
        c = Ending("c")
        return x * 3, b

    def closed(x):
        def numbers():
            try:
                yield 1
            finally:
                Ending.log.append("closed")

        steps = numbers()
        next(steps)
        b = Ending("b")
        x.mul_(2)

    def f(x, log):
        found = [g(x.clone()) for g in (two, stored_first, in_a_list, closed)]
        named = returned(x)[1].name
        log += Ending.log
        Ending.log.clear()
        return found, named

    return f, (torch.ones(2), [])


@agrees()
def test_the_outermost_frames_locals_end_in_their_order():
    Ending.log.clear()

    def f(x, log):
        log += Ending.log
        Ending.log.clear()
        first = Ending("first")
        print(end="")
        second = Ending("second")
        third = [Ending("third")]
        return x * 2

    return f, (torch.ones(2), [])


def through(x):
    ending = Ending("through")
    raise ValueError(x.shape[0])


@agrees()
def test_an_exception_ends_with_the_frames_that_it_came_through():
    """Their locals end where the handler does, before what comes after it."""
    Ending.log.clear()

    def suspended():
        ending = Ending("suspended")
        yield 1

    def handled(x):
        try:
            through(x)
        except ValueError as error:
            print(end="")
            x = x + error.args[0]
        Ending.log.append("after")
        print(end="")
        return x * 2

    def thrown(x):
        steps = suspended()
        try:
            next(steps)
            steps.throw(ValueError("thrown"))
        except ValueError:
            pass
        Ending.log.append("after")
        return x * 2

    def f(x, log):
        found = handled(x), thrown(x)
        log += Ending.log
        Ending.log.clear()
        return found

    return f, (torch.ones(2), [])


@agrees()
def test_an_exception_of_the_outermost_frame_ends_in_time():
    Ending.log.clear()

    def f(x, log):
        log += Ending.log
        Ending.log.clear()
        try:
            through(x)
        except ValueError as error:
            print(end="")
            x = x + error.args[0]
        Ending.log.append("after")
        print(end="")
        return x * 2

    return f, (torch.ones(2), [])
