"""Before / after in a browser: its view is one of several figures, and all of them are of the same place."""

from playwright.sync_api import expect


def test_what_is_chosen_in_the_view_is_chosen_in_every_figure_of_the_page(visit, app, eye, settled):
    page = visit(f"{app}/before-after")
    settled(page)
    view = eye(page, "before_view")
    view.token(2, number=1).click()
    settled(page)
    expect(page.locator(".st-key-token input")).to_have_value("3")
    expect(page.locator(".st-key-after_strip button[aria-pressed=true]")).to_contain_text("animal")
    view.chip("head 2").dblclick()
    settled(page)
    expect(page.locator(".st-key-head input")).to_have_value("2")
    expect(page.get_by_role("heading", name="Head 2")).to_be_visible()
