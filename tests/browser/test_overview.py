"""The overview of all heads in a browser: hover, keys, click, orders, a phone, two themes."""

from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import expect

import mha_core as mha
from mha_core.analysis.overview import overview
from mha_core.scene.scene import Scene
from tests.browser.conftest import link_of, pixels

LAYERS, HEADS = 6, 12
TEXT = "one two three two five"
SIZES = {"layers": LAYERS, "h": HEADS, "d_model": 48}
LINK = {"source": "random", "text": TEXT, "twin": "", **SIZES, "layer": 1, "head": 1}
LEFT, TOP, GAP = 26, 18, 6  # of the script; what is not so is found out by the pixels


@pytest.fixture
def open_overview(visit, app):
    """The page, its overview drawn."""

    def open_page(**how):
        page = visit(f"{app}?{urlencode(LINK)}", **how)
        expect(canvas(page)).to_be_visible()
        return page

    return open_page


@pytest.fixture(scope="module")
def expected():
    trace = mha.trace(**(Scene(source="random").settings(TEXT) | SIZES))
    return trace, overview(trace)


def canvas(page):
    return page.locator(".overview canvas.all")


def name(page) -> str:
    return page.locator(".overview .facts strong").inner_text()


def pitch(page) -> float:
    return (canvas(page).bounding_box()["height"] - TOP - 2 + GAP) / LAYERS


def middle(page, layer: int, head: int) -> dict:
    """The middle of a head's picture in the grid; layers and heads from 1."""
    step = pitch(page)
    return {"x": LEFT + (head - 0.5) * step - GAP / 2, "y": TOP + (layer - 0.5) * step - GAP / 2}


def chosen(page) -> tuple[str, str]:
    link = link_of(page)
    return link.get("layer", "2"), link.get("head", "1")  # what is not in a link is the default


def test_a_head_is_described_by_pointer_and_keys_and_sorted_without_the_server(
    open_overview, expected, settled
):
    page = open_overview(sent=(sent := []))
    expect(page.get_by_role("application", name="72 heads of 6 layers")).to_be_visible()
    expect(page.locator(".overview [aria-live=polite]")).to_contain_text("Layer 1, head 1")
    before = len(sent)
    away, picture = page.get_by_role("heading", level=1), "canvas => canvas.toDataURL()"
    away.hover()
    pictures = [canvas(page).evaluate(picture)]
    for layer, head in ((3, 7), (6, 12)):
        canvas(page).hover(position=middle(page, layer, head))
        assert name(page) == f"Layer {layer}, head {head}"
        row = expected[1].table.loc[(layer - 1, head - 1)]
        numbers = page.locator(".overview dd").all_inner_texts()
        assert numbers == [f"{row[m]:.{1 if m == 'distance' else 2}f}" for m in row.index]
        pictures.append(canvas(page).evaluate(picture))
    assert len(set(pictures)) == 3
    away.hover()
    assert name(page) == "Layer 1, head 1"
    assert canvas(page).evaluate(picture) == pictures[0]

    order = page.locator(".overview .orders button", has_text="entropy")
    column = expected[1].table["entropy"].astype(np.float32)
    across = (canvas(page).bounding_box()["width"] - LEFT - 2 + GAP) / HEADS  # from a picture to the next
    for ascending in (True, False):  # a second press turns it
        order.click()
        assert order.inner_text() == f"entropy {'↑' if ascending else '↓'}"
        ranked = column.sort_values(ascending=ascending, kind="stable").index
        for nth in (0, 1):
            canvas(page).hover(position={"x": 12 + nth * across, "y": 12})
            layer, head = ranked[nth]
            assert name(page) == f"Layer {layer + 1}, head {head + 1}"
    page.locator(".overview .orders button").first.click()
    away.hover()

    canvas(page).focus()
    for key, at in (
        ("ArrowRight", "Layer 1, head 2"),
        ("ArrowDown", "Layer 2, head 2"),
        ("End", "Layer 6, head 12"),
        ("ArrowUp", "Layer 5, head 12"),
    ):
        page.keyboard.press(key)
        assert name(page) == at
    settled(page)
    assert len(sent) == before
    assert chosen(page) == ("1", "1")
    page.keyboard.press("Enter")
    settled(page)
    assert chosen(page) == ("5", "12")
    page.keyboard.press("ArrowUp")  # the focus has stayed
    assert name(page) == "Layer 4, head 12"
    page.get_by_role("button", name="As a table").click()
    expect(page.get_by_role("dialog", name="As a table").get_by_test_id("stDataFrame")).to_be_visible()


def test_every_picture_shows_its_own_weights_in_the_colours_of_the_theme(open_overview, expected):
    page = open_overview(theme="dark")
    listed = page.locator(".overview").evaluate(
        "e => getComputedStyle(e).getPropertyValue('--st-chart-sequential-colors')"
    )
    scale = np.array(
        [[int(colour.strip()[i : i + 2], 16) for i in (1, 3, 5)] for colour in listed.split(",")]
    )
    stops = np.linspace(0, 1, len(scale))
    size, drawn = pitch(page) - GAP, pixels(canvas(page))
    for layer, head in ((1, 1), (1, 12), (2, 5), (6, 3)):
        weights = expected[0].layers[layer - 1].weights(head - 1)
        for query, key in ((1, 3), (2, 1), (3, 3)):
            at, cell = middle(page, layer, head), size / len(weights)
            x, y = at["x"] + (key - 2) * cell + 1, at["y"] + (query - 2) * cell + 1
            wanted = [np.interp(np.sqrt(weights[query, key]), stops, scale[:, c]) for c in range(3)]
            np.testing.assert_allclose(drawn[int(y), int(x)], [*wanted, 255], atol=3)


def test_on_a_phone_a_tap_shows_a_head_and_the_button_opens_it(open_overview, settled):
    page = open_overview(width=390, height=844, touch=True, scale=2)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    assert canvas(page).bounding_box()["width"] <= 358
    opener = page.get_by_role("button", name="Open this head")
    assert not opener.is_visible()
    step = (canvas(page).bounding_box()["height"] - TOP) / LAYERS
    canvas(page).tap(position={"x": LEFT + 3.5 * step, "y": TOP + 2.5 * step})
    assert name(page) == "Layer 3, head 4"
    settled(page)
    assert chosen(page) == ("1", "1")
    opener.tap()
    settled(page)
    assert chosen(page) == ("3", "4")
    assert not opener.is_visible()
