"""`python -m graftjit demo`: handwritten digits with eager, `@jit` and `compile(model)` side by
side.

In: scikit-learn's digits (1,797 images of 8x8). Out: text for a terminal of 100 columns, and status
0 if all three agree, else 1. It trains the network of the static-graph documentation in plain
Python, compares results and times (medians of interleaved rounds), changes an attribute between two
calls, shows a graph break with its explanation, and ends with the report. All measured times are
shown.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import graftjit
from graftjit import nn

from ..ir.dataclass import dataclass
from ..runtime.process.session import SESSION

_ROUNDS = 200
_TOLERANCE = 1e-4


class Network(nn.Cell):
    """The network of the static-graph documentation, for 8x8 images. The demo changes `scale`."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense_relu_sequential = nn.SequentialCell(
            nn.Dense(8 * 8, 512),
            nn.ReLU(),
            nn.Dense(512, 512),
            nn.ReLU(),
            nn.Dense(512, 10),
        )
        self.scale = 1.0

    def construct(self, x: Any) -> Any:
        x = self.flatten(x)
        logits = self.dense_relu_sequential(x)
        return logits * self.scale


def confidence(logits: Any) -> Any:
    """A function with an intentional graph break: `min()` needs data in the middle."""
    probabilities = torch.softmax(logits, -1)
    best = probabilities.max(-1).values
    worst = min(best.tolist())
    return best - worst


@dataclass(frozen=True, slots=True)
class Digits:
    """images [n, 1, 8, 8] in 0..1, labels [n]; three quarters for training, one for testing."""

    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any


def load_digits() -> Digits:
    """scikit-learn's digits, shuffled with a fixed seed."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    cut = len(labels) * 3 // 4
    return Digits(images[:cut], labels[:cut], images[cut:], labels[cut:])


def train(model: Any, digits: Digits, epochs: int = 8) -> float:
    """Train in plain Python and torch; returns the loss of the last batch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    model.set_train()
    for _epoch in range(epochs):
        for images, labels in zip(
            digits.train_images.split(64), digits.train_labels.split(64), strict=True
        ):
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
    model.set_train(False)
    return loss.item()


