"""Indices of tensors: masks without dimensions, lists that torch takes as tuples, new dimensions.

What torch warns about comes as often as in plain Python, at the program's lines, and nothing else
is written."""

from __future__ import annotations

import linecache
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch

from graftjit import JitConfig, jit

from ..harness import agrees, t


def told(fn: Any, make: Any, calls: int = 3) -> list[Any]:
    """Result or exception, and the warnings with their places, of each call."""
    found = []
    for _ in range(calls):
        args = make()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                result = fn(*args)
                parts = result if isinstance(result, tuple) else (result,)
                outcome: Any = [(one.shape, one.stride(), one.tolist()) for one in parts]
            except Exception as error:
                outcome = type(error).__name__, str(error)
        given = [(str(one.message), one.category, one.filename, one.lineno) for one in seen]
        found.append((outcome, given, [one.tolist() for one in args]))
    return found


def same(fn: Any, make: Any) -> Any:
    run = jit(fn)
    wanted, got = told(fn, make), told(run, make)
    assert wanted == got, run.report()
    return run.report()


def numbers() -> Any:
    """A tensor, masks and numbers without dimensions, and masks with one."""
    none = [torch.tensor(True), torch.tensor(False), torch.tensor(1), torch.tensor(0)]
    small = [one.to(torch.uint8) for one in none[:2]]
    return [t(2, 3, 2), *none, *small, torch.tensor([True, False]), torch.tensor([1, 0])]


