"""The head view in a real browser: lines, text, arcs, matrix, and their controls."""

from itertools import pairwise
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import expect

import mha_core as mha
from mha_core.scene.scene import Scene
from tests.browser.conftest import link_of

FAINTEST = 0.02
TIRED, WIDE = Scene().text, Scene().twin
IT, STREET, TIRED_AT = 8, 6, 11  # their positions, from 0


def weights(text: str = TIRED, layer: int = -1, **settings) -> np.ndarray:
    return mha.trace(**(Scene().settings(text) | settings)).layers[layer].weights()


def reading(head: int, key: int, word: str) -> str:
    """The text about "it" and a key of the first sentence, under the pointer."""
    layer = mha.trace(**Scene().settings(TIRED)).layers[1]
    weight, score = layer.weights(head)[IT, key], layer.scores(head)[IT, key]
    return f"it → {word}: weight {weight:.4f}, q · k {score:.3f} (head {head + 1})."


def expected(
    text: str, tokens, heads, side: str = "query", least: float = FAINTEST, layer: int = -1, **settings
):
    """The lines of some tokens, from torch."""
    every = weights(text, layer, **settings)
    tokens = [tokens] if isinstance(tokens, int) else tokens
    every = every if side == "query" else every.swapaxes(1, 2)
    found = [
        (head, token, other, float(every[head, token, other]))
        for head in heads
        for token in tokens
        for other in range(every.shape[-1])
        if every[head, token, other] >= least
    ]
    return sorted(found if side == "query" else [(h, other, token, w) for h, token, other, w in found])


def assert_lines(shown: list, wanted: list) -> None:
    assert [line[:3] for line in shown] == [line[:3] for line in wanted]
    np.testing.assert_allclose([line[3] for line in shown], [line[3] for line in wanted], atol=2e-5)


def link(address: str, **scene: object) -> str:
    return f"{address}?{urlencode(scene)}"


# Drawings


def test_lines_and_numbers_are_drawn_for_the_heads_that_are_on_and_for_both_sentences(view_of):
    view = view_of(head="1")
    assert view.view.locator(".panel").count() == 2
    assert view.on() == [0, 3]
    for number, text in enumerate((TIRED, WIDE)):
        labels = ["[CLS]", *mha.words(text).labels]
        for side in ("query", "key"):
            assert [view.token(at, side, number).locator("bdi").inner_text() for at in range(13)] == labels
        assert_lines(view.lines(number), expected(text, IT, [0, 3]))
    seen = [view.stage(number).locator(".key.strong bdi").all_inner_texts() for number in (0, 1)]
    assert seen == [["animal", "because"], ["street", "because"]]
    palette = view.colours()
    assert [view.inked(colour) for colour in palette[:4]] == [True, False, False, True]
    for key in range(13):
        drawn = [(head + 1, weights()[head, IT, key]) for head in (0, 3)]
        numbers = [f"{head}{weight:.2f}" for head, weight in drawn if weight >= FAINTEST]
        assert view.token(key, "key").locator("i").all_inner_texts() == numbers


# Where the scale ends: the weight that is drawn with full strength.
ENDS = """v => {
    const { drawing } = v.view.drawings[0];
    if (drawing.curves?.length) return drawing.curves.map(({ strength, weight }) => weight / strength);
    return [drawing.end ?? drawing.numbers.end];
}"""


def test_a_weight_is_drawn_as_it_is_until_small_ones_are_brought_out(view_of):
    view = view_of(source="random", text="one two three four five six seven eight nine", twin="")
    picture = "v => v.view.matrices.gallery.matrices.weights.numbers.end"
    for drawing in ("lines", "arcs", "text", "matrix"):
        view.button(drawing).click()
        if drawing == "matrix":
            view.pooled()
        np.testing.assert_allclose(view.view.evaluate(ENDS), 1, rtol=1e-6)
        view.menu("Options").get_by_label("Bring out small weights").check()
        largest = view.view.evaluate("v => v.view.drawings[0].drawing.strongest")
        assert 0 < largest < 0.9
        np.testing.assert_allclose(view.view.evaluate(ENDS), largest, rtol=1e-6)
        assert "Small weights are brought out" in view.said()
        assert view.view.evaluate(picture) < 0.9
        view.menu("Options")
        view.button("Bring out small weights").click()
        assert view.view.evaluate(picture) == 1


