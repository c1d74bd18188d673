"""Words of the view, in either sentence: typed over, hidden, and shown again."""

from urllib.parse import urlencode

from playwright.sync_api import expect


def test_of_two_words_of_the_same_name_the_chosen_one_is_hidden_in_its_own_sentence(visit, app, eye, settled):
    text, twin = "The dog saw the cat and the bird.", "A dog saw the cat and the bird."
    page = visit(f"{app}?{urlencode({'text': text, 'twin': twin})}")
    first, second = (page.locator(f".st-key-{field} textarea") for field in ("text", "twin"))
    view = eye(page, "head_view")
    for at in (4, 7):  # the first, then the other
        view.word(at, 1).click()
    view.button("Hide “the”").click()
    expect(second).to_have_value("A dog saw the cat and [MASK] bird.")
    settled(page)
    assert first.input_value() == text
    assert view.chosen_word(1) == "[MASK]"
    view.button("Show “the” again").click()
    expect(second).to_have_value(twin)
    settled(page)
    assert view.chosen_word(1) == "the\u2009₂"  # the second of that name


def test_a_word_is_typed_over_where_it_stands(visit, app, eye, settled):
    text = "The dog saw the cat."
    page = visit(f"{app}?{urlencode({'text': text, 'twin': ''})}")
    view, typed = eye(page, "head_view"), page.locator(".st-key-text textarea")
    word, field = view.view.locator(".strip .token", has_text="cat"), view.view.locator(".strip input")
    word.dblclick()
    field.press("Escape")
    expect(word).to_be_visible()
    word.dblclick()
    field.fill("bird")
    field.press("Enter")
    expect(typed).to_have_value("The dog saw the bird.")
    settled(page)
    assert view.chosen_word() == "bird"
    view.button("Change “bird”").click()
    field.fill("fish")
    view.view.locator(".status").click()  # losing focus commits, too
    expect(typed).to_have_value("The dog saw the fish.")
    page.go_back()
    expect(typed).to_have_value("The dog saw the bird.")
