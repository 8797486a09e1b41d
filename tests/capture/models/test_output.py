"""Warnings and log records in a frame: one graph, and the same text from the same lines."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import sys
import types
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graftjit import jit

from ..harness import t

FORM = logging.Formatter("%(levelname)s %(lineno)d %(funcName)s %(message)s")


def outcomes(fn: Any, *args: Any, calls: int = 3, forget: bool = True) -> list[Any]:
    """Result or exception and standard error of each call."""
    if forget:
        for module in list(sys.modules.values()):
            if isinstance(module, types.ModuleType):
                vars(module).pop("__warningregistry__", None)
    found = []
    for _ in range(calls):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            try:
                result = fn(*args)
                outcome = result.tolist() if isinstance(result, torch.Tensor) else str(result)
            except Exception as error:
                outcome = type(error).__name__, str(error)
        found.append((outcome, shown.getvalue()))
    return found


def same(fn: Any, *args: Any, breaks: int | None = 0) -> Any:
    """The report of a function that does the same jitted."""
    run = jit(fn)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        # pytest records warnings.
        warnings._showwarnmsg_impl = _IMPL  # type: ignore[attr-defined]
        wanted, got = outcomes(fn, *args), outcomes(run, *args)
    report = run.report()
    assert wanted == got, report
    assert breaks is None or report.break_count == breaks, report
    return report


def _writer() -> Any:
    """The library's function that writes a warning, in whose place pytest puts its own."""
    spec = importlib.util.spec_from_file_location("warnings_again", warnings.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again._showwarnmsg_impl


_IMPL = _writer()


def logger(name: str) -> logging.Logger:
    """A logger with a handler of the library's, for the standard error of the moment."""
    made = logging.getLogger(f"graftjit.tests.{name}")
    made.propagate = False
    made.setLevel(logging.INFO)
    return made


def once_here(x):
    warnings.warn("here")
    warnings.warn(
        "above",
        FutureWarning,
        stacklevel=2,
    )
    warnings.warn("caller", stacklevel=3)
    return x * 2


def test_warnings_are_given_at_their_lines():
    def f(x):
        y = once_here(x)
        y = once_here(y)
        warnings.warn(f"size {x.shape[0]}")
        return y + 1

    same(f, t(3))


def test_a_filter_that_raises():
    def f(x):
        x.add_(1)
        y = x * 2
        try:
            warnings.warn("no", DeprecationWarning)
        except DeprecationWarning:
            y = y + 10
        x.add_(y)
        return y

    plain, given = t(3), t(3)
    run = jit(f)
    for error in (False, True, False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if error else "ignore", DeprecationWarning)
            assert torch.equal(f(plain), run(given)) and torch.equal(plain, given)
    assert run.report().recompile_count == 1


@pytest.mark.parametrize("error", [False, True])
def test_a_warning_that_leaves(error):
    def f(x):
        y = x * 2
        warnings.warn("leaves", UserWarning)
        x.add_(1)
        return y

    plain, given = t(3), t(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if error else "ignore")
        assert outcomes(f, plain) == outcomes(jit(f), given)
    assert torch.equal(plain, given)


def test_a_graph_that_raises_after_a_warning():
    def f(x, i):
        y = x * 2
        warnings.warn("before")
        z = y.index_select(0, i)
        warnings.warn("after")
        return z

    for index in (1, 5):
        same(f, t(3), torch.tensor([index]))


def test_the_list_of_warnings_is_read_behind_them():
    def f(x, seen):
        warnings.warn("one")
        y = x + len(seen)
        warnings.warn("two")
        seen.append("mine")
        warnings.warn("three")
        return y * len(seen), [str(getattr(one, "message", one)) for one in seen]

    def run(g):
        found = []
        for recorded in (True, False, True, False):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                given = seen if recorded else []
                value, texts = g(t(2), given)
            found.append((value.tolist(), texts, [str(getattr(w, "message", w)) for w in seen]))
        return found

    assert run(f) == run(jit(f))


def test_a_handler_of_the_program():
    def f(x):
        warnings.warn("shown")
        return x * scale

    scale = 1.0
    seen = []

    def show(message, *args, **kwargs):
        nonlocal scale
        scale += 1
        seen.append(str(message))

    def run(g):
        nonlocal scale
        scale = 1.0
        seen.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            found = [g(t(2)).tolist()]
            warnings.showwarning = show
            found += [g(t(2)).tolist() for _ in range(2)]
        return found, list(seen)

    assert run(f) == run(jit(f))


class Own(UserWarning):
    def __init__(self, text):
        super().__init__(text.upper())


def test_a_warning_of_torchs_python():
    def f(x):
        y = F.softmax(x)
        return nn.Softmax()(y) + F.tanh(x)

    same(f, t(3))


@pytest.mark.parametrize("category", [Own, "text", int])
def test_other_categories(category):
    def f(x):
        warnings.warn("one", category)
        return x * 2

    same(f, t(2), breaks=None)


def test_log_records_at_their_lines():
    log = logger("lines")

    def inner(x, level):
        log.warning("%s of %d", "one", x.dim(), stacklevel=level)
        log.debug("never %s", x)
        return x * 2

    def f(x):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(FORM)
        log.handlers[:] = [handler]
        return g(x)

    def program(x):
        y = inner(inner(x, 1), 2)
        log.log(logging.INFO, "%s %r", 1.5, None)
        if log.isEnabledFor(logging.ERROR):
            y = y + 1
        return inner(y, 3)

    g = program
    wanted = outcomes(f, t(3))
    g = jit(program)
    assert wanted == outcomes(f, t(3))
    assert g.report().break_count == 0, g.report()


def test_levels_and_handlers_change():
    log = logger("levels")
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    def f(x):
        log.info("info")
        y = x * 2
        log.warning("warning")
        return y + len(lines)

    def run(g):
        lines.clear()
        found = []
        stream = io.StringIO()
        for handlers, level, disabled in (
            ([logging.NullHandler()], logging.INFO, False),
            ([logging.StreamHandler(stream)], logging.WARNING, False),
            ([logging.StreamHandler(stream)], logging.DEBUG, False),
            ([Keep()], logging.DEBUG, False),
            ([Keep()], logging.DEBUG, True),
            ([logging.StreamHandler(stream)], logging.INFO, False),
        ):
            log.handlers[:] = handlers
            log.setLevel(level)
            logging.disable(logging.CRITICAL if disabled else logging.NOTSET)
            found += [g(t(2)).tolist() for _ in range(2)]
        return found, list(lines), stream.getvalue()

    try:
        assert run(f) == run(jit(f))
    finally:
        logging.disable(logging.NOTSET)


def test_a_text_that_does_not_fit_its_arguments():
    log = logger("arguments")
    log.handlers[:] = [logging.NullHandler()]

    def f(x):
        log.warning("%d", "text")
        return x * 2

    same(f, t(2), breaks=None)


def test_adapters_and_loggers_by_name():
    log = logger("adapters")
    adapter = logging.LoggerAdapter(log, {"part": "encoder"})
    bare = logging.LoggerAdapter(log, None)

    class Marked(logging.LoggerAdapter):
        def process(self, msg, kwargs):
            return f"[{self.extra['part']}] {msg}", kwargs

    marked = Marked(log, {"part": "decoder"})

    def f(x):
        adapter.warning("size %d", x.shape[0])
        bare.info("bare")
        adapter.debug("never")
        marked.error("marked", stacklevel=2)
        logging.getLogger("graftjit.tests.adapters").info("by name", extra={"part": 3})
        return (
            x * 2,
            logging.getLogger(name="graftjit.tests.adapters") is log,
            logging.getLogger().name,
        )

    def run(g):
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(logging.Formatter("%(levelname)s %(lineno)d %(funcName)s %(message)s"))
        handler.formatter._style._fmt += " %(part)s"
        handler.formatter._style._defaults = {"part": "none"}
        log.handlers[:] = [handler]
        found = [str(g(t(2))) for _ in range(3)]
        return found, handler.stream.getvalue()

    jitted = jit(f)
    assert run(f) == run(jitted)
    assert jitted.report().break_count == 0, jitted.report()


def test_a_logger_that_does_not_exist_yet():
    def f(x, name):
        log = logging.getLogger(name)
        return x * 2, log.name, log is logging.getLogger(name)

    run = jit(f)
    for name in ("graftjit.tests.new.a", "graftjit.tests.new.a", "graftjit.tests.new.b"):
        assert str(run(t(2), name)) == str((t(2) * 2, name, True))


def test_blocks_of_filters():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=UserWarning)
            warnings.warn("silent")
            warnings.warn("shown", FutureWarning)
            with warnings.catch_warnings(record=False):
                warnings.filterwarnings("ignore", message="sh.*", append=False)
                warnings.filterwarnings("always", "loud", UserWarning)
                warnings.warn("shown", FutureWarning)
                warnings.warn("loud")
                y = x * 2
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    raise KeyError("left by an exception")
            except KeyError:
                warnings.warn("shown again", FutureWarning)
        warnings.warn("after")
        return y + 1

    same(f, t(3))


