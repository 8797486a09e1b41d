"""Memory of tensors: products into their own factors, results that are views, complex numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graftjit import jit

from ..harness import agrees, t


@agrees(calls=1)
def test_products_into_their_own_factors():
    def f(x, w, v):
        try:
            torch.mm(x, w, out=x)
            w.addmm_(w, x)
            torch.addmm(v, x, w, out=v)
            v.view(1, 3, 3).baddbmm_(x[None], v[None])
            torch.mv(v, w[0], out=w[0])
            torch.matmul(w, v, out=v.view(3, 3))
        finally:
            x.add_(1)
        return x, w, v

    return f, (t(3, 3), t(3, 3) + 1, t(3, 3) - 1)


def own_shapes(x, rows):
    return (
        x.repeat(2, 1, 1, 1), x.tile(2), F.interpolate(x, scale_factor=2), F.group_norm(x, 3),
        (x[:, :1] * 2).squeeze_(1), (x * 3).unsqueeze_(0), F.max_pool1d(x[0], 2), rows[0] @ rows,
        rows.quantile(0.5), (x * 2)[0].squeeze_(0), x[:1].squeeze_(0), rows[:1].repeat(1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("which", range(12))
def test_a_result_is_a_view_where_it_is_one_in_eager(which):
    """A view cannot be detached in place, any other result can."""

    def f(x, rows):
        return own_shapes(x, rows)[which]

    def seen(run):
        one = run(t(2, 3, 4, 4), t(3, 3))
        try:
            return one._is_view(), one.detach_() is one
        except RuntimeError as error:
            return one._is_view(), str(error)

    assert seen(jit(f)) == seen(f)


@agrees(calls=1)
def test_complex_numbers_beside_real_tensors():
    def f(x, flags, counts):
        found = [flags == 1j, counts == 2 + 0j, x != 1j, counts != 1j]
        for one in (x, counts):
            try:
                one.clone().fill_(1j)
            except RuntimeError as error:
                found.append(str(error))
        return found

    return f, (t(3), torch.tensor([True, False]), torch.tensor([1, 2]))


@agrees()
def test_gradients_of_leaves_whose_sizes_vary():
    def f(x):
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
        return y.grad, x

    return f, (t(3),), [lambda: (t(4),), lambda: (t(5),)]


def seen_as(c):
    """A float view of complex memory that is then written to."""

    def f(x):
        y = x * 1
        whole = torch.view_as_complex(y)
        part = torch.view_as_real(whole)[:, 0] if c else whole.imag
        whole.mul_(2)
        again = y[:, 1] * 3
        return part * 1, again, part.dtype, whole.conj() + 0

    return f


def seen_as_bits(x):
    y = x * 1
    bits = y.view(torch.int32)
    part = bits.view(torch.float32)[:, 0]
    bits.copy_(bits + 1)
    return part * 1, bits[:1] + 0, y[:, 1] * 2


@pytest.mark.parametrize("f", [seen_as(True), seen_as(False), seen_as_bits])
@pytest.mark.parametrize("training", [False, True])
def test_views_of_another_dtype_and_back_see_writes_to_their_memory(f, training):
    x = t(3, 2).requires_grad_(training)
    got, wanted = jit(f)(x), f(x)
    for one, other in zip(got, wanted, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one is other
            continue
        assert one.dtype is other.dtype
        assert torch.equal(one, other)
        if other.requires_grad:
            one, other = (
                torch.autograd.grad(made.abs().sum(), x, retain_graph=True)[0]
                for made in (one, other)
            )
            assert torch.equal(one, other)
