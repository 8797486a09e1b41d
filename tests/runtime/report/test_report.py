"""The report as a pure fold: counts, records, text of one screen, HTML, JSON, files, assertions for CI."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from graftjit.ir.location import Location
from graftjit.runtime.errors import NotClean, OptionError
from graftjit.runtime.events.events import (
    Captured,
    Compiled,
    Counted,
    Fallback,
    FrameSeen,
    GraphBreak,
    GuardLine,
    KernelBuilt,
    RanPlain,
    Recompile,
    Warned,
)
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.report.json_form import LISTS
from graftjit.runtime.report.report import Report, report_of

PROGRAM = """\
def forward(x):
    y = x.relu()
    if y.sum().item() > 0:
        print("<script>alert(1)</script>")
    return y
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / ("a_long_folder_name_" * 6) / "program.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)

    def at(line: int, start: int, end: int) -> Location:
        return Location(str(path), line, line, start, end, "forward")

    return at


@pytest.fixture
def full(program):
    """A capture with two breaks (one met twice), a recompile, a plain frame and a fallback."""
    item, shown = program(3, 7, 21), program(4, 8, 43)
    guard = GuardLine(kind="type", source="x", expected="type(x) is Tensor", where=program(2, 8, 9))
    seconds = (("capture", 0.010), ("build", 0.050))
    capture = dict(frame="forward", graphs=1, nodes=4, calls=3, guards=(guard,), seconds=seconds)
    return Report(
        "forward",
        (
            FrameSeen(frame="forward", where=program(1, 0, 0)),
            GraphBreak(frame="forward", where=item, code="GB104", reason="y.sum().item()"),
            Captured(kind="code", **capture),
            Compiled(frame="forward", nodes=4, kernels=2, library=1),
            KernelBuilt(
                frame="forward", name="fused_relu", bytes=15_000, seconds=0.04, covers=("relu",)
            ),
            GraphBreak(frame="forward", where=shown, code="GB103", reason='print("<script>")'),
            Captured(kind="code", resumed=True, frame="forward"),
            Recompile(
                frame="forward",
                where=program(2, 8, 9),
                code="RC402",
                source="x",
                now="cpu f32[4, 8]",
                before="cpu f32[2, 8]",
            ),
            GraphBreak(frame="forward", where=item, code="GB104", reason="y.sum().item()"),
            Captured(kind="code", **capture),
            RanPlain(frame="helper", where=program(5, 4, 12), code="PL201", reason="a generator"),
            Fallback(frame="forward", code="FB301", reason="w requires a gradient"),
            Fallback(frame="forward", code="FB301", reason="w requires a gradient"),
            Warned(code="WN605", text="no effect"),
            Counted(frame="forward", entries=2, hits=10, misses=2),
        ),
    )


def test_counts_and_records(full):
    assert (full.graph_count, full.break_count, full.recompile_count) == (2, 2, 1)
    first, second = full.breaks
    assert (first.code, first.line, first.column, first.end_column, first.count) == (
        "GB104",
        3,
        7,
        21,
        2,
    )
    assert first.cure and first.cost and first.title and first.function == "forward"
    assert second.code == "GB103" and second.count == 1
    (recompile,) = full.recompiles
    assert (recompile.source, recompile.now, recompile.before) == (
        "x",
        "cpu f32[4, 8]",
        "cpu f32[2, 8]",
    )
    (guard,) = full.guards
    assert guard.text == "type(x) is Tensor" and guard.line == 2
    (kernel,) = full.libraries
    assert kernel.name == "fused_relu" and kernel.covers == ("relu",) and not kernel.cached
    forward, helper = full.frames
    assert (forward.graphs, forward.breaks, forward.recompiles, forward.hits) == (2, 2, 1, 10)
    assert (forward.operators, forward.kernels, forward.library) == (4, 2, 1)
    assert dict(forward.seconds) == pytest.approx({"capture": 0.02, "build": 0.10})
    assert forward.line == 1 and helper.plain == "PL201"
    assert [note.count for note in full.notes] == [1, 2]


def test_text_is_one_screen_with_carets_and_without_addresses(full):
    text = str(full)
    assert text == full.text()
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 100 and len(lines) <= 60
    assert "0x" not in text
    for part in (
        "not clean: 2 graph breaks, 1 frame in plain Python, 1 recompile",
        "4 operators -> 2 kernels + 1 library call",
        "12 calls (10 hits), 1 guard",
        "GB104",
        "x: now cpu f32[4, 8], before cpu f32[2, 8]",
        "PL201",
        "FB301",
    ):
        assert part in text
    at = next(n for n, line in enumerate(lines) if "if y.sum().item()" in line)
    carets = lines[at + 1]
    assert lines[at][carets.index("^") : carets.rindex("^") + 1] == "y.sum().item()"


def test_nothing_captured():
    report = Report("f")
    assert report.graph_count == report.break_count == report.recompile_count == 0
    assert "nothing has been captured" in str(report)
    report.assert_clean()
    assert "Nothing has been captured yet" in report.html()
    assert "Nothing has been captured yet" in report._repr_html_()


