"""The page Heads: sentence, lines, six matrices and all heads share one focus."""

import csv
import fcntl
import io
import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

import mha_core as mha
from mha_core.analysis.frames import long_table
from mha_core.export.head_view import questions
from mha_core.focus.focus import Focus
from mha_core.scene.scene import Scene
from tests.analysis import cells
from tests.browser.conftest import MOVING, cell_box, click_cell, link_of, over_cell, pixels
from tests.conftest import six_matrices

TIRED, WIDE = Scene().text, Scene().twin
IT, HEIGHT = 8, 900
MAX_STOPS = 20  # of Tab from the top of the page to its first drawing, past the sentence and its settings
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("q", "k", "v", "scores", "weights", "output")
# Grouped heads under a causal mask, with words that a spreadsheet would take for formulas.
FORMULAS = '=1+1 @x "you" 小猫 the the'
GROUPED = {"source": "random", "text": FORMULAS, "twin": "", "layers": 2, "h": 4, "n_kv_heads": 2}
GROUPED |= {"d_model": 24, "mask": "causal", "layer": 2, "head": 3, "token": 4}


def focus_of(page) -> Focus:
    """The focus in a link, with defaults for missing fields."""
    return Focus.of_link(link_of(page))


def grouped() -> mha.AttentionTrace:
    sizes = {name: GROUPED[name] for name in ("layers", "h", "n_kv_heads", "d_model", "mask")}
    return mha.trace(FORMULAS, **sizes)


def picture(view, name: str):
    """A small matrix: the button that opens it."""
    return view.view.locator(".six figure").nth(NAMES.index(name)).locator("button")


def symbols(view) -> list[str]:
    return view.view.locator(".six figcaption b").all_inner_texts()


def reading(view) -> str:
    return view.view.locator(".matrices .reading").inner_text()


def looked_at(view) -> tuple[int, int, int]:
    """Layer, head and token, from 0, when all pictures and the link agree on them."""
    pressed = view.pictures().evaluate_all("all => all.map((e) => e.getAttribute('aria-pressed') === 'true')")
    assert pressed.count(True) == 1
    head = pressed.index(True)
    [layer] = view.view.evaluate("v => [v.view.selection.state.layer]")
    chosen = ".token[aria-selected=true]"
    at = {
        int(at)
        for place in (view.strip(), view.stage())
        for at in place.locator(chosen).evaluate_all("all => all.map((e) => e.dataset.at)")
    }
    assert len(at) == 1
    [token] = at
    assert view.title().startswith(f"The six matrices of head {head + 1}, layer {layer + 1}")
    heading = view.view.locator(".all-heads h2").inner_text()
    assert heading == f"All heads of layer {layer + 1}"
    assert view.button(f"layer {layer + 1}").get_attribute("aria-pressed") == "true"
    assert head in view.on()
    assert view.view.evaluate("v => v.view.matrices.focus.query") == token
    assert {(line[0], line[1]) for line in view.lines()} >= {(head, token)}
    assert {line[1] for line in view.lines()} == {token}
    link = focus_of(view.page)
    assert (link.layer, link.head) == (layer + 1, head + 1)
    assert link.token in (view.words(0)[token], view.words(1)[token])
    return layer, head, token


