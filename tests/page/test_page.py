"""The page of a report in a real browser: its links, tabs, tables, keys and colours; and what it must never do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graftjit.runtime.report.records import (
    BreakRecord,
    FrameRecord,
    GraphRecord,
    GuardRecord,
    KernelRecord,
    NodeRecord,
    Place,
    RecompileRecord,
)
from graftjit.runtime.report.report import Report

from ..runtime.report.made_up_reports import made_up
from .made_up import PROGRAM, classifier, huge

TABS = ("summary", "source", "graph", "kernels", "guards", "recompiles", "timeline")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    path = tmp_path / "classifier.py"
    path.write_text(PROGRAM)
    return classifier(str(path))


def tab(page: Any, name: str) -> None:
    page.click(f"#tab-{name}")
    page.wait_for_selector(f"#panel-{name}", state="visible")


def line(page: Any, number: int) -> Any:
    return page.locator(f'.row[data-line$=":{number}"]')


def rows(page: Any, panel: str, column: int) -> list[str]:
    found = page.locator(f"#panel-{panel} .table >> nth=0").locator(
        f"tbody tr td:nth-child({column})"
    )
    return [text.strip() for text in found.all_inner_texts()]


# -- Links, both ways --------------------------------------------------------------------------------


def test_a_line_lights_up_its_nodes_and_kernels(opened, report):
    page = opened(report)
    tab(page, "source")
    line(page, 16).locator(".number").click()
    assert "is-chosen" in line(page, 16).get_attribute("class")
    assert page.locator("#details h2").inner_text() == "classifier.py:16"
    assert page.locator("#details [data-go^='kernel ']").count() == 8
    tab(page, "kernels")
    lit = page.locator("#panel-kernels tr.is-linked td:first-child").all_inner_texts()
    assert sorted(lit) == sorted([f"{name}_{n}" for name in ("mm_up", "k_gelu") for n in range(4)])
    tab(page, "graph")
    boxes = page.locator(".box.is-linked")
    assert {"addmm", "gelu"} == {
        boxes.nth(n).get_attribute("aria-label").split(",")[0] for n in range(boxes.count())
    }


def test_a_kernel_leads_to_its_source_its_lines_and_its_nodes(opened, report):
    page = opened(report)
    tab(page, "kernels")
    page.click("#panel-kernels button:text-is('k_gelu_1')")
    details = page.locator("#details")
    assert details.locator("h2").inner_text() == "k_gelu_1"
    assert "void k_gelu_1(" in details.locator(".code").inner_text()
    assert details.locator(".code .k").count() >= 2  # highlighted
    assert "a product of the library reads it whole" in details.inner_text()
    details.locator("[data-see='source']").click()
    assert page.locator("#panel-source").is_visible()
    assert "is-linked" in line(page, 16).get_attribute("class")
    assert "is-linked" not in line(page, 17).get_attribute("class")
    page.locator("#details [data-see='graph']").click()
    assert page.locator(".box.is-chosen").get_attribute("aria-label").startswith("gelu")


def test_a_node_leads_to_its_line_and_kernel(opened, report):
    page = opened(report)
    tab(page, "graph")
    page.click("#grouped")
    page.locator(".box[aria-label^='native_layer_norm']").first.click()
    details = page.locator("#details")
    assert details.locator("h2").inner_text() == "norm_0"
    assert details.locator("[data-go^='kernel ']").first.inner_text() == "k_norm_0"
    details.locator("[data-go^='line ']").first.click()
    assert "is-chosen" in line(page, 15).get_attribute("class")


def test_a_box_opens_to_its_operators(opened, report):
    page = opened(report)
    tab(page, "graph")
    box = page.locator(".box[aria-label^='add, mul']").first
    assert box.get_attribute("aria-expanded") == "false"
    box.dblclick()
    assert page.locator(".box[aria-expanded='true'] .inner").count() == 2
    page.locator(".inner").first.click()
    assert page.locator("#details h2").inner_text() == "mul_0"


def test_the_drawing_gets_larger_and_smaller(opened, report):
    page = opened(report)
    tab(page, "graph")
    box = page.locator(".box").first
    before = box.bounding_box()["width"]
    page.click("[aria-label='Larger']")
    assert page.locator(".box").first.bounding_box()["width"] > before
    page.click("[aria-label='Smaller']")
    page.click("[aria-label='Smaller']")
    assert page.locator(".box").first.bounding_box()["width"] < before


def test_what_to_do_leads_to_the_break(opened, report):
    page = opened(report)
    assert "93" in page.locator("h1").inner_text()
    page.locator(".card[data-kind='break'] button.place").click()
    assert page.locator("#panel-source").is_visible()
    story = page.locator("details.story[open]")
    assert "torch.where" in story.inner_text() and "170 us per call" in story.inner_text()
    carets = page.locator(".marks .carets").inner_text()
    assert carets.strip() == "^" * 19
    text = line(page, 31).locator(".text").inner_text()
    assert text[carets.index("^") :][:19] == "scores.max().item()"


def test_the_address_leads_back(opened, report):
    page = opened(report)
    tab(page, "kernels")
    page.click("#panel-kernels button:text-is('k_add_2')")
    fragment = page.evaluate("location.hash")
    again = opened(report, fragment=fragment)
    assert again.locator("#panel-kernels").is_visible()
    assert again.locator("#details h2").inner_text() == "k_add_2"
    wrong = opened(report, fragment="#kernels/kernel/99999")
    assert wrong.locator("#panel-kernels").is_visible() and wrong.locator("#details").is_hidden()


# -- Heat --------------------------------------------------------------------------------------------


def test_lines_tell_how_they_run_and_for_how_long(opened, report):
    page = opened(report)
    tab(page, "source")
    for number, state in ((16, "compiled"), (31, "broken"), (33, "resumed")):
        assert state in line(page, number).get_attribute("class").split()
    assert not {"compiled", "broken", "resumed"} & set(
        line(page, 12).get_attribute("class").split()
    )
    width = {
        n: line(page, n).locator(".heat i").evaluate("e => e.getBoundingClientRect().width")
        for n in (15, 16, 17)
    }
    assert width[16] > width[17] > width[15] > 0
    assert "graph break" in line(page, 31).locator("button").get_attribute("aria-label")


# -- Tabs, tables, search, keys ----------------------------------------------------------------------


def test_tabs_by_mouse_and_by_keys(opened, report):
    page = opened(report)
    for name in TABS:
        tab(page, name)
        assert page.locator("[role=tabpanel]:visible").count() == 1
        chosen = page.locator("[role=tab][aria-selected=true]")
        assert chosen.count() == 1 and chosen.get_attribute("id") == f"tab-{name}"
        assert chosen.get_attribute("tabindex") in (None, "0")
    page.focus("#tab-timeline")
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-summary").is_visible()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#panel-timeline").is_visible()
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.id") == "tab-summary"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-timeline"
    page.keyboard.press("3")
    assert page.locator("#panel-graph").is_visible()


def test_tables_sort_by_mouse_and_by_keys(opened, report):
    page = opened(report)
    tab(page, "kernels")
    heads = page.locator("#panel-kernels th").all_inner_texts()
    time = next(n for n, text in enumerate(heads, 1) if text.startswith("Time"))
    table = page.get_by_role("region", name="Kernels and library calls")
    name = table.locator("th button:text-is('Kernel')")
    name.click()
    assert rows(page, "kernels", 1) == sorted(rows(page, "kernels", 1))
    assert page.locator("#panel-kernels th[aria-sort=ascending]").count() == 1
    name.press("Enter")
    assert rows(page, "kernels", 1) == sorted(rows(page, "kernels", 1), reverse=True)
    table.locator("th button:text-is('Time')").press("Space")
    assert (
        rows(page, "kernels", time)[0] == "260 us" and rows(page, "kernels", time)[-1] == "3.00 us"
    )
    assert page.locator("#panel-kernels th[aria-sort=descending]").inner_text().startswith("Time")


def test_tables_are_filtered(opened, report):
    page = opened(report)
    tab(page, "kernels")
    page.fill("[aria-label='Filter Kernels and library calls']", "gelu 2048")
    assert rows(page, "kernels", 1) == [f"k_gelu_{n}" for n in range(4)]
    assert "4 of 22" in page.locator("#panel-kernels [role=status]").first.inner_text()


def test_search_finds_lines_kernels_and_guards(opened, report):
    page = opened(report)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("gelu")
    kinds = page.locator("#found li span:first-child").all_inner_texts()
    assert {"line", "kernel", "node"} <= set(kinds)
    assert page.locator("#search").get_attribute("aria-expanded") == "true"
    page.fill("#search", "self.temperature ==")
    page.keyboard.press("Enter")
    assert page.locator("#panel-guards").is_visible()
    page.keyboard.press("/")
    page.fill("#search", "nothing of the kind")
    assert "Nothing found" in page.locator("#found").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()


def test_keys_walk_through_breaks(opened, tmp_path):
    page = opened(huge(_long(tmp_path), kernels=20, breaks=3))
    page.keyboard.press("j")
    assert page.locator("#panel-source").is_visible()
    assert "is-linked" in line(page, 2).get_attribute("class")
    page.keyboard.press("j")
    assert "is-linked" in line(page, 6).get_attribute("class")
    page.keyboard.press("k")
    assert "is-linked" in line(page, 2).get_attribute("class")
    page.keyboard.press("Escape")
    assert page.locator(".row.is-linked, .row.is-chosen").count() == 0
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()


def test_boxes_by_keys(opened, report):
    page = opened(report)
    tab(page, "graph")
    page.locator(".box[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("addmm")
    assert page.locator("#details h2").inner_text() == "mm_up_0"


def test_guards_are_a_tree(opened, report):
    page = opened(report)
    tab(page, "guards")
    tree = page.locator(".tree")
    assert "self.temperature == 1.0" in tree.inner_text() and ".up" not in tree.inner_text()
    tree.locator("summary", has_text=".blocks").click()
    tree.locator("summary", has_text="[2]").click()
    tree.locator("summary", has_text=".up").click()
    tree.get_by_text("self.blocks[2].up.weight is cpu f32[512]").wait_for()
    page.fill("[aria-label='Filter guards']", "[3] norm bias")
    assert "self.blocks[3].norm.bias" in tree.inner_text() and "[2]" not in tree.inner_text()
    tree.locator(".link").first.click()
    assert page.locator("#panel-source").is_visible()


def test_recompiles_tell_now_and_before(opened, report):
    page = opened(report)
    tab(page, "recompiles")
    assert rows(page, "recompiles", 2) == ["1.1", "1.2", "1.3"]
    assert rows(page, "recompiles", 3) == ["1.0", "1.1", "1.2"]
    assert page.locator("#panel-recompiles svg .lane-recompile").count() == 3
    tab(page, "timeline")
    assert page.locator("#panel-timeline svg .lane").count() == 10


def test_light_and_dark(opened, report):
    page = opened(report)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    button = page.get_by_role("button", name="Dark colours")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.evaluate(colour) != before and button.get_attribute("aria-pressed") == "true"
    page.keyboard.press("t")
    assert page.evaluate(colour) == before
    dark = opened(report, theme="dark")
    assert dark.evaluate(colour) != before
    assert dark.get_by_role("button", name="Dark colours").get_attribute("aria-pressed") == "true"


# -- Names, widths, paper ----------------------------------------------------------------------------

UNNAMED = """() => [...document.querySelectorAll('button, a, input, select, [role=button], [role=tab], [role=img], [role=region], [role=group], summary')]
  .filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim()))
  .map((e) => e.outerHTML.slice(0, 120))"""
TWICE = """() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id); return ids.filter((id, n) => ids.indexOf(id) !== n); }"""


def test_everything_has_a_name_and_a_role(opened, report):
    page = opened(report)
    assert (
        page.get_by_role("tab").count()
        == len(TABS)
        == page.get_by_role("tablist").locator("button").count()
    )
    for name in TABS:
        tab(page, name)
        assert page.get_by_role("tabpanel").get_attribute("aria-labelledby") == f"tab-{name}"
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(TWICE) == []
    page.keyboard.press("1")
    page.locator("body").press("Tab")
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("link", name="Skip to the report").get_attribute("href") == "#main"


@pytest.mark.parametrize("width", [400, 720])
def test_narrow_screens_do_not_scroll_sideways(opened, report, width):
    page = opened(report, width=width)
    for name in TABS:
        tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    tab(page, "source")
    line(page, 16).locator(".number").click()
    assert page.locator("#details").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper(opened, report):
    page = opened(report)
    page.emulate_media(media="print")
    assert page.locator(".bar").is_hidden() and page.locator(".tabs").is_hidden()
    assert page.locator("h1").is_visible()


# -- Nothing captured; hostile texts; size -----------------------------------------------------------


def test_a_report_of_nothing(opened):
    page = opened(Report("f"))
    assert "Nothing has been captured" in page.locator("h1").inner_text()
    for name in TABS:
        tab(page, name)
    page.keyboard.press("j")
    page.keyboard.press("/")
    page.keyboard.type("x")


HOSTILE = "</script><script>window.hit=1</script><img src=x onerror='window.hit=2'>\"'`&amp;\u2028\u2029<!--\ud800${1}{{7*7}}"


def hostile(file: str) -> Report:
    place = dict(file=file, line=1, end_line=1, column=0, end_column=4, function=HOSTILE)
    return made_up(
        HOSTILE,
        frames=[FrameRecord(**place, frame=HOSTILE, graphs=1, lines=(1,), plain=HOSTILE)],
        breaks=[BreakRecord(**place, code=HOSTILE, title=HOSTILE, reason=HOSTILE, why=HOSTILE, cost=HOSTILE, cure=HOSTILE,
                            frame=HOSTILE, inlined=(Place(**place),))],
        recompiles=[RecompileRecord(**place, code=HOSTILE, title=HOSTILE, source=HOSTILE, now=HOSTILE, before=HOSTILE, cure=HOSTILE)],
        kernels=[KernelRecord(**place, name=HOSTILE, operators=(HOSTILE,), lines=(Place(**place),), shape=HOSTILE,
                              seconds=float("nan"), source=HOSTILE, graph=HOSTILE)],
        graphs=[GraphRecord(HOSTILE, HOSTILE, 0, "O1", HOSTILE,
                            (NodeRecord(**place, name=HOSTILE, op=HOSTILE, type=HOSTILE, inputs=(HOSTILE,), kernel=HOSTILE),), HOSTILE)],
        guards=[GuardRecord(**place, kind=HOSTILE, source=HOSTILE, text=HOSTILE, frame=HOSTILE, path=(HOSTILE, "__proto__"))],
    )  # fmt: skip


def test_hostile_texts_are_texts(opened, tmp_path):
    path = tmp_path / "<img src=x onerror=hit>.py"
    path.write_text("</script><script>window.hit=3</script>\n", encoding="utf-8")
    page = opened(hostile(str(path)))
    for name in TABS:
        tab(page, name)
    tab(page, "kernels")
    page.locator("#panel-kernels tbody button").first.click()
    page.keyboard.press("/")
    page.keyboard.type("<img")
    assert page.evaluate("window.hit") is None
    assert page.locator("img, iframe, object").count() == 0 and page.locator("script").count() == 2
    assert "49" not in page.locator("h1").inner_text()
    shown = page.locator("#details h2").inner_text()
    assert shown.startswith("</script><script>window.hit=1")


def test_the_notebook_s_form_touches_nothing_around_it(opened, report, tmp_path):
    around = "<!doctype html><html data-ready><title>n</title><style>p{color:red}</style><p id=p>text</p><div>%s</div></html>"
    page = opened(around % report._repr_html_())
    seen = page.locator("div").first.text_content()
    assert "93 %" in seen and "torch.where" in seen
    assert page.locator("script, style >> nth=1, link, img").count() == 0
    assert page.locator("#p").evaluate("e => getComputedStyle(e).color") == "rgb(255, 0, 0)"
    bad = hostile(str(tmp_path / "f.py"))._repr_html_()
    page = opened(around % bad)
    assert page.evaluate("window.hit") is None and page.locator("img, script").count() == 0


def _long(folder: Path) -> str:
    path = folder / "long.py"
    path.write_text("".join(f"x = f(x, {n})\n" for n in range(1000)))
    return str(path)


def test_a_small_llama_is_small_and_opens_at_once(opened, bench):
    import torch

    import graftjit

    model = graftjit.compile(bench("models.llama").Llama().eval())
    with torch.no_grad():
        for _ in range(40):
            model(torch.randint(0, 2000, (2, 64)))
    text = model.report().html()
    assert len(text.encode()) < 3_000_000
    took = []
    for _ in range(3):
        page = opened(text)
        took.append(
            page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        )
    assert min(took) < 2000, took
    tab(page, "source")
    heat = page.locator(".row.compiled .heat i")
    assert (
        heat.count() >= 4
    )  # kernels of the model's own lines, which is the file that is shown first
    assert (
        page.locator(".files button[aria-pressed=true]")
        .inner_text()
        .startswith("benchmarks/models/llama.py")
    )
    heat.first.locator("xpath=../..").locator(".number").click()
    page.locator("#details [data-go^='kernel ']").first.click()
    assert page.locator("#panel-kernels").is_visible()
    tab(page, "graph")
    assert page.locator(".box.is-chosen").count() == 1
    tab(page, "guards")
    assert page.locator(".tree summary").count() > 3


def test_a_huge_report_opens(opened, tmp_path):
    page = opened(huge(_long(tmp_path)))
    assert page.evaluate("performance.getEntriesByType('navigation')[0].domInteractive") < 6000
    for name in TABS:
        tab(page, name)
    tab(page, "kernels")
    assert page.locator("#panel-kernels tbody tr").count() <= 200
    page.locator("#panel-kernels th button:text-is('Kernel')").click()
    assert rows(page, "kernels", 1)[:3] == ["kernel_0", "kernel_1", "kernel_2"]
    tab(page, "graph")
    assert 0 < page.locator(".box").count() < 400
    page.keyboard.press("/")
    page.fill("#search", "kernel_4999")
    page.keyboard.press("Enter")
    assert page.locator("#details h2").inner_text() == "kernel_4999"
    page.locator("#details [data-see='graph']").click()
    assert page.locator(".box.is-chosen").count() == 1
