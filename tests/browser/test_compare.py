"""Compare in a browser: its view is one of several figures, and all of them are of the same place."""

from playwright.sync_api import expect


def test_what_is_chosen_in_the_view_is_chosen_in_every_figure_of_the_page(visit, app, eye, settled):
    page = visit(f"{app}/compare", width=390)
    view = eye(page, "compare_view")
    names = view.view.get_by_role("toolbar", name="Sentences").get_by_role("button")
    for nth, side in enumerate(("Before: step 0", "After: step 8,000")):  # on a phone a row that is swiped
        expect(names.nth(nth)).to_contain_text(side)
        for name in ("weights", "q", "k"):
            expect(page.locator(f".st-key-compare-{name} figcaption b").nth(nth)).to_contain_text(side)
    names.nth(1).click()
    view.token(2, number=1).click()
    settled(page)
    assert view.chosen_word(1) == "animal"
    view.chip("head 2").dblclick()
    settled(page)
    assert ("token=animal" in page.url, "head=2" in page.url) == (True, True)
