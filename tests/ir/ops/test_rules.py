"""Result rules against torch: every operator that op_db's samples dispatch, on CPU, in several layouts."""

from __future__ import annotations

import contextlib
import itertools
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

from .rules_checker import RuleChecker

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 4
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
# Left out: operators with no row of ours below them, and some that are slow to sample.
FOREIGN = ("linalg", "fft", "signal", "sparse", "torch.ops", "masked", "ops.aten", "jiterator")
# The worst case is a rule that never answers: these must have been checked.
MUST_BE_CHECKED = """
    add.Tensor mul.Tensor where.self addmm.default mm.default bmm.default convolution.default
    native_layer_norm.default native_batch_norm.default _softmax.default cat.default stack.default
    sum.dim_IntList mean.dim amax.default var.correction view.default permute.default slice.Tensor
    select.int embedding.default gather.default index.Tensor cumsum.default topk.default sort.stable
    max_pool2d_with_indices.default avg_pool2d.default _scaled_dot_product_flash_attention_for_cpu.default
    native_group_norm.default expand.default _to_copy.default clone.default constant_pad_nd.default
"""
SHARDS = 6


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same values in other memory orders."""
    if tensor.layout is not torch.strided or tensor.ndim < 2:
        return []
    other = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    sparse = torch.stack([tensor, tensor], -1)[..., 0]
    if tensor.ndim == 4:
        return [other, sparse, tensor.contiguous(memory_format=torch.channels_last)]
    if tensor.ndim == 5:
        return [other, sparse, tensor.contiguous(memory_format=torch.channels_last_3d)]
    return [other, sparse]


def run_samples(checker: RuleChecker, op: object, dtype: torch.dtype) -> None:
    samples = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)
    for sample in samples:
        inputs = [sample.input]
        if isinstance(sample.input, torch.Tensor):
            inputs += layouts(sample.input)
        for value in inputs:
            try:
                with checker, torch.no_grad():
                    op(value, *sample.args, **sample.kwargs)
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                continue  # the sample does not suit this layout; what the rules said was noted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_rules_agree_with_cpu_kernels(shard: int) -> None:
    torch.manual_seed(0)
    checker = RuleChecker()
    for number, op in enumerate(op_db):
        if number % SHARDS != shard or op.name.startswith(FOREIGN):
            continue
        for dtype in DTYPES:
            if dtype in op.supported_dtypes("cpu"):
                run_samples(checker, op, dtype)
    assert not checker.mismatches, checker.mismatches[:3]
    assert len(checker.checked) > 30


def test_enough_rules_were_asked() -> None:
    """Covered by direct samples, so that it holds in any order of tests."""
    x = torch.randn(2, 4, 6, 6)
    weight = torch.randn(8, 4, 3, 3)
    checker = RuleChecker()
    nn = torch.nn.functional
    with checker, torch.no_grad():
        for image in (x, x.contiguous(memory_format=torch.channels_last)):
            y = nn.conv2d(image, weight, torch.randn(8), stride=2, padding=1)
            y = nn.batch_norm(y, torch.zeros(8), torch.ones(8), training=True)
            y = nn.group_norm(y, 2)
            nn.max_pool2d(nn.avg_pool2d(y, 1), 2)
            nn.scaled_dot_product_attention(image, image, image)
        flat = x.view(8, 36)
        flat = torch.cat([flat[:, :18], torch.stack([flat, flat])[0]], 1)
        nn.layer_norm(nn.softmax(nn.linear(flat, torch.randn(5, 54), torch.randn(5)), -1), (5,))
        (flat @ flat.t()).bfloat16().cumsum(0)
        torch.bmm(x[0], x[1])
        torch.where(flat > 0, flat * 2 + flat.mean(1, keepdim=True), flat.amax(1, keepdim=True))
        flat.topk(3), flat.sort(stable=True), flat.var(1), flat.sum(0), flat.permute(1, 0).clone()
        flat.gather(1, torch.zeros(8, 1, dtype=torch.int64)).expand(8, 9)
        flat[torch.tensor([0, 2])], nn.pad(flat, (1, 2)), nn.embedding(torch.tensor([1]), flat)
        flat[1]
    assert not checker.mismatches, checker.mismatches[:3]
    wanted = {f"aten.{name}" for name in MUST_BE_CHECKED.split()}
    assert wanted <= set(checker.checked), wanted - set(checker.checked)


def turned(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same values in every order of dimensions, dense and with holes, and channels last."""
    found = []
    for order in itertools.permutations(range(tensor.ndim)):
        back = [order.index(dim) for dim in range(tensor.ndim)]
        dense = tensor.permute(order).contiguous().permute(back)
        found += [dense, torch.stack([dense, dense], -1)[..., 0], dense[:1], dense[..., :1]]
    return found + layouts(tensor)[2:]


