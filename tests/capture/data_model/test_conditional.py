"""Bodies of loops that tensor data skip: one graph for all outcomes."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

import graftjit

from ..harness import agrees
from .series import series

whole = agrees(graphs=1, breaks=0, recompiles=0)


def rows():
    """Tensors with several positive numbers, one, none and only such."""
    made = torch.Generator().manual_seed(5)
    some = [torch.randn(5, generator=made) for _ in range(4)]
    return [*some, -torch.ones(5), torch.ones(5)]


def world(fn):
    """The function, called with one of the tensors after the other, without gradients."""
    return series(torch.no_grad()(fn), rows())


@whole
def test_a_step_that_goes_on_at_once():
    def f(x):
        out = torch.zeros(5)
        for i in range(5):
            if x[i].sin() <= 0:
                continue
            out[i] = x[i] * (i + 1)
        return out.relu() + x

    return world(f)


@whole
def test_the_rest_of_a_step_under_a_condition():
    def f(x):
        out = x.sin()
        for i in range(4):
            if out.sum() > i:
                out.mul_(2).sub_(x)
        return out

    return world(f)


@whole
def test_a_condition_on_a_size():
    def f(x):
        out = x * 2
        for i in range(3):
            (at,) = torch.where(x.sin() > i * 0.3)
            if at.shape[0] == 0:
                continue
            out.index_add_(0, at, x[at] * 3)
        return out

    return world(f)


@whole
def test_the_rows_of_nonzero():
    layers = [torch.randn(5, 5) for _ in range(5)]

    def f(x):
        out = torch.zeros(5)
        hit = torch.greater(x.sin(), 0).nonzero()
        for i in hit:
            out += layers[i] @ x * x[i]
        return out

    return world(f)


@whole
def test_the_numbers_of_nonzero_in_a_list():
    layers = {f"layer_{i}": torch.randn(5, 5) for i in range(5)}

    def f(x):
        out = torch.zeros(5)
        hit = torch.nonzero(x.sin() > 0, as_tuple=True)[0].tolist()
        for i in hit:
            out += layers[f"layer_{i}"] @ x * x[i] * i
        return out

    return world(f)


@whole
def test_the_positions_of_a_condition():
    def f(x):
        out = torch.zeros(5)
        for i in torch.where(x.sin() > 0)[0]:
            out[i] += x.roll(1)[i]
        for i in (x.cos() > 0).nonzero().squeeze(1).tolist():
            out[i] *= i + 2
        return out

    return world(f)


@agrees()
def test_a_list_of_positions_is_a_list():
    def f(x):
        out = x * 2
        one, two, three, four = ((x > 0).nonzero().flatten().tolist() for _ in range(4))
        for i in one:
            out[i] += i
        two.append(1)
        for i in two:
            out[i] += i
        for i in three:
            out[i] *= 2
        for i in four:
            out[i] += 1
            four.clear()
        return out, one, len(three)

    return world(f)


@agrees()
def test_a_list_of_positions_that_a_later_write_leaves_alone():
    def f(x):
        mask = x > 0
        found = mask.nonzero().flatten()
        hit = found.tolist()
        found.add_(1)
        mask.logical_not_()
        out = x * 2
        for i in hit:
            out[i] += i
        return out

    return world(f)


@whole
def test_the_rows_of_nonzero_with_a_block_and_one_left_out():
    """What the block stores is read after it, also where it would suppress an exception."""
    layers = torch.randn(4, 5, 5)

    def f(x):
        out = torch.zeros(5)
        hit = torch.greater(x.sin(), 0).nonzero()
        for i in hit[:]:
            i = i[0]
            if i == 4:
                continue
            with torch.no_grad():
                at = torch.where(x < i)[0]
            out.index_add_(0, at, (layers[i] @ x)[at])
        return out

    return world(f)


@agrees(grad=False)
def test_a_block_that_suppresses_an_exception_in_a_step():
    def f(x):
        out, n = x * 2, None
        for i in (x.sin() > 0).nonzero():
            with contextlib.suppress(KeyError):
                n = {0: "a", 1: "b"}[len(str(out.shape)) + i.dim() - 1]
            out[i] = 3 if n is None else 4
        return out

    return world(f)


@whole
def test_a_condition_inside_of_another():
    def f(x):
        out = x.cos()
        for i in range(3):
            if x.sum() > -1:
                for j in range(2):
                    if out[i] > 0.2:
                        out[j] += out[i]
                out[i] -= 1
        return out

    return world(f)


@whole
def test_what_a_step_binds_and_nothing_reads():
    def f(x):
        out = x.cos()
        last = x
        for i in range(3):
            if x[i] > 0:
                y = x[i] * 2
                z = [y, i]
                z.append(y)
                out[i] = y
        return out, last

    return world(f)


broken = agrees(breaks=None)


@broken
def test_a_number_that_a_step_counts():
    def f(x):
        n = 0
        for i in range(3):
            if x.sin()[i] > 0:
                n += 1
        return x * n

    return world(f)


@broken
def test_a_list_that_grows():
    def f(x):
        found = []
        for i in range(3):
            if x.sin()[i] > 0:
                found.append(i)
        return x * len(found), found

    return world(f)


@broken
def test_a_tensor_that_a_step_binds_and_the_end_reads():
    def f(x):
        y = x
        for i in range(3):
            if x.sin()[i] > 0:
                y = y * 2
        return y

    return world(f)


@broken
def test_a_row_after_the_loop():
    def f(x):
        out, i = x * 2, None
        for i in (x.sin() > 0).nonzero():
            out[i] = 3
        return out, i

    return world(f)


@broken
def test_a_loop_that_is_left():
    def f(x):
        out = x * 2
        for i in (x.sin() > 0).nonzero():
            out[i] = 3
            if out.sum() > 4:
                break
        return out

    return world(f)


@broken
def test_a_row_that_is_written():
    def f(x):
        out = x * 2
        hit = (x.sin() > 0).nonzero()
        for i in hit:
            out[i] = 3
            i.add_(10)
        return out, hit

    return world(f)


@broken
def test_a_mask_that_a_step_changes():
    def f(x):
        out, mask = x * 2, x.sin() > 0
        hit = mask.nonzero()
        for i in hit:
            out[i] = 3
            mask.fill_(False)
        return out, mask, hit

    return world(f)


@broken
def test_an_argument_that_a_step_writes():
    def f(x):
        for i in range(3):
            if x.sin()[i] > 0:
                x[i] = -1
        return x + 1

    return world(f)


@broken
def test_an_iterator_that_a_step_moves():
    def f(x, numbers):
        out = x * next(numbers)
        for i in range(3):
            if x.sin()[i] > 0:
                out[i] = next(numbers)
        return out, next(numbers)

    return series(torch.no_grad()(lambda x: f(x, iter([3, 4, 5, 6, 7, 8]))), rows())


def moving(make):
    """A step moves an iterator of make()."""

    def f(x):
        numbers = make()
        out = x * next(numbers)
        for i in range(3):
            if x.sin()[i] > 0:
                out[i] = next(numbers)
        return out, next(numbers)

    return f


@broken
def test_a_generator_that_a_step_resumes():
    def count():
        yield from range(1, 9)

    return world(moving(count))


@broken
def test_an_iterator_from_outside_that_a_step_moves():
    numbers = iter(list(range(100)))
    return world(moving(lambda: numbers))


@broken
def test_an_attribute_that_a_step_sets():
    class Held:
        n = 0

    def f(x):
        held = Held()
        for i in range(3):
            if x.sin()[i] > 0:
                held.n = i
        return x + held.n

    return world(f)


@broken
def test_a_step_that_raises():
    def f(x):
        out = x * 2
        try:
            for i in range(3):
                if x.sin()[i] > 0:
                    out[i] = 5
                    if i == 1:
                        raise KeyError(i)
        except KeyError:
            out += 1
        return out

    return world(f)


@broken
def test_random_numbers_of_a_step():
    def f(x):
        out = x * 2
        for i in range(3):
            if x.sin()[i] > 0:
                out[i] += torch.rand(())
        return out

    return world(f)


class Experts(nn.Module):
    """The loop over experts of transformers' Mixtral."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.SiLU()) for _ in range(4)])

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, dim=-1)
        final = torch.zeros_like(x)
        mask = nn.functional.one_hot(chosen, num_classes=4).permute(2, 1, 0)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            at, top = torch.where(mask[expert].squeeze(0))
            rows = x[None, top].reshape(-1, 6)
            final.index_add_(0, top, self.experts[expert](rows) * weights[top, at, None])
        return final


def test_a_mixture_of_experts() -> None:
    torch.manual_seed(2)
    model = Experts()
    compiled = graftjit.jit(model)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(2, 6)
            torch.testing.assert_close(compiled(x), model(x))
    report = graftjit.report(compiled)
    assert not report.breaks
    assert len(report.graphs) == 1


def test_gradients_of_experts_that_no_row_has() -> None:
    """Without rows an expert has no gradient, not zero."""
    torch.manual_seed(2)
    model = Experts()
    compiled = graftjit.jit(model)
    for _ in range(3):
        x, found = torch.randn(1, 6), []
        for one in (model, compiled):
            model.zero_grad(set_to_none=True)
            one(x).sum().backward()
            found.append([p.grad for p in model.parameters()])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
