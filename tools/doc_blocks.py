"""Runs the programs that the documents show, and compares what they print with what the page says.

    python tools/doc_blocks.py docs/tutorial.md README.md             compare
    python tools/doc_blocks.py --update docs/tutorial.md              write what was printed into the page

In: pages in Markdown. Their blocks are executed in order, all of a page in one process and one folder of their own:

    ```python    is run, in one namespace a page, as if the blocks stood one below another in PAGE.py
    ```console   each line that begins with `$ ` is run by a shell, `python` being the Python that runs this; an exit status
                 other than 0 is told
    ```text      right behind one of these: what it printed (for console, what stands in the block itself)

A comment on the line before a block changes that: `<!-- file: model.py -->` writes the block to that file instead of
running it, `<!-- not run: why -->` leaves it alone. In what is printed, times, rates and shares are compared as
such, not by value; a line `...` stands for any lines, and `...` in a line for anything. A program that raises prints
the exception's last lines. Out: the differences, and exit status 1 if there are any. Called by tests/test_docs.py.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"^(?P<fence>```+)(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.M | re.S
)
SAID = re.compile(r"<!-- (?P<what>file|not run): (?P<value>[^\n]+?) -->\n\Z")
NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
MEASURED = (
    (re.compile(rf"{NUMBER} ?(?:ns|us|µs|ms|s|min)(?![\w/])"), "TIME"),
    (re.compile(rf"{NUMBER} ?(?:[KMGT]i?B|[GT]?FLOP|B)/s\b"), "RATE"),
    (re.compile(rf"<?{NUMBER} ?%"), "SHARE"),
    (re.compile(r"[█▉▊▋▌▍▎▏▁▂▃▄▅▆▇░▒▓]+"), "BAR"),
    (re.compile(rf"{NUMBER} ?[KMGT]i?B\b"), "SIZE"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d)?"), "DATE"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "DIGEST"),
    (re.compile(r"[^\s\"]*site-packages/"), "SITE/"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"(?m)^( [a-z]+) \d+\.\d(?= \d+ [a-z]+)"), r"\1 MS"),  # a stage's row (`lowered.Part`)
)  # fmt: skip

# Of a report: how long calls take is known where some were sampled, and the order of kernels is that of their times.
KERNELS = re.compile(r"^(?:slowest )?(kernels)\n(?: .*\n?)*", re.M)
SAMPLED = tuple(
    map(
        re.compile,
        (
            r"; a\s+call (?:of \S+ )?takes TIME(?:, SHARE of it in compiled\s+code)?",
            r",\s+checked in TIME",
            r",\s+TIME per\s+call\s+\(SHARE(?: compiled)?\)",
            r"(?<=guards)\s+\(TIME\)",
        ),
    )
)

# Pages whose programs other tests run, and where.
ELSEWHERE = {"codes.md": "tests/faces/test_code_examples.py"}


@dataclass(frozen=True)
class Block:
    """One block of a page: what to do with it, and the output that the page tells. `span`: where that stands."""

    kind: str  # python, console or file
    body: str
    line: int  # of the page
    name: str = ""
    expected: str | None = None
    span: tuple[int, int] | None = None


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page that are to be run or written."""
    if path.name in ELSEWHERE:
        return []
    text = path.read_text(encoding="utf-8")
    found: list[re.Match[str] | None] = [*FENCE.finditer(text), None]
    blocks = []
    for here, behind in itertools.pairwise(found):
        assert here is not None
        said = SAID.search(text, 0, here.start())
        kind, name = here["kind"], ""
        if said is not None:
            if said["what"] == "not run":
                continue
            kind, name = "file", said["value"]
        elif kind not in ("python", "console"):
            continue
        expected, span = None, None
        if kind == "console":
            expected, span = here["body"], here.span("body")
        elif kind == "python" and _is_output(text, here, behind):
            expected, span = behind["body"], behind.span("body")
        line = text.count("\n", 0, here.start()) + 2
        blocks.append(Block(kind, here["body"], line, name, expected, span))
    return blocks


def _is_output(text: str, here: re.Match, behind: re.Match | None) -> bool:
    return (
        behind is not None
        and behind["kind"] == "text"
        and not text[here.end() : behind.start()].strip()
    )


def _script_of(path: Path) -> str:
    """What the program of a page is called."""
    return "example" if path.stem == "README" else path.stem.replace("-", "_")


