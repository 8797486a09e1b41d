"""A program that the command line runs is run as Python itself runs it: compared in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graftjit.cli import run_script as scripts
from graftjit.runtime.errors import UserError

# Runs what its words say by `scripts`, as the command line does; torch is imported by neither side.
_OURS = """
import sys
sys.orig_argv = sys.argv = ["-m", *sys.argv[1:]]
from graftjit.cli import run_script as scripts
kind, name, *words = sys.argv[1:]
program = (scripts.module if kind == "-m" else scripts.script)(name, words)
sys.exit(scripts.run(program)[0])
"""

PROGRAMS = {
    "the world": """
        import sys, pickle, os
        class Thing: pass
        print(sys.argv, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), __name__, __file__)
        print(sorted(globals()), __spec__, __package__, type(__loader__).__name__, __builtins__)
        print(type(pickle.loads(pickle.dumps(Thing()))), sys.modules["__main__"].Thing is Thing)
        import beside
        print(beside.VALUE)
    """,
    "a status": "import sys; print('x'); sys.exit(7)",
    "no status": "import sys; sys.exit()",
    "a text": "import sys; sys.exit('over and out')",
    "a large status": "import sys; sys.exit(300)",
    "a failure": """
        def inner(n):
            return 1 / n
        def outer():
            try:
                inner(0)
            except ZeroDivisionError as error:
                raise KeyError("meant") from error
        outer()
    """,
    "a failure without frames": "def f(:\n    pass",
    "an encoding": "# coding: latin-1\nprint(ascii('\xe9'))",
    "a hook": """
        import sys
        def told(kind, value, trace):
            print("told", kind.__name__, value, trace.tb_frame.f_code.co_name)
        sys.excepthook = told
        raise ValueError("mine")
    """,
    "threads": """
        import threading, time
        def late():
            time.sleep(0.05)
            print("late")
        threading.Thread(target=late).start()
        print("early")
    """,
    "an interrupt": "raise KeyboardInterrupt",
    "no names from the one who runs it": "print('scripts' in dir(), 'program' in dir())",
}


def _run(*words: str, cwd: Path) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=environment, check=False, timeout=120
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """Our way to run a program, without the import of torch: a package that has the files it needs and no more."""
    root = tmp_path_factory.mktemp("ours")
    package = root / "graftjit"
    here = Path(scripts.__file__).parent
    for part in ("", "cli", "ir", "runtime"):
        (package / part).mkdir(parents=True, exist_ok=True)
        (package / part / "__init__.py").write_text("")
    rooms = {
        "cli": ("run_script", "parser"),
        "ir": ("dataclass", "location"),
        "runtime": ("errors",),
    }
    for part, names in rooms.items():
        for name in names:
            origin = sys.modules[f"graftjit.{part}.{name}"].__file__
            (package / part / f"{name}.py").write_text(Path(origin).read_text())
    assert here
    (root / "ours.py").write_text(_OURS)
    return root / "ours.py"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script(name, runner, tmp_path):
    file = tmp_path / "program.py"
    encoding = "latin-1" if "encoding" in name else "utf-8"
    file.write_text(textwrap.dedent(PROGRAMS[name]), encoding=encoding)
    (tmp_path / "beside.py").write_text("VALUE = 3")
    plain = _run("program.py", "a", "--b", cwd=tmp_path)
    ours = _run(str(runner), "script", "program.py", "a", "--b", cwd=tmp_path)
    assert ours[:2] == (130 if "interrupt" in name else plain[0], plain[1])
    assert ours[2] == plain[2]


@pytest.mark.parametrize("name", ["package", "package.part"])
def test_a_module(name, runner, tmp_path):
    text = "import sys\nfrom . import VALUE\nprint(sys.argv, __package__, __spec__.name, VALUE, sys.path[0])\n"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("VALUE = 5")
    for part in ("__main__", "part"):
        (tmp_path / "package" / f"{part}.py").write_text(text)
    plain = _run("-m", name, "a", cwd=tmp_path)
    assert _run(str(runner), "-m", name, "a", cwd=tmp_path) == plain and plain[0] == 0


def test_a_folder(runner, tmp_path):
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text("import sys\nprint(sys.argv, sys.path[0])\n")
    plain = _run("program", "a", cwd=tmp_path)
    assert _run(str(runner), "script", "program", "a", cwd=tmp_path) == plain and plain[0] == 0


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UserError, match=r"there is no file trian.py; did you mean 'train.py'"):
        scripts.script("trian.py", [])
    with pytest.raises(UserError, match="there is no folder"):
        scripts.script("none/train.py", [])
    with pytest.raises(UserError, match="did you mean 'train'"):
        scripts.module("trian", [])
    with pytest.raises(UserError, match="has no __main__"):
        scripts.script(str(tmp_path), [])


def test_the_world_is_put_back(tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys; sys.argv.append('more'); sys.path.insert(0, 'x')"
    )
    before = sys.argv[:], sys.path[:], sys.modules["__main__"]
    status, names = scripts.run(scripts.script(str(tmp_path / "program.py"), ["a"]))
    assert status == 0 and "sys" in names
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
