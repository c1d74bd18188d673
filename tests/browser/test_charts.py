"""Figures in a real browser: their menu, and saved files that name their source."""

import csv
import io
import re
import struct
import xml.etree.ElementTree as ET
from itertools import combinations
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import expect

import mha_core as mha
from mha_core.analysis.overview import overview
from tests.browser.conftest import pixels

NASTY = "<img src=x onerror=alert(1)> </script> ]]> &amp; 小猫 مرحبا =1+1"
SVG = "{http://www.w3.org/2000/svg}"
MAP = "words_map"  # key of a figure of plotly's
PAPER = {"light": "#fbfaf6", "dark": "#15171c"}


def link(address: str, **asked: object) -> str:
    random = {"source": "random", "layer": 1, "head": 1, "twin": ""}
    return f"{address}?{urlencode(random | asked)}"


def saved_file(page, key: str, kind: str):
    """The file that the menu of a figure saves: its name and its bytes."""
    menu = page.locator(f".st-key-{key} .headscope-save")
    menu.scroll_into_view_if_needed()
    menu.get_by_role("button", name="Save this figure", exact=True).click()
    with page.expect_download() as waiting:
        menu.get_by_role("button", name=f"Save this figure: {kind}", exact=True).click()
    return waiting.value.suggested_filename, waiting.value.path().read_bytes()


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))


# The menu


def test_every_figure_has_one_menu_however_often_the_page_is_drawn(visit, app, settled):
    page = visit(app)
    for name in ("Embeddings", "Train", "Steps"):
        page.get_by_role("link", name=name, exact=True).click()
        settled(page)
        if name == "Train":
            page.get_by_role("radio", name="How many heads?").click()
            settled(page)
        figures = page.locator(".js-plotly-plot, [data-headscope-saveable]")
        if name == "Steps":  # its pictures are no figures, and closed folds have none
            expect(page.locator(".headscope-save")).to_have_count(0)
            continue
        page.locator(".js-plotly-plot").first.wait_for(state="attached")
        expect(page.locator(".headscope-save")).to_have_count(figures.count())
        menus = figures.evaluate_all(
            "all => all.map((e) => e.parentElement.querySelectorAll(':scope > .headscope-save').length)"
        )
        assert set(menus) == {1}


# Files


def test_a_map_of_words_is_saved_by_pointer_and_keyboard_in_both_themes(visit, app, settled):
    page = visit(link(f"{app}/embeddings", text=NASTY, h=4, seed=3, word="<"))
    menu = page.locator(".st-key-words_map .headscope-save")
    opener = menu.get_by_role("button", name="Save this figure", exact=True)
    choices = menu.get_by_role("button", name="Save this figure: ")
    height = "document.querySelector('[data-testid=stMain]').scrollHeight"
    settled(page)
    before = page.evaluate(height), page.locator(".st-key-words_map").bounding_box()
    opener.evaluate("e => e.click()")
    assert (page.evaluate(height), page.locator(".st-key-words_map").bounding_box()) == before
    page.keyboard.press("Escape")
    assert not choices.first.is_visible()
    opener.focus()
    page.keyboard.press("Enter")
    expect(choices.first).to_be_focused()
    page.keyboard.press("Escape")
    assert not choices.first.is_visible()
    expect(opener).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+Tab")  # out of the menu
    assert not choices.first.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    assert waiting.value.suggested_filename.endswith(".png")

    for theme, paper in PAPER.items():
        page.emulate_media(color_scheme=theme)
        settled(page)
        ground = "rgb({}, {}, {})".format(*(int(paper[at : at + 2], 16) for at in (1, 3, 5)))
        expect(menu.locator("> button")).to_have_css("background-color", ground)
        name, content = saved_file(page, MAP, "SVG")
        assert name.startswith("headscope-words_map-img-src-x")
        assert name.endswith(".svg")
        root = ET.fromstring(content)
        # The caption is ours, the words in groups are plotly's.
        title, *caption = ["".join(element.itertext()) for element in root.findall(f"{SVG}text")]
        assert title == "Word vectors before attention"
        assert " ".join(caption).replace("” random", "”\nrandom").split("\n") == [
            f"“{NASTY}”",
            "random weights, h 4, d_model 64, seed 3, mask: full, positions: sinusoidal · Headscope",
        ]
        assert {"<", ">", "&", "amp", "مرحبا"} <= set(written(root))
        assert root.find(f"{SVG}rect").get("fill") == paper
        assert "Source Sans" in root.get("font-family")
        assert not {element.tag.removeprefix(SVG) for element in root.iter()} & {
            "script",
            "img",
            "foreignObject",
        }
        for attribute, value in (pair for element in root.iter() for pair in element.attrib.items()):
            assert not attribute.lower().startswith("on")
            if attribute.endswith("href"):
                assert value.startswith(("data:image/png;base64,", "#"))
            assert not re.search(r"""url\((?!["']?#)""", value)

    name, content = saved_file(page, MAP, "CSV")
    assert name.endswith(".csv")
    head, *body = rows(content)
    assert head == ["series", "x", "y", "label"]
    assert {"'=", "'+", "مرحبا", "小"} <= {line[-1] for line in body}  # no cell starts a formula
    _, content = saved_file(page, MAP, "PNG")
    size = struct.unpack(">II", content[16:24])
    assert size == (2 * int(root.get("width")), 2 * int(root.get("height")))
    assert len(np.unique(pixels(content).reshape(-1, 4), axis=0)) > 50  # a picture, not a blank sheet
    page.emulate_media(media="print")
    assert not page.locator(".headscope-save").first.is_visible()


