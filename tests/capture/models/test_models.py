"""What models of builtins and of the library must share with the C functions that they stand for: refusals, words of errors,
identities, who is asked, and what is left where an error comes halfway.

Each case is one expression; it runs plain and jitted, in a frame that computes with a tensor, once bare and once in a
`try` of that frame, three times each. Results, exceptions and what was noted in LOG are compared.
"""

from __future__ import annotations

import abc
import bisect
import collections
import copy
import enum
import functools
import heapq
import itertools
import json
import operator
import re
import weakref

import pytest
import torch

from graftjit import jit

from ..harness import agrees

LOG: list = []
CASES: dict = {}


def case(body):
    CASES[body.__name__] = body
    return body


def cases(**bodies):
    CASES.update(bodies)


def bare(body):
    def frame(x):
        y = x + 1
        r = body()
        return r, y * 2

    return frame


def caught(body):
    def frame(x):
        y = x + 1
        try:
            r = body()
        except Exception as e:
            r = type(e), str(e), e.args, type(e.__context__), type(e.__cause__)
        return r, y * 2

    return frame


def outcome(fn):
    LOG.clear()
    try:
        result = repr(fn(torch.ones(3)))
    except Exception as e:
        result = type(e), str(e), e.args
    return result, list(LOG)


# -- classes are no constants: a function that is handed one may call it, write it, or ask it ----------------
class Noted:
    def __init__(self, *given):
        LOG.append(given and str(given[0]))

    def __repr__(self):
        return "noted"


class Matched:
    def __new__(cls, match):
        LOG.append(match.group())
        return "<" + match.group() + ">"


class Encoder(json.JSONEncoder):
    def encode(self, o):
        LOG.append("encode")
        return "E" + super().encode(o)


class Meta(type):
    def __getattr__(cls, name):
        LOG.append(name)
        return name

    def __repr__(cls):
        LOG.append("repr")
        return "Meta"

    def __add__(cls, other):
        LOG.append("add")
        return 5

    __radd__ = __add__

    def __bool__(cls):
        LOG.append("bool")
        return False

    def __lt__(cls, other):
        LOG.append("lt")
        return True

    def __instancecheck__(cls, one):
        LOG.append("instance")
        return True

    def __subclasscheck__(cls, one):
        LOG.append("subclass")
        return True


class OfMeta(metaclass=Meta):
    pass


class Asked(type):
    def __eq__(cls, other):
        return NotImplemented

    def __hash__(cls):
        return 3

    def __bool__(cls):
        LOG.append("bool")
        return False


class OfAsked(metaclass=Asked):
    pass


cases(
    operator_call=lambda: operator.call(Noted, 1),
    operator_call_of_a_builtin=lambda: operator.call(dict, a=1),
    json_with_an_encoder=lambda: json.dumps({"a": 1}, cls=Encoder),
    json_with_a_hook=lambda: json.loads('{"a": 1}', object_hook=Noted),
    json_with_a_default=lambda: json.dumps([1], default=Noted),
    substitution_by_a_class=lambda: re.sub("a", Matched, "banana"),
    a_class_in_a_format=lambda: "{}".format(OfMeta),
    a_class_written=lambda: "%s %s" % (1, OfMeta),
    a_list_of_a_class_written=lambda: str([OfMeta]),
    a_class_added=lambda: sum([1, OfMeta]),
    lists_of_classes_compared=lambda: [OfMeta] < [int],
    a_class_asked_for_instances=lambda: (isinstance(1, OfMeta), issubclass(int, OfMeta)),
    an_instance_of_a_class_that_answers_any_name=lambda: type(OfMeta()).__name__,
    # a break at the reading of an item leaves the iterator where it stood
    a_filter_over_what_cannot_be_read=lambda: list(filter(None, [OfAsked, 1])),
    a_filter_over_a_dict_of_it=lambda: list(filter(None, {1: OfAsked}.values())),
    a_filter_backward=lambda: list(filter(None, reversed([OfAsked]))),
)


