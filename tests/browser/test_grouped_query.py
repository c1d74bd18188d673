"""Heads that share keys and values in a browser: switches in frames, brackets over columns."""

from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import pixels


def link(app: str, **settings) -> str:
    base = {"source": "random", "twin": "", "h": 6, "d_model": 48, "layers": 2, "layer": 1, "head": 1}
    return f"{app}/?{urlencode(base | settings)}"


def frames(page) -> list[tuple[str, str, list[str]]]:
    """For each frame its visible name, its label, and the chips in it."""
    page.locator(".chips .chip").first.wait_for()
    return page.locator(".chips .shared").evaluate_all(
        """all => all.map((box) => [box.querySelector('.label').textContent, box.getAttribute('aria-label'),
            [...box.querySelectorAll('.chip')].map((chip) => chip.textContent)])"""
    )


def test_the_switches_of_heads_that_share_are_in_one_frame(view_of):
    view = view_of(source="random", twin="", h=6, d_model=48, n_kv_heads=2, head="1")
    assert frames(view.page) == [
        [f"K V {kv}", f"Heads {first}–{first + 2} share key/value head {kv}", chips]
        for kv, first, chips in (
            (1, 1, ["head 1", "head 2", "head 3"]),
            (2, 4, ["head 4", "head 5", "head 6"]),
        )
    ]
    before = view.on()
    view.chip("head 5").click()
    assert view.on() == sorted({4} ^ set(before))
    view.chip("head 2").dblclick()
    assert view.on() == [1]
    view.chip("head 4").click(modifiers=["Shift"])
    assert view.on() == [1, 2, 3]
    view.chip("all").click()
    assert view.on() == list(range(6))


def test_one_frame_of_all_heads_fits_a_phone(visit, app):
    page = visit(link(app, n_kv_heads=1, h=16, d_model=64), width=390)
    [(_, _, chips)] = frames(page)
    right = page.locator(".chips").evaluate("(e) => [e.scrollWidth, e.clientWidth]")
    assert right[0] <= right[1]
    assert chips == [str(head) for head in range(1, 17)]  # so many are told apart by their numbers alone
    first = page.locator(".chips").get_by_role("button", name="head 1", exact=True)
    expect(first).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


def beam(canvas) -> list[bool]:
    """The columns in which something is drawn right above the pictures: a bracket has its beam there."""
    return (pixels(canvas)[14:17, :, 3] > 60).any(0).tolist()


def test_a_bracket_covers_the_columns_that_share(visit, app):
    page = visit(link(app, n_kv_heads=3, layers=3, head=4))
    canvas = page.locator(".overview canvas.all")
    drawn = beam(canvas)
    starts = [x for x in range(1, len(drawn)) if drawn[x] and not drawn[x - 1]]
    assert len(starts) == 3  # of six heads two share one each
    pitch = (canvas.bounding_box()["height"] - 18 + 4) / 3
    for nth, start in enumerate(starts):
        assert start == pytest.approx(26 + 2 * nth * pitch, abs=4)
    assert sum(drawn) == pytest.approx(6 * pitch, abs=30)
    assert page.locator(".overview .facts strong").inner_text().endswith("head 4 · K V 2")

    page = visit(link(app, n_kv_heads=6, layers=3))  # none that share
    assert frames(page) == []
    canvas = page.locator(".overview canvas.all")
    assert not any(beam(canvas))
    assert "K V" not in page.locator(".overview .facts strong").inner_text()
