"""A click on a cell explains its number, on every page with matrices of a head."""

import re

import pytest
from playwright.sync_api import expect

from mha_core.scene.scene import Scene
from mha_core.sources import mini
from tests.browser.conftest import click_cell, over_cell

SCENE = Scene()


def test_a_click_on_a_cell_explains_its_number(visit, app, settled):
    page = visit(f"{app}/steps?steps_view=layers&architecture=standard")
    pictures = page.locator(".st-key-hops-first .heatmaps")
    canvas, panel = pictures.locator("figure canvas").first, pictures.locator(".cell-path")
    canvas.scroll_into_view_if_needed()
    over_cell(canvas, 2, 1)
    reading = pictures.locator(".reading").inner_text()
    expect(panel).to_be_hidden()
    page.mouse.down()
    page.mouse.up()
    value = float(re.search(r": (\S+)\.$", reading.replace("−", "-"))[1])
    assert explained_number(panel) == pytest.approx(value, rel=2e-3, abs=1e-6)
    settled(page)
    assert panel.locator(".stages button").all_inner_texts()[:3] == ["Vectors", "Products", "Scale"]
    panel.get_by_text("Code that prints this number").click()
    for name in ("Copy as PyTorch", "Copy as LaTeX"):
        expect(panel.get_by_role("button", name=name)).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    click_cell(canvas, 2, 1)
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")  # the matrix has the keyboard's focus
    expect(panel).to_be_hidden()

    click_cell(canvas, 2, 1)
    expect(panel).to_be_visible()
    sentence = page.get_by_role("textbox", name="Sentence", exact=True)
    sentence.fill("The cat sat on the mat.")  # another number: no explanation is sent for this sentence
    sentence.press("Enter")
    settled(page)
    expect(panel).to_be_hidden()


def test_any_cell_is_explained_in_four_clicks(visit, app, settled, eye):
    """Another layer, another head, its matrix, the cell; or another layer, the way to Z, the cell."""
    trace = mini.trace(SCENE.text, source="mini", h=SCENE.h, d_model=SCENE.d_model)
    page = visit(f"{app}?edits=temperature%2Cby%3D2")  # Heads shows the model as it is
    view = eye(page)
    panel = view.view.locator(".cell-path")
    view.button("layer 1").click()
    view.pictures().nth(2).click()
    view.view.locator(".six figure button").nth(4).click()
    click_cell(view.view.locator(".large canvas.heatmap"), 2, 1)
    assert explained_number(panel) == pytest.approx(trace.layers[0].weights(2)[2, 1], rel=2e-3)

    # What if it were hidden: the same layer, head and token, beside what was changed before; and back.
    panel.get_by_role("link", name="What if this cell were hidden?").click()
    page.wait_for_url("**/what-if?**")
    expect(page.get_by_role("button", name="temperature 2")).to_be_visible()
    expect(page.get_by_role("button", name="“animal” blocked from “The”")).to_be_visible()
    experiment = eye(page, "what_if_view")
    assert (experiment.on(), experiment.chosen_word()) == ([2], "animal")
    page.get_by_role("link", name="Heads", exact=True).click()
    page.wait_for_url(lambda url: "what-if" not in url)
    settled(page)
    view = eye(page)
    assert (view.on(), view.chosen_word()) == ([2], "animal")

    page.get_by_role("link", name="Z: all heads together").click()
    page.wait_for_url("**/steps?**operation=output**")
    settled(page)
    pictures = page.locator(".st-key-steps .heatmaps")
    click_cell(pictures.locator("figure canvas").nth(2), 3, 5)
    panel = pictures.locator(".cell-path")
    assert explained_number(panel) == pytest.approx(trace.layers[0].result()[3, 5], rel=2e-3)
    expect(panel.locator(".sentence")).to_contain_text("4 products and a bias added up")
    page.set_viewport_size({"width": 390, "height": 844})  # "head 1" has no room above its number
    expect(panel.locator("svg .heading")).to_have_text(["1", "2", "3", "4", "bᴼ", "Σ head · Wᴼ + b"])


def explained_number(panel) -> float:
    """The number in the heading of a panel."""
    heading = panel.get_by_role("heading")
    heading.wait_for()
    return float(heading.inner_text().replace("−", "-").rpartition("= ")[2])
