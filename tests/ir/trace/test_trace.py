"""The one trace: aliasing and writes, errors, state calls, gradients, constants, randomness."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F

from graftjit.ir.errors import DataDependent, TraceError, Unsupported
from graftjit.ir.graph.interpreter import replay
from graftjit.ir.trace.ghost import Ghost
from graftjit.ir.trace.tracer import Tracer

from ..tracing import check, trace

T = torch.Tensor


def x2(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def targets(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call"]


def test_fresh_in_place_becomes_a_value() -> None:
    def f(run, x):
        y = run(torch.sin, x)
        run(T.add_, y, 1)
        return run(T.mul_, y, x)

    graph = check(f, x2(3, 4))
    assert targets(graph) == ["aten.sin.default", "aten.add.Tensor", "aten.mul.Tensor"]
    assert not graph.mutates


def test_write_to_input_is_a_node_in_order() -> None:
    def f(run, x):
        before = run(torch.mul, x, 2)
        run(T.add_, x, 1)
        return before, run(torch.mul, x, 3), x

    graph = check(f, x2(3))
    assert graph.mutates and graph.written == [0]


def test_write_through_a_view_of_an_input() -> None:
    def f(run, x):
        run(T.add_, run(T.view, x, -1), 1)
        return run(torch.sum, x)

    assert check(f, x2(3, 4)).mutates


def test_view_sees_a_later_write() -> None:
    def f(run, x):
        y = run(T.__getitem__, x, 0)
        run(T.__iadd__, x, 1)
        return y, run(torch.add, y, y)

    check(f, x2(3, 4))


def test_fresh_memory_with_views() -> None:
    def f(run, x):
        y = run(torch.sin, x)
        row = run(T.__getitem__, y, 1)
        column = run(T.__getitem__, y, (slice(None), 2))
        run(T.mul_, row, 10)
        run(T.copy_, column, run(torch.ones, 3))
        return y, row, column, run(torch.sum, y)

    assert not check(f, x2(3, 4)).mutates


def test_whole_view_of_fresh_memory() -> None:
    def f(run, x):
        y = run(torch.sin, x)
        flat = run(T.view, y, -1)
        run(T.add_, flat, 1)
        run(T.mul_, y, 3)
        return y, flat

    check(f, x2(3, 4))


def test_overlapping_inputs() -> None:
    def f(run, a, b):
        run(T.add_, a, 1)
        return run(torch.mul, b, 2)

    base = x2(6)
    graph = check(f, base[:4], base[2:])
    assert graph.overlaps == [(0, 1)]
    assert graph.written == [0, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_in_place_keeps_dtype(dtype: torch.dtype) -> None:
    def f(run, x, y):
        z = run(T.to, x, dtype)
        run(T.add_, z, y)
        return z

    check(f, x2(3, 4), x2(3, 4))


def test_out_argument() -> None:
    def f(run, x, y):
        out = run(torch.empty, 3, 4)
        got = run(torch.add, x, y, out=out)
        assert got is out or not isinstance(got, Ghost)
        return out

    assert not check(f, x2(3, 4), x2(3, 4)).mutates


def test_out_into_an_input() -> None:
    def f(run, x, y):
        run(torch.matmul, x, x, out=y)
        return run(torch.mul, y, 2)

    assert check(f, x2(3, 3), x2(3, 3)).mutates


def test_set_item_and_indices() -> None:
    def f(run, x, index):
        run(T.__setitem__, x, 0, 3.0)
        run(T.__setitem__, x, (slice(None), 1), run(T.__getitem__, x, (slice(None), 2)))
        run(T.__setitem__, x, (index, slice(None)), 7.0)
        return run(T.__getitem__, x, [0, 2]), run(T.__getitem__, x, index)

    check(f, x2(3, 4), torch.tensor([1, 2]))


def test_index_put_scatter_and_fill() -> None:
    def f(run, x, index):
        y = run(torch.zeros, 3, 4)
        run(T.index_put_, y, (index,), run(torch.ones, 4), accumulate=True)
        run(T.scatter_, y, 1, run(T.view, index, 1, 2), 5.0)
        run(T.masked_fill_, y, run(torch.gt, y, 2), -1)
        run(T.zero_, run(T.__getitem__, y, 2))
        z = run(torch.empty_like, y)
        run(T.fill_, z, 3)
        run(F.relu_, z)
        return y, z

    check(f, x2(3, 4), torch.tensor([0, 1]))


def test_identity_of_results() -> None:
    def f(run, x):
        assert run(T.contiguous, x) is x
        assert run(T.to, x, torch.float32) is x
        assert run(T.add_, x, 1) is x
        y = run(T.detach, x)
        assert y is not x
        return x, y

    trace(f, x2(3))


def test_fresh_constant_each_time() -> None:
    def f(run, x):
        c = run(torch.tensor, [1.0, 2.0])
        run(T.add_, c, x)
        return c

    graph = check(f, x2(2))
    check_twice = [replay(graph, [torch.zeros(2)])[0] for _ in range(2)]
    assert check_twice[0].tolist() == check_twice[1].tolist() == [1.0, 2.0]


def test_results_in_structures() -> None:
    def f(run, x):
        values, indices = run(torch.max, x, dim=1)
        parts = run(torch.split, x, 2, 1)
        a, b = run(torch.unbind, parts[0], 1)
        low = run(torch.var_mean, x, 0)
        assert run(T.size, x, 1) == 4
        assert run(torch.is_floating_point, x) is True
        return values, indices, parts[1], a, b, *low

    check(f, x2(3, 4))


def test_data_dependent() -> None:
    def item(run, x):
        return run(T.item, run(torch.sum, x))

    def truth(run, x):
        return run(bool, run(torch.sum, x))

    def nonzero(run, x):
        return run(torch.nonzero, x)

    def mask(run, x):
        return run(T.__getitem__, x, run(torch.gt, x, 0))

    def one_hot(run, x):
        return run(F.one_hot, run(torch.argmax, x, 1))

    for f in (item, truth, nonzero, mask, one_hot):
        with pytest.raises(DataDependent):
            trace(f, x2(3, 4))


@pytest.mark.parametrize(
    ("fn", "args", "error"),
    [
        (torch.add, (x2(3), x2(4)), RuntimeError),
        (torch.matmul, (x2(3, 4), x2(3, 4)), RuntimeError),
        (torch.sub, (torch.ones(2) > 0, torch.ones(2) > 0), RuntimeError),
        (T.add_, (torch.ones(2, dtype=torch.int64), 1.5), RuntimeError),
        (T.view, (x2(3, 4), 5), RuntimeError),
        (torch.cat, ([x2(3, 4), x2(4, 5)],), RuntimeError),
        (T.sum, (x2(3, 4), 7), IndexError),
        (T.add_, (x2(3, 1).expand(3, 4), 1), RuntimeError),
        (torch.bitwise_and, (x2(3), x2(3)), RuntimeError),
        (torch.mean, (torch.ones(3, dtype=torch.int64),), RuntimeError),
        (F.conv2d, (x2(1, 3, 5, 5), x2(4, 2, 3, 3)), RuntimeError),
        (F.layer_norm, (x2(3, 4), (5,)), RuntimeError),
        (F.cross_entropy, (x2(3, 4), torch.zeros(2, dtype=torch.int64)), ValueError),
        (torch.nope if hasattr(torch, "nope") else T.__getitem__, (x2(3), 9), IndexError),
    ],
)
def test_errors_of_the_program(fn, args, error) -> None:
    """What eager refuses, the trace refuses; and the trace is as before."""
    with pytest.raises(error):
        fn(*args)
    tracer = Tracer("f")
    x = tracer.input(x2(2, 2))
    kept = tracer.run(torch.sin, (x,))

    def ghosts(value):
        if isinstance(value, torch.Tensor):
            return tracer.input(value)
        return [ghosts(item) for item in value] if isinstance(value, list) else value

    with torch.no_grad(), pytest.raises(TraceError) as caught:
        tracer.run(fn, tuple(ghosts(arg) for arg in args))
    assert isinstance(caught.value.original, error)
    graph = tracer.finish([kept])
    assert [str(node.target) for node in graph.nodes] == ["aten.sin.default"]
    assert len(graph.calls) == 1


@pytest.mark.filterwarnings("ignore")
def test_unsupported_tensors() -> None:
    class Sub(torch.Tensor):
        pass

    cases = [
        (torch.eye(3).to_sparse(), "layout"),
        (torch.randn(3, dtype=torch.complex64).conj(), "lazy-bit"),
        (torch.randn(3).as_subclass(Sub), "subclass"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
    ]
    for tensor, code in cases:
        with pytest.raises(Unsupported) as caught:
            Tracer("f").input(tensor)
        assert caught.value.code == code
    x = Tracer("g").input(x2(3))
    tracer = Tracer("f")
    with pytest.raises(Unsupported):
        tracer.run(torch.sin, (x,))
    y = tracer.input(x2(3))
    for fn, args in ((T.resize_, (y, 5)), (T.unsqueeze_, (y, 0)), (T.set_, (y,))):  # an input: no
        with pytest.raises(Unsupported):
            tracer.run(fn, args)


def test_gradients_come_from_the_torch_level() -> None:
    weight = torch.nn.Parameter(x2(5, 4))

    def f(run, x, w):
        h = run(torch.tanh, run(F.linear, x, w))
        return run(torch.sum, h)

    graph, loss = trace(f, x2(3, 4), weight)
    assert graph.needs_grad and loss.requires_grad and loss.grad_fn is not None
    (found,) = replay(graph, [x2(3, 4), weight])
    (got,) = torch.autograd.grad(found, [weight])
    (expected,) = torch.autograd.grad(torch.tanh(F.linear(x2(3, 4), weight)).sum(), [weight])
    torch.testing.assert_close(got, expected)


def test_grad_mode_is_recorded() -> None:
    weight = torch.nn.Parameter(x2(4, 4))
    tracer = Tracer("f")
    w = tracer.input(weight)
    assert isinstance(w, torch.nn.Parameter) and w.is_leaf
    before = tracer.grad_mode(False)
    y = tracer.run(torch.sin, (w,))
    tracer.grad_mode(before)
    z = tracer.run(torch.mul, (w, y))
    assert before is True and not y.requires_grad and z.requires_grad
    graph = tracer.finish([y, z])
    out = replay(graph, [weight])
    assert [t.requires_grad for t in out] == [False, True]


def test_non_leaf_input() -> None:
    base = torch.nn.Parameter(x2(3))

    def f(run, x):
        return run(T.mul_, x, 2)

    graph, out = trace(f, base * 1)
    assert graph.needs_grad and not out.is_leaf
    real = base * 1
    assert replay(graph, [real])[0] is real


def test_autocast_by_state_calls() -> None:
    tracer = Tracer("f")
    a, b = tracer.input(x2(4, 4)), tracer.input(x2(4, 4) + 1)
    context = torch.autocast("cpu", dtype=torch.bfloat16)
    with torch.no_grad():
        tracer.state_call(context.__enter__)
        y = tracer.run(torch.matmul, (a, b))
        tracer.state_call(context.__exit__, None, None, None)
        graph = tracer.finish([y])
        assert y.dtype is torch.bfloat16
        assert "aten._to_copy.default" in targets(graph)
        (out,) = replay(graph, [x2(4, 4), x2(4, 4) + 1])
        assert out.dtype is torch.bfloat16 and not torch.is_autocast_enabled("cpu")


def test_inference_mode() -> None:
    def f(run, x, w):
        return run(F.layer_norm, run(F.linear, run(torch.square, x), w), (5,))

    with torch.inference_mode():
        graph, _ = trace(f, x2(3, 4), x2(5, 4))
    assert "aten.linear.default" not in targets(graph)


def test_random_is_marked_and_kept() -> None:
    def f(run, x):
        run(torch.rand, 3)
        return run(F.dropout, x, 0.5, True)

    torch.manual_seed(0)
    with torch.no_grad():
        graph, _ = trace(f, x2(8))
        assert graph.random
        torch.manual_seed(3)
        (found,) = replay(graph, [x2(8)])
        torch.manual_seed(3)
        torch.rand(3)
        torch.testing.assert_close(found, F.dropout(x2(8), 0.5, True))


def test_tracing_leaves_the_random_state_alone() -> None:
    def f(run, x):
        run(torch.rand, 3)
        run(T.uniform_, run(torch.empty, 3))
        run(torch.randperm, 5)
        return run(F.dropout, x, 0.5, True)

    state = torch.get_rng_state()
    trace(f, x2(8))
    assert torch.equal(state, torch.get_rng_state())


def test_questions_about_ghosts_outside_of_the_trace() -> None:
    x = Tracer("f").input(x2(2, 3, 4).transpose(0, 1))
    assert x.shape == (3, 2, 4) and x.stride() == (4, 12, 1) and x.ndim == x.dim() == 3
    assert x.dtype is torch.float32 and x.device.type == "cpu" and x.layout is torch.strided
    assert not x.requires_grad and x.is_leaf and not x.is_contiguous() and x.numel() == 24
    assert x.size(-1) == 4 and x.size() == (3, 2, 4) and len(x) == 3 and x.grad_fn is None
    assert x.is_floating_point() and not x.is_complex() and not x.is_cuda and not x.is_sparse
    assert x.element_size() == 4 and x.storage_offset() == 0 and x.itemsize == 4
    assert "ghost" in repr(x) and {x: 1}[x] == 1 and not x.is_quantized and not x.is_nested


def test_unknown_operators_ask_torch() -> None:
    def f(run, x):
        return run(torch.linalg.qr, x)[1], run(torch.rot90, x), run(torch.linalg.det, x)

    graph = check(f, x2(3, 3))
    assert "aten.rot90.default" in graph.slow_ops


MODEL = """
import sys, torch, torch.nn.functional as F
from graftjit.ir.trace.tracer import Tracer
base = set(sys.modules)
tr = Tracer("f")
x = tr.input(torch.randn(2, 8, 16)); img = tr.input(torch.randn(2, 4, 8, 8))
w = tr.input(torch.randn(16, 16)); b = tr.input(torch.randn(16)); k = tr.input(torch.randn(4, 4, 3, 3))
ids = tr.input(torch.tensor([[1, 2], [3, 4]])); mean = tr.input(torch.zeros(4)); var = tr.input(torch.ones(4))
run = lambda f, *a, **k: tr.run(f, a, k)
T = torch.Tensor
with torch.no_grad():
    h = run(F.linear, x, w, b)
    for f in (F.relu, F.gelu, F.silu, F.hardswish, F.softplus, torch.sigmoid, torch.exp):
        h = run(f, h)
    h = run(F.softmax, h, -1); h = run(F.log_softmax, h, -1)
    h = run(F.layer_norm, h, (16,), b, b)
    for training in (False, True):
        y = run(F.batch_norm, img, mean, var, None, None, training)
    y = run(F.conv2d, y, k, None, 1, 1); y = run(F.max_pool2d, y, 2); run(F.avg_pool2d, y, 2)
    run(F.adaptive_avg_pool2d, y, 1); run(F.adaptive_avg_pool2d, y, 2); run(F.group_norm, y, 2)
    run(F.interpolate, y, scale_factor=2); run(F.pad, y, (1, 1))
    q = run(T.transpose, run(T.view, h, 2, 8, 4, 4), 1, 2)
    o = run(F.scaled_dot_product_attention, q, q, q); run(F.scaled_dot_product_attention, q, q, q, is_causal=True)
    run(F.embedding, ids, w); run(torch.cat, [h, h], 1); run(torch.stack, [h, h])
    p = run(torch.split, h, 4, -1); run(torch.chunk, h, 3, -1)
    run(torch.where, run(torch.gt, h, 0), h, 0.0); run(torch.cumsum, h, 1); run(torch.topk, h, 3)
    run(F.dropout, h, 0.1, True); run(torch.arange, 5); run(torch.full, (2, 3), 1.5); run(torch.zeros, 3)
    for f in (torch.sum, torch.mean, torch.amax, torch.var, torch.std, torch.argmax, torch.prod, torch.any, torch.norm):
        run(f, h)
    run(torch.max, h, 1); run(torch.logsumexp, h, 1); run(torch.einsum, "bij,kj->bik", h, w); run(torch.sort, h)
    run(T.masked_fill_, h, run(torch.lt, h, 0), 0.0); run(T.permute, h, 2, 0, 1); run(T.reshape, h, -1)
    run(T.__getitem__, h, (0, slice(None), [1, 2])); run(T.expand, b, 3, 16); run(torch.tril, w)
    run(F.cross_entropy, run(T.view, h, 16, 16), run(torch.zeros, 16, dtype=torch.int64)); run(F.mse_loss, x, x)
    run(torch.gather, w, 0, ids); run(T.scatter_add, w, 0, ids, w); run(torch.roll, h, 1, 1); run(torch.flip, h, [0])
    run(T.repeat, b, 2, 1); run(torch.outer, b, b); run(T.to, h, torch.bfloat16)
    run(torch.bmm, x, run(T.transpose, x, 1, 2)); run(torch.baddbmm, x, x, run(torch.rand, 2, 16, 16))
    run(F.normalize, h, dim=-1); run(F.multi_head_attention_forward, x, x, x, 16, 4, run(torch.rand, 48, 16),
        None, None, None, False, 0.0, w, None)
