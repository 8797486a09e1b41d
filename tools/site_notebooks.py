"""The notebooks as pages of the site; mkdocs.yml names this file, before tools/site_hooks.py.

In: notebooks/*.ipynb with their stored outputs. Out: a page each, in a part of the navigation of its own: texts as they are, cells as
code, outputs as text, figures as files. Nothing is executed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FIGURES = {"image/png": "png", "image/svg+xml": "svg"}
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def on_config(config: Any) -> Any:
    """A line of the navigation for each notebook, by its first heading."""
    rows = [{_title(path): f"notebooks/{path.stem}.md"} for path in _notebooks()]
    if rows:
        at = next(i for i, row in enumerate(config.nav) if "Reference" in row)
        config.nav.insert(at, {"Notebooks": rows})
    return config


def on_files(files: Files, config: Any) -> Files:
    for path in _notebooks():
        figures: list[tuple[str, bytes]] = []
        text = "\n\n".join(_cells(_read(path), path.stem, figures))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text + "\n"))
        for name, data in figures:
            files.append(File.generated(config, f"notebooks/{name}", content=data))
    return files


def _notebooks() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _title(path: Path) -> str:
    texts = (
        _joined(cell["source"]) for cell in _read(path)["cells"] if cell["cell_type"] == "markdown"
    )
    heads = (found[1] for text in texts if (found := re.search(r"^# (.+)$", text, re.M)))
    return next(heads, path.stem)


def _cells(notebook: dict[str, Any], stem: str, figures: list[tuple[str, bytes]]) -> Iterator[str]:
    for cell in notebook["cells"]:
        source = _joined(cell["source"]).strip("\n")
        if cell["cell_type"] == "markdown":
            yield source
        elif cell["cell_type"] == "code" and source:
            kind = "console" if source.startswith(("!", "%%bash")) else "python"
            yield _fenced(source, kind)
            for output in cell.get("outputs", ()):
                yield from _output(output, stem, figures)


def _output(output: dict[str, Any], stem: str, figures: list[tuple[str, bytes]]) -> Iterator[str]:
    """A figure, else the text that stands for what a notebook shows."""
    data = output.get("data", {})
    for kind, suffix in FIGURES.items():
        if kind in data:
            content = _joined(data[kind])
            name = f"{stem}_{len(figures) + 1}.{suffix}"
            figures.append(
                (name, base64.b64decode(content) if suffix == "png" else content.encode())
            )
            yield f"![figure {len(figures)}]({name})"
            return
    text = _joined(output.get("text") or data.get("text/plain") or output.get("traceback", ""))
    text = ESCAPES.sub("", text).strip("\n")
    if text:
        yield _fenced(text, "text")


def _fenced(text: str, kind: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{kind}\n{text}\n{fence}"
