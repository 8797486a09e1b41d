"""The schema of the JSON is written down: names, order and types; and so is the page of the documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graftjit.runtime.report import report_schema
from graftjit.runtime.report.json_form import LISTS
from graftjit.runtime.report.report import Report

KEPT = Path(__file__).with_name("report_schema.json")
PAGE = Path(__file__).parents[3] / "docs" / "report-schema.md"


def _shown(value: dict) -> str:
    """A field a line."""
    records = {
        kind: [" ".join(field) for field in fields] for kind, fields in value["records"].items()
    }
    return json.dumps({**value, "records": records}, indent=1) + "\n"


def test_schema_is_the_one_that_was_written_down(update_golden):
    text = _shown(report_schema.schema())
    if update_golden:
        KEPT.write_text(text)
    assert text == KEPT.read_text(), (
        "the JSON of reports has changed: raise version.SCHEMA if a name went or means something else,"
        " then pytest --update-golden"
    )


def test_page_of_the_documents_is_up_to_date():
    assert PAGE.read_text() == report_schema.markdown(), (
        "python -m graftjit.runtime.report.report_schema > docs/report-schema.md"
    )


def test_all_lists_are_those_of_the_report():
    seen = Report("f").as_dict()
    assert [name for name in seen if type(seen[name]) is list] == list(LISTS)
    for name in LISTS:
        assert getattr(Report("f"), name) == []


@pytest.mark.parametrize("kind", report_schema._kinds(), ids=lambda kind: kind.__name__)
def test_records_have_defaults_and_say_what_they_are(kind):
    made = kind()
    assert made == kind() and kind.__doc__ and kind.__doc__[0].isupper()