# -- identities -------------------------------------------------------------------------------------------
@case
def sums_hold_the_objects_themselves():
    one, start = [1], [2]
    both = sum([[one], [start]], [])
    return both[0] is one, both[1] is start, sum([], start) is start, sum([(one,)], ())[0] is one


@case
def concatenation_holds_the_objects_themselves():
    one, more = [1], [2]
    same = operator.iconcat(more, [3])
    return operator.concat([one], [])[0] is one, same is more, more, operator.concat("a", "b")


@case
def copy_of_a_tuple_that_holds_itself():
    t = ([],)
    t[0].append(t)
    made = copy.deepcopy(t)
    held = []
    held.append((1, held))
    other = copy.deepcopy({"t": held[0], "l": held})
    return made[0][0] is made, made is t, other["t"] is other["l"][0], other["t"][1] is other["l"]


@case
def keywords_of_a_partial_are_one_dict():
    p = functools.partial(dict, a=1)
    held = p.keywords
    held["b"] = 2
    return p(), p.keywords is held, p.args is p.args


PARTIAL = functools.partial(lambda *a, **k: (a, sorted(k.items())), 1, z=2)


@case
def keywords_of_a_partial_from_outside():
    PARTIAL.keywords.pop("n", None)
    before = PARTIAL()
    PARTIAL.keywords["n"] = 5
    return before, PARTIAL(), PARTIAL(3, z=4), PARTIAL.keywords is PARTIAL.keywords


# -- what is refused --------------------------------------------------------------------------------------
cases(
    filter_by_a_number=lambda: list(filter(5, [1])),
    filter_by_a_text_of_nothing=lambda: list(filter("a", [])),
    partial_of_nothing=lambda: functools.partial(),
    partial_of_a_number=lambda: functools.partial(5),
    caller_without_a_name=lambda: operator.methodcaller(5),
    getters_can_be_called=lambda: callable(operator.itemgetter(0)),
    iter_of_no_function=lambda: iter(1, 2),
    heap_of_a_tuple=lambda: heapq.heapify((1,)),
    heap_of_a_set=lambda: heapq.heappush({1}, 2),
    empty_heap=lambda: heapq.heapreplace([], 1),
    bisect_of_a_dict=lambda: bisect.bisect({1: 2}, 1),
    bisect_from_a_text=lambda: bisect.bisect([1], 1, "a"),
    a_list_in_items=lambda: ([], 1) in {1: 2}.items(),
    other_things_in_items=lambda: [one in {1: 2}.items() for one in (5, (1,), [1, 2], (1, 2), (True, 2.0))],
    a_tuple_times_a_huge_number=lambda: (1,) * -(2**70),
    a_place_beyond_all_lists=lambda: [1][2**70],
    pop_beyond_all_lists=lambda: [1].pop(2**70),
    insert_beyond_all_lists=lambda: [1].insert(2**70, 1),
)  # fmt: skip


class Huge:
    def __len__(self):
        return 2**70


class NoTruth:
    __bool__ = None


class NoLength:
    __len__ = None


class NotBackward:
    __reversed__ = None

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return [5, 6][i]


class NothingMissing(dict):
    __missing__ = None


cases(
    truth_of_a_huge_length=lambda: bool(Huge()),
    truth_of_none=lambda: 1 if NoTruth() else 2,
    truth_by_no_length=lambda: not NoLength(),
    backward_by_none=lambda: list(reversed(NotBackward())),
    missing_by_none=lambda: NothingMissing()[1],
)

# -- operators by their names may say that they do not know -------------------------------------------------
cases(
    list_equals_a_number=lambda: [].__eq__(5),
    list_equals_a_tuple=lambda: ([1].__eq__((1,)), (1,).__lt__(5), [1].__ne__([1])),
    dict_equals_a_number=lambda: ({}.__eq__(5), {}.__or__(5)),
    set_compares_with_a_list=lambda: ({1}.__lt__([1]), {1}.__or__([1]), {1}.__le__({1, 2})),
    list_times_a_text=lambda: [1].__mul__("a"),
    list_times_a_number=lambda: [1].__mul__(2),
)