def test_the_first_screen_of_a_desk_a_projector_and_a_phone_shows_a_picture_and_its_answers(visit, app, eye):
    page = visit(f"{app}/?heads=1", height=HEIGHT)
    view = eye(page)
    for number, text in enumerate((TIRED, WIDE)):
        assert view.words(number) == ["[CLS]", *mha.words(text).labels]
    said = view.view.locator(".status").last.bounding_box()
    for name in NAMES:
        box = picture(view, name).locator("xpath=..").bounding_box()
        assert said["y"] + said["height"] <= box["y"] < said["y"] + said["height"] + 60, name
        assert box["y"] < HEIGHT, name  # they begin on the first screen
        assert box["width"] > 100
    # One colour is one weight in both sentences.
    assert len(set(view.view.evaluate("v => v.view.drawings.map(({ strip }) => strip.end)"))) == 1

    # Only in the last layer the names of words without an answer are dim.
    rows = questions(mha.trace(**Scene().settings()))[0]["nothing"]
    assert rows
    of_matrices = """v => Object.fromEntries(Object.entries(v.view.matrices.gallery.pictures)
        .map(([name, { map }]) => [name, map.numbers.dim]))"""
    by_query = ("q", "scores", "weights", "output")
    assert view.view.evaluate(of_matrices) == {name: rows * (name in by_query) for name in NAMES}
    dim = """v => [...v.querySelector('.panel').querySelectorAll('.dim')]
        .map(({ dataset }) => [dataset.side, Number(dataset.at)]).toSorted((a, b) => a[1] - b[1])"""
    assert view.view.evaluate(dim) == [["query", row] for row in rows]
    view.button("layer 1").click()
    assert view.view.evaluate(of_matrices) == {name: [] for name in NAMES}
    assert view.view.evaluate(dim) == []

    # Whatever one points at, nothing below moves.
    view.button("layer 2").click()
    moved = view.view.evaluate(
        """(root) => {
            const { view } = root, tops = new Set();
            for (const head of view.selection.every) {
                view.toHead(head);
                for (const token of root.querySelectorAll('.stage .token')) {
                    token.dispatchEvent(new PointerEvent('pointermove', { bubbles: true }));
                    tops.add(root.querySelector('.six').getBoundingClientRect().top);
                }
            }
            return [...tops];
        }"""
    )
    assert len(moved) == 1

    # A projector is as small as 150 % on a laptop.
    for width, height, seen in ((1440, 900, 280), (1280, 720, 240), (853, 480, 80)):
        page.set_viewport_size({"width": width, "height": height})
        view.boxes("query")
        assert_on_first_screen(view, seen, sentences=2)
    phone = eye(visit(app, width=390, height=844))
    assert_on_first_screen(phone, 50, sentences=1)  # the second one is a swipe away


def assert_on_first_screen(view, seen: int, sentences: int) -> None:
    """The answers, and so many pixels of the drawing."""
    screen = view.page.viewport_size
    for nth in range(sentences):
        box = view.view.locator(".answers").nth(nth).bounding_box()
        assert box["x"] + box["width"] <= screen["width"]
        assert box["y"] + box["height"] <= screen["height"]
    assert view.stage().bounding_box()["y"] <= screen["height"] - seen
    field = view.page.get_by_label("Sentence", exact=True)
    assert field.bounding_box()["y"] < screen["height"] / 3
    assert view.page.get_by_role("heading", level=1).count() == 1


def test_with_many_layers_and_heads_the_six_matrices_are_on_the_first_screen(visit, app, eye):
    view = eye(visit(f"{app}/?source=random&layers=12&h=16&d_model=128", height=HEIGHT))
    chips = view.view.locator(".chip").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().toJSON())"
    )
    assert len(chips) == 17
    assert len({round(chip["top"]) for chip in chips}) == 1
    assert max(chip["right"] for chip in chips) <= view.view.evaluate("e => e.getBoundingClientRect().right")
    assert view.view.locator(".chip.dashed").count() == 16  # as random weights are drawn
    assert all(picture(view, name).bounding_box()["y"] < HEIGHT for name in NAMES)
    expect(view.page.locator(".overview canvas.all")).to_be_visible()
    chips = view.view.locator(".chips")
    assert "more-" not in chips.get_attribute("class")
    view.page.set_viewport_size({"width": 900, "height": HEIGHT})  # where they have no room it is seen
    expect(chips).to_have_class(re.compile("more-right"))
    chips.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    expect(chips).to_have_class(re.compile("more-left"))
    expect(chips).not_to_have_class(re.compile("more-right"))


