"""A token or head under the pointer is highlighted in every picture of the page, without the server."""

import re

from playwright.sync_api import expect

from mha_core.scene.scene import Scene
from mha_core.traces.tokens import words
from tests.browser.conftest import over_cell

ANIMAL, IT = (words(Scene().text).labels.index(word) + 1 for word in ("animal", "it"))  # behind [CLS]
MARKED = """all => all.flatMap(({ heatmaps }) => Object.values(heatmaps.gallery.pictures))
    .map(({ map: { numbers: { rows, columns }, marks } }) => ({ names: [rows, columns],
        lit: marks.cell ? [[marks.cell.row], [marks.cell.column]] : [marks.rows, marks.columns] }))"""
WORDS = "all => all.map((one) => one.querySelector('bdi')?.textContent ?? one.textContent)"


def lit_on(page) -> tuple[list[dict], list[str]]:
    """The rows and columns of each matrix and which are lit; and what is lit above them."""
    return (
        page.locator(".heatmaps").evaluate_all(MARKED),
        page.locator(".chooser .lit").evaluate_all(WORDS),
    )


def test_a_hovered_token_is_highlighted_in_every_picture(visit, app):
    page = visit(f"{app}/token", sent=(sent := []))
    page.locator(".heatmaps canvas").first.wait_for()
    page.locator(".chooser .word").first.wait_for()
    before = len(sent)
    pictures, lit = lit_on(page)
    assert lit == []
    n_pictures = len(pictures)

    page.locator(".chooser .word").nth(ANIMAL).hover()
    pictures, lit = lit_on(page)
    assert lit == ["animal"]
    with_animal = [one for one in pictures if any("animal" in names for names in one["names"])]
    assert len(with_animal) > 1
    for one in with_animal:
        for names, marked in zip(one["names"], one["lit"], strict=True):
            assert ("animal" in names) == ("animal" in [names[at] for at in marked])

    # A row of one picture is a head, which has a number above.
    over_cell(page.locator(".heatmaps canvas").first, 2, ANIMAL + 1)
    pictures, lit = lit_on(page)
    assert lit == ["3", "didn't"]
    lit_rows = {one["names"][0][at] for one in pictures for at in one["lit"][0]}
    assert {"head 3", "didn't"} <= lit_rows

    page.mouse.move(0, 0)
    pictures, lit = lit_on(page)
    assert (len(pictures), lit) == (n_pictures, [])
    assert not any("animal" in [one["names"][0][at] for at in one["lit"][0]] for one in pictures)
    assert len(sent) == before


def lit_words(picture) -> list[str]:
    """The words that are lit on the axis that has words: the columns of a picture with one row."""
    axis = int(len(picture["names"][0]) == 1)
    return [picture["names"][axis][at] for at in picture["lit"][axis]]


def test_hovered_tokens_are_highlighted_between_view_and_matrices(visit, app, eye):
    page = visit(f"{app}/compare", sent=(sent := []))
    view, matrix = eye(page), page.locator(".heatmaps canvas").first
    matrix.wait_for()
    before = len(sent)
    view.word(ANIMAL).hover()
    pictures, _ = lit_on(page)
    assert len(pictures) > 2
    for one in pictures:
        assert "animal" in lit_words(one)
    over_cell(matrix, ANIMAL + 1, ANIMAL + 1)
    assert {line[1] for line in view.lines()} == {ANIMAL + 1}  # what "didn't" looks at
    pictures, _ = lit_on(page)
    for one in pictures:
        assert "didn't" in lit_words(one)
    page.mouse.move(0, 0)
    assert {line[1] for line in view.lines()} == {IT}
    assert len(sent) == before