def test_json_has_everything(full):
    seen = json.loads(full.json())
    assert seen["graph_count"] == 2 and seen["break_count"] == 2
    assert seen["breaks"][0]["code"] == "GB104" and seen["breaks"][0]["cure"]
    assert {"frames", "breaks", "recompiles", "kernels", "notes", "guards"} <= set(seen)


class _Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)


def test_html_is_balanced_escaped_and_self_contained(full):
    for page in (full.html(), full._repr_html_()):
        parser = _Balanced()
        parser.feed(page)
        assert parser.open == []
        assert "<script>alert" not in page
        # The words of the page itself, and those of the user's program, name no address.
        assert not re.search(
            r"""(src|href)=(?!"#main")|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", page
        )
    assert "script" not in parser.seen and "style" not in parser.seen  # of the notebook's form


def test_scripts_of_the_page_make_no_markup_of_texts():
    folder = Path(__file__).resolve().parents[3] / "runtime/report/html/assets"
    scripts = sorted(folder.glob("*.js"))
    assert len(scripts) > 5
    for path in scripts:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|\.write\(|\beval\b|new Function|fetch\(|XMLHttp|import\(",
            path.read_text(),
        ), path.name


def test_save_by_suffix(full, tmp_path):
    assert full.save(tmp_path / "r.txt").read_text() == full.text() + "\n"
    assert json.loads(full.save(str(tmp_path / "r.json")).read_text())["name"] == "forward"
    assert full.save(tmp_path / "r.HTML").read_text().startswith("<!doctype html>")
    with pytest.raises(OptionError, match=r"\.txt"):
        full.save(tmp_path / "r.pdf")


def test_assert_clean(full, program):
    with pytest.raises(AssertionError) as caught:
        full.assert_clean()
    seen = str(caught.value)
    assert "2 graph breaks (allowed: 0)" in seen and "recompile (" not in seen and "GB104" in seen
    with pytest.raises(NotClean, match="1 recompile \\(allowed: 0\\)"):
        full.assert_clean(max_recompiles=0)
    with pytest.raises(NotClean, match="1 frame in plain Python"):
        full.assert_clean(max_breaks=2, max_recompiles=1)
    without_plain = Report("f", tuple(e for e in full.events if type(e) is not RanPlain))
    without_plain.assert_clean(max_breaks=2, max_recompiles=1)
    with pytest.raises(NotClean):
        without_plain.assert_clean(max_breaks=1, max_recompiles=1)
    Report("f", (RanPlain(frame="f", code="PL204"),)).assert_clean()


def test_report_of_folds_only_its_own():
    one, two = compile("0", "<a>", "eval"), compile("0", "<b>", "eval")
    SESSION.emit(Captured(frame="one", graphs=1), key=one)
    SESSION.emit(Captured(frame="two", graphs=1), key=two)
    SESSION.emit(GraphBreak(frame="two", code="GB103"), key=two)
    report = report_of("one", [one], [Counted(frame="one", hits=3)])
    assert report.graph_count == 1 and report.break_count == 0 and report.frames[0].hits == 3
    assert report_of("both", [one, two]).graph_count == 2


def test_json_is_read_back(full):
    again = Report.from_json(full.json())
    for name in LISTS:
        assert getattr(again, name) == getattr(full, name), name
    assert again.json() == full.json() and again.text() == full.text()
    assert again.events == () and again.graph_count == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}', '{"schema": 1, "frames": [3]}'])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(OptionError):
        Report.from_json(text)


@pytest.mark.parametrize("ours", [False, True])
def test_what_layers_compute_is_told_under_the_line_that_calls_them(ours):
    import torch

    import graftjit

    linear = graftjit.nn.Dense if ours else torch.nn.Linear

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Sequential(linear(4, 8), torch.nn.GELU())

        def forward(self, x):
            return self.up(x) + 1  # the line

    net = graftjit.compile(Net())
    net(torch.ones(2, 4))
    report = net.report()
    files = {place.file for kernel in report.kernels for place in kernel.lines}
    assert files == {__file__}
    (line,) = {place.line for kernel in report.kernels for place in kernel.lines}
    assert "# the line" in Path(__file__).read_text().splitlines()[line - 1]
    torchs = str(Path(torch.__file__).parent)
    assert not any(guard.file.startswith(torchs) for guard in report.guards)
    net.up[0].bias = None
    net(torch.ones(2, 4))
    (recompile,) = net.report().recompiles
    assert (recompile.file, recompile.line) == (__file__, line)


def test_names_that_are_no_text_are_saved(tmp_path):
    where = Location("/odd/\udcff.py", 3, 3, 0, 1, "f")
    report = Report("f", (GraphBreak(frame="f", where=where, code="GB103", reason="\udc80"),))
    for suffix in (".txt", ".html", ".json", ".trace.json"):
        text = report.save(tmp_path / f"r{suffix}").read_text(encoding="utf-8")
        assert text and ("udcff" in text or suffix not in (".txt", ".json"))
    assert Report.from_json(report.json()).breaks == report.breaks


def test_reports_that_were_read_are_not_one_another(full):
    one, other = (Report.from_json(r.json()) for r in (full, Report("forward")))
    assert one != other and one == one and len({one, other}) == 2
