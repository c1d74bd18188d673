"""The page Steps: one step on a screen, by keys, buttons, touch and link."""

import csv
import io
import re
import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import expect

import mha_core as mha
from tests.browser.conftest import link_of, matrix_of, over_cell

SVG = "{http://www.w3.org/2000/svg}"
FORMULAS = '=1+1 @x "you" 小猫 the the'
GROUPED = {"source": "random", "text": FORMULAS, "twin": "", "layer": 1, "head": 3, "token": 4}
GROUPED |= {"h": 4, "n_kv_heads": 2, "d_model": 24, "mask": "causal"}
NAMES = ("tokens", "project", "split", "scores", "scale", "mask", "softmax", "mix", "concat", "output")
# The words that do not fit into their place.
CUT = """captions => captions.flatMap((one) => [one, ...one.children]).filter((one) =>
    one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline")
  .map((one) => one.textContent)"""
WIDTH = "document.querySelector('[data-testid=stMain]').scrollWidth"


def layer() -> mha.LayerTrace:
    return mha.trace(FORMULAS, h=4, n_kv_heads=2, d_model=24, mask="causal").layers[0]


def assert_at_step(page, name: str) -> None:
    """The link, the drawing, the words and the pictures are those of the step."""
    assert link_of(page).get("operation", NAMES[0]) == name
    number = NAMES.index(name) + 1
    here = page.get_by_role("img", name=f"step {number} of")
    expect(here).to_be_visible()
    headings = page.locator("[data-testid=stMain] h2:visible")
    expect(headings).to_have_count(1)
    expect(headings).to_have_text(re.compile(rf"^{number}\. "))


def symbols(page) -> list[str]:
    return page.locator(".heatmaps figcaption b").all_inner_texts()


@pytest.fixture
def on_steps(visit, app):
    """`on_steps(sent=[])`: the page Steps of four heads that share two of keys and values, causal."""

    def open_(*, more: str = "", **options):
        page = visit(f"{app}/steps?{urlencode(GROUPED)}{more}", **options)
        page.locator(".heatmaps canvas").first.wait_for()
        return page

    return open_


def test_one_step_fills_a_screen_and_moves_without_the_server(on_steps, settled):
    page = on_steps(sent=(sent := []))
    before = len(sent)
    trace = layer()
    assert_at_step(page, "tokens")
    hint = page.locator(".heatmaps .reading")
    page.keyboard.press("ArrowRight")
    assert_at_step(page, "project")
    expect(hint).to_have_text("Hover over a cell to see its value. Click to choose its tokens.")
    assert page.locator(".katex-error").count() == 0
    captions = page.locator(".heatmaps figcaption")
    assert captions.count() == 4
    assert not captions.evaluate_all(CUT)
    page.keyboard.press("ArrowRight")
    assert_at_step(page, "split")
    assert symbols(page) == ["Q₃", "K₂", "V₂"]
    expect(hint).to_contain_text("see where it comes from")  # the first two steps explain no number
    np.testing.assert_array_equal(matrix_of(page, "k K₂"), trace.k[1])
    page.keyboard.press("PageDown")  # as a presenter sends it
    assert_at_step(page, "scores")
    assert symbols(page) == ["Q₃", "K₂", "→ S₃"]
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Next step").click()
    assert_at_step(page, "mask")
    hidden = ~trace.allowed(2)
    np.testing.assert_array_equal(np.isnan(matrix_of(page, "masked S₃ masked")), hidden)
    pictures = page.locator(".heatmaps figure canvas")
    boxes = [picture.bounding_box() for picture in pictures.all()]
    assert {(box["y"], box["height"]) for box in boxes} == {(boxes[0]["y"], boxes[0]["height"])}
    assert page.locator(".cell-path svg").bounding_box()["y"] < 900  # the first screen, above the pictures
    page.get_by_role("img", name="step 6 of").get_by_text("Mix", exact=True).click()
    assert_at_step(page, "mix")
    assert symbols(page) == ["A₃", "V₂", "→ head₃"]
    np.testing.assert_allclose(matrix_of(page, "output head₃"), trace.output(2), atol=1e-6)
    page.get_by_role("button", name="Previous step").click()
    assert_at_step(page, "softmax")
    page.go_back()
    settled(page)
    assert_at_step(page, "mix")
    page.go_forward()
    settled(page)
    assert_at_step(page, "softmax")
    assert len(sent) - before <= 2  # Back and Forward may cost a run each, a step costs none
    page.reload()
    settled(page)
    assert_at_step(page, "softmax")
    page.keyboard.press("End")
    page.locator("[data-testid=stMain]").evaluate("main => main.scrollTo(0, main.scrollHeight)")
    expect(page.get_by_role("button", name="Next step")).to_be_in_viewport()  # the drawing stays
    shown = page.locator(".code-block:visible")
    page.context.grant_permissions(["clipboard-read"])
    shown.get_by_role("button", name="Copy").press("Enter")
    expect(shown.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == shown.locator("pre").inner_text() != ""


def test_a_cell_can_be_read_chosen_enlarged_and_saved(on_steps, settled):
    page = on_steps(more="&operation=softmax", sent=(sent := []))
    trace = layer()
    labels = mha.words(FORMULAS).labels
    reading = page.locator(".heatmaps .reading")
    weights = page.locator(".heatmaps figure canvas").nth(1)  # the scores, the weights, the wrong way
    before = len(sent)

    def says(row: int, column: int) -> None:
        exact = f"{trace.weights(2)[row, column]:#.4g}"  # four digits, as a browser writes them
        expect(reading).to_have_text(f"A₃, {labels[row]} → {labels[column]}: {exact}.")

    over_cell(weights, 5, 0)
    says(5, 0)
    over_cell(weights, 1, 4)
    expect(reading).to_have_text(f"A₃, {labels[1]} → {labels[4]}: hidden by the mask.")
    page.mouse.move(0, 0)
    weights.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert_at_step(page, "softmax")  # arrows walk the cells here
    says(2, 1)
    assert len(sent) == before
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("key_token="))
    settled(page)
    chosen = {name: link_of(page)[name] for name in ("token", "key_token")}
    assert chosen == {"token": "+", "key_token": "1~1"}  # the path of this cell is drawn
    assert len(sent) - before == 1

    large = page.locator(".heatmaps .large")
    page.get_by_role("button", name="Enlarge: Heatmap of A₃").click()
    expect(large.get_by_role("heading", name="A₃ weights: rows sum to 1")).to_be_visible()
    files = {}
    for kind in ("CSV", "SVG"):
        with page.expect_download() as waiting:
            large.get_by_role("button", name=kind, exact=True).click()
        assert waiting.value.suggested_filename.startswith("headscope-weights-A₃-layer-1-head-3-1-1-x")
        files[kind] = waiting.value.path().read_bytes()
    top, *body = csv.reader(io.StringIO(files["CSV"].decode("utf-8-sig")))
    safe = [f"'{label}" if label[0] in "=+-@" else label for label in labels]
    assert (top, [line[0] for line in body]) == (["", *safe], safe)
    found = np.float32([[cell or np.nan for cell in line[1:]] for line in body])
    np.testing.assert_array_equal(found, np.where(trace.allowed(2), trace.weights(2), np.nan))
    texts = ["".join(text.itertext()) for text in ET.fromstring(files["SVG"]).iter(f"{SVG}text")]
    assert texts[0] == "A₃ weights: rows sum to 1"
    assert "layer 1 · head 3" in " ".join(texts)
    assert len(sent) - before == 1
    large.get_by_role("button", name="Close the large picture").click()
    expect(page.get_by_role("button", name="Enlarge: Heatmap of A₃")).to_be_focused()


