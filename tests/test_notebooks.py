"""Notebooks: each executes without an error, says what its stored outputs say, and shows a figure.

The stored outputs are what people see who never execute anything, so they are held to be there, to be free of what
belongs to one machine or one run (paths, addresses, warnings), and to name the same codes as a fresh execution.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
LARGEST = 400 * 1024
OF_A_MACHINE = re.compile(
    r"""(?<![\w.:/~])/(?:tmp|home|work|usr|root|opt|var|mnt|Users)/  # a path of one machine
      | 0x[0-9a-f]{6,}  # an address
      | ipykernel_\d
      | \b\d{5,}\.py  # a cell's made-up file
      | \b\w*Warning:
      | \x1b\[  # colours of a terminal""",
    re.VERBOSE,
)
# Not those of why kernels were not fused (NF): a report tells them of the slowest kernels, which may be others each time.
CODES = re.compile(r"\b(?:GB|PL|FB|RC|WN|ER)\d{3}\b")

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore:Kernel is running over TCP")


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _texts(cell: Any) -> Iterator[str]:
    """What a person reads of a cell's outputs."""
    for output in cell.get("outputs", ()):
        yield output.get("text", "")
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/"):
                yield data


def _figures(cell: Any) -> list[str]:
    return [
        kind for output in cell.get("outputs", ()) for kind in output.get("data", {})
        if kind in ("image/png", "image/svg+xml")
    ]  # fmt: skip


def _said(cells: list[Any]) -> list[tuple[int, list[str], int]]:
    """Of each cell: the codes that its outputs name, and the number of its figures."""
    return [
        (number, sorted(set(CODES.findall("\n".join(_texts(cell))))), len(_figures(cell)))
        for number, cell in enumerate(cells)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_executes_and_says_what_is_stored(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    fresh = _tool().execute(path, GRAFTJIT_NOTEBOOKS="quick")
    assert [cell.source for cell in fresh.cells] == [cell.source for cell in stored.cells]
    assert _said(fresh.cells) == _said(stored.cells), f"make notebooks, for {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_there_and_of_no_machine(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    assert sum(len(_figures(cell)) for cell in code) >= 1
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error" and output.get("name") != "stderr", output
        for text in [cell.source, *_texts(cell)]:
            found = OF_A_MACHINE.search(text)
            assert found is None, f"{found} in {text[:2000]}"
    assert notebook == _tool().settled(nbformat.read(path, as_version=4))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


CELL = """
import graftjit, torch
from graftjit.ir.location import shown_file

@graftjit.jit(fullgraph={whole})
def f(x):
    y = x.sin() + 1
    return y * float(y.sum().numpy())

try:
    f(torch.ones(3))
except Exception as error:
    print(error)
print(f.report())

def g(x):
    return x.sin() + 1
lowered = graftjit.lower(g, torch.ones(3))
print(lowered["aten"], lowered["nests"], lowered["kernels"], lowered["program"])
report = graftjit.explain(g, torch.ones(3))
print(*(kernel.source for kernel in report.kernels))
print(shown_file(f.__wrapped__.__code__.co_filename), shown_file("elsewhere.py"))
"""


@pytest.mark.parametrize("whole", [False, True])
def test_a_report_names_cells_as_the_notebook_does(whole: bool) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook()
    sources = ["1 + 1", CELL.format(whole=whole)]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    text = "\n".join(_texts(notebook.cells[1]))
    assert 'File "In[2]", line 7, in f' in text
    assert "return y * float(y.sum().numpy())" in text  # the line is found
    assert "In[2] elsewhere.py" in text
    assert "// sin  In[2]:16" in text  # a kernel's text
    assert "ipykernel" not in text and not re.search(r"\d{5,}\.py", text)


def test_names_of_files_stay_outside_of_a_notebook() -> None:
    from graftjit.ir.location import shown_file

    for path in ("a/b.py", "<string>", "/tmp/ipykernel_12/34.py", "<ipython-input-1-ab>"):
        assert shown_file(path) == path  # the cells of another process, too


def test_the_tool_says_when_there_is_no_such_notebook() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "notebooks.py", "none"], check=False)
    assert done.returncode == 1
