"""The text report: whole texts of made-up reports, what is grouped and what comes first, colour, places, widths."""

from __future__ import annotations

import io
import linecache
import re

import pytest

from graftjit.runtime.report import source_lines as text_places
from graftjit.runtime.report import styled_text as text_layout
from graftjit.runtime.report.records import (
    BreakRecord,
    FrameRecord,
    GuardRecord,
    Place,
    RecompileRecord,
    SymbolicRecord,
)
from graftjit.runtime.report.text import colour as text_colour

from . import made_up_reports as made

ESCAPE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The made-up program as a file of the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(made.SOURCE, encoding="utf-8")
    linecache.checkcache(str(path))
    return str(path)


@pytest.mark.parametrize("verbosity", range(4))
@pytest.mark.parametrize("name", ["clean", "full"])
def test_whole_texts(name, verbosity, file, golden):
    text = getattr(made, name)(file).text(verbosity=verbosity) + "\n"
    golden(f"report/{name}_{verbosity}.txt", text)


@pytest.mark.parametrize("width", [40, 60, 79, 100, 140])
@pytest.mark.parametrize("name", ["clean", "full"])
def test_no_line_is_wider_than_asked(name, width, file):
    for verbosity in range(3):
        for seen in getattr(made, name)(file).text(width, verbosity).splitlines():
            assert text_layout.columns(seen) <= width, seen


def test_a_clean_report_is_a_few_lines_and_a_full_one_a_screen(file):
    assert len(made.clean(file).text(verbosity=0).splitlines()) == 2
    assert len(made.clean(file).text().splitlines()) <= 14
    assert len(made.full(file).text().splitlines()) <= 70
    assert "clean" in made.clean(file).text(verbosity=0)


def test_what_costs_most_comes_first(file):
    text = made.full(file).text()
    assert text.index("RC403") < text.index("GB104") < text.index("GB103") < text.index("FB301")
    dear = [
        BreakRecord(file=file, line=n, code="GB103", title="t", seconds=n * 1e-6) for n in (1, 5, 3)
    ]
    seen = made.made_up(frames=[FrameRecord(frame="f", graphs=2)], breaks=dear).text()
    assert re.findall(r"line (\d)", seen) == ["5", "3", "1"]


def storm(count: int, **fields) -> list[RecompileRecord]:
    texts = dict(code="RC402", title="tensor changed", frame="f", source="x", cure="pad") | fields
    return [
        RecompileRecord(now=f"cpu f32[{n + 3}, 8]", before=f"cpu f32[{n + 2}, 8]", **texts)
        for n in range(count)
    ]


def test_a_storm_of_recompiles_is_one_entry():
    frames = [FrameRecord(frame="f", graphs=51)]
    text = made.made_up(frames=frames, recompiles=storm(50)).text()
    assert text.count("RC402") == 1 and "50 recompiles" in text
    assert "x.shape[0]: 2, 3, 4, 5, 6, 7, 8, 9 and 43 more" in text


def test_recompiles_for_what_is_an_input_now_are_over():
    frames = [FrameRecord(frame="f", graphs=2)]
    symbols = [SymbolicRecord(frame="f", source="x.shape[0]", why="seen with 2 and 3")]
    text = made.made_up(frames=frames, recompiles=storm(1), symbolic=symbols).text()
    assert "RC402" not in text and "clean: no graph breaks" in text
    assert "x.shape[0] in f: an input of the graph, seen with 2 and 3, after 1 recompile" in text
    # Another dtype, another dimension, another frame are not over.
    other = [
        RecompileRecord(code="RC402", frame="f", source="x", now="cpu f64[2, 8]", before="cpu f32[2, 8]"),
        RecompileRecord(code="RC402", frame="f", source="x", now="cpu f32[2, 9]", before="cpu f32[2, 8]"),
        *storm(1, frame="g"),
        RecompileRecord(code="RC403", frame="f", source="x.shape[0]", now="a str", before="3"),
    ]  # fmt: skip
    text = made.made_up(frames=frames, recompiles=other, symbolic=symbols).text()
    assert text.count("RC40") == len(other) - 1 and "clean" not in text.replace("not clean", "")


def test_what_needs_no_cure_does_not_hold_back():
    cure = "none, if the first call fills it and it then stays the same"
    recompiles = [
        RecompileRecord(code="RC405", frame="f", source="state", now="[1]", before="[]", cure=cure)
    ]
    report = made.made_up(frames=[FrameRecord(frame="f", graphs=2)], recompiles=recompiles)
    assert "compiled again, as expected" in report.text()
    assert "holds it back" not in report.text()


