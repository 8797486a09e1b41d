"""`flex_attention` in a graph: its functions run once over all positions, and fuse with the softmax."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from graftjit import jit

pytestmark = pytest.mark.filterwarnings("ignore")
B, H, L, E = 2, 4, 24, 8


def tensors(*, heads: int = H, dtype: torch.dtype = torch.float32, columns: int = L) -> Any:
    torch.manual_seed(0)
    return (
        torch.randn(B, H, L, E).to(dtype),
        torch.randn(B, heads, columns, E).to(dtype),
        torch.randn(B, heads, columns, E).to(dtype),
    )


def mask_of(mask_mod: Any, columns: int = L) -> Any:
    return create_block_mask(mask_mod, None, None, L, columns, device="cpu")


SLOPES = torch.tensor([0.5, 0.25, 0.125, 1.0])
TABLE = torch.arange(H * L, dtype=torch.float32).reshape(H, L) / 16
DOCUMENTS = torch.arange(L) // 5
FACTOR = torch.tensor(2.0)


def alibi(s, b, h, i, j):
    return s + SLOPES[h] * (j - i)


def near(s, b, h, i, j):
    return torch.where((i - j).abs() < 4, s, -float("inf"))


def by_table(s, b, h, i, j):
    return s + TABLE[h, (i - j).abs()] * FACTOR


def capped(s, b, h, i, j):
    return torch.tanh(s / 20) * 20 + b


def causal(b, h, i, j):
    return i >= j


def same_document(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def late(b, h, i, j):
    """The first rows see nothing."""
    return (i >= 3) & (j <= i)


def agrees(f: Any, args: Any, codes: tuple[str, ...] = (), atol: float = 2e-6) -> Any:
    """The report of two jitted calls that return what `f` returns."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = f(*args)
        run = jit(f)
        for _ in range(2):
            found = run(*args)
            assert torch.allclose(found, wanted, atol=atol, rtol=1e-5)
            assert found.stride() == wanted.stride()
            assert found.dtype == wanted.dtype
    report = run.report()
    assert tuple(one.code for one in report.breaks) == codes, report
    return report


@pytest.mark.parametrize("mod", [None, alibi, near, by_table, capped])
def test_functions_over_scores(mod):
    report = agrees(lambda q, k, v: flex_attention(q * 2, k, v, score_mod=mod) + 1, tensors())
    assert report.graph_count == 1


@pytest.mark.parametrize("mod", [causal, same_document, late])
def test_masks(mod):
    mask = mask_of(mod)
    report = agrees(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), tensors())
    assert report.graph_count == 1


def test_both_and_a_scale():
    mask = mask_of(causal)

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, block_mask=mask, scale=0.3)

    agrees(f, tensors())


def test_functions_made_in_the_frame():
    mask = mask_of(causal)

    def f(q, k, v, slope):
        def mod(s, b, h, i, j):
            return s * slope + scaled[h]

        scaled = SLOPES * 2
        return flex_attention(q, k, v, score_mod=mod, block_mask=mask)

    agrees(f, (*tensors(), torch.tensor(0.5)))


def test_grouped_heads():
    agrees(
        lambda q, k, v: flex_attention(q, k, v, score_mod=alibi, enable_gqa=True), tensors(heads=2)
    )


def test_other_lengths_of_keys():
    mask = mask_of(lambda b, h, i, j: j <= i + 8, 32)
    agrees(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), tensors(columns=32))


def test_layouts():
    """The result has the order of the query's dimensions in memory."""

    def f(q, k, v):
        return flex_attention(q.transpose(1, 2), k, v)

    q, k, v = tensors()
    agrees(f, (q.transpose(1, 2).contiguous(), k, v))


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.bfloat16, 2e-2)])
def test_dtypes(dtype, atol):
    mask = mask_of(causal)

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, block_mask=mask)

    agrees(f, tensors(dtype=dtype), atol=atol)


def test_sizes_that_vary():
    run = jit(lambda q, k, v: flex_attention(q, k, v, score_mod=alibi), dynamic=True)
    with torch.no_grad():
        for length in (8, 12, 20):
            q, k, v = (torch.randn(B, H, length, E) for _ in range(3))
            wanted = flex_attention(q, k, v, score_mod=alibi)
            assert torch.allclose(run(q, k, v), wanted, atol=2e-6)
    assert run.report().break_count == 0


def part_of_a_table(s, b, h, i, j):
    return s + TABLE[h].sum()


def of_a_row(s, b, h, i, j):
    return s + TABLE[h][i]


def sums(s, b, h, i, j):
    return s + s.sum()


def dimensions(s, b, h, i, j):
    return s + s.dim()


def in_double(s, b, h, i, j):
    return s * torch.tensor(0.5, dtype=torch.float64)


@pytest.mark.parametrize("mod", [part_of_a_table, of_a_row, sums, dimensions])
def test_functions_that_see_more_than_an_element(mod):
    code = "GB108" if mod is of_a_row else "GB124"
    agrees(lambda q, k, v: flex_attention(q, k, v, score_mod=mod), tensors(), (code,))


def test_a_number_that_changes_the_dtype():
    agrees(lambda q, k, v: flex_attention(q, k, v, score_mod=in_double), tensors(), ("GB124",))


def test_effects():
    """torch refuses functions with effects; so does a jitted function."""
    seen = []

    def mod(s, b, h, i, j):
        seen.append(1)
        return s + 1

    with torch.no_grad(), pytest.raises(Exception, match="side effect"):
        jit(lambda q, k, v: flex_attention(q, k, v, score_mod=mod))(*tensors())


def test_what_torch_refuses():
    q, k, v = tensors()
    run = jit(lambda q, k, v: flex_attention(q, k, v))
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        run(q.requires_grad_(), k, v)
    with pytest.raises(ValueError, match="same number of heads"):
        run(q.detach(), k[:, :2], v[:, :2])
    mask = mask_of(causal)
    masked = jit(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))
    with pytest.raises(ValueError, match="block_mask was created for"):
        masked(q.detach()[:, :, :12], k, v)