# The server


def test_exploring_the_view_sends_no_messages(visit, app, settled, eye):
    page = visit(f"{app}/?heads=1", sent=(sent := []))
    view = eye(page)
    before = len(sent)
    view.token(2).hover()
    view.token(5).click()
    view.token(6).click(modifiers=["Shift"])
    view.token(1, "key", 1).hover()
    page.mouse.move(*view.place(view.lines()[0][:3]))
    page.keyboard.press("Escape")
    for name in ("head 1", "head 2"):
        view.chip(name).click()
    view.chip("head 3").dblclick()
    view.chip("head 1").click(modifiers=["Shift"])
    view.chip("all").click()
    for drawing in ("text", "arcs", "matrix"):
        view.button(drawing).click()
    view.button("Zoom in").first.click()
    view.button("lines").click()
    view.button("layer 1").click()
    options = view.menu("Options")
    options.get_by_role("slider").fill("0.2")
    options.get_by_role("spinbutton").fill("1")
    options.get_by_label("Hide special tokens").check()
    view.menu("Options")
    assert view.lines()
    assert len({line[:2] for line in view.lines()}) == len(view.lines())  # one of each head and token
    assert all(key > 0 and weight >= 0.2 for _, _, key, weight in view.lines())
    for key in ("ArrowDown", "Shift+ArrowDown", "h", "H", "L", "l", "Home", "End"):
        view.listbox().press(key)
    view.token(2).click()
    settled(page)
    view.chip("head 2").dblclick()
    focus = {"head": "2", "heads": "2", "token": "animal"}
    assert link_of(page) == focus | {"threshold": "0.2", "lines": "1", "specials": "hidden"}
    settled(page)
    assert len(sent) == before
    page.get_by_role("link", name="Token", exact=True).click()
    settled(page)
    assert len(sent) > before  # the count does count


# Pointing and pinning


def test_a_hovered_token_shows_its_row_or_column_and_a_click_pins_it_in_both_sentences(view_of):
    view = view_of()

    def assert_word(at: int) -> None:
        for number, text in enumerate((TIRED, WIDE)):
            assert_lines(view.lines(number), expected(text, at, [2, 3]))

    view.token(2).hover()
    assert_word(2)
    assert "focus" in view.token(2).get_attribute("class")
    view.token(2, "key").hover()
    assert_lines(view.lines(), expected(TIRED, 2, [2, 3], "key"))
    assert view.said().startswith("“animal” is looked at by ")
    cut = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    assert view.panel().locator(".query:has(.numbers:not(:empty)) bdi").count()
    assert view.panel().locator("bdi").evaluate_all(cut) == []
    view.token(TIRED_AT).hover()  # in the other sentence the word in its place
    assert_word(TIRED_AT)
    view.away()
    assert_word(IT)
    view.token(2).click()
    view.away()
    assert_word(2)
    for number in (0, 1):
        selected = view.panel(number).locator("[aria-selected=true]")
        assert selected.evaluate_all("all => all.map((e) => e.id)") == [f"view-{number}-query-2"]
        assert selected.evaluate("e => getComputedStyle(e).boxShadow") != "none"
    view.button("Unpin (Esc)").click()
    assert view.view.locator("[aria-selected=true]").count() == 0
    assert view.said().startswith("No token is chosen.")
    assert_lines(view.lines(), expected(TIRED, range(13), [2, 3]))
    for unpin in (lambda: view.listbox().press("Escape"), view.token(TIRED_AT).click):
        view.token(TIRED_AT).click()
        expect(view.panel(1).locator("[aria-selected=true]")).to_contain_text("wide")
        unpin()
        assert view.button("Unpin (Esc)").count() == 0


