"""The page in a real browser: clicks, drags, keys; both themes; desktop and phone width."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profkit.projection import Change, Projector
from profkit.reports.html import weekly
from tests.html_pages import hostile_page, loaded, page
from tests.weekly_data import REGRESSION
from tests.weekly_pages import attacked, report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver to be installed"),
]
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pages")
    (target / "page.html").write_text(page(), encoding="utf-8")
    (target / "hostile.html").write_text(hostile_page(), encoding="utf-8")
    (target / "weekly.html").write_text(weekly.render(report()), encoding="utf-8")
    (target / "weekly-hostile.html").write_text(weekly.render(attacked(report(REGRESSION))), encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory(
        prefix="profkit-browser-", ignore_cleanup_errors=True
    ) as profile:  # it may still write
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(CHROMEDRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


class Opened:
    """A page that was opened afresh."""

    def __init__(self, driver: Any, file: Path, width: int = 1280, scheme: str = "light") -> None:
        self.driver = driver
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": ""})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(file.as_uri())

    def element(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def script(self, code: str, *values: Any) -> Any:
        return self.driver.execute_script(code, *values)

    def view(self) -> dict[str, Any]:
        found: dict[str, Any] = self.script("return {...profkitTimeline.view}")
        return found

    def actions(self) -> Any:
        from selenium.webdriver.common.action_chains import ActionChains

        return ActionChains(self.driver, duration=40)

    def keys(self, *keys: str) -> None:
        self.actions().send_keys(*keys).perform()

    def show(self, name: str) -> Any:
        element = self.element(name)
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        return element

    def pixels(self) -> str:
        return str(self.script("return document.getElementById('tl-canvas').toDataURL()"))


@pytest.fixture
def opened(browser: Any, folder: Path) -> Opened:
    return Opened(browser, folder / "page.html")


def span(view: dict[str, Any]) -> float:
    return float(view["to"]) - float(view["from"])


@pytest.mark.parametrize("name", ["page.html", "weekly.html"])
def test_opens_without_network_or_complaints(browser: Any, folder: Path, name: str) -> None:
    opened = Opened(browser, folder / name)
    assert opened.script("return performance.getEntriesByType('resource').length") == 0
    assert opened.driver.get_log("browser") == []
    assert "profkit" in opened.driver.title


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["page.html", "weekly.html"])
def test_fits_and_reads_in_both_themes(browser: Any, folder: Path, name: str, width: int, scheme: str) -> None:
    shown = Opened(browser, folder / name, width, scheme)
    assert shown.script("return document.documentElement.scrollWidth") <= width
    background = shown.script("return getComputedStyle(document.body).backgroundColor")
    level = sum(int(n) for n in re.findall(r"\d+", background)[:3])
    assert level > 700 if scheme == "light" else level < 100
    shown.show("theme").click()
    assert shown.script("return getComputedStyle(document.body).backgroundColor") != background
    small = shown.script(
        "return [...document.querySelectorAll('button, select, input')].filter(e => e.offsetParent && "
        "e.getBoundingClientRect().height < 24).length"
    )
    assert small == 0


def test_hostile_names_do_nothing(browser: Any, folder: Path) -> None:
    shown = Opened(browser, folder / "hostile.html")
    assert shown.script("return window.hacked") is None
    assert shown.driver.get_log("browser") == []
    assert shown.script("return document.querySelectorAll('img, iframe').length") == 0
    canvas = shown.show("tl-canvas")
    for step in range(-500, 500, 40):
        shown.actions().move_to_element_with_offset(canvas, step, -100).perform()
    shown.script("arguments[0].focus()", canvas)
    shown.keys("n", "n", "s", "p")
    shown.element("tl-late").click()
    assert shown.script("return window.hacked") is None
    assert shown.script("return document.querySelectorAll('script').length") == 2


def test_dragging_moves_and_wheel_zooms(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = opened.show("tl-canvas")
    whole = opened.view()
    opened.element("tl-in").click()
    opened.element("tl-in").click()
    zoomed = opened.view()
    assert span(zoomed) == pytest.approx(span(whole) * 0.36, rel=0.05)
    opened.actions().move_to_element(canvas).click_and_hold().move_by_offset(200, 0).release().perform()
    dragged = opened.view()
    assert dragged["from"] < zoomed["from"]
    assert span(dragged) == pytest.approx(span(zoomed))
    moved = (zoomed["from"] - dragged["from"]) / span(zoomed) * (canvas.size["width"] - 68)
    assert moved == pytest.approx(200, abs=3)
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    origin = ScrollOrigin.from_element(canvas)
    opened.actions().key_down(Keys.CONTROL).scroll_from_origin(origin, 0, -240).key_up(Keys.CONTROL).perform()
    assert span(opened.view()) < span(dragged)
    before = opened.view()
    opened.actions().double_click(canvas).perform()
    assert span(opened.view()) < span(before)
    opened.element("tl-all").click()
    assert span(opened.view()) == pytest.approx(span(whole))


def test_hover_tells_the_op_and_a_click_selects_it(opened: Opened) -> None:
    canvas = opened.show("tl-canvas")
    for _ in range(9):
        opened.element("tl-in").click()
    seen = set()
    for step in range(-400, 400, 25):
        opened.actions().move_to_element_with_offset(canvas, step, -canvas.size["height"] // 2 + 44).perform()
        tip = opened.element("tl-tip")
        if tip.is_displayed():
            seen.add(tip.text)
    assert any("ncclDevKernel_AllReduce" in t and "transfer" in t and "waiting" in t for t in seen)
    assert any("verify" in t and "compute" in t for t in seen)
    opened.actions().move_to_element_with_offset(canvas, 10, -canvas.size["height"] // 2 + 44).click().perform()
    assert "tp0" in opened.element("tl-said").text
    assert opened.view()["mark"]["rank"] == 0


def test_keys_do_what_the_mouse_does(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = opened.show("tl-canvas")
    opened.script("arguments[0].focus()", canvas)
    whole = opened.view()
    opened.keys("+", "+", "+")
    assert span(opened.view()) < span(whole) / 3
    start = opened.view()["from"]
    opened.keys(Keys.ARROW_RIGHT)
    assert opened.view()["from"] > start
    opened.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, "n")
    assert opened.view()["rank"] == 2
    first = opened.element("tl-said").text
    assert first.startswith("tp2")
    opened.keys("n", "n")
    assert opened.element("tl-said").text != first
    opened.keys("p", "p")
    assert opened.element("tl-said").text == first
    opened.keys("0")
    assert span(opened.view()) == pytest.approx(span(whole))


def test_straggler_is_found(opened: Opened) -> None:
    opened.show("tl-late").click()
    late = opened.script("return JSON.parse(document.getElementById('profkit-data').textContent).timeline.cycles[0]")
    worst = late["stragglers"][0]
    view, said = opened.view(), opened.element("tl-said").text
    assert view["rank"] == view["mark"]["rank"] == worst["rank"]
    assert view["from"] <= worst["start"]
    assert view["to"] >= worst["end"]
    assert said.startswith("1 of 24")
    assert late["ranks"][worst["rank"]]["label"] in said
    opened.element("tl-late").click()
    assert opened.element("tl-said").text.startswith("2 of 24")


def test_filters_hide_and_other_cycles_show(opened: Opened) -> None:
    from selenium.webdriver.support.select import Select

    opened.show("tl-canvas")
    before = opened.pixels()
    chip = next(
        b for b in opened.element("tl-activities").find_elements("tag name", "button") if "all-reduce" in b.text
    )
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert opened.pixels() != before
    chip.click()
    opened.actions().move_to_element(opened.element("tl-help")).perform()
    assert opened.pixels() == before
    classes = Select(opened.element("tl-class"))
    classes.select_by_visible_text("moe.gemm")
    assert opened.pixels() != before
    classes.select_by_index(0)
    cycles = Select(opened.element("tl-cycle"))
    assert [o.text.split(" (")[0] for o in cycles.options] == ["median cycle", "slowest cycle"]
    cycles.select_by_index(1)
    assert opened.view()["cycle"] == 1


def test_colours_of_the_canvas_mean_what_the_legend_says(opened: Opened) -> None:
    """The pixel in the middle of an all-reduce has the colour of the all-reduce chip."""
    opened.show("tl-late").click()
    opened.actions().move_to_element(opened.element("tl-help")).perform()
    found = opened.script(
        """
        const canvas = document.getElementById('tl-canvas'), view = profkitTimeline.view, mark = view.mark;
        const x = 64 + ((mark.start + mark.end) / 2 - view.from) / (view.to - view.from) * (canvas.clientWidth - 68);
        const row = canvas.clientHeight > 0 ? (canvas.clientHeight - 26) / 8 : 0;
        const scale = window.devicePixelRatio;
        const y = 24 + mark.rank * row + 7 + 2 + 9;
        return [...canvas.getContext('2d').getImageData(x * scale, y * scale, 1, 1).data];
        """
    )
    chips = opened.element("tl-activities").find_elements("tag name", "button")
    colours = {}
    for chip in chips:
        dot = chip.find_element("tag name", "i")
        colours[chip.text] = [int(n) for n in re.findall(r"\d+", dot.value_of_css_property("background-color"))[:3]]
    assert found[:3] in (colours["all-reduce"], colours["other comm"])


def project(shown: Opened, accept: float | None, us: float | None, draft: int) -> dict[str, Any]:
    result: dict[str, Any] = shown.script(
        "return profkitProject({accept: arguments[0], us: arguments[1], draft: arguments[2]})", accept, us, draft
    )
    return result


def test_the_model_in_the_page_is_whatif_s(opened: Opened) -> None:
    projector = Projector(loaded("eagle3")[0], loaded("baseline")[0])
    for accept, us, draft in [
        (None, None, 4), (3.2, None, 4), (None, 20.0, 4), (None, 131.6, 4), (2.5, 20.0, 4), (None, None, 2),
        (None, 7.0, 2), (1.7, 100.0, 2), (None, 20.0, 6), (None, None, 6), (5.0, 0.0, 5), (2.72, None, 4),
        (2.75, None, 4),
    ]:  # fmt: skip
        change = Change(accept_len=accept, allreduce_us=us, draft_tokens=draft)
        theirs = projector.project(change)
        ours = project(opened, accept, us, draft)
        after = theirs.candidate.throughput_after
        wanted = [after.value, after.low, after.high]
        assert ours["throughput"] == pytest.approx(wanted, rel=1e-3), change
        assert theirs.baseline is not None
        base = theirs.baseline.throughput_after
        assert ours["baseline"] == pytest.approx(
            [base.value, base.low or base.value, base.high or base.value], rel=1e-3
        )
        assert ours["pays"] == theirs.pays, change
        assert ours["even"][0] == pytest.approx(theirs.break_even_accept_len_after.value, rel=1e-3)


def test_sliders_move_both_arms(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    def values() -> list[str]:
        found = opened.driver.find_elements("css selector", "#eco-bars .eco-value")
        return [f.text for f in found]

    slider = opened.show("eco-us")
    measured = values()
    assert "Speculation does not pay" in opened.element("eco-said").text
    slider.send_keys(Keys.HOME)
    free = values()
    assert [a == b for a, b in zip(measured, free, strict=True)] == [False, False]
    assert "--allreduce-us 0" in opened.element("eco-command").text
    slider.send_keys(*[Keys.ARROW_RIGHT] * 20)
    twenty = Projector(loaded("eagle3")[0], loaded("baseline")[0]).project(Change(allreduce_us=20.0))
    assert twenty.baseline is not None
    shown = [float(v.split()[0]) for v in values()]
    wanted = [twenty.candidate.throughput_after.require(), twenty.baseline.throughput_after.require()]
    assert shown == pytest.approx(wanted, rel=2e-3)
    accept = opened.element("eco-accept")
    accept.send_keys(Keys.END)
    assert "--accept-len 4" in opened.element("eco-command").text
    assert "Speculation pays" in opened.element("eco-said").text
    opened.element("eco-draft").send_keys(Keys.HOME)
    assert "--draft-tokens 2" in opened.element("eco-command").text
    assert "--accept-len 2" in opened.element("eco-command").text
    opened.element("eco-reset").click()
    assert values() == measured


def test_everything_is_named_and_reachable(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    unnamed = opened.script(
        """
        return [...document.querySelectorAll('button, select, input, canvas, svg[role=img], section')].filter(e => {
          const label = e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
            || (e.labels && e.labels.length) || e.textContent.trim();
          return !label;
        }).map(e => e.outerHTML.slice(0, 80));
        """
    )
    assert unnamed == []
    opened.script("document.body.focus(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(45):
        opened.keys(Keys.TAB)
        reached.add(opened.script("return document.activeElement.id"))
    assert {"theme", "tl-cycle", "tl-class", "tl-late", "tl-canvas", "eco-accept", "eco-us", "eco-draft"} <= reached


def test_prints_light_and_without_controls(browser: Any, folder: Path) -> None:
    shown = Opened(browser, folder / "page.html", 1280, "dark")
    shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    try:
        text = shown.script("return getComputedStyle(document.body).color")
        assert sum(int(n) for n in re.findall(r"\d+", text)[:3]) < 120
        assert not shown.element("tl-in").is_displayed()
        assert shown.element("tl-canvas").is_displayed()
    finally:
        shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_weekly_charts_tell_figures_to_pointer_and_keyboard(browser: Any, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    inside = "const t = arguments[0].getBoundingClientRect(); return t.left >= 0 && t.right <= innerWidth"
    shown = Opened(browser, folder / "weekly.html")
    told = shown.script("return JSON.parse(document.getElementById('profkit-data').textContent).charts")
    assert len(told) == 2
    for figure, weeks in zip(shown.driver.find_elements("css selector", ".history"), told, strict=True):
        areas, tip = figure.find_elements("css selector", ".week"), figure.find_element("css selector", ".tip")
        shown.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", figure)
        for area, (week, lines) in zip(areas, weeks, strict=True):
            shown.actions().move_to_element(area).perform()
            assert tip.text.split("\n") == [week, *lines]
            assert shown.script(inside, tip)
        shown.actions().move_to_element(shown.element("history-h")).perform()
        assert not tip.is_displayed()
        assert [a.get_attribute("tabindex") for a in areas] == ["-1"] * (len(areas) - 1) + ["0"]
        shown.script("arguments[0].focus()", areas[-1])
        shown.keys(Keys.ARROW_LEFT)
        assert tip.text.startswith(weeks[-2][0])
        shown.keys(Keys.HOME, Keys.ARROW_LEFT)
        assert tip.text.startswith(weeks[0][0])
        assert figure.find_element("css selector", ".said").get_attribute("textContent").startswith(weeks[0][0])
        shown.keys(Keys.ESCAPE)
        assert not tip.is_displayed()


def test_hostile_names_do_nothing_in_the_weekly_page(browser: Any, folder: Path) -> None:
    shown = Opened(browser, folder / "weekly-hostile.html", 390)
    shown.script("document.querySelectorAll('.week').forEach(area => area.focus())")
    assert shown.script("return window.hacked") is None
    assert shown.script("return document.querySelectorAll('img, iframe, script').length") == 2
    assert shown.script("return document.documentElement.scrollWidth") <= 390
    assert shown.driver.get_log("browser") == []