SWIPE = """([from, to, on]) => {
    const text = on ?? [...document.querySelectorAll('[class*=st-key-step-] p')].find((e) => e.clientWidth);
    const touch = (x) => new Touch({ identifier: 1, target: text, clientX: x, clientY: 300 });
    const send = (kind, touches, x) => text.dispatchEvent(
        new TouchEvent(kind, { bubbles: true, composed: true, touches, changedTouches: [touch(x)] }));
    send('touchstart', [touch(from)], from);
    send('touchend', [], to);
}"""


@pytest.mark.parametrize(("lang", "width"), [("en", 1440), ("zh", 1440), ("zh", 390)])
def test_each_symbol_of_the_formulas_leads_to_its_step_and_is_lit(on_steps, lang, width):
    page = on_steps(more=f"&lang={lang}", width=width)
    links = page.locator(".formulas a")
    steps = links.evaluate_all("all => all.map((one) => one.dataset.step)")
    assert {*NAMES} == {*steps}
    for number, name in enumerate(steps):
        links.nth(number).click()
        assert link_of(page)["operation"] == name
        lit = page.locator(".formulas a[aria-current=step]")
        assert {*lit.evaluate_all("all => all.map((one) => one.dataset.step)")} == {name}
    assert page.evaluate(WIDTH) <= width
    assert links.nth(steps.index("mix")).get_attribute("title").endswith("13 × 6")


def test_on_a_phone_a_swipe_changes_the_step(on_steps):
    page = on_steps(width=390, height=844, touch=True)
    assert_at_step(page, "tokens")
    cut = """() => [...document.querySelectorAll('.katex-html')].flatMap((formula) => {
        const outer = formula.closest('[data-testid=stMarkdownContainer]').getBoundingClientRect();
        return [...formula.querySelectorAll('.mord')].map((e) => e.getBoundingClientRect())
            .filter((box) => box.height && (box.top < outer.top - 1 || box.bottom > outer.bottom + 1));
    }).length"""
    for number, name in enumerate(NAMES):
        assert_at_step(page, name)
        assert page.evaluate(cut) == 0, name
        assert page.evaluate(WIDTH) <= 390, name
        first = page.locator(".heatmaps figure").first.bounding_box()
        assert first["x"] >= 0
        assert first["x"] + first["width"] <= 390
        if number + 1 < len(NAMES):
            page.evaluate(SWIPE, [300, 150])
    page.evaluate(SWIPE, [150, 300])
    assert_at_step(page, "concat")
    page.evaluate(SWIPE, [150, 190])  # too little
    assert_at_step(page, "concat")
    page.evaluate(SWIPE, [150, 300])
    assert_at_step(page, "mix")
    page.evaluate(SWIPE, [300, 150, page.locator(".page-path input").element_handle()])  # it moves the slider
    assert_at_step(page, "mix")
