"""The HTML of a report: one self-contained page, and a short form for notebooks.

In: a `report.Report`. Out: text. The page is the template, the style and the scripts under runtime/page, with the
report's data as one JSON block; it asks no network for anything, and its content security policy, which names its
own script by hash, lets nothing else run. Every text of the user's is escaped: by the template where it is HTML, by
`data_block` where it is data; scripts set texts, never markup. Called by `Report.html` and `Report._repr_html_`.
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
# In the order in which they need each other.
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
    """JSON that may stand inside a script element: no text in it can end the element or the line."""
    told = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), default=str)
    for sign in "<>&\u2028\u2029":
        told = told.replace(sign, f"\\u{ord(sign):04x}")
    return _whole(told)


def _finite(value: Any) -> Any:
    """Without the numbers that JSON has no words for: they become 0, "not measured"."""
    if isinstance(value, float):
        return value if math.isfinite(value) else 0.0
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


def _whole(text: str) -> str:
    """Without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def render_page(report: Report) -> str:
    """The page of a report. It opens from a file, alone."""
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
    """The short form for notebooks: the head and what to mend. No script, no style sheet: nothing that could touch the
    notebook around it, and colours that hold on light and dark."""
    return _whole(_compact().render(name=report.name, head=head_of(report)))


@cache
def _compact() -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined).from_string(
        _asset("compact.html")
    )


__all__ = ["Head", "data_block", "render_compact", "render_page"]
