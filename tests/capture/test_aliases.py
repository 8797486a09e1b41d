"""Objects that were two at one call and are one at the next, and the other way round."""

from __future__ import annotations

import collections
import functools
import gc

import numpy as np
import pytest
import torch
from torch import nn

import graftjit
from graftjit import JitConfig, jit

from .harness import agrees, t


class A:
    def __init__(self, **names):
        self.__dict__.update(names)


def x():
    return torch.arange(2.0)


def pairs(make):
    """(arguments, steps): two objects, then one twice, then two again."""
    one, two = make(), make()
    rows = [(x(), two, two), (x(), one, two), (x(), two, one), (x(), one, one)]
    return (x(), one, two), [lambda row=row: row for row in rows]


@agrees()
def test_identity_of_objects():
    def f(x, a, b):
        return x + (a is b), a == b, a is not b, a in [b], [a, b].index(b), [a, b].count(a)

    args, steps = pairs(A)
    return f, args, steps


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.float32(0.5),
        lambda: np.int64(int("7")),
        lambda: torch.Size([2, 3]),
        lambda: torch.device("cpu"),
        lambda: range(int("3")),
        lambda: slice(int("1"), 2),
        lambda: (1.5, int("2")),
        lambda: frozenset({int("1")}),
    ],
)
def test_identity_of_constants_in_containers(make):
    @graftjit.jit
    def f(x, one):
        return [one], {"k": one}, (x + 1, one)

    for _ in range(3):
        one = make()
        held, named, pair = f(t(2), one)
        assert held[0] is one and named["k"] is one and pair[1] is one
    assert f.report().graph_count == 1, f.report()


@agrees()
def test_objects_as_keys():
    def f(x, a, b):
        d = {a: 1}
        d[b] = 2
        return x + len(d), d[a], len({a, b}), len({(a, 1), (b, 1)}), d.get(b), b in {a}

    args, steps = pairs(A)
    return f, args, steps


@agrees()
def test_tensors_as_keys():
    def f(x, a, b):
        d = {a: 1}
        d[b] = 2
        return x + len(d), len({a, b})

    args, steps = pairs(lambda: torch.ones(2))
    return f, args, steps


@agrees()
def test_objects_as_keys_of_the_callers_dicts():
    one, two, three = A(), A(), A()

    def f(x, a, d):
        return x * d.get(a, 5), a in d, d[a] if a in d else None

    d = {one: 1, two: 2}
    return f, (x(), one, d), [
        lambda: (x(), two, d), lambda: (x(), three, d), lambda: d.update({three: 9}), lambda: (x(), one, {one: 7}),
        lambda: (x(), two, {one: 7}),
    ]  # fmt: skip


@agrees()
def test_attributes_written():
    def f(x, a, b):
        a.n = 1
        b.n = 2
        y = x * a.n
        del b.n
        return y, hasattr(a, "n")

    args, steps = pairs(A)
    return f, args, steps


@agrees()
def test_attributes_written_and_read():
    def f(x, a, b):
        a.n += 1
        return x * b.n

    args, steps = pairs(lambda: A(n=1))
    return f, args, steps


@agrees()
def test_lists_written():
    def f(x, a, b):
        a.append(1)
        return x * len(b), b[-1], sum(a)

    args, steps = pairs(lambda: [3])
    return f, args, steps


@agrees()
def test_dicts_and_sets_written():
    def f(x, a, b):
        a["d"]["n"] = 1
        a["s"].add(5)
        a["o"].move_to_end("k")
        return x * len(b["d"]), sorted(b["s"]), list(b["o"])

    def make():
        return {"d": {}, "s": {1}, "o": collections.OrderedDict(k=1, l=2)}

    args, steps = pairs(make)
    return f, args, steps


@agrees()
def test_containers_of_the_users_written():
    class Items(list):
        pass

    class Table(dict):
        pass

    def f(x, a, b):
        a[0].append(7)
        a[1]["k"] = 1
        a[0].note = 3
        return x * len(b[0]), dict(b[1]), getattr(b[0], "note", 0)

    args, steps = pairs(lambda: (Items([1]), Table()))
    return f, args, steps


@agrees()
def test_an_object_and_a_dict_that_becomes_its_own():
    def f(x, o, d):
        d["n"] = 5
        y = x * o.n
        o.m = 7
        return y, d.get("m"), len(d)

    o = A(n=1)
    return f, (x(), A(n=1), {"n": 1}), [
        lambda: (x(), o, o.__dict__), lambda: (x(), A(n=1), {"n": 1}), lambda: (x(), o, o.__dict__),
    ]  # fmt: skip


