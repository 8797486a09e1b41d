"""numpy inside a frame: arrays of Python values, conversions, arrays that change, random numbers."""

from __future__ import annotations

import copy
import math
import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from ..harness import agrees, t


# -- arrays of Python values -----------------------------------------------------------------------------
@agrees(graphs=1, breaks=0)
def test_arrays_of_constants_are_constants():
    def f(x, n):
        a = np.arange(n) * 2.0 + 1
        b = np.array([1.0, 2.0, 3.0], dtype=np.float32)
        c = np.linspace(0.0, 1.0, n)
        scale = np.float32(1.5) * np.sqrt(2.0) + np.pi
        return (
            x * torch.from_numpy(a).float()
            + torch.tensor(b)
            + torch.as_tensor(c)
            + float(scale)
            + torch.tensor(np.cumsum(b)[-1])
        )

    return f, (t(3), 3)


@agrees(graphs=1, breaks=0)
def test_scalars_of_numpy_in_arithmetic():
    def f(x):
        a = np.float32(0.1)
        b = np.int64(3)
        c = np.float64(0.1)
        d = np.bool_(True)
        return x * a, x + b, x - c, a * x, b + x, x ** np.float32(2.0), x if d else -x, x[b - 2]

    return f, (t(3),)


@agrees()
def test_scalars_of_numpy_returned():
    def f(x):
        a = np.float32(0.1) * 2
        b = np.arange(3).sum()
        return (
            x + 1,
            a,
            b,
            type(a).__name__,
            a.dtype,
            b.item(),
            int(b),
            np.pi,
            np.inf,
            np.nan,
            a == b,
        )

    return f, (t(3),)


@agrees()
def test_arrays_returned_are_fresh():
    kept = []

    def f(x, n):
        a = np.zeros(n)
        a[1] = 5
        b = a[1:]
        b += 1
        kept.append(a)
        c = np.array([1, 2, 3])
        d = c
        d[0] = 9
        return x + torch.from_numpy(a), a, b, c is d, c, np.shares_memory(a, b)

    return f, (t(3), 3), [lambda last: last[1].fill(7), lambda last: last[4].fill(7)]


@agrees()
def test_tensors_from_arrays_share_their_memory():
    def f(x):
        a = np.zeros(3, dtype=np.float32)
        y = torch.from_numpy(a)
        y += x
        a[0] = 100
        z = torch.as_tensor(a)
        z[1] = 200
        w = torch.tensor(a)
        a[2] = 300
        return y * 1, z * 1, w, a, y, z

    return f, (t(3),)


@agrees()
def test_indexing_and_reductions_of_arrays():
    def f(x, n):
        a = np.arange(12).reshape(3, 4)
        idx = a[n]
        m = a.max(axis=1)
        mean, std = a.mean(), a.std()
        flat = a.ravel()[::2]
        mask = a > 5
        return (
            x[torch.from_numpy(idx) % 3] + float(mean),
            torch.tensor(m) * std,
            torch.from_numpy(flat.copy()),
            torch.from_numpy(mask),
            x[idx % 3],
            [int(i) for i in m],
            a.shape,
            a.dtype == np.int64,
            len(a),
            a.tolist(),
            a.T.flags["C_CONTIGUOUS"],
        )

    return f, (t(3), 0), [lambda: (t(3), 1), lambda: (t(3), 2)]