def medians(
    candidates: dict[str, Callable[[], Any]], repeat: int, rounds: int = _ROUNDS
) -> dict[str, float]:
    """Median seconds per call. Each round runs all candidates, in a new order."""
    order, shuffled = list(candidates.items()), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _round in range(rounds):
        shuffled.shuffle(order)
        for name, call in order:
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            times[name].append((time.perf_counter() - start) / repeat)
    return {name: statistics.median(found) for name, found in times.items()}


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table, for one form of the model; times in seconds."""

    name: str
    first: float
    right: int
    difference: float
    batch: float
    single: float


def compare(model: Any, digits: Digits) -> list[_Row]:
    """Eager, `@jit` and `compile(model)` on the same weights and images, without gradients. Each
    first call starts with an empty kernel store."""

    def forward(images: Any) -> Any:
        return model(images)

    ways: dict[str, Callable[[Any], Any]] = {
        "eager": forward,
        "@jit": graftjit.jit(forward),
        "compile(model)": graftjit.compile(model),
    }
    batch, single = digits.test_images[:64], digits.test_images[:1]
    # Exclude torch's own setup at a first call.
    forward(batch)
    first = {}
    for name, way in ways.items():
        with tempfile.TemporaryDirectory() as folder, SESSION.override(cache_dir=Path(folder)):
            start = time.perf_counter()
            way(batch)
            first[name] = time.perf_counter() - start
            way(single)
    expected = forward(digits.test_images)
    results = {name: way(digits.test_images) for name, way in ways.items()}
    of_batch = medians({name: partial(way, batch) for name, way in ways.items()}, 2)
    of_single = medians({name: partial(way, single) for name, way in ways.items()}, 10)
    return [
        _Row(
            name,
            first[name],
            int((result.argmax(-1) == digits.test_labels).sum()),
            float((result - expected).abs().max()),
            of_batch[name],
            of_single[name],
        )
        for name, result in results.items()
    ]


def _table(rows: list[_Row], total: int) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    eager = rows[0]
    table = Table(title=f"{total} test images; weights trained in eager; no gradients", box=SIMPLE)
    table.add_column("", no_wrap=True)
    for column in ("first call", "right answers", "difference", "batch of 64", "one image"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        batch, single = eager.batch / row.batch, eager.single / row.single
        table.add_row(
            row.name,
            f"{row.first * 1e3:.1f} ms",
            f"{row.right} ({row.right / total:.1%})",
            f"{row.difference:.1e}",
            f"{row.batch * 1e6:.0f} us  {batch:.2f}x",
            f"{row.single * 1e6:.1f} us  {single:.2f}x",
        )
    return table


def _attribute_change(say: Callable[..., None], model: Any, digits: Digits) -> bool:
    compiled = graftjit.compile(model)
    image = digits.test_images[:1]
    before = compiled(image)
    model.scale = 3.0
    after = compiled(image)
    expected = model(image)
    model.scale = 1.0
    seen = torch.allclose(after, expected, atol=_TOLERANCE)
    say("\n[bold]An attribute changes between two calls[/bold]")
    say(f"  compiled(image)[0, 0] with model.scale = 1.0:  {before[0, 0].item():+.4f}")
    say(f"  compiled(image)[0, 0] with model.scale = 3.0:  {after[0, 0].item():+.4f}")
    say(f"  plain Python says                              {expected[0, 0].item():+.4f}", end="  ")
    say("[green]seen at once[/green]" if seen else "[red]NOT SEEN[/red]")
    return seen


def _graph_break(say: Callable[..., None], logits: Any) -> bool:
    jitted = graftjit.jit(confidence)
    same = torch.allclose(jitted(logits), confidence(logits), atol=_TOLERANCE)
    say("\n[bold]A graph break, located and explained[/bold]")
    verdict = "[green]the same[/green]" if same else "[red]NOT THE SAME[/red]"
    say(f"  confidence() takes a number out of a tensor in the middle; its result is {verdict}.")
    say("")
    say(graftjit.explain(confidence, logits).text(), markup=False, highlight=False)
    return same


def run(parsed: argparse.Namespace) -> int:
    return show(parsed.width)


def show(width: int | None = None) -> int:
    """Run the whole demo; returns the exit status."""
    try:
        import sklearn  # noqa: F401
        from rich.console import Console
    except ImportError as error:
        print(
            f"The demo needs {error.name}: pip install 'graftjit[demo]', or `make demo` in a"
            f" checkout.",
            file=sys.stderr,
        )
        return 1
    console = Console(highlight=False)
    console.width = width or (min(console.width, 100) if console.is_terminal else 100)
    say = console.print
    start = time.perf_counter()
    torch.manual_seed(0)
    digits = load_digits()
    model = Network()
    loss = train(model, digits)
    say(
        f"[bold]graftjit {graftjit.__version__}[/bold] on torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads. Trained {len(digits.train_labels)} handwritten digits "
        f"in plain Python in {time.perf_counter() - start:.1f} s, loss {loss:.3f}.\n"
    )
    with torch.no_grad():
        rows = compare(model, digits)
        say(_table(rows, len(digits.test_labels)))
        say(
            "  first call: from an empty kernel store; x: times faster than eager, medians of"
            " interleaved rounds"
        )
        agree = all(row.right == rows[0].right and row.difference <= _TOLERANCE for row in rows)
        seen = _attribute_change(say, model, digits)
        same = _graph_break(say, model(digits.test_images[:64]))
        say("\n[bold]The report of compile(model)[/bold]\n")
        compiled = graftjit.compile(model)
        compiled(digits.test_images[:64])
        say(compiled.report().text(), markup=False, highlight=False)
    say(f"\n{time.perf_counter() - start:.1f} s in all.", end=" ")
    if agree and seen and same:
        say("[green]Everything agrees with plain Python.[/green]")
        return 0
    say("[red]Something differs from plain Python: see above.[/red]")
    return 1
