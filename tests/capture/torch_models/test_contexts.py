"""torch's contexts and settings inside and around a frame: grad modes, autocast, dtypes, devices, modes."""

from __future__ import annotations

import contextlib
import gc
import io
import typing
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit

from ..harness import agrees, t
from .layers import model_of_layers


@agrees(backward=True)
def test_grad_modes_nested_with_exceptions():
    def f(x, n):
        flags = []
        y = x * 2
        try:
            with torch.no_grad():
                flags.append(torch.is_grad_enabled())
                a = y * 3
                with torch.enable_grad():
                    b = y * 4
                    flags.append(torch.is_grad_enabled())
                    if n == 1:
                        raise ValueError("inside")
                with torch.set_grad_enabled(n == 2):
                    c = y * 5
                    if n == 2:
                        raise KeyError("deep")
        except (ValueError, KeyError) as error:
            flags.append(str(error))
            a = b = c = y
        flags.append(torch.is_grad_enabled())
        return y, a, b, c, flags, [v.requires_grad for v in (a, b, c)]

    return f, (t(3).requires_grad_(), 0), [
        lambda: (t(3).requires_grad_(), 1), lambda: (t(3).requires_grad_(), 2), lambda: (t(3), 0),
    ]  # fmt: skip


@agrees()
def test_grad_modes_and_exceptions_that_leave():
    def f(x, n):
        with torch.no_grad():
            y = x * 2
            if n == 1:
                raise ValueError("leaves")
            with torch.inference_mode():
                z = y + 1
                if n == 2:
                    y.view(77)
        return y, z, z.is_inference(), y.is_inference()

    return f, (t(3), 0), [lambda: (t(3), 1), lambda: (t(3), 2), lambda: (t(3), 0)]


@agrees(backward=True)
def test_grad_modes_as_decorators():
    @torch.no_grad()
    def quiet(x):
        return x * 2, torch.is_grad_enabled()

    @torch.enable_grad()
    def loud(x):
        return x * 3, torch.is_grad_enabled()

    @torch.inference_mode()
    def frozen(x):
        return x * 4, torch.is_inference_mode_enabled()

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def low(x, w):
        return x @ w

    @torch.set_grad_enabled(False)
    def off(x):
        return x + 1

    def f(x):
        @torch.no_grad()
        def inner(y):
            return y - 1

        with torch.no_grad():
            b = loud(x)
        return (
            quiet(x),
            loud(x),
            b,
            frozen(x.detach())[1],
            low(x, x.T),
            off(x),
            inner(x),
            torch.is_grad_enabled(),
        )

    return f, (t(2, 2).requires_grad_(),)


@agrees()
def test_inference_mode_inside():
    layer = model_of_layers().eval()

    def f(x):
        with torch.inference_mode():
            y = layer(x)
            a = torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            z = x * 2
        try:
            y.requires_grad_()
        except RuntimeError as error:
            return a, y, z, y.is_inference(), z.is_inference(), str(error)

    return f, (t(2, 3),)


@agrees(backward=True)
def test_autocast_inside():
    layer = model_of_layers().eval()

    def f(x):
        a = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = layer(x)
            kind = torch.get_autocast_dtype("cpu")
            with torch.autocast("cpu", enabled=False):
                c = layer(x)
            d = F.softmax(b, -1) + b.sum()
        with torch.amp.autocast("cpu", dtype=torch.float16):
            e = x @ x.T
        return a, b, c, d, e, kind, torch.is_autocast_enabled("cpu")

    return f, (t(2, 3),)


@agrees()
def test_autocast_with_breaks_and_exceptions():
    def f(x, n):
        y = x @ x.T
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = y @ y
                print(y.dtype)
                z = y @ y
                if n == 1:
                    raise ValueError("out")
                if n == 2:
                    return y, z
        except ValueError:
            z = x @ x.T
        return y, z, z @ z.T, torch.is_autocast_enabled("cpu")

    return f, (t(2, 2), 0), [lambda: (t(2, 2), 1), lambda: (t(2, 2), 2), lambda: (t(2, 2), 0)]


@agrees()
def test_default_dtype_and_device_inside():
    def f(x):
        old = torch.get_default_dtype()
        a = torch.ones(2)
        torch.set_default_dtype(torch.float64)
        b = torch.ones(2) + torch.tensor([1.5, 2.5])
        torch.set_default_dtype(old)
        with torch.device("cpu"):
            c = torch.ones(2)
            with torch.device("meta"):
                d = torch.ones(2)
        torch.set_default_device("cpu")
        e = torch.zeros(2)
        torch.set_default_device(None)
        return a, b, c + x[:2], d.device, e, torch.get_default_dtype(), torch.get_default_device()

    return f, (t(3),)


