"""`python -m graftjit explain`: what is run, what is compiled of it, where the report goes, and the exit status."""

from __future__ import annotations

import json

import pytest
import torch

from graftjit import jit
from graftjit.cli.jit_modules import every_module
from graftjit.cli.main import main
from graftjit.jit import everything_counted
from graftjit.runtime.process.session import SESSION

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


@pytest.fixture
def script(tmp_path):
    SESSION.log.clear()
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


@pytest.mark.parametrize("status", [0, 3])
def test_the_report_and_the_status_of_the_script(status, script, tmp_path, capsys):
    saved = [tmp_path / name for name in ("report.json", "a.html", "b.json", "c.txt")]
    options = ["--save", saved[0], "--html", saved[1], "--json", saved[2], "--save", saved[3]]
    assert main(["explain", *map(str, options), script, str(status)]) == status
    out = capsys.readouterr().out
    assert out.startswith("inside 2\n3.0 __main__\n")
    assert "script.py" in out and "print" in out and out.count("saved: ") == 4
    report = json.loads(saved[0].read_text())
    assert report["break_count"] == 1 and report["breaks"][0]["line"] == 9
    assert saved[1].read_text().lower().startswith("<!doctype html>")


def test_where_the_report_goes(script, capsys):
    assert main(["explain", "--stderr", script, "0"]) == 0
    out, err = capsys.readouterr()
    assert out == "inside 2\n3.0 __main__\n" and "GB103" in err
    assert main(["explain", "--quiet", script, "0"]) == 0
    assert capsys.readouterr() == ("inside 2\n3.0 __main__\n", "")


def test_limits(script, capsys):
    assert main(["explain", "-q", "--max-breaks", "1", "--max-recompiles", "0", script, "0"]) == 0
    capsys.readouterr()
    assert main(["explain", "-q", "--max-breaks", "0", script, "0"]) == 1
    assert "1 graph break (allowed: 0)" in capsys.readouterr().err
    assert (
        main(["explain", "-q", "--max-breaks", "0", script, "5"]) == 5
    )  # the script's own failure comes first


def test_a_script_that_fails(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import graftjit\n1 / 0\n")
    assert main(["explain", str(script)]) == 1
    out, err = capsys.readouterr()
    assert "ZeroDivisionError" in err and "graftjit report" in out
    assert err.count("File ") == 1 and "cli_explain" not in err  # no frames of ours


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none.py"], "there is no file"),
        (["scirpt.py"], "did you mean"),
        (["--save", "x.pdf", "script.py"], ".html"),
        (["--html", "x.json", "script.py"], ".html"),
        (["--json", "none/x.json", "script.py"], "folder"),
        (["--diff", "none.json", "script.py"], "there is no file"),
        (["--diff", "script.py", "script.py"], "not a saved report"),
        (["-m", "nothing.such"], "cannot be found"),
    ],
)
def test_what_is_not_understood_is_told_before_anything_runs(
    words, told, script, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", *words]) == 2
    out, err = capsys.readouterr()
    assert told in err and out == ""


def test_a_module_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part_of_explain.py").write_text(SCRIPT)
    assert main(["explain", "-m", "part_of_explain", "4"]) == 4
    assert capsys.readouterr().out.startswith("inside 2\n3.0 __main__\n")


PLAIN = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.inner(x)) + 1

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())

    def forward(self, x):
        y = self.blocks(x)
        print("between")
        return self.blocks[0](y) * 2

torch.manual_seed(0)
net, loss = Net(), torch.nn.MSELoss()
net.register_forward_hook(lambda module, given, result: print("hook", module is net, type(module).__name__))
net.blocks[1].register_forward_pre_hook(lambda module, given: print("pre-hook"))
x = torch.randn(3, 4)
for _ in range(2):
    found = loss(net(x), x)
    found.backward()
print(found.item(), net.blocks[0].inner.weight.grad.sum().item(), type(net).__call__ is torch.nn.Module.__call__)
"""


def test_every_module_of_a_program_that_knows_nothing_of_us(tmp_path, capsys):
    script, saved = tmp_path / "plain.py", tmp_path / "report.json"
    script.write_text(PLAIN)
    call = torch.nn.Module.__call__
    with SESSION.override(disable=True):
        assert main(["explain", "-q", str(script)]) == 0
    plain = capsys.readouterr().out
    SESSION.log.clear()
    others = {event.frame for event in everything_counted()}  # alive, from other tests
    assert main(["explain", "--all", "--save", str(saved), str(script)]) == 0
    out = capsys.readouterr().out
    told = [line.split() for line in (plain, out.partition("modules called")[0])]
    assert [t for t in told[0] if "." not in t] == [t for t in told[1] if "." not in t]
    for a, b in zip(*([float(t) for t in words if "." in t] for words in told), strict=True):
        assert abs(a - b) <= 1e-5 * max(1, abs(a))
    assert "modules called from outside another one: Net, MSELoss" in out
    report = json.loads(saved.read_text())
    assert {"Net()", "MSELoss()"} <= {frame["frame"] for frame in report["frames"]}
    assert "Linear()" not in {frame["frame"] for frame in report["frames"]} - others
    assert report["breaks"][0]["code"] == "GB103" and report["graph_count"] >= 3
    assert torch.nn.Module.__call__ is call


def test_outermost_modules_and_what_keeps_them():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.sin() + 1

    @jit
    def whole(net, x):
        return net(x) * 2

    x = torch.ones(3)
    with every_module() as found:
        net = Net()
        assert torch.equal(whole(net, x), (x.sin() + 1) * 2)
        assert found.named == {}  # it was called from inside of a compiled function
        for _ in range(3):
            assert torch.equal(net(x), x.sin() + 1)
        again = Net()
        assert torch.equal(again(x), x.sin() + 1)
        assert found.named == {Net.__qualname__: 2}
        assert sum(call.report().adopted_count for call in found.calls) == 1  # compiled once
        assert len(found._of) == 2
        del net, again
        assert len(found._of) == 0  # and nothing keeps them
