"""Executes the notebooks and stores their outputs: `python tools/notebooks.py [NAME...]` (`make notebooks`).

In: notebooks/*.ipynb, all or those whose names begin with NAME. Out: the same files with fresh outputs and nothing that
changes by itself: cells are numbered, times of day and versions of editors are gone. The tests execute them, too, with
GRAFTJIT_NOTEBOOKS=quick, which asks the notebooks for shorter measurements (tests/test_notebooks.py).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SECONDS_A_CELL = 300
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# What would make a figure or a number depend on who executes it; the rest of the environment is passed on.
SETTINGS = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "NO_COLOR": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
# What torch's profiler writes on stderr for its own developers, with the time of day.
CHATTER = re.compile(r"^USDT:.*\n?", re.MULTILINE)


def execute(path: Path, **settings: str) -> Any:
    """The notebook with fresh outputs; raises nbclient's CellExecutionError at the first cell that fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",  # which jupyter_client runs by this very Python
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env={**os.environ, **SETTINGS, **settings})
    return settled(notebook)


def settled(notebook: Any) -> Any:
    """Without what changes by itself."""
    notebook.metadata = {"kernelspec": dict(KERNEL), "language_info": dict(LANGUAGE)}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"], cell["metadata"] = f"cell-{number:02}", {}
        outputs = [_settled_output(output) for output in cell.get("outputs", ())]
        if "outputs" in cell:
            cell["outputs"] = [output for output in outputs if output.get("text") != ""]
    return notebook


def _settled_output(output: Any) -> Any:
    if "metadata" in output:
        output["metadata"] = {}
    if output.get("name") == "stderr":
        output["text"] = CHATTER.sub("", output["text"])
    return output


def main(names: list[str]) -> int:
    import nbformat

    chosen = [p for p in sorted(FOLDER.glob("*.ipynb")) if p.name.startswith(tuple(names) or "")]
    for path in chosen:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as store:  # first calls are what they are for a reader
            notebook = execute(path, GRAFTJIT_NOTEBOOKS="", GRAFTJIT_CACHE_DIR=store)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        size = path.stat().st_size / 1024
        print(f"{path.name}: {time.perf_counter() - start:.0f} s, {size:.0f} KB")
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