# -- iter(function, sentinel) -------------------------------------------------------------------------------
@case
def a_function_that_ends_its_iterator():
    left = iter([1, 2])

    def take():
        return next(left)

    it = iter(take, 9)
    return list(it), next(it, "end"), type(it).__name__


@case
def a_function_that_raises_goes_on():
    count = []

    def fail():
        count.append(1)
        if len(count) == 2:
            raise ValueError("two")
        return len(count)

    it = iter(fail, 4)
    seen = [next(it)]
    try:
        next(it)
    except ValueError as e:
        seen.append(str(e))
    return seen, list(it), next(it, "end")


class Sentinel:
    def __eq__(self, other):
        LOG.append(other)
        return other == 2


cases(
    the_sentinel_is_asked=lambda: list(iter(itertools.count().__next__, Sentinel())),
    it_leaves_the_frame=lambda: next(iter(itertools.count(3).__next__, 9)),
)


# -- methods of generators and iterators ---------------------------------------------------------------------
def numbers():
    yield 1
    yield 2


def _then(of, *steps):
    return [step(of) for step in steps]


cases(
    send_nothing=lambda: numbers().send(),
    send_two=lambda: numbers().send(1, 2),
    throw_nothing=lambda: numbers().throw(),
    throw_a_class_with_another_value=lambda: numbers().throw(ValueError("a"), "b"),
    close_with_an_argument=lambda: numbers().close(1),
    next_with_an_argument=lambda: numbers().__next__(1),
    next_of_a_list_iterator_with_an_argument=lambda: iter([1]).__next__(1),
    throw_the_end=lambda: numbers().throw(StopIteration(3)),
    throw_the_end_at_a_yield=lambda: _then(numbers(), next, lambda g: g.throw(StopIteration)),
    throw_the_end_after_the_end=lambda: _then(numbers(), list, lambda g: g.throw(StopIteration)),
)


class Sized:
    def __init__(self):
        self.left = [1, 2]

    def __len__(self):
        LOG.append("len")
        return 2

    def __iter__(self):
        LOG.append("iter")
        return iter(["a", "b"])


@case
def an_object_in_a_slice():
    held = [1, 2, 3]
    held[1:2] = Sized()
    return held, "-".join(Sized()), dict([Sized()]), list(Sized()), tuple(Sized())


# -- exceptions -------------------------------------------------------------------------------------------
class NoKeywords(Exception):
    def __init__(self, **named):
        super().__init__(**named)


class OwnArgs(Exception):
    args = 5


def _raised(error, kinds):
    try:
        raise error
    except kinds:
        return "taken"


def _taken_by_star(kinds):
    try:
        raise ExceptionGroup("both", [ValueError(1)])
    except* kinds:
        LOG.append("taken")


def _where(text):
    try:
        json.loads(text)
    except json.JSONDecodeError as e:
        return e.pos, e.msg, type(e.__context__)


def _taken(a, b, *rest, c=3, **named):
    return a, b, rest, c, named


cases(
    a_tuple_in_the_tuple_of_an_except=lambda: _raised(TypeError(), (KeyError, (TypeError,))),
    a_tuple_in_the_tuple_of_an_except_star=lambda: _taken_by_star((KeyError, (ValueError,))),
    an_exception_takes_no_keywords=lambda: NoKeywords(a=1),
    an_exception_with_its_own_args=lambda: OwnArgs(1).args,
    text_of_an_exception_with_an_argument=lambda: ValueError("a").__str__(1),
    what_an_error_of_json_holds=lambda: _where("[1,}"),
    a_name_given_twice=lambda: _taken(1, 2, b=3),
    a_name_given_twice_beside_others=lambda: _taken(1, *[2], **{"a": 3, "z": 4}),
)