@agrees()
def test_positional_encoding():
    def positions(length, width):
        angle = np.arange(length)[:, np.newaxis] / np.power(
            10000, 2 * (np.arange(width) // 2) / width
        )
        table = np.zeros((length, width))
        table[:, 0::2] = np.sin(angle[:, 0::2])
        table[:, 1::2] = np.cos(angle[:, 1::2])
        return torch.from_numpy(table).float()

    def f(x):
        return x + positions(x.shape[0], x.shape[1])

    return f, (t(4, 6),), [lambda: (t(4, 6),), lambda: (t(2, 4),)]


@agrees()
def test_gaussian_kernel_and_window():
    def f(x, sigma):
        r = np.arange(-2, 3)
        k = np.exp(-(r**2) / (2 * sigma**2))
        k = k / k.sum()
        w = torch.tensor(k, dtype=x.dtype).view(1, 1, -1)
        h = torch.from_numpy(np.hanning(5)).to(x)
        m = np.eye(2) @ np.ones((2, 2))
        return torch.nn.functional.conv1d(x, w, padding=2) * h.sum(), torch.tensor(m)

    return f, (t(1, 1, 8), 1.0), [lambda: (t(1, 1, 8), 2.0)]


@agrees()
def test_loops_over_arrays():
    def f(x):
        total = x
        for i in np.arange(3):
            total = total + i
        for v in np.array([0.5, 0.25]):
            total = total * v
        for row in np.eye(2):
            total = total + torch.from_numpy(row).sum()
        a, b = np.array([1, 2])
        for i, v in enumerate(np.linspace(0, 1, 3)):
            total = total + i * v
        return (
            total,
            a + b,
            list(np.arange(2)),
            [type(v).__name__ for v in np.arange(2)],
            sum(np.arange(3)),
        )

    return f, (t(3),)


@agrees()
def test_decisions_by_arrays():
    def f(x, n):
        a = np.arange(n)
        if a.sum() > 3:
            x = x + 1
        if np.any(a == 2):
            x = x * 2
        if (a > 5).all():
            x = x - 7
        if a.size and a[0] == 0:
            x = x + 5
        try:
            if a:
                x = x * 3
        except ValueError as error:
            return x, str(error)
        return x

    return f, (t(3), 1), [lambda: (t(3), 2), lambda: (t(3), 3), lambda: (t(3), 4)]


@agrees()
def test_errors_of_numpy():
    def f(x, n):
        y = x + 1
        try:
            if n == 0:
                np.arange(3).reshape(2, 2)
            if n == 1:
                np.zeros(3)[5]
            if n == 2:
                np.zeros(2) + np.zeros(3)
            if n == 3:
                torch.from_numpy([1])
            if n == 4:
                torch.from_numpy(np.array(["a"]))
        except (ValueError, IndexError, TypeError) as error:
            return y, type(error).__name__, str(error)
        np.zeros(3).reshape(5)
        return y

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in range(1, 6)]


@agrees()
def test_warnings_of_numpy_come_each_time():
    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            a = np.array([1.0, 0.0]) / np.array([0.0, 0.0])
            b = np.log(np.float64(0.0))
        return x[:2] + torch.from_numpy(a), [str(w.message) for w in seen], float(b)

    return f, (t(3),)


@agrees()
def test_state_of_numpy_is_asked_each_time():
    def f(x):
        try:
            a = np.float64(1.0) / np.float64(0.0)
        except FloatingPointError as error:
            return x + 1, str(error)
        return x + a, None

    old = {}

    def strict():
        old.update(np.seterr(divide="raise"))

    def usual():
        np.seterr(**old)

    return f, (t(3),), [strict, usual]


@agrees()
def test_printing_options_of_numpy():
    def f(x):
        a = np.array([0.123456789])
        return x + 1, str(a), f"{a}", repr(a)

    def short():
        np.set_printoptions(precision=3)

    def usual():
        np.set_printoptions(precision=8)

    return f, (t(3),), [short, usual]


# -- conversions ------------------------------------------------------------------------------------------
@agrees(calls=2)
def test_tensors_to_arrays():
    def f(x):
        y = x * 2
        a = y.numpy()
        b = np.asarray(y)
        a[0] = 50
        c = np.sin(y)
        d = y.detach().cpu().numpy() + 1
        return y + 1, b, c, d, torch.from_numpy(a) * 2, np.mean(d), a.sum()

    return f, (t(3),)


@agrees(calls=2, codes=("GB104",))
def test_numpy_of_a_tensor_breaks_by_name():
    def f(x):
        y = x * 2
        a = y.numpy()
        return torch.from_numpy(a) + 1

    return f, (t(3),)


