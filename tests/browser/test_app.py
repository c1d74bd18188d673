"""The app in a real browser: sentences, links and Back."""

import re
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import expect

from mha_core.scene.scene import Scene
from tests.browser.conftest import MOVING, link_of


def random(address: str, **link: object) -> str:
    """A link to random weights, which take any words, sizes, masks and positions."""
    return f"{address}?{urlencode({'source': 'random', 'layer': 1, 'head': 1} | link)}"


def type_sentence(page, text: str) -> None:
    page.get_by_role("textbox", name="Sentence", exact=True).fill(text)
    page.keyboard.press("Control+Enter")


def test_a_typed_sentence_is_shown_at_once_and_back_undoes_all_changes_of_one_action(
    visit, app, settled, eye
):
    page = visit(app)

    def expect_sentences(*sentences: str) -> None:
        # Fields follow the address a moment later, one after the other, on a busy machine.
        for name, sentence in zip(("Sentence", "Second sentence"), sentences, strict=True):
            expect(page.get_by_role("textbox", name=name, exact=True)).to_have_value(sentence)

    type_sentence(page, "Is Liechtenstein cold?")
    settled(page)
    view = eye(page)
    assert view.words() == ["[CLS]", "Is", "Liechtenstein", "cold", "?"]
    assert view.matrix("weights").shape == (5, 5)
    # Words that the small model does not know stop nothing: one quiet line says how it reads them.
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    expect(page.get_by_text("Dotted underline: a word that this small model has never seen")).to_have_count(1)
    # No leftover to compare with; of a sentence without "it" and a verb the adjective is looked at, by a head
    # that has an answer there: head 4 looks at the word before.
    typed = {"text": "Is Liechtenstein cold?", "twin": "", "head": "4", "token": "cold"}
    assert link_of(page) == typed
    assert view.view.locator(".panel").count() == 1
    page.go_back()
    settled(page)
    assert link_of(page) == {}
    expect_sentences(Scene().text, Scene().twin)
    page.go_forward()
    settled(page)
    assert link_of(page) == typed
    expect_sentences(typed["text"], "")
    page.get_by_role("combobox", name="Model weights").click()
    page.get_by_role("option", name="random", exact=True).click()
    settled(page)
    assert link_of(page)["source"] == "random"
    page.go_back()
    settled(page)
    assert link_of(page) == typed
    assert eye(page).chosen_word() == "cold"


def test_back_undoes_a_setting_of_a_closed_menu_a_control_a_click_and_a_page(visit, app, settled, eye):
    page = visit(f"{app}/?source=random&twin=")
    page.emulate_media(reduced_motion="reduce")
    view = eye(page)
    seed, number = (page.get_by_role("spinbutton", name=name, exact=True) for name in ("Seed", "Heads, h"))
    page.get_by_role("button", name="Advanced", exact=True).click()
    assert page.locator("*").evaluate_all(MOVING) == []  # for those who want nothing to move
    for field, value in ((seed, "7"), (number, "8")):
        field.fill(value)
        page.keyboard.press("Enter")
        settled(page)
        page.keyboard.press("Escape")  # closes the menu
    expect(seed).to_have_count(0)
    view.pictures().nth(4).click()
    page.get_by_role("link", name="Steps", exact=True).click()
    page.wait_for_url("**/steps?**")  # a busy server may pause between the two runs of this click
    settled(page)
    chosen = {name: value for name, value in link_of(page).items() if name in ("seed", "h", "head", "heads")}
    assert chosen == {"seed": "7", "h": "8", "head": "5", "heads": "5"}
    page.go_back()
    settled(page)
    assert urlsplit(page.url).path == "/"
    assert view.title().startswith("The six matrices of head 5, layer 1")
    page.go_back()
    settled(page)
    assert view.title().startswith("The six matrices of head 1, layer 1")
    assert view.pictures().count() == 8
    page.go_back()
    settled(page)
    assert view.pictures().count() == 4
    expect(number).to_have_value("4")
    assert link_of(page)["seed"] == "7"
    page.go_back()
    settled(page)
    assert "seed" not in link_of(page)
    page.get_by_role("button", name="Advanced", exact=True).click()
    expect(seed).to_have_value("0")
    page.keyboard.press("Escape")
    settled(page)
    for _ in range(2):
        page.go_forward()
        settled(page)
    assert view.pictures().count() == 8


def test_enter_applies_a_sentence_but_not_during_composition(visit, app, settled, eye):
    page = visit(app)
    box = page.get_by_role("textbox", name="Sentence", exact=True)
    box.fill("My dog chased the postman because he was scared.")
    box.press("Shift+Enter")
    assert box.input_value().endswith("\n")
    assert link_of(page) == {}
    box.evaluate(
        """box => box.dispatchEvent(new KeyboardEvent('keydown',
            { key: 'Enter', code: 'Enter', isComposing: true, bubbles: true, cancelable: true }))"""
    )
    settled(page)
    assert link_of(page) == {}
    box.press("Backspace")
    box.press("Enter")
    settled(page)
    assert link_of(page)["text"] == "My dog chased the postman because he was scared."
    view = eye(page)
    assert view.chosen_word() == "he"
    assert view.answered().startswith("What does “he” stand for? ")
    view.word(3).click()
    assert "Who does it? dog" in view.answered()


def test_tokens_that_look_like_markup_appear_in_sentences_as_typed(visit, app):
    page = visit(random(f"{app}/token", text="<www.a.com> -- __a__ <a@b.co>", token=1))
    said = page.get_by_text(re.compile("In head 1")).first.text_content().replace("\u2060", "")
    assert said.startswith("In head 1, <www.a.com> looks at ")
    assert {"<www.a.com>", "--", "__a__", "<a@b.co>"} <= set(re.split("[ ,]", said))
    assert page.locator("[data-testid=stMain] p a").count() == 0
    nasty = "<s> <br> $x$ *a* [x](y) **b** `c` :red[d] :smile: &lt; the the"
    page = visit(random(f"{app}/token", text=nasty, token=1))
    for markup in ("em", "code", "a[href='y']", ".katex-error"):
        assert page.locator(f"[data-testid=stMarkdownContainer] {markup}").count() == 0, markup
