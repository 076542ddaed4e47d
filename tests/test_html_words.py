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


@pytest.mark.parametrize("width", [1280, 700])
@pytest.mark.parametrize(
    "moved", [{"eco-draft": 2}, {"eco-draft": 3}, {}, {"eco-us": 20, "eco-accept": 2.4}, {"eco-us": 300}]
)
def test_the_throughput_does_not_stand_under_its_range(
    browser: Any, folder: Any, moved: dict[str, float], width: int
) -> None:
    opened = Opened(browser, folder / "page.html", width)
    for slider, value in moved.items():
        opened.script(
            "const d = document.getElementById(arguments[0]); d.value = arguments[1];"
            "d.dispatchEvent(new Event('input'))",
            slider,
            value,
        )
    for row in range(1, len(opened.script(BOXES, ".eco-row")) + 1):
        base = f".eco-row:nth-child({row})"
        (words,) = opened.script(BOXES, f"{base} .eco-value")
        marks = opened.script(BOXES, f"{base} .eco-range") + opened.script(BOXES, f"{base} .eco-was")
        for mark in marks:
            assert words[1] <= mark[0] + 4 or mark[1] <= words[0] + 4  # within its padding
        (fill,), (track,) = opened.script(BOXES, f"{base} .eco-fill"), opened.script(BOXES, f"{base} .eco-track")
        assert track[0] <= words[0]
        assert words[1] <= track[1]
        # A figure belongs to the end of its bar: only a mark or the range may come between.
        first, last = (words[1], fill[1]) if words[1] <= fill[1] + 4 else (fill[1], words[0])
        assert last - first < 4 or any(m[0] <= last + 4 and m[1] >= first - 4 for m in marks)