@agrees(breaks=0)
def test_arrays_of_results_that_leave_the_frame():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.25)

    class Box:
        last = None

    box = Box()

    def predict(x):
        with torch.no_grad():
            scores = model(x)
        box.last = scores.mean().cpu().numpy()
        return scores.softmax(-1).cpu().numpy(), {"best": scores.argmax(-1).numpy()}, box

    return predict, (t(2, 3),), [lambda *_: None, lambda *_: (t(4, 3),), lambda *_: (t(5, 3),)]


@agrees(breaks=0)
def test_arrays_of_results_share_their_memory():
    def f(x):
        y = x * 2
        whole = y.numpy()
        y.add_(1)
        return y, whole, y[0].numpy(), x.numpy(), x.mul_(2)

    return f, (t(2, 2),), [
        lambda last: last[1].fill(9.0), lambda last: last[2].fill(7.0), lambda last: last[3].fill(1.0),
    ]  # fmt: skip


@agrees(codes=("GB104",))
def test_arrays_of_results_that_are_read():
    def f(x):
        whole = (x * 2).numpy()
        return x + float(whole.sum())

    return f, (t(3),)


@agrees()
def test_operators_between_tensors_and_arrays():
    a = np.array([1.0, 2.0, 3.0], dtype=np.float32)

    def f(x):
        y = x + a
        z = x * a[1]
        try:
            w = a + x
        except TypeError as error:
            w = str(error)
        v = a[0] * x
        return y, z, w, v, torch.maximum(x, torch.from_numpy(a)), x[a > 1], x[np.array([0, 1])]

    return f, (t(3),), [lambda: a.fill(4), lambda: a.fill(0.5)]


@agrees()
def test_numpy_functions_of_tensors():
    def f(x):
        y = x + 1
        return (
            np.add(y, 1),
            np.dot(y, y),
            np.stack([y, y]),
            y.__array__(),
            np.abs(y).sum(),
            np.isnan(y).any(),
        )

    return f, (t(3),)


@agrees(backward=True)
def test_numpy_of_what_requires_grad_raises():
    def f(x):
        y = x * 2
        try:
            y.numpy()
        except RuntimeError as error:
            return y, str(error)

    return f, (t(3).requires_grad_(),)


# -- arrays from outside ----------------------------------------------------------------------------------
TABLE = np.arange(3, dtype=np.float32)


@agrees()
def test_arrays_of_the_caller_change_in_place():
    def f(x, a):
        return x + torch.from_numpy(a), x * float(a[0]), a.sum(), a.shape, x + a.mean()

    a = np.array([1.0, 2.0, 3.0])
    return f, (t(3), a), [
        lambda: a.__setitem__(0, 50.0), lambda: (t(3), np.ones(3)), lambda: (t(3), np.arange(3)),
        lambda: (t(1), np.zeros((1, 1))),
    ]  # fmt: skip


@agrees()
def test_arrays_of_globals_and_objects_change_in_place():
    class Box:
        pass

    TABLE[:] = np.arange(3)
    box = Box()
    box.a = np.array([1.0, 2.0, 3.0])
    cell = np.array([2.0])
    held = [np.array([1.0]), {"k": np.array(3)}]

    def f(x):
        x = x + torch.from_numpy(TABLE) * box.a[1]
        x = x * torch.tensor(cell) + torch.as_tensor(held[0])
        return x + held[1]["k"].item(), float(box.a.max())

    return f, (t(3),), [
        lambda: TABLE.__iadd__(1) is None, lambda: box.a.__setitem__(1, -3.0), lambda: cell.fill(5.0),
        lambda: held[0].fill(9) , lambda: held[1]["k"].fill(2) and None, lambda: setattr(box, "a", np.ones(3)),
        lambda: TABLE.fill(0),
    ]  # fmt: skip


ANCHORS = np.array([[10.0, 13.0], [16.0, 30.0]], dtype=np.float32)