@agrees()
def test_default_dtype_around_the_call():
    def f(x):
        return (
            torch.ones(2) + x[:2],
            torch.arange(2) / 2,
            1.5 + torch.zeros(1),
            torch.get_default_dtype(),
        )

    return f, (t(3),), [
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_default_dtype(torch.bfloat16), lambda: torch.set_default_dtype(torch.float32),
    ]  # fmt: skip


@agrees()
def test_devices_as_contexts_and_decorators():
    def shapes(n):
        with torch.device("meta"):
            return torch.ones(n).shape

    def f(x):
        dev = torch.device("cpu")
        with dev:
            a = torch.arange(3)
            print(a.device)
            b = nn.Linear(3, 2).weight.device
        return a + x, b, shapes(4)

    return f, (t(3),)


@agrees()
def test_devices_entered_by_hand():
    def f(x):
        device = torch.device("meta")
        device.__enter__()
        a = torch.ones(2).device
        device.__exit__(None, None, None)
        leave = torch.device("cpu").__exit__
        return x + torch.ones(3), a, callable(leave)

    return f, (t(3),)


@agrees()
def test_other_contexts_of_torch():
    def f(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(9)
            a = torch.rand(2)
        with torch.autograd.set_detect_anomaly(False):
            b = x * 2
        with torch.autograd.profiler.record_function("part"):
            c = x + 1
        with torch.backends.mkldnn.flags(enabled=False):
            d = x @ x
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            q = x.view(1, 1, 1, -1)
            e = F.scaled_dot_product_attention(q, q, q)
        return a, b, c, d, e, torch.rand(1)

    return f, (t(4),)


@agrees()
def test_contexts_entered_by_hand_and_stacks():
    import contextlib

    def f(x, n):
        guard = torch.no_grad()
        guard.__enter__()
        a = torch.is_grad_enabled()
        guard.__exit__(None, None, None)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if n:
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            y = x @ x.T
            b = torch.is_grad_enabled()
        with torch.no_grad() if n else contextlib.nullcontext():
            c = torch.is_grad_enabled()
        with torch.no_grad(), torch.enable_grad():
            d = torch.is_grad_enabled()
        return y, a, b, c, d, torch.is_grad_enabled()

    return f, (t(2, 2), 0), [lambda: (t(2, 2), 1), lambda: (t(2, 2), 0)]


@agrees()
def test_state_around_the_call():
    def f(x, w):
        return (
            x @ w,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            (x * 2).requires_grad,
        )

    x, w = t(2, 2).requires_grad_(), t(2, 2)
    low = torch.autocast("cpu", dtype=torch.bfloat16)
    return f, (x, w), [
        lambda: low.__enter__() and None, lambda: torch.set_grad_enabled(False) and None,
        lambda: low.__exit__(None, None, None), lambda: torch.set_grad_enabled(True) and None,
    ]  # fmt: skip


@agrees(graphs=2, breaks=0)
def test_default_devices_around_the_call():
    def f(x):
        y = torch.ones(3) + torch.arange(3) * torch.tensor(2.0)
        z = torch.zeros_like(x) + torch.from_numpy(np.ones(3)).sum() + torch.rand(3) * 0
        return y, z, torch.as_tensor([1.0]), F.relu(x), x.new_ones(1)

    return f, (t(3),), [
        lambda: torch.set_default_device("cpu"), lambda: None, lambda: torch.set_default_device(None),
    ]  # fmt: skip


@agrees()
def test_other_default_devices_around_the_call():
    def f(x):
        y = torch.ones(3)
        z = torch.zeros_like(x) + torch.from_numpy(np.ones(3)).sum()
        return (
            y.device,
            y.shape,
            z,
            torch.as_tensor([1.0]).device,
            F.relu(x),
            torch.empty(2, device="cpu").device,
        )

    return f, (t(3),), [
        lambda: torch.set_default_device("meta"), lambda: torch.set_default_device("cpu"),
        lambda: torch.set_default_device(None),
    ]  # fmt: skip


def test_modes_in_force_are_told():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    @jit
    def f(x):
        return x * 2 + 1

    f(t(3))
    for mode in (Count, Log, Count):
        with mode():
            assert torch.equal(f(t(3)), t(3) * 2 + 1)
    seen = [row.reason for row in f.report().notes if row.code == "PL209"]
    assert len(seen) == 2 and seen[0].endswith("Count") and seen[1].endswith("Log")
    assert f.report().graph_count == 1


@agrees()
def test_grad_mode_left_changed():
    def f(x, on):
        torch.set_grad_enabled(on)
        y = x * 2
        return y, y.requires_grad, torch.is_grad_enabled()

    return (
        f,
        (t(3).requires_grad_(), False),
        [
            lambda: (t(3).requires_grad_(), True),
            lambda: (t(3).requires_grad_(), False),
            lambda: torch.set_grad_enabled(True) and None,
        ],
    )


@agrees()
def test_grad_mode_with_exceptions_left():
    def f(x, n):
        torch.set_grad_enabled(False)
        if n == 1:
            raise ValueError("off")
        torch.set_grad_enabled(True)
        with torch.no_grad():
            torch.set_grad_enabled(True)
            if n == 2:
                raise KeyError("in")
        return x * 2, torch.is_grad_enabled()

    return (
        f,
        (t(3), 0),
        [
            lambda: (t(3), 1),
            lambda: torch.set_grad_enabled(True) and None,
            lambda: (t(3), 2),
            lambda: (t(3), 0),
        ],
    )


@agrees()
def test_settings_of_torch_inside():
    def f(x):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        a = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(before)
        p = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        b = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(p)
        torch.set_printoptions(precision=2)
        c = str(x)
        torch.set_printoptions(profile="default")
        return x + 1, a, b, c, str(x), repr(x * 2), f"{x}", "%s" % x

    return f, (t(3),)


@agrees()
def test_generators_of_torch():
    g = torch.Generator().manual_seed(3)

    def f(x):
        a = torch.rand(2, generator=g)
        own = torch.Generator()
        own.manual_seed(7)
        b = torch.randn(2, generator=own)
        state = torch.get_rng_state()
        c = torch.rand(2)
        torch.set_rng_state(state)
        d = torch.rand(2)
        return (
            x + 1,
            a,
            b,
            c,
            d,
            torch.equal(c, d),
            g.initial_seed(),
            torch.initial_seed() > 0,
            torch.randperm(4, generator=g),
        )

    return f, (t(3),)


@agrees()
def test_stacks_of_contexts_and_callbacks():
    log = []

    class C:
        def __init__(self, n, swallow=False):
            self.n, self.swallow = n, swallow

        def __enter__(self):
            log.append(("in", self.n))
            return self.n

        def __exit__(self, kind, value, tb):
            log.append(("out", self.n, kind and kind.__name__))
            return self.swallow

    def f(x, n):
        with contextlib.ExitStack() as stack:
            a = stack.enter_context(C(1, swallow=n == 2))
            stack.callback(log.append, "callback")
            b = [stack.enter_context(C(i)) for i in range(2)]
            x = x * 2 + a
            if n == 1:
                stack.pop_all().close()
            if n == 2:
                raise ValueError("two")
            with contextlib.suppress(KeyError), C(9):
                x = x + 1
                if n == 3:
                    raise KeyError("three")
            x = x * 3
        with contextlib.closing(io.StringIO()) as s:
            s.write("z")
        return x, b, list(log)

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in (1, 2, 3, 0)]