def test_results_of_turned_operands_lie_as_in_eager() -> None:
    """What follows reads them by the strides that a rule gave."""
    nn, aten, checker = torch.nn.functional, torch.ops.aten, RuleChecker()
    sound, image = torch.randn(2, 3, 4), torch.randn(2, 3, 4, 5)
    with checker, torch.no_grad():
        for x in turned(sound) + turned(image):
            for dim in range(x.ndim + 1):
                torch.stack([x, x * 2], dim)
            torch.pow(2.0, x), torch.ldexp(x, x), x.double(), x.expand(2, *x.shape).half()
            nn.prelu(x, torch.ones(1))
            for other in (x, x.contiguous()):
                aten.threshold_backward(other, x, 0), aten.leaky_relu_backward(other, x, 0.1, False)
                aten.mse_loss_backward(other, x, x, 1)
        for x, w in itertools.product(turned(sound), turned(torch.randn(3, 3, 2))[:-2]):
            if w.shape[1] == x.shape[1]:
                nn.conv1d(x, w, padding=1), nn.conv_transpose1d(x, w.transpose(0, 1))
        nn.conv1d(torch.randn(2, 6, 1).transpose(1, 2), torch.randn(5, 1, 3))
    assert not checker.mismatches, checker.mismatches[:3]


def test_results_of_roll_lie_as_in_eager() -> None:
    """It is a cat of two slices, and takes the format of these."""

    def program(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, tuple[int, ...]]:
        y = x.roll(1, dim)
        return y, y.stride()

    x = torch.randn(2, 3, 5, 4).to(memory_format=torch.channels_last)
    for given in (x, x[:1], x.contiguous()):
        for dim in range(4):
            (wanted, strides), (found, said) = (
                program(given, dim),
                graftjit.jit(program)(given, dim),
            )
            assert torch.equal(found, wanted)
            assert (found.stride(), said) == (wanted.stride(), strides), dim


@pytest.mark.parametrize("batch", [(), (1,), (2,)])
def test_results_of_pools_lie_as_in_eager(batch: tuple[int, ...]) -> None:
    """With and without a batch: there torch looks for another format."""
    nn, checker = torch.nn.functional, RuleChecker()
    with checker, torch.no_grad():
        for rank in (2, 3):
            for x in turned(torch.randn(*batch, 3, *(5, 4, 4)[:rank])):
                if 1 not in x.shape[-rank:]:
                    with contextlib.suppress(RuntimeError):  # some orders have no kernel
                        getattr(nn, f"max_pool{rank}d")(x, 2, return_indices=True)
                    getattr(nn, f"avg_pool{rank}d")(x, 2)
                getattr(nn, f"adaptive_max_pool{rank}d")(x, 2, return_indices=True)
                getattr(nn, f"adaptive_avg_pool{rank}d")(x, 2)
    assert not checker.mismatches, checker.mismatches[:3]


