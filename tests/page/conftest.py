"""A browser that opens reports: whatever page is opened in it may ask for nothing, and log nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")  # its loop of asyncio runs in this thread for as long
def browser() -> Iterator[Any]:
    """A headless Chromium, as tools/find-browser finds it. Where there is none, its tests are skipped; where there is
    one that cannot be started, they fail in CI."""
    found = subprocess.run(
        [str(ROOT / "tools" / "find-browser")], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip("tools/find-browser finds no Chromium here")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(
                executable_path=found.stdout.strip(), args=["--no-sandbox"]
            )
        except driver.Error as error:
            if os.environ.get("CI"):
                pytest.fail(f"{found.stdout.strip()} cannot be started: {error}")
            pytest.skip(f"{found.stdout.strip()} cannot be started")
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`opened(report)`: its page, ready. At the end nothing was asked for but the page, and nothing was logged."""
    asked: list[str] = []
    logged: list[str] = []
    contexts: list[Any] = []
    written: set[str] = set()

    def open_page(
        report: Any, width: int = 1280, height: int = 860, theme: str = "light", fragment: str = ""
    ) -> Any:
        text = report if isinstance(report, str) else report.html()
        path = tmp_path / f"report{len(written)}.html"
        path.write_text(text, encoding="utf-8")
        written.add(path.as_uri())
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.route(
            "**/*",
            lambda route: (
                route.continue_() if route.request.url.split("#")[0] in written else route.abort()
            ),
        )
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert {url.split("#")[0] for url in asked} <= written
    assert logged == []
