"""The records of a run as Markdown: a line a part, breaks by code, and by name what is not right or slower.

In: records as `processes` gives them. Out: text. A model counts in a part if plain Python runs it there; it is one graph there if no call breaks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .timing import slower

PARTS = ("inference", "training", "generate")
Record = dict[str, Any]
Part = dict[str, Any]


def ran(record: Record, part: str) -> Part | None:
    """What was found in a part that plain Python runs."""
    found = record.get(part)
    return found if found and not found["raises"] else None


def one_graph(part: Part) -> bool:
    return not part["breaks"] and bool(part["graphs"]) and part["graphs"][0] >= 1


def right(part: Part) -> bool:
    return part["right"] == "equal" and not part.get("faults")


def differs(record: Record) -> bool:
    """Plain Python's errors have to be ours, too."""
    return any(not right(record[part]) for part in PARTS if part in record)


def line(record: Record) -> str:
    """One record, for the terminal."""
    if "arguments" not in record:
        return f"not built: {record.get('problem', '')}"
    words = [f"{part}: {_part(record[part])}" for part in PARTS if part in record]
    peer = record.get("peer", {})
    words += [f"torch.compile's {part}: {_part(peer[part])}" for part in PARTS if part in peer]
    return "; ".join([*words, *([record["problem"]] if "problem" in record else [])])


def _part(part: Part) -> str:
    words = ["raises in plain Python"] if part["raises"] else []
    words += ["right" if right(part) else f"NOT RIGHT {part['right']} {part.get('faults', '')}"]
    count = len(part["breaks"])
    words += ["one graph" if one_graph(part) else f"{count} break{'s' * (count != 1)}"]
    if part.get("ratios"):
        words.append(f"{part['ratios'][-1]} of eager's time")
    return ", ".join(words)


def markdown(records: Sequence[Record]) -> str:
    built = [record for record in records if "arguments" in record]
    parts = [
        f"{len(records)} models, {len(built)} built.",
        _summary(built),
        *_breaks(built),
        *_listed("Not right", _wrong(built)),
        *_listed("Slower than eager after ten calls", _slower(built)),
        *_listed("Ended early", [f"{r['name']}: {r['problem']}" for r in built if "problem" in r]),
        *_listed("Not built", [f"{r['name']}: {r.get('problem', '')}" for r in records if r not in built]),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _summary(built: Sequence[Record]) -> str:
    rows = ["| | models | right | one graph | slower | median of eager's time | `torch.compile`: right | one graph |",
            "|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for part in PARTS:
        own = [found for record in built if (found := ran(record, part))]
        peers = [r["peer"].get(part) for r in built if ran(r, part) and "peer" in r]
        timed = sorted(min(found["ratios"]) for found in own if found.get("ratios"))
        cells = [
            str(len(own)),
            _share(map(right, own)),
            _share(map(one_graph, own)),
            str(sum(map(slower, own))),
            f"{timed[len(timed) // 2]:.2f}" if timed else "-",
            _share(bool(peer) and right(peer) for peer in peers),
            _share(bool(peer) and one_graph(peer) for peer in peers),
        ]
        rows.append(f"| {part} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _share(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{sum(found)} ({sum(found) / len(found):.0%})" if found else "-"


def _breaks(built: Sequence[Record]) -> list[str]:
    """By code: in how many models of each part, and the causes that most models have."""
    models: dict[str, Counter[str]] = defaultdict(Counter)
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for record in built:
        for part in PARTS:
            found = (ran(record, part) or {"breaks": []})["breaks"]
            for code in {row["code"] for row in found}:
                models[code][part] += 1
            for code, reason in {(row["code"], row["reason"]) for row in found}:
                causes[code][reason] += 1
    if not models:
        return []
    rows = ["| break | inference | training | generate | the usual causes |", "|---|---:|---:|---:|---|"]  # fmt: skip
    for code in sorted(models, key=lambda code: -sum(models[code].values())):
        counts = " | ".join(str(models[code][part]) for part in PARTS)
        texts = "; ".join(f"{reason} ({n})" for reason, n in causes[code].most_common(3))
        rows.append(f"| {code} | {counts} | {texts.replace('|', '&#124;')} |")
    return ["\n".join(rows)]


def _wrong(built: Sequence[Record]) -> list[str]:
    return [f"{record['name']}, {part}: {record[part]['right']} {record[part].get('faults') or ''}".strip()
            for record in built for part in PARTS if part in record and not right(record[part])]  # fmt: skip


def _slower(built: Sequence[Record]) -> list[str]:
    return [f"{record['name']}, {part}: {min(record[part]['ratios'])} of eager's {record[part]['eager_us']} us"
            for record in built for part in PARTS if slower(record.get(part, {}))]  # fmt: skip


def _listed(title: str, items: list[str]) -> list[str]:
    return [f"{title}:", "\n".join(f"- {item}" for item in items)] if items else []
