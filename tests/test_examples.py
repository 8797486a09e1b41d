"""The programs of examples/: the text of a report is enough to find what holds them back and to fix it.

For each: before.py and after.py give the values of plain Python, and of each other; the report of before.py names the
line, the code and the cure; that of after.py is clean; README.md shows the reports as they are.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

import graftjit

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"

spec = importlib.util.spec_from_file_location("compare", EXAMPLES / "compare.py")
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)

# What the report of before.py has to say: (code, the marked code, part of the cure).
PROBLEMS = {
    "transformers_model": [("GB104", "mask.sum(dim=1).tolist()", "masks, indexing and reductions")],
    "training_step": [
        ("GB105", "loss.item() > 100", "torch.where"),
        ("GB114", "loss.backward()", "fix the breaks before this line"),
    ],
    "shape_storm": [
        ("RC405", "length not in self.masks", "compute its values again"),
        ("RC411", "length not in self.masks", "looked up or compared as a number"),
    ],
    "changing_attribute": [("RC405", "torch.stack(self.seen)", "keep a sum and a count")],
    "numpy_conversion": [
        ("GB104", "np.multiply.outer(times.numpy(), self.frequencies)", "stay with torch"),
        ("GB123", "torch.from_numpy(np.concatenate([np.sin(phases), np.cos(phases)], axis=1))",
         "use torch.sin; use torch.cos; use torch.cat"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(our_products):
    """name, "before" or "after" -> (results, the report), each run once."""
    kept = {}

    def run(name: str, which: str):
        if (name, which) not in kept:
            program = compare.load(name, which)
            call = compare.compiled(program.make())
            results = compare.results(program, call)
            plain = compare.results(program, program.make())
            torch.testing.assert_close(results, plain, rtol=1e-4, atol=1e-5)
            kept[name, which] = plain, graftjit.report(call)
        return kept[name, which]

    return run


def test_each_example_is_held():
    assert sorted(PROBLEMS) == compare.NAMES


def items(text: str) -> list[str]:
    """The numbered problems of a report."""
    body = text.partition("what holds it back, most expensive first\n")[2].partition("\n\n")[0]
    return re.split(r"^ *\d+\. ", body, flags=re.MULTILINE)[1:]


def marked(item: str) -> str:
    """What the carets of a problem stand under."""
    lines = item.splitlines()
    at = next(n for n, seen in enumerate(lines) if re.fullmatch(r"[ ^]*\^", seen))
    carets = lines[at]
    return lines[at - 1][carets.index("^") : len(carets)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_report_names_line_code_and_cure(name, ran, monkeypatch):
    monkeypatch.chdir(ROOT)
    _values, report = ran(name, "before")
    source = (EXAMPLES / name / "before.py").read_text().splitlines()
    found = items(report.text())
    for code, text, cure in PROBLEMS[name]:
        (item,) = [
            i
            for i in found
            if i.startswith(code) and any("^" in x for x in i.splitlines()) and marked(i) == text
        ]
        (number,) = [n for n, line in enumerate(source, 1) if text in line]
        assert f'File "examples/{name}/before.py", line {number}, in' in item
        assert cure in " ".join(item.partition("cure ")[2].split())
    with pytest.raises(AssertionError, match="not clean"):
        report.assert_clean()


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_follows_the_cure_is_clean_and_gives_the_same(name, ran):
    before, _report = ran(name, "before")
    after, report = ran(name, "after")
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    report.assert_clean()
    seen = report.text()
    assert "\n  clean: no graph breaks" in seen and len(seen.splitlines()) < 50


# -- What README.md shows ----------------------------------------------------------------------------

_BLOCK = re.compile(r"<!-- report of (\w+)/(\w+) -->\n```text\n(.*?)```\n", re.DOTALL)


def head(report) -> str:
    """The report up to its lists of frames and kernels."""
    return re.split(r"\n\n(?:frames|kernels|slowest kernels)\n", report.text())[0] + "\n"


def without_figures(text: str) -> list[str]:
    """Times and counts are of a machine and a version of torch; what is measured decides the order."""
    text = re.sub(r", [\d.<]+ \w+ (per call( \([^)]*\))?|so far)", "", " ".join(text.split()))
    text = re.sub(r"; a call.*? compiled code", "", text)
    text = re.sub(
        r"(, checked in|,)? [\d.]+ [mun]?s\b( of it for tensor values)?", "", text
    )  # measured in this run, or not yet
    return sorted(
        re.sub(r"(?<![\w.])[\d.]+(?!\w)", "N", part) for part in re.split(r" \d+\. ", text)
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_shows_the_reports(name, ran, monkeypatch, update_golden):
    monkeypatch.chdir(ROOT)
    page = README.read_text(encoding="utf-8")
    blocks = {which: text for of, which, text in _BLOCK.findall(page) if of == name}
    assert sorted(blocks) == ["after", "before"]
    for which, text in blocks.items():
        now = head(ran(name, which)[1])
        if update_golden:
            page = page.replace(
                f"{name}/{which} -->\n```text\n{text}", f"{name}/{which} -->\n```text\n{now}"
            )
            README.write_text(page, encoding="utf-8")
        else:
            assert without_figures(text) == without_figures(now), (
                "pytest --update-golden writes it anew"
            )