def run_page(path: Path, seconds: float = 120) -> list[tuple[Block, str]]:
    """Each block of the page with what it printed, by a process of their own."""
    blocks = blocks_of(path)
    rows = [
        [block.kind, block.body, block.name, block.line, block.expected is not None]
        for block in blocks
    ]
    settings = {"PYTHONHASHSEED": "0", "COLUMNS": "100", "NO_COLOR": "1"}
    # Pages show numbers of calls, which must not depend on times.
    settings["GRAFTJIT_TRIALS"] = "0"
    # What a reader's program has: no checks, unless a page asks for them.
    environment = {
        name: os.environ[name] for name in os.environ if name != "GRAFTJIT_CHECK"
    } | settings
    # The plugin for pytest as an installation has it, also where this checkout was installed before it had one.
    environment["PYTEST_PLUGINS"] = "graftjit_pytest"
    root = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), root)))
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    with tempfile.TemporaryDirectory(prefix="graftjit-page-") as folder:
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).resolve()), "--here", _script_of(path)],
            input=json.dumps(rows), capture_output=True, text=True, check=False, cwd=folder,
            env=environment, timeout=seconds,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{path}: the page's programs did not run:\n{done.stderr[-4000:]}")
    return list(zip(blocks, json.loads(done.stdout), strict=True))


def run_here(name: str) -> int:
    """The inside of that process: rows on its input, what each printed on its output."""
    from graftjit.runtime.process import hardware as device

    # On Intel's processors products are MKL's; the pages show those of all others.
    device.slow_mkl = lambda: device.cpu().isa in device.VECTORS
    rows = json.load(sys.stdin)
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    whole = "\n".join(body for kind, body, *_ in rows if kind == "python")
    Path(f"{name}.py").write_text(whole, encoding="utf-8")  # for those who ask for a source
    printed, at = [], 0
    for kind, body, file, line, shown in rows:
        if kind == "file":
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(body, encoding="utf-8")
            printed.append("")
        elif kind == "console":
            printed.append(_console(body))
        else:
            printed.append(_python("\n" * at + body, module, line, shown))
            at += body.count("\n") + 1
    json.dump([text.replace(os.getcwd(), "/home/me") for text in printed], sys.stdout)
    return 0


def _python(text: str, module: types.ModuleType, line: int, shown: bool) -> str:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(module.__file__), "exec"), module.__dict__)
    except Exception as error:
        if not shown:
            raise RuntimeError(f"the block at line {line} of the page raised") from error
        printed.write(f"{type(error).__name__}: {error}\n")
    return printed.getvalue()


def _console(body: str) -> str:
    """The commands of a block, each with its output."""
    lines = []
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)", body, re.M):
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        lines.append(f"$ {command}\n{done.stdout}")
        if done.stdout and not done.stdout.endswith("\n"):
            lines.append("\n")
        if done.returncode:
            lines.append(f"[exit status {done.returncode}]\n")
    return "".join(lines)


def plain(text: str) -> list[str]:
    """Lines in which what was measured is a word, without what a report has only where calls were sampled."""
    for pattern, word in MEASURED:
        text = pattern.sub(word, text)
    text = KERNELS.sub(r"\1", text)
    for pattern in SAMPLED:
        text = pattern.sub("", text)
    return [line.strip() for line in text.strip("\n").splitlines()]


def agrees(said: Sequence[str], found: Sequence[str]) -> bool:
    """Whether lines are those that a page says. Where a line is broken may hang on how long a time is written, so the
    texts are compared as one line each; `...` in what is said, also as a line of its own, stands for anything."""
    parts = [re.escape(part.strip()) for part in " ".join(said).split("...")]
    return re.fullmatch(r"\s*.*\s*".join(parts), " ".join(found)) is not None


def differences(path: Path) -> list[str]:
    """What a page says otherwise than its programs, as text."""
    seen = []
    for block, found in run_page(path):
        if block.expected is None:
            continue
        said, got = plain(block.expected), plain(found)
        if not agrees(said, got):
            diff = difflib.unified_diff(said, got, "the page says", "is printed", lineterm="", n=2)
            seen.append(f"{path}, block at line {block.line}:\n" + "\n".join(diff))
    return seen


def update(path: Path) -> bool:
    """Write what is printed into the page where that differs from what it says; whether anything did."""
    text = path.read_text(encoding="utf-8")
    new = text
    for block, found in reversed(run_page(path)):
        if block.span is None or agrees(plain(block.expected or ""), plain(found)):
            continue
        new = new[: block.span[0]] + found.strip("\n") + "\n" + new[block.span[1] :]
    if new != text:
        path.write_text(new, encoding="utf-8")
    return new != text


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument(
        "--update", action="store_true", help="write what is printed into the pages"
    )
    parser.add_argument("--here", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        return run_here(given.here)
    if given.update:
        for page in given.pages:
            print(f"{page}: {'changed' if update(page) else 'as it was'}")
        return 0
    seen = [row for page in given.pages for row in differences(page)]
    print("\n\n".join(seen) or "every page says what its programs print")
    return bool(seen)


if __name__ == "__main__":
    sys.exit(main())
