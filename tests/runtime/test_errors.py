"""Errors: their builtin bases, their text, carets under the user's columns; and the table of codes."""

from __future__ import annotations

import linecache
import pickle
import re
from pathlib import Path

import pytest

from graftjit.cli import code_docs
from graftjit.ir.location import Location
from graftjit.runtime import codes, errors
from graftjit.runtime.errors import format_location, source_snippet

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path):
    """A Location in a file with this text; columns from ast, so in UTF-8 bytes."""

    def make(text: str, line: int, start: int | None, end: int | None, end_line: int | None = None):
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        linecache.checkcache(str(path))
        return Location(str(path), line, end_line or line, start, end, "forward")

    return make


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (errors.UserError, TypeError),
        (errors.OptionError, ValueError),
        (errors.BreakError, RuntimeError),
        (errors.BuildError, RuntimeError),
        (errors.InternalError, RuntimeError),
        (errors.CheckError, errors.InternalError),
        (errors.UnsupportedPython, ImportError),
        (errors.NativeMissing, ImportError),
        (errors.NotClean, AssertionError),
    ],
)
def test_bases_codes_and_pickling(cls, base):
    error = cls("it went wrong", expected="this", found="that", todo="the other")
    assert isinstance(error, base) and isinstance(error, errors.GraftError)
    assert error.code in codes.CODES
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and str(again) == str(error) and again.code == error.code
    for part in ("it went wrong", "expected:", "found:", "what to do:", error.code):
        assert part in str(error)


def test_carets_stand_under_the_columns(source):
    where = source("def f(x):\n    y = x.sum().item()  # note\n", 2, 8, 22)
    assert source_snippet(where) == ("y = x.sum().item()  # note", "    ^^^^^^^^^^^^^^")
    text = format_location(where)
    head, line, carets = text.splitlines()
    assert head.endswith('program.py", line 2, in forward')
    assert line[carets.index("^") : carets.rindex("^") + 1] == "x.sum().item()"


def test_columns_count_bytes_and_wide_characters_take_two(source):
    text = 's = "äöü" + foo(1)\n'
    where = source(text, 1, len('s = "äöü" + '.encode()), len('s = "äöü" + foo(1)'.encode()))
    assert source_snippet(where) == (text.strip(), " " * 12 + "^" * 6)
    text = 's = "日本" + foo(1)\n'
    where = source(text, 1, len('s = "日本" + '.encode()), len('s = "日本" + foo(1)'.encode()))
    assert source_snippet(where) == (text.strip(), " " * 13 + "^" * 6)


def test_ranges_over_lines_tabs_and_unknown_columns(source):
    text = "\ty = foo(\n\t\t1)\n"
    assert source_snippet(source(text, 1, 5, 4, end_line=2)) == ("y = foo(", "    ^^^^")
    assert source_snippet(source(text, 1, None, None)) == ("y = foo(", "")


def test_long_lines_are_cut_around_the_carets(source):
    text = "x = [" + ", ".join(f"value_{n}" for n in range(40)) + ", wrong()]\n"
    start = text.index("wrong()")
    line, carets = source_snippet(source(text, 1, start, start + 7), width=60)
    assert len(line) <= 60 and len(carets) <= 60
    assert line[carets.index("^") : carets.rindex("^") + 1] == "wrong()"
    assert line.startswith("...")


def test_lines_that_cannot_be_read_leave_the_head():
    assert format_location(Location("<stdin>", 3, 3, 0, 1, "f")) == '  File "<stdin>", line 3, in f'
    assert format_location(Location("gone.py", None)) == '  File "gone.py", in ?'


# --- the table of codes ---


def test_codes_are_unique_and_complete():
    ids = [row.id for row in codes._TABLE]
    assert len(ids) == len(set(ids)) == len(codes.CODES)
    for row in codes._TABLE:
        assert re.fullmatch(r"[A-Z]{2}\d{3}", row.id)
        assert row.title and row.why and row.cure
        assert row.id.startswith(codes.family(row.id).prefix)


def test_every_code_named_in_the_library_is_in_the_table():
    prefixes = "|".join(family.prefix for family in codes.FAMILIES)
    named = re.compile(rf"""["']((?:{prefixes})\d{{3}})["']""")
    for package in ("ir", "runtime", "codegen", "capture", "graftjit"):
        for path in (ROOT / package).rglob("*.py"):
            unknown = set(named.findall(path.read_text(encoding="utf-8"))) - set(codes.CODES)
            assert not unknown, f"{path}: {unknown} are not in runtime/codes.py"


def test_docs_are_up_to_date():
    """If this fails: python -m graftjit codes --markdown > docs/codes.md"""
    assert (ROOT / "docs" / "codes.md").read_text(encoding="utf-8") == code_docs.page()


def test_unknown_codes_do_not_fail():
    assert codes.lookup("XX999").title == "unknown code"
    assert codes.family("XX999").prefix == "XX"


def test_a_native_part_of_other_sources_is_told_at_import():
    from graftjit.runtime import _native
    from graftjit.runtime.process import native_loader as native_part

    native_part.require_these_sources(_native.SOURCES)
    with pytest.raises(errors.NativeMissing, match="other sources"):
        native_part.require_these_sources("00000000")
