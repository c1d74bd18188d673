"""Each page as it opens: no layout shifts, accessible, fits a phone; and Heads loads little."""

import json
import os
import shutil
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import expect

MAX_LOOKS = 20  # of axe at a page
# Each page, in a state with all it may have, and the name of its tab.
PAGES = {
    "": "Heads",
    "token": "Token",
    "model": "Real model",
    "steps": "Steps",
    "what-if?edits=cut,layer%3D2,from%3D9,to%3D3": "What if",
    "steps?steps_view=layers": "Steps",
    "embeddings": "Embeddings",
    "steps?steps_view=order": "Steps",
    "cost?case=15": "Cost",
    "train": "Train",
    "compare": "Compare",
    "train?train_view=heads": "Train",
    "cases": "Cases",
    "atlas": "Atlas",
    "lessons": "Lessons",
    "lessons?lesson=heads&screen=5&answers=5-3:60,7:40": "Lessons",
}
# The first that most see, and those that have jumped on a busy computer, which draws each part late.
LATE = ("", "steps?steps_view=order", "cost?case=15")
FIGURES = ("embeddings", "train?train_view=heads", "atlas")  # of plotly, which no other page loads
# Where pictures stand above each other, and many controls below each other.
ON_PHONES = {
    "": "Heads",
    "steps": "Steps",
    "embeddings": "Embeddings",
    "cost": "Cost",
    "atlas": "Atlas",
    "lessons?lesson=heads&screen=5": "Lessons",
    "train?train_view=heads": "Train",
}
# The faults that axe (a checker of the rules of WCAG) finds, with their elements. The dark theme has other
# colours and the same elements.
FAULTS = """async (theme) => {
    const rules = theme === 'light' ? {} : { runOnly: ['color-contrast'] };
    const { violations } = await axe.run(document, { resultTypes: ['violations'], ...rules });
    return violations.flatMap(({ id, nodes }) =>
        nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} ${failureSummary}`));
}"""
# How much has moved by itself since the page began (https://web.dev/articles/cls).
SHIFT = """() => new Promise((resolve) => {
    const observer = new PerformanceObserver((list) => {
        const moved = list.getEntries().filter((shift) => !shift.hadRecentInput);
        resolve(moved.reduce((sum, { value }) => sum + value, 0));
    });
    observer.observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => setTimeout(() => resolve(0)));  // where nothing has moved it is not called
})"""
MAX_SHIFT = 0.1  # up to which Chromium calls a page good
# Elements beyond the right edge; formulas, code, figures and tables scroll in boxes of their own.
BEYOND = """(width) => [...document.querySelectorAll('[data-testid=stMain] *')]
    .filter((e) => e.getBoundingClientRect().right > width + 1)
    .filter((e) => !e.closest('.katex, pre, svg, [data-testid=stDataFrame]'))
    .map((e) => e.outerHTML.slice(0, 80))"""
# Tables that are wider than their boxes, which would be scrolled.
WIDER = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent.slice(0, 80))"
# An element is added to the page and taken away again, 20 times.
CHANGED = """() => {
    for (let time = 0; time < 20; time += 1) {
        const added = document.body.appendChild(document.createElement('i'));
        for (const change of [() => added.append('x'), () => added.remove()]) {
            change();
            document.body.offsetWidth;  // waits for the layout
        }
    }
}"""
MAX_RESTYLED = 20  # elements, for one such change; Chromium restyles up to eight
MAX_LOAD = 5e6  # bytes of the first visit of Heads; an empty page of Streamlit's takes 3.1 million
# The files fetched for the page, with their bytes on the wire.
FETCHED = """() => Object.fromEntries(performance.getEntries()
    .filter((entry) => 'transferSize' in entry).map(({ name, transferSize }) => [name, transferSize]))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe, which is installed with the other tools (tests/js/package.json)."""
    linter = shutil.which("biome")
    script = Path(linter).parents[1] / "axe-core" / "axe.min.js" if linter else None
    if script is None or not script.is_file():
        if os.environ.get("CI"):
            pytest.fail("axe-core is missing; .ci/run installs it.")
        pytest.skip("axe-core is not installed (tests/js/package.json)")
    return script.read_text(encoding="utf-8")


