"""The page in a browser: it renders, asks for nothing, fits a phone, is readable in the dark."""

from base64 import b64decode

import numpy as np
import pandas as pd
import pytest

from scalefair import FairGPRegressor, FairKernelClassifier, FairKernelRidgeCV
from scalefair.report import make_report
from scalefair.report.numbers import fixed, number
from scalefair.report.tables import write_number
from tests.browser import Browser, find_browser

pytestmark = [pytest.mark.processes, pytest.mark.skipif(find_browser() is None, reason="no Chromium here")]

LONG = "a_rather_long_name_of_an_attribute_without_any_place_to_break_it_on_a_telephone"

CONTRASTS = """
(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const part = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const c = numbers(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("style, title, metadata")) continue;
    const style = getComputedStyle(parent);
    const ink = numbers(parent.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(parent))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()
"""

WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"

MARKS = """
(() => {
  const style = getComputedStyle(document.documentElement);
  const page = getComputedStyle(document.body).backgroundColor;
  return [page, ...["before", "after", "faint"].map(name => style.getPropertyValue("--" + name))];
})()
"""


def people(n=300, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.choice(["women", "men"], n)
    X = pd.DataFrame({"age": rng.normal(40, 9, n), "hours": rng.normal(38, 5, n)})
    y = X["age"] / 9 + X["hours"] / 5 + 2.0 * (s == "men") + rng.normal(size=n)
    return X, y - y.mean(), pd.DataFrame({LONG: s, "region": rng.choice(["north", "south"], n)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def frontiers(folder):
    """A report of each kind of model."""
    X, y, S = people()
    common = {"unfairness": 0.05, "n_components": 20, "random_state": 0}
    process = FairGPRegressor(length_scale="standardized", max_iter=3, **common)
    return {
        name: make_report(model, X, target, sensitive_features=S, out=folder / name, target="pay")
        for name, model, target in (
            ("ridge", FairKernelRidgeCV(**common), y),
            ("classifier", FairKernelClassifier(**common), np.where(y > 0, "high", "low")),
            ("process", process, y),
        )
    }


@pytest.fixture(scope="module")
def pages(folder, frontiers):
    return {name: folder / name / "report.html" for name in frontiers}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


def luminance(rgb):
    c = np.asarray(rgb) / 255
    linear = np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def rgb(text):
    if text.strip().startswith("#"):
        return [int(text.strip()[i : i + 2], 16) for i in (1, 3, 5)]
    return [float(x) for x in text[text.index("(") + 1 : text.index(")")].split(",")[:3]]


@pytest.mark.parametrize("name", ["ridge", "classifier", "process"])
def test_the_page_renders_without_a_complaint_and_without_a_network(browser, pages, name):
    browser.open(pages[name])
    assert browser.complaints == []
    assert browser.ask("document.compatMode") == "CSS1Compat"
    sizes = browser.ask("[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().height)")
    assert len(sizes) == (2 if name == "process" else 1)
    assert min(sizes) > 100
    assert browser.ask("document.querySelectorAll('svg:not([aria-label])').length") == 0
    titles = browser.ask("[...document.querySelectorAll('h2')].map(e => e.textContent)")
    assert ("Which inputs matter" in titles) == (name == "process")
    assert {"The frontier", "Calibration by group", "Load the model"} <= {*titles}
    assert browser.ask(
        "[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.getAttribute('href')))"
    )


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("name", ["ridge", "process"])
def test_a_phone_does_not_scroll_sideways(browser, pages, name, width):
    browser.open(pages[name], width=width)
    wide, seen = browser.ask(WIDTHS)
    assert wide <= seen == width
    smallest = "Math.min(...[...document.querySelectorAll('p, td, dd, li')].map(e => parseFloat("
    assert browser.ask(smallest + "getComputedStyle(e).fontSize)))") >= 11


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ridge", "classifier", "process"])
def test_all_text_can_be_read_and_all_marks_seen(browser, pages, name, scheme):
    browser.open(pages[name], scheme=scheme)
    contrasts = browser.ask(CONTRASTS)
    assert len(contrasts) > 100
    assert contrasts[0][0] >= 4.5, contrasts[:3]
    page, *marks = map(rgb, browser.ask(MARKS))
    assert (luminance(page) < 0.1) == (scheme == "dark")
    for mark in marks:
        low, high = sorted([luminance(page), luminance(mark)])
        assert (high + 0.05) / (low + 0.05) >= 3.0, mark


def test_it_prints_in_black_on_white_even_from_the_dark(browser, pages):
    browser.open(pages["ridge"], scheme="dark", media="print")
    assert browser.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert browser.ask(CONTRASTS)[0][0] >= 4.5
    paper = b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert paper.startswith(b"%PDF")
    assert 1 <= paper.count(b"/Type /Page\n") <= 25
    assert browser.ask(SHOWN) == list(range(len(browser.ask(SHOWN))))  # all of them
    assert browser.ask("getComputedStyle(document.getElementById('control')).display") == "none"


SHOWN = """
[...new Set([...document.querySelectorAll(".position")].filter(e => e.offsetHeight > 0)
  .map(e => Number(e.dataset.position)))]
"""
CHAPTERS = """
[...document.querySelectorAll(".position:not(.away)")].map(e => e.innerText).join("\\n")
"""


def press(browser, key):
    for kind in ("keyDown", "keyUp"):
        number = {"ArrowRight": 39, "Home": 36}[key]
        named = {"key": key, "code": key, "windowsVirtualKeyCode": number}
        browser.call("Input.dispatchKeyEvent", type=kind, **named)


def click(browser, x, y):
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_the_slider_moves_everything_by_mouse_and_by_keyboard(browser, pages, frontiers):
    found, page = frontiers["ridge"], pages["ridge"]
    browser.open(page)
    last = len(found.positions) - 1
    assert browser.ask(SHOWN) == [found.chosen]
    browser.ask("document.getElementById('slider').scrollIntoView({block: 'center'})")
    left, top, width, height = browser.ask(
        "(r => [r.left, r.top, r.width, r.height])(document.getElementById('slider').getBoundingClientRect())"
    )
    click(browser, left + width - 3, top + height / 2)
    assert browser.ask(SHOWN) == [last]
    assert browser.ask("document.getElementById('slider-name').textContent") == "no limit"
    click(browser, left + 3, top + height / 2)
    assert browser.ask(SHOWN) == [0]
    press(browser, "ArrowRight")
    assert browser.ask(SHOWN) == [1]
    press(browser, "Home")
    for i, position in enumerate(found.positions):
        assert browser.ask(SHOWN) == [i]
        shown = browser.ask(CHAPTERS).replace("\u00a0", " ")
        assert browser.ask("document.querySelectorAll('svg .current').length") == 1
        for attribute in position.attributes:
            for measure in ("explained_share", "mean_prediction_difference"):
                entry = position.get(measure, attribute)
                if measure == "explained_share" or attribute == position.together:
                    assert write_number(measure, entry.value) in shown
            for group in position.groups(attribute):
                assert write_number("mean_prediction", group.value) in shown
        assert_chapters_follow(browser, position, shown)
        press(browser, "ArrowRight")
    browser.ask("location.hash = '#position-0'")
    assert browser.ask("new Promise(r => setTimeout(() => r(1), 50))") is not None
    assert browser.ask(SHOWN) == [0]
    assert browser.complaints == []


def assert_chapters_follow(browser, position, shown):
    for line in (line for lines in position.impacts.values() for line in lines):
        assert fixed(line.impact_ratio, 2) in shown
    for line in position.calibration:
        assert f"{number(line.predicted)} → {number(line.observed)}" in shown
    for entry in (e for e in position.contributions if not e.is_tiny):
        assert write_number(entry.measure, entry.value) in shown
    pictures = browser.ask("[...document.querySelectorAll('.position:not(.away) .bars')].length")
    assert pictures == sum(len(position.groups(a)) for a in position.attributes)


def test_a_screen_reader_hears_names_and_values(browser, pages):
    browser.open(pages["classifier"])
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    (slider,) = [n for n in nodes if n.get("role", {}).get("value") == "slider"]
    assert slider["name"]["value"].startswith("Limit on the explained share")
    name = browser.ask("document.querySelector('.position:not(.away)').dataset.name")
    # Asked of the element: the tree of Chromium 156 has the number even where a page is one slider.
    said = browser.ask("document.getElementById('slider').getAttribute('aria-valuetext')")
    assert said == name
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in ("img", "image", "region", "table", "link", "heading", "navigation"):
            assert node["name"]["value"], node


def test_without_a_script_all_positions_are_there(browser, pages, frontiers):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["ridge"])
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.ask(SHOWN) == list(range(len(frontiers["ridge"].positions)))
    assert browser.ask("document.getElementById('control').offsetHeight") == 0


def test_a_script_that_is_not_ours_does_not_run(browser, pages, tmp_path):
    page = pages["ridge"].read_text("utf-8")
    other = page.replace("</footer>", "</footer><script>document.title = 'taken'</script>")
    (tmp_path / "other.html").write_text(other, "utf-8")
    browser.open(tmp_path / "other.html")
    assert browser.ask("document.title") != "taken"
    assert browser.complaints