def test_a_hovered_cell_shows_its_number_and_a_large_matrix_is_saved(visit, app, eye):
    page = visit(f"{app}?{urlencode(GROUPED)}", sent=(sent := []))
    view = eye(page)
    before = len(sent)
    trace = grouped()
    layer, head, labels = trace.layers[1], 2, trace.tokens.labels
    wanted = six_matrices(layer, head)
    assert symbols(view) == ["Q₃", "K₂", "V₂", "S₃", "A₃", "head₃"]
    d_head = layer.q.shape[2]
    for name in ("q", "k", "v", "output"):
        over_cell(picture(view, name).locator("canvas"), 4, d_head - 1)
        said = f"{symbols(view)[NAMES.index(name)]} of {labels[4]}, dimension {d_head}: "
        assert reading(view).startswith(said)
        value = float(reading(view).removeprefix(said).rstrip("."))
        assert value == pytest.approx(wanted[name][4, d_head - 1], rel=1e-3)
    for name, row, column in (("scores", 5, 1), ("weights", 1, 4)):
        over_cell(picture(view, name).locator("canvas"), row, column)
        numbers = re.search(r"score (\S+), scaled (\S+), .*weight (\S+)\.", reading(view)).groups()
        score, weight = wanted["scores"][row, column], layer.weights(head)[row, column]
        expected = [score, score / d_head**0.5, weight]
        np.testing.assert_allclose([*map(float, numbers)], expected, rtol=1e-3, atol=5.1e-5)
        assert reading(view).startswith(f"{labels[row]} → {labels[column]}: ")
        assert ("hidden by the mask" in reading(view)) == (column > row)

    large = view.view.locator(".large")
    assert not large.is_visible()
    picture(view, "weights").click()
    expect(large.get_by_role("heading", name="A₃ weights: rows sum to 1")).to_be_visible()
    assert picture(view, "weights").get_attribute("aria-expanded") == "true"
    over_cell(large.locator("canvas.heatmap"), 1, 4)
    assert reading(view).startswith(f"{labels[1]} → {labels[4]}: ")
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as waiting:
            large.get_by_role("button", name=kind, exact=True).click()
        name = rf"headscope-.*-layer-2-head-3-weights\.{kind.lower()}"
        assert re.fullmatch(name, waiting.value.suggested_filename)
    assert struct.unpack(">II", waiting.value.path().read_bytes()[16:24]) == (1920, 1080)
    large.get_by_role("button", name="Close the large picture").click()
    assert not large.is_visible()
    focused = "v => v.getRootNode().activeElement.getAttribute('aria-label')"
    assert view.view.evaluate(focused).startswith("Heatmap of A₃")
    assert len(sent) == before

    # The dimensions in another order keep their numbers.
    for name, sizes in (("token", layer.q[head][3]), ("variance", layer.q[head].astype(float).var(0))):
        view.view.get_by_label("Sort columns").select_option(name)
        order = np.argsort(-sizes, kind="stable")
        np.testing.assert_array_equal(view.matrix("q"), layer.q[head][:, order])


