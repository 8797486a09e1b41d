"""The report of a run: text, JSON and charts, made of the lines that there are.

Called after each section, so that what was measured is told whatever happens later.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import charts, machine
from ..verdicts import geomean
from .families import BOUND, BOUNDED

Lines = Sequence[dict[str, Any]]
TITLES = {
    "copy": "copy: GB/s of a clone, bytes read plus bytes written",
    "kernels": "kernels: part of a copy's bandwidth (the copy in the same rounds), and time over graftjit's",
    "models": "models, inference: time a call, and time over graftjit's (sink)",
    "training": "training: forward and backward, time a step, and time over graftjit's (sink)",
    "launches": "small models: time a call, and time over graftjit's (sink)",
    "first": "first calls, seconds: empty caches / warm caches",
}
OURS, SINK = "graftjit", "graftjit sink"


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of results."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(text) for text in texts if text.endswith("\n")]


def environment(device: str, seed: int) -> dict[str, Any]:
    """What results depend on."""
    import torch

    seen = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    seen |= machine.describe(seed)
    seen |= {"device": device, "cuda": torch.version.cuda}
    if device.startswith("cuda") and torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(torch.device(device))
        seen |= {
            "gpu": facts.name,
            "gpu memory": f"{facts.total_memory >> 30} GiB",
            "multiprocessors": facts.multi_processor_count,
            "capability": f"{facts.major}.{facts.minor}",
            "cudnn": torch.backends.cudnn.version(),
            "driver": _driver(),
        }
    return seen


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.mem", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known: {error}"
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "not known"


def write(out: Path, results: Path, problems: dict[str, str], device: str, seed: int) -> None:
    """All files of the report."""
    rows = lines(results)
    seen = {"environment": environment(device, seed), "sections": problems, "rows": rows}
    (out / "report.json").write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    missing = _charts(out, seen)
    text = "\n".join([_head(seen), *[_section(name, rows) for name in TITLES], missing, ""])
    (out / "report.txt").write_text(text, encoding="utf-8")


def _head(seen: dict[str, Any]) -> str:
    facts = [f"{name}: {value}" for name, value in seen["environment"].items()]
    facts += [f"section {name}: {why}" for name, why in seen["sections"].items() if why]
    return "\n".join(facts) + "\n"


def _section(name: str, rows: Lines) -> str:
    own = [row for row in rows if row["section"] == name]
    if not own:
        return ""
    body = [_FORMS[name](row) for row in own]
    return "\n".join([f"\n{TITLES[name]}", *body, *_sums(name, own)])


def _copy(row: dict[str, Any]) -> str:
    return f"  {row['row']:<26}{row['moved'] / row['systems']['copy']['seconds'] / 1e9:>10.0f} GB/s"


def fractions(row: dict[str, Any]) -> dict[str, float]:
    """System -> part of the copy's bandwidth that it reaches."""
    times = {s: one["seconds"] for s, one in row["systems"].items() if "seconds" in one}
    copy = times.pop("copy", None)
    return {system: copy / seconds for system, seconds in times.items()} if copy else {}


def _kernel(row: dict[str, Any]) -> str:
    parts = [f"{system} {part:.1%}" for system, part in fractions(row).items()]
    parts += [
        f"{other}/ours {ratio:.2f}"
        for other, ratio in row.get("ratios", {}).items()
        if other != "copy"
    ]
    return _row(row, parts)


def _model(row: dict[str, Any]) -> str:
    parts = [
        f"{system} {charts.duration(one['seconds'] * 1e6)}"
        for system, one in row["systems"].items()
        if "seconds" in one
    ]
    parts += [f"{other}/ours {ratio:.2f}" for other, ratio in row.get("ratios", {}).items()]
    parts += [f"{other}/sink {ratio:.2f}" for other, ratio in row.get("sink", {}).items()]
    return _row(row, parts)


def _first(row: dict[str, Any]) -> str:
    times = [
        f"{system} {one.get('empty', float('nan')):.2f} / {one.get('warm', float('nan')):.2f}"
        for system, one in row["systems"].items()
    ]
    return _row(row, times)


def _row(row: dict[str, Any], parts: Sequence[str]) -> str:
    seen = [f"  {row['row']:<26}" + "  ".join(parts)]
    if row.get("problem"):
        seen.append(f"      {row['problem']}")
    for system, one in row["systems"].items():
        if one.get("problem"):
            seen.append(f"      {system}: {one['problem']}")
        for note in one.get("report", {}).get("notes", ()):
            seen.append(f"      {system}: {note}")
    return "\n".join(seen)


_FORMS = {
    "copy": _copy, "kernels": _kernel, "models": _model, "training": _model, "launches": _model,
    "first": _first,
}  # fmt: skip


def _sums(name: str, rows: Lines) -> list[str]:
    """Geometric means over a section, and what is under its bound."""
    seen = []
    for key, ours in (("ratios", OURS), ("sink", SINK)):
        others: dict[str, list[float]] = {}
        for row in rows:
            for other, ratio in row.get(key, {}).items():
                others.setdefault(other, []).append(ratio)
        seen += [
            f"  geometric mean of {len(values)}: {other} over {ours} {geomean(values):.3f}"
            for other, values in others.items()
            if other != "copy"
        ]
    if name == "kernels":
        bounded = [row for row in rows if row["row"].split()[0] in BOUNDED]
        below = [r["row"] for r in bounded if fractions(r).get(OURS, 0.0) < BOUND]
        seen.append(
            f"  below {BOUND:.0%} of a copy: {', '.join(below) or 'none'} (of {len(bounded)} with a bound)"
        )
    return seen


def _charts(out: Path, seen: dict[str, Any]) -> str:
    """A chart a section; why there is none."""
    facts = seen["environment"]
    under = " · ".join(str(facts.get(name)) for name in ("gpu", "torch", "triton", "date"))
    for name in ("kernels", "models", "training", "launches"):
        bars = [found for row in seen["rows"] if row["section"] == name and (found := _bar(row))]
        if not bars:
            continue
        try:
            charts.draw(TITLES[name].split(":")[0], under, bars, out / name)
        except charts.NoMatplotlib as error:
            return f"\nno charts: {error}"
    return ""


def _bar(row: dict[str, Any]) -> charts.Bar | None:
    times = {s: one["seconds"] for s, one in row["systems"].items() if "seconds" in one}
    copy, eager = times.pop("copy", None), times.get("eager")
    if not eager:
        return None
    ratios = {system: seconds / eager for system, seconds in times.items()}
    return charts.Bar(row["row"], eager * 1e6, ratios, copy / eager if copy else None)