# Keyboard and screen readers


def active(view, number: int = 0):
    """The element that the list names as active; None where it names none."""
    return view.listbox(number).evaluate(
        """(list) => {
            const id = list.getAttribute('aria-activedescendant');
            if (!id) return null;
            const found = list.querySelectorAll('#' + CSS.escape(id));
            return [found.length, found[0]?.getAttribute('role'), found[0]?.dataset.at, found[0]?.className];
        }"""
    )


def test_tokens_heads_and_layers_can_be_reached_by_keyboard(visit, app, eye):
    view = eye(visit(link(app, head="4", heads="4")))
    view.chip("head 3").click()
    tokens = view.listbox()
    for key, chosen, side in (
        ("ArrowDown", 9, "query"),
        ("Shift+ArrowUp", [8, 9], "query"),
        ("ArrowUp", 7, "query"),
        ("ArrowRight", 7, "key"),
        ("ArrowUp", 6, "key"),
        ("ArrowLeft", 6, "query"),
        ("Home", 0, "query"),
        ("ArrowUp", 0, "query"),  # there is none above
        ("End", 12, "query"),
    ):
        tokens.press(key)
        assert_lines(view.lines(), expected(TIRED, chosen, [2, 3], side))
    for key, on in (("h", [2]), ("h", [3]), ("h", [0]), ("H", [3])):
        tokens.press(key)
        assert view.on() == on
    for on in ([0, 1, 2, 3], [3]):
        view.button("all").click()  # and the head whose matrices are shown is still the one walked to
        assert view.on() == on
        assert view.title().startswith("The six matrices of head 4,")
    for keys, layer in (("L", 0), ("Ll", 1)):  # there is none before the first
        for key in keys:
            tokens.press(key)
        assert view.button(f"layer {layer + 1}").get_attribute("aria-pressed") == "true"
        assert_lines(view.lines(), expected(TIRED, 12, [3], layer=layer))
    tokens.press("Escape")
    assert active(view) is None
    assert_lines(view.lines(), expected(TIRED, range(13), [3]))


def test_the_keyboard_focus_is_visible_and_stays(visit, app, settled, eye):
    page = visit(f"{app}/?heads=1")
    view = eye(page)
    focused = "view => view.getRootNode().activeElement?.dataset.panel"
    view.listbox(1).focus()
    view.listbox(1).press("End")
    outline = "e => [getComputedStyle(e).outlineStyle, getComputedStyle(e).outlineWidth]"
    assert view.stage(1).evaluate(outline) == ["solid", "2px"]
    view.listbox(1).press("l")
    view.listbox(1).press("L")
    view.listbox(1).press("h")
    settled(page)
    assert view.view.evaluate(focused) == "1"
    page.keyboard.press("ArrowUp")  # the next key goes on from there
    assert view.said(1).startswith("“wide” looks at")
    view.chip("head 3").focus()
    page.keyboard.press("Space")
    assert view.on() == [1, 2]
    assert view.view.evaluate("view => view.getRootNode().activeElement.dataset.head") == "2"


def test_every_drawing_is_a_list_of_tokens_to_a_screen_reader(view_of):
    view = view_of()
    tokens = view.listbox()
    for at, drawing in enumerate(("lines", "text", "arcs", "matrix"), 9):
        view.button(drawing).click()
        assert tokens.get_attribute("aria-label") == f"Attention in: {TIRED}"
        assert tokens.get_attribute("aria-multiselectable") == "true"
        tokens.press("ArrowDown")
        count, role, active_at, _ = active(view)
        assert (count, role, active_at) == (1, "option", str(at))
        chosen = tokens.locator("[aria-selected=true]")
        place = [chosen.get_attribute(name) for name in ("aria-posinset", "aria-setsize")]
        assert place == [str(at + 1), "13"]
        assert chosen.locator("bdi").inner_text() == ["[CLS]", *mha.words(TIRED).labels][at]
        assert view.panel().locator(".status").get_attribute("aria-live") == "polite"
        if drawing != "matrix":
            assert "focus" in chosen.get_attribute("class")