@agrees(breaks=0, recompiles=1, backward=True)
def test_small_arrays_from_outside_are_known_at_capture():
    """Their content is guarded: one that changes makes another entry."""

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = np.array([0.5, 0.25])
            self.sizes = np.array([2, 1])
            self.scale = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            centred = (x - torch.tensor(self.mean, dtype=x.dtype)) * self.scale
            boxes = centred * torch.from_numpy(ANCHORS) + torch.as_tensor(self.mean).float()
            parts = x.split(self.sizes.tolist()[:1], 0)
            areas = [float(w * h) for w, h in ANCHORS]
            old = torch.FloatTensor(ANCHORS) + torch.Tensor(self.mean)
            return boxes, len(self.sizes), int(self.sizes.max()), areas, old, len(parts), ANCHORS

    ANCHORS[0, 0] = 10.0
    head = Head()
    return head, (t(2, 2),), [
        lambda *_: None, lambda *_: ANCHORS.__setitem__((0, 0), 7.0), lambda *_: None,
        lambda *_: ANCHORS.__setitem__((0, 0), 10.0),
    ]  # fmt: skip


@agrees(breaks=0)
def test_the_form_of_an_array_of_the_caller():
    """Its numbers may be others at each call."""

    def f(x, a):
        return x * len(a) + a.shape[1], a.ndim, a.dtype, a.size, a

    return f, (t(3), np.zeros((2, 3))), [
        lambda last: (t(3), np.full((2, 3), 4.0)), lambda last: (t(3), np.full((2, 3), 5.0)),
        lambda last: (t(3), np.zeros((4, 3), dtype=np.float32)), lambda last: last[4].fill(3.0),
    ]  # fmt: skip


@agrees()
def test_views_of_arrays_from_outside_share_their_memory():
    table = np.arange(4.0)

    def f(x):
        return x * float(table.sum()), table[1:], table, np.asarray(table) is table

    return f, (t(3),), [lambda last: last[1].fill(9.0), lambda last: last[2].fill(2.0)]


@agrees()
def test_arrays_from_outside_that_share_memory_with_a_tensor():
    table = np.ones(3, dtype=np.float32)
    over = torch.from_numpy(table)

    def f(x):
        before = float(table.sum())
        x += 1
        y = torch.from_numpy(table)
        return x * before, float(table.sum()), y, torch.as_tensor(table).add_(1)

    return f, (over,)


@agrees()
def test_other_arrays_from_outside_are_breaks():
    large, gaps = np.arange(3000.0), np.arange(8.0)[::2]
    names, objects = np.array(["a", "b"]), np.array([None, 1], dtype=object)

    def f(x):
        sums = float(large.sum()), float(gaps.sum())
        return x * sums[0], sums, names[0], objects[1], len(names)

    return f, (t(3),)


@agrees()
def test_arrays_of_the_caller_are_written():
    def f(x, a):
        a[0] = 5
        a += 1
        y = x + torch.from_numpy(a)
        y2 = torch.from_numpy(a)
        y2 *= 2
        a.sort()
        return y, a, y2

    a = np.array([3.0, 2.0, 1.0])
    return f, (t(3), a), [lambda: a.fill(3.0), lambda: (t(3), np.ones(3))]


@agrees()
def test_scalars_of_numpy_as_arguments():
    def f(x, s):
        return x * s, s + 1, type(s).__name__, x[: int(s)]

    return f, (t(3), np.float32(1.5)), [
        lambda: (t(3), np.float32(2.5)), lambda: (t(3), np.float64(1.5)), lambda: (t(3), np.int32(2)),
        lambda: (t(3), 2), lambda: (t(3), np.float32(1.5)),
    ]  # fmt: skip


@agrees()
def test_sizes_by_numpy_integers():
    def f(x, n):
        y = torch.zeros(n) + torch.ones(int(n), n)
        z = x.reshape(n, -1)
        return y, z, torch.arange(n), x.sum(dim=np.int64(0)), range(n), [0] * n, (1, 2, 3)[n - 1]

    return f, (t(6), np.int64(2)), [lambda: (t(6), np.int64(3)), lambda: (t(6), np.int64(2))]


