"""Results that share memory with what requires a gradient, and writes to such tensors: as eager ties them."""

from __future__ import annotations

import pytest
import torch

import graftjit

from .beside import gradients, is_ours, tensors


def t(*shape: int, grad: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def _written(x, w):
    y = x * w
    v = y.view(-1)
    y.add_(1)
    v[0] = 3
    return y, v


def _quiet(x, w):
    y = x * w
    with torch.no_grad():
        v = y.view(-1)
    return y, v


def _quietly_written(x, w):
    y = (x * w).sin()
    with torch.no_grad():
        y[0].mul_(2)
    return y.t(), y


def _squeezed(x, w):
    y = (x * w).unsqueeze(0)
    y.squeeze_(0)
    return y, y[1]


RESULTS = {
    "of an argument": lambda x, w: (x.view(-1), (x * 2).sum()),
    "of an argument, alone": lambda x, w: x.t()[1],
    "argument and view of it": lambda x, w: (x, x[0], x * w),
    "of what is made": lambda x, w: (x * w).t(),
    "a part": lambda x, w: (x * w)[:, -1],
    "two of one": lambda x, w: ((y := x * w), y.view(-1), y.t()[0]),
    "views alone": lambda x, w: ((y := x * w)[0], y[1:]),
    "chunks": lambda x, w: (x * w).chunk(2, 1),
    "one of several": lambda x, w: (x @ w.t()).unbind(0)[2],
    "result and detached": lambda x, w: ((y := x * w), y.detach()),
    "loss and detached": lambda x, w: ((y := x * w).sum(), y.detach()),
    "detached arguments": lambda x, w: (x * 2, x.detach(), w.detach().t()),
    "of what needs none": lambda x, w: (x * w, (x.detach() * 2).view(-1)),
    "the same twice": lambda x, w: ((v := (x * w).t()), v, v * 2),
    "expanded": lambda x, w: ((y := x.sum(0)).expand(4, 4), y),
    "reshaped products": lambda x, w: ((y := (x[None] @ w)), y[0]),
    "diagonal": lambda x, w: (x * w).diagonal(),
    "numbers of bits": lambda x, w: (x * w, x.view(torch.int64)),
    "written": _written,
    "quiet": _quiet,
    "quietly written": _quietly_written,
    "squeezed": _squeezed,
}  # fmt: skip


def _ties(one: torch.Tensor) -> tuple[object, ...]:
    shape = None if one._base is None else one._base.shape
    return one.requires_grad, one._is_view(), one.is_leaf, one.stride(), one.storage_offset(), shape


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    function, jitted = RESULTS[name], graftjit.jit(RESULTS[name])
    for _ in range(2):
        found = []
        for run in (function, jitted):
            x, w = t(4, 4), t(4, 4)
            outputs = tensors(run(x, w))
            differentiable = [one for one in outputs if one.grad_fn is not None]
            found.append((outputs, gradients(differentiable, [x, w]), (x, w)))
        (ours, mine, given), (theirs, other, _) = found[::-1]
        torch.testing.assert_close(ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert _ties(a) == _ties(b)
        assert [[a is b for b in ours] for a in ours] == [[a is b for b in theirs] for a in theirs]
        assert [a is b for a in ours for b in given] == [
            a is b for a in theirs for b in found[0][2]
        ]
        memory = [[_shares(a, b) for b in ours] for a in ours]
        assert memory == [[_shares(a, b) for b in theirs] for a in theirs]
        for a, b in zip(mine, other, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
    assert "FB301" not in str(jitted.report()), jitted.report()


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", RESULTS)
def test_writes_to_results(name: str) -> None:
    """What eager takes or refuses, with the same gradients; a write to one result is seen in the others."""
    function, jitted = RESULTS[name], graftjit.jit(RESULTS[name])
    count = len(tensors(function(t(4, 4), t(4, 4))))
    for at in range(count):
        found = []
        for run in (function, jitted):
            leaves = [t(4, 4), t(4, 4)]
            outputs = tensors(run(*[one * 1 for one in leaves]))
            versions = [one._version for one in outputs]
            try:
                outputs[at].mul_(3)
            except RuntimeError as error:
                found.append(str(error).split(".")[0].split(" is a view")[-1])
                continue
            grown = [one._version - before for one, before in zip(outputs, versions, strict=True)]
            try:
                differentiable = [one for one in outputs if one.grad_fn is not None]
                grads = [
                    g.tolist() if g is not None else g for g in gradients(differentiable, leaves)
                ]
            except RuntimeError as error:
                assert "inplace" in str(error) or "no_grad mode" in str(error)
                grads = ["refused"]
            found.append((grown, [one.tolist() for one in outputs], grads))
        if isinstance(found[0], str) or isinstance(found[1], str):
            assert found[0] == found[1]
            continue
        assert found[0][0] == found[1][0]
        for a, b in zip(found[0][1] + found[0][2], found[1][1] + found[1][2], strict=True):
            assert a == b or torch.allclose(torch.tensor(a), torch.tensor(b))


def _returned(x, w):
    x.mul_(w)
    x[0].add_(1)
    return x.sin(), x


def _view_before(x, w):
    v = x.view(-1)
    x.mul_(w)
    return v, x.sin() * v.view_as(x)


WRITES = {
    "returned": _returned,
    "a view before": _view_before,
    "saved result": lambda x, w: x.sigmoid_() * w,
    "nothing returned": lambda x, w: _nothing(x, w),
    "relu": lambda x, w: torch.relu_(x) @ w,
    "a part": lambda x, w: _part(x, w),
    "zeroed": lambda x, w: x.zero_().sum() + w.sum(),
    "twice": lambda x, w: x.mul_(2).sin_().mul_(w),
}  # fmt: skip


def _nothing(x, w):
    x.add_(w)


def _part(x, w):
    x[1] = w[0]
    return x * 2


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_arguments(name: str, history: bool) -> None:
    function, jitted = WRITES[name], graftjit.jit(WRITES[name])
    for _ in range(2):
        found = []
        for run in (function, jitted):
            x, w = t(4, 4, grad=history), t(4, 4)
            leaves = [x, w] if history else [w]
            h = x * 2
            seen = h.view(-1)
            outputs = tensors(run(h, w))
            outputs = [one for one in (*outputs, h, seen) if one.requires_grad]
            found.append((outputs, gradients(outputs, leaves), h, seen))
        (ours, mine, h, seen), (theirs, other, k, also) = found[::-1]
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(mine, other)
        assert (h._version, h.requires_grad, seen._version) == (
            k._version,
            k.requires_grad,
            also._version,
        )
        assert type(h.grad_fn).__name__ == type(k.grad_fn).__name__ or is_ours(h)
        assert [one is h for one in ours] == [one is k for one in theirs]
    assert "FB301" not in str(jitted.report()), jitted.report()


def test_a_leaf_is_not_written_to() -> None:
    jitted = graftjit.jit(lambda x: x.mul_(2))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        jitted(t(3))


def test_sizes_that_vary() -> None:
    jitted = graftjit.jit(lambda x: ((y := x * 2).view(-1), y[: x.shape[0] // 2], x[1:]))
    for n in (2, 4, 6, 7, 9):
        x, same = t(n, 3), t(n, 3)
        ours, theirs = jitted(x), ((z := same * 2).view(-1), z[: n // 2], same[1:])
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(gradients(ours, [x]), gradients(theirs, [same]))
    assert "FB301" not in str(jitted.report())


def test_without_grad_mode_and_back() -> None:
    jitted = graftjit.jit(lambda x: (x.view(-1), x * 2))
    for _ in range(2):
        with torch.no_grad():
            a, b = jitted(x := t(3, 2))
        assert not b.requires_grad and a._base is x
        with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
            a.mul_(2)
        assert jitted(t(3, 2))[0].grad_fn is not None


def test_double_backward_through_views() -> None:
    def f(x, w):
        y = (x * w).tanh()
        return y.view(-1), y[0]

    found = []
    for run in (f, graftjit.jit(f)):
        x, w = t(3, 3), t(3, 3)
        a, b = run(x, w)
        (g,) = torch.autograd.grad(a.square().sum() + b.sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.square().sum(), [x, w]))
    torch.testing.assert_close(*found)


def test_hooks_on_views() -> None:
    found = []
    for run in (f := lambda x: (x.sin().view(2, 2), x[1:]), graftjit.jit(f)):
        x, calls = t(4), []
        a, b = run(x)
        a.register_hook(lambda g, calls=calls: calls.append("a") or g * 2)
        b.register_hook(lambda g, calls=calls: calls.append("b"))
        a.retain_grad()
        (a.sum() + b.sum()).backward()
        found.append((sorted(calls), a.grad, x.grad))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1:], found[1][1:])


def test_a_part_of_a_model_that_writes_what_comes_in() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 2)
    )
    jitted = graftjit.compile(model[1:])
    x = torch.randn(3, 4)
    jitted(model[0](x)).sum().backward()
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(ours, [p.grad for p in model.parameters()])


def test_one_of_several_views_whose_base_is_written_to() -> None:
    """Eager refuses to go backward through it, not to make it."""

    def f(x):
        y = x * 2
        first = y.chunk(2)[0]
        y.mul_(3)
        return first

    jitted = graftjit.jit(f)
    for run in (f, jitted):
        with pytest.raises(RuntimeError, match="is a view and its base or another view"):
            run(t(4)).sum().backward()
    assert "FB301" in str(jitted.report())


def test_a_view_without_grad_mode_whose_base_is_written_to() -> None:
    def f(x):
        y = x * 2
        with torch.no_grad():
            v = y.view(-1)
        y.mul_(3)
        return v, y

    for run in (f, graftjit.jit(f)):
        v, y = run(t(4))
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            _ = v.grad_fn
        assert v.data_ptr() == y.data_ptr() and v._base is y


def _rows_of_the_transposed(x):
    x = x * 1
    v = x.transpose(0, 1)
    row = v[0]
    x.add_(1)
    return v, row, row[1:], v[:, 1]


def _between_two_writes(x):
    x = x * 2
    v = x.view(-1)
    x.mul_(3)
    part = v[1:]
    later = part.unsqueeze(0)
    x.sin_()
    return later, v, part, v[:2]


@pytest.mark.parametrize(
    "f", (_rows_of_the_transposed, _between_two_writes), ids=lambda f: f.__name__
)
def test_a_write_parts_earlier_views_from_each_other(f) -> None:
    """Autograd makes the histories of views anew from the base, once the base is written to: a view of a view does not depend on
    that view any more."""
    found = []
    for function in (f, graftjit.jit(f)):
        x = t(3, 4)
        results = function(x)
        for one in results:
            wanted = [x, *results]
            try:
                found.append(
                    torch.autograd.grad(one.sum(), wanted, retain_graph=True, allow_unused=True)
                )
            except RuntimeError as error:
                found.append(str(error).splitlines()[0])
    half = len(found) // 2
    for ours, theirs in zip(found[half:], found[:half], strict=True):
        assert type(ours) is type(theirs)
        if isinstance(ours, str):
            continue
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.equal(a, b)


def test_parts_of_which_one_goes_into_another_result() -> None:
    """All parts of the operator are made before the node of that result, beside a written leaf."""
    w = torch.linspace(0.5, 1, 4)

    def f(x: torch.Tensor, leaf: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            leaf.neg_()
        moved = x + 1
        parts = moved.unbind(0)
        return other[0], w * parts[1], moved * w, parts[1], parts[2]

    found = []
    for run in (f, graftjit.jit(f)):
        x, leaf, other = (w.clone().requires_grad_() for _ in range(3))
        results = run(x, leaf, other)
        sum(one.sum() * n for n, one in enumerate(results, 1)).backward()  # type: ignore[union-attr]
        found.append([leaf.detach(), x.grad, other.grad, *(one.detach() for one in results)])
    torch.testing.assert_close(found[1], found[0])


def _asked_after_a_write(x):
    made = x.clone()
    view = made.real
    made.add_(1)
    return made, view.is_leaf


def test_a_question_about_a_view_whose_base_was_written_to():
    """A read of `grad_fn` makes the node of such a view, by operators."""
    jitted = graftjit.jit(_asked_after_a_write)
    x = torch.tensor([1 + 1j, 2 - 1j], requires_grad=True)
    (ours, leaf), (expected, as_expected) = jitted(x), _asked_after_a_write(x)
    assert leaf is as_expected
    assert torch.equal(ours, expected)
    assert "PL205" not in {note.code for note in jitted.report().notes}
