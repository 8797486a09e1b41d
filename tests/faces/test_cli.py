"""The command line: what each command prints and returns, and what it says to a misspelt one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from graftjit.cli import cache, code_docs
from graftjit.cli.main import main
from graftjit.runtime import codes
from graftjit.runtime.process.session import SESSION


def test_codes(capsys):
    assert main(["codes"]) == 0
    assert capsys.readouterr().out.count("cure:") == len(codes.CODES)
    assert main(["codes", "gb104"]) == 0
    assert ".item()" in capsys.readouterr().out
    assert main(["codes", "GB1044"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["codes", "--markdown"]) == 0
    assert capsys.readouterr().out == code_docs.page()


def test_codes_have_colour_as_reports_have(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["codes", "GB104"]) == 0
    coloured = capsys.readouterr().out
    assert "\x1b[1mGB104\x1b[0m  " in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["codes", "GB104"]) == 0
    plain = capsys.readouterr().out
    assert plain == coloured.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")


def test_codes_by_family_word_and_form(capsys):
    assert main(["codes", "rc"]) == 0
    out = capsys.readouterr().out
    assert "Recompiles" in out and "RC401" in out and "GB1" not in out
    assert main(["codes", "numpy"]) == 0
    out = capsys.readouterr().out
    assert "GB123" in out and "GB105" not in out and max(map(len, out.splitlines())) <= 100
    assert main(["codes", "--json", "GB104", "FB"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["code"] == "GB104" and {"why", "cost", "cure", "family"} <= set(rows[0])
    assert {row["code"][:2] for row in rows} == {"GB", "FB"}
    assert main(["codes", "numpyy"]) == 2 and "did you mean 'numpy'" in capsys.readouterr().err
    assert main(["codes", "GB109"]) == 2 and "earlier version" in capsys.readouterr().err
    assert "\033" not in out  # no terminal


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmeo"], "did you mean 'demo'"),
        (["cache", "claer"], "did you mean 'clear'"),
        ([], "required"),
        (["explain"], "SCRIPT"),
        (["explain", "--hmtl", "r.html", "x.py"], "did you mean '--html'"),
        (["explain", "--max-breaks", "few", "x.py"], "whole number"),
        (["explain", "x.py", "-m", "y"], "no file x.py"),
        (["codes", "--markdwon"], "did you mean '--markdown'"),
        (["cache", "--jsno"], "did you mean '--json'"),
    ],
)
def test_misspelt(arguments, words, capsys):
    assert status_of(arguments) == 2 and words in capsys.readouterr().err


def status_of(arguments):
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "explain train.py" in out
    assert max(map(len, out.splitlines())) <= 110


@pytest.mark.parametrize(
    "command", ["demo", "explain", "bench", "trace", "doctor", "cache", "codes"]
)
def test_each_command_has_help_with_examples_and_status(command, capsys):
    assert status_of([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert (
        f"python -m graftjit {command}" in out
        and "examples:" in out
        and "exit status: 0" in out.replace("that of the script", "0")
    )
    assert max(map(len, out.splitlines())) <= 110


def test_quick_without_torch():
    """Help, codes and mistakes are answered by `python -m graftjit` before torch is imported."""
    say = "import sys, atexit, runpy; atexit.register(lambda: print('torch' in sys.modules))"
    for words in (
        ["codes", "GB104"],
        ["--help"],
        ["explain", "--help"],
        ["--version"],
        ["nothing"],
    ):
        run = f"{say}; sys.argv = ['-m', *{words}]; sys.orig_argv = ['python', '-m', 'graftjit', *{words}]"
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"{run}; import graftjit"], capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.endswith("False\n"), done.stdout + done.stderr
        assert done.returncode == (2 if words == ["nothing"] else 0)


def test_the_reader_of_a_pipe_may_go(tmp_path):
    line = f"{sys.executable} -P -m graftjit codes | head -2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.endswith("0\n")


def test_cache_asks_on_a_terminal(tmp_path, capsys, monkeypatch):
    with SESSION.override(cache_dir=tmp_path):
        SESSION.store.load("int f(void) { return 7; }", ["f"], _compile)
        monkeypatch.setattr(cache, "sure", lambda question: "1 libraries" not in question)
        assert main(["cache", "clear"]) == 1 and "nothing was removed" in capsys.readouterr().out
        assert SESSION.store.stats().files == 1
        assert main(["cache", "clear", "--yes"]) == 0 and SESSION.store.stats().files == 0


def test_a_bundle_replaces_bundles_only(tmp_path, capsys):
    with SESSION.override(cache_dir=tmp_path / "kernels"):
        file = tmp_path / "kernels.bundle"
        assert main(["cache", "save", str(file)]) == main(["cache", "save", str(file)]) == 0
        file.write_text("a letter")
        assert main(["cache", "save", str(file)]) == 2 and file.read_text() == "a letter"
        assert main(["cache", "load", str(file)]) == 2 and main(["cache", "save"]) == 2


def test_cache(tmp_path, capsys):
    with SESSION.override(cache_dir=tmp_path):
        SESSION.store.load(
            "int f(void) { return 7; }",
            ["f"],
            lambda source, target: _compile(source, target),
        )
        assert main(["cache", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["files"] == 1 and str(tmp_path) in facts["folder"]
        assert main(["cache"]) == 0 and "kernels:  1" in capsys.readouterr().out
        assert main(["cache", "clear"]) == 0 and "removed:  1" in capsys.readouterr().out
        assert SESSION.store.stats().files == 0


def _compile(source, target):
    subprocess.run(
        ["cc", "-x", "c", "-shared", "-o", str(target), "-"], input=source, text=True, check=True
    )


def test_doctor(capsys):
    status = main(["doctor"])
    out = capsys.readouterr().out
    assert status in (0, 1)
    for word in ("torch", "Python", "OpenMP", "GPU"):
        assert word.lower() in out.lower()
    assert main(["doctor", "--json"]) == status
    assert json.loads(capsys.readouterr().out)
