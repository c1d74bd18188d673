"""Files saved from the head view: figures, tables, and pages that work without a server."""

import base64
import csv
import io
import itertools
import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.scene.scene import Scene

TIRED, WIDE = Scene().text, Scene().twin
IT = 8
SVG = "{http://www.w3.org/2000/svg}"
SLIDE = (1920, 1080)
LONG_WORDS = {"text": "internationalization counterrevolutionaries misrepresented", "source": "random"}
CHINESE = {"text": "小猫没有过马路因为它太累了", "twin": "小猫没有过马路因为它太宽了"}
# A figure in a page, all words 29 % wider than they are: those that reach out of it or into another.
CROWDED = """svg => {
    const figure = document.createElement('div');
    figure.innerHTML = svg;
    document.body.append(figure);
    const outer = figure.firstChild.getBoundingClientRect();
    const words = [...figure.querySelectorAll('text')].map((text) => {
        text.setAttribute('textLength', 1.29 * text.getComputedTextLength());
        text.setAttribute('lengthAdjust', 'spacingAndGlyphs');
        return [text.textContent, text.getBoundingClientRect()];
    });
    const isOut = (box) =>
        box.left < outer.left || box.right > outer.right || box.top < outer.top || box.bottom > outer.bottom;
    const touches = (one, other) =>
        one.left < other.right && other.left < one.right
            && one.top < other.bottom - 4 && other.top < one.bottom - 4;
    const crowded = words.filter(([, box], at) =>
        isOut(box) || words.some(([, other], nth) => nth !== at && touches(box, other)));
    return [words.length, crowded.map(([word]) => word)];
}"""
# Red, green, blue and opacity in each corner of a picture.
CORNERS = """async address => {
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    const context = canvas.getContext('2d');
    context.drawImage(picture, 0, 0);
    const [right, bottom] = [picture.width - 1, picture.height - 1];
    const corners = [[0, 0], [right, 0], [0, bottom], [right, bottom]];
    return corners.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]);
}"""


@pytest.fixture
def save(tmp_path):
    """`save(page, view, "PNG")`: the file that comes of it."""

    def take(page, view, item: str):
        menu = view.menu("Save")
        with page.expect_download() as download:
            menu.get_by_role("button", name=item).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    return take


@pytest.fixture
def written(tmp_path):
    """`written(trace, head=…)`: its view as a file."""

    def write(trace: mha.AttentionTrace, **shown):
        path = tmp_path / "view.html"
        trace.view(**shown).save(path)
        return path

    return write


def weights(text: str = TIRED) -> np.ndarray:
    return mha.trace(**Scene().settings(text)).layers[1].weights()


def texts(svg: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in svg.iter(f"{SVG}text")]