# -- classes that derive from builtins ------------------------------------------------------------------------
class TimesTen(int, enum.Enum):
    def __new__(cls, value):
        made = int.__new__(cls, value * 10)
        made._value_ = value
        return made

    A = 1


class Prefixed(str, enum.Enum):
    def __new__(cls, value):
        made = str.__new__(cls, "x" + value)
        made._value_ = value
        return made

    A = "a"


class OwnList(list):
    def __eq__(self, other):
        r = super().__eq__(other)
        LOG.append(r)
        return r

    __hash__ = None


class OwnDict(dict):
    def __iter__(self):
        LOG.append("iter")
        return iter("k")

    def keys(self):
        LOG.append("keys")
        return ["k"]

    def __getitem__(self, key):
        return "got"


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        LOG.append(key)
        super().__setitem__(key, value)


def _in_place(of, symbol, other):
    held = of
    if symbol == "*=":
        of *= other
    elif symbol == "|=":
        of |= other
    else:
        of += other
    return held is of, type(of).__name__, len(of)


class AnyName:
    def __getattribute__(self, name):
        if name == "refused":
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        return "answered " + name


cases(
    a_member_is_the_number_beneath=lambda: (TimesTen.A + 1, TimesTen.A * 2, len([0] * TimesTen.A)),
    a_member_is_the_text_beneath=lambda: (Prefixed.A + "y", Prefixed.A * 2),
    both_lists_compare=lambda: (OwnList([1]) == OwnList([1]), OwnList([1]) == 5),
    a_list_child_times=lambda: _in_place(OwnList([1]), "*=", 2),
    a_list_child_plus=lambda: _in_place(OwnList([1]), "+=", [2]),
    a_dict_child_merged=lambda: _in_place(dict.__new__(OwnDict), "|=", {"b": 1}),
    an_ordered_dict_child_merged=lambda: _in_place(Ordered(a=1), "|=", {"b": 1}),
    copy_of_a_dict_that_iterates=lambda: OwnDict(a=1).copy(),
    an_ordered_dict_fills_itself=lambda: Ordered(a=1).setdefault("q", 1),
    what_object_says_of_a_number=lambda: (object.__eq__(1, 1), object.__repr__(1)[:7]),
    what_object_says_of_a_text=lambda: object.__str__("a"),
    a_look_up_that_refuses=lambda: (AnyName().refused, hasattr(AnyName(), "other")),
)


# -- mappings, sorts, and attributes of containers ---------------------------------------------------------------
class Failing:
    def keys(self):
        return ["a", "b", "c"]

    def __getitem__(self, key):
        LOG.append(key)
        if key == "c":
            raise KeyError(key)
        return key * 2


def _filled(fill):
    held = {}
    try:
        fill(held)
    except KeyError as e:
        LOG.append(str(e))
    return held


class Kept:
    pass


def _forgotten():
    held, one = weakref.WeakValueDictionary(), Kept()
    held["one"] = one
    before = len(held)
    del one
    return before, len(held), held.get("one")


def _with_defaults():
    def fn(a=[1]):  # noqa: B006 (the list is what is looked at)
        return a

    return fn.__defaults__ is fn.__defaults__


cases(
    an_update_that_fails_halfway=lambda: _filled(lambda held: held.update(Failing())),
    a_display_of_pairs=lambda: {**[("a", 1)]},
    a_display_of_a_number=lambda: {**5},
    a_sort_by_a_number=lambda: sorted([1, 2], key=5),
    a_sort_of_nothing_by_a_text=lambda: [].sort(key="a"),
    a_sort_in_no_direction=lambda: [2, 1].sort(reverse="a"),
    a_list_has_no_hash=lambda: ([].__hash__, {}.__hash__, callable([].__hash__)),
    documentation_of_a_list=lambda: ([].__doc__[:8], set().__doc__[:3]),
    instances_of_a_list_of_types=lambda: isinstance(1, [int]),
    a_value_of_a_weak_dict_ends=_forgotten,
    defaults_are_one_tuple=_with_defaults,
)


