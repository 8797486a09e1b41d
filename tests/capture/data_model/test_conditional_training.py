"""Gradients of bodies of loops that tensor data skip: parts of a backward under conditions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from ..harness import agrees
from .series import giving

whole = agrees(graphs=1, breaks=0, recompiles=0, backward=True)
broken = agrees(breaks=None, backward=True)


def numbers():
    """Tensors with several positive numbers, one, none and only such."""
    made = torch.Generator().manual_seed(5)
    some = [torch.randn(5, generator=made) for _ in range(4)]
    return [*some, -torch.ones(5), torch.ones(5)]


def weights(*shapes):
    made = torch.Generator().manual_seed(7)
    return [torch.randn(*shape, generator=made).requires_grad_() for shape in shapes]


def world(fn):
    """The function, called with one of the tensors after the other."""
    first, *rest = numbers()
    return fn, (first.requires_grad_(),), [giving(one.requires_grad_()) for one in rest]


def held(fn, *tensors):
    """The function with some tensors behind its argument."""
    first, *rest = numbers()
    given = [giving(one.requires_grad_(), *tensors) for one in rest]
    return fn, (first.requires_grad_(), *tensors), given


class Expert(nn.Module):
    def __init__(self, made):
        super().__init__()
        self.up, self.down = (
            nn.Parameter(torch.randn(*shape, generator=made)) for shape in ((3, 4), (4, 3))
        )

    def forward(self, x):
        return F.silu(x @ self.up) @ self.down


class Mixture(nn.Module):
    """Experts as in Mixtral: each runs for the tokens that chose it."""

    def __init__(self, n=4, noise=0.0):
        super().__init__()
        made = torch.Generator().manual_seed(3)
        self.gate = nn.Parameter(torch.randn(3, n, generator=made))
        self.experts = nn.ModuleList([Expert(made) for _ in range(n)])
        self.n, self.noise = n, noise

    def forward(self, x):
        probabilities = (x @ self.gate).softmax(-1)
        weight, chosen = torch.topk(probabilities, 2, dim=-1)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=self.n).permute(2, 1, 0)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, token = torch.where(mask[expert].squeeze(0))
            made = self.experts[expert](x[None, token].reshape(-1, 3))
            if self.noise:
                made = made * (1 + self.noise * torch.rand_like(made))
            out.index_add_(0, token, made * weight[token, place, None])
        return out


def tokens():
    made = torch.Generator().manual_seed(11)
    return [torch.randn(2, 3, generator=made) for _ in range(4)]


def mixed(model, fn):
    first, *rest = tokens()
    given = [giving(one.requires_grad_(), model) for one in rest]
    return fn, (first.requires_grad_(), model), given


@whole
def test_experts():
    return mixed(Mixture(), lambda x, model: model(x))


@whole
def test_experts_beside_a_residual():
    return mixed(Mixture(), lambda x, model: x.sin() + model(x))


@whole
def test_experts_with_random_numbers():
    return mixed(Mixture(noise=0.4), lambda x, model: x + model(x))


@whole
def test_two_layers_of_experts():
    first, second = Mixture(), Mixture(3)

    def f(x, models):
        for model in models:
            x = x + model(x.tanh())
        return x

    return mixed([first, second], f)


@whole
def test_layers_of_experts_without_a_residual():
    def f(x, models):
        for model in models:
            x = model(x)
        return x

    return mixed([Mixture(), Mixture(3)], f)


@broken
def test_experts_without_tokens():
    model = Mixture()

    def f(x, model):
        return model(x)

    some = [torch.zeros(0, 3).requires_grad_() for _ in range(3)]
    return f, (some[0], model), [giving(one, model) for one in some[1:]]


@whole
def test_a_loss_beside_the_output():
    def f(x, model):
        out = x + model(x)
        return out, out.square().sum()

    return mixed(Mixture(), f)


@whole
def test_outputs_between_layers():
    def f(x, models):
        found = []
        for model in models:
            x = x + model(x.tanh())
            found.append(x.exp())
        return x, found, x.square().sum()

    return mixed([Mixture(), Mixture(3)], f)


@whole
def test_outputs_apart():
    def f(x, models):
        return models[0](x), models[1](x) * 2

    return mixed([Mixture(), Mixture(3)], f)


@whole
def test_an_item_that_is_set():
    def f(x):
        out = x.cos()
        for i in range(5):
            if x[i].sin() <= 0:
                continue
            out[i] = x[i] * (i + 1)
        return out.square()

    return world(f)


@whole
def test_a_tensor_that_a_step_multiplies():
    def f(x, w):
        out = x.sin()
        for i in range(4):
            if out.sum() > i:
                out.mul_(w).sub_(x)
        return out

    return held(f, *weights((5,)))


@whole
def test_memory_that_has_no_gradient_before():
    def f(x, w):
        out = torch.zeros(5)
        for i in range(5):
            if x[i].sin() > 0:
                out += x * w[i]
        return out

    return held(f, *weights((5, 5)))


@whole
def test_a_condition_on_a_size():
    def f(x, w):
        out = x * 2
        for i in range(3):
            (at,) = torch.where(x.sin() > i * 0.3)
            if at.shape[0] == 0:
                continue
            out.index_add_(0, at, x[at] * w[i])
        return out

    return held(f, *weights((3,)))


@whole
def test_a_weight_of_all_steps():
    layers = [torch.full((5, 5), 0.1 * i).requires_grad_() for i in range(5)]

    def f(x, w, layers):
        out = torch.zeros(5)
        for i in torch.greater(x.sin(), 0).nonzero():
            out += layers[i] @ (x * w) * x[i]
        return out * w

    return held(f, *weights((5,)), layers)


@whole
def test_a_condition_inside_of_another():
    def f(x, v, w):
        out = x.cos()
        for i in range(3):
            if x.sum() > -1:
                for j in range(2):
                    if x[i].sin() > 0.2:
                        out[j] *= v[i] * w[j]
                out[i] -= v[i]
        return out

    return held(f, *weights((5,), (5,)))


@whole
def test_a_step_that_writes_two_tensors():
    def f(x, w):
        one, two = x.sin(), torch.zeros(5)
        for i in range(3):
            if x[i].sin() > 0:
                one.mul_(x + i)
                two.add_(w * x)
        return one + two

    return held(f, *weights((5,)))


@whole
def test_a_gradient_that_no_step_asks_for_is_not_computed_from_zero():
    def f(x, w):
        out = x * 1
        root = w.relu().sqrt()
        for i in range(2):
            if x[i].sin() > 0:
                out.add_(root * i)
        return out

    return held(f, torch.zeros(5).requires_grad_())


@whole
def test_no_gradient_in_a_step():
    def f(x, w):
        out = x.sin()
        for i in range(3):
            if x[i].sin() > 0:
                with torch.no_grad():
                    out[i] = 3
                out.add_(w.detach())
        return out * w

    return held(f, *weights((5,)))


@broken
def test_a_view_that_a_step_writes():
    def f(x, w):
        out = x.sin()
        part = out[:2]
        for i in range(2):
            if x[i].sin() > 0:
                part.mul_(w[i])
        return out, part

    return held(f, *weights((5,)))


@broken
def test_a_view_that_a_step_reads():
    def f(x, w):
        out = x.sin()
        part = out[:2]
        for i in range(2):
            if x[i].sin() > 0:
                out.mul_(w[i])
                out.add_(part.sum())
        return out * part.sum()

    return held(f, *weights((5,)))


@broken
def test_a_tensor_that_a_step_overwrites():
    def f(x, w):
        out = x.sin()
        for i in range(2):
            if x[i].sin() > 0:
                out.copy_(w)
        return out * 2

    return held(f, *weights((5,)))


@broken
def test_a_step_that_reads_what_it_has_written():
    def f(x, w):
        one, two = x.sin(), x.cos()
        for i in range(2):
            if x[i].sin() > 0:
                one.mul_(w[i])
                two.add_(one * w)
        return one + two

    return held(f, *weights((5,)))


@broken
def test_a_backward_in_the_frame():
    def f(x, w):
        out = x.sin()
        for i in range(3):
            if x[i].sin() > 0:
                out.mul_(w[i])
        out.sum().backward()
        return w.grad * 1

    return held(f, *weights((5,)))


@broken
def test_what_a_step_asks_of_history():
    def f(x, w):
        out = torch.zeros(5)
        for i in range(3):
            if x[i].sin() > 0:
                out.add_(w)
        return out + (2 if out.requires_grad else 3) * x

    return held(f, *weights((5,)))


# -- what is done with the gradients


def plain_and_jitted(use):
    """What use(run, x, model) gives for each input, in plain Python and jitted."""
    found = []
    for wrap in (lambda fn: fn, graftjit.jit):
        model = nn.ModuleList([Mixture(), Mixture(3)])
        run = wrap(lambda x, models: tuple(one(x) for one in models))
        outcomes = []
        for x in tokens():
            model.zero_grad()
            x = x.requires_grad_()
            outcomes += [*use(run, x, model), x.grad, *(one.grad for one in model.parameters())]
        found.append(outcomes)
    assert run.report().break_count == 0, run.report()
    return found


def assert_same(use):
    plain, jitted = plain_and_jitted(use)
    assert len(plain) == len(jitted)
    for number, (one, other) in enumerate(zip(plain, jitted, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            torch.testing.assert_close(other, one, msg=f"{number}")
        else:
            assert one == other, number


def test_a_backward_of_one_result():
    def use(run, x, model):
        first, _ = run(x, model)
        first.sum().backward()
        _, second = run(x, model)
        second.square().sum().backward()
        return ()

    assert_same(use)


def test_gradients_that_are_asked_for():
    def use(run, x, model):
        first, second = run(x, model)
        wanted = [x, *model.parameters()]
        return torch.autograd.grad((first * second.cos()).sum(), wanted, allow_unused=True)

    assert_same(use)


def test_hooks_see_the_gradients_of_steps_that_ran():
    def use(run, x, model):
        seen = []
        handles = []
        for name, one in model.named_parameters():
            handles.append(one.register_hook(lambda g, name=name: seen.append((name, "hook"))))
            after = one.register_post_accumulate_grad_hook
            handles.append(after(lambda p, name=name: seen.append((name, "after"))))
        first, second = run(x, model)
        (first.sum() + second.sum()).backward()
        for handle in handles:
            handle.remove()
        return [sorted(seen)]

    assert_same(use)


def test_two_backwards_add_up():
    def use(run, x, model):
        first, second = run(x, model)
        total = first.sin().sum() + second.sum()
        total.backward(retain_graph=True)
        total.backward()
        return ()

    assert_same(use)


def test_a_gradient_of_a_gradient():
    def use(run, x, model):
        first, second = run(x, model)
        (made,) = torch.autograd.grad((first.sin() + second).sum(), x, create_graph=True)
        made.square().sum().backward()
        return (made.detach(),)

    assert_same(use)


def test_a_backward_of_one_result_where_no_step_runs():
    def f(x, w, v):
        one, two = x.sin(), torch.zeros(5)
        for i in range(2):
            if x[i].sin() > 0:
                two.index_add_(0, torch.tensor([0, 2]), (x * w)[:2])
                one.add_(x * w)
        return one * v, (one * two).sum()

    found = []
    for run in (f, graftjit.jit(f)):
        gradients = []
        for x in numbers():
            given = [x.requires_grad_(), *weights((5,), (5,))]
            run(*given)[0].sum().backward()
            gradients += [one.grad for one in given]
        found.append(gradients)
    assert run.report().break_count == 0
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(other, one)