def size(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def address(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


# Figures and tables


def test_a_figure_is_saved_as_svg_and_as_a_slide_with_both_sentences_beside_each_other(visit, app, eye, save):
    page = visit(f"{app}/?head=4&heads=4")
    view = eye(page)
    view.chip("head 3").click()
    path = save(page, view, "SVG")
    assert path.name == "headscope-The-animal-didn-t-cross-the-street-becau-layer-2-lines.svg"
    svg = ET.fromstring(path.read_text(encoding="utf-8"))
    said = texts(svg)
    assert " ".join(said).count(TIRED) == " ".join(said).count(WIDE) == 1
    assert re.search(r"trained model, readable, h 4.* · layer 2 · heads 3 and 4 · Headscope$", " ".join(said))
    assert {"head 3 · to whom or what", "head 4 · word before"} <= set(said)  # the legend
    for answer in view.view.locator(".answer").all_inner_texts():
        assert " ".join(answer.split("●")[0].split()) in " ".join(said)
    framed = [box.get("y") for box in svg.iter(f"{SVG}rect") if box.get("fill") == "none"]
    assert framed == [str(22 * IT)] * 2  # the asked word, in both sentences
    placed = [re.findall(r"[\d.]+", group.get("transform")) for group in svg.findall(f"{SVG}svg/{SVG}g")]
    (one, at), (other, beside) = ([float(number) for number in place] for place in placed)
    assert at == beside
    assert one < other
    assert said.count("cross") == 4  # two columns, two sentences
    assert any(text.startswith("because") and f"4: {weights()[3, IT, 7]:.2f}" in text for text in said)
    numbered = [text for text in said if re.match(r"\w+[34]: ", text)]
    drawn_keys = sum(len({key for _, _, key, _ in view.lines(number)}) for number in (0, 1))
    assert 4 <= len(numbered) <= drawn_keys  # as on screen: only what is drawn has a number
    lines = list(svg.iter(f"{SVG}path"))
    assert len(lines) == len(view.lines(0)) + len(view.lines(1)) + 2  # in the legend
    palette = view.colours()
    assert {line.get("stroke") for line in lines} == {palette[2], palette[3]}
    width, height = int(svg.get("width")), int(svg.get("height"))
    assert svg.get("viewBox") == f"0 0 {width} {height}"

    assert size(save(page, view, "PNG").read_bytes()) == SLIDE
    view.chip("head 4").dblclick()
    said = texts(ET.fromstring(save(page, view, "SVG").read_text(encoding="utf-8")))
    assert "· layer 2 · head 4 · Headscope" in " ".join(said)


def test_a_picture_has_the_fonts_of_the_page_inside(visit, app, eye, save):
    page = visit(app)
    page.evaluate(
        """() => {
            window.written = [];
            const real = encodeURIComponent;
            window.encodeURIComponent = (text) => { window.written.push(text); return real(text); };
        }"""
    )
    save(page, eye(page), "PNG")
    [drawn] = [text for text in page.evaluate("window.written") if str(text).startswith("<svg")]
    fonts = page.locator(".view").evaluate("view => getComputedStyle(view).fontFamily")
    font = fonts.split(",")[0].strip("\"'")
    assert f'@font-face{{font-family:"{font}"' in drawn
    woff2 = base64.b64encode(b"wOF2").decode().rstrip("=")  # as its files begin
    assert re.search(rf"src:url\(data:[\w/.-]+;base64,{woff2}", drawn)


def test_every_drawing_can_be_saved_and_each_sentence_of_it_has_the_scale_of_its_matrices(view_of, save):
    view = view_of()
    for drawing in ("text", "arcs", "matrix"):
        view.button(drawing).click()
        if drawing == "matrix":
            view.pooled()
        path = save(view.page, view, "SVG")
        assert path.stem.endswith(f"-layer-2-{drawing}")
        written = path.read_text(encoding="utf-8")
        svg, said = ET.fromstring(written), texts(ET.fromstring(written))
        assert "· layer 2 · heads 3 and 4 ·" in " ".join(said)
        assert ("Shades and numbers: mean of these heads." in " ".join(said)) == (drawing == "matrix")
        if drawing == "matrix":
            assert "Rows look at columns." in " ".join(said)
            assert not list(svg.iter(f"{SVG}image"))
            assert said.count("animal") == said.count("street") == 4  # names of rows and columns are text
            filled = [box for box in svg.iter(f"{SVG}rect") if box.get("fill").startswith("rgb")]
            assert len(filled) == 2 * 13**2 + 24  # cells, and the scale of the legend
        else:
            assert_room(view.page, written)  # columns of a matrix have slanted names
            assert {"animal", "street", f"{weights()[[2, 3], IT].max(0)[7]:.2f}"} <= set(said)
        if drawing == "arcs":
            drawn = len(view.lines(0)) + len(view.lines(1))
            assert len(list(svg.iter(f"{SVG}path"))) == drawn + 2  # in the legend
        assert size(save(view.page, view, "PNG").read_bytes()) == SLIDE
    view.menu("Options").get_by_label("Bring out small weights").check()
    caption = " ".join(texts(ET.fromstring(save(view.page, view, "SVG").read_text(encoding="utf-8"))))
    for text in (TIRED, WIDE):
        strongest = weights(text)[[2, 3]].mean(0).max()
        scale = f"Small weights are brought out: the strongest colour means {strongest:.4f}, not 1."
        assert f"{text} {scale}" in caption


def assert_room(page, svg: str) -> None:
    """Words that another font makes wider have room."""
    count, crowded = page.evaluate(CROWDED, svg)
    assert count > 3
    assert crowded == []


@pytest.mark.parametrize(
    ("drawing", "scene"), [("lines", LONG_WORDS), ("text", CHINESE)], ids=["lines", "text"]
)
def test_long_and_wide_words_have_room_in_a_figure(view_of, save, drawing, scene):
    view = view_of(**scene)
    view.button(drawing).click()
    assert_room(view.page, save(view.page, view, "SVG").read_text(encoding="utf-8"))


def test_a_slide_is_white_and_a_figure_has_no_ground_also_in_the_dark(alone, written, eye, save):
    page = alone(written(mha.trace("one two three", h=2, d_model=8), head=1, token=2), theme="dark")
    view = eye(page)
    for drawing in ("lines", "matrix"):
        view.button(drawing).click()
        svg, png = (save(page, view, kind).read_bytes() for kind in ("SVG", "PNG"))
        assert page.evaluate(CORNERS, address(png)) == [[255] * 4] * 4
        assert page.evaluate(CORNERS, address(svg, "image/svg+xml")) == [[0] * 4] * 4
        inks = {text.get("fill") for text in ET.fromstring(svg).iter(f"{SVG}text")}
        # Of the light theme, in .streamlit/config.toml; numbers stand on their cells.
        assert "#20242e" in inks <= {"#20242e", "#000000", "#ffffff"}


# Pages


def test_a_page_saved_from_the_app_opens_where_the_app_was(visit, app, eye, save, alone):
    page = visit(f"{app}/?head=4&heads=4")
    view = eye(page)
    view.chip("head 1").dblclick()
    view.button("layer 1").click()
    view.token(2).click()
    page.get_by_role("heading", name="What does each head look at?").hover()
    lines = [view.lines(number) for number in (0, 1)]

    saved = eye(alone(save(page, view, "Page that works offline")))
    for number, text in enumerate((TIRED, WIDE)):
        assert saved.words(number) == ["[CLS]", *mha.words(text).labels]
    assert saved.on() == [0]
    assert saved.title().startswith("The six matrices of head 1, layer 1")
    assert [saved.lines(number) for number in (0, 1)] == lines
    assert saved.token(2).get_attribute("aria-selected") == "true"
    saved.chip("all").click()
    saved.button("layer 2").click()
    assert {line[:2] for line in saved.lines()} == {(head, 2) for head in range(4)}
    for head, query, key, weight in saved.lines():
        assert weight == pytest.approx(weights()[head, query, key], abs=2e-5)
    assert saved.view.locator(".foot button").all_inner_texts() == ["Unpin (Esc)"]  # nobody could hide a word
    assert saved.view.locator(".menu summary").all_inner_texts() == ["Options", "Save"]
    assert "Page that works" not in saved.menu("Save").inner_text()


def test_unknown_words_are_dotted_and_explained(alone, eye, written):
    trace = mha.trace("one two three", h=4, d_model=8)
    tokens = replace(trace.tokens, unknown=(1,))
    view = eye(alone(written(mha.AttentionTrace(tokens, trace.layers, trace.source))))
    for drawing in ("lines", "text", "arcs"):
        view.button(drawing).click()
        marked = view.view.locator(".stage .unknown")
        assert set(marked.locator("bdi").all_inner_texts()) == {"two"}
        assert marked.first.get_attribute("title").startswith("“two” is not in the vocabulary")
        line = "bdi => getComputedStyle(bdi).textDecorationStyle"
        assert marked.first.locator("bdi").evaluate(line) == "dotted"


def test_a_saved_page_follows_the_readers_theme(alone, written, eye):
    trace = mha.trace("The cat sat", source="mini", h=2, d_model=64)
    page = alone(written(trace, head=1, token=2, heads=[0, 1]), theme="dark")
    view = eye(page)
    colours = {"light": "#c2571a", "dark": "#ff9f5c"}  # of head 2, in .streamlit/config.toml
    for shown in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=shown)
        expected = {name: name == shown for name in colours}
        view.until(lambda expected=expected: {n: view.inked(c) for n, c in colours.items()} == expected)


def test_layers_outside_a_saved_page_cannot_be_chosen(alone, written, eye, monkeypatch):
    monkeypatch.setattr("mha_core.export.head_view.ALL_LAYERS", 1e-5)
    with pytest.warns(UserWarning, match="Only layer 2 of 3"):
        file = written(mha.trace("one two three four", h=4, d_model=8, layers=3), layer=1, head=2)
    view = eye(alone(file))
    assert "Only head 3 of 4 is in this view." in view.view.locator(".bar .note").inner_text()
    assert view.on() == [2]
    assert [view.button(f"layer {n}").is_enabled() for n in (1, 2, 3)] == [False, True, False]
    assert [view.chip(f"head {n}").is_enabled() for n in (1, 2, 3, 4)] == [False, False, True, False]
    view.listbox().press("l")
    assert view.button("layer 2").get_attribute("aria-pressed") == "true"


# Long texts

LONG = 600


def test_a_long_text_has_elements_only_for_visible_tokens_in_every_drawing(alone, written, eye, save):
    trace = mha.trace(" ".join(f"word{n}" for n in range(LONG)), h=4, d_model=32)
    view = eye(alone(written(trace, head=1, token=300)))
    scroll = view.panel().locator(".scroll")

    def scrolled_to(top: float | None) -> set[int]:
        """The tokens that have elements: those in sight and few others."""
        if top is not None:
            scroll.evaluate("(e, top) => (e.scrollTop = top)", top)
        view.drawn()
        top, height = scroll.evaluate("e => [e.scrollTop, e.clientHeight]")
        seen = {at for at in range(LONG) if at * 22 + 22 > top and at * 22 < top + height}
        numbers = view.panel().locator(".key").evaluate_all("all => all.map((e) => Number(e.dataset.at))")
        assert seen <= set(numbers)
        assert len(numbers) < 60
        return seen

    assert 300 in scrolled_to(None)  # as it opens
    # A pinned token that was scrolled away is still there for a screen reader.
    assert 300 not in scrolled_to(0)
    assert view.listbox().get_attribute("aria-activedescendant") == "view-0-query-300"
    assert view.token(300).get_attribute("aria-selected") == "true"
    assert view.token(290).count() == 0
    scrolled_to(3000)
    view.listbox().press("End")
    last = view.token(LONG - 1)
    assert view.listbox().get_attribute("aria-activedescendant") == f"view-0-query-{LONG - 1}"
    view.drawn()
    assert last.is_visible()
    assert LONG - 1 in scrolled_to(None)
    top, height, all_ = scroll.evaluate("e => [e.scrollTop, e.clientHeight, e.scrollHeight]")
    assert top + height == pytest.approx(all_, abs=1)
    assert last.locator("bdi").inner_text() == f"word{LONG - 1}"
    assert last.get_attribute("aria-posinset") == last.get_attribute("aria-setsize") == str(LONG)
    last.hover()
    row = trace.layers[0].weights(1)[LONG - 1]
    drawn, near = {key: weight for _, _, key, weight in view.lines()}, 1e-5
    assert {line[1] for line in view.lines()} == {LONG - 1}
    least = 1 / LONG
    assert {*np.flatnonzero(row >= least + near)} <= drawn.keys() <= {*np.flatnonzero(row >= least - near)}
    for key, weight in drawn.items():
        assert weight == pytest.approx(row[key], abs=near)

    # A picture is as long as the text, with its words no smaller than on screen.
    svg, png = (save(view.page, view, kind).read_bytes() for kind in ("SVG", "PNG"))
    width, height = (int(ET.fromstring(svg).get(side)) for side in ("width", "height"))
    assert height > 22 * LONG
    assert size(png) == (2 * width, 2 * height)

    view.button("matrix").click()
    view.pooled()
    view.button("arcs").click()
    assert view.panel().locator(".token").count() < 60
    view.token(LONG - 1, "token").hover()
    assert view.lines()
    view.button("text").click()
    assert view.token(LONG - 1, "token").locator("bdi").inner_text() == f"word{LONG - 1}"


# Two texts, and pieces of words


def pieces(text: str, special: tuple[int, ...] = ()) -> mha.Tokens:
    """Tokens of a text that is cut at "|" and, into words, at spaces."""
    words = [word.split("|") for word in text.split()]
    numbers = tuple(number for number, word in enumerate(words) for _ in word)
    ends = np.cumsum([len(piece) + (at + 1 == len(word)) for word in words for at, piece in enumerate(word)])
    labels = tuple(piece for word in words for piece in word)
    starts = [0, *ends[:-1]]
    spans = tuple((int(at), int(at) + len(piece)) for at, piece in zip(starts, labels, strict=True))
    return mha.Tokens(text.replace("|", ""), labels, spans, numbers, special)


LOOKS = pieces("the butter|flies flew a|way .")  # 7
LOOKED_AT = pieces("[CLS] Die Schm|etter|linge flog|en gest|ern weg .", (0,))  # 11


def test_two_texts_are_a_page_with_both_in_every_drawing(alone, eye, save, written):
    draw = torch.Generator().manual_seed(5)
    shapes = {"q": (len(LOOKS), 5), "k": (len(LOOKED_AT), 5), "v": (len(LOOKED_AT), 3)}
    tensors = {name: torch.randn((3, *shape), generator=draw) for name, shape in shapes.items()}
    layer = mha.LayerTrace(tensors, kind="cross", sides=mha.Sides(LOOKS, LOOKED_AT))
    cross = mha.AttentionTrace(LOOKED_AT, (layer,), {"name": "by hand"})
    weights = cross.layers[0].weights(1)
    page = alone(written(cross, head=1, token=6))
    view = eye(page)
    assert view.panel().locator(".token.query").all_inner_texts()[1] == "butter"
    assert view.panel().locator(".token.key").count() == 11
    assert view.said().startswith(f"“.” looks at “{LOOKED_AT.labels[weights[6].argmax()]}” ")
    view.token(10, side="key").hover()
    assert view.said().startswith(f"“.” is looked at by “{LOOKS.labels[weights[:, 10].argmax()]}” ")

    # The keyboard walks each list to its own end.
    for keys, side, last in (
        (("End", "ArrowRight", "End", "ArrowDown"), "key", 10),
        (["ArrowLeft"], "query", 6),
    ):
        for key in keys:
            view.listbox().press(key)
        chosen = view.panel().locator(f".{side}[aria-selected=true]")
        assert chosen.get_attribute("data-at") == str(last)
    view.listbox().press("Escape")
    said = texts(ET.fromstring(save(page, view, "SVG").read_text(encoding="utf-8")))
    assert all(said.count(label) == 1 for label in ("butter", "etter", "gest"))
    rows = list(csv.DictReader(io.StringIO(save(page, view, "CSV").read_text(encoding="utf-8-sig"))))
    pairs = itertools.product(LOOKS.labels, LOOKED_AT.labels)
    assert [(row["query"], row["key"]) for row in rows] == list(pairs)
    np.testing.assert_allclose([float(row["weights"]) for row in rows], weights.ravel(), atol=1e-5)

    assert view.button("arcs").is_disabled()
    assert "a text that looks at itself" in view.button("arcs").get_attribute("title")
    view.button("text").click()
    assert view.panel().locator(".prose").count() == 2
    for side, other, row in (("query", "key", weights[3]), ("key", "query", weights[:, 3])):
        view.token(3, side=side).hover()
        names = (LOOKED_AT if other == "key" else LOOKS).labels
        brightest = view.panel().locator(f".token.{other}").nth(row.argmax())
        assert brightest.locator("bdi").inner_text() == names[row.argmax()]
        assert brightest.locator(".numbers").inner_text() == f"{row.max():.2f}"
        assert view.panel().locator(f".token.{side} .numbers:not(:empty)").count() == 0
    view.button("matrix").click()
    left, above, cell, high = view.view.evaluate(
        "v => (({ left, above, viewport }) => [left, above, viewport.cell, viewport.high])"
        "(v.view.drawings[0].drawing.map)"
    )
    assert cell == pytest.approx(high)
    place = {"x": left + 10.5 * cell, "y": above + 6.5 * cell}
    view.panel().locator("canvas.matrix").hover(position=place)
    assert view.said().startswith(f". → .: weight {weights[6, 10]:.4f}")
