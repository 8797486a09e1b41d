"""Conditions and numbers of tensor data that are computed before the graph, and `torch.compiler.is_compiling()`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graftjit import JitConfig, compile, jit

from ..harness import agrees


def t(*values):
    return torch.tensor(values or (1.0, 2.0, 3.0))


def bits(*values):
    return torch.tensor([bool(value) for value in values])


def filling(tensor, value):
    """A step: the tensor is written to."""

    def step():
        tensor.fill_(value)

    return step


def giving(*args):
    """A step: the next call gets these."""
    return lambda: args


# -- conditions ----------------------------------------------------------------------------------------------
@agrees(graphs=2, breaks=0, recompiles=1)
def test_each_outcome_has_an_entry():
    def f(x, mask):
        y = x + 1
        return y * 2 if mask.all() else y * mask

    full, part = bits(1, 1, 1), bits(1, 0, 1)
    given = [giving(t(), mask) for mask in (part, full, part, bits(0, 0, 1), full)]
    return f, (t(), full), given


@agrees(level="O1", graphs=2, breaks=0, recompiles=1)
def test_a_mask_that_is_written_to_between_calls():
    mask = bits(1, 1, 1)

    def f(x, mask):
        return torch.sin(x) if mask.all() else torch.cos(x) * mask

    def write(value):
        mask[1] = value

    return f, (t(), mask), [lambda: write(False), lambda: write(True), lambda: write(False)]


@agrees(graphs=2, breaks=0, recompiles=1)
def test_a_buffer():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ready", torch.tensor(False))

        def forward(self, x):
            return x * 2 if self.ready else x - 1

    layer = Layer()

    def f(x):
        return layer(x)

    def replace():
        layer.ready = torch.tensor(False)

    return f, (t(),), [filling(layer.ready, True), replace, lambda: None]


@agrees(breaks=0, backward=True)
def test_a_parameter_under_a_gradient():
    weight = nn.Parameter(t(1.0, -2.0, 3.0))

    def f(x):
        y = x * weight
        return y.sum() if weight.abs().max() > 3 else (y * y).sum()

    def step():
        weight.grad = None
        weight.data.add_(1)

    return f, (t(),), [step, step]


@agrees(graphs=2, breaks=0, recompiles=1)
def test_views_and_strides():
    def f(x, mask):
        return x + 1 if mask.t()[::2].any() else x - 1

    at = torch.zeros(4, 4, dtype=torch.bool)

    def write(row, column):
        at.zero_()
        at[row, column] = True

    return f, (t(), at[1:, :3]), [lambda: write(2, 1), lambda: write(2, 2), lambda: write(0, 0)]


@agrees(graphs=2, breaks=0, recompiles=2)
def test_two_questions():
    def f(x, ids):
        if ids.eq(0).any():
            x = x * 2
        if (ids[0] > 4).logical_and(ids[1] < 9):
            x = x + 1
        return x

    given = [torch.tensor(ids) for ids in ([1, 2, 3], [0, 2, 3], [7, 8, 1], [1, 5, 9])]
    return f, (t(), given[0]), [giving(t(), ids) for ids in given[1:]]


@agrees(breaks=0)
def test_in_a_callee_a_loop_and_without_gradients():
    def chosen(x, mask, at):
        return x * 2 if mask[at] else x

    @torch.no_grad()
    def f(x, mask):
        for at in range(3):
            x = chosen(x, mask, at) + 1
        return x

    return f, (t(), bits(1, 0, 1)), [giving(t(), bits(0, 0, 1)), giving(t(), bits(1, 0, 1))]


@agrees(breaks=1)
def test_after_a_break():
    def f(x, mask):
        print("first")
        return x * 2 if mask.any() else x + 1

    return f, (t(), bits(1, 0)), [giving(t(), bits(0, 0)), giving(t(), bits(0, 1))]


@agrees(breaks=0)
def test_a_value_in_a_tensor():
    def f(x, ids):
        return x * 2 if 5 in ids else x + 1

    given = [torch.tensor([1, 5]), torch.tensor([1, 4]), torch.tensor([5, 5])]
    return f, (t(), given[0]), [giving(t(), ids) for ids in given[1:]]


@agrees()
def test_what_a_condition_raises_comes_from_its_place():
    def f(x, ids, at):
        x.add_(1)
        return x * 2 if ids[at] > 0 else x

    ids = torch.tensor([1, 2])
    at = torch.tensor(0)
    return f, (t(), ids, at), [filling(at, 1), filling(at, 7)]


@agrees(breaks=0)
def test_what_the_frame_has_written_to():
    def f(x, mask):
        mask.logical_not_()
        return x * 2 if mask.all() else x + 1

    return f, (t(), bits(1, 1))


# -- what stays a break ---------------------------------------------------------------------------------------
@agrees()
def test_what_the_frame_has_written_to_by_another_name():
    def f(x, ids, seen):
        x = x + 1
        ids.add_(1)
        return x * 2 if (seen > 3).any() else x - 1

    ids = torch.tensor([1, 2])
    return f, (t(), ids, ids.view(2, 1))


@agrees()
def test_what_a_callable_of_the_program_writes_to():
    kept = torch.tensor([1, 1])

    def f(x):
        print("before")
        kept.sub_(1)
        y = x * 2
        return y if (kept > -1).any() else y + 1

    return f, (t(),)


# From 3.13 on the truth is a value of its own (TO_BOOL) before the jump: the rest of the frame is compiled for each.
@agrees(breaks=1, recompiles=0)
def test_floats_of_arguments():
    def f(x):
        y = x + 1
        return y * 2 if y.sum() > 0 else y

    return f, (t(),), [giving(t(-9.0, 1.0, 2.0))]


@agrees(breaks=1)
def test_what_costs_more():
    def f(x, a):
        return x * 2 if (a @ a).sum() > 0 else x

    return f, (t(), torch.ones(2, 2, dtype=torch.long))


@agrees()
def test_a_loop_that_asks_what_it_computes():
    def f(x, n):
        while n > 0:
            x = x * 2
            n = n - 1
        return x

    return f, (t(), torch.tensor(3)), [giving(t(), torch.tensor(n)) for n in (5, 0, 9, 2)]


# -- numbers ------------------------------------------------------------------------------------------------
@agrees(calls=2, breaks=0)
def test_whole_numbers():
    def f(x, lengths):
        for _ in range(int(lengths.max())):
            x = x * 2
        return x[: lengths[0].item()]

    return f, (t(), torch.tensor([1, 2]))


@agrees()
def test_a_number_that_is_another_at_each_call():
    def f(x, lengths):
        return x * lengths.max().item()

    return (
        f,
        (t(), torch.tensor([1, 2])),
        [giving(t(), torch.tensor([n, 2])) for n in (3, 4, 5, 6, 7)],
    )


@agrees(graphs=2, breaks=0, recompiles=1)
def test_a_float_that_varies_becomes_a_number_that_the_graph_reads():
    scale = torch.tensor(0.5)

    def f(x):
        return x * scale.item()

    return f, (t(),), [filling(scale, n) for n in (0.25, 0.125, 2.0)]


@agrees(breaks=1)
def test_a_float_that_varies_and_decides_becomes_a_break():
    scale = torch.tensor(0.5)

    def f(x):
        return x * 2 if scale.item() > 0.2 else x

    return f, (t(),), [filling(scale, n) for n in (0.25, 0.125, 2.0)]


# -- one body, two modules ---------------------------------------------------------------------------------------
class Gate(nn.Module):
    def __init__(self, is_open):
        super().__init__()
        self.register_buffer("open", torch.tensor(is_open))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) if self.open else x


def test_modules_of_one_class():
    gates = [Gate(True), Gate(False), Gate(True)]
    runs = [compile(gate, config=JitConfig(jit_level="O0")) for gate in gates]
    x = torch.randn(2, 3)
    for _ in range(2):
        for gate, run in zip(gates, runs, strict=True):
            assert torch.equal(run(x), gate(x))
        gates[1].open.fill_(True)


# -- conditions that change together ---------------------------------------------------------------
class Scaled(nn.Module):
    """A layer that its first batch initialises."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        if not self.ready:
            self.scale = 1 / (x.detach().abs().mean(0) + 0.1)
            self.ready = torch.tensor(True)
        return torch.sin(x * self.scale)


