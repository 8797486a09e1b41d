"""The HTML of a report: one self-contained page, and a short form for notebooks.

In: a `report.Report`. Out: text. The page consists of the template, styles and scripts in
`assets/`, and the report's data as one JSON block. It makes no network requests, and its content
security policy, which contains the hash of its script, forbids any other script. All user text is
escaped: by the template in HTML, by `data_block` in data. Scripts set text, never markup.
`Report.html` and `Report._repr_html_` call this module.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...version import VERSION
from .data import page_data
from .head import Head, head_of

if TYPE_CHECKING:
    from ..report import Report

_FOLDER = Path(__file__).resolve().parent / "assets"
_STYLES = ("page.css", "source.css", "views.css")
# In the order of their dependencies.
_SCRIPTS = (
    "base.js",
    "model.js",
    "table.js",
    "source.js",
    "layout.js",
    "graph.js",
    "kernels.js",
    "guards.js",
    "moments.js",
    "details.js",
    "search.js",
    "main.js",
)

_TABS = (
    ("summary", "Summary"),
    ("source", "Source"),
    ("graph", "Graph"),
    ("kernels", "Kernels"),
    ("guards", "Guards"),
    ("recompiles", "Recompiles"),
    ("timeline", "Timeline"),
)


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False).from_string(
        _asset("page.html")
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def data_block(data: Any) -> str:
    """JSON for a script element. No text in it can end the element or the line."""
    text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), default=str)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return _whole(text)


def _finite(value: Any) -> Any:
    """The value with 0 ("not measured") for numbers that JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else 0.0
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


def _whole(text: str) -> str:
    """The text without unpaired surrogates, which UTF-8 cannot represent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def render_page(report: Report) -> str:
    """The page of a report. It opens from a file without any other file."""
    from markupsafe import Markup

    data = page_data(report)
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "\n})();"
    style = "\n".join(_asset(name) for name in _STYLES)
    counts = {
        "graph": len(data["graphs"]),
        "kernels": len(data["kernels"]),
        "guards": len(report.guards),
        "recompiles": len(report.recompiles),
    }
    tabs = [{"key": key, "title": title, "count": counts.get(key)} for key, title in _TABS]
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _template().render(
        name=report.name,
        version=VERSION,
        head=head_of(report),
        tabs=tabs,
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        data=Markup(data_block(data)),
    )
    return _whole(page)


def render_compact(report: Report) -> str:
    """The short form for notebooks: the head and the problems. It contains neither scripts nor
    style sheets, so it cannot affect the notebook, and its colours suit light and dark themes."""
    return _whole(_compact().render(name=report.name, head=head_of(report)))


@cache
def _compact() -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined).from_string(
        _asset("compact.html")
    )


__all__ = ["Head", "data_block", "render_compact", "render_page"]
