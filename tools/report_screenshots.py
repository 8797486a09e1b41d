"""Draws docs/images/report-light.png and report-dark.png: the page of a real program's report, in a headless browser.

    python tools/report_screenshots.py [FOLDER]

The program is compiled and run here; tools/find-browser finds the browser, playwright drives it, and pillow (it comes
with matplotlib) stores the pictures in as few bytes as they take.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 250_000

PROGRAM = """\
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = F.gelu(self.up(self.norm(x)), approximate="tanh")
        return x + self.down(y)


class Classifier(nn.Module):
    def __init__(self, width=256, depth=3, classes=10):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        scores = self.head(x.mean(1))
        if scores.abs().max().item() > 30.0:  # keeps exp from running over
            scores = scores / scores.abs().max()
        return F.softmax(scores * 0.5, dim=-1)
"""


def page(folder: Path) -> Path:
    """The report of the program, saved beside it."""
    import torch

    import graftjit

    (folder / "classifier.py").write_text(PROGRAM)
    sys.path.insert(0, str(folder))
    from classifier import Classifier  # type: ignore[import-not-found]

    torch.manual_seed(0)
    model = graftjit.compile(Classifier().eval())
    x = torch.randn(8, 64, 256)
    with torch.no_grad():
        for _ in range(300):
            model(x)
    return Path(model.report().save(folder / "report.html"))


def of_source(page: Any) -> None:
    page.click("#tab-source")
    page.click("#details [data-go^='line ']")
    page.keyboard.press("j")
    page.locator(".row.broken .number").first.click()
    page.evaluate("scrollTo(0, 240)")


def of_graph(page: Any) -> None:
    page.click("#tab-graph")
    page.locator(".box.kernel[aria-label*='gelu']").first.click()


def stored(png: bytes, target: Path) -> None:
    from PIL import Image

    Image.open(io.BytesIO(png)).convert("RGB").save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target}: {size / 1000:.0f} kB")
    assert size < LARGEST


def main(arguments: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    images = Path(arguments[0]) if arguments else ROOT / "docs" / "images"
    browser = subprocess.run(
        [str(ROOT / "tools" / "find-browser")], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = page(Path(folder))
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for theme, show in (("light", of_source), ("dark", of_graph)):
            shown = started.new_page(
                viewport={"width": 1280, "height": 760},
                color_scheme=theme,  # type: ignore[arg-type]
                device_scale_factor=1.25,
            )
            shown.goto(report.as_uri())
            shown.wait_for_selector("html[data-ready]", state="attached")
            show(shown)
            shown.wait_for_timeout(200)
            stored(shown.screenshot(), images / f"report-{theme}.png")
        started.close()


if __name__ == "__main__":
    main(sys.argv[1:])