@agrees()
def test_fx_and_traces_over_the_function():
    from torch.fx.experimental.proxy_tensor import make_fx

    @jit
    def inner(x):
        return torch.relu(x) * 2 + 1

    inner(t(3))

    def f(x):
        return (
            make_fx(inner)(x).code.count("relu"),
            torch.fx.symbolic_trace(lambda v: inner(v)).code.count("relu"),
            torch.jit.trace(lambda v: inner(v), (x,))(x),
        )

    return f, (t(3),)


test_default_devices_around_fused_code = agrees(level="O1")(
    test_other_default_devices_around_the_call.world
)


@agrees(breaks=0)
def test_contexts_on_an_exit_stack():
    def f(x, quiet):
        seen = []
        with contextlib.ExitStack() as stack:
            if quiet:
                stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            stack.callback(seen.append, "left")
            y = x @ x
            seen.append((torch.is_grad_enabled(), y.dtype))
        return y, seen, torch.is_grad_enabled()

    x = t(3, 3).requires_grad_()
    return f, (x, True), [lambda *_: (x, False), lambda *_: (x, True)]


@agrees(breaks=0, backward=True)
def test_labels_for_profilers_where_none_is_active():
    model = model_of_layers().eval()

    def f(x):
        with torch.profiler.record_function("layers"):
            y = model(x)
            with torch.autograd.profiler.record_function("more", "args"):
                return y * 2

    return f, (t(4, 3),)


@agrees(breaks=0)
def test_labels_for_profilers_as_decorators_and_objects():
    def f(x, n):
        @torch.profiler.record_function("decorated")
        def inner(x):
            return x + 1

        label = torch.profiler.record_function(f"step {n}", args="more")
        with label as entered:
            y = inner(x) * n
        kind = type(label), isinstance(label, torch.autograd.profiler.record_function)
        return y, entered is label, label.name, label.args, kind, label.run_callbacks_on_exit

    return f, (t(3), 2), [lambda *_: (t(3), 3), lambda *_: (t(3), 4)]