@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 5, 4, 1),
        (2, 3, 1, 4, 1),
        (2, 3, 5, 1),
        (2, 3, 1, 1),
        (1, 3, 5, 4),
        (2, 1, 5, 4),
        (2, 3, 5, 4),
    ],
)
def test_results_of_batch_norms_lie_as_in_eager(shape: tuple[int, ...]) -> None:
    nn, checker = torch.nn.functional, RuleChecker()
    with checker, torch.no_grad():
        for x in turned(torch.randn(shape)):
            if x.numel() > x.shape[1]:
                nn.batch_norm(x, None, None, training=True)
            nn.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
    assert not checker.mismatches, checker.mismatches[:3]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.complex64, torch.bool])
def test_results_of_casting_operators_lie_as_in_eager(dtype: torch.dtype) -> None:
    checker, nn, whole = RuleChecker(), torch.nn.functional, torch.ones(3, 1, 4)
    programs: tuple[Callable[[torch.Tensor], object], ...] = (
        torch.sin, torch.sigmoid, torch.nan_to_num, torch.abs, torch.angle, torch.deg2rad,
        torch.isinf, nn.hardtanh, lambda x: x + whole, lambda x: whole * x, lambda x: x < whole,
        lambda x: x.eq(torch.tensor(1.0, dtype=torch.float64)), lambda x: x.pow(2.5),
        lambda x: torch.where(x == 1, x, whole), lambda x: torch.addcmul(x, whole, x),
        lambda x: torch.floor_divide(x, 2.5), lambda x: torch.xlogy(x, 2.5),
        lambda x: torch.xlogy(2.5, x),
    )  # fmt: skip
    with checker, torch.no_grad():
        for x in turned(torch.ones(3, 1, 4).to(dtype)):
            # the stride of a dimension of one element may be any number
            odd = x.as_strided(x.shape, [1 if n == 1 else st for n, st in zip(x.shape, x.stride())])
            for given, program in itertools.product((x, odd), programs):
                with contextlib.suppress(RuntimeError):
                    program(given)
    assert not checker.mismatches, checker.mismatches[:3]


@pytest.mark.parametrize("shape", [(3, 5, 1), (3, 1, 4), (1, 5, 4), (3, 5, 4)])
def test_items_by_tensors_lie_as_in_eager(shape: tuple[int, ...]) -> None:
    checker, at = RuleChecker(), torch.zeros(2, dtype=torch.int64)
    with checker, torch.no_grad():
        for x in turned(torch.randn(shape)):
            _ = x[at], x[:, at], x[:, :, at], x[at, at], x[at, :, at], x[:, at, at]
    assert not checker.mismatches, checker.mismatches[:3]


def test_a_pool_in_three_dimensions_without_a_batch_keeps_channels_last() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        y = torch.nn.functional.max_pool3d(x, 2)
        return y + 1, y.stride()

    x = torch.randn(1, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d)[0]
    (wanted, strides), (found, said) = program(x), graftjit.jit(program)(x)
    assert torch.equal(found, wanted)
    assert (found.stride(), said) == (wanted.stride(), strides)


@pytest.mark.parametrize(
    "pick",
    [
        lambda table, index: table.index_select(0, index),
        lambda table, index: table.gather(0, index[:, None]),
        lambda table, index: torch.nn.functional.embedding(index, table),
    ],
    ids=["index_select", "gather", "embedding"],
)
def test_an_index_of_nothing_raises_when_it_is_captured(pick: Any) -> None:
    """So Python raises it at its line, also after a write to an argument."""

    def f(y: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        y.mul_(3)
        return pick(table, torch.arange(2))

    compiled = graftjit.jit(f)
    with pytest.raises((IndexError, RuntimeError)) as raised:
        compiled(torch.ones(4), torch.ones(0, 2))
    line = traceback.extract_tb(raised.value.__traceback__)[-1].line
    assert line is not None and line.startswith(("lambda", "return"))
    assert compiled.report().breaks[0].code == "GB108"
