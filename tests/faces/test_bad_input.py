"""What is handed over wrongly, or missing on the machine: a clear error or a stated fallback, through the faces.

The parts have tests of their own (options, kernel store, doctor); here each case goes the way of a user:
`@jit`, `compile`, `explain`, or a fresh process.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import subprocess
import sys
import types

import pytest
import torch

import graftjit
from graftjit import JitConfig, compile, explain, jit
from graftjit.runtime.errors import BreakError, OptionError, UserError
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process.session import SESSION


class Nothing:
    """Neither callable itself nor are its instances."""


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        return torch.sigmoid(x * self.weight)


class NoForward(torch.nn.Module):
    pass


def chain(x, y):
    return torch.tanh(x) * y + torch.exp(-x)


# -- what cannot be compiled ---------------------------------------------------------------------------------
REFUSED = [
    (jit, 3, "3 (int)"),
    (jit, "name", "'name' (str)"),
    (jit, [len], "an object of type list"),
    (jit, torch.ones(2), "an object of type Tensor"),
    (jit, torch, "an object of type module"),
    (jit, Nothing(), "an object of type Nothing"),
    (jit, Nothing, "a class with __call__"),
    (jit, int, "class int has nothing to compile"),
    (jit, NoForward, "forward or construct"),
    (jit, property(lambda self: 1), "put @jit below @property"),
    (jit, staticmethod(3), "3 (int)"),
    (compile, 3, "not a torch.nn.Module"),
    (compile, chain, "graftjit.jit"),
    (compile, None, "not a torch.nn.Module"),
    (compile, Scale, "make an instance first"),
    (explain, 3, "3 (int)"),
    (explain, Nothing(), "an object of type Nothing"),
    (graftjit.report, chain, "graftjit.explain"),
    (graftjit.reset, Nothing(), "an object of type Nothing"),
    (graftjit.ms_function, 3, "3 (int)"),
]


@pytest.mark.parametrize(("face", "wrong", "words"), REFUSED)
def test_refused(face, wrong, words):
    with pytest.raises(UserError) as caught:
        face(wrong)
    text = str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert "[ER501]" in text and "expected:" in text and "found:" in text
    assert words in text and "0x" not in text


@pytest.mark.parametrize("face", [jit, compile])
def test_a_module_without_forward_fails_as_torch_says(face):
    with pytest.raises(NotImplementedError) as expected:
        NoForward()(torch.ones(2))
    with pytest.raises(NotImplementedError) as found:
        face(NoForward())(torch.ones(2))
    assert str(found.value) == str(expected.value)


BAD_OPTIONS = [
    (lambda: JitConfig(jit_level="o1"), "did you mean 'O1'?"),
    (lambda: JitConfig(jit_level="O3"), "'O0' or 'O1' or 'O2'"),
    (lambda: JitConfig(jit_level=1), "'O0' or 'O1' or 'O2'"),
    (lambda: JitConfig(jit_levels="O1"), "did you mean 'jit_level'?"),
    (lambda: JitConfig(exec_mode="sinks"), "did you mean 'sink'?"),
    (lambda: JitConfig(jit_syntax_level="strict"), "did you mean 'STRICT'?"),
    (lambda: JitConfig(dynamic="yes"), "None, True or False"),
    (lambda: JitConfig(recompile_limit=0), "at least 1"),
    (lambda: JitConfig().replace(jit_level="fast"), "'O0' or 'O1' or 'O2'"),
    (lambda: jit(chain, dynamic=1), "None, True or False"),
    (lambda: jit(chain, fullgraph="yes"), "True or False"),
    (lambda: jit(chain, config={"jit_level": "O0"}), "graftjit.JitConfig(...)"),
    (lambda: compile(Scale(), fullgraph=1), "True or False"),
    (lambda: compile(Scale(), config="O0"), "graftjit.JitConfig(...)"),
    (lambda: graftjit.set_context(mode="GRAPH"), "GRAPH_MODE"),
    (lambda: graftjit.set_context(moed=0), "did you mean 'mode'?"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD_OPTIONS)))
def test_bad_options(number):
    call, words = BAD_OPTIONS[number]
    with pytest.raises((OptionError, UserError)) as caught:
        call()
    assert words in str(caught.value) and "0x" not in str(caught.value)


# -- what is called wrongly ----------------------------------------------------------------------------------
def two(a, /, b, *, c=1):
    return a + b + c


def named(a, b=2, *rest, c, d=4, **others):
    return a + b + c + d


WRONG_CALLS = [
    (two, (), {}),
    (two, (1,), {}),
    (two, (1, 2, 3), {}),
    (two, (1, 2), {"d": 3}),
    (two, (1, 2), {"cc": 3, "d": 3}),
    (two, (1, 2), {"a": 3}),
    (two, (1, 2), {"b": 3}),
    (two, (), {"a": 1, "b": 2}),
    (named, (), {}),
    (named, (1,), {}),
    (named, (1, 2), {"a": 3, "c": 1}),
    (named, (1, 2), {"b": 3, "c": 1}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), WRONG_CALLS)
def test_wrong_arguments_say_what_python_says(function, args, kwargs):
    with pytest.raises(TypeError) as expected:
        function(*args, **kwargs)
    jitted = jit(function)
    for _ in range(2):
        with pytest.raises(TypeError) as found:
            jitted(*args, **kwargs)
        assert str(found.value) == str(expected.value)
    assert jitted(1, b=2, c=3) == function(1, b=2, c=3)


@pytest.mark.parametrize("face", [jit, compile])
def test_wrong_arguments_of_a_module(face):
    x, model = torch.ones(3), Scale()
    for args, kwargs in (((), {}), ((x, x), {}), ((x,), {"y": x})):
        with pytest.raises(TypeError) as expected:
            model(*args, **kwargs)
        with pytest.raises(TypeError) as found:
            face(model)(*args, **kwargs)
        assert str(found.value) == str(expected.value)


def test_wrong_arguments_of_a_method():
    class Thing:
        @jit
        def method(self, x):
            return x + 1

        def plain(self, x):
            return x + 1

    for args in ((), (1, 2)):
        with pytest.raises(TypeError) as expected:
            Thing().plain(*args)
        with pytest.raises(TypeError) as found:
            Thing().method(*args)
        assert str(found.value) == str(expected.value).replace("plain", "method")


def test_operators_fail_as_in_plain_python():
    def product(x, y):
        return torch.relu(x @ y)

    jitted, x = jit(product), torch.ones(2, 3)
    for args in ((x, x), (x, 3), (x, None)):
        with pytest.raises(Exception) as expected:
            product(*args)
        with pytest.raises(type(expected.value)) as found:
            jitted(*args)
        assert str(found.value) == str(expected.value)
    assert torch.equal(jitted(x, x.T), product(x, x.T))


# -- callables of every kind ---------------------------------------------------------------------------------
async def waits(x):
    return torch.sin(x) + 1


def yields(x):
    for i in range(3):
        yield torch.sin(x) * i


async def yields_later(x):
    for i in range(3):
        yield x * i


@types.coroutine
def old_coroutine(x):
    if x is None:
        yield
    return x + 1


SUSPENDED = [
    (waits, inspect.iscoroutinefunction),
    (yields, inspect.isgeneratorfunction),
    (yields_later, inspect.isasyncgenfunction),
    (old_coroutine, inspect.isgeneratorfunction),
]


def drain(made):
    if inspect.isasyncgen(made):

        async def collect():
            return [value async for value in made]

        return asyncio.run(collect())
    if inspect.isgenerator(made) and made.gi_code is not old_coroutine.__code__:
        return list(made)

    async def wait():
        return [await made]

    return asyncio.run(wait())


@pytest.mark.parametrize(("function", "question"), SUSPENDED)
def test_generators_and_coroutines_run_as_written(function, question):
    jitted, x = jit(function), torch.randn(3)
    assert question(function) and question(jitted)
    expected = drain(function(x))
    for _ in range(2):
        made = jitted(x)
        assert type(made) in (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
        for found, wanted in zip(drain(made), expected, strict=True):
            assert torch.equal(found, wanted)
    (note,) = [n for n in jitted.report().notes if n.code == "PL201"]
    assert note.file == __file__ and note.line == function.__code__.co_firstlineno
    with pytest.raises(BreakError, match="PL201"):
        jit(function, fullgraph=True)(x)


@pytest.mark.parametrize("function", [torch.sin, abs, torch.nn.functional.gelu])
def test_functions_written_in_c(function):
    x = torch.randn(5, 3)
    jitted = jit(function)
    for _ in range(2):
        torch.testing.assert_close(jitted(x), function(x))
    assert jitted.report().graph_count == 1
    assert torch.equal(jit(x.add)(x), x + x)
    assert jit(len)(x) == 5 and jit(max)(3, 4) == 4


def test_static_and_class_methods_in_either_order():
    class Base:
        factor = 2

        @jit
        @staticmethod
        def outer_static(x):
            return x * 2

        @staticmethod
        @jit
        def inner_static(x):
            return x * 2

        @jit
        @classmethod
        def outer_class(cls, x):
            return x * cls.factor, cls

        @classmethod
        @jit
        def inner_class(cls, x):
            return x * cls.factor, cls

        @property
        @jit
        def double(self):
            return self.x * self.factor

    class Derived(Base):
        factor = 3

    x = torch.randn(4)
    for owner in (Base, Derived, Base(), Derived()):
        cls = owner if isinstance(owner, type) else type(owner)
        for name in ("outer_static", "inner_static"):
            assert torch.equal(getattr(owner, name)(x), x * 2)
        for name in ("outer_class", "inner_class"):
            result, seen = getattr(owner, name)(x)
            assert torch.equal(result, x * cls.factor) and seen is cls
    made = Derived()
    made.x = x
    assert torch.equal(made.double, x * 3)


def test_a_module_class_and_a_callable_class():
    @jit
    class Jitted(Scale):
        pass

    class Adder:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, x):
            return torch.relu(x + self.amount)

    x = torch.randn(3)
    with torch.no_grad():
        model = Jitted()
        assert isinstance(model, Scale) and isinstance(Jitted, type)
        torch.testing.assert_close(model(x), Scale()(x))
    assert graftjit.report(model).graph_count == 1
    for call in (jit(Adder(2)), jit(Adder)(2)):
        assert torch.equal(call(x), torch.relu(x + 2))
    partial = jit(functools.partial(chain, y=x))
    torch.testing.assert_close(partial(x), chain(x, x))
    assert partial.report().graph_count == 1 and partial.__name__ == "chain"


def test_jit_of_what_is_jitted():
    jitted = jit(chain)
    assert jit(jitted) is jitted and jitted.__wrapped__ is chain
    other = jit(jitted, config=JitConfig(jit_level="O0"))
    assert other is not jitted and other.__wrapped__ is chain
    x = torch.randn(3)
    assert torch.equal(other(x, x), chain(x, x))
    assert jitted.report().graph_count == 0 and other.report().graph_count == 1

    def breaks(x):
        return x * hash(str(x.sum().item()))

    with pytest.raises(BreakError, match="GB104"):
        jit(jit(breaks), fullgraph=True)(x)


# -- what is missing on the machine --------------------------------------------------------------------------
@pytest.fixture
def described(caplog, monkeypatch):
    """Codes of warnings logged since; each is said once a process, so what was said before is forgotten."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(SESSION, "_warned", set())
    return lambda: [r.getMessage().split("[")[1][:5] for r in caplog.records if "graftjit [" in r.getMessage()]  # fmt: skip


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    with SESSION.override(cxx=None, cache_dir=tmp_path / "store"):
        assert device.find_compiler() is None
        yield tmp_path / "store"


