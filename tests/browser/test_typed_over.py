"""Words of the view, typed over where they stand."""

from urllib.parse import urlencode

from playwright.sync_api import expect


def test_a_word_is_typed_over_where_it_stands(visit, app, eye, settled):
    text = "The dog saw the cat."
    page = visit(f"{app}?{urlencode({'text': text, 'twin': ''})}")
    view, typed = eye(page, "head_view"), page.locator(".st-key-text textarea")
    word, field = view.view.locator(".strip .token", has_text="cat"), view.view.locator(".strip input")
    word.dblclick()
    field.press("Escape")
    expect(word).to_be_visible()
    page.keyboard.press("ArrowUp")  # the keys are the view's again
    assert view.chosen_word() == "the"
    word.dblclick()
    expect(field).to_have_attribute("maxlength", "100")
    field.fill("bird")
    field.press("Enter")
    expect(typed).to_have_value("The dog saw the bird.")
    settled(page)
    assert view.chosen_word() == "bird"
    page.keyboard.press("ArrowUp")
    assert view.chosen_word() == "the"
    page.keyboard.press("ArrowDown")
    view.button("Change “bird”").click()
    field.fill("fish")
    view.view.locator(".status").click()  # losing focus commits, too
    expect(typed).to_have_value("The dog saw the fish.")
    page.go_back()
    expect(typed).to_have_value("The dog saw the bird.")
