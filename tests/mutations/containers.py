"""Containers changed in place, at any depth: lists, dicts, sets, deques, ordered ones, the program's own subclasses."""

from __future__ import annotations

import array
import collections
import itertools
import types

import torch

from .kinds import SAME, kind, unsettled
from .objects import Box

X = torch.tensor([0.5, -1.0])


@kind
def list_item_set():
    items = [1, 2.5, True]

    def f(x):
        return x * items[0] + items[1] if items[2] else x

    yield f, (X,)
    items[0] = 3
    yield
    items[1] = -2.5
    yield
    items[2] = False
    yield
    items[:] = [1, 2.5, True]
    yield SAME


@kind
def list_appended_and_popped():
    items = [1, 2]

    def f(x):
        for n in items:
            x = x * 2 + n
        return x

    yield f, (X,)
    items.append(3)
    yield
    items.pop()
    yield SAME
    items.insert(0, 9)
    yield
    items.clear()
    yield


@kind
def list_reordered():
    items = [3, 1, 2]

    def f(x):
        for n in items:
            x = x * 2 + n
        return x

    yield f, (X,)
    items.sort()
    yield
    items.reverse()
    yield
    items[:] = [3, 1, 2]
    yield SAME


@kind
def list_of_tensors():
    items = [X + 1, X + 2]

    def f(x):
        for t in items:
            x = x * t
        return x

    yield f, (X,)
    items[0] = X + 5
    yield SAME
    items.append(X)
    yield
    items[0], items[1] = items[1], items[0]
    yield SAME


@kind
def lists_within_a_tuple():
    pair = ([1, [2]], {"k": [3]})

    def f(x):
        return x * pair[0][0] + pair[0][1][0] + pair[1]["k"][0]

    yield f, (X,)
    pair[0][1][0] = 7
    yield
    pair[1]["k"][0] = 8
    yield
    pair[0][1] = [2]
    pair[1]["k"] = [3]
    yield SAME


@kind
def slice_of_a_list():
    items = [1, 2, 3, 4]

    def f(x):
        return x + sum(items[1:3])

    yield f, (X,)
    items[2] = 9
    yield
    items[:] = [1, 2, 3, 4]
    yield SAME


@kind
def length_of_a_list():
    items = [1, 2]

    def f(x):
        return x + len(items)

    yield f, (X,)
    items[0] = 5
    yield SAME
    items.append("a")
    yield
    del items[0]
    yield SAME


@kind
def emptiness_of_a_list():
    items = []

    def f(x):
        return x + 1 if items else x - 1

    yield f, (X,)
    items.append(0)
    yield
    items.clear()
    yield SAME


@kind
def membership_in_a_list():
    items = [1, 2]

    def f(x):
        return x + 1 if 3 in items else x - items.index(2)

    yield f, (X,)
    items[0] = 3
    yield
    items[:] = [2, 1]
    yield


@kind
def list_of_the_arguments():
    items = [X + 1, 2]

    def f(x, given):
        return x + given[0] * given[1]

    yield f, (X, items)
    items[1] = 3
    yield
    items[0] = X * 3
    yield SAME
    yield X, [X, 2]


@kind
def dict_item_set():
    table = {"a": 1, "b": {"c": 2}}

    def f(x):
        return x * table["a"] + table["b"]["c"]

    yield f, (X,)
    table["a"] = 4
    yield
    table["b"]["c"] = 5
    yield
    table["other"] = 5
    table["a"], table["b"] = 1, {"c": 2}
    yield SAME


@kind
def dict_key_deleted():
    table = {"a": 1}

    def f(x):
        return x + table.get("a", 9)

    yield f, (X,)
    del table["a"]
    yield
    table["a"] = None
    table["a"] = 1
    yield SAME


@kind
def dict_key_missing_raises():
    table = {"a": 1}

    def f(x):
        try:
            return x + table["b"]
        except KeyError as error:
            return x - len(error.args)

    yield f, (X,)
    table["b"] = 4
    yield
    table.pop("b")
    yield SAME


@kind
def dict_order_by_delete_and_reinsert():
    table = {"a": 1, "b": 2}

    def f(x):
        for n in table.values():
            x = x * 2 + n
        return x, list(table)

    yield f, (X,)
    table["a"] = table.pop("a")
    yield
    table["b"] = table.pop("b")
    yield SAME


@kind
def dict_items_by_order():
    table = {"x": 2, "y": 3}

    def f(x):
        for name, n in table.items():
            x = x + n if name == "x" else x * n
        return x

    yield f, (X,)
    table["x"] = table.pop("x")
    yield
    table.clear()
    table.update(x=2, y=3)
    yield SAME


@kind
def dict_key_true_for_one():
    table = {1: "a", 2: "b"}

    def f(x):
        return [x + 1 for _ in table], [type(key) for key in table]

    yield f, (X,)
    del table[1]
    table[True] = "a"
    yield
    table.clear()
    table.update({1.0: "a", 2: "b"})
    yield