def of_code(report, code):
    return [note for note in report.notes if note.code == code]


def test_without_a_compiler_programs_are_library_calls(no_compiler, described):
    x, y, model = torch.randn(4, 3), torch.randn(4, 3), Scale()
    jitted, compiled = jit(chain), compile(model)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(jitted(x, y), chain(x, y))
            assert torch.equal(compiled(x), model(x))
    for report in (jitted.report(), compiled.report()):
        assert report.graph_count == 1 and of_code(report, "FB302")
        assert "g++" in of_code(report, "FB302")[0].cure and not report.libraries
    assert described() == ["WN604"]
    assert not list(no_compiler.rglob("*.so"))


@pytest.mark.parametrize("kind", ["fails", "cannot be run", "writes nothing", "writes garbage"])
def test_a_compiler_that_does_not_work(kind, tmp_path, described):
    compiler = tmp_path / "broken-g++"
    lines = {
        "fails": "#!/bin/sh\ncat >/dev/null\necho 'error: no space in the shed' >&2\nexit 1\n",
        "cannot be run": "#!/nowhere/sh\n",
        "writes nothing": "#!/bin/sh\ncat >/dev/null\n",
        "writes garbage": '#!/bin/sh\ncat >/dev/null\nwhile [ "$1" != -o ]; do shift; done\necho no >"$2"\n',
    }
    compiler.write_text(lines[kind])
    compiler.chmod(0o755)
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with SESSION.override(cxx=str(compiler), cache_dir=tmp_path / "store", check=False):
        jitted = jit(chain)
        for _ in range(2):
            assert torch.equal(jitted(x, y), chain(x, y))
        report = jitted.report()
    assert len(of_code(report, "FB306")) == 1 and described() == ["WN606"]
    assert kind != "fails" or "rejected" in of_code(report, "FB306")[0].reason