def test_breaks_of_one_line_are_mended_together(file):
    breaks = [
        BreakRecord(
            **made.at(file, 10, text),
            code="GB123",
            title="numpy",
            reason=text,
            cure=f"cure of {text}",
        )
        for text in ("self.norm(h)", "名前.softmax(-1)")
    ]
    text = made.made_up(frames=[FrameRecord(frame="f", graphs=1)], breaks=breaks).text()
    assert text.count("GB123") == 1 and "GB123 2 graph breaks: numpy" in text
    assert "what  self.norm(h); 名前.softmax(-1)" in text
    carets = next(seen for seen in text.splitlines() if re.fullmatch(r"[ ^]*\^", seen))
    assert carets.split() == [
        "^" * len("self.norm(h)"),
        "^" * text_layout.columns("名前.softmax(-1)"),
    ]
    # The same line in two files is not one.
    breaks.append(BreakRecord(file="other.py", line=10, code="GB123", title="numpy"))
    text = made.made_up(frames=[FrameRecord(frame="f", graphs=1)], breaks=breaks).text()
    assert "not clean: 3 graph breaks" in text and text.count("GB123") == 2


def test_one_line_in_two_frames_is_one_break(file):
    place = made.at(file, 7, "h.mean().item()")
    inlined = (Place(**made.at(file, 5, "def forward")),)
    breaks = [
        BreakRecord(**place, code="GB104", frame="outer", title="t", inlined=inlined),
        BreakRecord(**place, code="GB104", frame="inner", title="t"),
    ]
    text = made.made_up(frames=[FrameRecord(frame="outer", graphs=1)], breaks=breaks).text()
    assert text.count("GB104") == 1 and "1 graph break" in text
    assert "def forward(self, x, limit):" in text


def test_lines_of_torch_on_the_way_to_the_users_are_left_out(file):
    import torch

    within = Place(torch.nn.Module.__init__.__code__.co_filename, 500, function="Module.__init__")
    record = BreakRecord(file=file, line=7, code="GB104", title="t", inlined=(within,))
    text = made.made_up(frames=[FrameRecord(frame="f", graphs=1)], breaks=[record]).text()
    assert "module.py" not in text and "model.py" in text


def test_more_problems_than_a_screen_holds_are_a_line_each(file):
    breaks = [
        BreakRecord(**made.at(file, 6, "self.first"), code=f"GB1{n:02}", title=f"number {n}", cure="fix it")
        for n in range(60)
    ]  # fmt: skip
    report = made.made_up(frames=[FrameRecord(frame="f", graphs=1)], breaks=breaks)
    text = report.text()
    assert len(text.splitlines()) <= 60 and "more: verbosity=2 has all" in text
    assert "number 0" in text and "number 59" not in text
    assert report.text(verbosity=2).count("fix it") == 60


def test_no_addresses():
    now = "<function f at 0x7f3a12cd9bd0>"
    records = [
        RecompileRecord(
            code="RC404", frame="f", source="g", now=now, before="<A object at 0x55d2a3b1>"
        )
    ]
    guards = [GuardRecord(frame="f", source="g", text=f"g is {now}")]
    report = made.made_up(
        frames=[FrameRecord(frame="f", graphs=1)], recompiles=records, guards=guards
    )
    text = report.text(verbosity=3)
    assert "0x" not in text and "now <function f>, before <A>" in text


def test_a_guard_tree_joins_what_does_not_fork():
    paths = [("self", ".layers", "[0]", ".weight"), ("self", ".layers", "[0]", ".bias"), ("x",)]
    guards = [
        GuardRecord(frame="f", source="".join(path), path=path, text=f"condition {n}")
        for n, path in enumerate(paths)
    ]
    guards.append(GuardRecord(frame="f", source="y", path=("y",), text="y: cpu f32[4]"))
    guards.append(GuardRecord(frame="f", text="interpreter state is unchanged"))
    report = made.made_up(frames=[FrameRecord(frame="f", graphs=1)], guards=guards)
    tree = report.text(verbosity=2).partition("\nguards\n")[2]
    assert tree.splitlines() == [
        "  f: 5 guards",
        "    self.layers[0]",
        "      .weight: condition 0",
        "      .bias: condition 1",
        "    x: condition 2",
        "    y: cpu f32[4]",
        "    interpreter state is unchanged",
    ]


# -- Colour ------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def test_text_has_escapes_only_when_asked(file, plain_environment):
    plain_environment.setenv("FORCE_COLOR", "1")
    report = made.full(file)
    assert "\x1b" not in str(report) + report.text() + report.text(colour=False)
    coloured = report.text(colour=True)
    assert "\x1b[" in coloured and ESCAPE.sub("", coloured) == report.text()


