"""No code is a dead letter: each one is raised by a test, used in the library, explained, and has a cure.

Breaks, plain frames, fallbacks and recompiles are raised by tests/capture/test_every_code.py; the errors are raised
here, one small program each; warnings and what was not fused by the tests that are named by a search for the code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graftjit import JitConfig, explain, jit
from graftjit.cli import code_docs
from graftjit.codegen import backend
from graftjit.runtime import codes
from graftjit.runtime.codes import CODES
from graftjit.runtime.errors import GraftError
from graftjit.runtime.guards import mirror
from graftjit.runtime.process import native_loader as native_part
from graftjit.runtime.process import python_version as interpreter
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.store import kernel_file

ROOT = Path(__file__).parents[2]
FOLDERS = ("capture", "codegen", "graftjit", "ir", "runtime")
ERRORS: dict[str, Callable[[Path], Any]] = {}


def raises(code: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """The function below ends with the error of this code."""

    def add(program: Callable[[Path], Any]) -> Callable[[Path], Any]:
        ERRORS[code] = program
        return program

    return add


@raises("ER500")
def a_backward_whose_inputs_were_written_to(_folder: Path) -> None:
    @jit
    def f(x, shift):
        return (x * x).sin() * shift.exp()

    x, shift = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    loss = f(x, shift).sum()
    shift.add_(1)
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    grad.sum().backward()


@raises("ER501")
def a_number(_folder: Path) -> None:
    jit(3)


@raises("ER502")
def a_level(_folder: Path) -> None:
    JitConfig(jit_level="O9")


@raises("ER503")
def a_break_that_is_not_allowed(_folder: Path) -> None:
    jit(lambda x: print(x.sin()), fullgraph=True)(torch.ones(2))


@raises("ER504")
def a_kernel_that_is_none(folder: Path) -> None:
    (folder / "kernel.so").write_bytes(b"no")
    kernel_file.read(folder / "kernel.so")


@raises("ER505")
def a_fault(_folder: Path) -> None:
    with SESSION.override(check=True):
        backend._fallback_reason(SimpleNamespace(name="graph"), ValueError("for the test"))  # type: ignore[arg-type]


@raises("ER506")
def two_guards_that_disagree(_folder: Path) -> None:
    mirror.check_verdict([], None, 3)  # type: ignore[arg-type]


@raises("ER507")
def another_python(_folder: Path) -> None:
    interpreter.require_supported((3, 8, 0))


@raises("ER508")
def a_report_with_a_break(_folder: Path) -> None:
    explain(lambda x: print(x.sin()), torch.ones(2)).assert_clean()


@raises("ER509")
def other_sources(_folder: Path) -> None:
    native_part.require_these_sources("others")


@pytest.mark.parametrize("code", ERRORS)
def test_the_error_has_its_code_and_its_row_says_so(code: str, tmp_path: Path) -> None:
    with pytest.raises(GraftError) as caught:
        ERRORS[code](tmp_path)
    assert caught.value.code == code and str(caught.value).startswith(f"[{code}] ")


@pytest.fixture(scope="module")
def tests() -> str:
    """The text of all tests."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests").rglob("*.txt")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("code", CODES)
def test_a_test_and_the_library_know_it(code: str, tests: str) -> None:
    """A code without a test has to get one: a program that raises it, and what is told of it."""
    assert code in tests
    texts = (
        file.read_text(encoding="utf-8")
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if file.name != "codes.py" and file.parent.name != code_docs.FOLDER.name
    )
    assert any(code in text for text in texts)


@pytest.mark.parametrize("row", CODES.values(), ids=list(CODES))
def test_its_row_says_why_and_what_to_do(row: codes.Code) -> None:
    assert row.id[:2] in {family.prefix for family in codes.FAMILIES}
    assert row.title and row.why and row.cure
    assert not row.title.endswith(".") and not row.cure.endswith(".")
    assert len(row.cure.split()) >= 3  # words like "please report it" tell nobody how
    if row.id.startswith(("GB", "RC")):  # what a user is to do, not where to look
        assert not row.cure.startswith(("see ", "please"))
    assert "the event" not in row.why + row.cure  # users see reports


def test_the_page_has_each_of_them() -> None:
    page = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    assert page == code_docs.page(), "python -m graftjit codes --markdown > docs/codes.md"
    for row in CODES.values():
        assert f"| {row.title} | {row.why} | {row.cure} |" in page
    for code in CODES:
        if code.startswith(("GB", "RC")):
            assert f"\n### {code}\n" in page