def test_filters_of_a_frame_that_raise_or_are_wrong():
    def f(x):
        before = list(warnings.filters)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("raised")
            except UserWarning as error:
                found.append(str(error))
            try:
                warnings.simplefilter("nothing")
            except (AssertionError, ValueError) as error:
                found.append(type(error).__name__)
            y = x * 2
        with warnings.catch_warnings(record=True) as kept:
            warnings.simplefilter("always")
            warnings.warn("kept")
        found += [str(one.message) for one in kept]
        return y, found, before == list(warnings.filters)

    same(f, t(3), breaks=None)


def test_a_break_in_a_block_of_filters():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x * 2
            z = y + float(y.sum() * torch.rand(()) * 0)
            warnings.warn("silent")
        warnings.warn("shown")
        return z

    same(f, t(3), breaks=None)


def test_a_warning_of_torch_in_a_block_of_filters():
    """Torch gives it once per process, at capture."""

    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x[[[0, 1], [1, 0]]]
        return y * 2

    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        run = jit(f)
        assert torch.equal(run(t(2, 2)), f(t(2, 2)))
    assert not kept


def test_an_index_that_torch_warns_about_each_time():
    def f(x):
        some = [slice(None)] * 2
        some[1] = slice(0, 2)
        y = x[some] * 2
        y[[slice(None), 0]] = 5
        return y + x[[[0, 1], [1, 2]]] + x[[0, 1]].sum()

    same(f, t(2, 3))