def test_no_word_on_a_map_is_overlapped_or_cut(visit, app):
    page = visit(f"{app}/embeddings?text=The women saw the girl because she was lost.&twin=", width=390)
    boxes = page.locator(".st-key-words_map .textpoint text").evaluate_all(
        "all => all.map((e) => [e.textContent, e.getBoundingClientRect().toJSON()])"
    )
    assert len(boxes) > 30
    figure = page.locator(".st-key-words_map .nsewdrag").bounding_box()
    for word, box in boxes:
        assert figure["x"] <= box["left"] + 1, word
        assert box["right"] <= figure["x"] + figure["width"] + 1, word
    for (word, one), (other, two) in combinations(boxes, 2):
        overlap = min(one["right"], two["right"]) - max(one["left"], two["left"])
        if overlap > 1:
            assert abs(one["top"] - two["top"]) >= 12, (word, other)


def test_on_a_phone_a_3d_map_has_a_free_legend_and_can_be_saved(visit, app):
    page = visit(f"{app}/embeddings?axes=3-D", width=390, height=844, touch=True)
    plot = page.locator(".st-key-words_map [data-headscope-full]")
    plot.locator("canvas").wait_for()
    legend, buttons = (plot.locator(name).bounding_box() for name in (".legend", ".modebar"))
    assert buttons["width"] > 0
    assert legend["y"] + legend["height"] <= buttons["y"]
    root = ET.fromstring(saved_file(page, "words_map", "SVG")[1])
    images = [pair for e in root.iter(f"{SVG}image") for pair in e.attrib.items()]
    assert [value for _, value in images if value.startswith("data:image/png") and len(value) > 5000]
    head, *_ = rows(saved_file(page, "words_map", "CSV")[1])
    assert head == ["series", "x", "y", "z", "label"]


# Our own pictures


def written(root) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text") if "".join(element.itertext())]


def test_the_overview_is_saved_with_its_measures_and_order(visit, app, settled):
    text = f"one two {NASTY}"
    sizes = {"h": 4, "d_model": 32, "layers": 3}
    page = visit(link(app, text=text, **sizes))
    name, content = saved_file(page, "overview", "CSV")
    assert name.startswith("headscope-overview-one-two-img-src-x")
    table = overview(mha.trace(text, **sizes)).table
    head, *body = rows(content)
    assert head == ["Layer", "Head", "role", *table.columns]
    assert [(int(line[0]) - 1, int(line[1]) - 1) for line in body] == list(table.index)
    np.testing.assert_allclose(np.float32([line[3:] for line in body]), table.to_numpy(), rtol=1e-5)

    page.emulate_media(color_scheme="dark")
    settled(page)
    root = ET.fromstring(saved_file(page, "overview", "SVG")[1])
    title, *axes = written(root)[:8]
    assert (title, axes) == ("All layers and heads", ["1", "2", "3", "1", "2", "3", "4"])  # layers, heads
    for words in (
        f"“{text}”",
        "random weights, h 4, d_model 32, seed 0, mask: full, positions: sinusoidal · Headscope",
    ):
        assert words in " ".join(written(root))
    assert root.find(f"{SVG}rect").get("fill") == PAPER["dark"]
    [picture] = [image.get("href") for image in root.iter(f"{SVG}image")]
    box = page.locator(".overview canvas.all").bounding_box()
    assert pixels(picture).shape[:2] == (2 * round(box["height"]), 2 * round(box["width"]))
    assert len(np.unique(pixels(picture).reshape(-1, 4), axis=0)) > 50
    content = saved_file(page, "overview", "PNG")[1]
    assert struct.unpack(">II", content[16:24]) == (2 * int(root.get("width")), 2 * int(root.get("height")))

    page.locator(".overview .orders button", has_text="entropy").click()
    ranked = sorted(body, key=lambda line: float(line[head.index("entropy")]))
    found = written(ET.fromstring(saved_file(page, "overview", "SVG")[1]))[1:13]
    assert found == [f"{layer}.{number}" for layer, number, *_ in ranked]
