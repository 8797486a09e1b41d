"""Small programs of users: each is one graph, or has breaks with these codes, and is right."""

from __future__ import annotations

import collections
import decimal
import functools
import inspect
import random
import re
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import graftjit

# Name -> (program, makers of its arguments, codes of its breaks; none: one graph)
PROGRAMS = {}


def program(*codes, args=lambda: (torch.arange(6.0).view(2, 3) - 2.5,)):
    def note(fn):
        PROGRAMS[fn.__name__] = fn, args, set(codes)
        return fn

    return note


LAYERS = [nn.Linear(3, 3).double() for _ in range(2)]
LSTM = nn.LSTM(3, 4, batch_first=True)
PATTERN = re.compile(r"\.(\d+)")


class Thing:
    size = 2


@program("GB105")
def a_write_behind_layers_that_are_skipped(x):
    h = x.double() * 1
    for layer in LAYERS:
        if torch.rand([]) < 0.5:
            continue
        h = layer(h)
    h.mul_(2)
    return h


@program("GB126")
def a_class_in_a_function(x):
    class Scaled:
        factor = 3

        def __init__(self, value):
            self.value = value

        def get(self):
            return self.value * self.factor

    return Scaled(x).get() + 1


@program("GB106", "GB104", args=lambda: (torch.ones(2, 5, 3), torch.tensor([5, 3])))
def a_packed_sequence(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    found, (h, _) = LSTM(packed)
    y, again = pad_packed_sequence(found, batch_first=True)
    return y * 2, again, h


@program("GB103", "GB112")
def recorded_warnings(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("hello", stacklevel=1)
        y = x * 2
    return y * len(seen), [str(one.message) for one in seen], seen[0].category


@program("GB126")
def a_weak_reference(x):
    thing = Thing()
    found = weakref.ref(thing)
    return found().size * x


@program("GB119", "GB123")
def an_array_of_random_numbers(x):
    return x * torch.from_numpy(np.random.rand(3)).float()


@program("GB119", "GB123")
def a_generator_of_numpy(x):
    made = np.random.default_rng(0)
    return x * torch.as_tensor(made.random(3)).float() + made.integers(0, 3)


@program("GB126")
def a_generator_of_python(x):
    made = random.Random(0)
    return x * made.random() + made.randint(1, 5), made.choice([1, 2, 3])


@program("GB119")
def a_state_of_random_numbers(x):
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return x * first, first == random.random()


@program("GB102")
def a_match_of_a_pattern(x):
    found = PATTERN.search("layer.12")
    return x * int(found.group(1)), found.span()


@program("GB102")
def a_match_of_a_text(x):
    found = re.match(r"(\w+)\.(\d+)", "layer.12")
    return x * int(found[2]), re.findall(r"\d", "a1b2"), re.sub(r"\d", "-", "a1")


@program("GB126", "GB102", "GB112")
def decimals(x):
    total = decimal.Decimal("1.5") + decimal.Decimal(2)
    return x * float(total), total


@program()
def a_signature(x):
    found = inspect.signature(a_match_of_a_text)
    return x * len(found.parameters), list(found.parameters), "x" in found.parameters


@program("GB103")
def output_in_a_try_block(x):
    try:
        print("shape", x.shape)
        y = x * 2
    except ValueError:
        y = x
    return y


@functools.lru_cache(maxsize=2)
def doubled(n):
    return n * 2


@program("GB102")
def a_cache_that_is_full(x):
    return x * doubled(1) + doubled(2) + doubled(3) + doubled(1)


@program("GB104", args=lambda: (torch.arange(9.0).view(3, 3),))
def rows_of_a_mask(x):
    total = 0
    for row in x[x[:, 0] > -9]:
        total = total + row * 2
    return total


@program("GB105")
def elements_of_a_mask(x):
    y = x[x[:, 0] > 0]
    return x.sum() if y.numel() == 0 else y.mean(0)


@program("GB104", args=lambda: (torch.tensor([0.3, -1.0, 2.0]),))
def positions_by_numbers(x):
    return sorted(range(3), key=lambda i: x[i].item()), x * 2


@program(args=lambda: (torch.ones(2), 3.0))
def comparisons_of_numbers(x, value):
    one, other = torch.tensor(3.0), torch.tensor(3.0 + 1e-9)
    if torch.isclose(one, other) and torch.allclose(one, other):
        x = x + 1
    if torch.hypot(one, torch.tensor(4.0)) > 4:
        x = x * 2
    return x * value


@program(args=lambda: (torch.ones(2), torch.tensor([2, 3])))
def a_range_of_a_number_in_a_tensor(x, n):
    for i in range(n.max().item()):
        x = x * 2 + i
    return x


@program(args=lambda: (torch.zeros(3, 4), torch.arange(3.0)))
def elements_that_are_assigned(x, y):
    made = x.clone()
    for i in range(3):
        for k in range(4):
            made[i, k] = y[i] + k
    return made


@program("GB102")
def a_deque_that_is_read(x):
    kept = LATEST
    kept.append(4.0)
    return x * kept[0] + sum(kept) + len(kept)


LATEST = collections.deque([1.0, 2.0, 3.0], maxlen=3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_small_program(name, capsys):
    fn, args, codes = PROGRAMS[name]
    graftjit.reset()
    run = graftjit.jit(fn)
    outcomes = []
    for one in (fn, run):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        doubled.cache_clear()
        LATEST.extend([1.0, 2.0, 3.0])
        results = [one(*args()) for _ in range(3)]
        state = torch.rand(1), random.random(), np.random.rand(), doubled.cache_info(), [*LATEST]
        outcomes.append(str((results, state, capsys.readouterr().out)))
    assert outcomes[0] == outcomes[1]
    report = run.report()
    assert {row.code for row in report.breaks} - {"GB120"} == codes, report
    assert codes or report.graph_count == 1