@agrees(graphs=2, breaks=0, recompiles=1)
def test_layers_that_the_first_batch_initialises():
    model = nn.Sequential(*(Scaled() for _ in range(9)))
    return (
        lambda x: model(x),
        (t([1.0, 2.0, 3.0]),),
        [giving(t([3.0, 1.0, step])) for step in range(3)],
    )


@agrees(graphs=2, breaks=0, recompiles=1)
def test_conditions_of_which_each_is_the_opposite_of_the_next():
    flags = [torch.tensor(at % 2 == 0) for at in range(10)]

    def f(x, change):
        for flag in flags:
            x = torch.cos(x) if flag else x * 2
        if change:
            for flag in flags:
                flag.logical_not_()
        return x

    return f, (t(), True), [giving(t(), True) for _ in range(3)]


@agrees(breaks=1)
def test_conditions_that_change_together_at_first():
    """Each goes its own way then: four of them have entries for both truths."""
    flags = torch.tensor([True] * 10)
    parts = flags.unbind()

    def f(x, step):
        for at, part in enumerate(parts):
            x = torch.cos(x) if part else x * 2
        return x

    def stepping(step):
        def change():
            flags.copy_(
                torch.tensor([step == 1 or (at + step) % (step + 1) > 0 for at in range(10)])
            )
            return t(), 0

        return change

    return f, (t(), 0), [stepping(step) for step in range(7)]


@agrees(level="O1")
def test_rows_and_columns_of_a_tensor():
    def f(x, mask):
        own = mask.clone()
        own.unbind(1)[2].fill_(False)
        for row in mask:
            if row.any():
                x = x + row.sum()
        for column in (*mask.unbind(-1), *own.unbind(dim=1)):
            x = x * 2 if column.all() else x - 1
        return x

    def stepping(*values):
        return lambda: (t(), bits(*values).view(2, 3))

    given = [stepping(1, 0, 0, 1, 0, 0), stepping(1, 1, 1, 1, 1, 1), stepping(1, 0, 0, 1, 0, 0)]
    return f, (t(), bits(0, 1, 0, 0, 0, 0).view(2, 3)), given


@agrees(level="O1", breaks=1)
def test_more_conditions_of_constants_than_a_graph_answers():
    def f(x):
        rising = torch.arange(700)
        return x + 1, all(rising[:-1] < rising[1:])

    return f, (t(),)


# -- is_compiling ---------------------------------------------------------------------------------------------
@agrees(breaks=0)
def test_is_compiling_is_what_plain_python_says():
    def f(x):
        asked = (
            torch.compiler.is_compiling(),
            torch.compiler.is_dynamo_compiling(),
            torch.compiler.is_exporting(),
        )
        return x * 2 if not any(asked) else x, asked

    return f, (t(),)


@pytest.mark.parametrize("claims", [False, True])
def test_is_compiling_is_what_the_user_claims(claims):
    @jit(config=JitConfig(jit_level="O0", claims_compiling=claims))
    def f(x):
        return x * 2 if torch.compiler.is_compiling() else x

    for _ in range(2):
        assert torch.equal(f(t()), t() * (2 if claims else 1))
    assert f.report().break_count == 0
