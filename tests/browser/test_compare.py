"""Compare in a browser: the view and all figures show the same place."""

from playwright.sync_api import expect

import mha_core as mha
from mha_core.scene.scene import Scene
from tests.browser.conftest import link_of


def test_both_sides_are_named_whole_and_a_choice_in_the_view_is_in_the_link(visit, app, eye, settled):
    page = visit(f"{app}/compare", width=390)
    view = eye(page, "compare_view")
    names = view.view.get_by_role("toolbar", name="Sentences").get_by_role("button")
    trained = mha.trace(**Scene().settings(Scene().text)).source.step
    # On a phone they are a row that is swiped.
    for nth, side in enumerate(("Before: step 0", f"After: step {trained:,}")):
        expect(names.nth(nth)).to_contain_text(side)
        expect(page.locator(".st-key-compare-weights figcaption b").nth(nth)).to_contain_text(side)
    titles = view.view.locator(".title")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        expect(titles).to_have_count(2)
        for title in titles.all():
            assert title.evaluate(
                "e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight + 1"
            )
    names.nth(1).click()
    view.token(2, number=1).click()
    settled(page)
    assert view.chosen_word(1) == "animal"
    view.chip("head 2").dblclick()
    settled(page)
    assert [link_of(page)[name] for name in ("token", "head")] == ["animal", "2"]