@kind
def dict_keys_of_tuples_and_none():
    table = {(1, 2): 3, None: 4}

    def f(x):
        return x * table[1, 2] + table[None]

    yield f, (X,)
    table[1, 2] = 7
    yield
    table[None] = 8
    yield


@kind
def dict_keyed_by_objects():
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 7

        def __eq__(self, other):
            return self.n == other.n

    one, two = Key(1), Key(2)
    table = {one: 10}

    def f(x):
        return x + table.get(two, 0)

    yield f, (X,)
    two.n = 1
    yield
    two.n = 2
    yield
    Key.__eq__ = lambda self, other: True
    yield


@kind
def dict_keyed_by_classes_and_functions():
    class A:
        pass

    class B:
        pass

    table = {A: 1, B: 2, len: 3}
    o = Box(thing=A())

    def f(x):
        return x * table[type(o.thing)] + table[len]

    yield f, (X,)
    o.thing = B()
    yield
    table[len] = 9
    yield
    table[A], table[B] = 2, 1
    yield


@kind
def set_changed():
    found = {1, 2}

    def f(x):
        return x + 1 if 3 in found else x - len(found)

    yield f, (X,)
    found.add(3)
    yield
    found.discard(3)
    yield SAME
    found.clear()
    yield


@kind
def set_of_strings():
    names = {"a", "b"}

    def f(x):
        return x + sum(len(name) for name in names)

    yield f, (X,)
    names.add("long")
    yield
    names.remove("long")
    yield SAME
    names ^= {"a", "bcd"}
    yield


@kind
def frozen_set_replaced():
    o = Box(names=frozenset({"a"}))

    def f(x):
        return x + 1 if "b" in o.names else x - 1

    yield f, (X,)
    o.names |= {"b"}
    yield
    o.names = frozenset({"a"})
    yield SAME


@kind
def deque_rotated():
    queue = collections.deque([1, 2, 3])

    def f(x):
        for n in queue:
            x = x * 2 + n
        return x + queue[0]

    yield f, (X,)
    queue.rotate(1)
    yield
    queue.rotate(-1)
    yield SAME
    queue.appendleft(9)
    yield
    queue.popleft()
    queue[2] = 7
    yield


@unsettled
def deque_with_a_limit():
    o = Box(queue=collections.deque([1, 2], maxlen=2))

    def f(x):
        o.queue.append(5)
        return x + sum(o.queue)

    yield f, (X,)
    o.queue = collections.deque([1, 2])
    yield
    o.queue = collections.deque([1, 2], maxlen=1)
    yield


@kind
def ordered_dict_moved_to_end():
    table = collections.OrderedDict(a=1, b=2)

    def f(x):
        for n in table.values():
            x = x * 2 + n
        return x, list(table)

    yield f, (X,)
    table.move_to_end("a")
    yield
    table.move_to_end("b")
    yield SAME
    table.move_to_end("b", last=False)
    table["b"] = 5
    yield


@kind
def ordered_dict_compared():
    one = collections.OrderedDict(a=1, b=2)
    two = collections.OrderedDict(a=1, b=2)

    def f(x):
        return x + 1 if one == two else x - 1

    yield f, (X,)
    two.move_to_end("a")
    yield
    two.move_to_end("b")
    yield SAME


@kind
def ordered_dict_popitem():
    def f(x, table):
        key, n = collections.OrderedDict(table).popitem(last=False)
        return x + n, key

    table = collections.OrderedDict(a=1, b=2)
    yield f, (X, table)
    table.move_to_end("a")
    yield
    table["b"] = 7
    yield


@kind
def default_factory():
    table = collections.defaultdict(int, a=1)

    def f(x):
        n = table["new"]
        del table["new"]
        return x + (n if isinstance(n, int) else len(n))

    yield f, (X,)
    table.default_factory = lambda: 7
    yield
    table.default_factory = list
    yield
    table.default_factory = None
    yield
    table.default_factory = int
    yield


@unsettled
def default_dict_that_grows():
    table = collections.defaultdict(list)

    def f(x):
        table["k"].append(1)
        return x + len(table["k"])

    yield f, (X,)
    table["k"].clear()
    yield
    table.clear()
    yield


@kind
def counter_changed():
    counts = collections.Counter("aab")

    def f(x):
        return x * counts["a"] + counts["missing"]

    yield f, (X,)
    counts.update("a")
    yield
    counts["missing"] = 4
    yield
    counts.clear()
    counts.update("aab")
    yield SAME


@kind
def chain_map_changed():
    low, high = {"a": 1}, {}
    table = collections.ChainMap(high, low)

    def f(x):
        return x + table["a"]

    yield f, (X,)
    high["a"] = 5
    yield
    del high["a"]
    yield
    table.maps.reverse()
    low["a"] = 3
    yield


@kind
def mapping_proxy():
    table = {"a": 1}
    shown = types.MappingProxyType(table)

    def f(x):
        return x + shown["a"] + len(shown)

    yield f, (X,)
    table["a"] = 5
    yield
    table["b"] = 5
    yield


