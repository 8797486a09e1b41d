"""What is shipped: the wheel and the source archive hold all that is needed, and agree with each other."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import graftjit
from graftjit.codegen.build import flags

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "graftjit": "graftjit",
    **{f"graftjit/{r}": r for r in ("capture", "codegen", "ir", "runtime")},
}
TOP = ("pyproject.toml", "setup.py", "graftjit_pytest.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md",
       "CONTRIBUTING.md", "Makefile")  # fmt: skip

ASSETS = "runtime/report/html/assets"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source archive, wheel), the wheel built from the unpacked source archive."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "copy"
    copy.mkdir()
    for name in TOP:
        shutil.copy(ROOT / name, copy / name)
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for name in (*FOLDERS.values(), "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    build = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    run = [sys.executable, "-c", build]
    subprocess.run([*run, "build_sdist", str(folder)], cwd=copy, check=True, capture_output=True)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    subprocess.run(
        [*run, "build_wheel", str(folder)], cwd=unpacked, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    return source, wheel


def test_the_wheel_holds_every_room_and_the_extension(archives: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(archives[1]).namelist())
    for package, folder in FOLDERS.items():
        read = [path for kind in ("*.py", "*.h") for path in (ROOT / folder).rglob(kind)]
        for path in (path.relative_to(ROOT / folder) for path in read):
            if path.parts[0] != "native":  # compiled into the extension
                assert f"{package}/{path.as_posix()}" in names
    for path in (ROOT / ASSETS).iterdir():
        assert f"graftjit/{ASSETS}/{path.name}" in names
    assert {
        "graftjit/py.typed",
        "graftjit_pytest.py",
        "graftjit/code_examples/GB10/GB101.py",
    } <= names
    (entries,) = [name for name in names if name.endswith("dist-info/entry_points.txt")]
    assert b"[pytest11]" in zipfile.ZipFile(archives[1]).read(entries)
    assert [n for n in names if n.startswith("graftjit/runtime/_native") and n.endswith(".so")]
    if flags.ready_here():
        for ready in flags.READY:
            of = f"graftjit/codegen/kernels/{ready.name}."
            assert [n for n in names if n.startswith(of) and n.endswith(".so")]
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "ir/", "capture/"))]


def test_the_source_archive_holds_what_the_extension_is_made_of(
    archives: tuple[Path, Path],
) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for folder in ("runtime/native", ASSETS, "codegen/kernels/prebuilt"):
        native = [path for path in (ROOT / folder).rglob("*.*") if path.is_file()]
        assert native
        for path in native:
            assert path.relative_to(ROOT).as_posix() in names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.py"} <= names


def test_building_needs_no_torch() -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }  # fmt: skip
    assert imported <= {"compileall", "pathlib", "runpy", "setuptools", "typing"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert all(r.startswith("setuptools") for r in project["build-system"]["requires"])


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert graftjit.__version__ == project["version"]
    assert {"gpu", "demo", "dev"} <= set(project["optional-dependencies"])


def test_every_public_name_is_there() -> None:
    for name in graftjit.__all__:
        assert getattr(graftjit, name) is not None
    promised = (
        "jit compile explain report reset Report JitConfig set_context get_context GRAPH_MODE "
        "PYNATIVE_MODE nn ops context Tensor ms_function jit_class mutable"
    )
    assert set(promised.split()) <= set(graftjit.__all__)


def test_the_license_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    program = tmp_path / "example.py"
    program.write_text(text.split("```python\n")[1].split("```")[0])
    done = subprocess.run(
        [sys.executable, "-P", str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "graft" in done.stdout and "graph" in done.stdout


def test_documents_name_files_that_exist() -> None:
    """Links between the documents, and the make targets they speak of."""
    makefile = (ROOT / "Makefile").read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = path.read_text()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
        for target in re.findall(r"\bmake ([a-z][a-z-]*)`", text):
            assert re.search(rf"^{target}\b.*:", makefile, re.M), f"{path.name}: make {target}"