# The other drawings


def cell_at(view, key: int, query: int) -> tuple[float, float]:
    """Where a cell of the matrix is on the screen."""
    return view.view.evaluate(
        """(v, [key, query]) => {
            const { canvas, left, above, viewport: w } = v.view.drawings[0].drawing.map;
            const box = canvas.getBoundingClientRect();
            const at = (start, first, n) => start + first + (n + 0.5) * w.cell;
            return [at(box.left + left, w.x, key), at(box.top + above, w.y, query)];
        }""",
        [key, query],
    )


def point_at(page, view, key: int, query: int) -> tuple[float, float]:
    """Move to a cell of the matrix, and once more if it has moved meanwhile. → where it is"""
    before = None
    while before != (place := cell_at(view, key, query)):
        page.mouse.move(*place)
        view.drawn()
        before = place
    return place


WINDOW = "v => (({ cell, x, y, minCell }) => [cell, x, y, minCell])(v.view.drawings[0].drawing.map.viewport)"


def test_the_matrix_is_zoomed_and_moved_and_a_click_pins_the_row(view_of):
    view = view_of(twin="")
    page = view.page
    view.chip("head 4").dblclick()
    view.button("matrix").click()
    assert "Ctrl + wheel" in view.panel().locator(".scale").inner_text()
    point_at(page, view, 2, IT)
    expect(view.panel().locator(".status")).to_have_text(reading(3, 2, "animal"))
    page.mouse.click(*point_at(page, view, 0, STREET))
    view.away()
    assert view.said().startswith("“street” looks at")

    cell, *_ = view.view.evaluate(WINDOW)
    view.button("Zoom in").click()
    page.mouse.move(*cell_at(view, 5, 5))
    view.view.evaluate("v => { v.turned = new Promise((done) => v.addEventListener('wheel', done)); }")
    page.mouse.wheel(0, -100)  # without Ctrl the page scrolls
    view.view.evaluate("v => v.turned.then(() => true)")
    view.drawn()
    assert view.view.evaluate(WINDOW)[0] == pytest.approx(2 * cell)
    place = cell_at(view, 5, 5)
    page.mouse.move(*place)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    view.until(lambda: view.view.evaluate(WINDOW)[0] > 2.1 * cell)
    assert cell_at(view, 5, 5) == pytest.approx(place, abs=1)  # the place under the pointer stays

    page.mouse.down()
    page.mouse.move(place[0] - 60, place[1] - 40, steps=4)
    page.mouse.up()
    assert cell_at(view, 5, 5) == pytest.approx((place[0] - 60, place[1] - 40), abs=2)
    view.away()
    assert view.said().startswith("“street” looks at")  # dragging pins nothing
    view.button("Show whole matrix").click()
    assert view.view.evaluate(WINDOW) == [cell, 0, 0, cell]
    for key, times in (("+", 2), ("-", 1), ("+", 2), ("0", 1)):
        view.listbox().press(key)
        assert view.view.evaluate(WINDOW)[0] == pytest.approx(times * cell)


MIDDLE = """v => { // of what is in sight of the matrix, in cells
    const { x, y, width, height, cell, high } = v.view.drawings[0].drawing.map.viewport;
    return [(width / 2 - x) / cell, (height / 2 - y) / high];
}"""


