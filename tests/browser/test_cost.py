"""Shapes and cost in a browser: the question, the formula and its cost are on the first screen."""

import pytest
from playwright.sync_api import expect

from mha_core.scene.page import PAGES


def test_the_formula_and_its_cost_fit_the_first_screen(visit, app):
    page = visit(f"{app}/cost", width=1440, height=900)
    for width, height in ((1440, 900), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        for key in ("cost_sizes", "tensors"):
            expect(page.locator(f".st-key-{key}")).to_be_in_viewport(ratio=1)
        expect(page.get_by_text("1,048,576").first).to_be_in_viewport(ratio=0.95)
        squares = [box.bounding_box() for box in page.locator(".tensors .learned .box").all()]
        assert len(squares) == 4
        assert all(box["width"] == pytest.approx(box["height"]) and box["width"] > 80 for box in squares)


def test_every_size_can_be_set_and_a_closed_menu_keeps_its_own(visit, app, settled):
    page = visit(f"{app}/cost?cost_n_kv_heads=2", width=1280)
    figure = page.locator(".tensors")
    expect(figure).to_contain_text("512 × 128")
    page.get_by_role("button", name="More sizes").click()
    fields = {*PAGES["cost"]} - {"cost_q_rank", "cost_rotary_width"}  # only the latent vector has these
    for field in fields:
        expect(page.locator(f".st-key-{field}")).to_be_visible()
    page.locator(".st-key-cost_d_v input").fill("100")
    page.keyboard.press("Enter")
    page.wait_for_url("**cost_d_v=100**")
    settled(page)
    page.keyboard.press("Escape")
    expect(figure).to_contain_text("512 × 200")
    page.reload()
    expect(figure).to_contain_text("512 × 200")
    assert "cost_n_kv_heads=2" in page.url