@agrees()
def test_a_dict_that_is_the_globals():
    def f(x, d):
        global scale
        d["scale"] = 5
        y = x * scale
        scale = 3
        return y, d["scale"]

    scope = f.__globals__
    scope["scale"] = 2
    return f, (x(), {"scale": 2}), [lambda: scope.update(scale=2), lambda: (x(), {"scale": 2})]


def test_a_dict_that_becomes_the_globals():
    from graftjit import jit

    def play(run):
        scope = run.__globals__ if hasattr(run, "__globals__") else run.__wrapped__.__globals__
        out = []
        for own in (False, True, False, True):
            scope["scale"] = 2
            table = scope if own else {"scale": 2}
            out.append((run(x(), table).tolist(), scope["scale"], table["scale"]))
        return out

    source = "def f(x, d):\n    d['scale'] = 5\n    return x * scale\n"
    plain: dict = {}
    exec(source, plain)
    jitted: dict = {}
    exec(source, jitted)
    assert play(plain["f"]) == play(jit(jitted["f"]))


@agrees()
def test_cells_shared_and_not():
    def make(n):
        def bump():
            nonlocal n
            n += 1
            return n

        def get():
            return n

        return bump, get

    one, two = make(1), make(1)
    box = [one[0], two[1]]

    def f(x):
        a = box[0]()
        return x * box[1](), a

    return f, (x(),), [
        lambda: box.__setitem__(1, one[1]), lambda: box.__setitem__(0, two[0]), lambda: box.__setitem__(1, two[1]),
    ]  # fmt: skip


def test_closures_of_one_code():
    from graftjit import jit

    def world(wrap):
        def make(shared):
            n = 1

            def get():
                return n

            def run(x, other):
                nonlocal n
                n += 1
                return x * other()

            return wrap(run), get

        (f, get_f), (g, get_g) = make(0), make(1)
        calls = [(f, get_g), (f, get_f), (g, get_g), (g, get_f), (f, get_f), (f, get_g)]
        return [run(x(), get).tolist() for run, get in calls]

    assert world(lambda run: run) == world(jit)


@agrees()
def test_modules_tied_and_untied():
    torch.manual_seed(0)
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)

    def f(x, a, b):
        a.scale = getattr(a, "scale", 1) + 1
        a.names.append("a")
        return a(x) * getattr(b, "scale", 1), a is b, a.weight is b.weight, len(b.names)

    one.names, two.names = [], []
    return f, (x(), one, two), [
        lambda: (x(), one, one), lambda: (x(), two, one), lambda: setattr(two, "weight", one.weight),
        lambda: setattr(two, "names", one.names), lambda: (x(), two, two),
    ]  # fmt: skip


@agrees()
def test_identity_of_everything():
    def f(x, a, b):
        return x + (1 if a is b else 2), a is b

    def g():
        return 1

    kinds = [
        A, list, dict, lambda: {1}, collections.deque, lambda: functools.partial(g, 1), lambda: A().__init__,
        lambda: (1, [2]), lambda: nn.ReLU(), lambda: torch.ones(1), lambda: (lambda: 0), lambda: type("T", (), {}),
        lambda: iter([1]), lambda: memoryview(b"a"), object, lambda: Exception("e"), lambda: A,
    ]  # fmt: skip
    steps = []
    for make in kinds:
        one, two = make(), make()
        for row in ((one, two), (one, one), (two, one), (two, two)):
            steps.append(lambda row=row: (x(), *row))
    return f, (x(), A(), A()), steps


EQUAL = {
    "int": lambda: int("1000"),
    "float": lambda: float("1.5"),
    "complex": lambda: complex("1j"),
    "str": lambda: "".join(["a", "b"]),
    "bytes": lambda: bytes([1, 2]),
    "range": lambda: range(1, 5),
    "slice": lambda: slice(1, 5),
    "device": lambda: torch.device("cpu"),
    "number": lambda: np.float32(1.5),
}


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("kind", EQUAL)
def test_equal_constants_from_outside_are_returned_themselves(kind, broken):
    class Holder:
        pass

    def f(x, a, b, holder):
        y = x + 1 if a == b else x
        holder.a = a
        if broken:
            gc.get_threshold()
        return y * 2, a is b if broken else None, a, b

    run, known = jit(f, config=JitConfig(jit_level="O1")), Holder()
    one, two = EQUAL[kind](), EQUAL[kind]()
    for a, b in [(one, one), (one, two), (two, one), (one, one), (two, two)]:
        _, same, left, right = run(x(), a, b, known)
        assert same == (a is b if broken else None)
        assert left is a
        assert right is b
        assert known.a is a
    assert run.report().graph_count > 0


