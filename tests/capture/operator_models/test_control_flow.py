"""`torch.cond`, `while_loop` and `scan`: walked as an `if` or a loop of the program's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

from graftjit import jit

from ..harness import t

pytestmark = pytest.mark.filterwarnings("ignore")


def same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, dict):
        same(list(found), list(wanted))
        same(list(found.values()), list(wanted.values()))
    elif isinstance(wanted, torch.Tensor):
        assert torch.allclose(found, wanted)
        assert (found.dtype, found.stride()) == (wanted.dtype, wanted.stride())
    else:
        assert found == wanted


def agrees(f, *calls, codes=(), grad=False):
    """The report of calls whose results are those of `f`."""
    run = jit(f)
    with torch.set_grad_enabled(grad):
        for args in calls:
            same(run(*args), f(*args))
    report = run.report()
    assert tuple(sorted({one.code for one in report.breaks})) == codes, report
    assert "PL205" not in str(report)
    return report


def test_a_condition_on_numbers():
    def f(x):
        return torch.cond(x.shape[0] > 2, lambda a: a + 1, lambda a: a - 1, (x * 2,)) * 3

    assert agrees(f, (t(3),), (t(2),)).graph_count == 2


def test_a_condition_on_data():
    """As with `if`: a break, and both branches are compiled."""

    def f(x):
        y = x * 2
        z = torch.cond(x.sum() > y.mean(), lambda a, b: a + y, lambda a, b: a - b, (y, x))
        return z * 3

    report = agrees(f, (t(3),), (t(3) + 9,), (t(3) - 9,), codes=("GB105",))
    assert report.break_count == 1
    assert report.graph_count >= 2


def test_containers_and_branches_with_names():
    def both(a, b):
        return [a + b, {"k": a + 0}]

    def other(a, b):
        return [a - b, {"k": a * 2}]

    def f(p, x):
        first, second = torch.cond(pred=p, true_fn=both, false_fn=other, operands=[x, x * 2])
        return first, second["k"] + 1

    agrees(f, (torch.tensor(True), t(3)), (torch.tensor([False]), t(3)))


def test_nested_conditions():
    def f(p, q, x):
        def inner(a):
            return torch.cond(q, lambda b: b * 2, lambda b: b * 3, (a + 1,))

        return torch.cond(p, inner, lambda a: a.sin(), (x,)) + 1

    yes, no = torch.tensor(True), torch.tensor(False)
    agrees(f, (yes, yes, t(3)), (yes, no, t(3)), (no, no, t(3)))


def test_a_condition_in_a_module():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.one, self.two, (x,))

    model = Gate()
    run = jit(lambda x: model(x * 2) + 1)
    with torch.no_grad():
        for x in (t(2, 3), t(2, 3) + 5):
            assert torch.allclose(run(x), model(x * 2) + 1)
    assert "GB105" in {one.code for one in run.report().breaks}


def test_gradients_are_zeros_as_in_eager_mode():
    """Those of a branch that has not run are zeros, not None: torch makes them."""
    v, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def f(p, x):
        return torch.cond(p, lambda a: a * v, lambda a: a * w, (x * 2,)).sum() * 3

    run = jit(f)
    for _ in range(2):
        run(torch.tensor(True), t(3)).backward()
    assert torch.equal(v.grad, t(3) * 12)
    assert torch.equal(w.grad, torch.zeros(3))


def test_what_torch_refuses():
    run = jit(lambda x: torch.cond(x > 0, lambda a: a, lambda a: a + 1, (x,)))
    with pytest.raises(RuntimeError, match="single-element tensor"):
        run(t(3))
    other = jit(lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a, (3,)))
    with pytest.raises(RuntimeError, match="Expect operands"):
        other(t(3))


def test_a_loop():
    def f(n, x):
        i, y = while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 1.5), (n * 0, x + 1))
        return i, y * 2

    calls = [(torch.tensor(n), t(3)) for n in (0, 1, 3, 40)]
    agrees(f, *calls, codes=("GB105",))


def test_the_body_of_a_loop_is_compiled_once():
    def f(x):
        return while_loop(lambda a: a.sum() < 1000.0, lambda a: (a * 1.125 + 1,), (x,))[0]

    report = agrees(f, (t(3).abs() + 1,), (t(3).abs() + 2,), codes=("GB105",))
    assert report.graph_count < 10


def test_results_of_a_loop_that_never_runs_are_copies():
    run = jit(lambda x: while_loop(lambda a: a.sum() < -100.0, lambda a: (a * 2,), (x,))[0])
    x = t(3)
    with torch.no_grad():
        found = run(x)
    assert torch.equal(found, x)
    assert found is not x
    assert found.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan(reverse, dim):
    def f(x):
        last, all_of_them = scan(
            lambda c, a: (c + a, c * a), torch.ones(4), x * 2, dim=dim, reverse=reverse
        )
        return last, all_of_them + 1

    x = t(4, 6) if dim else t(6, 4)
    if dim and torch.torch_version.TorchVersion(torch.__version__) < "2.13":
        # Older versions of torch stack the results along dimension 0.
        run = jit(f)
        with torch.no_grad():
            same(run(x), f(x))
        assert run.report().break_count == 1
    else:
        assert agrees(f, (x,), (x * 3,)).graph_count == 1


def test_a_scan_with_containers():
    def f(x):
        return scan(lambda c, a: (c + a, {"k": (c * a, a + 1)}), torch.ones(4), x * 2)

    assert agrees(f, (t(6, 4),)).graph_count == 1


def test_a_long_scan():
    def f(x):
        return scan(lambda c, a: (c * 0.5 + a, c + a), torch.zeros(4), x)

    assert agrees(f, (t(200, 4),)).graph_count == 1


def test_a_scan_over_several_tensors_is_left_to_torch():
    def f(x):
        last, made = scan(lambda c, a: (c + a["k"], c * 2), torch.zeros(4), {"k": x})
        return last, made

    run = jit(f)
    with torch.no_grad():
        same(run(t(5, 4)), f(t(5, 4)))
    assert run.report().break_count == 1
