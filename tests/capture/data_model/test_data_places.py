"""Places from data: tensors as indices and as bounds of slices, lengths of parts, routed rows."""

from __future__ import annotations

import torch

from ..harness import agrees
from .series import series, trained

whole = agrees(graphs=1, breaks=0, recompiles=0)


def world(fn, *places):
    """The function, called with six rows and one tensor of places after the other."""
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    return series(lambda at: fn(x, at), places)


def bounds():
    return [torch.tensor(at) for at in ([1, 4], [0, 6], [2, 2], [0, 0], [3, 5])]


def routes():
    made = torch.Generator().manual_seed(5)
    every = [torch.randint(0, 3, (6,), generator=made) for _ in range(4)]
    return [*every, torch.zeros(6, dtype=torch.int64)]


@whole
def test_a_slice_between_tensors():
    def f(x, at):
        return x[at[0] : at[1]] * 2, x[:, None][at[0] : at[1], 0].sum(0)

    return world(f, *bounds())


@agrees(graphs=1, breaks=0)
def test_bounds_outside_of_the_tensor():
    """The program checks what it takes for granted; Python's clamping and wrapping are eager's."""

    def f(x, at):
        return x[at[0] : at[1]] * 2

    return world(f, *bounds(), torch.tensor([2, 9]), torch.tensor([-3, -1]), torch.tensor([4, 1]))


@agrees(graphs=1, breaks=0)
def test_an_element_by_a_tensor():
    def f(x, at):
        y = x.sin()
        y[at[1], 2] = 7.0
        return x[at[0]] + 1, y, x[at[1], 1:] * 2

    last = torch.tensor([-1, -6])
    return world(f, torch.tensor([1, 4]), torch.tensor([0, 5]), last, torch.tensor([2, 3]))


@agrees(graphs=1, breaks=0)
def test_an_element_outside_raises_as_in_eager_mode():
    def f(x, at):
        return x[at[0]] + 1

    return world(f, torch.tensor([1]), torch.tensor([6]))


@whole
def test_a_written_slice():
    def f(x, at):
        y = torch.zeros_like(x)
        y[at[0] : at[1]] = x[at[0] : at[1]] * 2
        y[at[0] : at[1]] += 1
        return y

    return world(f, *bounds())


@whole
def test_a_place_that_is_written_between_two_reads():
    def f(x, at):
        at = at.clone()
        first = x[at[0] : at[1]]
        at[0] = 1
        at[1] += 1 - at[1] + 4
        return first * 2, x[at[0] : at[1]] * 2

    return world(f, *bounds())


@agrees(breaks=1)
def test_a_number_of_bytes_is_a_mask():
    def f(x, at):
        return x[at[0].to(torch.uint8)] * 2

    return world(f, torch.tensor([1]))


@agrees(graphs=1, breaks=0)
def test_parts_of_lengths_from_data():
    def f(x, at):
        return [part.relu() + 1 for part in x.split(at.tolist())]

    return world(f, *(torch.tensor(at) for at in ([2, 4], [0, 6], [6, 0], [3, 3])))


@agrees(graphs=1, breaks=0)
def test_parts_that_do_not_add_up():
    def f(x, at):
        return [part + 1 for part in torch.split(x, at.tolist())]

    return world(f, torch.tensor([2, 4]), torch.tensor([2, 3]), torch.tensor([-1, 7]))


@whole
def test_parts_one_after_the_other():
    def f(x, at):
        counts = torch.nn.functional.one_hot(at, 3).sum(0)
        rows, start, made = x[at.argsort()], 0, []
        for count in counts.tolist():
            made.append(rows[start : start + count] * 2)
            start += count
        return torch.cat(made)

    return world(f, *routes())


@whole
def test_parts_between_sums_of_tensors():
    def f(x, at):
        counts = torch.nn.functional.one_hot(at, 3).sum(0)
        rows, start, made = x[at.argsort()], 0, []
        for count in counts:
            end = start + count
            made.append(rows[start:end] * 2)
            start = end
        return torch.cat(made)

    return world(f, *routes())


@whole
def test_one_product_for_each_part():
    def f(x, at):
        counts = torch.bincount(at, minlength=3).cumsum(0)
        ends = torch.cat([counts.new_zeros(1), counts])
        rows, y = x[at.argsort()], torch.zeros_like(x)
        for e in range(3):
            y[ends[e] : ends[e + 1]] = rows[ends[e] : ends[e + 1]] @ x[:4]
        return y

    return world(f, *routes())


@whole
def test_rows_added_where_they_came_from():
    def f(x, at):
        y = torch.zeros_like(x)
        for e in range(3):
            rows, where = torch.where((at == e)[:, None].expand(6, 2).t())
            kept = x[None, where].reshape(-1, 4)
            y.index_add_(0, where, kept * (rows[:, None] + e))
        return y

    return world(f, *routes())


@agrees(graphs=1, breaks=0, recompiles=0)
def test_gradients_of_parts():
    def f(x, layer):
        h = layer(x)
        counts = torch.nn.functional.one_hot((x[:, 0] > 0).long(), 2).sum(0).tolist()
        parts = [part * (i + 1) for i, part in enumerate(h.split(counts))]
        return (torch.cat(parts).tanh() ** 2).sum()

    return trained(f)


# -- writes through masks --------------------------------------------------------------------------
@whole
def test_rows_that_a_mask_reads_and_writes():
    def f(x, at):
        y = torch.zeros_like(x)
        for e in range(3):
            mask = at == e
            y[mask] = x[mask] * (e + 1)
        y[at == 1] += 1
        y[at == 2] = 0.5
        return y

    return world(f, *routes())


@whole
def test_columns_of_one_mask():
    def f(x, at):
        masks, y = torch.stack([at == 1, at == 2], 1), torch.zeros_like(x)
        for e in range(2):
            y[masks[:, e]] = x[masks[:, e]].tanh() * (e + 2)
        y[masks[:, 0], 1:] = 7
        return y

    return world(f, *routes())


@whole
def test_a_mask_that_is_written_between_two_reads():
    def f(x, at):
        y, mask = x.clone(), at == 1
        before = x[mask]
        mask[0] = True
        y[mask] = x[mask] * 3
        return y, before

    return world(f, *routes())


@agrees(graphs=1, breaks=0)
def test_a_value_of_another_size():
    """One row is as good as many; else it raises."""

    def f(x, at):
        y = x.clone()
        y[at == 1] = x[at == 2]
        return y

    same, one, wrong = [1, 2, 1, 0, 2, 0], [1, 2, 1, 0, 0, 1], [1, 2, 2, 0, 0, 0]
    return world(f, *map(torch.tensor, (same, one, wrong)))


@agrees()
def test_a_value_of_another_size_after_a_write():
    def f(x, at):
        written = x[0]
        written += 1
        print("written")
        y = x.clone()
        try:
            y[at == 1] = written.expand(2, 4)
        except RuntimeError:
            y -= 1
        return y

    return world(f, *map(torch.tensor, ([1, 2, 1, 0, 2, 0], [1, 2, 1, 0, 0, 1])))


@agrees(graphs=1, breaks=0, recompiles=0, backward=True)
def test_gradients_of_rows_that_a_mask_writes():
    def f(x, layer):
        h = layer(x)
        y, mask = torch.zeros_like(h), x[:, 0] > 0
        y[mask] = h[mask] * 2
        y[~mask] = h[~mask].tanh()
        return (y * y).sum()

    return trained(f)
