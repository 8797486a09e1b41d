"""The documents: the site builds without a warning, nothing in it is fetched from elsewhere, every page is found, and the
programs that pages show print what the pages say.
"""

from __future__ import annotations

import html
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from graftjit.runtime.process import hardware

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = runpy.run_path(str(ROOT / "tools" / "doc_blocks.py"))
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
OF_PRODUCTS = {"stages"}
RUNNABLE = [path for path in PAGES if BLOCKS["blocks_of"](path)]
# The site is the same whatever Python builds it.
ONCE = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or importlib.util.find_spec("mkdocs") is None,
    reason="the site is built on Python 3.11, where mkdocs is",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by a process of its own as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=170,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not re.search("WARNING|ERROR", done.stderr), done.stderr
    return folder


@ONCE
def test_the_site_builds_strict_and_every_link_in_it_leads_somewhere(site: Path) -> None:
    """mkdocs looks at the links of the texts; this also sees those that are generated, and their anchors."""
    pages = {
        path: path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }
    anchors = {
        path.resolve(): set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()
    }
    lost = []
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            target, _, anchor = html.unescape(link).partition("#")
            if re.match("[a-z]+:", target):
                continue
            there = (
                (path.parent / unquote(target.split("?")[0])).resolve()
                if target
                else path.resolve()
            )
            if not there.exists():
                lost.append(f"{path.relative_to(site)}: {link}")
            elif anchor and there in anchors and unquote(anchor) not in anchors[there]:
                lost.append(f"{path.relative_to(site)}: {link} has no such anchor")
    assert len(pages) > 20 and not lost, "\n".join(lost[:40])


@ONCE
def test_nothing_of_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = [
        f"{path.relative_to(site)}: {found}"
        for path in site.rglob("*.html")
        for found in re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="?(?:https?:)?//[^>]*>', path.read_text(encoding="utf-8")
        )
    ]  # fmt: skip
    assert not fetched, "\n".join(fetched[:20])


@ONCE
def test_every_page_is_in_the_navigation(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    linked = {unquote(link) for link in re.findall(r'class="md-nav__link[^"]*"[^>]*href="([^"#]+)|href="([^"#]+)"[^>]*class="md-nav__link', text) for link in link if link}  # fmt: skip
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in PAGES if path.name != "README.md"}  # fmt: skip
    assert pages - {"index.html"} <= linked


def test_public_names_are_in_the_reference() -> None:
    import graftjit

    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")
    )
    named = set(re.findall(r"graftjit(?:\.\w+)*\.(\w+)", text))
    assert set(graftjit.__all__) <= named, "name it in docs/reference"


def test_what_the_reference_shows_has_a_docstring() -> None:
    """Methods of cells say in the class what they take and give."""
    import inspect

    import graftjit
    from graftjit.runtime import errors
    from graftjit.runtime.process import options
    from graftjit.runtime.report import records, report

    bare: list[str] = []
    spaces: list[Any] = [
        graftjit,
        graftjit.nn,
        graftjit.ops,
        graftjit.context,
        report.Report,
        options.JitConfig,
    ]
    for space in [*spaces, records, errors, graftjit.nn.Cell, graftjit.ops.GradOperation]:
        for name, thing in vars(space).items():
            thing = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
            ours = getattr(thing, "__module__", "").startswith("graftjit")
            if (
                name.startswith("_")
                or not ours
                or not (inspect.isfunction(thing) or inspect.isclass(thing))
            ):
                continue
            if not (thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__):
                bare.append(f"{space.__name__}.{name}")
    assert not bare


def test_environment_variables_are_in_their_page() -> None:
    from graftjit.runtime.process.options import VARIABLES

    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert all(f"`{variable.name}" in text for variable in VARIABLES)


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="pages show what Python 3.11 prints")
def test_programs_of_a_page_print_what_the_page_says(path: Path) -> None:
    """If this fails and what is printed is right: python tools/doc_blocks.py --update PAGE"""
    if path.stem in OF_PRODUCTS and hardware.cpu().isa not in hardware.VECTORS:
        pytest.skip("the page shows a product by our kernel, which needs AVX-512 or AVX2")
    seen = BLOCKS["differences"](path)
    assert not seen, "\n\n".join(seen)


def test_the_runner_of_blocks_sees_what_differs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 3\n```\n\n"
        "<!-- file: other.py -->\n```python\nprint('written')\n```\n\n"
        "```python\nprint(x, 'in 3.5 ms')\nprint('a'); print('b')\nprint('end')\n```\n\n```text\n3 in 99 us\n...\nend\n```\n\n"
        "```console\n$ python other.py\nwritten\n```\n\n"
        "<!-- not run: no reason -->\n```python\n1 / 0\n```\n\n"
        "```python\n1 / 0\n```\n```text\nZeroDivisionError: division by zero\n```\n"
    )  # fmt: skip
    assert BLOCKS["differences"](page) == []
    page.write_text(
        page.read_text().replace("3 in 99 us", "4 in 99 us").replace("\nwritten\n", "\nread\n")
    )
    seen = BLOCKS["differences"](page)
    assert len(seen) == 2 and "+3 in TIME" in seen[0] and "+written" in seen[1]
    assert BLOCKS["update"](page) and BLOCKS["differences"](page) == []


def test_documents_speak_of_the_program_alone() -> None:
    """A reader learns what graftjit does, not how or where this repository was written."""
    words = re.compile(
        r"\b(?:this session|helper `|sub-?agents?|worktree|/work/|/tmp/(?!\S*\.(?:html|json))|assistant|language model)\b", re.I
    )  # fmt: skip
    texts = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    found = [f"{path.relative_to(ROOT)}: {word}" for path in texts for word in words.findall(path.read_text(encoding="utf-8"))]  # fmt: skip
    assert texts and not found
