"""The command line: what each command prints and returns, and what it says to a misspelt one."""

from __future__ import annotations

import json

import pytest

from graftjit import code_docs
from graftjit.cli import main
from graftjit.runtime import codes
from graftjit.runtime.session import SESSION


def test_codes(capsys):
    assert main(["codes"]) == 0
    assert capsys.readouterr().out.count("cure:") == len(codes.CODES)
    assert main(["codes", "gb104"]) == 0
    assert ".item()" in capsys.readouterr().out
    assert main(["codes", "GB1044"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["codes", "--markdown"]) == 0
    assert capsys.readouterr().out == code_docs.page()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmeo"], "did you mean 'demo'"),
        (["cache", "claer"], "did you mean 'clear'"),
        ([], "required"),
        (["explain"], "script"),
    ],
)
def test_misspelt(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["graftjit", *arguments])
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and words in capsys.readouterr().err


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "explain train.py" in out
    assert max(map(len, out.splitlines())) <= 110


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
    import subprocess

    subprocess.run(
        ["cc", "-x", "c", "-shared", "-o", str(target), "-"], input=source, text=True, check=True
    )


SCRIPT = """
import sys
import torch
import graftjit

@graftjit.jit
def scaled(x):
    y = torch.sin(x) * 2
    print("inside", len(sys.argv))
    return y + 1

print(round(scaled(torch.zeros(3)).sum().item(), 3), __name__)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_explain(status, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    saved = tmp_path / "report.json"
    SESSION.log.clear()
    arguments = ["explain", "--save", str(saved), str(script), str(status)]
    assert main(arguments) == (1 if status else 0)
    out = capsys.readouterr().out
    assert out.startswith("inside 2\n3.0 __main__\n")
    assert "script.py" in out and "print" in out
    report = json.loads(saved.read_text())
    assert report["break_count"] == 1 and report["breaks"][0]["line"] == 9


def test_explain_of_what_fails(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import graftjit\n1 / 0\n")
    assert main(["explain", str(script)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "none.py")]) == 2
    assert "no file" in capsys.readouterr().err
    assert main(["explain", "--save", "x.pdf", str(script)]) == 2
    assert ".html" in capsys.readouterr().err


def test_doctor(capsys):
    status = main(["doctor"])
    out = capsys.readouterr().out
    assert status in (0, 1)
    for word in ("torch", "Python", "OpenMP", "GPU"):
        assert word.lower() in out.lower()
    assert main(["doctor", "--json"]) == status
    assert json.loads(capsys.readouterr().out)
