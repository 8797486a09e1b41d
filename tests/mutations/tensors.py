"""Tensors: rebound, written to, given other memory, types, layouts and attributes; subclasses; aliasing."""

from __future__ import annotations

import torch
from torch import nn

from .kinds import SAME, kind
from .objects import Box

X = torch.tensor([0.5, -1.0])
M = torch.arange(6.0).reshape(2, 3)


@kind
def tensor_rebound():
    o = Box(w=torch.tensor([2.0, 3.0]))

    def f(x):
        return x * o.w

    yield f, (X,)
    o.w = torch.tensor([5.0, 6.0])
    yield SAME
    o.w = torch.tensor([[5.0], [6.0]])
    yield
    o.w = 3.0
    yield


@kind
def tensor_written_in_place():
    o = Box(w=torch.tensor([2.0, 3.0]))

    def f(x):
        return x * o.w

    yield f, (X,)
    o.w.add_(1)
    yield SAME
    o.w[0] = 9
    yield SAME
    o.w.copy_(torch.tensor([0.0, -0.0]))
    yield SAME
    o.w.numpy()[1] = 4
    yield SAME


@kind
def tensor_data_assigned():
    w = torch.tensor([2.0, 3.0])

    def f(x):
        return x * w

    yield f, (X,)
    w.data = torch.tensor([5.0, 6.0])
    yield SAME
    w.data = torch.tensor([[1.0], [2.0]])
    yield
    w.data = torch.tensor([2, 3])
    yield


@kind
def tensor_set_to_other_memory():
    w, other = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 6.0, 7.0])

    def f(x):
        return x * w

    yield f, (X,)
    w.set_(other[1:])
    yield SAME
    w.set_(other.untyped_storage(), 0, (2,), (2,))
    yield
    w.set_(other.untyped_storage(), 0, (1,), (1,))
    yield


@kind
def tensor_resized():
    w = torch.tensor([2.0, 3.0])

    def f(x):
        return x.sum() * w

    yield f, (X,)
    w.resize_(1)
    yield
    w.resize_(2)
    yield SAME
    w.resize_(4).fill_(1)
    yield


@kind
def tensor_reshaped_in_place():
    w = torch.tensor([[2.0, 3.0]])

    def f(x):
        return x * w

    yield f, (X,)
    w.t_()
    yield
    w.t_()
    yield SAME
    w.squeeze_(0)
    yield
    w.unsqueeze_(1)
    yield


@kind
def tensor_strides_changed():
    w = torch.arange(4.0).reshape(2, 2)

    def f(x):
        return (x * w).flatten(), w.is_contiguous(), w.stride()

    yield f, (X,)
    w.transpose_(0, 1)
    yield
    w.as_strided_((2, 2), (0, 1))
    yield


@kind
def requires_grad_switched():
    w = torch.tensor([2.0, 3.0])

    def f(x):
        y = x * w
        return y.detach(), y.requires_grad, w.requires_grad

    yield f, (X,)
    w.requires_grad_()
    yield
    w.requires_grad_(False)
    yield SAME


@kind
def gradient_filled():
    w = torch.tensor([2.0, 3.0], requires_grad=True)

    def f(x):
        return x - 1 if w.grad is None else x + w.grad

    with torch.no_grad():
        yield f, (X,)
        w.grad = torch.ones(2)
        yield
        w.grad.mul_(3)
        yield SAME
        w.grad = None
        yield SAME


@kind
def dtype_of_an_argument():
    def f(x):
        return x * 2 + 1, x.dtype

    yield f, (X,)
    yield (X.double(),)
    yield (X.long(),)
    yield (X.half(),)
    yield (X,)


@kind
def shape_of_an_argument():
    def f(x):
        return x.sum(-1) * x.shape[0], x.dim()

    yield f, (X,)
    yield (M,)
    yield (torch.tensor(2.0).reshape(1),)
    yield (torch.zeros(0),)
    yield (X,)


@kind
def strides_of_an_argument():
    def f(x):
        return x + 1, x.is_contiguous(), x.t().is_contiguous()

    yield f, (M,)
    yield (M.t(),)
    yield (M[:, ::2],)
    yield (M[:1].expand(2, 3),)
    yield (M,)


@kind
def channels_last():
    def f(x):
        return x * 2, x.is_contiguous(memory_format=torch.channels_last)

    image = torch.arange(16.0).reshape(1, 2, 2, 4)
    yield f, (image,)
    yield (image.to(memory_format=torch.channels_last),)
    yield (image,)


@kind
def conjugate_and_negative_views():
    c = torch.tensor([1 + 2j, 3 - 1j])

    def f(x):
        return x * 2, x.is_conj(), x.is_neg()

    yield f, (c,)
    yield (c.conj(),)
    yield (c.conj().imag,)
    yield (c,)


@kind
def tensor_subclass_put_in():
    class Marked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                out = func(*args, **(kwargs or {}))
                return out + 100 if func is torch.sin else out

    o = Box(w=X.clone())

    def f(x):
        return torch.sin(o.w) + x

    yield f, (X,)
    o.w = X.clone().as_subclass(Marked)
    yield
    o.w = X.clone()
    yield SAME
    Marked.__torch_function__ = torch._C._disabled_torch_function_impl
    o.w = X.clone().as_subclass(Marked)
    yield