def test_the_first_label_of_a_process_is_no_break():
    def f(x):
        label = torch.profiler.record_function("first")
        with label:
            y = x + 1
        return y * 2, sorted(vars(label))

    for forget in typing._cleanups:
        forget()
    run = jit(f)
    got, wanted = run(t(3)), f(t(3))
    assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1]
    assert run.report().break_count == 0


@agrees()
def test_a_break_inside_a_label_and_labels_that_leave_the_frame():
    def f(x, kept):
        with torch.profiler.record_function("outer") as label:
            y = x + 1
            gc.get_threshold()
            y = y * 2
        kept.append(label)
        again = torch.profiler.record_function("again")
        again.__enter__()
        gc.get_threshold()
        again.__exit__(None, None, None)
        records = [type(one.record).__name__ for one in (kept[0], again)]
        return y, kept[0].name, records, again

    def same_label(result):
        return (*result[:3], result[3].name, type(result[3].record).__name__)

    return lambda x, kept: same_label(f(x, kept)), (t(3), [])


@agrees()
def test_a_label_left_without_being_entered():
    def f(x):
        try:
            torch.profiler.record_function("never").__exit__(None, None, None)
        except AssertionError as error:
            return x + 1, str(error)
        return x, None

    return f, (t(3),)


def test_an_active_profiler_sees_the_labels_of_the_program():
    @jit
    def f(x):
        with torch.profiler.record_function("label of the program"):
            return x * 2 + 1

    def run():
        assert torch.equal(f(t(3)), t(3) * 2 + 1)

    for _ in range(2):
        run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            run()
        assert "label of the program" in [event.key for event in seen.key_averages()]
    assert {row.code for row in f.report().breaks} == {"GB103"}


def _heard(fn, x):
    """What three calls give, and the warnings that reach the program, with their places."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        results = [fn(x).tolist() for _ in range(3)]
    return results, [(one.category, str(one.message), one.filename, one.lineno) for one in heard]


def test_a_context_manager_that_warns_when_it_is_made():
    def deprecated(x):
        with torch.cpu.amp.autocast():
            return x @ x

    def disabled(x):
        made = torch.autocast("cpu", dtype=torch.float32)
        with made:
            x = x @ x
        with made:
            return x @ x

    for fn in (deprecated, disabled):
        wanted = _heard(fn, torch.ones(4, 4))
        assert len(wanted[1]) == 3
        assert _heard(jit(fn), torch.ones(4, 4)) == wanted


@agrees()
def test_a_context_manager_whose_warning_is_an_error():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                made = torch.cpu.amp.autocast(enabled=False)
            except FutureWarning as warning:
                return x + 1, str(warning)
        with made:
            return x @ x, None

    return fn, (t(3, 3),)


@agrees()
def test_a_context_manager_that_cannot_be_made():
    def fn(x):
        found = []
        try:
            with torch.autocast(3):
                found.append(x @ x)
        except ValueError as error:
            found.append(str(error))
        try:
            torch.autocast("no such device")
        except RuntimeError as error:
            found.append(type(error).__name__)
        return x + 1, found

    return fn, (t(3, 3),)


def _made_in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


def _written_in_inference_mode(c):
    made = torch.ones(3) * 2
    with torch.inference_mode():
        made.add_(1)
        return torch.is_inference(made), torch.is_inference(made.view(-1)), torch.is_inference(c)


@pytest.mark.parametrize(
    "program",
    [
        lambda c: (torch.is_inference(c), c * 2),
        lambda c: (torch.is_inference(c.view(-1)), torch.is_inference(c + 1)),
        lambda c: (c.view(-1).is_inference(), (c + 1).is_inference()),
        _written_in_inference_mode,
    ],
)
def test_whether_a_tensor_was_made_in_inference_mode(program):
    jitted = jit(program)
    for make in (_made_in_inference_mode, lambda: torch.ones(2, 3), _made_in_inference_mode):
        assert str(jitted(make())) == str(program(make()))


STATE_QUESTIONS = {
    "named": lambda: torch.is_autocast_enabled(device_type="cpu"),
    "of a device": lambda: (
        torch.get_autocast_dtype(device_type="cpu"),
        torch.is_autocast_enabled(),
    ),
    "too few": lambda: torch.get_autocast_dtype(),
    "too many": lambda: torch.get_default_dtype(3),
    "another type": lambda: torch.is_autocast_enabled(3),
    "no device": lambda: torch.get_autocast_dtype("toaster"),
}


@pytest.mark.parametrize("name", STATE_QUESTIONS)
def test_what_a_question_raises_reaches_the_handler(name):
    ask = STATE_QUESTIONS[name]

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            try:
                return x + 1, ask()
            except (TypeError, RuntimeError) as error:
                return x + 2, type(error), str(error).splitlines()[0]

    jitted, x = jit(fn), t(3)
    for _ in range(2):
        assert str(jitted(x)) == str(fn(x))
