"""The gallery in a browser: a card's link opens with the fact of the card on the first screen."""

import pytest
from playwright.sync_api import expect

from pages._kit.cases import cases
from tests.browser.conftest import TWO_FRAMES

CASES = {case.name: case.address.removeprefix("./") for case in cases()}
# The subject of the card of each case whose page begins with something else than a head view.
SHOWN = {
    "base": ".tensors figure:has-text('8 × 10 × 64') >> nth=0",
    "symbols": ".st-key-step-scores .katex:has-text('dumpty')",
    "stacking": ".st-key-step-project p:has-text('Largest difference')",
}
TOP = 200  # pixels below which a heading is not at the top


@pytest.mark.parametrize("name", SHOWN)
def test_the_first_screen_shows_what_the_card_is_about(visit, app, name):
    page = visit(f"{app}/{CASES[name]}")
    expect(page.locator(SHOWN[name])).to_be_in_viewport(ratio=0.95)


# Streamlit takes d_model out of the first address, since it is the default.
@pytest.mark.parametrize(
    ("address", "width"),
    [
        ("embeddings?h=16&d_model=64#relations", 1440),
        (CASES["mixture"], 1440),
        (CASES["masks"], 1440),
        (CASES["equal_cost"], 390),
    ],
)
def test_a_link_to_a_section_opens_there_until_the_user_scrolls(visit, app, address, width):
    page = visit(f"{app}/{address}", width=width)
    section = address.partition("#")[2]
    heading = page.locator(f"#{section}")
    expect(heading).to_be_in_viewport()
    assert heading.bounding_box()["y"] < TOP
    page.mouse.move(width / 2, 500)
    page.mouse.wheel(0, -2000)
    page.wait_for_function(
        "([name, top]) => document.getElementById(name).getBoundingClientRect().top > top",
        arg=[section, TOP],
    )
    page.evaluate("document.body.append(document.createElement('i'))")  # something is drawn
    page.evaluate(TWO_FRAMES)
    assert heading.bounding_box()["y"] > TOP


def test_a_case_opens_in_the_same_tab_and_leads_on_and_back(visit, app, settled):
    page = visit(f"{app}/cases")
    tabs, said = len(page.context.pages), page.locator(".case")
    page.get_by_role("link", name="Many heads cost as much as one").click()
    expect(said).to_contain_text("Case 7 of 17")
    expect(said).to_contain_text("h heads of width d_model / h need as many parameters")
    settled(page)
    heading = page.locator("#by-heads")
    expect(heading).to_be_in_viewport()
    expect(said).to_be_in_viewport(ratio=1)
    above = said.bounding_box()
    assert heading.bounding_box()["y"] >= above["y"] + above["height"]  # which hides no heading
    page.get_by_role("link", name="next ›").click()
    expect(said).to_contain_text("Case 8 of 17")
    expect(page.get_by_role("heading", level=1)).to_have_text("How many heads?")
    settled(page)
    page.go_back()
    expect(said).to_contain_text("Case 7 of 17")
    settled(page)
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("What can you see here?")
    assert len(page.context.pages) == tabs


def test_a_case_stays_open_until_its_page_is_left(visit, app, settled):
    page = visit(f"{app}/?h=8&layer=2&head=6&heads=4,5,6&token=it&case=11")
    said = page.locator(".case")
    page.get_by_role("button", name="arcs", exact=True).click()
    page.locator(".st-key-h input").fill("4")
    page.keyboard.press("Enter")
    settled(page)
    expect(said).to_contain_text("Case 11 of 17")
    page.get_by_role("button", name="Leave the cases").click()
    expect(said.locator("p")).to_have_count(0)
    page.locator(".st-key-h input").fill("8")
    page.keyboard.press("Enter")
    settled(page)
    expect(said.locator("p")).to_have_count(0)
    assert "case=" not in page.url
    page.goto(f"{app}/?h=8&case=11")
    settled(page)
    page.get_by_role("link", name="Token", exact=True).first.click()
    settled(page)
    expect(said).to_have_count(0)
    assert "case=" not in page.url
