"""The gallery in a browser: the first screen that a card's link opens shows what the card says to notice."""

import pytest
from playwright.sync_api import expect

from pages.learn._cases.gallery import cases

CASES = {case.name: case for case in cases()}
SECTIONS = {case.name: page.section for case in CASES.values() if (page := case.scene.page).section}
# Of cases whose page is not scrolled, what their card is about.
SHOWN = {
    "base": ".tensors figure:has-text('512 × 512') >> nth=-1",
    "widths": ".tensors figure:has-text('800 × 512')",
    "pronoun": ".view .stage >> nth=1",
    "symbols": ".st-key-step-scores .katex:has-text('dumpty')",
    "every_pair": ".view .stage canvas",
    "relations": ".view .stage >> nth=1",
    "stacking": ".st-key-step-project p:has-text('The two differ by at most')",
    "learned": ".view .stage >> nth=1",
    "masks": ".view .stage canvas >> nth=1",
    "chinese": ".view .stage >> nth=1",
}
TOP = 120  # pixels below which a heading is not at the top


@pytest.mark.parametrize("name", SHOWN)
def test_the_first_screen_shows_what_the_card_is_about(visit, app, name):
    page = visit(f"{app}/{CASES[name].address.removeprefix('./')}")
    expect(page.locator(SHOWN[name])).to_be_in_viewport(ratio=0.95)


@pytest.mark.parametrize(("name", "width"), [*((name, 1440) for name in SECTIONS), ("equal_cost", 390)])
def test_a_link_to_a_section_opens_there_and_lets_go_when_the_user_scrolls(visit, app, name, width):
    page = visit(f"{app}/{CASES[name].address.removeprefix('./')}", width=width)
    heading = page.locator(f"#{SECTIONS[name]}")
    expect(heading).to_be_in_viewport()
    assert heading.bounding_box()["y"] < TOP
    page.mouse.move(width / 2, 500)
    page.mouse.wheel(0, -2000)
    page.wait_for_function(
        "([name, top]) => document.getElementById(name).getBoundingClientRect().top > top",
        arg=[SECTIONS[name], TOP],
    )
    page.evaluate("document.body.append(document.createElement('i'))")  # something is drawn
    page.wait_for_timeout(100)
    assert heading.bounding_box()["y"] > TOP


def test_a_link_to_a_section_opens_there_with_a_value_that_is_the_default(visit, app):
    page = visit(f"{app}/embeddings?h=16&d_model=64#relations")  # Streamlit takes d_model out of the address
    expect(page.locator("#relations")).to_be_in_viewport()


def test_a_card_leads_to_the_section_of_its_case(visit, app, settled):
    page = visit(f"{app}/cases")
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="Many heads cost as much as one").click()
    opened = opening.value
    settled(opened)
    expect(opened.locator("#by-heads")).to_be_in_viewport()
    opened.close()