INDICES = {
    "both": lambda on, off, *_: (on, off),
    "twice": lambda on, off, *_: (on, on, ...),
    "with a list": lambda on, off, *_: (off, [0, 1], ...),
    "with lists": lambda on, *_: (on, [0, 1], on, on, [1], [[1]]),
    "behind a slice": lambda on, *_: (slice(None), on),
    "of bytes": lambda a, b, c, d, on, off, *_: (on,),
    "of bytes, none": lambda a, b, c, d, on, off, *_: (..., off),
    "of bytes, and a number": lambda a, b, one, d, on, off, *_: (one, on),
    "a byte and a list": lambda a, b, c, d, on, off, *_: ([0, 1], on),
    "with a mask of rows": lambda on, b, c, d, e, f, rows, g: (on, rows),
    "with rows": lambda on, b, c, d, e, f, rows, at: (at, None, on),
    "literals": lambda *_: (True, None, 0, True),
    "a literal and none": lambda *_: (False, [0, 1], ...),
    "a literal and a mask": lambda on, *_: (True, 1, on),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_a_mask_without_dimensions_picks_all_or_nothing(index):
    same(lambda x, *given: x[index(*given)] * 2, numbers)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_a_write_through_a_mask_without_dimensions(index):
    def write(x, *given):
        y = x + 1
        y[index(*given)] = 7.0
        x[index(*given)] += y.sum()
        return y, x * 2

    same(write, numbers)


@agrees()
def test_such_a_mask_changes_its_truth():
    x = t(2, 3)

    def pick(mask):
        return x[mask, 1] * 2

    masks = [
        torch.tensor(one, dtype=kind) for kind in (torch.bool, torch.uint8) for one in (1, 0, 1)
    ]
    return pick, (masks[0],), [lambda mask=mask: (mask,) for mask in masks[1:]]


@agrees()
def test_a_truth_that_the_frame_computes_picks_rows():
    x = t(4, 3)

    def pick(y):
        rows = x[(y @ y).sum() > 0]
        x[(y @ y).sum() < 0] = 1.0
        return rows.sum(), x + 1

    return pick, (t(3, 3),), [lambda: (-torch.eye(3) * 2,), lambda: (torch.zeros(3, 3),)]


@agrees()
def test_a_truth_is_no_size():
    def wide(x, yes):
        try:
            return x.view(yes, -1)
        except RuntimeError:
            return x + 1

    return wide, (t(4), torch.tensor(True))


LISTS = {
    "a tensor": lambda one: [one],
    "numbers and a tensor": lambda one: [0, one],
    "two tensors": lambda one: [one, one],
    "a mask": lambda one: [one == 1],
    "lists": lambda one: [[0, 1], [1]],
    "slices": lambda one: [slice(1), 0],
    "dots": lambda one: [..., 0],
    "nothing": lambda one: [None, one],
    "numbers": lambda one: [0, 1],
    "truths": lambda one: [True, False],
    "many": lambda one: [0] * 40,
}


@pytest.mark.parametrize("index", LISTS.values(), ids=LISTS)
def test_a_list_that_is_taken_as_a_tuple(index, capfd):
    def both(x, one):
        y = x[index(one)] * 2
        x[index(one)] = 3.0
        return y, x + 1

    same(both, lambda: (t(2, 3), torch.tensor(1)))
    assert capfd.readouterr() == ("", "")


BYTES = {
    "a write": "x[mask] = 1.0",
    "a write in place": "x[mask] += 1.0",
    "with a truth": "x[mask, False] += 1.0",
    "in a list": "x[[mask, torch.tensor(False)]] = 1.0",
    "a call": "x.index_put_((mask,), torch.ones(()))",
    "the sum of a call": "x = x.index_put((mask,), x[mask], accumulate=True)",
    "a read": "x = x[mask]",
}


@pytest.mark.parametrize("line", BYTES.values(), ids=BYTES)
def test_a_mask_of_bytes_warns_each_time(line, capfd):
    text = f"def write(x, mask):\n    x = x * 2\n    {line}\n    return x + 1\n"
    name = f"a program with {line}"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), scope)
    for _ in range(2):  # torch is asked about equal calls only once
        same(scope["write"], lambda: (t(2, 3), torch.tensor([1, 0], dtype=torch.uint8)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("count", [0, 1])
def test_a_mask_of_bytes_warns_whatever_it_picks(count, capfd):
    """Without elements to write torch gives no warning at capture, only in a run."""

    def write(x, mask, rows):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x.index_put_((mask,), rows, accumulate=True)
        return x + len(seen)

    def put(x, mask, rows):
        x.index_put_((mask,), rows)
        return x * 2

    for fn in (write, put):
        same(fn, lambda: (t(2, 3), torch.tensor([count, 0]).byte(), torch.ones(count, 3)))
    assert capfd.readouterr() == ("", "")


@agrees()
def test_a_new_dimension_before_a_number_of_the_graph():
    def rows(x, at):
        one = x[None, at]
        two = x[0, None, at]
        three = x[None, :, None, None, at, None]
        return one.stride(), two.stride(), three.stride(), one * 2, two + 1, three.sum()

    ats = [torch.tensor(one) for one in (1, 0, -1, 1)]
    return rows, (t(2, 3, 4), ats[0]), [lambda at=at: (t(2, 3, 4), at) for at in ats[1:]]


@agrees()
def test_results_of_a_size_from_data_in_a_tensor_of_the_program():
    def places(x):
        found = torch.empty(0, dtype=torch.int64)
        picked = torch.empty(0)
        torch.nonzero(x > 0, out=found)
        torch.masked_select(x, x > 0, out=picked)
        return found + 1, picked * 2

    return places, (t(3, 3),)


@agrees()
def test_sizes_that_no_memory_has():
    def enlarged(x):
        try:
            x.resize_([2, 4, 2**29, 2**29])
        except RuntimeError:
            y = torch.ones(2) + len(x.shape)
        try:
            x.resize_([8, 8, 2**29, 2**29])
        except RuntimeError:
            return y * 2

    return lambda: enlarged(torch.empty(())), ()


CASTS = """
import sys, warnings
import torch
from graftjit import JitConfig, jit

def cast(x, number):
    y = torch.zeros(2)
    way = sys.argv[2]
    if way == "copied":
        y.copy_(number)
    elif way == "set":
        x[0:1] = number[0:1]
    else:
        y = number.to(torch.float32)
    return y * 2

run = cast if sys.argv[1] == "plain" else jit(cast)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        print(run(torch.ones(2), torch.ones(2, dtype=torch.complex64)))
print([(str(one.message), one.lineno) for one in seen])
"""


@pytest.mark.parametrize("way", ["copied", "set", "cast"])
def test_a_cast_that_drops_imaginary_parts_warns_once_at_its_line(way):
    plain, jitted = (
        subprocess.run([sys.executable, "-c", CASTS, face, way], capture_output=True, text=True)
        for face in ("plain", "jitted")
    )
    assert "discards the imaginary part" in plain.stdout
    assert jitted.stdout == plain.stdout, jitted.stderr


@pytest.mark.parametrize("at", [[1, 0], [0, -2], [0, 0]])
@pytest.mark.parametrize("level", ["O0", "O1"])
def test_positions_in_a_dimension_of_one_element_are_checked(at, level):
    def read(x, at):
        return x[:1].index_select(0, at).sum(), x[:1][at] * 2, torch.gather(x[:1], 0, at) + 1

    def outcome(fn):
        try:
            return [one.tolist() for one in fn(torch.arange(1.0, 5.0), torch.tensor(at))]
        except (IndexError, RuntimeError) as error:
            return type(error), str(error)

    assert outcome(jit(read, config=JitConfig(jit_level=level))) == outcome(read)
