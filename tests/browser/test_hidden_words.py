"""Hiding words in the view, in either sentence, and showing them again."""

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
    assert view.answered(1).startswith("Which word is hidden?")
    view.button("Show “the” again").click()
    expect(second).to_have_value(twin)
    settled(page)
    assert view.chosen_word(1) == "the\u2009₂"  # the second of that name
    first.fill("The bird saw the cat and saw the dog.")
    page.keyboard.press("Control+Enter")
    settled(page)
    assert view.chosen_word() == "saw\u2009₁"  # a new sentence: its verb, and not the one of that name