def described(*tensors):
    return [(t.requires_grad, t.is_leaf, t._is_view(), t._version) for t in tensors]


@agrees()
def test_detached_results_are_no_views():
    def f(x):
        z = x * 2
        return x.detach(), x[1:].detach(), x.detach()[1:], z, z.detach(), z.detach().view(1, -1)

    def g(x):
        found = f(x)
        return found, described(*found), [one._base is None for one in found]

    return g, (torch.ones(3),)


@agrees()
def test_what_was_detached_before_a_gradient_is_asked_for():
    def f(x, how):
        y = x * 1
        before = y.detach(), y.detach()[1:], y[:1].detach()
        y.requires_grad_()
        if how == "write":
            for one in before:
                one.add_(1)
        after = [one * 2 for one in before]
        return described(y, *before, *after), y, before, after

    return f, (torch.ones(3), "read"), [lambda: (torch.ones(3), "write")]


@agrees()
def test_an_argument_that_gets_a_gradient_behind_a_detached_one():
    def f(x):
        before = x.detach()
        x.requires_grad_()
        before.add_(1)
        return before, described(before, x)

    return f, (torch.ones(3),), [lambda: (torch.ones(2),), lambda: (torch.ones(2),)]


@agrees(codes=("GB114",))
def test_whether_an_argument_is_a_view():
    def f(x):
        return x._is_view(), x + 1

    base = torch.ones(3)
    return f, (base,), [lambda: (base[1:],), lambda: (base.view(-1),), lambda: (base * 1,)]


@agrees()
def test_arguments_detached_in_place():
    def f(x, y):
        z = y * 2
        x.detach_()
        z.detach_()
        return x.requires_grad, z.requires_grad, x * 3, z + x

    def pair():
        return torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    return f, pair(), [pair, pair]


@agrees()
def test_reshapes_that_copy_are_no_views():
    def f(x):
        return x.t().flatten(), x.t().reshape(-1), x.flatten(), x.t().flatten()[1:]

    def g(x):
        found = f(x)
        return found, described(*found)

    return g, (torch.ones(2, 3),)


@agrees()
def test_writes_to_windows_that_overlap():
    def f(x, y):
        y = y * 1
        x.unfold(0, 2, 1).add_(1)
        y.as_strided((3, 3), (1, 1)).mul_(2)
        x.unfold(0, 2, 2).sub_(3)
        y.as_strided((2, 2), (1, 1)).copy_(torch.arange(4.0).view(2, 2))
        return x, y

    return f, (torch.ones(6), torch.ones(6)), [lambda: (torch.ones(9), torch.ones(7))]


@agrees(codes=())
def test_writes_to_windows_apart():
    def f(x):
        y = x * 1
        y.unfold(0, 2, 2).add_(1)
        y.as_strided((2, 2), (3, 1), 1).mul_(2)
        y[1::2].sub_(3)
        return y

    return f, (torch.ones(6),), [lambda: (torch.arange(9.0),), lambda: (torch.arange(8.0),)]


@agrees(calls=1)
def test_tensors_over_one_array_that_torch_does_not_know_of():
    """Their storages differ, and have bytes in common."""

    def f(a, b):
        b += 1
        return a * 2, b

    def of(*parts):
        array = torch.arange(6.0).numpy()
        return tuple([torch.from_numpy(array[part]) for part in parts])

    whole, part, late, early = slice(0, 6), slice(2, 4), slice(1, 5), slice(0, 3)
    apart = of(early, slice(3, 6))
    return f, of(whole, part), [lambda: of(late, early), lambda: apart, lambda: of(part, whole)]


@agrees()
def test_a_tensor_over_the_array_of_an_argument_is_written():
    def f(a):
        array = a.numpy()
        other = torch.from_numpy(array)
        other += 1
        return other, a + 1, array

    return f, (torch.arange(3.0),)
