"""copy.copy and copy.deepcopy of objects: by reduction, state, slots and items, in the graph."""

import copy
import enum
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import torch
from torch import nn

from ..harness import agrees, t


class Configuration:
    """A configuration that renames attributes where they are read and set."""

    attribute_map = {"size": "hidden"}

    def __init__(self, **more):
        self.hidden, self.table, self.kind = 4, {"a": 1, "b": [1, 2]}, torch.float32
        self.encoder_layers, self.decoder_layers, self.number = 2, 3, None
        for name, value in more.items():
            setattr(self, name, value)

    def __setattr__(self, key, value):
        renamed = super().__getattribute__("attribute_map")
        super().__setattr__(renamed.get(key, key), value)

    def __getattribute__(self, key):
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)

    def to_dict(self):
        return copy.deepcopy(self.__dict__)


@agrees(breaks=0, graphs=1, recompiles=0)
def test_a_configuration_of_one_half():
    """As transformers derives the configuration of a decoder from that of the whole model."""
    whole = Configuration(extra=(1, [2]), rate=0.1)

    def fn(x):
        half = copy.deepcopy(whole)
        for key in half.to_dict():
            if key.startswith("encoder"):
                delattr(half, key)
            if key == "decoder_layers":
                half.number = half.decoder_layers
        half.size = 8
        half.table["b"].append(3)
        return x * half.hidden, vars(half), whole.table, half.table["b"] is whole.table["b"]

    return fn, (t(3),)


@agrees(breaks=0)
def test_an_attribute_that_changes_after_the_copy_was_compiled():
    whole = Configuration()

    def fn(x):
        return x * copy.deepcopy(whole).hidden, copy.copy(whole).table

    def change(_):
        whole.hidden = 7
        whole.added = 1
        return t(3)

    return fn, (t(3),), [change, change]


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = [1], 2


class Both(Slots):
    def __init__(self):
        super().__init__()
        self.z = {"k": [3]}


class Stateful:
    def __init__(self):
        self.a = [1]

    def __getstate__(self):
        return {"a": self.a, "n": 1}

    def __setstate__(self, state):
        self.a, self.set = state["a"], True


class Reduced:
    def __init__(self, a):
        self.a = a

    def __reduce__(self):
        return Reduced, (self.a,), {"more": self.a}


class Named(enum.Enum):
    A = 1


class Listed(list):
    pass


class Mapped(dict):
    pass


@dataclass
class Data:
    a: int = 1
    b: list = field(default_factory=lambda: [1, [2]])


Pair = namedtuple("Pair", "x y")


def items_and_attributes(kind, *items):
    made = kind(*items)
    made.tag = [5]
    return made


def circle():
    made = Data()
    made.b.append(made)
    return made


MADE = {
    "slots": Slots,
    "slots and dict": Both,
    "state": Stateful,
    "reduce": lambda: Reduced([1]),
    "enum": lambda: Named.A,
    "dtype": lambda: torch.float32,
    "class": lambda: Data,
    "list": lambda: items_and_attributes(Listed, [1, [2]]),
    "dict": lambda: items_and_attributes(Mapped, {"a": [1]}),
    "data class": Data,
    "named tuple": lambda: Pair(1, [2]),
    "ordered dict": lambda: OrderedDict(a=[1], b=2),
    "default dict": lambda: defaultdict(list, {1: [2]}),
    "set": lambda: {3, 1, 2},
    "twice the same": lambda: [Data()] * 2,
    "a circle": circle,
}


@agrees(breaks=0)
def test_copies_of_objects_of_many_kinds():
    made = {name: make() for name, make in MADE.items()}

    def fn(x):
        found = {}
        for name, one in made.items():
            deep, shallow = copy.deepcopy(one), copy.copy(one)
            found[name] = deep, shallow, deep is one, shallow is one
        return x + 1, found

    return fn, (t(2),)


@agrees()
def test_copies_by_methods_of_their_own():
    class Own:
        def __init__(self, a):
            self.a = a

        def __copy__(self):
            return Own([*self.a, "shallow"])

        def __deepcopy__(self, memo):
            made = memo[id(self)] = Own(copy.deepcopy(self.a, memo))
            return made

    own = Own([1])

    def fn(x):
        deep = copy.deepcopy([own, own])
        return x + 1, copy.copy(own).a, deep[0].a, deep[0] is deep[1], deep[0].a is own.a

    return fn, (t(2),)


@agrees()
def test_what_cannot_be_copied_raises_as_in_python():
    class Refuses:
        def __reduce__(self):
            raise ValueError("not to be copied")

    refuses = Refuses()

    def fn(x):
        try:
            return copy.deepcopy([refuses])
        except ValueError as error:
            return x + 1, str(error)

    return fn, (t(2),)


@agrees(breaks=0)
def test_deep_copies_of_tensors_and_modules():
    layer = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    layer[1].weight = layer[0].bias

    def f(x):
        batch = {"a": x, "b": [x, x.t().clone()], "c": x + 1}
        made = copy.deepcopy(batch)
        made["a"].add_(1)
        other = copy.deepcopy(layer)
        tied = other[1].weight is other[0].bias, other[0].bias is layer[0].bias
        kinds = type(other[0].weight), other[0].weight.requires_grad
        other[0].weight.data.mul_(2)
        shown = other(x).detach(), layer[0](x).detach()
        return x, made, made["a"] is made["b"][0], tied, kinds, shown

    return f, (t(4, 3),)


