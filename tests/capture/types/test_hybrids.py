"""Objects that are lists or dicts beneath, imports inside functions, enum members, signatures."""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
from collections import OrderedDict

import torch

from ..harness import agrees, t


class Stack(list):
    def total(self):
        return sum(self)


class Lookup(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Upper(dict):
    def __missing__(self, key):
        return self.get("default", 0)


class Output(collections.OrderedDict):
    """An ordered dict whose items are attributes too, as model libraries have them."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        object.__setattr__(self, key, value)

    def pair(self):
        return tuple(self[key] for key in self)


@dataclasses.dataclass
class Record(Output):
    first: object = None
    second: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Mode(str, enum.Enum):
    ADD = "add"
    MUL = "mul"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@agrees()
def test_a_list_of_the_users():
    def f(x):
        made = Stack([x, x + 1])
        made.append(x * 2)
        made += [x]
        made[0] = x - 1
        return made, made.total(), len(made), made[1:], x in [None], list(reversed(made))[0]

    return f, (t(3),)


@agrees()
def test_a_dict_of_the_users():
    def f(x):
        made = Lookup()
        made["a"] = x
        made.update(b=x + 1)
        return made, made.a + made["b"], "a" in made, hasattr(made, "c"), dict(**made), bool(made)

    return f, (t(3),)


@agrees()
def test_missing_keys():
    def f(x, given):
        made = Upper(default=x)
        made["n"] = 1
        return made["no"] + made["n"], given["other"], given.get("other"), len(given)

    return f, (t(3), Upper(default=3))


@agrees()
def test_items_that_are_attributes():
    def f(x):
        made = Output()
        made["a"] = x.abs()
        made["b"] = x + 1
        return made, made.a + made["b"], made.pair(), list(made.items())

    return f, (t(3),)


@agrees()
def test_a_dataclass_that_is_a_dict():
    def f(x, given):
        made = Record(first=x + 1)
        return made, made.first, given.second * 2, list(given.keys()), given.pair()

    return f, (t(3), Record(first=t(2), second=t(2) + 1))


@agrees(calls=4)
def test_objects_from_outside_change():
    stack, output = Stack([1, 2]), Output(a=1, b=2)

    def f(x):
        stack.append(len(stack))
        output["n"] = len(output)
        return x + stack.total(), list(output), output.a

    def grow():
        stack.extend([5, 6])

    def turn():
        output.move_to_end("a")

    def reset():
        stack.clear()

    return f, (t(2),), [grow, turn, reset]


@agrees()
def test_ordered_and_default_dicts():
    def f(x, ordered, counted):
        made = collections.defaultdict(list)
        made["a"].append(x)
        made["a"].append(x + 1)
        counted["new"] += 1
        ordered["z"] = x
        ordered.move_to_end("z", last=False)
        first = ordered.popitem(last=False)
        own = collections.OrderedDict([("k", x), ("l", 2)])
        own.move_to_end("k")
        return made, sum(made["a"]), counted["new"], first, own, list(ordered)

    return f, (t(2), collections.OrderedDict(a=1, b=2), collections.defaultdict(int, p=3))


@agrees(calls=3)
def test_the_order_of_an_ordered_dict_is_seen():
    given = collections.OrderedDict(a=1.0, b=2.0)

    def f(x):
        total = x
        for key in given:
            total = total * 2 + given[key]
        return total

    return f, (t(2),), [lambda: given.move_to_end("a"), lambda: given.move_to_end("a")]


@agrees()
def test_imports_of_loaded_modules():
    def f(x):
        import math
        from collections import OrderedDict as Ordered

        import torch.nn.functional as F  # noqa: N812
        from torch import nn

        return F.relu(x) * math.pi, nn.functional.relu(x - 1), Ordered(a=x)

    return f, (t(3),)


@agrees()
def test_facts_about_numbers():
    def f(x):
        return x.clamp(
            min=torch.finfo(x.dtype).min, max=torch.finfo(torch.float16).max
        ), torch.iinfo(torch.int8).max

    return f, (t(3),)


@agrees(calls=3)
def test_members_that_are_values():
    def f(x, mode=Mode.ADD, size=Size.SMALL):
        y = x + 1 if mode == Mode.ADD else x * 2
        if mode != "mul" and size < Size.LARGE:
            y = y - 1
        return y, mode == "add", size == 1, Size.LARGE >= size

    return f, (t(2),), [lambda: (t(2), Mode.MUL), lambda: (t(2), Mode.ADD, Size.LARGE)]


@agrees()
def test_signatures():
    def helper(a, b=1, *, c=None):
        return a

    def f(x):
        found = inspect.signature(helper)
        return x + len(found.parameters), list(found.parameters), "b" in found.parameters

    return f, (t(2),)


@agrees(grad=False, calls=4)
def test_weak_references_and_recurrent_layers():
    import weakref

    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4, num_layers=2, batch_first=True)
    kept = [torch.ones(3), torch.zeros(3)]
    refs = [weakref.ref(kept[0])]

    def f(x):
        y, (h, c) = layer(x)
        return y * 2, h + c, refs[0]() is kept[0], refs[0]() is None

    def replaced():
        layer.weight_ih_l0 = torch.nn.Parameter(torch.ones(16, 3))

    def dropped():
        del kept[0]

    return (
        f,
        (t(30).reshape(2, 5, 3),),
        [lambda: refs.__setitem__(0, weakref.ref(kept[1])), replaced, dropped],
    )


class Weights(tuple):
    """Tuples of a class of its own, as static-graph programs hold parameters."""

    __slots__ = ()


class Counted(tuple):
    def __iter__(self):
        return iter([self[0]] * 2)


@agrees(grad=False)
def test_tuples_of_a_class_of_their_own():
    def f(x, ts):
        first, *rest = ts
        scaled = [x * one for one in ts]
        return (
            first,
            rest,
            scaled,
            list(ts),
            ts[-1] is ts[0],
            len(ts),
            type(ts),
            {**dict(enumerate(ts))},
        )

    a, b = t(3), t(3)
    return (
        f,
        (t(3), Weights([a, b])),
        [
            lambda: (t(3), Weights([b, a])),
            lambda: (t(3), Weights([a, a])),
            lambda: (t(3), Weights([a, b, 2.0])),
            lambda: (t(3), Counted([a, b])),
            lambda: (t(3), Weights()),
        ],
    )


@agrees(breaks=0, recompiles=1)
def test_an_ordered_dict_from_outside_has_attributes():
    table = OrderedDict(a=1)
    table.tag = [1]

    def fn(x):
        found = getattr(table, "tag", None), hasattr(table, "late"), table.__dict__.get("tag")
        try:
            late = table.late
        except AttributeError as error:
            late = type(error).__name__
        return x + 1, found, found[0] is found[2], late, list(table.items())

    def tag(last):
        table.late = "there"

    return fn, (t(3),), [lambda last: None, tag, lambda last: None]


@agrees(recompiles=2)
def test_an_attribute_of_an_ordered_dict_that_comes_first():
    table, other = OrderedDict(a=1), OrderedDict(b=2)

    def fn(x):
        table.__dict__["kept"] = 5
        return x + len(table.items()), table.kept, list(other.keys())

    def cover(last):
        other.keys = lambda: ["covered"]

    def uncover(last):
        del other.keys

    return fn, (t(3),), [cover, uncover]


@agrees(breaks=0)
def test_versions_in_a_state_dict_reach_the_modules():
    seen = []

    class Versioned(torch.nn.Module):
        _version = 3

        def _load_from_state_dict(self, state, prefix, local, *rest):
            seen.append((prefix, local.get("version")))

    net = torch.nn.Sequential(Versioned(), Versioned())
    state = net.state_dict()

    def fn(x):
        net.load_state_dict(state)
        return x + 1, list(seen)

    return fn, (t(3),)