def test_in_a_long_text_a_small_picture_and_the_peaks_of_a_word_move_the_matrix(view_of):
    n, at = 1500, 1049  # so many that a table of all cells would be too long
    text = " ".join("abc"[nth * nth % 3] for nth in range(n))
    view = view_of(source="random", text=text, twin="", h=1, d_model=8, head="1", token=str(at + 1))
    row = mha.trace(text, h=1, d_model=8).layers[0].weights(0, rows=[at])[0]
    view.button("matrix").click()
    peak, said = view.button("Next peak"), view.panel().get_by_role("status")
    for nth, to_next in enumerate((peak.click, lambda: view.listbox().press("n"))):
        to_next()
        key = int(np.argsort(-row, kind="stable")[nth])
        words, weight = said.inner_text().removesuffix(".").split(", weight ")
        assert words.startswith(f"Peak {nth + 1}: ")
        assert float(weight) == pytest.approx(row[key], rel=0.01)
        x, y = view.view.evaluate(MIDDLE)
        box = view.panel().locator("canvas.matrix").bounding_box()
        assert (int(x), abs(y - at) < box["height"]) == (key, True)
    whole = view.panel().locator("canvas.whole")
    size = whole.bounding_box()["width"]
    whole.click(position={"x": size / 4, "y": size / 2})
    assert view.view.evaluate(MIDDLE) == pytest.approx([n / 4, n / 2], abs=n / size)
    view.menu("Save")
    with view.page.expect_download() as saved:
        view.button("Table of the chosen word (CSV)").click()
    lines = saved.value.path().read_text("utf-8").splitlines()[-n:]
    assert [float(line.split(",")[-1]) for line in lines] == pytest.approx(row, abs=1e-6)
    view.listbox().press("Escape")
    expect(peak).to_be_disabled()
    expect(said).to_be_empty()


# Scripts


def test_tokens_follow_the_direction_of_their_script(view_of):
    text = "الولد قرأ الكتاب الجديد"
    view = view_of(source="random", text=text, twin="", token=1)
    labels = list(mha.words(text).labels)
    assert [view.token(at).locator("bdi").inner_text() for at in range(len(labels))] == labels
    for drawing in ("text", "arcs"):
        view.button(drawing).click()
        boxes = view.boxes()
        assert len({round(box["y"]) for box in boxes}) == 1
        places = [box["x"] for box in boxes]
        assert places == sorted(set(places), reverse=True)
        view.listbox().press("Home")
        view.listbox().press("ArrowLeft")  # to the next one as it is read
        assert view.stage().locator("[aria-selected=true]").get_attribute("data-at") == "1"


def test_the_arcs_of_two_sentences_fit_beside_each_other_or_are_scrolled_to_the_chosen_token(view_of):
    view = view_of(head="1")
    view.page.set_viewport_size({"width": 1100, "height": 900})
    view.button("arcs").click()
    for number in (0, 1):
        assert view.stage(number).locator(".more:not([hidden])").count() == 0
        boxes, panel = view.boxes(number=number), view.panel(number).bounding_box()
        assert len(boxes) == 13
        assert panel["x"] <= boxes[0]["x"]
        assert boxes[-1]["x"] + boxes[-1]["width"] <= panel["x"] + panel["width"]
        ends = "all => all.map((e) => e.getBoundingClientRect()).map(({ left, right }) => [left, right])"
        words = sorted(view.stage(number).locator("bdi").evaluate_all(ends))
        assert all(end < start for (_, end), (start, _) in pairwise(words))  # none lies on another
    read = "e => parseFloat(getComputedStyle(e).fontSize)"
    assert view.token(0, "token").locator("bdi").evaluate(read) >= 11

    view.button("lines").click()
    view.page.set_viewport_size({"width": 920, "height": 900})  # less room than their words need
    view.button("arcs").click()
    for number, looked_at in ((0, 2), (1, STREET)):  # "it" looks at "animal", at "street"
        words, box = view.boxes(number=number), view.panel(number).bounding_box()
        for word in (words[IT], words[looked_at]):
            assert box["x"] <= word["x"]
            assert word["x"] + word["width"] <= box["x"] + box["width"]


# Themes, phones, fingers


