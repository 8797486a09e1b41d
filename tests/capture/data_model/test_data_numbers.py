"""Numbers that the graph reads from tensors: `loss.item()`, `int(n)`, `lengths.tolist()`."""

from __future__ import annotations

import math

import pytest
import torch

from graftjit import jit

from ..harness import agrees, t
from .series import giving, series, trained


def rows(count=4, size=6):
    """Tensors with other numbers in each call."""
    made = torch.Generator().manual_seed(3)
    return [torch.randn(size, generator=made) for _ in range(count)]


def world(fn, *tensors):
    """The function, called with one of the tensors after the other."""
    return series(fn, tensors or rows())


# -- arithmetic ------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_float_in_arithmetic_with_a_tensor():
    def f(x):
        total = x.sin().sum().item()
        return x * total + 1, x / (total + 10), total - x

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_numbers_that_are_returned():
    def f(x):
        y = torch.sin(x)
        total = y.sum().item()
        return y, total, total * 2 + 1, {"mean": y.mean().item(), "n": y.numel()}

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_numbers_alone_are_returned():
    def f(x):
        return torch.sin(x).sum().item()

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_one_number_after_another():
    def f(x):
        y = x.relu() + 1
        most = y.max().item()
        y = y / most
        mean = y.mean().item()
        return (y - mean) * most

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_an_int_of_a_tensor():
    def f(x):
        i = (x.sin() * 100).int()
        n = i.abs().max().item()
        return i * n, i + n, x + n, i // (n + 1), x / (n + 1), n // 2, n / 2, n % 5, n

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_int_and_float_of_a_tensor():
    def f(x):
        return x * float(x.sin().sum()), int(x.sin().sum() * 10), float((x * 9).sin().int().sum())

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_the_promotion_of_a_number_is_that_of_pythons():
    def f(x):
        n, k = x.sin().sum().item(), (x.sin() * 9).long().sum().item()
        h, b, i = x.half(), x.bfloat16(), (x * 3).int()
        return h * n, h + k, b * n, b + k, i * n, i + k, i.double() * n, (x > 0) * k

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_short_list():
    def f(x):
        first, second = (x[:2].sin() * 9).int().tolist()
        rest = x[2:].sin().reshape(2, 2).tolist()
        return x * first + second, rest, x.cos().sum().tolist()

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_list_of_truths_that_is_returned():
    def f(x):
        first, second = (x[:2] > 0).tolist()
        rest = (x[2:] > 0).reshape(2, 2).tolist()
        return x * first + second, rest, first, [second], (x > 2).any().tolist()

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_number_as_an_argument():
    def f(x):
        n = x.sin().max().item()
        y = x.clone()
        y[0] = n
        return (
            x.clamp(max=n), torch.full((3,), n), x.masked_fill(x > 0, n), torch.add(x, x, alpha=n),
            torch.where(x > n, x, n), torch.tensor(n), y,
        )  # fmt: skip

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_functions_of_a_number():
    def f(x):
        n = x.abs().sin().sum().item() + 1
        return x * math.log(n), math.sqrt(n), -n, abs(n), int(n), n**2, math.isfinite(n)

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_functions_of_several_numbers():
    def f(x):
        a, b = x.abs().sum().item() + 1, x.sin().max().item()
        low, high = min(a, b, 0.5), max(a, 3.0)
        dt = 0.9 * math.sqrt(0.1 / max(b, 1e-9))
        n = int((x > 0).sum())
        return x * low, high, x * min(2.0, dt), round(a, 3), min(n, 2), max(n, 3), math.atan2(a, b)

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_tensors_where_torch_wants_sizes():
    def f(x):
        n = (x > 0).sum()
        halves = torch.div(x.size(0), 2, rounding_mode="trunc")
        made = x.new_zeros((2, halves + 1)), torch.full((n,), n), torch.arange(n + 1)
        return x.view(halves, -1), *made, x.reshape([halves, 2]), torch.ones(size=(n, 2))

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_tensors_of_tensors_and_numbers():
    def f(x):
        n, most = (x > 0).sum(), x.detach().max()
        sizes = torch.cat([torch.as_tensor([-1]), torch.as_tensor([2, 3])])
        made = torch.tensor([n, 2.5, True]), torch.as_tensor([most, 1], dtype=torch.float32)
        return x.reshape(sizes.tolist()[1:]), *made, torch.tensor((n, 3))

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_bounds_in_a_tensor_of_constants():
    def f(x, lengths):
        ends = torch.tensor(lengths).cumsum(-1)
        starts = torch.tensor([0, *lengths[:-1]]).cumsum(-1)
        mask = torch.full((6, 6), -1.0)
        for start, end in zip(starts, ends, strict=True):
            mask[start:end, start:end] = 0
        return mask @ x, x[ends[0]], mask[ends[0] : ends[1]].shape

    return f, (torch.rand(6), [2, 3, 1])


