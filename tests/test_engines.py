"""`benchmarks.engines`: its command without engines, and what it tells of systems that are missing, wrong or end early."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
QUICK = ("--rounds", "2", "--sample", "0.01", "--threads", "1")


def engines(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.engines", *words, *QUICK], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def absent(system: str, bench) -> bool:
    return bool(bench("engines.systems").missing(system))


def test_the_command_and_going_on(tmp_path, bench):
    out, table = tmp_path / "e.jsonl", tmp_path / "e.md"
    words = (
        "mlp_b1",
        "--systems",
        "graftjit",
        "openvino",
        "--out",
        str(out),
        "--table",
        str(table),
    )
    done = engines(*words)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text().splitlines()[1])
    eager, ours, other = (record["systems"][s] for s in ("eager", "graftjit", "openvino"))
    assert eager["median"] > 0 and ours["low"] <= ours["median"] <= ours["high"]
    assert ours["first"] > eager["first"] > 0 and ours["difference"] < 1e-5
    # a product's multiplications and additions: 784-512-512-10
    assert record["flops"] == 2 * (784 * 512 + 512 * 512 + 512 * 10)
    text = table.read_text()
    assert "geometric mean" in text and "first call" in text
    if absent("openvino", bench):
        assert other == {"problem": "openvino not installed"}
        assert "| missing |" in text and "- mlp_b1: openvino: openvino not installed" in text
    again = engines(*words)
    assert again.returncode == 0 and "mlp_b1: eager" not in again.stdout
    assert len(out.read_text().splitlines()) == 2
    assert engines(*words, "--limit", "5").returncode == 2  # another run's file


def test_a_model_whose_library_is_missing_is_a_row(bench, monkeypatch):
    models, measure = bench("engines.models"), bench("engines.measure")

    def build():
        raise ImportError("torchvision is not installed")

    monkeypatch.setitem(models.BY_NAME, "resnet18", models.Model("resnet18", "", build))
    record = measure.measure("resnet18", measure.Settings(("eager",)))
    assert record["problem"] == "ImportError: torchvision is not installed"
    head = {"settings": {"systems": ["eager", "graftjit"], "engines": {}, "rounds": 2}, "peak": None,
            "machine": {"processor": "p", "threads": 1, "python": "3", "torch": "2", "commit": "c", "load": [0]}}  # fmt: skip
    text = bench("engines.table").markdown(head, [record])
    assert "| ImportError: torchvision is not installed |" in text
    assert {
        len(line.split("|")) for line in text.splitlines() if line.startswith("| resnet18:")
    } == {len(next(line for line in text.splitlines() if line.startswith("| model")).split("|"))}


def test_ratios_are_to_the_best_other_system(bench):
    table = bench("engines.table")
    record = {"workload": "bert", "flops": 4e9, "systems": {
        "eager": {"median": 9.0}, "graftjit": {"median": 4.0}, "graftjit O2": {"median": 2.0},
        "onnxruntime": {"median": 5.0}, "openvino": {"problem": "other values than eager's: off by 1"},
    }}  # fmt: skip
    assert table.best_other(record) == ("onnxruntime", 5.0)
    assert table.ratio(record, "graftjit") == pytest.approx(0.8)
    other = record | {
        "workload": "gpt2",
        "systems": {"eager": {"median": 1.0}, "graftjit": {"median": 0.2}},
    }
    assert "geometric mean 0.40 of 2 models, largest 0.80 (bert)" in table._summary(
        [record, other], "graftjit"
    )
    # 4 GFLOP in 2 ms of 4 TFLOP/s
    assert table._share(record, ("graftjit", "graftjit O2"), 4e12) == "50%"


def test_differences_are_of_the_largest_value(bench):
    difference = bench("engines.measure").difference
    x = torch.tensor([1.0, 200.0])
    assert difference([x], [x]) == {"difference": 0.0, "relative": 0.0}
    assert difference([x + 1], [x])["relative"] == pytest.approx(1 / 200)
    assert difference([x * math.nan], [x])["relative"] == math.inf
    for found in ([x.double()], [x[:1]], []):
        with pytest.raises(ValueError, match="other outputs"):
            difference(found, [x])
    with pytest.raises(ValueError, match="whole numbers"):
        difference([torch.tensor([1])], [torch.tensor([2])])


@pytest.fixture
def process(bench, tmp_path, monkeypatch):
    """A process that runs a program in place of a worker."""
    import benchmarks.engines.process as module

    before = subprocess.Popen

    def start(program):
        monkeypatch.setattr(
            module.subprocess,
            "Popen",
            lambda command, **words: before([sys.executable, "-c", program], **words),
        )
        return module.Process("mlp_b1", "eager", 1, tmp_path / "caches")

    return module, start


def test_a_process_that_ends_or_hangs_is_told(process):
    module, start = process
    with start("import sys; sys.exit('no such engine')") as one:
        with pytest.raises(module.Failed, match="ended with 1: no such engine"):
            one.ask(30, do="first")


def test_a_process_that_hangs_is_ended(process):
    module, start = process
    with start("import time; time.sleep(60)") as one:
        with pytest.raises(module.Failed, match="not ready after 0 s"):
            one.ask(0.1, do="first")
    assert one.child.returncode == -9


def test_a_process_is_stopped_between_its_turns(process):
    _module, start = process
    with start("while True: input(); print('{}', flush=True)") as one:
        for _ in range(2):
            assert one.ask(30, do="first") == {}
            status = Path(f"/proc/{one.child.pid}/stat")
            if status.exists():
                os.waitid(os.P_PID, one.child.pid, os.WSTOPPED | os.WNOWAIT)
                assert status.read_text().rpartition(")")[2].split()[0] == "T"


def test_every_model_of_ours_is_the_same_for_a_seed(bench):
    models = bench("engines.models")
    for name in ("mlp_b1", "lstm_loop", "t5", "autoencoder"):
        results = []
        for _ in range(2):
            module, inputs = models.BY_NAME[name].make()
            assert not module.training
            with torch.no_grad():
                results.append(module(*inputs))
        assert torch.equal(*results)


def test_a_rate_of_operations_is_measured(bench):
    rate = bench("engines.peak").rate(1000)
    from graftjit.runtime.process import hardware

    if hardware.find_compiler() is None or platform.machine() != "x86_64":
        assert rate is None
    else:
        assert rate > 1e8
