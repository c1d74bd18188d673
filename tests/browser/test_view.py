"""Who looks at whom: lines, chips and tokens in a real browser, and sentences mended by clicking."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

import mha_core as mha
from pages._kit.state import Scene

FAINTEST = 0.02
TIRED, WIDE = Scene().text, Scene().twin
IT = 8  # its position in both, from 0


def query(page) -> dict:
    return {
        key: values[0] for key, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()
    }


def panel(page, number: int = 0):
    page.locator(".view .panel").nth(number).wait_for()
    return page.locator(".view .panel").nth(number)


def tokens(page, number: int = 0):
    return panel(page, number).locator(".from button")


def chip(page, name: str):
    return page.locator(".view .chip", has_text=re.compile(f"^{name}$"))


def on(page) -> list[int]:
    """The heads whose chips are pressed, from 0."""
    pressed = page.locator(".view .chip:not(.every)").evaluate_all(
        "all => all.map((chip) => chip.getAttribute('aria-pressed') === 'true')"
    )
    return [head for head, yes in enumerate(pressed) if yes]


def colours(page) -> list[str]:
    listed = page.locator(".view").evaluate(
        "view => getComputedStyle(view).getPropertyValue('--st-chart-categorical-colors')"
    )
    return [colour.strip() for colour in listed.split(",")]


def lines(page, number: int = 0) -> list[tuple[int, int, int, float]]:
    """What a panel draws: head (by its colour), from which token, to which, with what weight."""
    drawn = (
        panel(page, number)
        .locator("svg path")
        .evaluate_all(
            "all => all.map((e) => ['stroke', 'd', 'stroke-opacity'].map((name) => e.getAttribute(name)))"
        )
    )
    palette, found = colours(page), []
    for colour, path, opacity in drawn:
        ends = [float(y) for y in re.fullmatch(r"M0 (\S+) C .* 100 (\S+)", path).groups()]
        start, end = (int(y // 24) for y in ends)
        found.append((palette.index(colour), start, end, round((float(opacity) - 0.12) / 0.88, 3)))
    return sorted(found)


def expected(text: str, token: int, heads, **settings) -> list[tuple[int, int, int, float]]:
    weights = mha.trace(**(Scene().settings(text) | settings)).layers[-1].weights()
    return sorted(
        (head, token, key, round(float(weights[head, token, key]), 3))
        for head in heads
        for key in range(weights.shape[-1])
        if weights[head, token, key] >= FAINTEST
    )


def same(shown: list, wanted: list) -> None:
    assert [line[:3] for line in shown] == [line[:3] for line in wanted]
    np.testing.assert_allclose([line[3] for line in shown], [line[3] for line in wanted], atol=2e-3)


@pytest.fixture
def counted(visit, settled):
    """Open an address; returns the page and the list that every message to the server lengthens."""

    def open_page(address: str):
        page, sent = visit(address), []
        page.on("websocket", lambda socket: socket.on("framesent", lambda _: sent.append(1)))
        page.reload()
        settled(page)
        panel(page)
        assert sent  # the page that was asked for
        return page, sent

    return open_page


def test_lines_are_drawn_for_the_heads_that_are_switched_on_and_for_both_sentences(visit, app):
    page = visit(app)
    assert page.locator(".view .panel").count() == 2
    assert on(page) == [2, 3]
    for number, text in enumerate((TIRED, WIDE)):
        labels = ["[CLS]", *mha.words(text).labels]
        assert tokens(page, number).locator("bdi").all_inner_texts() == labels
        assert panel(page, number).locator(".to bdi").all_inner_texts() == labels
        same(lines(page, number), expected(text, IT, [2, 3]))
        assert {line[0] for line in lines(page, number)} == {2, 3}
    seen = [panel(page, number).locator(".key.seen bdi").all_inner_texts() for number in (0, 1)]
    assert seen == [["animal"], ["street"]]


def test_the_numbers_stand_beside_the_words_that_are_looked_at(visit, app):
    page = visit(app)
    numbers = panel(page).locator(".key").nth(2).locator("i").all_inner_texts()
    weights = mha.trace(**Scene().settings()).layers[1].weights()
    assert numbers == [f"{weights[head, IT, 2]:.2f}" for head in (2, 3)]
    assert panel(page).locator(".key").nth(0).locator("i").count() == 0


def test_one_sentence_has_one_panel(visit, app):
    page = visit(f"{app}?twin=")
    assert page.locator(".view .panel").count() == 1
    same(lines(page), expected(TIRED, IT, [2, 3]))


def test_chips_switch_heads_on_and_off_without_asking_the_server(counted, app, settled):
    page, sent = counted(app)
    before = len(sent)
    chip(page, "head 1").click()
    assert on(page) == [0, 2, 3]
    same(lines(page), expected(TIRED, IT, [0, 2, 3]))
    chip(page, "head 3").click()
    chip(page, "head 4").click()
    assert on(page) == [0]
    for number, text in enumerate((TIRED, WIDE)):
        same(lines(page, number), expected(text, IT, [0]))
    chip(page, "head 1").click()
    assert on(page) == []
    assert lines(page) == []
    settled(page)
    assert len(sent) == before


def test_all_switches_every_head_on_and_back(visit, app):
    page = visit(app)
    assert chip(page, "all").get_attribute("aria-pressed") == "false"
    chip(page, "all").click()
    assert on(page) == [0, 1, 2, 3]
    assert chip(page, "all").get_attribute("aria-pressed") == "true"
    same(lines(page, 1), expected(WIDE, IT, range(4)))
    chip(page, "all").click()
    assert on(page) == [2, 3]
    same(lines(page, 1), expected(WIDE, IT, [2, 3]))


def test_the_finger_on_a_token_shows_its_lines_without_asking_the_server(counted, app, settled):
    page, sent = counted(app)
    before = len(sent)
    for number, text in enumerate((TIRED, WIDE)):
        for token in (2, 6, 11):
            tokens(page, number).nth(token).hover()
            same(lines(page, number), expected(text, token, [2, 3]))
            assert "focus" in tokens(page, number).nth(token).get_attribute("class")
            other = (TIRED, WIDE)[1 - number]
            same(lines(page, 1 - number), expected(other, IT, [2, 3]))  # the other stays
    page.get_by_role("heading", name="Who looks at whom").hover()
    for number, text in enumerate((TIRED, WIDE)):
        same(lines(page, number), expected(text, IT, [2, 3]))
    settled(page)
    assert len(sent) == before
    assert query(page) == {}
    tokens(page).nth(2).click()
    settled(page)
    assert len(sent) > before  # the count does count


@pytest.mark.parametrize("number", [0, 1])
def test_choosing_a_token_moves_the_choice_everywhere(visit, app, settled, number):
    page = visit(app)
    tokens(page, number).nth(2).click()
    settled(page)
    assert query(page) == {"token": "3"}
    assert page.get_by_role("spinbutton", name="Token that looks").input_value() == "3"
    for shown in (0, 1):
        assert tokens(page, shown).nth(2).get_attribute("aria-pressed") == "true"
        assert panel(page, shown).locator("[aria-pressed=true]").count() == 1
    for key in ("token_strip", "twin_strip"):
        assert page.locator(f".st-key-{key} [aria-pressed=true] bdi").inner_text() == "animal"
    expect(page.get_by_text("In head 4, animal looks at")).to_have_count(2)
    assert page.get_by_role("button", name="Hide “animal”").is_visible()
    page.get_by_role("heading", name="Who looks at whom").hover()
    for shown, text in enumerate((TIRED, WIDE)):
        same(lines(page, shown), expected(text, 2, [2, 3]))
    page.go_back()
    settled(page)
    assert tokens(page).nth(IT).get_attribute("aria-pressed") == "true"


FOCUSED = "view => view.getRootNode().activeElement?.innerText"


def test_with_the_keyboard_the_focus_stays_where_it_was(visit, app, settled):
    page = visit(app)
    view = page.locator(".view")
    tokens(page, 1).nth(11).focus()
    same(lines(page, 1), expected(WIDE, 11, [2, 3]))  # as the finger would
    page.keyboard.press("Enter")
    settled(page)
    assert query(page) == {"token": "12"}
    assert view.evaluate(FOCUSED) == "wide"
    assert view.evaluate("view => view.getRootNode().activeElement.dataset.at") == "1:11"
    page.keyboard.press("Tab")
    assert view.evaluate(FOCUSED) == "."
    chip(page, "head 2").focus()
    page.keyboard.press("Space")
    assert view.evaluate(FOCUSED) == "head 2"
    assert on(page) == [1, 2, 3]
    page.keyboard.press("Space")
    assert on(page) == [2, 3]


def test_what_was_switched_stays_switched_when_another_token_is_chosen(visit, app, settled):
    page = visit(app)
    chip(page, "head 1").click()
    chip(page, "head 3").click()
    tokens(page).nth(6).click()
    settled(page)
    assert on(page) == [0, 3]
    page.get_by_role("heading", name="Who looks at whom").hover()
    same(lines(page), expected(TIRED, 6, [0, 3]))


def test_other_heads_have_chips_of_their_own(visit, app, settled):
    page = visit(app)
    chip(page, "all").click()
    page.get_by_role("spinbutton", name="h, heads", exact=True).fill("8")
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator(".view .chip").count() == 9
    assert on(page) == [3, 7]
    same(lines(page), expected(TIRED, IT, [3, 7], h=8))


def test_heads_beyond_the_colours_are_told_apart_by_their_dashes(visit, app):
    page = visit(f"{app}?{urlencode({'source': 'random', 'h': 16, 'text': 'one two'})}")
    chip(page, "all").click()
    looks = page.locator(".view svg path").evaluate_all(
        "all => all.map((e) => e.getAttribute('stroke') + ' ' + e.getAttribute('stroke-dasharray'))"
    )
    assert len(colours(page)) < 16
    weights = mha.trace("one two", h=16, d_model=64).layers[0].weights()[:, 1]
    assert len(looks) == (weights >= FAINTEST).sum()
    assert len(set(looks)) == 16


def beyond(page) -> list[str]:
    """What of the view reaches beyond the right edge of the screen or out of its own panel."""
    return page.locator(".view").evaluate(
        """(view) => {
            const edge = Math.min(innerWidth, view.getBoundingClientRect().right) + 1;
            return [...view.querySelectorAll('*')]
                .filter((e) => e.getBoundingClientRect().right > edge)
                .map((e) => e.outerHTML.slice(0, 80));
        }"""
    )


@pytest.mark.parametrize(
    "link",
    [
        {},
        {
            "source": "random",
            "text": "Donaudampfschifffahrtsgesellschaftskapitän sagte Rindfleischetikettierungsgesetz",
            "h": 16,
        },
    ],
    ids=["start", "long words"],
)
def test_nothing_of_the_view_is_wider_than_a_phone(visit, app, link):
    page = visit(f"{app}?{urlencode(link)}", width=390, height=844)
    panel(page)
    assert beyond(page) == []
    chip(page, "all").click()
    assert beyond(page) == []
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    width = panel(page).locator("svg").evaluate("svg => svg.getBoundingClientRect().width")
    assert width >= 40  # there is room for the lines


def test_the_lines_have_the_colours_of_the_theme(visit, app):
    inks = {}
    for theme in ("light", "dark"):
        page = visit(app, theme=theme)
        palette = colours(page)
        strokes = panel(page).locator("path").evaluate_all("all => all.map((e) => e.getAttribute('stroke'))")
        assert set(strokes) == {palette[2], palette[3]}
        border = chip(page, "head 3").evaluate("chip => getComputedStyle(chip).borderColor")
        assert border == "rgb({}, {}, {})".format(*(int(palette[2][i : i + 2], 16) for i in (1, 3, 5)))
        ink = page.locator(".view").evaluate("view => getComputedStyle(view).color")
        inks[theme] = (tuple(palette), ink)
    assert inks["light"][0] != inks["dark"][0]
    assert inks["light"][1] != inks["dark"][1]


def write(page, text: str) -> None:
    page.get_by_role("textbox", name="Sentence", exact=True).fill(text)
    page.keyboard.press("Control+Enter")


def strip(page) -> list[str]:
    page.locator(".st-key-token_strip bdi").first.wait_for()
    return page.locator(".st-key-token_strip bdi").all_inner_texts()


def test_an_unknown_word_is_mended_by_clicking(visit, app, settled):
    page = visit(app)
    write(page, "The anmal didn't cross the strete.")
    settled(page)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("and not anmal, strete. Nothing is guessed")
    assert page.locator(".view").count() == 0
    page.get_by_role("button", name="animal", exact=True).click()
    settled(page)
    expect(alert).to_contain_text("and not strete. Nothing is guessed")
    page.get_by_role("button", name="street", exact=True).click()
    settled(page)
    assert strip(page) == ["[CLS]", "The", "animal", "didn't", "cross", "the", "street", "."]
    assert query(page)["text"] == "The animal didn't cross the street."
    assert alert.count() == 0


def test_random_weights_take_an_unknown_word_as_it_is(visit, app, settled):
    page = visit(app)
    write(page, "The anmal was tired.")
    settled(page)
    page.get_by_role("button", name="Use random weights").click()
    settled(page)
    assert strip(page) == ["The", "anmal", "was", "tired", "."]
    assert query(page)["source"] == "random"
    assert page.get_by_role("textbox", name="Sentence", exact=True).input_value() == "The anmal was tired."
    assert page.get_by_text("nothing has been learned yet").is_visible()


def test_a_word_is_hidden_by_clicking_and_guessed(visit, app, settled):
    page = visit(f"{app}?token=3")
    page.get_by_role("button", name="Hide “animal”").click()
    settled(page)
    assert strip(page)[2] == "[MASK]"
    hidden = TIRED.replace("animal", "[MASK]")
    assert page.get_by_role("textbox", name="Sentence", exact=True).input_value() == hidden
    best = mha.trace(hidden, source="mini").answers[2][0][0]
    assert page.get_by_text(f"The model guesses the hidden word: {best}").is_visible()
    assert page.get_by_role("button", name="Hide “").count() == 0


def test_an_example_is_taken_by_clicking(visit, app, settled):
    page = visit(app)
    page.get_by_role("combobox", name="Example sentences").click()
    page.get_by_role("option", name="The trophy").click()
    settled(page)
    texts = [
        page.get_by_role("textbox", name=name, exact=True).input_value()
        for name in ("Sentence", "Second sentence")
    ]
    assert texts == [
        f"The trophy doesn't fit in the suitcase because it is too {a}." for a in ("big", "small")
    ]
    assert page.locator(".st-key-token_strip [aria-pressed=true] bdi").inner_text() == "it"
