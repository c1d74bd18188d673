"""A click on a cell says where its number comes from, on every page with matrices of a head."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import over_cell

EDIT = "cut%2Clayer%3D2%2Cfrom%3D9%2Cto%3D3"
# Of each page a component, and a picture of it with the first steps of its number at (2, 1).
PAGES = {
    "token": ("one-products", 2, ["Score: query · key", "Scaled", "Softmax over the row"]),
    "steps?operation=mix": ("steps", 1, ["Token × column of W"]),
    "hops?architecture=standard": ("hops-first", 0, ["Score: query · key", "Scaled"]),
    f"what-if?edits={EDIT}": ("what-if-weights", 1, ["Score: query · key", "Scaled", "Mask"]),
}


@pytest.mark.parametrize("address", PAGES)
def test_a_click_on_a_cell_explains_its_number(visit, app, settled, address):
    page = visit(f"{app}/{address}")
    component, picture, steps = PAGES[address]
    pictures = page.locator(f".st-key-{component} .heatmaps")
    canvas, panel = pictures.locator("figure canvas").nth(picture), pictures.locator(".explanation")
    canvas.scroll_into_view_if_needed()
    over_cell(canvas, 2, 0 if component == "one-products" else 1)
    reading = pictures.locator(".reading").inner_text()
    expect(panel).to_be_hidden()
    page.mouse.down()
    page.mouse.up()
    panel.get_by_role("heading").wait_for()
    settled(page)
    heading = panel.get_by_role("heading").inner_text().replace("−", "-")
    value = float(re.search(r": (\S+)\.$", reading)[1])
    assert float(heading.rpartition("= ")[2]) == pytest.approx(value, rel=2e-3, abs=1e-6)
    titles = panel.locator("li b").all_inner_texts()
    assert titles[: len(steps)] == steps
    for name in ("Copy as PyTorch", "Copy as LaTeX"):
        expect(panel.get_by_role("button", name=name)).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