# -- what is deleted, placed, and switched ---------------------------------------------------------------------
class OfTheClass:
    held = 1

    def __getattr__(self, name):
        LOG.append(name)
        return name


class Place:
    def __index__(self):
        LOG.append("index")
        return 1


FROM_OUTSIDE = OfTheClass()


def _grad_mode(*given, **named):
    try:
        torch.set_grad_enabled(*given, **named)
    finally:
        mode = torch.is_grad_enabled()
        torch._C._set_grad_enabled(True)
    return mode


def _class_of_the_error(body):
    try:
        return body()
    except AttributeError:
        return "attribute"
    except TypeError:
        return "type"


def _at_a_place():
    d = collections.deque([1, 2, 3])
    d.rotate(Place())
    d[Place()] = 9
    return d[Place()], d


cases(
    the_name_of_a_class_is_deleted=lambda: delattr(OfTheClass(), "held"),
    the_name_of_a_class_is_deleted_outside=lambda: delattr(FROM_OUTSIDE, "held"),
    a_name_that_is_answered_is_deleted=lambda: delattr(OfTheClass(), "other"),
    a_deque_by_an_object=_at_a_place,
    vars_of_a_number=lambda: _class_of_the_error(lambda: vars(1)),
    a_grad_mode_of_a_text=lambda: _grad_mode("a"),
    a_grad_mode_of_a_number=lambda: _grad_mode(1),
    a_grad_mode_of_nothing=lambda: _grad_mode(),
    a_grad_mode_of_another_name=lambda: _grad_mode(other=False),
    a_grad_mode_by_name=lambda: _grad_mode(mode=False),
)


# -- who is asked how many items are left ------------------------------------------------------------------------
class Indexed:
    def __len__(self):
        LOG.append("len")
        return 2

    def __getitem__(self, i):
        LOG.append(i)
        return ["a", "b"][i]


class Iterating:
    def __init__(self):
        self.left = 2

    def __iter__(self):
        LOG.append("iter")
        return self

    def __next__(self):
        LOG.append("next")
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left

    def __length_hint__(self):
        LOG.append("hint")
        return self.left


def _placed(other):
    held = [1, 2, 3]
    held[0:1] = other
    return held


cases(
    an_iterator_in_a_slice=lambda: _placed(Iterating()),
    an_indexed_object_in_a_slice=lambda: _placed(Indexed()),
    an_indexed_object_joined=lambda: "-".join(Indexed()),
    a_list_of_an_indexed_object=lambda: list(Indexed()),
    a_list_of_its_iterator=lambda: list(iter(Indexed())),
    a_list_of_it_backward=lambda: list(reversed(Indexed())),
    a_list_of_pairs_of_it=lambda: list(enumerate(Indexed())),
)


@pytest.mark.parametrize("way", [bare, caught])
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_what_it_stands_for(name, way):
    wanted = outcome(way(CASES[name]))
    compiled = jit(way(CASES[name]))
    for _ in range(3):
        assert outcome(compiled) == wanted, compiled.report()
    report = compiled.report()
    assert "PL205" not in [row.code for row in [*report.breaks, *report.notes]], report


@agrees(calls=3)
def test_an_alternative_of_types_that_changes():
    class Holder:
        kinds = int | str

    def f(x):
        y = x + 1
        return isinstance("a", Holder.kinds), y * 2

    def change():
        Holder.kinds = int | float

    return f, (torch.ones(2),), [change, None]


@agrees(calls=3)
def test_a_class_that_is_abstract_no_more():
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    def f(x):
        y = x + 1
        try:
            made = type(Abstract()).__name__
        except TypeError as e:
            made = str(e)
        return made, y * 2

    def change():
        Abstract.f = lambda self: 1
        abc.update_abstractmethods(Abstract)

    return f, (torch.ones(2),), [change, None]
