"""Torch inside a frame: views, in-place changes, indexing, dtypes, factories, tuple results, modules, gradients."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit

from ..harness import agrees, t


@agrees(calls=2)
def test_arguments_changed_in_place():
    def f(x, y):
        x.add_(1)
        y.mul_(x)
        z = x.view(-1)
        z[0] = 9
        x[1:] *= 2
        return x, y, z, x.sum()

    return f, (t(4), t(4))


@agrees(calls=2)
def test_views_of_arguments():
    def f(x):
        a, b = x[0], x.t()
        b.add_(1)
        c = x.reshape(-1)
        c[0] = 5
        d = x.reshape(-1).clone()
        return a, b, c, d, x, x.T, x.view(2, 3, 1), x.expand(2, 2, 3), x[:, ::2], x.narrow(1, 0, 2)

    return f, (t(2, 3),)


@agrees(calls=2)
def test_argument_returned():
    def f(x, y):
        return (
            x,
            y,
            x,
            [x],
            x.contiguous(),
            x.to(torch.float32),
            x.detach(),
            x.view_as(x),
            x.float(),
        )

    return f, (t(2), t(3))


@agrees()
def test_arguments_that_alias():
    def f(x, y):
        x.add_(1)
        return y * 2, x is y

    x, y = t(4), t(4)
    return (
        f,
        (x, y),
        [lambda: (x, x), lambda: (x, x[1:3]), lambda: (x, x.view(2, 2)), lambda: (y, x)],
    )


@agrees(calls=2)
def test_in_place_then_returned():
    def f(x, out):
        y = x * 2
        y += 1
        y[0] = 0
        out.copy_(y)
        out.zero_()
        return y, out, out is not y

    return f, (t(3), t(3))


@agrees(calls=2)
def test_indexing():
    def f(x, i, mask):
        x = x.clone()
        a = (
            x[0], x[-1], x[1:], x[:, 1], x[..., 0], x[None], x[:, None, 1:], x[i], x[i, 0], x[:, i], x[0, 1],
            x[[0, 1]], x[torch.tensor(1)], x[(0, 1)], x[True], x[0:1, ...], x[i[0]], x[i > 0] if False else 0,
        )  # fmt: skip
        x[0] = 1
        x[:, 1] = x[:, 2]
        x[i] = -1
        x[..., -1] += 5
        x[mask] = 7
        return a, x

    return f, (t(3, 4), torch.tensor([0, 2]), t(3, 4) > 0)


@agrees(calls=2)
def test_index_errors():
    def f(x):
        y = x + 1
        try:
            return y[5]
        except IndexError as error:
            return str(error)

    return f, (t(3),)


@agrees(calls=2)
def test_masks_and_nonzero():
    def f(x):
        y = x[x > 0]
        z = x.nonzero()
        return y * 2, z, y.shape[0], torch.where(x > 0), x.unique()

    return f, (t(5),), [lambda: (t(8),)]


@agrees(calls=2)
def test_tuple_results():
    def f(x):
        m = x.max(dim=1)
        values, indices = x.min(dim=0)
        a, b = x.split(2, dim=1)
        c, *d = x.chunk(4, dim=1)
        top = torch.topk(x, 2)
        s = torch.sort(x, descending=True)
        u = x.unbind(0)
        return (
            m.values,
            m.indices,
            values,
            indices,
            a,
            b,
            c,
            d,
            top.values,
            s[1],
            len(u),
            m,
            torch.std_mean(x),
        )

    return f, (t(2, 4),)


@agrees(calls=2)
def test_promotion():
    def f(x, i, b):
        return (
            x + i, i / 2, i // 2, i * 2.0, b + 1, x.double() * x, i + b, x.half() + 1, x > i, i % 3, -i, ~b,
            x.to(torch.int64), 2**x, 1 - i, x * True, i & 1, b | b, torch.add(i, i, alpha=2), i.float(), x.int(),
        )  # fmt: skip

    return f, (t(3), torch.arange(3), torch.tensor([True, False, True]))


@agrees(calls=2)
def test_factories():
    def f(x, n):
        return (
            torch.zeros(n, 2), torch.ones_like(x), torch.arange(n), torch.full((2,), 3.5), torch.eye(2),
            torch.tensor([1, 2, n]), torch.linspace(0, 1, 3), torch.empty(0), x.new_zeros(2), x.new_full((1,), 2),
            torch.tensor(3.5), torch.arange(0, 1, 0.25), torch.tensor([[1.0, 2], [3, 4]]), torch.zeros(x.shape),
            torch.scalar_tensor(2.0), torch.full_like(x, 2),
        )  # fmt: skip

    return f, (t(3), 3)


@agrees(calls=3)
def test_random():
    def f(x):
        a = torch.rand(3)
        b = torch.randn_like(x)
        c = F.dropout(x, 0.5)
        print("between")
        return (
            a,
            b,
            c,
            torch.randint(0, 9, (2,)),
            torch.randperm(4),
            x.bernoulli(0.5),
            torch.rand(2),
        )

    return f, (t(3),)


@agrees(calls=2)
def test_seeds():
    def f(x):
        torch.manual_seed(3)
        a = torch.rand(2)
        return a, x + 1, torch.initial_seed()

    return f, (t(3),)


@agrees(calls=2)
def test_shapes():
    def f(x):
        b, *rest = x.shape
        n = x.size(-1)
        s = x.shape[1:] + (2,)
        y = x.view(b, -1).reshape(*x.shape)
        return (
            y, s, rest, n, x.shape, x.size(), x.numel(), x.dim(), x.ndim, len(x), x.stride(), x.dtype, x.device,
            x.is_contiguous(), x.shape == (2, 3, 4), isinstance(x.shape, tuple), list(x.shape), x.shape.numel(),
            x.element_size(), x.is_floating_point(), x.shape[0] * 2 // 3, tuple(x.shape), (1,) + x.shape,
            x.requires_grad, x.shape[-2:], torch.Size([1, 2]), x.flatten(1).shape,
        )  # fmt: skip

    return f, (t(2, 3, 4),)


@agrees(calls=2)
def test_functional():
    torch.manual_seed(0)
    w, b = torch.randn(4, 3), torch.randn(4)

    def f(x):
        y = F.linear(x, w, b)
        return (
            F.relu(y), F.softmax(y, -1), F.gelu(y), F.layer_norm(y, (4,)), F.log_softmax(y, dim=1), F.silu(y),
            F.cross_entropy(y, torch.tensor([0, 1])), F.mse_loss(y, y * 2), F.pad(y, (1, 1)), F.normalize(y),
            F.one_hot(torch.tensor([0, 2])), F.elu(y), F.leaky_relu(y, 0.1), F.softplus(y), F.hardtanh(y),
            torch.cat([y, y]), torch.stack([y, y], 1), torch.einsum("ij,kj->ik", y, y), y.matmul(y.T),
            torch.where(y > 0, y, -y), torch.clamp(y, -1, 1), y.cumsum(0), y.mean((0, 1)), y.std(), y.norm(),
        )  # fmt: skip

    return f, (t(2, 3),)


@agrees(calls=2, backward=True)
def test_modules():
    torch.manual_seed(0)
    conv = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
    )
    norm, emb, act = nn.LayerNorm(8), nn.Embedding(5, 8), nn.PReLU()

    def f(x, i):
        y = conv(x)
        return y, norm(y[:, :8]), emb(i), act(y).sum(), nn.functional.dropout(y, 0.5, False)

    return f, (t(2, 1, 8, 8), torch.tensor([0, 4]))


@agrees(calls=2, backward=True)
def test_recurrent_and_attention():
    torch.manual_seed(0)
    lstm, mha = nn.LSTM(4, 3, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)

    def f(x):
        y, (h, c) = lstm(x)
        z, w = mha(x, x, x)
        return y, h, c, z, w

    return f, (t(2, 3, 4),)


@agrees(calls=2, grad=False, graphs=1, breaks=0)
def test_attention_without_weights_in_one_call():
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    return lambda x: mha(x, x, x, need_weights=False), (t(2, 3, 4),)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@agrees(calls=2, grad=False, graphs=2, breaks=1)
def test_encoder_gives_zeros_at_padding():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
    padding = torch.tensor([[False, False, False], [False, True, True]])

    return lambda x: encoder(x * 2, src_key_padding_mask=padding) + 1, (t(2, 3, 4),)


@agrees(backward=True)
def test_gradients():
    def f(x, y):
        z = (x * y).sum() + x.exp().mean()
        return z, x * 2, y

    x, y = t(3).requires_grad_(), t(3)
    return f, (x, y), [lambda: (x, t(3).requires_grad_()), lambda: (t(3), y), lambda: (x, x)]


@agrees(calls=2)
def test_backward_inside():
    def f(x):
        loss = (x * x).sum()
        loss.backward()
        g = x.grad * 2
        x.grad = None
        (h,) = torch.autograd.grad((x**3).sum(), x)
        return g, h, loss

    return f, (t(3).requires_grad_(),)


@agrees(calls=2)
def test_detach_and_requires_grad():
    def f(x):
        y = x.detach()
        z = (x * 2).detach().requires_grad_()
        return (
            y,
            z,
            x.is_leaf,
            (x * 2).is_leaf,
            x.grad_fn,
            (x * 2).grad_fn is None,
            y.requires_grad,
            x.data * 2,
        )

    return f, (t(3).requires_grad_(),)


@agrees(calls=2)
def test_custom_autograd_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 7

    def f(x):
        return Double.apply(x) + 1

    return f, (t(3).requires_grad_(),)


@agrees(calls=2, backward=True)
def test_tensor_hooks():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    return f, (t(3).requires_grad_(),)


@agrees()
def test_tensor_facts_change():
    def f(x):
        return x * 2, x.shape, x.dtype, x.is_contiguous()

    return f, (t(4),), [
        lambda: (t(5),), lambda: (t(4).double(),), lambda: (t(2, 2),), lambda: (t(4, 2)[:, 0],),
        lambda: (t(2, 3).t(),), lambda: (t(4).requires_grad_(),), lambda: (torch.arange(4),),
        lambda: (nn.Parameter(t(4)),), lambda: (torch.zeros(0),), lambda: (torch.tensor(1.0),),
        lambda: (t(1).expand(4),), lambda: (torch.zeros(4, dtype=torch.complex64),), lambda: (3,),
        lambda: (torch.zeros(4).to_sparse(),), lambda: (torch.zeros(2, 2, dtype=torch.bfloat16),),
    ]  # fmt: skip


@agrees()
def test_default_dtype_changes():
    def f(x):
        return torch.zeros(2) + x, torch.tensor(1.5), x / 2

    x = torch.arange(2)
    return f, (x,), [
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32),
    ]  # fmt: skip


@agrees()
def test_subclasses():
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            print(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def f(x):
        return (x + 1).sum()

    x = t(3)
    return f, (x,), [lambda: (x.as_subclass(Mine),), lambda: (x,)]


@agrees(calls=2)
def test_python_values_from_tensors():
    def f(x, i):
        return (
            x.tolist(),
            int(i[0]),
            float(x[0]),
            x.numpy().sum(),
            i[1].item() + 1,
            [x] * int(i[2]),
            range(i[1]),
        )

    return f, (t(3), torch.tensor([1, 2, 3]))


@agrees(calls=2)
def test_tensor_attributes_of_users():
    def f(x):
        x.note = "hello"
        y = x + 1
        y.mark = 3
        return y, x.note, hasattr(y, "mark"), getattr(x, "nothing", None)

    return f, (t(3),)


@agrees(calls=2)
def test_isinstance_of_tensors():
    def f(x, p):
        return (
            isinstance(x, torch.Tensor), isinstance(p, nn.Parameter), isinstance(x, nn.Parameter), type(x),
            torch.is_tensor(x), isinstance(x, (list, torch.Tensor)), x.__class__, issubclass(type(p), torch.Tensor),
            x.shape, isinstance(x, torch.FloatTensor), torch.is_floating_point(x), type(x + p) is torch.Tensor,
        )  # fmt: skip

    return f, (t(3), nn.Parameter(t(3)))


@agrees(calls=2)
def test_out_and_resizing():
    def f(x):
        out = torch.empty(3)
        torch.add(x, 1, out=out)
        y = torch.empty(0)
        torch.mul(x, 2, out=y)
        z = x.clone()
        z.resize_(2)
        return out, y, z, z.data_ptr() == x.data_ptr()

    return f, (t(3),)


@agrees(calls=2)
def test_data_and_strides():
    def f(x):
        y = torch.as_strided(x, (2, 2), (1, 2))
        z = x.t().contiguous()
        return (
            y,
            z,
            x.permute(1, 0),
            x.to(memory_format=torch.contiguous_format),
            x.storage_offset(),
            x.flip(0),
        )

    return f, (t(2, 3)[:, 1:],)


@agrees(calls=2)
def test_numpy_inside():
    import numpy as np

    def f(x, n):
        a = np.arange(n) * 2
        return x * float(a.sum()), torch.from_numpy(a) + 1, np.float32(2) * 3, x.numpy().shape

    return f, (t(3), 3)


@agrees(calls=2)
def test_vmap_and_grad():
    def f(x):
        g = torch.func.grad(lambda v: (v**2).sum())
        return g(x), torch.vmap(lambda v: v * 2)(x), torch.func.vmap(torch.sin)(x)

    return f, (t(3),)


@agrees(calls=2)
def test_functional_call_and_state():
    torch.manual_seed(0)
    net = nn.Linear(2, 2)

    def f(x):
        params = {k: v * 2 for k, v in net.named_parameters()}
        y = torch.func.functional_call(net, params, (x,))
        return y, net(x), sorted(net.state_dict())

    return f, (t(1, 2),)


@agrees(calls=2)
def test_modules_built_inside():
    def f(x):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        return net(x), net[0].weight.shape

    return f, (t(1, 2),)


@agrees(calls=2)
def test_operators_between_lists_and_tensors():
    def f(x):
        items = [x]
        items += x
        return (
            items,
            [1, 2] * 2,
            sum(items),
            x == None,
            x != "a",
            [x, 1].count(1),
            5 * x,
            x @ x,
            x in [x],
        )  # noqa: E711

    return f, (t(2),)


@agrees(calls=2)
def test_tensor_comparison_with_objects():
    def f(x, o):
        return x == o, x is o, o is None, x is x

    return f, (t(2), None)


@agrees(graphs=1, breaks=0)
def test_operators_of_numbers_alone():
    """Torch makes tensors of them, with the dtype of numbers."""

    def f(x):
        windows = torch.div(x.size(1), 3, rounding_mode="trunc")
        made = (
            torch.add(1, 2.5),
            torch.mul(2.5, 2),
            torch.mul(True, 3),
            torch.sub(1, 2j),
            torch.div(7, 2),
        )
        return x * windows, made, torch.pow(2, torch.tensor(3)), torch.add(3, 4, alpha=2) + x

    return f, (t(2, 7),)


def _scripted(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        return torch.jit.script(function)


def _scale(q: torch.Tensor, k: int):
    return torch.sqrt(torch.tensor(q.size(-1), dtype=torch.float) * k)


def _gated(x: torch.Tensor, n: int = 2, flag: bool = True):
    y = torch.zeros_like(x)
    for i in range(n):
        if flag:
            y = y + torch.sigmoid(x) * i
    return y, torch.tensor(n), n + x.size(0)


def _one_way(x: torch.Tensor):
    if bool(x.sum() > 0):
        return x * 2
    return -x


def _counts(x: torch.Tensor):
    y = torch.tensor(1.0)
    y.add_(x.size(0))
    return x * y


scale, gated, one_way, counts = map(_scripted, (_scale, _gated, _one_way, _counts))


@agrees(
    breaks=0, graphs=1, backward=True, level="O1"
)  # its optimizer sums gradients in other orders
def test_scripted_functions():
    def f(x):
        y, n, rows = gated(x, flag=True)
        n += 1
        return y / scale(x, 3), n, rows, gated(x, 3, False)

    return f, (t(2, 3).requires_grad_(),)


@agrees(calls=3)
def test_scripted_functions_that_break():
    """Data decides in one; the other writes to a tensor that it made of a number."""

    def f(x):
        return one_way(x) + 1, counts(x), one_way(-x)

    return f, (t(2, 3),)


def test_nested_tensors_are_a_named_break():
    def f(x, given):
        made = torch.nested.nested_tensor([x, x * 2]) * 3
        padded = torch.nested.to_padded_tensor(made, 0.0)
        return padded + 1, [part.sum() for part in (given * 2).unbind()]

    def listed(x, n):
        return torch._nested_tensor_from_tensor_list([x * 2, x]).unbind()[n] + 1

    for layout in (torch.strided, torch.jagged):
        given = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)
        for function, last in ((f, given), (listed, 1)):
            run = jit(function)
            for _ in range(2):
                found, wanted = run(torch.ones(3), last), function(torch.ones(3), last)
                torch.testing.assert_close(found, wanted)
            notes = [*run.report().breaks, *run.report().notes]
            seen = {(note.code, note.reason) for note in notes}
            assert any(code == "FB304" and "nested" in reason for code, reason in seen)
            assert not {code for code, _ in seen} & {"PL205", "GB108"}


@agrees(codes=())
def test_what_follows_results_of_turned_tensors():
    nn = torch.nn.functional

    def f(x, y, w):
        stacked = [torch.stack([x, x], dim) * 2 for dim in range(5)]
        cast = y[:, ::2].t().to(torch.float64)
        return (
            stacked,
            torch.pow(2.0, y).t(),
            cast,
            cast.sin(),
            nn.conv1d(y[None], w, padding=1) * 2,
        )

    def given(count):
        x = t(count, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        return x[:, :, ::2], t(6, 3).t(), t(4, 3, 3).transpose(1, 2)

    return f, given(2), [lambda: given(1), lambda: given(3)]


@agrees()
def test_convolutions_in_three_dimensions_channels_last():
    """With one thread ATen computes a single volume row-major."""

    def f(x, w):
        return torch.nn.functional.conv3d(x, w) * 2

    def given(count):
        x = t(count, 3, 4, 5, 4).contiguous(memory_format=torch.channels_last_3d)
        return x, t(4, 3, 2, 2, 2)

    return f, given(2), [lambda: given(1), lambda: given(3)]


@agrees(breaks=0, graphs=1)
def test_an_index_of_nothing_is_another_tensor_over_the_same_memory():
    def f(x):
        y = x + 1
        return x[()] is x, x[...] is x, y[()] is y, x[()], y[()], y

    return f, (t(2, 3),)


@agrees(graphs=1)
def test_results_that_are_computed_twice_are_two_tensors():
    """One of several results of an operator, returned twice."""

    def f(x):
        order, again = x.sort(-1)[0], x.sort(-1)[0]
        most = x.max(0), x.max(0)
        again.add_(1)
        return order, again, most, torch.aminmax(x), torch.aminmax(x), x.split(1)[0], x.split(1)[0]

    return f, (t(3),)


@agrees(breaks=0)
def test_a_number_is_copied_into_a_tensor():
    def f(x, whole, byte, n):
        y = x * 2
        x.copy_(n)
        y.copy_(2.5)
        whole.copy_(True)
        byte.copy_(300)
        return y, (x + 1).copy_(0.1)

    def given(n):
        return t(3).double(), torch.arange(3), torch.ones(2, dtype=torch.uint8), n

    return f, given(1), [lambda: given(2), lambda: given(3), lambda: given(0.5)]


@agrees()
def test_numbers_in_the_place_of_tensors_that_are_viewed_or_written():
    def f(x):
        torch.add(2, 3, out=4)
        return x + torch.squeeze(2) + torch.unsqueeze(3, 0) + torch.detach(2.5) + torch.relu_(2)

    return f, (t(3),)


@agrees()
def test_data_of_a_result_has_a_version_of_its_own():
    """Autograd does not see what is written through it."""

    def f(x, w):
        y = x * 2
        z = y * w
        y.data.mul_(3)
        z.sum().backward()
        row = x.view(3, 1)
        row.data.add_(1)
        return z, w.grad, y, x._version

    return f, (t(3), torch.ones(3, requires_grad=True))


@agrees(level="O1")
def test_ranges_of_truths_and_complex_numbers():
    def ranges(x):
        made = [torch.arange(True), torch.arange(False, True), torch.arange(False, True, 0.5)]
        made += [torch.linspace(0, 1j, 3), torch.linspace(False, True, 3), torch.logspace(0, 1j, 2)]
        return made, [one.dtype for one in made], x + 1

    return ranges, (t(3),)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_a_range_for_whose_dtype_torch_has_no_kernel(dtype):
    def made(x):
        try:
            return torch.arange(3, dtype=dtype) + x
        except (RuntimeError, NotImplementedError) as error:
            return str(error)

    run = jit(made)
    assert [run(t(3)) for _ in range(2)] == [made(t(3))] * 2


@agrees(level="O1")
def test_a_text_of_a_complex_tensor():
    def text(number):
        return f"{number}, {number.item()}", number * 2

    numbers = [torch.tensor(one) for one in (1j, 2 + 0j, 1j, 0.5 - 1j)]
    return text, (numbers[0],), [lambda one=one: (one,) for one in numbers[1:]]


@agrees(level="O1")
def test_the_default_kind_of_tensor_changes_in_the_frame():
    def doubled(x):
        torch.set_default_tensor_type("torch.DoubleTensor")
        y = torch.zeros(2)
        torch.set_default_tensor_type("torch.FloatTensor")
        return y, torch.zeros(2), x + 1

    return doubled, (t(3),)