def test_an_unwritable_cache_folder(tmp_path, described):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "kernels").write_text("a file in the folder's place")
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with SESSION.override(cache_dir=blocked):
        jitted = jit(chain)
        for _ in range(2):
            torch.testing.assert_close(jitted(x, y), chain(x, y))
        report = jitted.report()
    assert len(report.libraries) == 1 and described() == ["WN602"]
    assert str(blocked) in of_code(report, "FB308")[0].reason


DAMAGE = {
    "half written": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "text": lambda data: b"not a library",
    "one bit": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_kernel_is_built_again(damage, tmp_path, described):
    def text_of_its_own(x, y):
        return torch.tanh(x) * y + torch.exp(-x) * 2

    x, y = torch.randn(4, 3), torch.randn(4, 3)

    def run():
        """As a new process would: nothing is loaded yet from this store."""
        graftjit.reset()  # nor taken over from the function as it was jitted before
        with SESSION.override(cache_dir=tmp_path):
            jitted = jit(text_of_its_own)
            torch.testing.assert_close(jitted(x, y), text_of_its_own(x, y))
            return jitted.report()

    assert [kernel.cached for kernel in run().libraries] == [False]
    (path,) = tmp_path.rglob("*.so")
    good = path.read_bytes()
    path.unlink()  # what is loaded stays loaded
    path.write_bytes(DAMAGE[damage](good))
    again = run()
    assert [kernel.cached for kernel in again.libraries] == [False]
    assert len(of_code(again, "FB307")) == 1 and described() == []
    assert [kernel.cached for kernel in run().libraries] == [True]


# -- a process that cannot run graftjit ----------------------------------------------------------------------
def python(program, **environment):
    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True, text=True, check=False, env=environment, timeout=120,
    )  # fmt: skip