def beyond(page) -> list[str]:
    """The parts of the view that extend beyond the screen, the view, or their panel."""
    return page.locator(".view").evaluate(
        """(view) => {
            const right = (e) => e.getBoundingClientRect().right;
            const edge = (e) => 1 + right(e.parentElement.closest('.swiped .panel') ?? view);
            const within = (e) => (e.closest('.arcs .scroll') ?? e.closest('.six')) !== null
                && !e.matches('.scroll, .six');  // which scroll themselves, as a row of panels
            return [...view.querySelectorAll('*')]
                .filter((e) => right(e) > edge(e) && !within(e) && !e.matches('.swiped .panel'))
                .map((e) => `${e.getBoundingClientRect().right} ${e.outerHTML.slice(0, 60)}`);
        }"""
    )


def test_nothing_of_the_view_is_wider_than_a_phone(visit, app, eye):
    words = "Donaudampfschifffahrtsgesellschaftskapitän sagte Rindfleischetikettierungsgesetz"
    page = visit(link(app, source="random", text=words, h=16), width=390, height=844)
    view = eye(page)
    view.chip("all").click()
    for drawing in ("text", "arcs", "matrix", "lines"):
        view.button(drawing).click()
        assert beyond(page) == []
        assert view.view.bounding_box()["width"] == 390 - 2 * 16
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    for menu in ("Options", "Save"):
        view.menu(menu)
        assert beyond(page) == []
        box = view.view.locator("details[open] .inside").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    width = view.panel().locator("canvas").evaluate("canvas => canvas.getBoundingClientRect().width")
    assert width >= 40  # there is room for the lines


def test_a_tap_pins_a_token_and_shows_a_lines_weight_and_a_touch_screen_explains_its_zoom(view_of):
    view = view_of(touch=True, twin="")
    view.token(2).tap()
    assert_lines(view.lines(), expected(TIRED, 2, [2, 3]))
    assert view.token(2).get_attribute("aria-selected") == "true"
    view.page.touchscreen.tap(*view.place(view.lines()[0][:3]))
    expect(view.panel().locator(".status")).to_contain_text("→ ")
    assert view.token(2).get_attribute("aria-selected") == "true"
    view.token(2).tap()
    assert view.button("Unpin (Esc)").count() == 0
    view.button("matrix").click()
    assert "double tap" in view.panel().locator(".scale").inner_text()


# Long texts and short words


def test_a_scrolled_text_shows_how_much_is_left(view_of):
    text = " ".join(f"word{at}" for at in range(60))
    view = view_of(source="random", twin="", text=text, token=1)
    for drawing, on, back in (("arcs", "→", "←"), ("lines", "↓", "↑")):
        view.button(drawing).click()
        further, before = (view.stage().locator(".more").filter(has_text=way) for way in (on, back))
        expect(further).to_be_visible()
        expect(before).to_have_count(0)
        places = view.boxes("token" if drawing == "arcs" else "query")
        box = view.stage().locator(".scroll").bounding_box()
        right, bottom = box["x"] + box["width"] + 1, box["y"] + box["height"] + 1
        seen = [place for place in places if place["right"] <= right and place["bottom"] <= bottom]
        assert further.inner_text().strip(f" {on}") == f"{60 - len(seen)} more"
        further.click()
        expect(before).to_be_visible()
        for _ in range(
            100
        ):  # pressed in one go with the question whether it is there: it may be scrolling yet
            view.page.wait_for_timeout(400)
            if not further.evaluate_all("(found) => (found[0]?.click(), found.length)"):
                break
        expect(further).to_have_count(0)


def test_short_words_are_as_narrow_as_their_letters(view_of):
    view = view_of(head="1")
    gap = "e => e.lastChild.getBoundingClientRect().left - e.firstChild.getBoundingClientRect().right"
    text = """e => { const range = document.createRange(); range.selectNodeContents(e.firstChild);
        return e.firstChild.getBoundingClientRect().width - range.getBoundingClientRect().width }"""
    it = view.token(STREET, "key", 1)
    assert it.evaluate(text) == pytest.approx(0, abs=0.5)
    assert it.evaluate(gap) == pytest.approx(8, abs=0.5)
    view.button("text").click()
    assert view.token(IT, "token").evaluate(text) == pytest.approx(0, abs=0.5)
