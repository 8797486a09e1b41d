"""Results of a size that data decide: `x[mask]`, `nonzero`, `where(condition)`, `unique`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit

from ..harness import agrees, t
from .series import giving, series, trained


def rows():
    """Tensors with several positive numbers, one, none and only such."""
    made = torch.Generator().manual_seed(3)
    some = [torch.randn(6, generator=made) for _ in range(3)]
    one = torch.tensor([-1.0, -2.0, 3.0, -1.0, -0.5, -2.0])
    return [*some, one, -torch.ones(6), torch.ones(6)]


def world(fn, *tensors):
    """The function, called with one of the tensors after the other."""
    return series(fn, tensors or rows())


whole = agrees(graphs=1, breaks=0, recompiles=0)


@whole
def test_positions():
    def f(x):
        i = torch.nonzero(x.sin() > 0).squeeze(-1)
        return i, x.index_select(0, i) * 2, torch.argwhere(x > 0.5)

    return world(f)


@whole
def test_positions_by_dimension():
    def f(x):
        (i,) = torch.where(x.sin() > 0)
        grid = (x[None] + torch.arange(3)[:, None]) > 1
        a, b = torch.where(grid)
        return x[i] * 2, a + b, grid.nonzero(as_tuple=True)

    return world(f)


@whole
def test_a_mask_as_an_index():
    def f(x):
        return x[x > 0], x[x > 0].sum(), x[x <= 0] * 2 + 1

    return world(f)


@whole
def test_rows_by_a_mask():
    def f(x):
        y = x[None] + torch.arange(4)[:, None]
        m = y.sum(1) > 1
        return y[m] * 2, y[m].sum(0), (y[m] @ torch.ones(6, 2)).relu().sum()

    return world(f)


@whole
def test_a_masked_selection():
    def f(x):
        y = torch.masked_select(x, x > 0) * x.sum()
        return y, torch.masked_select(x[None].expand(2, 6), x > 0.5)

    return world(f)


@whole
def test_the_number_of_what_is_selected():
    def f(x):
        y = x[x > 0]
        n = y.shape[0]
        return len(y), y.numel() * 2, torch.zeros(n) + n, y / (n + 1), torch.arange(n)

    return world(f)


@whole
def test_two_parts_again_as_one():
    def f(x):
        return torch.cat([x[x > 0], x[x <= 0]]), torch.cat([x[x > 0], x])

    return world(f)


@whole
def test_repeats_from_a_tensor():
    def f(x):
        n = (x.abs() * 2).long()
        return x.repeat_interleave(n), torch.repeat_interleave(x[None].expand(2, 6), n, dim=1)

    return world(f)


@whole
def test_counts():
    def f(x):
        n = (x.abs() * 3).long()
        return torch.bincount(n), n.bincount(minlength=4) + 1

    return world(f)


@agrees(breaks=0, codes=())
def test_distinct_values():
    def f(x):
        n = (x * 2).long()
        values, places, counts = torch.unique(n, return_inverse=True, return_counts=True)
        return (
            values * 2, places + 1, counts / counts.sum(), values.numel(), x.unique().sum(),
            n.unique(sorted=False, return_counts=True)[1].sum(), (x > 0).unique(),
        )  # fmt: skip

    return world(f, *rows(), torch.zeros(0), torch.ones(2, 3))


@agrees(breaks=0, codes=())
def test_runs_of_equal_values():
    def f(x):
        values, counts = torch.unique_consecutive(x.sign(), return_counts=True)
        last, places = (x > 0.5).unique_consecutive(return_inverse=True)
        return values * counts, last, places * 2, x.round().unique_consecutive() + 1

    return world(f, *rows(), torch.zeros(0))


@whole
def test_distinct_rows():
    def f(x):
        return torch.unique(x[:, None] > 0, dim=0), x + 1

    return world(f)


@whole
def test_a_largest_element_of_what_is_selected():
    def f(x):
        return x[x > 0].sum(), x[x.abs() > 0].amax()

    return world(f)


@agrees(graphs=1)
def test_a_largest_element_of_nothing():
    def f(x):
        return x[x > 0].amax()

    return world(f)


@whole
def test_experts_take_their_rows():
    def f(x):
        tokens = x[None] * torch.arange(1, 7)[:, None]
        out = torch.zeros_like(tokens)
        for expert in range(3):
            rows = torch.where((tokens[:, 0] * 10).long() % 3 == expert)[0]
            out.index_add_(0, rows, tokens[rows] * expert)
        return out

    return world(f)


@whole
def test_a_selection_is_written_to():
    def f(x):
        y = x[x > 0]
        y.mul_(2)
        x.add_(1)
        return y, x[x > 1]

    return world(f)


@agrees()
def test_masks_that_do_not_fit():
    def f(x):
        return x[torch.ones(5, dtype=torch.bool) & (x[:5] > 0)]

    return world(f)


@agrees()
def test_a_broadcast_of_what_is_selected():
    def f(x):
        return x[x > 0] + torch.ones(2)

    return world(f, *rows()[3:5], torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0, -1.0]))


# -- training --------------------------------------------------------------------------------------
whole_training = agrees(graphs=1, breaks=0, recompiles=0, backward=True, codes=())


@whole_training
def test_the_gradient_of_rows_by_a_mask():
    def f(x, layer):
        h = layer(x)
        return (h[x[:, 0] > 0] ** 2).sum()

    return trained(f)


@whole_training
def test_a_selection_with_a_gradient():
    def f(x, layer):
        h = layer(x).tanh()
        return h[h > 0] * 2

    return trained(f)


@whole_training
def test_the_mean_of_a_selection():
    def f(x, layer):
        h = layer(x)
        return torch.masked_select(h, h > h.mean() - 9).mean()

    return trained(f)


@whole_training
def test_experts_with_a_gradient():
    def f(x, layer):
        h = layer(x)
        out = torch.zeros_like(h)
        for expert in range(2):
            (rows,) = torch.where((x[:, 0] > 0).long() == expert)
            out = out.index_add(0, rows, h[rows] * (expert + 1))
        return (out * out).sum()

    return trained(f)


# -- operators with rules for sizes of 0 and 1 -----------------------------------------------------
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
MASKS = [[1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]]
conv = nn.Conv2d(2, 3, 2)
norm = nn.BatchNorm2d(2).eval()
OPERATORS = {
    "conv2d": lambda x: conv(x),
    "batch_norm": lambda x: norm(x),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "einsum": lambda x: torch.einsum("abcd,abce->ade", x, x),
    "matmul": lambda x: x[:, 0] @ x[:, 1],
    "stack": lambda x: torch.stack([x, x * 2]),
    "roll": lambda x: x.roll(1, 0),
    "topk": lambda x: x.flatten().topk(2)[0],
    "glu": lambda x: F.glu(x, 2),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_usual_sizes(name):
    """Other sizes run as written."""
    work = OPERATORS[name]

    def f(x, mask):
        return work(x[mask])

    run, x = jit(f), t(3, 2, 4, 4)
    for mask in MASKS:
        given = x, torch.tensor(mask).bool()
        wanted, found = (_outcome(one, *given) for one in (f, run))
        if isinstance(wanted, str):
            assert wanted == found
        else:
            torch.testing.assert_close(found, wanted)
            assert found.stride() == wanted.stride()
    # before, matmul asks whether the two sizes that data decide are equal
    least = 1 if name == "matmul" and TORCH < (2, 13) else 0
    assert run.report().break_count <= least, run.report()


def _outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return f"{type(error)}: {error}"


@agrees(breaks=0)
def test_usual_sizes_of_masks_of_sizes_that_vary():
    def f(x):
        return conv(x[x[:, 0, 0, 0] > -2])

    return series(f, [t(size, 2, 4, 4) for size in (3, 4, 5, 6)])


def test_sizes_that_are_not_usual():
    """After a few calls in which a size is 0 or 1, none is assumed."""

    def f(x, mask):
        return conv(x[mask]) * 2

    run, x = jit(f), t(3, 2, 4, 4)
    few, many = torch.tensor([True, False, False]), torch.ones(3).bool()
    for at in range(40):
        mask = few if at % 2 else many
        torch.testing.assert_close(run(x, mask), f(x, mask))
    report = run.report()
    assert report.break_count == 1, report
    ran = sum(row.count for row in report.notes if row.code == "GB108")
    assert 0 < ran < 20, report


@agrees(breaks=0)
def test_positions_and_rows_of_one_mask():
    def f(x, mask):
        at = mask.nonzero()[:, 0]
        return torch.zeros(3, 2).index_add(0, at, x[mask])

    masks = [torch.tensor(mask).bool() for mask in MASKS]
    return f, (t(3, 2), masks[0]), [giving(t(3, 2), mask) for mask in masks]


@agrees(breaks=0)
def test_rows_of_a_part_of_a_tensor():
    def f(x, mask):
        return x[:, 1][mask], x[:, 0].transpose(0, 1)[:4, mask]

    return f, (t(3, 2, 4, 5), torch.tensor([True, False, True]))


@agrees(codes=("GB104",))
def test_an_operator_without_a_rule_for_such_sizes():
    """The graph ends there, not at the mask."""
    layer = nn.LSTM(4, 3, batch_first=True)

    def f(x, mask):
        return layer(x[mask] * 2)[0]

    return f, (t(3, 2, 4), torch.tensor([True, False, True]))


def labelled(fn):
    """The function, called with the labels of rows, of which some are none, one or all."""
    labels = [[0] * 5, [1, 0, 2, 1, 0], [0, 0, 0, 0, 1], [1] * 5, [2, 2, 1, 0, 0]]
    rest = [giving(t(5, 3), torch.tensor(one)) for one in (*labels, *labels)]
    return fn, (t(5, 3), torch.tensor(labels[1])), rest


# Of torch's own rules for sizes of 0 and 1 there is a break at most.
EMPTY = agrees(breaks=0)


@EMPTY
def test_whether_a_mask_selects_no_element():
    def f(x, labels):
        y = x[labels > 0]
        if y.numel() == 0:
            return x.sum()
        return y.mean(0)

    return labelled(f)


@EMPTY
def test_whether_there_are_positions():
    def f(x, labels):
        at = torch.nonzero(labels > 0).squeeze(-1)
        loss = x[at].sum() if at.numel() > 0 else x.sum() * 0
        (others,) = (labels == 2).nonzero(as_tuple=True)
        if not len(others):
            return loss
        if len(others) + at.shape[0] < 4:
            loss = loss * 2
        return loss, x[others] * 3

    return labelled(f)


@EMPTY
def test_whether_there_are_rows_of_each_class():
    def f(x, labels):
        for k in range(3):
            (at,) = torch.where(labels == k)
            if at.numel() == 0:
                continue
            x = x.index_add(0, at, x[at])
        return x

    return labelled(f)


@agrees()
def test_a_mask_that_is_written_before_its_count_is_asked():
    def f(x, labels):
        keep = labels > 0
        n = x[keep].shape[0]
        keep[0] = True
        labels.zero_()
        if n == 0:
            return x
        return x[keep]

    return labelled(f)


@whole
def test_unique_slices_in_a_dimension():
    def f(x):
        grid = (x.view(2, 3) * 2).round().clamp(-1, 1)[None].expand(2, 2, 3).contiguous()
        rows, places, times = torch.unique(grid, return_inverse=True, return_counts=True, dim=0)
        columns = torch.unique(grid, dim=-1)
        runs, lengths = torch.unique_consecutive(grid, return_counts=True, dim=2)
        line, at = torch.unique_consecutive(x > 0, return_inverse=True, dim=0)
        return rows * 2, places, times, columns + 1, runs.stride(), runs, lengths, line, at

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_rows_of_a_mask_that_selects_all_of_two():
    """Torch's rules for sizes of 0 and 1 leave one size, which is checked before a row is read."""

    def f(x):
        total = 0
        for row in x[x[:, 0] > -9]:
            total = total + row * 2
        return total, x + 1

    tens = torch.tensor([[-10.0, 1.0], [2.0, 3.0]])
    return series(f, [t(2, 2), t(2, 2) - 20, tens, tens.flip(0), t(2, 2) + 1])


@whole
def test_a_result_of_a_size_from_data_that_is_written_to():
    def f(x):
        i = torch.nonzero(x > 0)
        i.add_(1)
        part = x[x > 0.1]
        part.fill_(2)
        view = x[x <= 0][:]
        view.mul_(3)
        return i, part, part.shape[0], view, torch.ones(i.shape[0])

    return world(f)


@whole
def test_a_size_from_data_after_the_values_are_replaced():
    def f(x):
        i = torch.nonzero(x > 0)
        i.zero_()
        return i.sum() + 1, x.unique().fill_(1)

    return world(f)