def test_a_hovered_head_is_highlighted_everywhere(visit, app, eye, settled):
    page = visit(app, height=1400, sent=(sent := []))
    view = eye(page)
    page.locator(".st-key-overview_open summary").click()
    settled(page)
    overview = page.locator(".overview canvas").first
    overview.wait_for()
    before, plain = len(sent), overview.evaluate("(canvas) => canvas.toDataURL()")
    lit = view.view.locator(".lit")

    assert "0." not in view.pictures().nth(1).inner_text()  # no score: it is not of this sentence
    view.pictures().nth(1).hover()
    expect(lit).to_have_count(2)
    expect(lit.first).to_have_text(re.compile("^head 2"))  # its switch
    assert overview.evaluate("(canvas) => canvas.toDataURL()") != plain
    view.chip("head 3").hover()
    expect(view.pictures().nth(2)).to_have_class("lit")
    head, query, key, _ = view.lines()[0]
    page.mouse.move(*view.place((head, query, key)))
    expect(view.pictures().nth(head)).to_have_class("lit")
    view.away()
    expect(lit).to_have_count(0)
    assert overview.evaluate("(canvas) => canvas.toDataURL()") == plain

    overview.scroll_into_view_if_needed()
    box, lit_heads = overview.bounding_box(), set()
    for share in (0.2, 0.4, 0.6, 0.9):  # across the second layer, in which the view is
        overview.hover(position={"x": share * box["width"], "y": 0.8 * box["height"]})
        lit_heads |= {one.get_attribute("data-head") for one in view.view.locator(".chip.lit").all()}
    assert lit_heads == {"0", "1", "2", "3"}
    overview.hover(position={"x": 0.4 * box["width"], "y": 0.3 * box["height"]})
    expect(lit).to_have_count(0)  # a head of the first layer
    assert len(sent) == before


def test_a_hovered_word_is_highlighted_on_the_map_of_words(visit, app):
    page = visit(f"{app}/embeddings", sent=(sent := []))
    page.locator(".js-plotly-plot .textpoint text").first.wait_for()
    page.locator(".headscope-save").first.wait_for()
    before = len(sent)
    lit = """() => [...document.querySelectorAll('.js-plotly-plot .textpoint text.lit')]
        .map((one) => one.textContent)"""
    assert page.evaluate(lit) == []
    page.locator(".chooser .word").nth(ANIMAL).hover()
    assert {*page.evaluate(lit)} == {"animal"}  # on every map of this page
    texts = page.locator(".js-plotly-plot .textpoint text")
    written = texts.evaluate_all("all => all.map((one) => one.textContent)")
    words = page.locator(".chooser .word bdi").all_inner_texts()
    other = next(at for at, word in enumerate(words) if at not in (0, ANIMAL) and word.lower() in written)
    page.locator(".chooser .word").nth(other).hover()  # "The" of a sentence is "the" on the map
    assert words[other].lower() in page.evaluate(lit)
    page.mouse.move(0, 0)
    assert page.evaluate(lit) == []
    # The word of the sentence whose point has the most room: "animal" and "crow" are three pixels apart.
    word, x, y = page.evaluate(
        """(words) => {
            const plot = document.querySelector('.js-plotly-plot');
            const { xaxis, yaxis } = plot._fullLayout;
            const { left, top } = plot.getBoundingClientRect();
            const [across, down] = [left + xaxis._offset, top + yaxis._offset];
            const points = plot._fullData.flatMap(({ customdata, x, y }) => [...(customdata ?? [])].map(
                (word, at) => [word, across + xaxis.d2p(x[at]), down + yaxis.d2p(y[at])]
            ));
            const room = ([word, x, y]) => Math.min(
                ...points.filter(([name]) => name !== word).map(([, a, b]) => Math.hypot(a - x, b - y))
            );
            return points.filter(([word]) => words.includes(word)).sort((a, b) => room(b) - room(a))[0];
        }""",
        [word for word in words if word.islower() and words.count(word.capitalize()) == 0],
    )
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    expect(page.locator(".chooser .word.lit bdi")).to_have_text([word])
    assert {*page.evaluate(lit)} == {word}
    assert len(sent) == before