@agrees(graphs=2, breaks=1, recompiles=0)
def test_a_list_of_tensors_of_another_dtype_is_read_by_python():
    def f(x):
        return torch.tensor([x.max(), 2], dtype=torch.float64) * 2

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_values_of_a_loop():
    def f(x):
        seen = []
        for _ in range(3):
            x = x.sin() * 2
            seen.append(x.sum().item())
        return x, seen

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_later_write_does_not_change_the_number():
    def f(x):
        y = x.sin()
        n = y[0].item()
        y.mul_(n)
        y[1:].add_(y[0].item())
        return y, n

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_number_is_stored():
    class Meter:
        def __init__(self):
            self.total = self.last = 0.0

    meter = Meter()

    def f(x):
        loss = x.sin().sum()
        meter.total = meter.total + loss.item()
        meter.last = loss.item()
        return loss * 2, meter

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_an_input_is_written_by_a_number():
    def f(x):
        n = x.sin().sum().item()
        x.mul_(n)
        return x + x.sum().item()

    return world(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_view_of_memory_before_the_read():
    def f(x):
        y = x.sin()
        part = y[1:]
        n = part.sum().item()
        part.mul_(n)
        return y, part, y.t() + n

    return world(f)


# -- truth values ----------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0)
def test_truth_values():
    def f(x):
        h = x.sin() * x
        large, total = bool((h > 0.5).any()), h.sum()
        return h, large, not large, (h > 0.9).all().item(), bool(total), not total

    return world(f, *rows(), torch.zeros(6))


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_truth_value_in_arithmetic():
    def f(x):
        large = bool((x.sin() * x > 0.9).any())
        y = x.clone()
        y *= large
        z = (x > 0) * large
        return x * large, large + x, y, z, large + 1, -large, large * 2.5, large == 0, large + large

    return world(f, *rows(), torch.zeros(6))


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_truth_value_is_stored():
    class Watch:
        found = None

    watch = Watch()

    def f(x):
        watch.found = bool(torch.isnan(x.log()).any())
        return x + 1, watch

    return world(f, *rows(), torch.ones(6))


@agrees(graphs=1, breaks=0, recompiles=0)
def test_comparisons_of_numbers():
    def f(x):
        n, k = x.sin().sum().item(), (x.sin() * 9).long().sum().item()
        small = (x.sin() * 9).int().sum(dtype=torch.int32).item()
        return n > 0.5, 1 <= n, n == n, k < 3, k != 0, 3 >= k, small < 0.5, n == small, k == small

    nan = torch.full((6,), math.nan)
    return world(f, *rows(), torch.zeros(6), nan)


@agrees(breaks=1)
def test_a_comparison_that_torch_would_round():
    def f(x):
        k = (x * (1 << 56)).long().sum().item()
        return k > float(1 << 56), x + 1

    return world(f, torch.ones(1), torch.ones(1))


@agrees(graphs=3, breaks=1, recompiles=0)
def test_a_branch_on_a_truth_value():
    def f(x):
        h = x.exp()
        large = bool((h > 3).any())
        if large:
            return h - 1, large
        return h + 1, large

    return world(f, *rows(6))


# -- where a plain number is needed ----------------------------------------------------------------
@agrees(breaks=1)
def test_a_branch_ends_the_graph_there():
    def f(x):
        n = x.sin().sum().item()
        y = x * n
        return y + 1 if n > 0 else y - 1

    return world(f)


@agrees(breaks=1)
def test_a_text_that_decides():
    def f(x):
        n = x.sin().sum().item()
        y = x * n
        return {"0.000": 1}.get(f"{n:.3f}", 2), y

    return world(f, t(3), t(3))


# -- errors ----------------------------------------------------------------------------------------
@agrees()
def test_several_elements():
    def f(x):
        return x.sin().item()

    return world(f)


@agrees(graphs=1)
def test_the_int_of_nan():
    def f(x):
        y = x * 2
        return y, int((x.sin() / x).sum())

    return world(f, t(3) + 2, torch.zeros(3), t(3) + 3, torch.tensor([0.0, math.inf, 1.0]))


@agrees(graphs=1)
def test_a_division_by_zero_after_a_write():
    def f(x):
        x.add_(1)
        n = x.sin().sum().item()
        y = x * (1 / n)
        x.mul_(2)
        return y

    return world(f, t(3) + 2, -torch.ones(3), t(3) + 3)


@agrees(graphs=1)
def test_random_numbers_are_drawn_once():
    def f(x):
        noise = torch.rand(3)
        n = x.sin().sum().item()
        return noise * (1 / n), torch.rand(2)

    def caught(x):
        try:
            return f(x)
        except ZeroDivisionError:
            return torch.rand(2)

    return world(caught, t(3) + 2, torch.zeros(3), t(3) + 3, torch.zeros(3))


@agrees(graphs=1)
def test_a_number_that_the_dtype_does_not_hold():
    def f(x):
        n = x.sin().sum().item() * 1e30
        return torch.full((2,), n * n)

    return world(f, t(3) + 2, t(3) * 1e-20, t(3) + 3)


# -- sizes -----------------------------------------------------------------------------------------
def counts(*numbers):
    return [torch.tensor([float(n), 1.0, 2.0, 3.0, 4.0]) for n in numbers]


def sized(fn):
    """Sizes of all kinds: none, one, several."""
    return world(fn, *counts(3, 5, 1, 0, 2))


@agrees(graphs=1, breaks=0, recompiles=0)
def test_tensors_of_a_size_from_data():
    def f(x):
        n = (x.relu()[0] * 1.0).int().item()
        return (
            torch.arange(n) * 2, torch.arange(0, n, 2), torch.zeros(n) + x.sum(),
            torch.full((n, 2), 1.5) * x.sum(), torch.ones(n, 5) + x, torch.ones(2, n).sum(),
        )  # fmt: skip

    return sized(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_slices_by_a_number_from_data():
    def f(x):
        n = (x.relu()[0] * 1.0).int().item()
        return x[:n] * 2, x[n:] + 1, x.narrow(0, 0, n).sum(), x[:n].sum()

    return sized(f)


@agrees(graphs=1)
def test_a_slice_beyond_the_end_and_from_the_end():
    def f(x):
        n = (x[0] * 1.0).int().item()
        return x[:n] * 2

    return world(f, *counts(3, 9, -2, 2))


@agrees(graphs=1)
def test_an_index_from_data():
    def f(x):
        n = (x[0] * 1.0).int().item()
        return x[n] * 2

    return world(f, *counts(3, 4, -2, 9, 2))


@agrees(graphs=1)
def test_a_negative_size():
    def f(x):
        n = (x[0] * 1.0).int().item()
        return torch.zeros(n) + x.sum()

    return world(f, *counts(3, -4, 2))


@agrees()
def test_a_loop_over_a_number_from_data():
    def f(x):
        n = (x[0] * 1.0).int().item()
        for _ in range(n):
            x = x * 2
        return x

    return world(f, *counts(3, 4, 2))


# -- training --------------------------------------------------------------------------------------
@agrees(graphs=1, breaks=0, recompiles=0, backward=True, codes=())
def test_a_number_cuts_the_gradient():
    def f(x, layer):
        h = layer(x).tanh()
        scale = h.abs().max().item()
        return (h * scale).sin().sum()

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0, backward=True, codes=())
def test_a_loss_and_its_number():
    def f(x, layer):
        loss = (layer(x) ** 2).mean()
        return loss, loss.item()

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0, backward=True)
def test_a_number_and_several_results():
    def f(x, layer):
        h = layer(x).tanh()
        y = h * h.sum().item()
        return y, (y * 2).sum()

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0, backward=True)
def test_rows_by_a_number_with_a_gradient():
    def f(x, layer):
        n = (x.abs().sum().int() % 3 + 1).item()
        return (layer(x)[:n] * n).sum()

    return trained(f)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_backward_inside_and_the_loss_as_a_number():
    def f(x, layer):
        layer.zero_grad()
        loss = (layer(x) ** 2).mean()
        loss.backward()
        return loss.item(), layer.weight.grad.clone()

    return trained(f)


