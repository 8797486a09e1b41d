"""What is measured, in sections. Each runs in a process of its own (`python -m benchmarks.gpu --section NAME`), which appends a line of
JSON a row to the file of results: a process that dies, or runs out of time, has left what was measured before.

A system that fails or gives other values than eager is told in its row and does not end the others. After an error that a GPU's
context does not survive the process ends with `LOST`, and is started again behind that row.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import leaves
from . import families, measure, nets
from .measure import Device, quartiles, ratios

LOST = 77  # exit status: the device's context is gone
EAGER, OURS, SINK = "eager", "graftjit", "graftjit sink"
PEER, PEER_GRAPHS = "torch.compile", "torch.compile reduce-overhead"
KERNEL_SYSTEMS = (EAGER, OURS, PEER)
MODEL_SYSTEMS = (EAGER, OURS, SINK, PEER, PEER_GRAPHS)
# Relative error (of norms) beside eager that is another order of rounding, by dtype.
ALLOWED = {torch.float32: 5e-3, torch.bfloat16: 4e-2, torch.float16: 1e-2, torch.float64: 1e-9}


@dataclass(slots=True)
class Job:
    """One section's run. `end`: when to begin no more rows, by the clock of `time.monotonic`."""

    device: Device
    results: Path
    systems: tuple[str, ...] | None
    quick: bool
    seed: int
    end: float
    only: tuple[str, ...] = ()
    done: set[tuple[str, str]] = field(default_factory=set)
    mib: tuple[int, ...] = (256, 1024)  # of one matrix of a kernel

    def chosen(self, systems: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(s for s in systems if self.systems is None or s in self.systems)

    def wants(self, section: str, row: str) -> bool:
        """Is this row to be measured? What the time does not suffice for is told."""
        named = not self.only or any(row.startswith(word) for word in self.only)
        if (section, row) in self.done or not named:
            return False
        if time.monotonic() > self.end:
            self.add({"section": section, "row": row, "problem": "no time was left", "systems": {}})
            return False
        return True

    def add(self, line: dict[str, Any]) -> None:
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


# -- systems


def _graftjit(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    import graftjit

    config = graftjit.JitConfig(exec_mode=mode, dynamic=False)
    if isinstance(function, torch.nn.Module):
        return graftjit.compile(function, config=config)
    return graftjit.jit(function, config=config)


def _peer(function: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
    compiled = torch.compile(function, dynamic=False, mode=mode)
    if mode is None:
        return compiled

    def marked(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # results of the last call may be written over
        return compiled(*inputs)

    return marked


WRAP: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    EAGER: lambda function: function,
    OURS: lambda function: _graftjit(function, "auto"),
    SINK: lambda function: _graftjit(function, "sink"),
    PEER: lambda function: _peer(function, None),
    PEER_GRAPHS: lambda function: _peer(function, "reduce-overhead"),
}


def forget() -> None:
    """What systems keep of the last row."""
    import sys

    if "graftjit" in sys.modules:
        sys.modules["graftjit"].reset()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# -- one row


def _call(
    wrapped: Callable[..., Any], inputs: tuple[Any, ...], asked: Sequence[Any]
) -> Callable[[], Any]:
    """A call; where gradients are asked for forward and backward: (loss, gradients)."""
    if not asked:
        return lambda: wrapped(*inputs)

    def step() -> tuple[torch.Tensor, ...]:
        loss = wrapped(*inputs)
        loss.backward()
        found = [loss.detach()]
        for one in asked:
            if one.grad is not None:
                found.append(one.grad)
                one.grad = None
        return tuple(found)

    return step


def difference(found: Any, wanted: Any) -> str:
    """How results differ beyond rounding; "" if they do not."""
    ours, theirs = list(leaves(found)), list(leaves(wanted))
    if len(ours) != len(theirs):
        return f"{len(ours)} tensors, {len(theirs)} expected"
    for own, other in zip(ours, theirs, strict=True):
        if own.shape != other.shape or own.dtype != other.dtype:
            return f"{own.dtype} {tuple(own.shape)}, not {other.dtype} {tuple(other.shape)}"
        if not other.is_floating_point():
            if not torch.equal(own, other):
                return "integers differ"
            continue
        wide = torch.float64 if other.numel() < 1 << 24 else torch.float32
        distance = float(torch.linalg.vector_norm(own - other, dtype=wide))
        size = float(torch.linalg.vector_norm(other, dtype=wide))
        if not distance <= ALLOWED.get(other.dtype, 1e-2) * size + 1e-6:
            return f"an error of {distance / max(size, 1e-30):.2g}, relative"
    return ""


def prepared(
    job: Job, function: Any, inputs: tuple[Any, ...], asked: Sequence[Any], systems: tuple[str, ...]
) -> tuple[dict[str, Callable[[], Any]], dict[str, dict[str, Any]]]:
    """(ready calls, what is known of every system): compiled, warm, and compared with eager."""
    runs: dict[str, Callable[[], Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    wanted: Any = None
    for system in systems:
        start = time.perf_counter()
        try:
            wrapped = WRAP[system](function)
            run = _call(wrapped, inputs, asked)
            for _ in range(5):  # compile, warm, record
                result = run()
            job.device.wait()
            copied = [one.detach().clone() for one in leaves(result)]
            rows[system] = {"ready_seconds": time.perf_counter() - start}
            if system == EAGER:
                wanted = copied
            elif problem := difference(copied, wanted) if wanted is not None else "":
                rows[system]["problem"] = f"other values than eager's: {problem}"
                if system in (OURS, SINK):
                    continue
            if system in (OURS, SINK):
                rows[system]["report"] = _told(wrapped)
            runs[system] = run
        except Exception as error:  # a system that fails is a result
            rows[system] = {"problem": _line(error)}
            job.device.wait()  # raises where the context is lost
    return runs, rows


def _told(wrapped: Any) -> dict[str, Any]:
    """What graftjit's report says of a program."""
    import graftjit

    seen = graftjit.report(wrapped)
    return {
        "graphs": seen.graph_count,
        "kernels": sum(frame.kernels for frame in seen.frames),
        "library": sum(frame.library for frame in seen.frames),
        "notes": [f"{row.code} {row.reason or row.title}" for row in (*seen.breaks, *seen.notes)],
    }


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def timed(rows: dict[str, dict[str, Any]], samples: dict[str, list[float]]) -> None:
    """Medians and quartiles into the rows of systems."""
    for system, times in samples.items():
        low, median, high = quartiles(times)
        row = rows.setdefault(system, {})
        row |= {"seconds": median, "low": low, "high": high, "rounds": len(times)}


def each(job: Job, section: str, names: Any) -> Iterator[str]:
    """The rows to be measured, memory of the last one free."""
    for name in names:
        if job.wants(section, name):
            forget()
            torch.manual_seed(job.seed)
            yield name


# -- sections


def copies(job: Job) -> None:
    """The bandwidth of a clone: bytes read plus bytes written."""
    sizes = (1 << 20, 1 << 22) if job.quick else (256 << 20, 1 << 30)
    for name in each(job, "copy", [f"clone {size >> 20} MiB" for size in sizes]):
        nbytes = int(name.split()[1]) << 20
        x = torch.ones(nbytes // 4, device=job.device.device)
        samples = measure.cold(job.device, {"copy": x.clone}, 50, 3.0)
        rows: dict[str, dict[str, Any]] = {}
        timed(rows, samples)
        job.add({"section": "copy", "row": name, "moved": 2 * nbytes, "systems": rows})


def kernels(job: Job) -> None:
    """Each family at two sizes, beside a copy of its bytes in the same rounds."""
    sizes = (1 << 20,) if job.quick else [mib << 20 for mib in job.mib]
    names = [f"{name} {size >> 20} MiB" for size in sizes for name in families.FAMILIES]
    for name in each(job, "kernels", names):
        family, size = name.split()[0], int(name.split()[1]) << 20
        line: dict[str, Any] = {"section": "kernels", "row": name, "systems": {}}
        try:
            case = families.FAMILIES[family](size, job.device.device)
            with torch.set_grad_enabled(case.trains):
                systems = job.chosen(KERNEL_SYSTEMS)
                runs, rows = prepared(job, case.function, case.inputs, case.asked, systems)
                source = torch.ones(max(1, case.moved // 8), device=job.device.device)
                runs["copy"] = source.clone
                rounds, seconds = (3, 0.2) if job.quick else (30, 1.5)
                samples = measure.cold(job.device, runs, rounds, seconds)
            timed(rows, samples)
            line |= {"moved": case.moved, "systems": rows, "ratios": ratios(samples, OURS)}
        except Exception as error:
            line["problem"] = _line(error)
            job.add(line)
            job.device.wait()
            continue
        job.add(line)


def _models(job: Job, section: str, names: Any, scale: str, trains: bool) -> None:
    for name in each(job, section, names):
        line: dict[str, Any] = {"section": section, "row": name, "systems": {}}
        try:
            net, inputs = nets.made(name, scale, job.device.device, job.seed)
            module = nets.training(net) if trains else net
            with torch.set_grad_enabled(trains):
                asked = [p for p in module.parameters() if p.requires_grad] if trains else []
                runs, rows = prepared(job, module, inputs, asked, job.chosen(MODEL_SYSTEMS))
                rounds, seconds = (3, 0.3) if job.quick else (21, 3.0)
                sample = 0.002 if job.quick else 0.02
                samples = measure.busy(job.device, runs, rounds, seconds, sample)
            timed(rows, samples)
            line |= {
                "systems": rows,
                "ratios": ratios(samples, OURS),
                "sink": ratios(samples, SINK),
            }
        except Exception as error:
            line["problem"] = _line(error)
            job.add(line)
            job.device.wait()
            continue
        job.add(line)


def models(job: Job) -> None:
    """Inference."""
    _models(job, "models", nets.LARGE, "tiny" if job.quick else "large", False)


def training(job: Job) -> None:
    """Forward and backward."""
    _models(job, "training", nets.LARGE, "tiny" if job.quick else "large", True)


def launches(job: Job) -> None:
    """Small models, whose time is launches."""
    names = ("mlp", "bert", "llama", "resnet", "gpt2", "vit")
    _models(job, "launches", names, "tiny" if job.quick else "small", False)


def first(job: Job) -> None:
    """First calls, each in a process of its own with empty caches and then with warm ones."""
    from . import first_calls

    first_calls.section(job)


SECTIONS: dict[str, Callable[[Job], None]] = {
    "copy": copies,
    "kernels": kernels,
    "models": models,
    "launches": launches,
    "first": first,
    "training": training,
}
# Seconds of each, begin of the process included. What is left of one goes to the next ones.
BUDGETS = {"copy": 20, "kernels": 120, "models": 100, "launches": 55, "first": 70, "training": 95}