@pytest.mark.parametrize(
    ("stream", "settings", "expected"),
    [
        (Terminal, {}, True),
        (io.StringIO, {}, False),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (Terminal, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Terminal, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_colour_where_it_may_be(stream, settings, expected, file, plain_environment):
    for name, value in settings.items():
        plain_environment.setenv(name, value)
    out = stream()
    made.full(file).show(out)
    assert ("\x1b[" in out.getvalue()) is expected
    assert ESCAPE.sub("", out.getvalue()).startswith("graftjit report: Classifier.forward\n")


def test_show_writes_to_standard_output_and_in_the_width_of_the_terminal(
    file, plain_environment, capsys
):
    report = made.full(file)
    report.show()
    assert capsys.readouterr().out == report.text() + "\n"
    plain_environment.setenv("COLUMNS", "60")
    out = Terminal()
    report.show(out)
    assert max(map(text_layout.columns, ESCAPE.sub("", out.getvalue()).splitlines())) <= 60


def test_characters_that_a_stream_lacks_are_written_as_escapes(file, plain_environment):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    made.full(file).show(out)
    assert b"\\u65e5" in out.buffer.getvalue()


def test_a_stream_that_is_closed_has_no_colour(plain_environment):
    closed = io.StringIO()
    closed.close()
    assert not text_colour.wanted(closed) and not text_colour.wanted(None)


# -- Places ------------------------------------------------------------------------------------------


def shown(place: Place, width: int = 100) -> list[str]:
    return [text_layout.plain(spans) for spans in text_places.snippet(place, width, "")]


def under(lines: list[str]) -> str:
    """What the carets stand under, by columns of a terminal."""
    _where, text, carets = lines
    start, end = carets.index("^"), carets.rindex("^") + 1
    at, found = 0, ""
    for character in text:
        found += character if start <= at < end else ""
        at += text_layout.columns(character)
    return found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('名前 = foo(1); print("日本語", 名前)', 'print("日本語", 名前)'),
        ('s = "👍🏽 é"; y = x.item()', "x.item()"),
        ('s = "' + "界" * 80 + '"; y = x.item()', "x.item()"),
        ("y = " + "a + " * 60 + "x.item() + " + "b + " * 60 + "1", "x.item()"),
    ],
)
def test_carets_stand_under_wide_characters_and_in_long_lines(text, part, tmp_path):
    path = tmp_path / "wide.py"
    path.write_text(f"def f(x):\n    {text}\n", encoding="utf-8")
    start = len(f"    {text[: text.index(part)]}".encode())
    place = Place(str(path), 2, 2, start, start + len(part.encode()), "f")
    lines = shown(place, 80)
    assert all(text_layout.columns(seen) <= 80 for seen in lines)
    assert under(lines) == part


def test_a_file_of_another_encoding(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes("# -*- coding: latin-1 -*-\ns = 'Grüße'; y = x.item()\n".encode("latin-1"))
    start = len("s = 'Grüße'; y = ".encode())  # columns count UTF-8 bytes whatever the file has
    assert under(shown(Place(str(path), 2, 2, start, start + 8, "f"))) == "x.item()"


def test_lines_that_cannot_be_read_have_their_place_alone(tmp_path):
    assert shown(Place("<string>", 3, 3, 0, 4, "f")) == ['File "<string>", line 3, in f']
    assert len(shown(Place(str(tmp_path / "gone.py"), 3, 3, 0, 4, "f"))) == 1
    assert shown(Place()) == []


def test_code_of_exec_that_is_registered_is_shown():
    name = "<made for this test>"
    linecache.cache[name] = (10, None, ["y = x.item()\n"], name)
    try:
        assert shown(Place(name, 1, 1, 4, 12, "f"))[1:] == ["  y = x.item()", "      ^^^^^^^^"]
    finally:
        del linecache.cache[name]


def test_a_cell_of_a_notebook_goes_by_its_number(monkeypatch):
    class Compile:
        def format_code_name(self, name):
            return ("Cell", "In[3]") if name == "/tmp/ipykernel_17/99.py" else None

    class Shell:
        compile = Compile()

    class IPython:
        get_ipython = staticmethod(Shell)

    monkeypatch.setitem(text_places.sys.modules, "IPython", IPython)
    assert shown(Place("/tmp/ipykernel_17/99.py", 2, function="f")) == [
        'File "In[3]", line 2, in f'
    ]
    assert "other.py" in shown(Place("other.py", 2, function="f"))[0]


# -- Numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ns"), (5e-9, "5 ns"), (9.996e-7, "1.00 us"), (1.234e-5, "12.3 us"), (4.12e-4, "412 us"),
     (9.9996e-4, "1.00 ms"), (0.05, "50.0 ms"), (1.25, "1.25 s"), (75.0, "75.0 s")],
)  # fmt: skip
def test_durations(seconds, text):
    assert text_layout.duration(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0 %"), (0.001, "<1 %"), (0.414, "41 %"), (0.997, "99 %"), (1, "100 %")])  # fmt: skip
def test_percentages(share, text):
    assert text_layout.percent(share) == text


def test_counts():
    assert text_layout.counted(1, "guard") == "1 guard"
    assert text_layout.counted(2, "entry") == "2 entries"
    assert text_layout.counted(3, "library call") == "3 library calls"


def test_numbers_stay_with_their_units():
    for width in range(12, 40):
        for spans in text_layout.wrap(["takes 412 us a call, 41 % (3.5 ms); 16.0 KiB"], width):
            seen = text_layout.plain(spans)
            assert not re.search(r"[\d.]$", seen) and not re.match(r"(us|ms|%|KiB)", seen)