@agrees()
def test_dtypes_and_questions_of_numpy():
    def f(x, a):
        if isinstance(a, np.ndarray):
            x = x + 1
        if np.isscalar(a):
            x = x * 2
        if isinstance(a, (np.floating, float)):
            x = x - 3
        if getattr(a, "dtype", None) == np.float32:
            x = x * 5
        return (
            x,
            np.dtype("int32").itemsize,
            np.finfo(np.float32).max,
            np.iinfo(np.int8).min,
            np.newaxis is None,
        )

    return f, (t(3), np.ones(2)), [
        lambda: (t(3), np.float32(1)), lambda: (t(3), 1.0), lambda: (t(3), np.ones(2, dtype=np.float32)),
        lambda: (t(3), "no"),
    ]  # fmt: skip


# -- random numbers --------------------------------------------------------------------------------------
def _seeded(f, *args):
    """The world's own random state, so that both runs begin alike."""
    np.random.seed(7)
    random.seed(7)
    return f, args


@agrees()
def test_random_numbers_of_numpy_and_random():
    def f(x):
        a = np.random.rand(3)
        b = random.random()
        y = x + torch.from_numpy(a) * b
        c = np.random.randint(0, 10, size=(2,))
        d = np.random.permutation(4)
        random.shuffle(e := [1, 2, 3])
        return (
            y,
            c,
            d,
            e,
            np.random.normal(),
            random.choice([1, 2, 3]),
            torch.rand(2),
            random.randint(0, 9),
        )

    return _seeded(f, t(3))


@agrees()
def test_generators_of_numpy():
    rng = np.random.default_rng(0)
    state = random.Random(3)

    def f(x):
        a = rng.standard_normal(3)
        own = np.random.default_rng(5)
        return (
            x + torch.from_numpy(a),
            own.integers(10),
            state.random(),
            np.random.RandomState(1).rand(),
        )

    return _seeded(f, t(3))


@agrees()
def test_seeds_set_inside():
    def f(x, seed):
        np.random.seed(seed)
        random.seed(seed)
        torch.manual_seed(seed)
        a = np.random.rand()
        y = x * a + random.random()
        state = np.random.get_state()
        b = np.random.rand()
        np.random.set_state(state)
        return y + torch.rand(3), b == np.random.rand()

    return f, (t(3), 1), [lambda: (t(3), 2), lambda: np.random.rand() and None]


@agrees()
def test_random_numbers_that_decide():
    def f(x):
        if random.random() < 0.5:
            x = x + 1
        for _ in range(random.randint(1, 3)):
            x = x * 2
        if np.random.rand() < 0.5:
            return x - 1
        return x.relu()

    return _seeded(f, t(3))


# -- arrays that leave, in every way ---------------------------------------------------------------------
@agrees()
def test_arrays_and_views_keep_their_memory():
    kept = {}

    def f(x, n):
        a = np.arange(6.0).reshape(2, 3)
        b, c = a[0], a.T
        c[0, 0] = n
        kept["b"] = b
        kept["pair"] = [a, c, a[:, ::-1], np.broadcast_to(a[0], (2, 3)), a.view(np.int64)]
        return x + float(a.sum()), a, b, c.base is a.base, a.flags["WRITEABLE"], lambda: b

    return (
        f,
        (t(3), 1),
        [lambda last: last[1].fill(9), lambda last: kept["b"].fill(-1), lambda: (t(3), 2)],
    )


@agrees()
def test_arrays_alive_at_breaks():
    def f(x):
        a = np.zeros((2, 3))
        b = a[1]
        it = iter(np.arange(4))
        next(it)
        total = x
        for row in a + 1:
            total = total + torch.from_numpy(row).float()
            print("row", row.tolist(), next(it))
            b += 1
        a[0] = 7
        return total, a, b, np.shares_memory(a, b), list(it)

    return f, (t(3),)


@agrees()
def test_tensors_over_arrays_in_callees():
    def table(n):
        a = np.ones(n, dtype=np.float32)
        return torch.from_numpy(a), a

    def alone(n):
        a = np.full(n, 3.0, dtype=np.float32)
        y = torch.from_numpy(a)
        y.mul_(2)
        return y

    def f(x):
        y, a = table(3)
        z = alone(3)
        y += x
        return y * 2, a, a.sum(), z + 1, z

    return f, (t(3),)


