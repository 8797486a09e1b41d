"""What CPython's own tests of its library (tests/cpython) found to differ, each cause as a small program."""

from __future__ import annotations

import _thread
import builtins
import collections
import gc
import importlib
import sys
import threading
import weakref

import pytest
import torch

from graftjit import jit
from graftjit.dispatch.capture_lock import other_threads

from ..harness import agrees, t

set_tracer = sys.settrace


# -- tracers and profilers ---------------------------------------------------------------------------------
class Told:
    """What a tracer or a profiler is told: events, the functions that they are about, lines within them."""

    def __init__(self):
        self.rows = []

    def trace(self, frame, event, arg):
        self.rows.append(
            (event, frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno)
        )
        return self.trace

    def profile(self, frame, event, arg):
        name = arg.__name__ if event.startswith("c_") else frame.f_code.co_name
        self.rows.append((event, name))

    def taken(self):
        rows, self.rows = self.rows, []
        return rows


def traced(x):
    try:
        return sum(range(3)) + x
    finally:
        pass


@agrees(graphs=0)
def test_a_tracer_is_told_of_no_call_for_the_frame_that_sets_it():
    seen = Told()

    def f(x):
        y = x + 1
        before = sys.gettrace()
        sys.settrace(seen.trace)
        z = traced(2)
        sys.settrace(before)
        return y * z, seen.taken()

    return f, (t(3),)


@agrees(graphs=0)
def test_a_profiler_is_told_of_one_return_of_the_frame_that_sets_it():
    seen = Told()

    def f(x):
        y = x + 1
        sys.setprofile(seen.profile)
        try:
            return y * traced(2)
        finally:
            len("")

    def g(x):
        y = f(x)
        sys.setprofile(None)
        return y * 2, seen.taken()

    return g, (t(3),)


@agrees(graphs=0)
def test_a_tracer_that_a_callee_sets_under_another_name():
    seen = Told()

    def begin():
        before = sys.gettrace()
        set_tracer(seen.trace)
        return before

    def f(x):
        y = x + 1
        before = begin()
        z = traced(2)
        set_tracer(before)
        return y * z, seen.taken()

    return f, (t(3),)


@agrees()
def test_a_tracer_of_threads_to_come():
    seen = Told()

    def f(x):
        y = x + 1
        threading.settrace(seen.trace)
        thread = threading.Thread(target=traced, args=(2,))
        thread.start()
        thread.join()
        threading.settrace(None)
        return y * 2, [row for row in seen.taken() if row[1] == "traced"]

    return f, (t(3),)


# -- imports -----------------------------------------------------------------------------------------------
@agrees(calls=2)
def test_an_import_function_of_the_programs_own_imports_nothing_of_ours():
    asked = []

    def own(name, *args, **named):
        asked.append(name)
        raise ImportError(name)

    def f(x):
        try:
            import a_module_that_nobody_has  # noqa: F401
        except ImportError as error:
            return x * 2, str(error), list(asked)
        return x * 3

    def g(x):
        before, builtins.__import__ = builtins.__import__, own
        try:
            return f(x + 1)
        finally:
            builtins.__import__ = before

    return g, (t(3),)


NAMES = [n for n, v in vars(builtins).items() if callable(v) and not n.startswith("_")]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", NAMES)
def test_a_builtin_that_the_program_replaces_reaches_nothing_of_ours(name, caplog):
    def below(x):
        return x - 1

    def f(x):
        return below(x * 2) + 1

    def broken(*_, **__):
        raise ZeroDivisionError(name)

    two, three, found = t(2), t(3), []
    known, new = jit(f), jit(f)
    known(two)
    before = builtins.__dict__[name]
    builtins.__dict__[name] = broken
    try:
        for run in (known, new):
            found += (run(two), run(three))
    finally:
        builtins.__dict__[name] = before
    assert torch.equal(new(two), two * 2)
    assert all(torch.equal(one, x * 2) for one, x in zip(found, (two, three) * 2, strict=True))
    assert not [r for r in caplog.records if "WN60" in r.getMessage()]
    if name == "len":
        (note,) = [one for one in new.report().notes if one.code == "PL209"]
        assert "the program's own builtins.len" in note.reason


# -- lifetimes ---------------------------------------------------------------------------------------------
def lambda_of_text():
    return eval("lambda: 42")


@agrees()
def test_a_function_whose_end_is_told_ends_where_the_frame_drops_it():
    seen = []

    def f(x):
        y = x + 1
        made = lambda_of_text()
        weakref.finalize(made, seen.append, "ended")
        del made
        return y * 2, len(seen)

    return f, (t(3),)


def second_copy(name):
    first = sys.modules.pop(name)
    try:
        return importlib.import_module(name)
    finally:
        sys.modules[name] = first


