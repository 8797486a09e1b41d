"""A fault of graftjit itself, anywhere between a miss and an entry: plain Python, an event, one warning."""

from __future__ import annotations

import pytest
import torch

from graftjit import jit
from graftjit.capture import emit, torchcalls
from graftjit.codegen import backend
from graftjit.runtime import held
from graftjit.runtime.session import SESSION

PLACES = [
    (torchcalls, "to_argument"),
    (emit.Emitter, "push"),
    (backend, "compile_graph"),
    (held, "hold_weakly"),
]


def fault_in(name):
    def fault(*args, **kwargs):
        raise LookupError(f"a fault of ours in {name}")

    return fault


@pytest.mark.parametrize(
    ("place", "name"), PLACES, ids=lambda value: getattr(value, "__name__", value)
)
def test_plain_python_and_told(place, name, monkeypatch, caplog):
    monkeypatch.setattr(place, name, fault_in(name))
    monkeypatch.setattr(SESSION, "_warned", set())
    seen = []

    def f(x, log):
        log.append(len(log))
        return x * 2

    run = jit(f)
    with SESSION.override(check=False):
        torch.testing.assert_close(run(torch.ones(3), seen), torch.full((3,), 2.0))
        (warning,) = [r.getMessage() for r in caplog.records if "WN607" in r.getMessage()]
        for words in (
            "f: an internal fault",
            f"a fault of ours in {name}",
            "is right",
            "report it",
        ):
            assert words in warning
        torch.testing.assert_close(run(torch.ones(3), seen), torch.full((3,), 2.0))
    assert seen == [0, 1]
    assert [note.code for note in run.report().notes] == ["PL205"]


@pytest.mark.parametrize(
    ("place", "name"), PLACES, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_failure_under_check(place, name, monkeypatch):
    monkeypatch.setattr(place, name, fault_in(name))
    with pytest.raises(LookupError, match="a fault of ours"):
        jit(lambda x, log: (x * 2, log.append(1)))(torch.ones(3), [])