@agrees()
def test_writes_through_either_side_are_seen():
    def f(x, how):
        a = np.zeros(3, dtype=np.float32)
        y = torch.from_numpy(a)
        v = y[1:]
        if how == 0:
            v.add_(5)
            return x + float(a[1]), y + x
        if how == 1:
            a += 2
            return y * x, v
        if how == 2:
            y.copy_(x)
            return a.tolist(), y
        if how == 3:
            torch.add(x, 1, out=y)
            return a.sum() + x
        return y, v

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in range(1, 5)]


@agrees()
def test_strided_and_empty_arrays_as_tensors():
    def f(x):
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        return (
            torch.from_numpy(a.T), torch.from_numpy(a[:, ::2]), torch.from_numpy(np.zeros((0, 3))),
            torch.from_numpy(np.array(2.5)), torch.from_numpy(a[1:, 1:]) * 2, torch.tensor(a.T), x + torch.as_tensor(a[0, :3]),
            torch.from_numpy(np.asfortranarray(a)).stride(), torch.as_tensor(a, dtype=torch.float64).stride(),
            torch.asarray(a[0]), torch.from_numpy(np.array([True, False])), torch.as_tensor(a.T, dtype=torch.float32).t(),
        )  # fmt: skip

    return f, (t(3),)


@agrees()
def test_arrays_that_no_tensor_can_be_over():
    def f(x, n):
        try:
            if n == 0:
                return x, torch.from_numpy(np.arange(3)[::-1])
            if n == 1:
                return x, torch.from_numpy(np.broadcast_to(np.float32(1), (3,)))
            if n == 2:
                return x, torch.tensor(np.arange(3)[::-1])
            return x, torch.from_numpy(np.array(["a"]))
        except (ValueError, TypeError) as error:
            return x + 1, type(error).__name__

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in range(1, 4)]


@agrees()
def test_numbers_of_numpy_in_torch_calls():
    def f(x, n, s):
        return (
            torch.full((n,), s), torch.arange(n), x.clamp(min=s), torch.where(x > s, x, s), torch.tensor(s),
            torch.tensor([s, np.float64(2)]), torch.as_tensor(s), x.sum() * np.pi, x / np.sqrt(n), x[: n - 1], x.fill_(s),
            torch.zeros(2, n).view(n, 2), x.reshape(-1, n), F.dropout(x, p=float(s) * 0), x == s, s < x, s - x, n // (x + 5),
            x.new_full((n,), s), torch.linspace(0, s, n), x.pow(n), torch.randn(n) * 0, x.expand(n, -1), np.prod(x.shape) * x,
        )  # fmt: skip

    return f, (t(3), np.int64(3), np.float32(0.5)), [
        lambda: (t(3), np.int32(3), np.float64(0.25)), lambda: (t(2), np.uint8(2), np.float16(1)),
        lambda: (t(1), np.int64(1), np.int16(2)),
    ]  # fmt: skip


@agrees()
def test_numbers_of_numpy_in_python():
    names = {0: "zero", 1: "one"}
    kinds = {np.dtype("float32"): torch.float32, np.dtype("int64"): torch.int64}

    def f(x, n):
        items = [x, x * 2, x * 3]
        a = np.arange(n, dtype=np.float32)
        b = np.float32(n)
        return (
            items[np.int64(n)], names[np.int64(1)], kinds[a.dtype], range(np.int64(n)), "ab"[np.int8(1)], [0] * np.int64(2),
            divmod(b, 2), round(b, 1), abs(-b), int(b), complex(b), -b, +b, ~np.int64(n), b == n, b is None, not b, b or x,
            isinstance(b, float), isinstance(np.float64(1), float), math.sqrt(np.float64(4)), sum([b, 1]), max(b, 0.5), hash(b) == hash(n),
            sorted([b, np.float64(0.5), 1]), 2 in a, b in [n], np.float64(0.1) + 0.2, type(b + 1).__name__, b.item(), b.astype(np.int32),
            np.int64(7) // 2, np.int64(2) ** 3, np.uint8(3) & 1, {b: 1}, min([np.int64(2), 1]), bool(np.bool_(0)), np.bool_(1) and x,
        )  # fmt: skip

    return f, (t(3), 1), [lambda: (t(3), 2), lambda: (t(3), 0)]