@kind
def parameter_for_a_tensor():
    o = Box(w=X.clone())

    def f(x):
        return x * 2 + 1 if isinstance(o.w, nn.Parameter) else x * o.w

    with torch.no_grad():
        yield f, (X,)
        o.w = nn.Parameter(X.clone())
        yield
        o.w = X.clone()
        yield SAME


@kind
def attributes_of_a_tensor():
    w = torch.tensor([2.0, 3.0])
    w.scale = 2

    def f(x):
        return x * w * w.scale

    yield f, (X,)
    w.scale = 5
    yield
    w.unread = 3
    yield SAME
    del w.scale
    w.scale = 2
    yield SAME


@kind
def attribute_added_to_a_tensor():
    w = torch.tensor([2.0, 3.0])

    def f(x):
        return x + 1 if hasattr(w, "mark") else x * w

    yield f, (X,)
    w.mark = True
    yield
    del w.mark
    yield SAME


@kind
def class_of_a_tensor_assigned():
    class Sub(torch.Tensor):
        def twice(self):
            return self * 2

    w = torch.tensor([2.0, 3.0])

    def f(x):
        return x * (w.twice() if type(w) is not torch.Tensor else w)

    yield f, (X,)
    w.__class__ = Sub
    yield
    Sub.twice = lambda self: self * 5
    yield
    w.__class__ = torch.Tensor
    yield SAME


@kind
def tensors_swapped():
    a, b = torch.tensor([2.0, 3.0]), torch.tensor([[4.0], [5.0]])

    def f(x):
        return x * a, x + b

    yield f, (X,)
    torch.utils.swap_tensors(a, b)
    yield
    torch.utils.swap_tensors(a, b)
    yield SAME


@kind
def one_tensor_at_two_places():
    a, b = torch.tensor([2.0, 3.0]), torch.tensor([2.0, 3.0])
    o = Box(a=a, b=b)

    def f(x):
        o.a.add_(1)
        return x * o.b, o.a is o.b

    yield f, (X,)
    o.b = a
    yield
    o.b = a[:]
    yield
    o.b = b
    yield SAME


@kind
def overlapping_memory():
    base = torch.arange(4.0)

    def f(x, y):
        x.mul_(2)
        return x + y

    yield f, (base[:2], base[2:])
    yield base[:2], base[1:3]
    yield base[:2], base[:2]
    yield base[:2], base[2:]


@kind
def values_that_steer():
    flag = torch.tensor(True)

    def f(x):
        return x + 1 if flag else x - 1

    yield f, (X,)
    flag.fill_(False)
    yield
    flag.logical_not_()
    yield


@kind
def values_read_as_numbers():
    n = torch.tensor(2)

    def f(x):
        return x * n.item() + int(n)

    yield f, (X,)
    n.add_(1)
    yield
    n.fill_(2)
    yield


@kind
def tensor_as_an_index():
    w, at = torch.tensor([2.0, 3.0, 4.0]), torch.tensor([0, 1])

    def f(x):
        return x + w[at]

    yield f, (X,)
    at[0] = 2
    yield SAME
    at.resize_(1)
    yield


@kind
def sparse_for_dense():
    o = Box(w=torch.eye(2))

    def f(x):
        return torch.mm(o.w, x), o.w.layout

    yield f, (M,)
    o.w = torch.eye(2).to_sparse()
    yield
    o.w = torch.eye(2)
    yield SAME


@kind
def device_of_a_tensor():
    o = Box(w=X.clone())

    def f(x):
        return x + 1 if o.w.device.type == "meta" else x * o.w

    yield f, (X,)
    o.w = X.to("meta")
    yield
    o.w = X.clone()
    yield SAME


@kind
def version_counter():
    w = torch.tensor([2.0, 3.0])
    first = w._version

    def f(x):
        return x * w, w._version - first

    yield f, (X,)
    w.add_(1)
    yield
    w.add_(1)
    yield


@kind
def view_of_a_base_that_changes():
    base = torch.arange(4.0)
    view = base[1:3]

    def f(x):
        return x * view + base.sum()

    yield f, (X,)
    base.mul_(2)
    yield SAME
    view.zero_()
    yield SAME


@kind
def hooks_on_a_tensor():
    def f(x):
        return (x * x).sum()

    def graded(x):
        y = f(x)
        (g,) = torch.autograd.grad(y, x)
        return y.detach(), g

    leaf = X.clone().requires_grad_()
    yield graded, (leaf,)
    handle = leaf.register_hook(lambda g: g * 10)
    yield
    handle.remove()
    yield


@kind
def pinned_and_shared_memory():
    w = torch.tensor([2.0, 3.0])

    def f(x):
        return x * w + w.is_shared()

    yield f, (X,)
    w.share_memory_()
    yield
    w.add_(1)
    yield SAME


@kind
def names_of_functions_on_tensors():
    o = Box(name="sin")

    def f(x):
        return getattr(x, o.name)() + getattr(torch, o.name)(x)

    yield f, (X,)
    o.name = "cos"
    yield
    o.name = "sin"
    yield SAME
