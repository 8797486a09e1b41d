"""The benchmark commands run as users run them; and the rows of the table make what they say."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_launches_need_no_gpu():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.launches"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )  # fmt: skip
    assert done.stdout.count(" ns") == 9


def test_what_recording_costs_is_told(tmp_path):
    words = ["--pairs", "3", "--calls", "20", "--json", str(tmp_path / "told.json")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.events", *words], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    seen = json.loads((tmp_path / "told.json").read_text())
    assert 1e-6 < seen["call"] < 1e-2 and "% of a call" in done.stdout
    for name in ("recording", "noise"):
        assert seen[name]["low"] <= seen[name]["percent"] <= seen[name]["high"]


def test_interval_of_a_median(bench):
    interval = bench("events").interval
    assert interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert interval(range(1001)) == (500, 469, 532)


QUICK = ("--rounds", "2", "--systems", "eager", "graftjit", "--seed", "3")


def test_call_its_report_and_going_on(tmp_path):
    words = ("call", *QUICK, "--report", str(tmp_path), "--json", str(tmp_path / "told.json"))
    done = run(*words, "--only", "sin_add")
    assert done.returncode == 0, done.stderr
    assert "sin_add" in done.stdout and "geometric mean" in done.stdout
    seen = json.loads((tmp_path / "told.json").read_text())
    assert seen["machine"]["seed"] == 3 and seen["machine"]["torch"]
    (line,) = seen["lines"]
    eager, graft = line["systems"]["eager"], line["systems"]["graftjit"]
    assert eager["median"] > 0 and eager["rounds"] == 2 and eager["memory"]["peak"] == 96
    assert graft["problem"] == "" and graft["program"]["graphs"] == 1
    assert graft["error"]["largest_of_eager"] <= 2 and line["ratios"]["eager"][1] > 0
    for name in ("results.jsonl", "report.json", "report.md", "call.png", "call.svg"):
        assert (tmp_path / name).stat().st_size > 0

    done = run(*words, "--only", "sin_add", "identity", "--resume")
    assert done.returncode == 0 and "2, 1 to measure" in done.stdout, done.stderr
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["systems"]["eager"]["median"] == eager["median"]
    assert [json.loads(text)["workload"] for text in lines[1:]] == ["sin_add", "identity"]


def test_first_runs_fresh_processes(tmp_path):
    target = tmp_path / "told.json"
    done = run("first", "--only", "sin_add", "--repeat", "1", "--systems", "graftjit", "--json", str(target))  # fmt: skip
    assert done.returncode == 0 and "sin_add" in done.stdout, done.stderr
    (line,) = json.loads(target.read_text())["lines"]
    assert [row["caches"] for row in line["rows"]] == ["empty", "warm"]
    assert all(row["median"] > 0 and row["problem"] == "" for row in line["rows"])


def test_workloads_are_the_same_for_a_seed(bench):
    workloads, errors, outcome = bench("workloads"), bench("errors"), bench("steps").outcome
    assert len(workloads.BY_NAME) == len(workloads.WORKLOADS)
    assert {what for row in workloads.WORKLOADS for what in row.what} == {"call", "first", "steady"}
    assert {row.group for row in workloads.WORKLOADS} == set(workloads.GROUPS)
    for row in workloads.WORKLOADS:
        if row.group not in ("call", "models", "training", "steps"):
            continue  # large, and made the same way
        results = []
        for _ in range(2):
            torch.manual_seed(5)
            function, inputs = row.make()
            with torch.no_grad():
                results.append(list(errors.leaves(outcome(function, inputs))))
        assert results[0]
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=0, equal_nan=True)
        assert all(x.isfinite().all() for x in results[0]), row.name


def test_every_workload_has_a_float64_reference(bench):
    workloads, errors = bench("workloads"), bench("errors")
    for row in workloads.WORKLOADS:
        if row.group in ("call", "models", "training", "steps"):
            with torch.no_grad():
                exact = list(errors.leaves(errors.reference(row, 0)))
            assert all(x.dtype == torch.float64 for x in exact), row.name
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD, momentum"])
def test_whole_steps_are_compared_from_their_start(bench, optimizer):
    steps, systems, trained = bench("steps"), bench("systems"), bench("models.trained")
    torch.manual_seed(0)
    made = steps.whole(
        steps.Loss(trained.convolutions(), torch.nn.functional.cross_entropy, 1), optimizer
    )
    inputs = trained.digits(8)
    first = made.outcome(*inputs)
    made(*inputs)
    assert not torch.equal(made.parameters[0], made.start[0])
    for value, again in zip(first, made.outcome(*inputs), strict=True):
        assert torch.equal(value, again)
    # loss; parameters, their gradients and at least one state each; buffers
    assert len(first) >= 1 + 3 * len(made.parameters) + 4
    with torch.no_grad():
        for value, start in zip(made._module_state(), made.start, strict=True):
            value.copy_(start)
    ours = systems.under("graftjit", made)
    for _ in range(2):
        ours(*inputs)
    bench("errors").same(ours.outcome(*inputs), first)
    assert systems.describe("graftjit", ours)["graphs"]
    moved = bench("bandwidth").moved
    parameters = sum(p.numel() * 4 for p in made.parameters)
    assert moved(ours, inputs, ours(*inputs)) > moved(made.module, inputs, ()) + 3 * parameters


def test_errors_are_in_units_of_eagers(bench):
    errors = bench("errors").errors
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    eager, ours = torch.tensor([1.0, 2.0001]), torch.tensor([1.0, 1.9997])
    found = errors({"eager": eager, "graftjit": ours}, exact)
    assert found["graftjit"].largest == pytest.approx(3e-4, rel=1e-3)
    assert found["graftjit"].largest_of_eager == pytest.approx(3.0, rel=1e-2)
    # Where eager is exact the unit is half a unit in the last place of the largest value.
    found = errors({"eager": exact.float(), "graftjit": ours}, exact)
    assert found["graftjit"].largest_of_eager == pytest.approx(3e-4 / 2**-23, rel=1e-2)
    # Equal infinities are right, a nan is not.
    infinite = torch.tensor([math.inf, 1.0])
    wrong = torch.tensor([math.nan, 1.0])
    found = errors({"eager": infinite, "graftjit": wrong}, infinite.double())
    assert found["eager"].largest == 0 and found["graftjit"].largest == math.inf
    assert errors({"eager": torch.tensor([1])}, torch.tensor([1])) == {}


def test_errors_over_several_draws_are_medians_of_each_output(bench):
    errors = bench("errors")
    exact = [torch.tensor([1.0]).double(), torch.tensor([2.0]).double()]

    def drawn(first: float, second: float):
        results = {"eager": [one.float() + 1e-4 for one in exact]}
        ours = (exact[0].float() + first, exact[1].float() + second)
        return errors.draw(results | {"graftjit": list(ours)}, exact)

    # far off once in each output, by chance: neither is off as a rule
    found = errors.over([drawn(9e-4, 1e-4), drawn(1e-4, 9e-4), drawn(1e-4, 1e-4)])["graftjit"]
    assert found.largest_of_eager == pytest.approx(1.0, rel=1e-2) and found.draws == 3
    assert found.worst == pytest.approx(9.0, rel=1e-2)
    assert found.largest == pytest.approx(9e-4, rel=1e-2)
    # three times eager's in one output, most times
    found = errors.over([drawn(1e-4, 3e-4), drawn(1e-4, 3e-4), drawn(9e-4, 0.0)])["graftjit"]
    assert found.rms_of_eager == pytest.approx(3.0, rel=1e-2)
    # the peer has the first draw alone
    first = drawn(1e-4, 1e-4)
    first.absolute["peer"], first.of_eager["peer"] = (
        first.absolute["graftjit"],
        first.of_eager["graftjit"],
    )
    seen = errors.over([first, drawn(1e-4, 1e-4)])
    assert (seen["peer"].draws, seen["graftjit"].draws) == (1, 2)


def test_memory_of_a_call(bench):
    peak = bench("memory").peak
    x = torch.randn(1 << 16)

    def two_alive():
        y = x + 1
        z = y * 2
        del y
        return z.sum()

    one = x.numel() * 4
    found = peak(two_alive)
    assert 2 * one <= found.peak - found.kept < 2 * one + 1024 and found.left == 0


def test_memory_counts_what_programs_keep(bench):
    import graftjit

    memory = bench("memory")
    x, w = torch.randn(256, 256), torch.randn(256, 256)

    def long_lived(x, w):
        y = torch.softmax(torch.sin(x) @ w, -1)
        return y.cumsum(0).cumsum(1) @ w

    compiled = graftjit.jit(long_lived)
    with torch.no_grad():
        compiled(x, w)
        before = memory.arenas()
        found = memory.peak(lambda: compiled(x, w))
    assert found.kept == before[0] and found.peak >= found.kept + x.numel() * 4


def test_what_holds_the_memory_is_shown():
    """The tool runs a workload and tells of its programs."""
    seen = subprocess.run(
        [sys.executable, "tools/peak_memory.py", "gaussian_loss"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "gaussian_loss under graftjit" in seen and "eager at its best" in seen
    assert "handed out" in seen


def test_the_line_of_copies(bench):
    bandwidth = bench("bandwidth")
    points = [(1024, 1e-6), (4096, 2e-6)]
    assert bandwidth.copy_seconds(10, points) == 1e-6
    assert bandwidth.copy_seconds(2048, points) == pytest.approx(2**0.5 * 1e-6)
    assert bandwidth.copy_seconds(8192, points) == pytest.approx(4e-6)
    times = [seconds for _size, seconds in bandwidth.curve([1 << 12, 1 << 20], 0.005)]
    assert 0 < times[0] <= times[1]


def test_bytes_that_must_move(bench):
    moved = bench("bandwidth").moved
    x = torch.randn(8, 4)
    assert moved(None, (x, x.t(), 3), x + 1) == 2 * 128  # the storage of x once
    assert moved(None, (x,), x.view(-1)) == 128  # a view is not written
    assert moved(None, (x[0].expand(100, 4),), torch.zeros(())) == 128 + 4
    table = torch.nn.Embedding(1000, 4)
    tokens = torch.zeros(2, dtype=torch.long)
    assert moved(table, (tokens,), table(tokens)) == 16 + 32
    assert moved(None, (tokens, table.weight), table(tokens), sparse=(1,)) == 16 + 32


def record(**ratios):
    quartiles = {other.replace("_", "."): values for other, values in ratios.items()}
    row = {"median": 1.0, "memory": {"peak": 8192}, "problem": ""}
    row["error"] = {"largest_of_eager": 1.5, "rms_of_eager": 1.0}
    return {"kind": "time", "workload": "chain", "moved": 64, "ratios": quartiles,
            "systems": {s: dict(row) for s in ("eager", "graftjit", "torch.compile")}}  # fmt: skip


def test_verdicts(bench):
    verdicts, row = bench("verdicts"), bench("workloads").BY_NAME["chain"]
    fine = record(eager=(0.4, 0.5, 0.6), torch_compile=(0.9, 1.0, 1.1))
    assert {v.state for v in verdicts.judge(row, fine)} == {"kept"}

    def states(changed):
        return {f"{v.about} {v.against}": v.state for v in verdicts.judge(row, changed) if v.state != "kept"}  # fmt: skip

    assert states(record(eager=(1.02, 1.1, 1.2), torch_compile=(1.1, 1.2, 1.3))) == {
        "time eager": "close",
        "time torch.compile": "MISSED",
    }
    large = record(eager=(0.4, 0.5, 0.6), torch_compile=(0.9, 1.0, 1.1))
    large["systems"]["graftjit"]["memory"] = {"peak": 8192 + 4097}
    large["systems"]["graftjit"]["error"]["rms_of_eager"] = 2.1
    assert states(large) == dict.fromkeys(("memory eager", "memory torch.compile", "error eager"), "MISSED")  # fmt: skip
    del fine["ratios"]["torch.compile"]
    assert states(fine) == {"time torch.compile": "?"}
    del fine["systems"]["torch.compile"]
    assert states(fine) == {}  # nobody asked for it


def test_geometric_means_of_a_group(bench):
    verdicts = bench("verdicts")
    lines = [record(torch_compile=(0, value, 9)) for value in (0.5, 2.0, 1.0)]
    means = verdicts.group_means(lines)
    assert means == {"torch.compile": pytest.approx(1.0)}
    assert [v.state for v in verdicts.judge_group("models", means)] == ["MISSED"]


def test_a_system_that_fails_or_differs_is_a_row(bench, monkeypatch):
    workloads, steady = bench("workloads"), bench("steady_state")
    systems = bench("systems").SYSTEMS

    def fails(function):
        raise RuntimeError("cannot do that")

    monkeypatch.setitem(systems, "graftjit", fails)
    monkeypatch.setitem(systems, "torch.compile", lambda function: lambda *xs: function(*xs) + 1)
    found = steady.measure(workloads.BY_NAME["sin_add"], ["eager", "graftjit", "torch.compile"],
                           seed=0, rounds=2, sample_seconds=0.0005)  # fmt: skip
    rows = found.systems
    assert list(rows) == ["eager", "graftjit", "torch.compile"] and found.ratios == {}
    assert rows["eager"].median > 0 and rows["eager"].problem == ""
    assert "cannot do that" in rows["graftjit"].problem
    assert "not close" in rows["torch.compile"].problem


def test_a_process_that_hangs_or_dies_is_a_row(bench, monkeypatch):
    isolated = bench("isolated")
    settings = isolated.Settings(("eager", "torch.compile"), rounds=2)
    found = isolated.run("identity", settings, limit=0.01)
    assert {row["problem"] for row in found["systems"].values()} == {"not ready after 0 s"}
    found = isolated.run("no such workload", settings, limit=60)
    assert all("KeyError" in row["problem"] for row in found["systems"].values())

    def peer_hangs(workload, settings, limit):
        if "torch.compile" in settings.systems:
            return None, "hangs"
        return {"systems": {"eager": {"median": 1.0}}}, ""

    monkeypatch.setattr(isolated, "_child", peer_hangs)
    found = isolated.run("identity", settings, limit=60)["systems"]
    assert found["eager"]["median"] == 1.0 and found["torch.compile"]["problem"] == "hangs"


def test_a_line_that_was_cut_off_is_measured_again(bench, tmp_path):
    results = bench("results")
    path = tmp_path / "results.jsonl"
    head = {"settings": {"seed": 0, "systems": ("eager",)}, "machine": {"torch": "2", "load": 1}}
    results.Results(head, path).add({"kind": "time", "workload": "a"})
    with path.open("a") as file:
        file.write('{"kind": "time", "workl')
    again = results.Results(head | {"machine": {"torch": "2", "load": 5}}, path, resume=True)
    assert again.done("time", "a") and not again.done("first", "a")
    again.add({"kind": "time", "workload": "b"})
    assert [line["workload"] for line in results.load(path)[1]] == ["a", "b"]
    with pytest.raises(results.ResultsError, match="exists: go on with --resume"):
        results.Results(head, path)
    other = {"settings": {"seed": 1, "systems": ("eager",)}, "machine": {"torch": "3"}}
    with pytest.raises(results.ResultsError, match="seed, torch differ"):
        results.Results(other, path, resume=True)


def head():
    machine = {"processor": "P", "threads": 2, "torch": "2", "python": "3", "commit": "c"}
    return {"settings": {"rounds": 2, "seed": 0}, "machine": machine, "copy": [(1024, 1e-6)]}


def test_the_report_tells_what_is_missed_and_what_broke(bench, tmp_path):
    report = bench("report")
    slow = record(eager=(1.9, 2.0, 2.1), torch_compile=(0.9, 1.0, 1.1))
    slow["systems"]["graftjit"]["program"] = {"breaks": ["GB101 print"], "notes": []}
    broken = record()
    broken["workload"] = "swiglu"
    broken["systems"]["torch.compile"] = {"median": None, "problem": "Error: no compiler"}
    report.write(tmp_path, head(), [slow, broken])
    text = (tmp_path / "report.md").read_text()
    assert "chain: MISSED, time / eager 2, bound 1.03" in text and "chain: GB101 print" in text
    assert "swiglu, torch.compile: Error: no compiler" in text
    seen = json.loads((tmp_path / "report.json").read_text())
    assert seen["groups"]["pointwise"]["eager"] == pytest.approx(2.0)
    assert seen["lines"][0]["verdicts"][0]["state"] == "MISSED"


def test_charts_need_their_extra_and_reports_do_not(bench, monkeypatch, tmp_path):
    report = bench("report")
    for name in ("matplotlib.backends.backend_agg", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    lines = [record(eager=(0.4, 0.5, 0.6))]
    names = {path.name for path in report.write(tmp_path, head(), lines)}
    assert names == {"report.json", "report.md"}
    assert "graftjit[bench]" in (tmp_path / "report.md").read_text()


def test_labels_of_a_chart_do_not_overlap(bench, tmp_path, monkeypatch):
    charts = bench("charts")
    figures = []
    monkeypatch.setattr(charts, "_save", lambda figure, stem: figures.append(figure) or [])
    bars = [charts.Bar(f"workload_{n}", 10.0**n, {"eager": 1.0, "graftjit": 0.3 * n, "torch.compile": 5.0 * n}, 0.2)
            for n in range(1, 9)]  # fmt: skip
    charts.draw("Title", "first line\nsecond line", bars, tmp_path / "group")
    (figure,) = figures
    figure.canvas.draw()
    (axes,) = figure.axes
    texts = [*axes.texts, *axes.get_yticklabels(), axes.title, axes.get_legend(), figure._suptitle]
    right = axes.get_xlim()[1]
    ticks = [text for text in axes.get_xticklabels() if 0 <= text.get_position()[0] <= right]
    boxes = [text.get_window_extent() for text in [*texts, axes.xaxis.label, *ticks]]
    boxes = [box.padded(-1) for box in boxes if box.width > 0]
    assert len(boxes) > 30
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])
        assert figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1)


def test_operators_beside_eager(tmp_path):
    target = tmp_path / "told.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.operators", "--only", "tanh", "sum.dim", "--sizes", "tiny", "--count", "4",
         "--sample", "0.0005", "--json", str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
        env={k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"},
    )  # fmt: skip
    assert done.returncode == 0 and "geometric mean" in done.stdout, done.stderr
    rows = json.loads(target.read_text())["rows"]
    assert rows and all(row["ratio"] > 0 and row["became"] for row in rows)


def test_every_lowered_operator_is_met(bench):
    cases = bench("operator_cases")
    texts = cases.texts()
    assert len(texts) > 200 and cases.unmet() == []
    made = {case.operator.split("(")[0] for case in cases.cases()}
    assert made == set(texts)


def test_a_peer_with_other_values_is_timed_and_told(bench, monkeypatch):
    steady, workloads = bench("steady_state"), bench("workloads")
    shifted = {
        "eager": lambda f: f,
        "graftjit": lambda f: lambda *a: f(*a) + 1,
        "torch.compile": lambda f: lambda *a: f(*a) + 1,
    }
    monkeypatch.setattr(bench("systems"), "SYSTEMS", shifted)
    ready, problems = steady._prepare_all(workloads.BY_NAME["sin_add"], list(shifted), 0)
    assert set(ready) == {"eager", "torch.compile"} and set(problems) == {"graftjit"}
    assert "other values" in ready["torch.compile"].other and not ready["eager"].other


@pytest.mark.slow
def test_the_gpu_benchmarks_run_without_a_gpu(tmp_path):
    """The harness itself, at tiny sizes: rows are there, judged, drawn, and one that fails ends nothing."""
    words = "--device cpu --quick --seconds 900 --sections copy kernels launches first training"
    systems = ("--systems", "eager", "graftjit", "graftjit sink")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--out", str(tmp_path), *words.split(), *systems,
         "--only", "clone", "softmax", "cross", "mlp", "tiny", "vit"],
        cwd=ROOT, env={k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    seen = json.loads((tmp_path / "report.json").read_text())
    assert seen["environment"]["date"] and seen["environment"]["device"] == "cpu"
    rows = {(row["section"], row["row"]): row for row in seen["rows"]}
    assert {section for section, _ in rows} == {"copy", "kernels", "launches", "first", "training"}
    softmax = rows["kernels", "softmax 1 MiB"]
    assert {"eager", "graftjit", "copy"} <= softmax["systems"].keys() and softmax["ratios"]["eager"]
    for row in rows.values():
        problems = [one.get("problem", "") for one in row["systems"].values()]
        assert not row.get("problem") and not any(problems), row
    assert rows["training", "vit"]["systems"]["graftjit sink"]["report"]["graphs"] == 1
    assert rows["first", "tiny"]["systems"]["graftjit"]["warm"] > 0
    text = (tmp_path / "report.txt").read_text()
    assert "geometric mean" in text and "below 90% of a copy" in text
    assert (tmp_path / "kernels.png").exists() and (tmp_path / "training.svg").exists()


def test_a_system_that_is_wrong_on_a_gpu_is_told(bench, tmp_path, monkeypatch):
    sections, measure = bench("gpu.sections"), bench("gpu.measure")
    monkeypatch.setitem(sections.WRAP, "graftjit", lambda f: lambda *xs: f(*xs) * 2)

    def fails(function):
        raise RuntimeError("no such thing")

    monkeypatch.setitem(sections.WRAP, "torch.compile", fails)
    job = sections.Job(
        measure.Device("cpu"), tmp_path / "r.jsonl", None, True, 0, math.inf, ("sum",)
    )
    sections.kernels(job)
    sections.kernels(job)  # what is there is not measured again, if the job knows of it
    lines = bench("gpu.tell").lines(job.results)
    assert [line["row"] for line in lines] == ["sum 1 MiB"] * 2
    rows = lines[0]["systems"]
    assert "other values" in rows["graftjit"]["problem"] and "seconds" not in rows["graftjit"]
    assert "no such thing" in rows["torch.compile"]["problem"] and rows["eager"]["seconds"] > 0
    job.done, job.end = {("kernels", "sum 1 MiB")}, 0.0
    sections.kernels(job)
    job.done.clear()
    sections.kernels(job)
    lines = bench("gpu.tell").lines(job.results)
    assert len(lines) == 3 and lines[2]["problem"] == "no time was left"


def test_the_time_of_sections(bench):
    import time

    command, sections = bench("gpu.__main__"), bench("gpu.sections")
    names = list(sections.SECTIONS)
    assert set(names) == set(sections.BUDGETS) == set(bench("gpu.tell").TITLES)
    end, spent = time.monotonic() + 440, 0.0
    for number, name in enumerate(names):
        spent += command._limit(name, names[number + 1 :], end - spent)
    assert spent == pytest.approx(440, rel=0.01)


@pytest.mark.slow
def test_a_session_on_a_gpu_machine_goes_on_after_a_part_that_fails(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "carried-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "")
    environment = {k: v for k, v in os.environ.items() if k not in ("GRAFTJIT_CHECK", "PYTHON")}
    environment |= {
        "OUT": str(tmp_path / "out"), "WHEELS": str(tmp_path), "LIMIT": "300", "PARTS": "wheels link test bench",
        "BENCH": "--device cpu --quick --sections kernels --only sum --systems eager graftjit",
    }  # fmt: skip
    if torch.cuda.is_available():
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        ["bash", "tools/gpu-session", sys.executable],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert done.returncode == 1, done.stdout + done.stderr
    seen = {line.split(":")[0]: line for line in summary.splitlines()}
    assert "ended with 2" in seen.pop("test") and "no torch that sees a GPU" in done.stdout
    assert seen.keys() == {"wheels", "link", "bench"}, summary
    assert all("done" in line for line in seen.values()), done.stdout
    assert "carried" in (tmp_path / "out" / "wheels.log").read_text()
    assert "sum 1 MiB" in (tmp_path / "out" / "bench" / "report.txt").read_text()
