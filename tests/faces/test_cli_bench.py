"""`python -m graftjit bench` and `trace`: what is timed, what is said where it is not compared, and the exit status."""

from __future__ import annotations

import json

import pytest
import torch

from graftjit import jit
from graftjit.cli import bench as cli_bench
from graftjit.cli import recorded_calls as replays
from graftjit.cli.main import main
from graftjit.runtime.process.session import SESSION

SCRIPT = """
import sys
import torch
from graftjit import compile, jit

@jit
def inner(x):
    return x.sin()

@jit
def scaled(x, *more, n, **named):
    return inner(x) * n + sum(more) + named["shift"]

for size in (2, 3):
    scaled(torch.ones(size), 1, n=2, shift=0.5)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = compile(net)
with torch.no_grad():
    model(torch.ones(2, 4))

@jit
def train(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

train(torch.ones(2, 4))
print(sys.argv[1:])
"""


def test_each_combination_of_arguments_is_timed(tmp_path, capsys):
    script, saved = tmp_path / "script.py", tmp_path / "times.json"
    script.write_text(SCRIPT)
    assert main(["bench", "--json", str(saved), str(script), "--own"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("['--own']\n") and "speedup" in out
    rows = json.loads(saved.read_text())
    names = [row["name"] for row in rows]
    assert names.count("scaled") == 2 and {"Linear()", "train"} <= set(names)
    assert "inner" not in names  # it is part of the other
    wanted = {"f32[2], 1, n=2, shift=0.5", "f32[3], 1, n=2, shift=0.5"}
    assert wanted <= {row["signature"] for row in rows}
    for row in rows:
        assert row["plain"] > 0 and row["jitted"] > 0
        if row["name"] == "train":
            assert row["error"] is None and "writes into tensors" in row["said"]
        else:
            assert row["error"] < 1e-6 and not row["said"]


def test_plain_is_plain_and_arguments_are_those_of_before_the_call():
    @jit
    def doubled(x):
        return x.mul_(2)

    with replays.recording() as found:
        doubled(torch.ones(2))
    (call,) = found.calls
    assert float(call.args[0][0]) == 1.0  # a copy of what it was
    (state,) = doubled._unit.states
    before = [entry.hits for entry in state.entries]
    with replays._jit_is(False):
        call(call.face)
    assert [entry.hits for entry in state.entries] == before and not state.disabled
    result = replays.measure(call, peer=False, rounds=1)
    assert "writes into tensors" in result.said and result.error is None


def test_calls_that_cannot_be_made_again_and_wrong_results():
    once = [1]

    @jit
    def fails(x):
        once.pop()
        return x + 1

    @jit
    def right(x):
        return x.cos() + 1

    with replays.recording() as found:
        fails(torch.ones(2))
        right(torch.ones(2))
    first, second = found.calls
    assert "raises IndexError" in replays.measure(first, False, 1).said
    assert replays.measure(second, False, 1).error < 1e-6
    assert replays._error(torch.ones(2), torch.tensor([1.0, 1.5])) == 0.5
    assert replays._error(torch.ones(2), torch.ones(3)) == float("inf")
    assert replays._error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    assert list(cli_bench.table([replays.measure(second, False, 1)], False))


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("print(1)", 1, "nothing was jitted"),
        ("import sys; sys.exit(6)", 6, "nothing was timed"),
    ],
)
def test_status(text, status, told, tmp_path, capsys):
    (tmp_path / "script.py").write_text(text)
    assert main(["bench", str(tmp_path / "script.py")]) == status
    assert told in capsys.readouterr().err
    assert main(["bench", str(tmp_path / "scirpt.py")]) == 2


def test_the_report_of_a_trace(tmp_path, capsys):
    with SESSION.override(trace=tmp_path):
        jit(lambda x: print("shown") or x.sin())(torch.ones(3))
    (file,) = tmp_path.glob("*.jsonl")
    capsys.readouterr()
    assert main(["trace", "--save", str(tmp_path / "r.html"), str(file)]) == 0
    assert "GB103" in capsys.readouterr().out and (tmp_path / "r.html").exists()
    assert main(["trace", str(tmp_path / "none.jsonl")]) == 2
    (tmp_path / "text.jsonl").write_text("no trace")
    assert main(["trace", str(tmp_path / "text.jsonl")]) == 2


def test_what_is_slower_than_plain_python_is_told():
    def said(jitted):
        result = replays.Result("f", "f32[2]", plain=1.0, jitted=jitted, error=0.0)
        return [line for line in cli_bench.table([result], False) if "as long as" in line]

    assert not said(0.5) and not said(1.01)
    assert "takes 1.8 times as long as in plain Python" in said(1.8)[0]