def test_a_second_derivative():
    def f(x):
        y = x.sin()
        return (y * y.sum().item()).sum()

    run = jit(f)
    for x in rows():
        grads = []
        for fn in (f, run):
            leaf = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(fn(leaf), leaf, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), leaf)
            grads.append(second)
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("value", [0.1, 1e-30, 3.0e38, -0.0])
def test_the_number_is_exact(value):
    @jit
    def f(x):
        y = x * 1
        return y.max().item()

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor([value], dtype=dtype)
        for _ in range(3):
            found = f(x)
            assert type(found) is float and (found, math.copysign(1, found)) == (
                x.item(),
                math.copysign(1, x.item()),
            )


# -- numbers that torch reads from tensors ---------------------------------------------------------
@agrees(breaks=0)
def test_two_numbers_of_one_call():
    """The second one is computed of more operators than the first one."""
    stride, extra = torch.tensor(2), torch.tensor(1)

    def f(x):
        more = -(x.shape[-1] - extra) % stride
        return torch.nn.functional.pad(x, (extra, more))

    return series(f, [t(5), t(8), t(5)])


@agrees(breaks=0)
def test_a_size_beside_a_tensor_in_a_condition():
    least = torch.tensor(3)

    def f(x):
        return x + 1 if x.shape[0] * 2 <= least else x * 2

    return series(f, [t(size) for size in (2, 3, 4, 5, 6)])


