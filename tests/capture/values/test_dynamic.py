"""Sizes and numbers that vary from call to call: as plain Python has it, from few entries.

A program of the table is called with many shapes or numbers, twice over; each result must be plain Python's, with
strides and types, and the entries made must not exceed `most`. Breaks are allowed where `breaks` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit import JitConfig, jit, mark_dynamic, mutable
from graftjit.jit import JitFunction

from ..harness import agrees

SIZES = (3, 4, 5, 7, 9, 12, 2, 6)
FLOATS = (0.1, 0.25, 0.3, -0.4, 2.5, 7.0, 0.0, 1.0)
PAIRS = ((2, 3), (3, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 4))


@dataclass(frozen=True, slots=True)
class Program:
    make: Callable[[], Any]
    calls: tuple[Callable[[], tuple], ...]
    most: int
    breaks: int


TABLE: dict[str, Program] = {}


def seen(calls: Any, most: int = 3, breaks: int = 0) -> Callable[[Any], Any]:
    """A program of the table: a function, or a function without arguments that is called "make_..." and makes one."""

    def register(function: Any) -> Any:
        name = function.__name__
        make = function if name.startswith("make_") else lambda: function
        TABLE[name] = Program(make, tuple(calls), most, breaks)
        return function

    return register


def rows(*rest: int, sizes: tuple[int, ...] = SIZES) -> list[Callable[[], tuple]]:
    return [lambda n=n: (torch.randn(n, *rest),) for n in sizes]


def pairs(*rest: int, of: Any = PAIRS) -> list[Callable[[], tuple]]:
    return [lambda a=a, b=b: (torch.randn(a, b, *rest),) for a, b in of]


def numbers(values: Any, *shape: int) -> list[Callable[[], tuple]]:
    return [lambda v=v: (torch.randn(*(shape or (5,))), v) for v in values]


def entries(fn: Any) -> int:
    return sum(frame.entries for frame in fn.report().frames)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return (
            type(left) is type(right)
            and left.shape == right.shape
            and left.stride() == right.stride()
            and left.dtype == right.dtype
            and torch.allclose(left, right, atol=1e-5, equal_nan=True)
        )
    if isinstance(left, (tuple, list)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("name", TABLE)
def test_many_shapes_and_numbers(name: str, level: str) -> None:
    program = TABLE[name]
    torch.manual_seed(0)
    fn = program.make()
    compiled = jit(fn, config=JitConfig(jit_level=level))
    with torch.no_grad():
        for call in program.calls * 2:
            args = call()
            wanted, found = fn(*args), compiled(*args)
            assert same(wanted, found), f"{args}\n{wanted}\n{found}\n{compiled.report()}"
    report = compiled.report()
    assert report.break_count == program.breaks, report
    assert entries(compiled) <= program.most, report


# -- sizes ---------------------------------------------------------------------------------------------------
@seen([lambda n=n: (torch.randn(n, 4), torch.randn(n, 4)) for n in (*SIZES, 1)], most=3)
def pointwise(x, y):
    return x.sin() + y * 2


@seen(rows(8), most=3)
def make_mlp():
    layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1)
    return nn.Sequential(*layers).eval()


@seen([lambda n=n, m=m: (torch.randn(n, 4), torch.randn(4, m)) for n, m in PAIRS], most=3)
def product(x, y):
    return x @ y


@seen([lambda n=n: (torch.randn(n, 1), torch.randn(1, n + 1)) for n in SIZES], most=2)
def broadcast(x, y):
    return x + y


@seen([lambda n=n: (torch.randn(n, 4), torch.randn(2 * n + 1, 4)) for n in SIZES], most=3)
def joined(x, y):
    return torch.cat([x, y], 0) * 2, torch.stack([x, x])


@seen(rows(4), most=3)
def slices(x):
    return x[1:-1], x[::2], x[:, 1:], x[0], x[-1], x[:2]


@seen(
    [
        lambda s=s: (torch.randn(s),)
        for s in ((2, 3, 4), (3, 3, 4), (4, 5, 4), (5, 6, 7), (6, 7, 8), (3, 9, 5))
    ],
    most=4,
)
def reshapes(x):
    b, c, h = x.shape
    return x.view(b, c * h).transpose(0, 1).reshape(h, -1), x.permute(2, 0, 1).flatten()


@seen(rows(4), most=3)
def reductions(x):
    return x.sum(), x.mean(0), x.max(-1).values, x.std(), x.argmax(0), x.cumsum(0), x.norm()


@seen(rows(4), most=3)
def made_tensors(x):
    n = x.shape[0]
    return (
        torch.zeros(n, 3) + x.new_ones(x.size(0), 1),
        torch.arange(n),
        torch.full((n,), n),
        torch.ones_like(x),
    )


@seen(rows(4), most=3)
def causal_mask(x):
    n = x.shape[0]
    seen = torch.tril(torch.ones(n, n))
    return (x @ x.T).masked_fill(seen == 0, float("-inf")).softmax(-1)


@seen(rows(4), most=4)
def branch_on_a_size(x):
    if x.shape[0] > 6:
        return x * 2
    return x + 1


@seen(rows(4, sizes=(3, 4, 3, 4)), most=3)
def loop_over_a_size(x):
    for i in range(x.shape[0]):
        x = x + i
    return x


@seen(rows(4), most=3)
def what_sizes_say(x):
    n = x.shape[0]
    return (
        x * 2, x.shape, tuple(x.shape), list(x.size()), x.numel(), len(x), x.dim(), x.stride(), n // 2, -n, n % 3,
        n * n - 1, n / 4, (n, *x.shape), x.shape + (1,), x.shape[1:], {"n": n}, abs(n - 5),
    )  # fmt: skip


@seen([lambda n=n: (torch.randn(4, n).t(),) for n in SIZES], most=3)
def transposed(x):
    return x.exp(), x.contiguous() + 1


@seen([lambda n=n: (torch.randn(n, 8)[:, :4],) for n in SIZES], most=3)
def with_gaps(x):
    return x * 2, x.clone()


@seen([lambda n=n: (torch.randn(n, n + 2)[:, :-2],) for n in SIZES], most=4)
def with_gaps_that_vary(x):
    return x * 2


@seen([lambda n=n: (torch.randn(10, 4), torch.randint(0, 10, (n, 3))) for n in SIZES], most=3)
def embedded(w, i):
    return F.embedding(i, w), w[i].sum(1)


class Attention(nn.Module):
    def __init__(self, own: bool):
        super().__init__()
        self.heads, self.own = 2, own
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        if self.own:
            scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
            seen = torch.ones(length, length, dtype=torch.bool).tril()
            found = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(found.transpose(1, 2).reshape(batch, length, width))


# torch before 2.13 reads plain sizes in matrix products of more than two dimensions: a shape, an entry.
BATCHES = 4 if torch.__version__ >= "2.13" else len(PAIRS)


@seen(pairs(8), most=BATCHES)
def make_attention():
    return nn.Sequential(Attention(own=True), Attention(own=True)).eval()


@seen(pairs(8), most=4)
def make_attention_of_torch():
    return nn.Sequential(Attention(own=False), nn.GELU()).eval()


@seen(
    [
        lambda b=b, h=h: (torch.randn(b, 3, h, h + 2),)
        for b, h in ((2, 8), (3, 8), (4, 10), (5, 12))
    ],
    most=4,
)
def make_convolutions():
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    body = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*body, *head).eval()


# -- numbers -------------------------------------------------------------------------------------------------
@seen(numbers(FLOATS), most=3)
def float_argument(x, k):
    return x * k + k / 2 - 1, k * 2


@seen(numbers((5, 6, 7, 8, 9, 10, 11)), most=3)
def int_argument(x, k):
    return x * k + k // 2, k - 1


@seen(numbers((2, 3, 4, 5, 6, 7), 10), most=4)  # a bound beyond the end is another path
def slice_bound(x, n):
    return x[:n].sum() + n, x.view(2, -1)[:, 1:n]


@seen(numbers((0.1, 0.2, 0.3, 0.4, 0.5, 2.0)), most=3)
def power(x, k):
    return x.abs() ** k


@seen(numbers((3, 4, 5, 6, 7, 8, 60, 70)), most=5)
def compared(x, n):
    if n * 2 > 100:
        return x - n
    return x + n


@seen([lambda s=s, v=v: (torch.ones(3), s, v) for v in range(3) for s in ("a", "b")], most=6)
def words_and_flags_stay(x, word, number):
    return x * len(word) + (1 if word == "a" else 2) + number


def ones_and(*numbers: Any) -> Callable[[], tuple]:
    """A step of a world: a tensor and these for arguments."""
    return lambda: (torch.ones(3), *numbers)


class Counter:
    def __init__(self):
        self.calls, self.average = 0, 0.0

    def __call__(self, x):
        self.calls += 1
        self.average = self.average * 0.9 + 1.5
        return x * 2


@agrees(calls=8, recompiles=0, breaks=0)
def test_counters():
    counter = Counter()
    return counter, (torch.ones(3),)


class Scaled:
    def __init__(self):
        self.scale = 1.5

    def __call__(self, x):
        return x * self.scale


@agrees(recompiles=1, breaks=0)
def test_attribute_that_varies():
    model = Scaled()

    def change():
        model.scale += 0.75

    return model, (torch.ones(3),), [change] * 7


@agrees(recompiles=1, breaks=0)
def test_global_that_varies():
    def f(x):
        return x * RATE

    def change():
        global RATE
        RATE += 0.5

    global RATE
    RATE = 1.25
    return f, (torch.ones(3),), [change] * 7


RATE = 1.25


@agrees(breaks=0)
def test_a_number_of_another_type():
    def f(x, k):
        return x * k, k + k

    values = [2, 3, 4, 5, 2.5, True, 1, 0, -0.0, -3, 1 << 40, float("nan"), float("inf"), 6, 7.25]
    return f, (torch.ones(3), 1), [ones_and(v) for v in values]


@agrees(breaks=1)
def test_numbers_that_divide():
    def f(x, a, b):
        return x + 1, a // b, a % b, a / b

    values = [(7, 2), (8, 3), (9, 4), (10, 0), (-7, 3), (7, -3), (11, 5), (2.5, 0.5), (3.5, 0.0)]
    return f, (torch.ones(3), 6, 5), [ones_and(*v) for v in values]


@agrees(breaks=0)
def test_a_counter_that_decides():
    class Warm:
        def __init__(self):
            self.step = 0

        def __call__(self, x):
            self.step += 1
            if self.step < 6:
                return x * 0.5
            return x * 2

    return Warm(), (torch.ones(3),), [lambda: None] * 9


@agrees(breaks=0)
def test_one_tensor_in_two_places():
    def f(x, y):
        x.add_(1)
        return x * y

    def twice(n):
        x = torch.ones(n, 2)
        return x, x

    def apart(n):
        return lambda: (torch.ones(n, 2), torch.ones(n, 2))

    steps = [apart(n) for n in (4, 5, 6)]
    return f, (torch.ones(3, 2), torch.ones(3, 2)), [*steps, lambda: twice(4), lambda: twice(5)]


# -- what the program says -----------------------------------------------------------------------------------
def run_all(fn: JitFunction, calls: Any) -> int:
    for call in calls:
        args = call()
        assert same(fn.__wrapped__(*args), fn(*args))
    return entries(fn)


def test_dynamic_true_is_symbolic_at_once() -> None:
    fn = jit(pointwise.__class__(pointwise.__code__, globals()), dynamic=True)
    assert run_all(fn, [lambda n=n: (torch.ones(n, 4), torch.ones(n, 4)) for n in SIZES]) == 1
    assert [record.why for record in fn.report().symbolic] == ["dynamic=True"] * 2


def test_dynamic_false_never_is() -> None:
    fn = jit(lambda x, k: x * k, dynamic=False)
    assert run_all(fn, numbers(FLOATS)) == len(FLOATS)
    assert not fn.report().symbolic


def test_marked_dimensions() -> None:
    fn = jit(lambda x: x.sin())
    for n in SIZES:
        x = torch.ones(n, 3)
        mark_dynamic(x, 0)
        fn(x)
    assert entries(fn) == 1
    fn(mutable(torch.ones(4, 5)))
    fn(torch.ones(6, 7))
    assert entries(fn) == 2
    with pytest.raises(IndexError):
        mark_dynamic(torch.ones(3), 1)
    with pytest.raises(TypeError):
        mark_dynamic(3, 0)  # type: ignore[arg-type]


def test_sixty_shapes_are_three_compiles() -> None:
    fn = jit(lambda x, y: torch.relu(x @ y).sum(-1))
    calls = [lambda n=n: (torch.randn(n, 8), torch.randn(8, 5)) for n in range(1, 61)]
    assert run_all(fn, calls) <= 3


def test_the_report_says_what_varies_and_why() -> None:
    fn = jit(lambda x: x.sin())
    for n in (3, 4, 5):
        fn(torch.ones(n, 2))
    assert [(r.source, r.why) for r in fn.report().symbolic] == [
        ("x.shape[0]", "seen with 3 and 4")
    ]
    assert "x.shape[0]" in str(fn.report())


def test_parameters_keep_their_sizes() -> None:
    fn = jit(lambda layer, x: layer(x))
    for width in (3, 4, 5):
        fn(nn.Linear(4, width).requires_grad_(False), torch.ones(2, 4))
    assert entries(fn) == 3
    assert graftjit.__all__.count("mark_dynamic") == 1


BASE = torch.arange(30.0)


@agrees()
def test_storage_offsets_of_inputs():
    """No guard holds them: a view elsewhere in the same memory has the same sizes."""

    def f(x):
        return x.storage_offset(), x[1:].storage_offset(), (x + 1)[1:].storage_offset()

    moves = [lambda: (BASE[1:10].view(3, 3),), lambda: (BASE[5:14].view(3, 3),)]
    return f, (BASE[:9].view(3, 3),), moves


def agree_dynamic(function: Any, calls: Any, most: int, level: str = "O0") -> None:
    """All symbolic from the first call on: results and exceptions are plain Python's, from few entries."""
    fn = jit(function, config=JitConfig(jit_level=level, dynamic=True))
    for args in calls:
        wanted, found = outcome(function, args), outcome(fn, args)
        assert same(wanted, found), f"{args}: {wanted}, not {found}\n{fn.report()}"
    assert entries(fn) <= most, fn.report()