@agrees()
def test_overflow_and_wrapping_of_numbers():
    def f(x, n):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            a = np.int8(n) + np.int8(100)
            b = np.float32(1e30) * np.float32(10.0**n)
            c = np.array([1.0, 2.0]) / n
        return x + 1, a, b, c, len(seen)

    return (
        f,
        (t(3), 1),
        [lambda: (t(3), 27), lambda: (t(3), 28), lambda: (t(3), 0), lambda: (t(3), 1)],
    )


@agrees()
def test_numbers_of_numpy_in_containers_of_the_caller():
    class Box:
        scale = np.float32(2)

    box = Box()
    box.low = np.float64(-0.0)
    held = [np.int64(1), {"k": np.float32("nan")}, (np.bool_(True),)]

    def f(x, options):
        y = x * Box.scale + box.low * held[0]
        if held[2][0]:
            y = y + options["gain"]
        return y, held[1]["k"], torch.copysign(torch.ones(1), torch.tensor(box.low))

    options = {"gain": np.float16(0.5)}
    return f, (t(3), options), [
        lambda: setattr(box, "low", np.float64(0.0)), lambda: held.__setitem__(0, np.int64(3)),
        lambda: held.__setitem__(2, (np.bool_(False),)), lambda: held[1].update(k=np.float32(1)),
        lambda: options.update(gain=np.float64(0.5)), lambda: setattr(Box, "scale", np.float32(3)),
        lambda: setattr(Box, "scale", 3.0),
    ]  # fmt: skip


@agrees()
def test_numpy_patched_between_the_calls():
    real = np.sqrt, np.sum

    def f(x):
        return x * np.sqrt(4.0) + float(np.sum([1, 2]))

    def patch():
        np.sqrt = lambda v: 100.0
        np.sum = np.prod

    def back():
        np.sqrt, np.sum = real

    return f, (t(3),), [patch, back]


@agrees()
def test_arrays_of_other_kinds():
    class Mine(np.ndarray):
        def twice(self):
            return self * 2

    def f(x):
        a = np.arange(3).view(Mine)
        b = np.array(["a", "b"])
        c = np.array([1, "x", None], dtype=object)
        d = np.zeros(2, dtype=[("u", "f4"), ("v", "i4")])
        e = np.ma.masked_array([1.0, 2.0], mask=[0, 1])
        g = np.matrix([[1, 2]])
        h = np.array([1 + 2j])
        k = np.datetime64("2020-01-01")
        return (
            x + 1,
            a.twice().tolist(),
            b.tolist(),
            c.tolist(),
            d["u"].tolist(),
            float(e.sum()),
            g.tolist(),
            h,
            h.real,
            str(k),
        )

    return f, (t(3),)


@agrees()
def test_functions_of_numpy_that_call_back():
    seen = []

    def twice(v):
        seen.append(float(v))
        return v * 2

    wide = np.vectorize(twice)
    ufunc = np.frompyfunc(lambda v: seen.append(v) or v + 1, 1, 1)

    def f(x):
        a = wide(np.arange(2.0))
        b = ufunc(np.arange(2))
        c = np.apply_along_axis(sum, 0, np.ones((2, 2)))
        d = np.fromfunction(lambda i, j: i + j, (2, 2))
        e = np.fromiter((i for i in range(3)), dtype=np.int64)
        return x + float(a.sum()), b.tolist(), c, d, e, list(seen)

    return f, (t(3),)