@agrees(breaks=0)
def test_positions_computed_of_sizes():
    """The ends of a range: each size has an entry of its own."""

    def f(x):
        at = torch.arange(0, x.shape[0]).to(x.dtype)
        return torch.arange(at[-1] + 2, at[0] - 1, -1, dtype=torch.long)

    return series(f, [t(size) for size in (4, 5, 6, 7, 8, 9)])


class Padding(torch.nn.Module):
    """A convolution that cuts what it has padded, by numbers in buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("before", torch.tensor(2))
        self.register_buffer("beyond", torch.tensor(1))
        self.conv = torch.nn.Conv1d(3, 3, 3, groups=3)

    def forward(self, x):
        more = max(self.before, self.beyond) - 1
        x = torch.nn.functional.pad(x, (self.before, self.beyond))
        return self.conv(x[..., : x.shape[-1] - more]).sin()


@agrees(graphs=2, breaks=0, recompiles=1)
def test_slices_by_numbers_in_buffers():
    """The convolution has sizes that are known, and another size once a buffer is another one."""
    torch.manual_seed(4)
    layers = torch.nn.Sequential(*(Padding() for _ in range(4)))
    x = torch.randn(2, 3, 8)

    def other():
        layers[1].before.fill_(3)
        return (x,)

    return lambda x: layers(x), (x,), [giving(x + 1), other, giving(x - 1)]


@agrees(breaks=0)
def test_a_slice_by_a_buffer_that_each_call_changes():
    at = torch.tensor(1)

    def f(x):
        found = x[at:] * 2, x[:at].sin()
        at.add_(1)
        return found

    return f, (t(9),), [giving(t(9))] * 6


@agrees(breaks=0)
def test_many_conditions_on_buffers():
    limits = [torch.tensor(at) for at in range(30)]

    def f(x):
        for limit in limits:
            x = x + 1 if limit > 10 else x * 0.5
        return x

    return f, (t(3),)


@agrees(breaks=0)
def test_conditions_on_buffers_of_a_deep_model():
    sizes = [(torch.tensor(at), torch.tensor(2 * at), torch.tensor(9)) for at in range(30)]

    def f(x):
        for small, large, most in sizes:
            x = x + 1 if small > 10 else x * 0.5
            if max(small, large) < most:
                x = torch.nn.functional.pad(x, (0, small % 2))
        return x

    return f, (t(3),)


# -- conditions on memory that the frame has written -----------------------------------------------
IDS = [torch.tensor(one) for one in ([[3, 4, 1]], [[3, 1, 4]], [[3, 4, 5]], [[1, 1, 1]])]


@agrees(breaks=0)
def test_a_condition_on_a_copy_that_the_frame_has_written():
    def f(ids):
        shifted = ids.clone()
        shifted[:, 1:] = ids[:, :-1]
        shifted[:, 0] = 2
        shifted.masked_fill_(shifted == 4, 7)
        mask = shifted.eq(1)
        return shifted * 2 if not mask.any() else shifted + mask

    return series(f, IDS)


@agrees(breaks=0)
def test_conditions_on_what_is_looked_up():
    ends, edges = torch.tensor([1, 5]), torch.tensor([2, 4])

    def f(ids):
        done = torch.isin(ids, ends)
        if done.all():
            return ids * 2
        if torch.isin(ids[0, 1], torch.tensor([4])):
            return ids - 1
        return ids + (1 if (torch.bucketize(ids, edges) == 1).any() else 3)

    return series(f, IDS)


@agrees(breaks=0)
def test_a_condition_on_an_argument_that_the_frame_has_written():
    def f(ids):
        ids.masked_fill_(ids == 4, 1)
        ids[:, :1].add_(0)
        mask = ids.eq(1)
        return ids * 2 if mask.sum() < 2 else ids + mask

    more = [torch.full((2, n), n) for n in (2, 3, 4, 5)]
    return series(f, [one.clone() for one in (*IDS, *more)])


@agrees()
def test_conditions_between_writes_to_an_argument():
    def f(ids, row):
        first = ids[0, 0] == 3
        found = [bool(first)]
        ids[0, 0] = 1
        found += [bool(ids[0, 0] == 3), bool(first), bool(row.sum() > 8)]
        row.add_(1)
        return found, bool(ids.sum() > 9), ids + 1

    copies = [one.clone() for one in IDS]
    return series(f, [(one, one[0]) for one in copies])


@agrees()
def test_conditions_before_and_after_a_write():
    def f(ids):
        copy = ids * 1
        row = copy[0]
        first = row[0] == 3
        found = [bool(first), bool(row.sum() > 8)]
        row[0] = 1
        found += [bool(first), bool(row[0] == 3), bool(row.sum() > 8)]
        copy.zero_()
        return found, bool(row.any()), copy + 1

    return series(f, IDS)


@agrees()
def test_a_condition_on_memory_that_a_step_may_have_written():
    def f(ids):
        out = ids[0] * 0
        for i in range(3):
            if ids[0, i] * 2 == 2:
                continue
            out[i] = ids[0, i]
        return ids + 1 if out.sum() > 8 else ids - 1

    return series(torch.no_grad()(f), IDS)
