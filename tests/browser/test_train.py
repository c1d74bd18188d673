"""Live training in a browser: start, watch, stop, continue, choose a step, use the model elsewhere."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server

LONG = 480_000  # milliseconds that a training may take
ANIMAL = 2  # its position
SMALL = "train?train_h=2&train_d_model=32"


def button(page, name: str):
    return page.get_by_role("button", name=name, exact=True)


def step(page) -> int:
    """The step that the progress line names."""
    line = page.get_by_text(re.compile(r"^(Step|Stopped at step) [\d,]+ of")).first.inner_text()
    return int(re.search(r"[\d,]+", line)[0].replace(",", ""))


def weight_on_animal(view) -> float:
    """The largest weight of any head from the chosen "it" of the first sentence to "animal"."""
    return max((weight for _, _, key, weight in view.lines() if key == ANIMAL), default=0)


@pytest.fixture(scope="module")
def short():
    """The address of a server whose trainings are short."""
    server = Server(script=Path(__file__).with_name("short_app.py"))
    yield server.address
    server.stop()


def test_a_training_is_watched_stopped_continued_and_scrubbed(visit, short, settled, eye):
    page = visit(f"{short}/{SMALL}", height=1400)
    button(page, "Start").click()
    expect(page.get_by_text(re.compile(r"^Step [1-9][\d,]* of 500"))).to_be_visible(timeout=LONG)
    button(page, "Stop").click()  # at once: a fast machine is soon at the end
    expect(page.get_by_text(re.compile("^Stopped at step"))).to_be_visible(timeout=LONG)
    view = eye(page, "train_heads")
    assert view.lines()
    names = view.view.locator(".names button")  # seen where the two have no room beside each other
    assert [name.rpartition(" too ")[2] for name in names.all_text_contents()] == ["tired.", "wide."]
    assert all(name.startswith("… ") for name in names.all_text_contents())
    stopped = step(page)
    page.reload()  # a reload loses nothing
    expect(button(page, "Continue")).to_be_visible(timeout=LONG)
    assert step(page) == stopped

    button(page, "Continue").click()
    expect(button(page, "Look at its heads")).to_be_visible(timeout=LONG)  # without a click
    settled(page)
    view = eye(page, "train_heads")
    assert view.view.locator(".foot button").all_inner_texts() == ["Unpin (Esc)"]
    after = weight_on_animal(view)
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    expect(page.get_by_text(re.compile("^At step 0 "))).to_be_visible()
    settled(page)
    assert weight_on_animal(view) < 0.2 < 0.3 < after
    assert view.token(ANIMAL).locator("bdi").inner_text() == "animal"

    button(page, "Look at its heads").click()  # as they are at step 0, which is chosen
    expect(page.get_by_role("heading", name="What does each head look at?")).to_be_visible()
    settled(page)
    assert {"source=run", "step=0"} <= set(page.url.partition("?")[2].split("&"))
    expect(page.locator(".st-key-head_view .chip")).to_have_count(3)  # two heads and "all"


def test_closing_the_page_stops_a_training_that_nobody_else_wants(visit, short):
    wide = f"{short}/train?train_h=2&train_d_model=256&train_seed=901"  # a step of it takes long
    page = visit(wide)
    button(page, "Start").click()
    expect(page.get_by_text(re.compile(r"^Step [1-9][\d,]* of"))).to_be_visible(timeout=LONG)
    page.goto(f"{short}/_stcore/health")
    end = visit(wide).get_by_text(re.compile("^(Stopped at step|Finished)")).first
    assert end.inner_text(timeout=LONG).startswith("Stopped")