@kind
def list_subclass():
    class Stack(list):
        limit = 1

        def top(self):
            return self[-1] * self.limit

    stack = Stack([1, 2])

    def f(x):
        return x + stack.top() + len(stack)

    yield f, (X,)
    stack.append(5)
    yield
    stack.limit = 3
    yield
    Stack.__getitem__ = lambda self, index: 100
    yield
    del Stack.__getitem__
    Stack.__len__ = lambda self: 9
    yield


@kind
def dict_subclass():
    class Table(dict):
        def total(self):
            return sum(self.values())

    table = Table(a=1)

    def f(x):
        return x + table.total() + table["a"]

    yield f, (X,)
    table["b"] = 4
    yield
    Table.__missing__ = lambda self, key: 50
    yield
    del table["a"]
    yield
    Table.values = lambda self: [7]
    yield


@kind
def tuple_subclass():
    class Pair(tuple):
        scale = 1

    pair = Pair((1, [2]))

    def f(x):
        return x * pair[0] * pair.scale + pair[1][0]

    yield f, (X,)
    pair.scale = 3
    yield
    pair[1][0] = 5
    yield
    Pair.__getitem__ = lambda self, index: [4] if index else 6
    yield


@kind
def user_list_and_user_dict():
    items, table = collections.UserList([1, 2]), collections.UserDict(a=1)

    def f(x):
        return x * items[0] + table["a"] + len(items)

    yield f, (X,)
    items[0] = 4
    yield
    table["a"] = 5
    yield
    items.data = [7]
    yield


@kind
def keys_view_kept():
    table = {"a": 1}
    keys = table.keys()

    def f(x):
        return x + len(keys) + ("b" in keys)

    yield f, (X,)
    table["b"] = 1
    yield
    del table["b"]
    yield SAME


@unsettled
def iterators_kept():
    o = Box(it=iter([1, 2, 3, 4, 5, 6, 7, 8, 9]))

    def f(x):
        return x + next(o.it)

    yield f, (X,)
    o.it = iter(range(5))
    yield
    o.it = itertools.count(10)
    yield


@kind
def range_replaced():
    o = Box(steps=range(3))

    def f(x):
        for n in o.steps:
            x = x * 2 + n
        return x

    yield f, (X,)
    o.steps = range(2)
    yield
    o.steps = range(3, 0, -1)
    yield
    o.steps = range(0, 3)
    yield


@kind
def container_kind_changed():
    o = Box(items=[1, 2])

    def f(x):
        for n in o.items:
            x = x * 2 + n
        return x, type(o.items) is list

    yield f, (X,)
    o.items = (1, 2)
    yield
    o.items = {1: 0, 2: 0}
    yield
    o.items = collections.deque([1, 2])
    yield
    o.items = [1, 2]
    yield


@kind
def bytearray_changed():
    data = bytearray(b"ab")

    def f(x):
        return x + data[0] + len(data)

    yield f, (X,)
    data[0] = 1
    yield
    data.append(5)
    yield


@kind
def array_changed():
    data = array.array("i", [1, 2])

    def f(x):
        return x + data[0] + len(data)

    yield f, (X,)
    data[0] = 5
    yield
    data.append(5)
    yield


@kind
def list_within_itself():
    items = [1]
    items.append(items)

    def f(x):
        return x + items[1][1][0]

    yield f, (X,)
    items[0] = 5
    yield
    items[1] = [0, [7]]
    yield


@kind
def same_list_twice():
    one, two = [1], [1]
    o = Box(a=one, b=two)

    def f(x):
        o.a.append(5)
        n = len(o.b)
        o.a.pop()
        return x + n

    yield f, (X,)
    o.b = one
    yield
    o.b = two
    yield SAME


@kind
def dicts_merged_and_unpacked():
    low, high = {"a": 1}, {"b": 2}

    def g(x, a=0, b=0):
        return x * a + b

    def f(x):
        return g(x, **low, **high), {**low, **high}

    yield f, (X,)
    high["b"] = 5
    yield
    low["b"] = 3
    yield
    del low["b"]
    high["b"] = 2
    yield SAME


@kind
def arguments_unpacked_from_a_list():
    items = [2, 3]

    def g(x, a, b=5):
        return x * a + b

    def f(x):
        return g(x, *items)

    yield f, (X,)
    items.pop()
    yield
    items.append(4)
    yield
    items.append(4)
    yield


@kind
def container_in_a_default():
    def f(x, seen=[1]):  # noqa: B006
        return x + seen[0]

    yield f, (X,)
    f.__defaults__[0][0] = 5
    yield
    f.__defaults__ = ([1],)
    yield


@kind
def unread_items_do_not_count():
    items, table = [1, 2, 3], {"a": 1, "b": 2}

    def f(x):
        return x * items[0] + table["a"]

    yield f, (X,)
    items[1], table["b"] = 9, "other"
    yield SAME
    table["new"] = []
    yield SAME