def faults(page, theme: str) -> list[str]:
    """The faults that axe finds after the colours of a theme are in place."""
    for _ in range(MAX_LOOKS):
        if not (found := page.evaluate(FAULTS, theme)):
            break
        page.wait_for_timeout(250)
    return found


@pytest.fixture
def restyled(browser):
    """`restyled(page)`: how many elements the browser styles anew where one is added to a page."""

    def usual(page) -> float:
        browser.start_tracing(page=page, categories=["devtools.timeline"])
        page.evaluate(CHANGED)
        events = json.loads(browser.stop_tracing())["traceEvents"]
        counts = (event.get("args", {}).get("elementCount") for event in events)
        return median(count for count in counts if count is not None)

    return usual


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_and_restyles_little_does_not_jump_and_is_accessible_in_both_themes(
    visit, app, settled, axe, restyled, page
):
    late = {"first": True, "slower": 4} if page in LATE else {}
    opened = visit(f"{app}/{page}", heard=(heard := []), **late)
    assert opened.evaluate(SHIFT) < MAX_SHIFT
    fetched = opened.evaluate(FETCHED)
    assert any("plotly" in name.lower() for name in fetched) == (page in FIGURES)
    assert not any("SyntaxHighlighter" in name for name in fetched)  # 1.5 MB of colours, for st.code
    assert page or sum(fetched.values()) + sum(map(len, heard)) < MAX_LOAD
    assert restyled(opened) < MAX_RESTYLED
    opened.evaluate(axe)
    assert faults(opened, "light") == []
    opened.emulate_media(color_scheme="dark")
    settled(opened)
    assert faults(opened, "dark") == []
    headings = opened.locator(":is(h1, h2, h3, h4, h5, h6):visible")
    first, *levels = headings.evaluate_all("all => all.map(({ tagName }) => Number(tagName[1]))")
    assert first == 1
    assert 1 not in levels
    assert all(below <= above + 1 for above, below in zip([first, *levels], levels, strict=False))


def test_each_drawing_and_a_large_matrix_are_accessible_in_both_themes(visit, app, settled, axe, eye):
    page = visit(app)
    page.evaluate(axe)
    view = eye(page)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for drawing in ("text", "arcs", "matrix"):
            view.button(drawing).click()
            if drawing == "matrix" and theme == "light":
                view.view.locator(".six button").last.click()
                view.view.locator(".large").get_by_role("button", name="Table", exact=True).click()
            settled(page)
            assert faults(page, theme) == [], (theme, drawing)
    expect(view.view.locator(".large").get_by_role("table")).to_be_visible()


@pytest.mark.parametrize("page", ON_PHONES)
def test_a_page_fits_a_phone_restyles_little_and_is_accessible(visit, app, axe, restyled, page):
    opened = visit(f"{app}/{page}", width=390, height=844)
    assert opened.evaluate(SHIFT) < MAX_SHIFT
    expect(opened.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(opened).to_have_title(f"{ON_PHONES[page]} · Headscope")
    assert opened.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    assert opened.evaluate(BEYOND, 390) == []
    tables = opened.locator("[data-testid=stTable]")
    assert tables.evaluate_all(WIDER) == []
    assert restyled(opened) < MAX_RESTYLED
    opened.evaluate(axe)
    assert faults(opened, "light") == []  # a wide screen is looked at in both themes


def test_on_a_first_visit_alone_the_second_sentence_swings_from_the_first_one(visit, app, eye):
    view = eye(visit(app)).view
    expect(view.locator(".turned").first).to_have_text("wide")
    expect(view.locator(".awaited")).to_have_count(0)
    view = eye(visit(f"{app}?text=It+was+tired.&twin=It+was+wide.")).view
    expect(view.locator(".strip").last).to_contain_text("wide")
    expect(view.locator(".turned")).to_have_count(0)