def test_an_unsupported_python():
    done = python(
        "import sys, torch\nsys.version_info = (3, 14, 0, 'final', 0)\n"
        "try:\n    import graftjit\nexcept ImportError as error:\n    print(error)"
    )
    assert "[ER507]" in done.stdout and "CPython 3.11, 3.12, 3.13" in done.stdout, done.stderr
    assert "cpython 3.14.0" in done.stdout and "python3.11 -m venv" in done.stdout


def test_a_missing_extension():
    done = python(
        "import sys\nsys.modules['graftjit.runtime._native'] = None\n"
        "try:\n    import graftjit\nexcept ImportError as error:\n    print(error)"
    )
    assert "[ER509]" in done.stdout and "build_ext --inplace" in done.stdout, done.stderr


def test_a_bad_environment_variable_stops_the_import_by_name(tmp_path):
    done = python("import graftjit", GRAFTJIT_THREADS="many")
    assert done.returncode == 1 and "GRAFTJIT_THREADS" in done.stderr
    assert "a whole number from 1 to 4096" in done.stderr
    file = tmp_path / "file"
    file.write_text("")
    done = python("import graftjit", GRAFTJIT_CACHE_DIR=str(file))
    assert done.returncode == 1 and "this is a file" in done.stderr


def test_a_fresh_process_without_compiler_or_cache(tmp_path):
    """Everything at once that may be missing on a machine: the result is right, and the log says what."""
    program = (
        "import torch, graftjit\n"
        "f = graftjit.jit(lambda x: torch.tanh(x) * 2)\n"
        "print(f(torch.zeros(3) + 1).tolist() == (torch.tanh(torch.ones(3)) * 2).tolist())\n"
    )
    home = tmp_path / "home"
    home.write_text("")
    done = python(program, PATH=str(tmp_path), CXX="", GRAFTJIT_CACHE_DIR="", HOME=str(home),
                  XDG_CACHE_HOME="", GRAFTJIT_CHECK="0")  # fmt: skip
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
    assert done.stderr.count("WN604") == 1 and "install g++" in done.stderr.lower()