@agrees()
def test_ufunc_methods_writes_and_out():
    def f(x):
        a = np.zeros(4)
        np.add.at(a, [0, 0, 1], 1)
        np.multiply(a, 3, out=a)
        b = np.add.reduce(a)
        c = np.maximum.accumulate(a)
        d = np.multiply.outer(np.arange(2), np.arange(3))
        np.copyto(a, 5, where=a > 0)
        np.fill_diagonal(e := np.zeros((2, 2)), 1)
        a[a > 4] -= 1
        a[[1, 2]] = np.array([8, 9])
        del e
        return x + float(b), a, c, d, np.einsum("i,i->", a, a), a @ a, a[..., None].shape

    return f, (t(3),)


@agrees(backward=True)
def test_constants_of_numpy_and_gradients():
    def f(x, w):
        scale = torch.from_numpy(np.linspace(1, 2, 3, dtype=np.float32))
        mask = torch.from_numpy(np.array([True, False, True]))
        return (x * scale * np.float32(2)).masked_fill(mask, 0) + w[np.array([0, 2, 1])]

    return f, (t(3).requires_grad_(), t(3).requires_grad_())


@agrees()
def test_modules_that_hold_arrays():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = np.arange(3, dtype=np.float32)
            self.gain = np.float64(2.0)

        def forward(self, x):
            anchors = np.stack([self.scales * s for s in (1, 2)])
            return x * torch.from_numpy(self.table) + self.gain * torch.tensor(
                anchors[1], dtype=x.dtype
            )

        @property
        def scales(self):
            return np.array([1.0, 2.0, 3.0])

    net = Net()

    def f(x):
        return net(x)

    return f, (t(3),), [lambda: net.table.fill(5), lambda: setattr(net, "gain", np.float64(3.0))]


@agrees()
def test_dtypes_as_arguments():
    def f(x, dtype):
        a = np.ones(3, dtype=dtype)
        return (
            x + torch.from_numpy(a),
            a.dtype == dtype,
            np.issubdtype(a.dtype, np.floating),
            a.dtype.name,
            np.dtype(dtype).kind,
        )

    return f, (t(3), np.float32), [
        lambda: (t(3), "int64"), lambda: (t(3), np.dtype("float64")), lambda: (t(3), float), lambda: (t(3), np.float32),
    ]  # fmt: skip


@agrees()
def test_copies_and_identity_of_arrays():

    def f(x):
        a = np.arange(3)
        b = copy.copy(a)
        c = copy.deepcopy([a, a])
        d = np.asarray(a)
        return (
            x + 1,
            b is a,
            c[0] is c[1],
            d is a,
            a.copy() is a,
            np.array(a) is a,
            a == b,
            a.ravel() is a,
            id(a) == id(d),
        )

    return f, (t(3),)


@agrees()
def test_memory_of_an_array_cannot_be_resized():
    def f(x, n):
        a = torch.from_numpy(np.arange(3.0, dtype=np.float32) * n)
        b = torch.from_numpy(np.ones(2, dtype=np.float32))
        b.add_(n)
        print(n)
        emitted = []
        for one in (a, b):
            emitted.append(one.untyped_storage().resizable())
            try:
                one.resize_(7)
            except RuntimeError as error:
                emitted.append(str(error))
        return emitted, (x + 1).untyped_storage().resizable()

    return f, (t(2), 2)


@agrees()
def test_what_leaves_with_the_memory_of_an_array():
    def f(n):
        a = torch.from_numpy(np.arange(3.0, dtype=np.float32) * n)
        return a, a * 2

    def g(n):
        return [one.untyped_storage().resizable() for one in f(n)], f(n)

    return g, (2,)


@agrees()
def test_a_read_of_an_array_after_a_write_through_a_tensor():
    def f(x):
        a, b, c = np.zeros((2, 2)), np.zeros(3), np.ones(2)
        whole, part, last = torch.as_tensor(a), torch.from_numpy(b)[1:], torch.from_numpy(c)
        whole[0][0] = 25.5
        copied = torch.tensor(a)
        part.fill_(2)
        added = x + torch.as_tensor(b)
        last.add_(1)
        return copied, whole, added, torch.tensor([c[0], 1.0]), torch.tensor(c[1:])

    return f, (t(3),)
