"""The demo agrees with plain Python, fits a terminal, and says what it lacks."""

from __future__ import annotations

import sys

import pytest

from graftjit.cli import demo


def test_it_runs_and_agrees(capsys, monkeypatch):
    monkeypatch.setattr(demo, "_ROUNDS", 2)
    train = demo.train
    monkeypatch.setattr(demo, "train", lambda model, digits: train(model, digits, epochs=1))
    status = demo.show(100)
    out = capsys.readouterr().out
    assert status == 0, out
    assert max(map(len, out.splitlines())) <= 100
    for words in ("eager", "@jit", "compile(model)", "seen at once", "best.tolist()", "GB104"):
        assert words in out
    assert out.rstrip().endswith("Everything agrees with plain Python.")


def test_a_difference_is_an_error(capsys, monkeypatch):
    rows = [demo._Row("eager", 1.0, 9, 0.0, 1.0, 1.0), demo._Row("@jit", 1.0, 9, 0.5, 1.0, 1.0)]
    monkeypatch.setattr(demo, "compare", lambda model, digits: rows)
    monkeypatch.setattr(demo, "train", lambda model, digits: 0.0)
    assert demo.show(100) == 1
    assert "differs" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["sklearn", "rich"])
def test_missing_extras(missing, capsys, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert demo.show() == 1
    assert "graftjit[demo]" in capsys.readouterr().err
