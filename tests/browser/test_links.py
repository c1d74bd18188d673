"""The link of a page opens the same picture in a fresh visit; heads of older weights are replaced."""

import contextlib

import pytest
from playwright.sync_api import TimeoutError, expect

import mha_core as mha
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import position
from mha_core.scene.first_look import focus_on_answer
from mha_core.scene.scene import Scene
from mha_core.training.checkpoints import edition
from pages._kit.text import catalogue
from tests.browser.conftest import click_cell, link_of
from tests.browser.test_focus import kinds

# Pages whose pictures a browser draws, each with something of its own that is not as it begins.
PAGES = ["compare?against=h:8", "embeddings?classes=food&classes=animal&word=cat"]
# The texts of the page, the numbers of its matrices, and the lines between its words, inside all components.
DRAWN = """() => {
    const found = [];
    const isChosen = (e) => ['aria-selected', 'aria-checked'].some((name) => e.getAttribute(name) === 'true');
    const walk = (root) => {
        for (const e of root.querySelectorAll('*')) {
            const pictures = (e.heatmaps ?? e.view?.matrices)?.gallery.pictures ?? {};
            for (const [name, { map }] of Object.entries(pictures))
                found.push([name, ...map.numbers.values].join());
            for (const { drawing } of e.view?.drawings ?? [])
                found.push(...(drawing.curves ?? []).map((c) => [c.head, c.query, c.key, c.weight].join()));
            if (isChosen(e)) found.push('chosen');
            if (e.textContent && !e.childElementCount && e.checkVisibility()) found.push(e.textContent);
            if (e.shadowRoot) walk(e.shadowRoot);
        }
    };
    walk(document.querySelector('[data-testid=stMain]'));
    return found;
}"""


@pytest.mark.parametrize("link", PAGES)
def test_the_link_of_a_page_opens_the_same_picture(visit, app, settled, link):
    page = visit(f"{app}/{link}", heard=(heard := []))
    for choice in (
        page.locator(".chooser [data-field=head]").get_by_role("radio"),
        page.locator(".chooser [data-field=token]").get_by_role("radio"),
        page.locator(".view .strip .token"),
        page.locator(".view .all-heads .grid button"),
    ):
        if choice.count():
            before = len(heard)
            choice.nth(2).click()
            settled(page)
            if link.startswith("embeddings"):
                assert "navigation" not in kinds(heard[before:])  # the frame did not run
    page.mouse.move(0, 0)
    settled(page)
    drawn = page.evaluate(DRAWN)
    assert len(drawn) > 10
    fresh = visit(page.url)
    with contextlib.suppress(TimeoutError):  # a component may be drawn late
        same = f"drawn => JSON.stringify(({DRAWN})()) === JSON.stringify(drawn)"
        fresh.wait_for_function(same, arg=drawn, timeout=20_000)
    assert fresh.evaluate(DRAWN) == drawn


def test_a_link_to_a_head_of_older_weights_opens_the_head_with_an_answer(visit, app, settled, eye):
    page = visit(f"{app}/?token=cross&layer=1&head=2&heads=2,3&weights={edition() - 1}", first=True)
    trace = mha.trace(Scene().text, source="mini")
    focus = focus_on_answer(Focus(token="cross"), trace, position(trace.tokens, "cross"))
    assert focus.head != Focus.head
    page.get_by_text(catalogue("en")["link.older_weights"]).wait_for()
    shown = {"token": "cross", "head": str(focus.head)}
    assert link_of(page) == shown
    assert f"weights={edition()}" in page.url
    assert eye(page).title().startswith(f"The six matrices of head {focus.head}, layer {focus.layer}")
    page.locator(".view .strip .token").nth(2).click()
    page.go_back()
    settled(page)
    assert link_of(page) == shown  # no entry of the history names a head of the older weights
    assert page.evaluate("navigation.entries().length") == 2  # and the choice


def test_the_large_matrix_and_the_explained_number_are_in_the_link(visit, app, settled, eye):
    page = visit(app)
    view = eye(page)
    view.view.locator(".six button").nth(4).click()
    click_cell(view.view.locator(".large canvas.heatmap"), 8, 2)
    settled(page)
    said = view.view.locator(".cell-path h3").inner_text()
    assert said.startswith("A₁ · it → animal = 0.99")
    assert (link_of(page)["matrix"], link_of(page)["number"]) == ("weights", "9,3")
    assert view.chosen_word() == "it"  # a click on a number of its own row does not unpin it
    fresh = visit(page.url)
    assert eye(fresh).view.locator(".cell-path h3").inner_text() == said
    assert eye(fresh).view.locator(".large h3").inner_text().startswith("A₁")
    view.view.locator(".cell-path").press("Escape")
    expect(view.view.locator(".cell-path")).to_be_hidden()
    assert "number" not in link_of(page)


def test_what_a_link_says_that_a_page_does_not_ask_for_takes_no_room_there(visit, app, settled):
    tops = []
    for beyond in ("", "&h=8"):
        page = visit(f"{app}/lessons?lesson=heads{beyond}")
        page.locator(".act").wait_for()
        settled(page)
        tops.append(page.locator(".lesson .place").bounding_box()["y"])
    assert tops[0] == tops[1]
