"""Words on bars of the page, in a real browser: shown whole or not at all, and never under a mark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_html_browser import Opened, browser, folder, pytestmark

__all__ = ["browser", "folder", "pytestmark"]  # fixtures and marks of the other module

BOXES = """
return [...document.querySelectorAll(arguments[0])].map(e => {
  const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom];
})"""


@pytest.mark.parametrize("width", [1280, 700, 390])
def test_parts_of_a_cycle_are_named_whole_or_not_at_all(browser: Any, folder: Any, width: int) -> None:
    opened = Opened(browser, folder / "page.html", width)
    segments = opened.driver.find_elements("css selector", ".seg:has(.fit)")
    seen = 0
    for segment in segments:
        inside, label = segment.rect, segment.find_element("css selector", ".fit").rect
        if label["y"] >= inside["y"] + inside["height"]:
            continue  # wrapped out of sight
        seen += 1
        assert label["x"] >= inside["x"] - 0.5
        assert label["x"] + label["width"] <= inside["x"] + inside["width"] + 0.5
    assert seen


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_the_throughput_does_not_stand_under_its_range(browser: Any, folder: Any, tokens: int) -> None:
    opened = Opened(browser, folder / "page.html")
    opened.script(
        "const d = document.getElementById('eco-draft'); d.value = arguments[0]; d.dispatchEvent(new Event('input'))",
        tokens,
    )
    for row in range(1, len(opened.script(BOXES, ".eco-row")) + 1):
        base = f".eco-row:nth-child({row})"
        (words,) = opened.script(BOXES, f"{base} .eco-value")
        for mark in opened.script(BOXES, f"{base} .eco-range") + opened.script(BOXES, f"{base} .eco-was"):
            assert words[1] <= mark[0] + 4 or mark[1] <= words[0] + 4  # within its padding
