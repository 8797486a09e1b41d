"""Keys of dicts and elements of sets: what Python takes for one key is one key."""

from __future__ import annotations

import collections
import enum

import pytest
import torch

import graftjit

from ..harness import agrees, t

Pair = collections.namedtuple("Pair", "a b")
SIZE = torch.Size([2, 3])


class Level(enum.IntEnum):
    low = 1
    high = 2


class Mode(str, enum.Enum):
    fast = "fast"


class Text(str):
    pass


class Number(int):
    pass


class Odd(tuple):
    def __hash__(self):
        return hash((2, 3))

    def __eq__(self, other):
        return True


KEYS = {
    "a_tuple": (2, 3),
    "a_size": SIZE,
    "a_size_of_a_tensor": t(2, 3).shape,
    "a_named_tuple": Pair(2, 3),
    "other_numbers": (2.0, 3),
    "another_order": (3, 2),
    "a_longer_one": (2, 3, 4),
    "a_tuple_with_a_class": (int, "k"),
    "a_tuple_with_another_class": (float, "k"),
    "a_tuple_with_a_member": (Level.low, "k"),
    "its_number": (1, "k"),
    "a_dtype_and_a_device": (torch.float32, torch.device("cpu")),
    "a_nested_tuple": ((1, (2.5, None)), "n"),
    "a_member": Level.high,
    "a_number": 2,
    "a_number_of_a_derived_class": Number(2),
    "a_text_member": Mode.fast,
    "a_text": "fast",
    "a_text_of_a_derived_class": Text("fast"),
    "a_frozenset": frozenset({1, 2}),
    "a_range": range(0, 3, 2),
    "an_equal_range": range(0, 4, 2),
    "an_object_that_decides_itself": Odd((7, 8)),
    "a_tuple_with_one": (Odd((7, 8)), 1),
}


def table():
    return {
        (2, 3): 1.0,
        (int, "k"): 2.0,
        (1, "k"): 3.0,
        (torch.float32, torch.device("cpu")): 4.0,
        ((1.0, (2.5, None)), "n"): 5.0,
        2: 6.0,
        "fast": 7.0,
        frozenset({2, 1}): 8.0,
        range(0, 3, 2): 9.0,
    }


def looks_up(x, held, key):
    y = x * held.get(key, 0.5)
    return y + (1.0 if key in held else 2.0), held.get(key), len(held)


def looks_up_in_its_own(x, _held, key):
    held = {(2, 3): 1.0, SIZE: 2.0, Pair(2, 3): 3.0, (3, 2): 4.0, Level.low: 5.0, 2: 7.0}
    held["fast"] = 6.0
    among = key in {(2, 3), "fast", 2}, key in {SIZE}, key in held
    return x * held.get(key, 0.5), held, among, len({key, SIZE, "fast", 2})


@pytest.mark.parametrize("fn", [looks_up, looks_up_in_its_own])
@pytest.mark.parametrize("name", KEYS)
def test_look_ups(fn, name):
    run = graftjit.jit(fn)
    for _ in range(3):
        assert repr(run(t(2), table(), KEYS[name])) == repr(fn(t(2), table(), KEYS[name]))


@agrees(breaks=0)
def test_tables_by_size_dtype_and_device():
    made = {}

    def f(x):
        key = x.shape[-1], x.dtype, x.device
        if key not in made:
            made[key] = torch.arange(x.shape[-1]) * 0.5
        return x * made[key], made.get(x.shape), len(made)

    return f, (t(3),), [lambda *_, n=n: (t(n),) for n in (3, 4, 3, 4, 5)]


@agrees(breaks=0)
def test_what_a_table_holds_changes():
    held = {(5, 5): 1.0}

    def f(x):
        return x * held.get((5, 5), 0.0), (5, 5) in held, torch.Size([5, 5]) in held

    def step(change):
        def run(*_):
            change()
            return (t(2),)

        return run

    changes = (
        lambda: held.update({(5, 5): 2.0}),
        lambda: held.pop((5, 5)),
        lambda: held.update({Pair(5, 5): 3.0}),
        lambda: held.update({(5, 6): 3.0}),
        held.clear,
        lambda: held.update({(5.0, 5): 4.0}),
    )
    return f, (t(2),), [*map(step, changes)]


@agrees()
def test_keys_of_derived_classes_in_a_dict_of_the_caller():
    held = {Number(3): 1.0, Text("a"): 2.0, Pair(1, 2): 3.0, Level.low: 4.0}

    def f(x):
        found = [held[3], held["a"], held[1, 2], held[1], held.get(4), 3.0 in held]
        return x * sum(found[:4]), found, [(type(key), key) for key in held]

    return f, (t(2),)


@agrees()
def test_keys_that_are_written_keep_the_object_that_is_there():
    held = {(1, 2): 1.0, 3: 2.0}

    def f(x):
        held[Pair(1, 2)] = 5.0
        held[Level.high] = 6.0
        held[2] = 7.0
        del held[3.0]
        return x * held[1, 2], [(type(key), key, item) for key, item in held.items()]

    def again(*_):
        held.clear()
        held.update({(1, 2): 1.0, 3: 2.0})
        return (t(2),)

    return f, (t(2),), [again, again]


def test_a_key_of_another_class_is_asked_and_not_taken_for_absent():
    held = {Odd((7, 8)): 3.0}

    @graftjit.jit
    def f(x):
        return x * held.get((2, 3), 0.0)

    for _ in range(2):
        assert torch.equal(f(t(2)), t(2) * 3)
    assert {row.code for row in f.report().breaks} == {"GB137"}


@agrees(level="O1")
def test_a_slice_from_outside_as_a_key():
    held = {1: 2.0}

    def f(x, part):
        y, said = x + 1, []
        for ask in (held.get, held.__contains__, frozenset(held).__contains__):
            try:
                said.append(ask(part))
            except TypeError as error:
                said.append(str(error))
        return y * 2, said

    return f, (t(2), slice(1))