@agrees()
def test_a_second_copy_of_a_module_is_held_by_no_guard():
    def f(x):
        copy = second_copy("_struct")
        y = x + copy.calcsize("b")
        ended = weakref.ref(copy)
        del copy
        gc.collect()
        return y * 2, ended() is None

    return f, (t(3),)


# -- threads -----------------------------------------------------------------------------------------------
def test_a_thread_that_was_begun_without_threading_counts():
    begun, wait, ended = (_thread.allocate_lock() for _ in range(3))
    for lock in (begun, wait, ended):
        lock.acquire()

    def other():
        begun.release()
        wait.acquire()
        ended.release()

    _thread.start_new_thread(other, ())
    begun.acquire()
    try:
        assert other_threads()
    finally:
        wait.release()
        ended.acquire()


class ListChild(list):
    pass


class DictChild(dict):
    pass


class SetChild(set):
    pass


def refusal(call):
    try:
        return call()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@agrees(level="O1")
def test_del_of_a_slice_with_step_zero():
    def f(x):
        y = x + 1
        a = [0, 1, 2]
        try:
            del a[::0]
        except ValueError as error:
            return str(error), a, y
        return a, y

    return f, (torch.ones(3),)


@agrees(level="O1")
def test_c_methods_refuse_wrong_arguments():
    def f(x):
        y = x + 1
        d = collections.OrderedDict(a=1)
        e = collections.defaultdict(list)
        g = DictChild(a=1)
        calls = (
            lambda: d.update({}, {}),
            lambda: g.update({}, {}),
            lambda: g.__getitem__("a", 1),
            lambda: g.__len__(1),
            lambda: e.__missing__(),
            lambda: e.__missing__(1, 2),
            lambda: collections.defaultdict([]),
            lambda: collections.defaultdict({}),
        )
        return [refusal(call) for call in calls], d, e, y * 2

    return f, (torch.ones(3),)


@agrees(level="O1")
def test_missing_without_its_argument():
    def f(x):
        y = x + 1
        e = collections.defaultdict(list)
        try:
            e.__missing__()
        except TypeError as error:
            return str(error), y
        return y

    return f, (torch.ones(3),)


@agrees(level="O1")
def test_factory_that_cannot_be_called():
    def f(x):
        y = x + 1
        try:
            return collections.defaultdict([x]), y
        except TypeError as error:
            return str(error), y

    return f, (torch.ones(3),)


@agrees(level="O1")
def test_update_of_an_ordered_dict_with_two_mappings():
    def f(x):
        y = x + 1
        d = collections.OrderedDict(a=x)
        try:
            d.update({}, {})
        except TypeError as error:
            return str(error), d, y
        return d, y

    return f, (torch.ones(3),)


class Adding(list):
    def extend(self, *items):
        super().extend(*items)


def error_of_a_method(make, call):
    """The text of the error names the class that has the method, or the receiver's if bound."""

    def f(x):
        y = x + 1
        made = make(x)
        try:
            call(made)
        except TypeError as error:
            return str(error), y
        return y

    return f, (torch.ones(3),)


@agrees(level="O1")
def test_error_names_the_class_of_the_method():
    return error_of_a_method(lambda x: ListChild([x]), lambda a: a.append())


@agrees(level="O1")
def test_error_names_the_class_of_the_method_keyword():
    return error_of_a_method(lambda x: DictChild(a=x), lambda d: d.get(key="a"))


@agrees(level="O1")
def test_error_names_the_class_of_a_set_method():
    return error_of_a_method(lambda x: SetChild(), lambda s: s.union(a=1))


@agrees(level="O1")
def test_error_names_the_class_of_a_tensor_method():
    return error_of_a_method(lambda x: x, lambda x: x.relu(1, 2))


@agrees(level="O1")
def test_error_names_the_receiver_of_a_bound_method():
    def call(a):
        bound = a.append
        bound()

    return error_of_a_method(lambda x: ListChild([x]), call)


@agrees(level="O1")
def test_error_of_a_method_through_super():
    return error_of_a_method(lambda x: Adding([x]), lambda a: a.extend())


@agrees(level="O1")
def test_error_of_a_method_with_unpacked_arguments():
    return error_of_a_method(lambda x: ListChild([x]), lambda a: a.append(*()))


class Asked(list):
    def __getattr__(self, name):
        raise AttributeError(name)


@agrees(level="O1")
def test_error_of_a_method_beside_getattr():
    return error_of_a_method(lambda x: Asked([x]), lambda a: a.append())


@agrees(level="O1")
def test_union_of_a_defaultdict_by_its_method():
    def f(x):
        d = collections.defaultdict(list, a=x)
        return d.__or__({"b": 1}), d.__ror__({"c": x + 1})

    return f, (torch.ones(3),)