def outcome(function: Any, args: tuple) -> Any:
    try:
        return function(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_numbers_that_a_dtype_cannot_hold(level: str) -> None:
    values = (1.5, 2.5, -7.0, 1e300, -1e300, math.inf, 3.0)

    def dropped(x, k):
        x.clone().fill_(k)
        return x + 1

    x = torch.zeros(3)
    agree_dynamic(lambda x, k: x.fill_(k), [(x, k) for k in values], 4, level)
    agree_dynamic(dropped, [(x, k) for k in values], 4, level)
    agree_dynamic(lambda x, k: x * k, [(x, k) for k in values], 4, level)
    small = x.to(torch.int8)
    agree_dynamic(lambda x, n: x.fill_(n), [(small, n) for n in (2, 100, 127, 128, 300)], 5, level)


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_numbers_beyond_64_bits(level: str) -> None:
    values = (2, 5, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**70, -(2**64), 3, True, 7)
    x = torch.ones(3)
    for function in (
        lambda x, n: (x + 1, n + 1, n // 3),
        lambda x, n: (x * (n * n * n // (n * n * n) + 1), n * n),
        lambda x, n: (x, n > 2.5, max(0.5, n)),
        lambda x, n: (x * 2, divmod(n, 7), n & 3, n | 8, n ^ 5, n << 2, n >> 1, ~n, round(n)),
    ):
        agree_dynamic(function, [(x, n) for n in values], 13, level)


def test_floats_that_no_text_can_say() -> None:
    values = (0.5, math.inf, -math.inf, math.nan, -0.0, 2.0)
    agree_dynamic(
        lambda x, k: (x, k * math.inf, k - math.nan), [(torch.ones(2), k) for k in values], 6
    )


FUNCTIONS_OF_NUMBERS = """\
divmod(n, 3)
(n << 1, n >> 1, n & 3, n & 5, n | 4, n ^ 3, ~n, +n)
(round(n), round(k), int(k), int(n / 2), math.floor(k), math.ceil(k), math.trunc(k))
(hash(n), pow(n, 2), -(n // -2), (n > 100) + n, n + True)
(n ** -1, n ** 0.5, k ** 2, k ** -0.5, x.shape[-1] ** -0.5)
(math.sqrt(n), math.sqrt(k), math.exp(k), math.log(n), math.fabs(k), 1 / math.sqrt(x.shape[-1]))
(k // 2, k % 2, k // -0.3, k % -0.3, n % k, divmod(k, 2))
(sum(x.shape), sum([n, 1, n]), math.prod(x.shape), x.shape.numel(), x.shape[:1].numel())
(n is True, n is None, math.isnan(k), math.isinf(k), math.isfinite(n))
(x + int(k) + n // 2, x * (n & 12) + (n | 1), x * math.sqrt(n) + k // 2 + k % 3, x.clamp(max=k ** 2))
(wide[n], wide[-n], wide[n, 1:], wide[n, n % 4], wide[n, ..., None], wide[n % x.shape[0]], wide[n][:n])
""".splitlines()


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("text", FUNCTIONS_OF_NUMBERS)
def test_functions_of_numbers_do_not_recompile(text: str, level: str) -> None:
    """Also in registers and kernels' arguments; what is odd (0, 1, True, negative, infinite) may have entries of its own."""
    scope: dict[str, Any] = {"math": math, "wide": torch.arange(200.0).reshape(50, 4)}
    exec(f"def f(x, n, k):\n    return x + 1, {text}", scope)
    common = [(torch.ones(i + 3, i + 4), i + 2, i * 0.75 + 0.5) for i in range(10)]
    agree_dynamic(scope["f"], common, 4, level)
    odd = [(torch.ones(4, 5), n, k) for n, k in ODD_PAIRS]
    agree_dynamic(scope["f"], odd, 20, level)


ODD_PAIRS = (
    (0, 0.0), (1, 1.0), (True, -0.0), (-1, -1.0), (-3, -2.5), (2**40, 1e300), (2**63, 1e-300), (-(2**63), math.inf),
    (-4, -math.inf), (49, math.nan), (50, 2.5), (60, 3.5), (-50, 0.5), (-51, 1.5), (5, -7.5), (7, 1e19),
)  # fmt: skip


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_items_written_at_places_that_vary(level: str) -> None:
    def write(x, i, k):
        x[i] = k
        x[i, 1:] += 1
        x[i - 1][0] = 7.0
        return x

    calls = [(torch.zeros(9, 3), i, i / 4) for i in (2, 3, 4, 5, 8, -1, -3, 9, 0, 1, -9, -10)]
    agree_dynamic(write, calls, 8, level)


@pytest.mark.parametrize(
    "index",
    ["x[:, i]", "x[..., i]", "x[..., i, 1:]", "x[0, i]", "x[None, ..., -i, None, 1:]", "x[:, i, t]",
     "x[t, :, i - 1]", "x[i, i + 1, i:]"],
)  # fmt: skip
def test_a_number_that_varies_in_any_place_of_an_index(index: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def read(x, i, t):\n    return {index} * 2", scope)
    calls = [(torch.randn(8, 9, 10), i, torch.tensor([0, 2, 1])) for i in (2, 3, 4, 5, 6)]
    agree_dynamic(scope["read"], calls, 3, "O1")


@pytest.mark.parametrize(
    "index",
    ["x[[i, k]]", "x[:, [k, 0, i]]", "x[[i, k], [0, i]]", "x[..., [i], None]", "x[[[i, k]]]",
     "x[[i, k], 1:]", "x[(k, i)]", "x[[i, True]]"],
)  # fmt: skip
def test_numbers_that_vary_in_a_list_that_is_an_index(index: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def read(x, i, k):\n    return {index} * 2", scope)
    exec(f"def write(x, i, k):\n    x = x.clone()\n    {index} = 7.0\n    return x", scope)
    x = torch.randn(8, 9, 10)
    pairs = [(i, 9 - i) for i in (2, 3, 4, 5, 6)] + [(-1, 0), (9, 1), (-9, 2)]
    for name in ("read", "write"):
        limit = 5 if "True" not in index and "[[[" not in index else 99
        agree_dynamic(scope[name], [(x, i, k) for i, k in pairs], limit, "O1")


def test_a_number_that_varies_behind_a_mask_or_a_list() -> None:
    """How many dimensions those are for is torch's to say."""

    def read(x, i, mask):
        return x[[0, 1], i].sum(), x[mask, i] * 2, x[..., i, mask[0]] * 2

    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 1] = False
    calls = [(torch.randn(4, 4, 4), i, mask) for i in (0, 1, 2, 3)]
    agree_dynamic(read, calls, 99, "O1")


def test_the_body_of_a_long_loop_computes_with_its_step() -> None:
    """The body is a frame of its own after 64 steps."""

    def f(x, n):
        for e in range(n):
            x = x + divmod(e, 3)[1] + e % 3 + e // 2 + (e << 1) + x[e % 4]
        return x / n

    fn = jit(f)
    for n in (100, 150, 90):
        assert same(
            f(torch.ones(4, dtype=torch.float64), n), fn(torch.ones(4, dtype=torch.float64), n)
        )
    assert entries(fn) <= 8, fn.report()


def test_ranges_that_are_too_long_to_have_a_length() -> None:
    calls = [(torch.ones(2), n) for n in (3, 2**63, 5, 2**70, -(2**64))]
    agree_dynamic(lambda x, n: (x + 1, len(range(n))), calls, 5)
