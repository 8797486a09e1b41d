"""Output, warnings, logs, time, files, threads, lifetimes: each happens once, in its place."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import io
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit

from ..harness import agrees, t


@agrees()
def test_warnings_counted_once():
    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for i in range(3):
                warnings.warn("same place")
                x = x + 1
            for i in range(2):
                x = helper(x)
        return (
            x,
            [(str(w.message), w.filename == __file__) for w in seen],
            sorted(k[0] for k in globals().get("__warningregistry__", {}) if isinstance(k, tuple)),
        )

    def helper(x):
        warnings.warn("from helper", stacklevel=2)
        return x * 2

    return f, (t(3),)


@agrees()
def test_log_records_name_their_lines():
    logger = logging.getLogger("graftjit.tests.lines")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(
                (record.lineno, record.funcName, record.getMessage(), bool(record.exc_info))
            )

    logger.handlers[:] = [Keep()]

    def g(x):
        logger.warning("in g %s", x.sum())
        return x + 1

    def f(x):
        logger.info("a")
        x = g(x * 2)
        try:
            x.view(77)
        except RuntimeError:
            logger.exception("failed")
        [logger.debug("item %d", i) for i in range(2)]
        return x, list(lines)

    return f, (t(3),)


@agrees()
def test_system_exit_and_interrupts():
    def f(x, n):
        y = x + 1
        try:
            if n == 1:
                sys.exit(3)
            if n == 2:
                raise KeyboardInterrupt
            if n == 3:
                raise GeneratorExit
        except BaseException as error:
            y = y * 2
            return y, type(error).__name__, getattr(error, "code", None)
        finally:
            print("cleanup", n)
        return y

    return f, (t(3), 0), [lambda *, n=n: (t(3), n) for n in (1, 2, 3, 0)]


@agrees()
def test_threads_and_context_variables_inside():
    var = contextvars.ContextVar("var", default=1)
    local = threading.local()

    def f(x):
        out = []

        def work(v):
            out.append(v * 2 + var.get())

        token = var.set(5)
        th = threading.Thread(target=work, args=(x,))
        th.start()
        th.join()
        y = x * var.get()
        var.reset(token)
        local.n = getattr(local, "n", 0) + 1
        lock = threading.Lock()
        with lock:
            y = y + var.get()
        ctx = contextvars.copy_context()
        return y, out, local.n, ctx.run(lambda: var.get())

    return f, (t(3),)


@agrees()
def test_output_that_is_redirected_between_calls():
    sink = io.StringIO()
    real = sys.stdout

    class Both:
        def write(self, text):
            sink.write("!" + text)

        def flush(self):
            pass

    def f(x):
        print("a", x.sum())
        print("b", file=sink)
        print(f"{x[0]:.2f}", x.shape, end="\n", sep="-")
        sys.stderr.write("")
        return x + 1, sink.getvalue()

    return (
        f,
        (t(3),),
        [lambda: setattr(sys, "stdout", Both()), lambda: setattr(sys, "stdout", real)],
    )


@agrees()
def test_lifetimes_around_breaks():
    seen = []

    class Token:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            seen.append(self.n)

    def f(x):
        a = Token(1)
        r = weakref.ref(a)
        weakref.finalize(a, seen.append, "final")
        y = x + 1
        print(r() is a)
        del a
        gc.collect()
        return y, r() is None, list(seen)

    return f, (t(3),)


@agrees()
def test_warnings_of_torch_come_each_time():
    def g(x):
        return F.softmax(x), F.mse_loss(x, x[:1]), nn.Softmax()(x)

    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = g(x)
        return y, [
            (str(w.message)[:30], w.category.__name__, w.filename == __file__, w.lineno)
            for w in seen
        ]

    return f, (t(2, 3),)


@agrees()
def test_warnings_of_torch_as_errors():
    def f(x):
        try:
            return F.softmax(x)
        except UserWarning as error:
            return x, str(error)[:20]

    def strict():
        warnings.simplefilter("error")

    def usual():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")

    return f, (t(2, 3),), [strict, usual]


@agrees()
def test_warnings_of_python_come_each_time():
    def f(x, n):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = g(x, n)
        return y, [(w.category.__name__, w.filename == __file__, w.lineno) for w in seen]

    def g(x, n):
        return x + (~(n > 0)), float("nan") == n, int("12"), "a" if n is None else 2

    return f, (t(3), 1)


@agrees()
def test_output_comes_once_and_in_order():
    def note(text, x):
        print("note", text)
        sys.stdout.write(f"wrote {tuple(x.shape)}\n")
        return x * 2

    def f(x):
        print("first")
        x = note("a", x + 1)
        for i in range(3):
            print(i, end=",")
            x = x + i
        print()
        y = [note(str(i), x) for i in range(2)]
        print("last", *[tuple(v.shape) for v in y], sep="|", flush=True)
        return y, x

    return f, (t(3),), [lambda: (t(4),), lambda: (t(3).double(),), lambda: (t(3),)]


@agrees()
def test_logging_inside():
    logger = logging.getLogger("graftjit.tests.world")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, record.getMessage(), record.funcName))

    logger.handlers[:] = [Keep()]

    def inner(x):
        logger.warning("inner %s", tuple(x.shape))
        return x + 1

    def f(x):
        logger.info("start %d", x.dim())
        logger.debug("never")
        y = inner(x * 2)
        if logger.isEnabledFor(logging.INFO):
            logger.log(logging.INFO, "mean %.2f", float(y.mean()))
        for i in range(2):
            y = inner(y)
        return y, list(lines)

    return f, (t(3),), [
        lambda: logger.setLevel(logging.WARNING), lambda: (t(4),), lambda: logger.setLevel(logging.DEBUG),
    ]  # fmt: skip


@agrees()
def test_warnings_inside():
    def helper(x):
        warnings.warn("helper is old", DeprecationWarning, stacklevel=2)
        return x + 1

    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("first")
            x = helper(x * 2)
            for i in range(2):
                warnings.warn(f"loop {i}", RuntimeWarning)
                x = x + i
        return x, [
            (str(w.message), w.category.__name__, w.lineno - f.__code__.co_firstlineno)
            for w in seen
        ]

    return f, (t(3),), [lambda: (t(4),)]


def test_a_deprecated_function_of_torch_warns_at_its_callers_line_alone():
    def f(x):
        return x + torch.is_autocast_cpu_enabled()

    emitted = []
    for run in (f, jit(f)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = [run(t(3)) for _ in range(3)]
        emitted.append([(w.category, str(w.message), w.filename, w.lineno) for w in seen])
        assert torch.equal(found[-1], f(t(3)))
    assert emitted[0] == emitted[1] and len(emitted[0]) == 3


@agrees()
def test_warnings_as_errors():
    def f(x):
        y = x + 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.warn("no", UserWarning)
                y = y * 100
        except UserWarning as error:
            return y * 2, str(error)
        return y

    return f, (t(3),)


@agrees()
def test_time_moves_on():
    ticks = []

    def f(x):
        a = time.time()
        b = time.perf_counter()
        y = x * 2
        time.sleep(0.001)
        c = time.perf_counter()
        ticks.append(c - b >= 0.001)
        return y + 1, time.time() >= a, len(ticks), all(ticks), time.monotonic_ns() > 0

    return f, (t(3),), [lambda: (t(4),), lambda: None]


@agrees()
def test_files_are_written_and_read():
    folder = os.path.join(tempfile.gettempdir(), f"graftjit-tests-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    path = os.path.join(folder, "log.txt")

    def f(x):
        y = x + 1
        with open(path, "a") as out:
            out.write(f"{tuple(y.shape)}\n")
            z = y * 2
            print("more", file=out)
        with open(path) as back:
            lines = back.readlines()
        for line in lines:
            z = z + len(line)
        return z, lines, os.path.exists(path), os.path.basename(path), len(os.listdir(folder))

    return f, (t(3),), [lambda: (t(4),), lambda: os.remove(path)]


@agrees()
def test_environment_is_read_each_time():
    os.environ.pop("GRAFTJIT_TESTS_WORLD", None)

    def f(x):
        if os.environ.get("GRAFTJIT_TESTS_WORLD") == "1":
            return x + 1
        return x * 2 + len(os.getcwd()) * 0, os.getpid() == 0

    return f, (t(3),), [
        lambda: os.environ.__setitem__("GRAFTJIT_TESTS_WORLD", "1"),
        lambda: os.environ.__setitem__("GRAFTJIT_TESTS_WORLD", "2"),
        lambda: os.environ.pop("GRAFTJIT_TESTS_WORLD") and None,
    ]  # fmt: skip


@agrees()
def test_output_before_an_exception():
    def f(x, n):
        y = x * 2
        print("before", n)
        if n == 1:
            raise ValueError(f"n is {n}")
        try:
            print("inside")
            if n == 2:
                y.view(77)
        finally:
            print("finally")
        sys.stdout.write("after\n")
        return y + 1

    return f, (t(3), 0), [lambda: (t(3), 1), lambda: (t(3), 2), lambda: (t(3), 0)]


@agrees()
def test_output_that_goes_elsewhere():
    import io

    def f(x):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            print("hidden")
            y = x + 1
            print(tuple(y.shape))
        print("seen", repr(out.getvalue()), file=sys.stdout)
        return y * 2, out.getvalue()

    return f, (t(3),), [lambda: (t(4),)]


ONCE = """
import warnings
import torch
from graftjit import jit

@jit
def f(x):
    y = x + 1
    return y.T

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for size in (4, 4, 5):
        f(torch.ones(2, 3, size))
lines = [(w.lineno, w.filename.endswith("once.py")) for w in seen]
assert lines == [(9, True)], lines
assert not f.report().break_count
"""


def test_what_torch_warns_about_once_names_the_users_line(tmp_path):
    (tmp_path / "once.py").write_text(ONCE)
    subprocess.run([sys.executable, "once.py"], cwd=tmp_path, check=True)
