"""The counts of sweeps over torch's operator database: kept in a file by `sweep --tally`, a table for docs/operators.md.

A line of the file is a dtype, a seed, a part of the operators with which of their samples, and a way, and how many cases
came out how; a piece that is swept again takes its line's place.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("tally.txt")
STATES = ("same", "listed", "differs", "break", "refused")
HEAD = f"# dtype seed part:samples way {' '.join(STATES)}: by `python -m tests.codegen.op_db.sweep --tally`\n"


def read(file: Path) -> dict[tuple[str, ...], list[int]]:
    """(dtype, seed, part:samples, way) -> counts in the order of STATES."""
    if not file.exists():
        return {}
    rows = [line.split() for line in file.read_text("utf-8").splitlines() if line[:1] != "#"]
    return {tuple(row[:4]): [int(count) for count in row[4:]] for row in rows}


def keep(file: Path, dtype: str, seed: int, part: str, seen: Counter[Any]) -> None:
    """`seen`: (way, state) -> count."""
    rows = read(file)
    for way in dict.fromkeys(way for way, _ in seen):
        rows[dtype, str(seed), part, way] = [seen[way, state] for state in STATES]
    lines = [" ".join((*key, *map(str, counts))) + "\n" for key, counts in sorted(rows.items())]
    file.write_text(HEAD + "".join(lines), encoding="utf-8")


def table(file: Path = FILE) -> str:
    """Markdown: dtype x way x samples, summed over parts and seeds; how much of the database that is."""
    sums: dict[tuple[str, ...], Counter[str]] = {}
    pieces: dict[tuple[str, ...], Counter[str]] = {}
    for (dtype, seed, part, way), counts in read(file).items():
        share, samples = part.split(":")
        key = (dtype, way, samples)
        sums.setdefault(key, Counter()).update(dict(zip(STATES, counts, strict=True)))
        pieces.setdefault(key, Counter())[f"{share.split('/')[1]} seed {seed}"] += 1
    lines = []
    for key, count in sums.items():
        emitted = ", ".join(f"{n}/{of}" for of, n in pieces[key].items())
        found = " | ".join(str(count[state]) for state in STATES)
        lines.append(f"| {' | '.join(key)} | {emitted} | {found} |\n")
    names = ("dtype", "way", "samples", "operators", *STATES)
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n" + "".join(lines)
