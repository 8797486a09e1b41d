"""What mkdocs knows about this repository; mkdocs.yml names this file, and `make docs` builds the site.

In: the files of docs/, as they read in the repository. Out: the same, with

- the packages of the library where mkdocstrings looks for the package (their folders carry other names),
- CONTRIBUTING.md and CHANGELOG.md as pages,
- a page for each file and folder of the repository that a page links to (`../codegen/lower/pointwise.py`), so that links
  to sources work in a checkout and on the site, without a network.
"""

from __future__ import annotations

import ast
import posixpath
import re
import runpy
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Files of the repository that are pages of the site: path in the repository -> page.
PAGES = {
    "examples/README.md": "examples.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".yml": "yaml", ".toml": "toml"}
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?(\))")
LATER = re.compile(r"\[([^\]]*)\]\(([^)\s]+\.ipynb)\)")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: Any) -> Any:
    """The package as an installation would have it, made of links, for mkdocstrings to read."""
    tree = tempfile.TemporaryDirectory(prefix="graftjit-docs-")
    runpy.run_path(str(ROOT / "tools" / "typecheck.py"))["make_tree"](Path(tree.name))
    python = config.plugins["mkdocstrings"].config["handlers"].setdefault("python", {})
    python["paths"] = [tree.name]
    config.extra["package_tree"] = tree  # removed with the configuration
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not files of docs/."""
    for path, page in PAGES.items():
        if files.get_file_from_path(page) is None:
            text = (ROOT / path).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=text))
    wanted = {
        target
        for file in files.documentation_pages()
        for target in _targets(file.content_string, _place(file.src_uri))
        if _page_of(target).startswith("source/")
    }
    wanted |= {inner for target in wanted for inner in _few(target)}
    for target in sorted(wanted):
        text = UNSEARCHED + _source_page(ROOT / target, target, wanted)
        files.append(File.generated(config, _page_of(target), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files of the repository become links to their pages."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    place = _place(uri)

    # A notebook may tell of one that is still to come.
    markdown = LATER.sub(lambda f: f[0] if _in_repository(f[2], place) else f[1], markdown)

    def link(found: re.Match) -> str:
        target = _in_repository(found[2], place)
        if target is None or (target.startswith("docs/") and place.startswith("docs/")):
            return found[0]
        there = posixpath.relpath(_page_of(target), posixpath.dirname(uri) or ".")
        return f"{found[1]}{there}{found[3] or ''}{found[4]}"

    return LINK.sub(link, markdown)


def _place(uri: str) -> str:
    """Where the text of a page lies in the repository."""
    if uri.startswith("notebooks/"):
        return str(Path(uri).with_suffix(".ipynb"))
    found = (path for path, page in PAGES.items() if page == uri and path != "README.md")
    return next(found, f"docs/{uri}")


def _page_of(target: str) -> str:
    """The page of a file or a folder of the repository."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("notebooks/") and target.endswith(".ipynb"):
        return str(Path(target).with_suffix(".md"))
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"source/{target}/index.md" if (ROOT / target).is_dir() else f"source/{target}.md"


def _in_repository(link: str, place: str) -> str | None:
    """The path that a link in the file `place` names, from the root of the repository; None if there is no such thing."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    return None if target.startswith("..") or not (ROOT / target).exists() else target


def _targets(text: str, place: str) -> Iterator[str]:
    for found in LINK.finditer(text):
        target = _in_repository(found[2], place)
        if target is not None:
            yield target


def _few(target: str) -> list[str]:
    """The files of a folder that has few of them: each gets a page."""
    if not (ROOT / target).is_dir():
        return []
    inner = [path for path in sorted((ROOT / target).iterdir()) if path.suffix in LANGUAGES]
    return [f"{target}/{path.name}" for path in inner] if len(inner) <= 12 else []


def _source_page(path: Path, target: str, wanted: Iterable[str]) -> str:
    if path.is_dir():
        return f"# {target}/\n\n" + "".join(_folder_rows(path, target, set(wanted)))
    text = path.read_text(encoding="utf-8", errors="replace")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _folder_rows(path: Path, target: str, wanted: set[str]) -> Iterator[str]:
    """The files of a folder, each with the first sentence that it says of itself."""
    yield "| file | what it says of itself |\n|---|---|\n"
    for file in sorted(path.iterdir()):
        if (file / "__init__.py").exists():
            yield f"| {file.name}/ | {_head(file / '__init__.py')} |\n"
        if file.is_dir() or file.suffix not in (".py", ".cpp", ".h", ".c"):
            continue
        name = f"`{file.name}`"
        if f"{target}/{file.name}" in wanted:
            name = f"[{name}]({file.name}.md)"
        yield f"| {name} | {_head(file)} |\n"


def _head(file: Path) -> str:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        said = "\n".join(
            line.lstrip("/* ") for line in re.findall(r"^(?://|/\*| \*).*", text, re.M)[:6]
        )
    first = " ".join(said.split("\n\n")[0].split())
    return re.sub(r"[|*_<>\[\]]", lambda found: f"\\{found[0]}", first)