def test_with_the_keyboard_every_cell_of_a_picture_can_be_read(visit, app, eye):
    page = visit(f"{app}?{urlencode(GROUPED)}")
    view = eye(page)
    where = """v => {
        const at = v.getRootNode().activeElement;
        return at && [at.getAttribute('role') ?? at.tagName, at.getAttribute('aria-label') ?? at.textContent];
    }"""

    def tab_to(wanted: str) -> int:
        passed = []
        for stops in range(1, 30):
            page.keyboard.press("Tab")
            here = view.view.evaluate(where)
            passed.append(here)
            if here and wanted in here[0] + here[1]:
                return stops
        raise AssertionError(f"{wanted} was not reached: {passed}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    page.keyboard.press("Enter")
    stops = tab_to("lines")
    page.keyboard.press("End")  # the controls of a row are one stop
    assert view.view.evaluate(where)[1] == "Save"
    assert 1 + stops + tab_to("listbox") <= MAX_STOPS
    tab_to("Heatmap of Q")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert view.view.evaluate(where)[1].startswith("Heatmap of A₃")
    page.keyboard.press("Enter")
    large = view.view.locator(".large")
    tab_to("Table")
    page.keyboard.press("Enter")
    layer, labels = grouped().layers[1], grouped().tokens.labels
    table = large.get_by_role("table")
    for names in ("columnheader", "rowheader"):
        assert table.get_by_role(names).all_inner_texts() == list(labels)
    numbers = table.get_by_role("cell").all_inner_texts()
    assert (float(numbers[1]), numbers[2]) == (1, "hidden")  # of the first word
    assert float(numbers[-1]) == pytest.approx(layer.weights(2)[-1, -1], rel=1e-3)

    tab_to("application")
    expect(view.view.locator(".reading")).to_have_attribute("aria-live", "polite")
    last = len(labels) - 1
    walk = [("ArrowDown", 0, 0), ("ArrowUp", 0, 0), ("ArrowDown", 1, 0), ("ArrowRight", 1, 1)]
    walk += [("End", 1, last), ("ArrowRight", 1, last), ("Home", 1, 0), ("ArrowLeft", 1, 0)]
    for key, row, column in walk:
        page.keyboard.press(key)
        assert reading(view).startswith(f"{labels[row]} → {labels[column]}: "), key
    page.keyboard.press("Escape")
    expect(large).not_to_be_visible()
    assert view.view.evaluate(where)[1].startswith("Heatmap of A₃")


def test_keys_work_after_a_click_in_any_part_of_the_view(visit, app, eye, settled):
    page = visit(app)
    view = eye(page)
    pinned = view.view.locator(".strip [aria-selected=true]")
    for place in (
        view.word(2),
        view.token(2),
        view.stage().locator("canvas"),
        view.view.locator(".status").first,
        view.view.locator(".caption"),
        view.chip("head 1"),
        view.pictures().first,
        picture(view, "q"),  # the only one that opens something: it closes before the word is let go
    ):
        view.word(4).click()
        expect(pinned).to_have_text(["cross", "cross"])
        place.click()
        page.keyboard.press("h")
        head = view.title()
        page.keyboard.press("h")
        assert view.title() != head
        if (large := view.view.locator(".large")).is_visible():
            page.keyboard.press("Escape")
            expect(large).not_to_be_visible()
            expect(pinned).to_have_count(2)
        page.keyboard.press("Escape")
        expect(pinned).to_have_count(0)
    view.word(4).click()
    page.keyboard.press("ArrowDown")
    assert looked_at(view)[2] == 5
    page.go_back()
    settled(page)
    page.keyboard.press("Escape")
    expect(pinned).to_have_count(0)


def test_every_picture_moves_the_focus_without_the_server(visit, app, eye, settled):
    page = visit(app, sent=(sent := []))
    view = eye(page)
    before = len(sent)
    assert looked_at(view) == (1, 0, IT)

    view.chip("head 4").dblclick()
    assert looked_at(view) == (1, 3, IT)
    view.pictures().nth(2).click()
    assert looked_at(view) == (1, 2, IT)
    assert view.on() == [2]
    view.word(2).click()  # animal
    assert looked_at(view) == (1, 2, 2)
    view.token(6, "query", 1).click()  # street, of the other sentence
    assert looked_at(view) == (1, 2, 6)
    assert "… too wide." in view.title()
    view.token(6).click()  # the same word of the first sentence: it is looked at there
    assert looked_at(view) == (1, 2, 6)
    assert "… too tired." in view.title()
    for key, focus in (("h", (1, 3, 6)), ("L", (0, 3, 6)), ("H", (0, 2, 6))):
        view.listbox().press(key)
        assert looked_at(view) == focus, key
    view.button("layer 2").click()
    assert looked_at(view) == (1, 2, 6)
    picture(view, "scores").click()
    large = view.view.locator(".large canvas.heatmap")
    click_cell(large, 4, 2)
    assert looked_at(view) == (1, 2, 4)
    view.pictures().nth(1).focus()
    page.keyboard.press("Enter")
    assert looked_at(view) == (1, 1, 4)
    assert symbols(view)[0] == "Q₂"

    # Pointing lights the token in every picture; nothing is chosen by it.
    drawn = "v => Object.values(v.view.matrices.gallery.pictures).map(({ map }) => map.canvas.toDataURL())"
    view.away()
    at_rest = view.view.evaluate(drawn)
    for name, row in (("q", 6), ("weights", 2)):
        over_cell(picture(view, name).locator("canvas"), row, 1)
        for number in (0, 1):
            for place in (view.strip(number), view.stage(number)):
                lit = place.locator(".token.focus").evaluate_all("all => all.map((e) => e.dataset.at)")
                assert lit == [str(row)], name
        assert {line[1] for line in view.lines()} == {row}
        differ = [one != other for one, other in zip(view.view.evaluate(drawn), at_rest, strict=True)]
        assert all(differ[NAMES.index(other)] for other in ("q", "scores", "weights", "output"))
    view.word(5).hover()
    assert view.view.evaluate("v => v.view.matrices.focus.query") == 5
    assert view.view.evaluate(drawn) != at_rest
    view.away()
    assert view.view.evaluate(drawn) == at_rest
    settled(page)
    assert looked_at(view) == (1, 1, 4)
    assert len(sent) == before


def test_a_copied_link_shows_the_same_picture_in_a_fresh_browser(visit, app, browser, eye, settled):
    page = visit(app)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    view = eye(page)
    view.button("layer 1").click()
    view.button("matrix").click()
    view.pictures().nth(1).click()
    view.chip("head 4").click()
    view.word(6, 1).click()
    view.word(2, 1).click(modifiers=["Shift"])
    options = view.menu("Options")
    options.get_by_label("Hide weights below").fill("0.11")
    options.get_by_label("Lines per token").fill("3")
    options.get_by_label("Hide special tokens").check()
    settled(page)
    page.get_by_label("Share", exact=True).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    query = urlsplit(page.evaluate("navigator.clipboard.readText()")).query
    link = {name: value for name, [value] in parse_qs(query).items()}
    del link["weights"]  # the edition of the small models: tests/browser/test_links.py
    focus = {"layer": "1", "head": "4", "token": "animal", "sentence": "2", "pins": "street", "heads": "2,4"}
    drawn = {"drawing": "matrix", "threshold": "0.11", "lines": "3", "specials": "hidden"}
    assert link == focus | drawn
    looked = "v => v.view.selection.looked"
    fresh = browser.new_context(viewport={"width": 1440, "height": HEIGHT})
    other = fresh.new_page()
    other.goto(f"{app}/?{query}")
    assert eye(other).view.evaluate(looked) == view.view.evaluate(looked)
    fresh.close()


def test_a_focus_is_not_lost_however_late_the_server_answers(
    visit, serve, eye, settled, tmp_path, monkeypatch
):
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setenv("HEADSCOPE_LOCK", str(lock))
    page = visit(serve(script=Path(__file__).with_name("held_app.py")))
    view = eye(page)
    view.pictures().nth(1).click()
    view.word(2).click()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        page.go_back()  # asks the server, which does not answer
        page.go_back()
        page.go_forward()
        view.button("layer 1").click()
        view.pictures().nth(2).click()
        view.word(6).click()
        page.get_by_role("link", name="Steps", exact=True).click()
        page.get_by_role("link", name="Token", exact=True).click()
    settled(page)
    subject = re.compile("“street” in layer 1, head 3")
    expect(page.get_by_role("heading", level=1, name=subject)).to_be_visible()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        page.get_by_role("link", name="Heads", exact=True).click()
    settled(page)
    assert looked_at(view) == (0, 2, 6)


def test_on_a_phone_the_six_matrices_are_swiped(visit, app, eye):
    page = visit(app, width=390, height=844, touch=True)
    view = eye(page)
    row, large = view.view.locator(".six"), view.view.locator(".large")
    row.scroll_into_view_if_needed()
    boxes = row.locator("figure").evaluate_all("all => all.map((e) => e.getBoundingClientRect().toJSON())")
    assert len({round(box["top"]) for box in boxes}) == 1
    assert all(box["width"] > 120 for box in boxes)
    assert boxes[1]["right"] <= 390 < boxes[-1]["left"]
    row.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    expect(row.locator("figure").last).to_be_in_viewport(ratio=0.9)
    picture(view, "output").tap()
    expect(large).to_be_visible()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    assert large.evaluate("e => e.getBoundingClientRect().right") <= 390

    # Two fingers that go apart zoom the matrix, not the page.
    cell = "v => v.view.matrices.gallery.enlarged.viewport.cell"
    canvas = large.locator("canvas.heatmap")
    canvas.evaluate("e => e.scrollIntoView({ block: 'center' })")
    box, before = canvas.bounding_box(), view.view.evaluate(cell)
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *apart: int) -> None:
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        points = [{"x": x + side * by, "y": y, "id": (side + 1) // 2} for by in apart for side in (-1, 1)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 20)
    for apart in (30, 40, 60):
        touch("touchMove", apart)
    touch("touchEnd")
    fingers.detach()
    assert view.view.evaluate(cell) == pytest.approx(3 * before, rel=0.1)
    assert page.evaluate("visualViewport.scale") == 1


def test_on_a_phone_two_sentences_are_swiped(visit, app, eye, settled):
    page = visit(app, width=390, height=844, touch=True)
    view, below = eye(page), page.locator("[data-testid=stHeader]").bounding_box()["height"]
    names = view.view.get_by_role("toolbar", name="Sentences").get_by_role("button")
    ends = ["… too tired.", "… too wide."]
    assert names.all_inner_texts() == ends
    assert page.get_by_role("heading", level=1).bounding_box()["height"] < 50  # in one line
    row, places = view.view.locator(".panels"), set()
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touched = [{"x": x, "y": y} for x, y in points]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    def swipe(by: int) -> None:
        y = row.bounding_box()["y"] + 200
        touch("touchStart", (200, y))
        for part in range(1, 9):
            touch("touchMove", (200 + by * part / 8, y))
            view.drawn()
        touch("touchEnd")

    def scroll_to(place: str) -> None:
        """To 350 pixels below the top of the screen; where things stand in the page is written down."""
        scroll = """(e) => {
            const main = document.querySelector('[data-testid=stMain]');
            main.scrollBy(0, e.getBoundingClientRect().top - 350);
            const every = e.closest('.view').querySelectorAll('.stage, .matrices, .all-heads');
            return String([...every].map((one) =>
                Math.round(one.getBoundingClientRect().top + main.scrollTop)));
        }"""
        places.add(view.view.locator(place).evaluate(scroll))
        view.drawn()

    def in_sight(number: int) -> None:
        """This sentence is, with its drawing, its name, its matrices and its place in the link."""
        view.until(lambda: abs(view.stage(number).bounding_box()["x"] - (16, 72)[number]) < 1)
        view.until(lambda: ends[number] in view.title())
        assert [view.strip(at).is_visible() for at in (0, 1)] == [number == 0, number == 1]
        pressed = names.evaluate_all("all => all.map((e) => e.getAttribute('aria-pressed'))")
        assert pressed == [str(at == number).lower() for at in (0, 1)]
        for panel in (0, 1):  # the other one is seen to be there
            expect(view.stage(panel)).to_be_in_viewport(ratio=0.1)
        assert focus_of(page).sentence == number + 1

    view.view.evaluate("e => e.scrollIntoView()")  # the sentence and its controls stand above
    in_sight(0)
    # The matrices stand directly beneath what is said of the drawing.
    said, six = view.view.locator(".status").first.bounding_box(), view.view.locator(".six").bounding_box()
    assert said["y"] + said["height"] < six["y"] < said["y"] + said["height"] + 120
    swipe(-180)
    in_sight(1)
    assert view.chosen_word(1) == "it"
    swipe(180)
    in_sight(0)
    names.nth(1).tap()
    in_sight(1)
    settled(page)
    page.go_back()
    in_sight(0)
    view.word(11).tap()  # a word that the other sentence has not: the one in its place
    names.nth(1).tap()
    in_sight(1)
    assert view.chosen_word(1) == "wide"

    scroll_to(".six")
    assert names.first.bounding_box()["y"] == pytest.approx(below, abs=1)
    in_sight(1)
    names.first.tap()
    in_sight(0)
    for place in (".all-heads", ".six", ".caption"):
        scroll_to(place)
    assert len(places) == 1  # nothing moves when a sentence sticks
    view.view.locator("button", has_text="text").evaluate("e => e.click()")
    scroll_to(".all-heads")
    top = names.first.bounding_box()["y"]
    assert top == pytest.approx(below, abs=1)
    assert top < view.stage(0).bounding_box()["y"] < top + 50  # the drawing is the sentence

    page.set_viewport_size({"width": 390, "height": 400})  # it would hide what it belongs to
    assert view.view.locator(".sentences").evaluate("e => getComputedStyle(e).position") == "static"
    fingers.detach()


def colours(canvas, row: int, column: int) -> set[tuple]:
    """The colours of a cell's pixels away from its edges."""
    x, y, wide, high = map(int, cell_box(canvas, row, column))
    return {tuple(one) for one in pixels(canvas)[y + 3 : y + high - 2, x + 3 : x + wide - 2].reshape(-1, 4)}


def test_masked_cells_are_hatched_in_pictures_captions_and_files(view_of):
    view = view_of(source="random", mask="causal", twin="", head="1")
    small, large = picture(view, "weights"), view.view.locator(".large")
    small.click()
    large.locator("canvas.heatmap").wait_for()
    view.away()
    seen = set()
    for theme in ("light", "dark"):
        view.page.emulate_media(color_scheme=theme)
        view.until(lambda: frozenset(colours(small.locator("canvas"), 2, 5)) not in seen)
        for canvas in (small.locator("canvas"), large.locator("canvas.heatmap")):
            assert len(colours(canvas, 2, 5)) > 1  # slanted lines over a grey
        masked = colours(small.locator("canvas"), 2, 5)
        [shown] = colours(small.locator("canvas"), 7, 3)
        assert shown not in masked
        seen.add(frozenset(masked))
    assert len(seen) == 2
    scale = re.compile("^colours (0|−.*) to ")
    expect(view.view.locator(".six figcaption small", has_text=scale)).to_have_count(6)
    note = "Hatched: hidden by the mask"
    expect(view.view.locator(".six figcaption", has_text=note)).to_have_count(1)  # weights alone have a mask
    for place in (large.locator(".scale"), view.view.locator(".all-heads .note")):
        expect(place).to_contain_text(note)
    with view.page.expect_download() as offered:
        large.get_by_role("button", name="SVG", exact=True).click()
    assert note in offered.value.path().read_text(encoding="utf-8")


def test_the_frame_of_a_thin_row_leaves_its_cells_visible(view_of):
    words = " ".join(f"word{number}" for number in range(60))
    view = view_of(source="random", twin="", token=9, text=words)
    canvas = view.view.locator(".six canvas").first
    left, top, _, high = cell_box(canvas, 8, 0)
    assert high < 4

    def row() -> list:
        return pixels(canvas)[int(top + high / 2), int(left) + 3 : -6].tolist()

    framed = "v => v.view.matrices.gallery.pictures.q.map.marks.rows"
    assert view.view.evaluate(framed) == [8]
    drawn = row()
    view.listbox().press("Home")
    assert view.view.evaluate(framed) == [0]
    assert row() == drawn


def test_all_heads_are_saved_with_their_words_and_weights(view_of):
    view = view_of(**GROUPED)
    every = view.view.locator(".all-heads")

    def saved(kind: str) -> bytes:
        with view.page.expect_download() as waiting:
            every.get_by_role("button", name=kind, exact=True).click()
        assert waiting.value.suggested_filename.endswith(f"-layer-2-heads.{kind.lower()}")
        return waiting.value.path().read_bytes()

    trace = grouped()
    table = long_table(trace, "weights", layer=1, heads=range(4))
    top, *body = csv.reader(io.StringIO(saved("CSV").decode("utf-8-sig")))
    assert top == list(table.columns)
    safe = [f"'{label}" if label[0] in "=+-@" else label for label in trace.tokens.labels]
    assert [line[3] for line in body[: len(safe) ** 2 : len(safe)]] == safe
    np.testing.assert_allclose([float(line[6] or 0) for line in body], table.iloc[:, -1], atol=6e-5)
    assert all(len(line[6].lstrip("0.").split("e")[0]) <= 5 for line in body)  # no digit that is made up

    svg = ET.fromstring(saved("SVG"))
    said = ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]
    assert said[0] == "All heads of layer 2"
    assert [text for text in said if text.startswith("head ")] == [f"head {number}" for number in range(1, 5)]
    boxes = [[*picture.iter(f"{SVG}rect")] for picture in svg.iter(f"{SVG}svg")]
    drawn = [[box for box in inside if box.get("fill") != "none"] for inside in boxes]
    pictures = "v => v.view.grid.pictures.map(({ map: { picture } }) => picture.toDataURL())"
    for drawn_cells, wanted in zip(drawn[-4:], map(pixels, view.view.evaluate(pictures)), strict=True):
        assert all(float(cell.get("width")) >= 14 for cell in drawn_cells)  # with room for a word
        found = np.array([re.findall(r"\d+", cell.get("fill")) for cell in drawn_cells], int)
        solid = wanted.reshape(-1, 4)[:, 3] == 255
        assert np.abs(found - wanted.reshape(-1, 4)[:, :3])[solid].max() <= 1
        assert [
            cell.get("opacity") is None for cell in drawn_cells
        ] == solid.tolist()  # the others are hatched
    assert struct.unpack(">II", saved("PNG")[16:24]) == (1920, 1080)

    # Colours of weights go from 0 to 1; where small ones are brought out, to the largest of all heads.
    ends = "v => v.view.grid.pictures.map(({ numbers }) => numbers.end)"
    assert view.view.evaluate(ends) == [1, 1, 1, 1]
    view.menu("Options").get_by_label("Bring out small weights").check()
    np.testing.assert_allclose(view.view.evaluate(ends), [trace.layers[1].weights().max()] * 4, atol=1e-5)


def test_a_long_sentence_is_scrolled_to_the_pinned_word(visit, app, eye):
    words = "+".join(f"w{at}" for at in range(1, 201))
    page = visit(f"{app}/?source=random&twin=&layer=1&token=200&text={words}")
    view = eye(page)
    inside = """v => {
        const scroll = v.querySelector('.strip .scroll');
        const [outer, inner] = [scroll, scroll.querySelector('[aria-selected=true]')]
            .map((e) => e.getBoundingClientRect());
        return inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
    }"""
    rows = "v => [0, 127].map((at) => v.view.matrices.gallery.pictures.weights.map.numbers.rows[at])"

    def is_at(word: str, first: str, last: str) -> None:
        """The word is chosen and in sight, and the matrices show the part around it."""
        assert view.chosen_word() == word
        assert view.view.evaluate(inside)
        assert view.view.evaluate(rows) == [first, last]

    is_at("w200", "w73", "w200")
    assert page.locator("[data-testid=stMain]").evaluate("main => main.scrollTop") == 0
    picture(view, "weights").click()
    click_cell(view.view.locator(".large canvas.heatmap"), 3, 5)
    is_at("w76", "w12", "w139")
    expect(view.view.locator("h3", has_text="w76 → w78")).to_be_visible()  # the cell that was pressed
    view.word(99).click()
    is_at("w100", "w36", "w163")  # as many on either side
    view.listbox().press("Home")
    is_at("w1", "w1", "w128")

    # Who wants nothing to move sees no movement: the other end is there in the frame of the press.
    view.until(lambda: page.locator("*").evaluate_all(MOVING) == [])
    page.emulate_media(reduced_motion="reduce")
    jump = """v => {
        const scroll = v.querySelector('.stage .scroll');
        const before = scroll.scrollTop;
        v.querySelector('.more.down').click();
        return scroll.scrollTop - before;
    }"""
    assert view.view.evaluate(jump) > 100
    view.word(3).hover()
    view.pictures().nth(1).click()
    assert page.locator("*").evaluate_all(MOVING) == []


def test_a_number_is_explained_and_its_copied_code_prints_it(visit, app, eye, settled):
    """In two clicks: a matrix is enlarged, a cell clicked. The code comes from the server."""
    page = visit(f"{app}?{urlencode(GROUPED)}", sent=(sent := []))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    view, layer, head = eye(page), grouped().layers[1], 2
    panel, large = view.view.locator(".cell-path"), view.view.locator(".large canvas.heatmap")
    heading, stages = panel.get_by_role("heading"), panel.locator(".stages button")
    before = len(sent)
    picture(view, "weights").click()
    click_cell(large, 5, 1)
    expect(stages).to_have_text(
        ["Vectors", "Products", "Scale", "Mask", "Exponentials", "Weights", "Mixture"]
    )
    assert len(sent) == before
    weight = layer.weights(head)[5, 1]
    assert float(heading.inner_text().rpartition("= ")[2]) == pytest.approx(weight, rel=1e-3)
    panel.get_by_text("Code that prints this number").click()
    expect(panel.locator("pre")).to_contain_text(f"# weights: layer 2, head {head + 1}")
    panel.get_by_role("button", name="Copy as PyTorch").click()
    expect(panel.get_by_role("button", name="Copied")).to_be_visible()
    code = page.evaluate("navigator.clipboard.readText()")
    assert cells.output(code) == pytest.approx(weight, rel=1e-4, abs=1e-6)
    panel.get_by_text("All terms as a table").click()
    sums = panel.locator("table").first.locator("tbody td:last-child")
    in_order = sums.all_inner_texts()
    panel.get_by_role("button", name="Largest first").click()
    expect(sums).not_to_have_text(in_order)
    last = float(sums.last.inner_text().replace("−", "-"))
    assert last == pytest.approx(layer.scores(head)[5, 1], rel=1e-3)

    picture(view, "q").click()
    click_cell(large, 3, 2)
    expect(stages).to_have_text(["Vectors", "Products"])
    expect(panel.locator("pre")).to_contain_text("# q: layer 2, head 3")  # X and W are the server's
    settled(page)
    panel.get_by_role("button", name="Close explanation").click()
    expect(panel).to_be_hidden()