@agrees()
def test_deep_copies_of_tensors_that_share_memory():
    def f(x, y):
        views = copy.deepcopy([x, x[0], y])
        views[1].zero_()
        odd = copy.deepcopy([x[:, ::2], x.expand(2, 2, 3)])
        return views, odd

    x = t(2, 3)
    return f, (x, t(3)), [lambda: (x, x[0]), lambda: (x, x[1])]


@agrees()
def test_deep_copies_of_inputs_that_share_memory_later():
    def f(x, y):
        copies = copy.deepcopy([x, y])
        copies[1].add_(1)
        return copies

    x = t(2, 3)
    return f, (x, t(3)), [lambda: (x, x[0]), lambda: (x, t(3)), lambda: (x, x)]


@agrees()
def test_deep_copies_of_tensors_with_a_gradient():
    w = nn.Parameter(t(3))

    def f(x):
        y = x * w
        try:
            copy.deepcopy(y)
        except RuntimeError as error:
            return str(error)[:30], y
        return y

    return f, (t(3),)


@agrees(breaks=0, grad=False)
def test_shallow_copies_of_tensors():
    def fn(x, table):
        y = copy.copy(x)
        z = copy.copy(x * 2)
        z.add_(1)
        other = copy.copy(table)
        other["x"] = copy.copy(other["x"]) + 1
        return y, z, y is x, x + 1, other, table

    return fn, (t(3), {"x": t(2)}), [lambda last: last[0].fill_(9.0) is None]


@agrees()
def test_shallow_copies_of_tensors_that_are_more_than_numbers():
    weight, tagged = torch.nn.Parameter(t(3)), t(3)
    tagged.tag = 5

    def fn(x):
        return copy.copy(tagged).tag, copy.copy(weight) * x, copy.copy(x * weight.detach())

    return fn, (t(3),)


class Falling(defaultdict):
    pass


class Letters(set):
    pass


class Line(deque):
    pass


def _tagged(made, *items):
    for item in items:
        made.update([item]) if isinstance(made, dict) else made.append(item)
    made.tag = [1]
    return made


def _both_copies(one):
    shallow, deep = copy.copy(one), copy.deepcopy(one)
    kept = [getattr(made, "__dict__", None) for made in (shallow, deep)]
    shared = [getattr(made, "tag", None) is one.tag for made in (shallow, deep)]
    return shallow, deep, kept, shared, type(shallow), type(deep)


@agrees(breaks=0)
def test_an_ordered_dict_is_copied_with_its_attributes():
    outside = _tagged(OrderedDict(a=1), ("b", [2]))

    def fn(x):
        inside = OrderedDict(a=x * 2)
        inside.tag = [1]
        by_method = outside.copy()
        copies = (*_both_copies(outside), *_both_copies(inside))
        copies[0].tag.append(3)
        copies[1].tag.append(4)
        without = copy.copy(OrderedDict(c=1)), copy.copy(by_method)
        return copies, hasattr(by_method, "tag"), outside.tag, without

    return fn, (t(3),)


@agrees(breaks=0)
def test_a_state_dict_is_copied_with_its_metadata():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    outside = OrderedDict((key, 1) for key in net.state_dict())
    outside._metadata = net.state_dict()._metadata

    def fn(x):
        first, second = copy.copy(outside), copy.deepcopy(outside)
        del second._metadata["1"]
        return x + 1, first, second, list(first._metadata), list(second._metadata)

    return fn, (t(3, 2),)


@agrees()
def test_subclasses_of_containers_are_copied_as_they_reduce_themselves():
    happened = []

    class Ordered(OrderedDict):
        def __init__(self, *args):
            happened.append(args)
            super().__init__(*args)

        def __setitem__(self, key, value):
            happened.append(key)
            super().__setitem__(key, value)

    ordered = _tagged(Ordered(), ("a", 1), ("b", [2]))
    falling = _tagged(Falling(list), ("a", [1]))
    bare = _tagged(Falling(), ("a", [1]))
    letters = Letters("ab")
    letters.tag = [1]
    short, long = _tagged(Line([1], 2), 2, 3), _tagged(Line(), [1], 2)

    def fn(x):
        made = [_both_copies(one) for one in (ordered, falling, bare, letters, short, long)]
        return x + 1, made, list(happened)

    return fn, (t(3),)


_DEEP = """
import copy, sys, torch
from graftjit import jit
copied = jit(lambda x: copy.deepcopy([x * 2]))
before = "sympy" in sys.modules
assert torch.equal(copied(torch.ones(2, 3))[0], torch.full((2, 3), 2.0))
assert before or "sympy" not in sys.modules
"""


def test_a_deep_copy_of_a_tensor_imports_no_algebra():
    """It would also change `copyreg.dispatch_table` below the guards on it."""
    run = subprocess.run(
        [sys.executable, "-P", "-c", _DEEP], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
