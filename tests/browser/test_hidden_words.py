"""Hiding words in the view, in either sentence, and showing them again."""

from urllib.parse import unquote, urlencode

from playwright.sync_api import expect

BIRD = "The dog saw the cat and the bird."


def text_field(page, field: str):
    return page.locator(f".st-key-{field} textarea")


def test_of_two_words_of_the_same_name_the_chosen_one_is_hidden(visit, app, eye, settled):
    page = visit(f"{app}?{urlencode({'text': BIRD, 'twin': ''})}")
    view = eye(page, "head_view")
    for at in (4, 7):  # the first, then the other
        view.word(at).click()
    view.button("Hide “the”").click()
    expect(text_field(page, "text")).to_have_value("The dog saw the cat and [MASK] bird.")
    settled(page)
    assert view.chosen_word() == "[MASK]"
    assert view.answered().startswith("Which word is hidden?")
    view.button("Show “the” again").click()
    expect(text_field(page, "text")).to_have_value(BIRD)
    settled(page)
    assert view.chosen_word() == "the\u2009₂"  # the second of that name
    assert "token=the~2" in unquote(page.url)
    text_field(page, "text").fill("The bird saw the cat and saw the dog.")
    page.keyboard.press("Control+Enter")
    settled(page)
    assert view.chosen_word() == "saw\u2009₁"  # a new sentence: its verb, and not the one of that name


def test_a_word_of_the_second_sentence_is_hidden_and_guessed_there(visit, app, eye, settled):
    twin = "A big animal didn't cross the street because it was too wide."
    page = visit(f"{app}?{urlencode({'twin': twin})}")
    view = eye(page, "head_view")
    view.word(3, 1).click()  # "animal", which is the third token of the first sentence
    view.button("Hide “animal”").click()
    expect(text_field(page, "twin")).to_have_value(twin.replace("animal", "[MASK]"))
    settled(page)
    assert "The animal" in text_field(page, "text").input_value()
    assert view.chosen_word(1) == "[MASK]"
    assert view.answered(1).startswith("Which word is hidden?")
    view.button("Show “animal” again").click()
    expect(text_field(page, "twin")).to_have_value(twin)
    settled(page)
    assert view.chosen_word(1) == "animal"
