"""`Variable`, `FloatTensor` and its like, and `.data`, which programs of old use."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Variable

from graftjit import jit

from ..harness import agrees, t


@agrees(breaks=0)
def test_variable():
    def f(x):
        a = Variable(x) * 2
        b = Variable(torch.zeros(3), requires_grad=False)
        return a + b, Variable(x), isinstance(x, Variable), isinstance(3, Variable)

    return f, (t(3),)


@agrees(backward=True)
def test_variable_of_a_value_with_a_gradient():
    w = nn.Parameter(t(3))

    def f(x):
        y = w * x
        return Variable(y) * y, w

    return f, (t(3),)


@agrees()
def test_variables_with_other_arguments():
    def f(x):
        own = Variable(torch.ones(3), requires_grad=True)
        (own * x).sum().backward()
        try:
            Variable(3)
        except TypeError:
            x = x + 1
        return own.grad, x, Variable(data=x)

    return f, (t(3),)


@agrees(breaks=0)
def test_types_of_tensors():
    def f(x):
        a = torch.FloatTensor([1, 2.5, 3]) * x + torch.LongTensor([[1], [2]])
        b = torch.Tensor([1, 2, 3]) + torch.Tensor(x.shape).fill_(2) + torch.DoubleTensor((1,))
        c = torch.IntTensor(2, x.shape[0]).zero_(), torch.ByteTensor([True, False])
        return a, b, c, x.new([1, 2]), x.new(2, 3).fill_(1), x.new_tensor([3])

    return f, (t(3),), [lambda: None, lambda: None]


@agrees(breaks=0)
def test_instances_of_types():
    def f(x):
        kinds = torch.FloatTensor, torch.DoubleTensor, torch.LongTensor, torch.Tensor
        found = [isinstance(x, kind) for kind in kinds]
        return x * 2, found, isinstance(x, torch.cuda.FloatTensor), x.type(torch.DoubleTensor)

    return f, (t(3),), [lambda: (t(3).double(),), lambda: (t(3).long(),)]


@agrees()
def test_types_with_other_arguments():
    def f(x):
        found = [torch.Tensor(x), torch.Tensor(), torch.FloatTensor([x.sum(), 2])]
        try:
            torch.LongTensor(["a"])
        except (TypeError, ValueError):
            found.append(x + 1)
        return found

    return f, (t(3),)


# -- .data -----------------------------------------------------------------------------------------
def states(fn, grad=True):
    """Results, values and versions of a program `(x, w) -> result`, called three times."""
    w, x, found = nn.Parameter(t(3)), t(3), []
    for _ in range(3):
        result = fn(x, w)
        leaves = result if isinstance(result, tuple) else (result,)
        for one in leaves:
            if grad and one.requires_grad:
                one.sum().backward(retain_graph=True)
        found.append([(one.tolist(), one._version, one.requires_grad) for one in leaves])
        first = leaves[0]
        if not first.requires_grad:
            first.add_(1)  # who sees it, and whose version tells
        found.append([(one.tolist(), one._version) for one in (*leaves, x, w)])
        found.append(None if w.grad is None else w.grad.tolist())
    return found


def _reads(x, w):
    return (w.data * x).sum() + w.sum() + x.data


def _leaves(x, w):
    return x.data, x * 2


def _leaves_of_a_parameter(x, w):
    return w.data.view(-1), w * 2


def _clamps(x, w):
    w.data.clamp_(-0.5, 0.5)
    return x * 2


def _adds(x, w):
    w.data.add_(x.data, alpha=0.5)
    return x + 1


def _of_a_value(x, w):
    y = w * x
    return y * y.data


@pytest.mark.parametrize(
    "program", [_reads, _leaves, _leaves_of_a_parameter, _clamps, _adds, _of_a_value]
)
def test_data(program):
    run = jit(program)
    assert states(program) == states(run)
    assert run.report().break_count == 0, run.report()


def _clamps_and_multiplies(x, w):
    y = x * w.sum()
    w.data.clamp_(-0.5, 0.5)
    return x * w + y


def _moves_in_a_loop(x, w):
    for _ in range(3):
        w.data.copy_(w * 0.5 + x)
    return (x * w).sum(), w


@pytest.mark.parametrize("program", [_clamps_and_multiplies, _moves_in_a_loop])
def test_data_is_written_where_no_gradient_is_needed(program):
    program = torch.no_grad()(program)
    run = jit(program)
    assert states(program) == states(run)
    assert run.report().break_count == 0, run.report()


def _writes_both(x, w):
    w.data.mul_(0.9)
    w.mul_(2)
    return x * w


def _a_view_leaves(x, w):
    w.data.mul_(0.9)
    return w[0], x * w


def _the_data_leaves(x, w):
    data = w.data
    data.mul_(0.9)
    return data, x * w


@pytest.mark.parametrize("program", [_writes_both, _a_view_leaves, _the_data_leaves])
def test_data_that_is_told_from_its_tensor(program):
    program = torch.no_grad()(program)
    assert states(program) == states(jit(program))


def _writes_and_reads(x, w):
    y = x * 2
    x.data.add_(1)
    return y + x


def _writes_before(x, w):
    x.add_(1)
    return x.data * 2


def _writes_what_is_saved(x, w):
    y = (w * x).exp()
    y.data.mul_(0.5)
    return y * 1


def _leaves_as_a_value(x, w):
    y = w * x
    return y.data, y


def _of_a_view(x, w):
    return x[1:].data * 2


def _assigns(x, w):
    w.data = x + 1
    return w * 2


def _kept(x, w):
    held = x.data
    x.add_(1)
    return held * 2


@pytest.mark.parametrize(
    "program",
    [
        _writes_and_reads,
        _writes_before,
        _writes_what_is_saved,
        _leaves_as_a_value,
        _of_a_view,
        _assigns,
        _kept,
    ],
)
def test_data_that_a_graph_cannot_have(program):
    run = jit(program)
    assert states(program) == states(run)


def test_a_write_between_forward_and_backward():
    """Autograd does not see it in `.data`, and computes with what is there then."""

    def f(x, w):
        return (w * x.data).sum()

    found = []
    for run in (f, jit(f)):
        x, w = t(3), nn.Parameter(t(3))
        for _ in range(3):
            loss = run(x, w)
            x.add_(1)
            loss.backward()
        found.append((w.grad.tolist(), x._version))
    assert found[0] == found[1]


@agrees(breaks=0)
def test_data_of_sizes_that_vary():
    def f(x):
        return x.data.view(-1) * x.size(0)

    return f, (t(3),), [lambda: (t(4),), lambda: (t(5),), lambda: (t(6, 2),)]


@agrees()
def test_a_condition_on_data():
    mask = torch.tensor([True, True])

    def f(x):
        if mask.data.all():
            return x * 2
        return x + 1

    return f, (t(3),), [lambda: [mask.zero_()] and None, None]


@agrees(breaks=0, backward=True)
def test_data_of_a_value_is_written_before_it_is_saved():
    w = nn.Parameter(t(3))

    def f(x):
        y = x * w
        y.data.mul_(2)
        z = torch.tanh(y * y)
        return z * y, w

    return f, (t(3) + 0.1,)


@agrees(codes=("GB114",), backward=True)
def test_data_of_a_value_is_written_after_it_was_saved():
    w = nn.Parameter(t(3))

    def f(x):
        y = torch.sigmoid(x * w)
        y.data.mul_(2)
        return y, w

    return f, (t(3),)


@agrees()
def test_data_of_an_input_is_written_in_an_inlined_function():
    """The break is in the inner function: what comes before it stays compiled."""
    w = nn.Parameter(t(3))

    def clipped(x):
        y = torch.tanh(x * 2) + w.detach() * 0
        w.data.clamp_(-0.5, 0.5)
        return y * w

    def f(x):
        z = clipped(x + 1)
        return clipped(z).sum(), w

    return f, (t(3),)


@agrees(breaks=0)
def test_data_is_written_beside_a_backward_in_the_frame():
    w = nn.Parameter(t(3))

    def f(x):
        w.data.mul_(0.9)
        loss = (w * x).sum()
        loss.backward()
        w.data.sub_(0.1 * w.grad)
        w.grad = None
        return loss.detach(), torch.autograd.grad((w * w).sum(), w)

    return f, (t(3),)


def test_a_history_behind_written_data_leads_to_the_tensor():
    def f(w):
        loss = (w * w).sum()
        loss.backward()
        w.data.sub_(0.1 * w.grad)
        return loss

    def leaf(w, fn):
        loss = fn(w)  # torch 2.11 drops a node with its tensor
        node = loss.grad_fn
        while node.next_functions:
            node = node.next_functions[0][0]
        return node.variable

    run = jit(f)
    for fn in (f, run, run):
        w = nn.Parameter(t(3))
        assert leaf(w, fn) is w and w._version == 0
    assert run.report().break_count == 0, run.report()


def test_a_break_at_data_is_at_its_line():
    w = nn.Parameter(t(3))

    def clipped(x):
        y = torch.tanh(x * 2) * w
        w.data.clamp_(-0.5, 0.5)
        return y * w

    def f(x):
        return clipped(x + 1) * 2

    run = jit(f)
    run(t(3))
    report = run.report()
    assert report.break_count == 1 and report.graph_count == 2, report
    assert "w.data.clamp_(-0.5, 0.5)" in str(report)


def test_data_beside_another_view_of_its_memory():
    def f(x, view, whole):
        x.mul_(2)
        return view.data * whole

    for whole in (torch.ones(4), torch.ones(4).requires_grad_() * 1):
        jitted = jit(f)
        for _ in range(2):
            assert torch.equal(jitted(torch.ones(3), whole[:1], whole), torch.ones(4))
        assert "PL205" not in {note.code for note in jitted.report().notes}


def two_layers():
    made = nn.Linear(3, 3), nn.Linear(3, 3)
    for at, layer in enumerate(made):
        for one in layer.parameters():
            nn.init.constant_(one, at + 0.5)
    return made


@agrees(breaks=0)
def test_data_of_parameters_is_set():
    """An average of weights, a limit of weights and a step by hand."""
    average, layer = two_layers()

    def f(x, decay):
        layer.zero_grad()
        loss = layer(x).pow(2).sum()
        loss.backward()
        for one in layer.parameters():
            one.data = one.data - 0.01 * one.grad.data
        for one, other in zip(average.parameters(), layer.parameters(), strict=True):
            one.data = one.data * decay
        return loss.detach()

    def limit(_):
        for one in average.parameters():
            one.data = one.data.clamp(-1, 1)

    return f, (t(2, 3), 0.9), [limit, lambda _: (t(2, 3), 0.8), limit]


@agrees(breaks=0)
def test_set_data_has_the_memory_of_the_other_tensor():
    weight = nn.Parameter(torch.ones(3))

    def f(x):
        y = x * 2
        weight.data = y[0]
        return y, weight

    return f, (t(2, 3),), [lambda last: last[0].fill_(7.0) is None]


@agrees()
def test_set_data_that_is_used_or_seen_is_a_break():
    weight, other = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(3))
    view = weight.detach()[1:]

    def f(x, one, two):
        weight.data = weight.data * 2
        seen = view + x
        one.data = one.data + 1
        y = x * two
        other.data = other.data * 0.5
        return seen, y, other.data * 2

    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
    return f, (t(3, 3), a, b), [
        lambda _: (t(3, 3), b, b), lambda _: (t(3, 3), b, a), lambda _: (t(3, 3), a, other),
    ]  # fmt: skip
