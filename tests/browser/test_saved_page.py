"""A saved page in a notebook and in an old browser."""

import pytest

import mha_core as mha
from mha_core.export import head_view

DRAWN = ".view .panel .status span"


@pytest.fixture
def tab(browser):
    """A blank tab without a network; no script of it may fail."""
    context, failures = browser.new_context(offline=True), []
    page = context.new_page()
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert failures == []


@pytest.fixture(scope="module")
def view():
    return mha.trace("小猫 حيوان two ! < three", h=2, d_model=8, layers=2).view(layer=0)


def test_a_notebook_shows_the_page_in_a_frame(tab, view):
    tab.set_content(f"<!doctype html><meta charset=utf-8><body>{view._repr_html_()}")
    frame = tab.locator("iframe").content_frame
    frame.locator(DRAWN).first.wait_for()
    caption = frame.locator(".caption")
    source = "random weights, h 2, d_model 8, seed 0, mask: full, positions: sinusoidal"
    assert caption.inner_text() == f"小猫 حيوان two ! < three · {source} · layer 1 of 2"
    frame.locator(".segments button", has_text="2").click()
    assert caption.inner_text().endswith("· layer 2 of 2")


def test_a_head_of_the_ledger_is_shown_in_the_view_above(tab, tmp_path):
    trace = mha.trace("The animal was tired because it slept.", source="mini", architecture="standard")
    found = mha.ledger(trace)
    trace.view(layer=0, ledger=found).save(tmp_path / "view.html")
    tab.goto((tmp_path / "view.html").as_uri())
    ledger = tab.locator(".ledger")
    assert f"Token {found.token + 1}, “it”." in ledger.inner_text()
    parts = ledger.locator(".part")
    assert parts.count() == (found.shares != 0).sum()
    assert parts.first.get_attribute("aria-label").endswith(f" {abs(found.shares).max():.4g}")
    ledger.get_by_role("button", name="layer 2 head 1 ").click()
    assert "layer 2 of 2" in tab.locator(".view .caption").inner_text()
    assert tab.locator(".chips [aria-pressed=true]").get_attribute("data-head") == "0"


def test_an_old_browser_shows_a_message(tab, view, tmp_path):
    view.save(tmp_path / "view.html")
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto((tmp_path / "view.html").as_uri())
    said = tab.get_by_text(head_view.texts("en")["old_browser"])
    said.wait_for()
    assert tab.locator(DRAWN).count() == 0