bad = [m for m in set(sys.modules) - base if m.split(".")[0] in ("sympy",) or m.startswith(
    ("torch._dynamo", "torch._inductor", "torch._functorch.aot", "torch.distributed.tensor"))]
print(bad, tr.slow_ops)
assert not bad, bad
assert not tr.slow_ops, tr.slow_ops
"""


def test_nothing_heavy_is_imported() -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(MODEL)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_finished_trace_keeps_no_tensor_alive() -> None:
    import gc
    import weakref

    gc.disable()
    try:
        tensor = x2(3)
        tracer = Tracer("f")
        ghost = tracer.run(torch.sin, (tracer.input(tensor),))
        tracer.finish([ghost])
        alive = weakref.ref(tensor)
        del tensor, tracer, ghost
        assert alive() is None
    finally:
        gc.enable()


def test_view_of_a_forgotten_base_is_a_value() -> None:
    def f(run, x, w):
        scores = run(torch.matmul, x, w)
        scores = run(T.view, run(T.__itruediv__, scores, 8.0), 2, -1)
        return run(T.relu_, scores)

    with torch.no_grad():
        graph = check(f, x2(2, 3, 4), x2(4, 4))
    assert "aten.copy_.default" not in targets(graph)


def test_sizes_changed_in_place_on_own_tensors() -> None:
    def f(run, x, v):
        y = run(torch.matmul, x, v)  # squeezes a product of its own in place
        z = run(torch.sin, x)
        view = run(T.__getitem__, z, 0)
        assert run(T.unsqueeze_, z, 0) is z
        run(T.transpose_, z, 1, 3)
        run(T.add_, z, 1)
        return y, z, view

    with torch.no_grad():
        graph = check(f, x2(2, 3, 4), x2(4))
    assert graph.nodes


def test_a_step_on_parameters_without_grad_mode_is_compiled() -> None:
    def f(run, p, g):
        return run(T.add_, p, g, alpha=-0.1)

    with torch.no_grad():
        graph, _ = trace(f, torch.nn.Parameter(x2(3)), x2(3))
    assert graph.written == [0] and not graph.needs_grad
