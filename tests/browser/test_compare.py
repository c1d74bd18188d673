"""Compare in a browser: the view and all figures show the same place."""

from playwright.sync_api import expect

import mha_core as mha
from mha_core.scene.scene import Scene


def test_a_choice_in_the_view_is_shown_in_every_figure(visit, app, eye, settled):
    page = visit(f"{app}/compare", width=390)
    view = eye(page, "compare_view")
    names = view.view.get_by_role("toolbar", name="Sentences").get_by_role("button")
    trained = mha.trace(**Scene().settings(Scene().text)).source.step
    # On a phone they are a row that is swiped.
    for nth, side in enumerate(("Before: step 0", f"After: step {trained:,}")):
        expect(names.nth(nth)).to_contain_text(side)
        for name in ("weights", "q", "k"):
            expect(page.locator(f".st-key-compare-{name} figcaption b").nth(nth)).to_contain_text(side)
    titles = view.view.locator(".title")
    for width in (1440, 390):  # both names of the sides are whole
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        expect(titles).to_have_count(2)
        for number in range(2):
            box = titles.nth(number).evaluate(
                "(e) => [e.scrollWidth, e.clientWidth, e.scrollHeight, e.clientHeight]"
            )
            assert box[0] <= box[1]
            assert box[2] <= box[3] + 1
    names.nth(1).click()
    view.token(2, number=1).click()
    settled(page)
    assert view.chosen_word(1) == "animal"
    view.chip("head 2").dblclick()
    settled(page)
    assert ("token=animal" in page.url, "head=2" in page.url) == (True, True)
