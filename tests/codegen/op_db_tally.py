"""The counts of sweeps over torch's operator database: kept in a file by `op_db_sweep --tally`, a table for docs/operators.md.

A line of the file is a dtype, a seed, a part of the operators and a way, and how many cases came out how; a piece that is
swept again takes its line's place.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("op_db_tally.txt")
STATES = ("same", "listed", "differs", "break", "refused")
HEAD = (
    f"# dtype seed part way {' '.join(STATES)}: by `python -m tests.codegen.op_db_sweep --tally`\n"
)


def read(file: Path) -> dict[tuple[str, ...], list[int]]:
    """(dtype, seed, part, way) -> counts in the order of STATES."""
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
    """Markdown: dtype x way, summed over seeds and parts."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    seeds: dict[tuple[str, str], set[str]] = {}
    for (dtype, seed, _part, way), counts in read(file).items():
        sums.setdefault((dtype, way), Counter()).update(dict(zip(STATES, counts, strict=True)))
        seeds.setdefault((dtype, way), set()).add(seed)
    lines = [
        f"| {dtype} | {way} | {', '.join(sorted(seeds[dtype, way]))} | "
        + " | ".join(str(count[state]) for state in STATES)
        + " |"
        for (dtype, way), count in sums.items()
    ]
    head = f"| dtype | way | seeds | {' | '.join(STATES)} |\n|{'---|' * (3 + len(STATES))}\n"
    return head + "\n".join(lines) + "\n"
