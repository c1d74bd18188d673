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
    for name in ("Embeddings", "Train", "Steps", "Heads", "Steps"):
        page.get_by_role("link", name=name, exact=True).click()
        settled(page)
        if name == "Train":
            page.get_by_role("radio", name="How many heads?").click()
            settled(page)
        figures = page.locator(".js-plotly-plot, [data-headscope-saveable]")
        if name in ("Heads", "Steps"):  # their pictures are no figures, and closed folds have none
            expect(page.locator(".headscope-save")).to_have_count(0)
            continue
        page.locator(".js-plotly-plot").first.wait_for(state="attached")
        expect(page.locator(".headscope-save")).to_have_count(figures.count())
        menus = figures.evaluate_all(
            "all => all.map((e) => e.parentElement.querySelectorAll(':scope > .headscope-save').length)"
        )
        assert set(menus) == {1}
        assert page.locator(".headscope-save").count() == len(menus)


def test_a_map_of_words_is_saved_with_its_words_by_keyboard_from_a_menu_in_both_themes(visit, app, settled):
    page = visit(f"{app}/embeddings")
    menu = page.locator(".st-key-words_map .headscope-save")
    for theme, (red, green, blue) in (("dark", (21, 23, 28)), ("light", (251, 250, 246))):
        page.emulate_media(color_scheme=theme)
        settled(page)
        expect(menu.locator("> button")).to_have_css("background-color", f"rgb({red}, {green}, {blue})")
    height = "document.querySelector('[data-testid=stMain]').scrollHeight"
    before = page.evaluate(height), page.locator(".st-key-words_map").bounding_box()
    menu.locator("> button").evaluate("e => e.click()")
    assert (page.evaluate(height), page.locator(".st-key-words_map").bounding_box()) == before
    page.keyboard.press("Escape")

    opener = menu.get_by_role("button", name="Save this figure", exact=True)
    choices = menu.get_by_role("button", name="Save this figure: ")
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

    head, *body = rows(saved_file(page, "words_map", "CSV")[1])
    assert head == ["series", "x", "y", "label"]
    assert {line[3]: line for line in body}["dog"][0] == "animal"
    page.emulate_media(media="print")
    assert not page.locator(".headscope-save").first.is_visible()


# Files


def test_an_svg_has_the_figure_with_its_caption(visit, app, settled):
    page = visit(link(f"{app}/embeddings", text=NASTY, h=4, seed=3, word="<"))
    for theme, paper in PAPER.items():
        page.emulate_media(color_scheme=theme)
        settled(page)
        name, content = saved_file(page, MAP, "SVG")
        assert name.startswith("headscope-words_map-img-src-x")
        assert name.endswith(".svg")
        root = ET.fromstring(content)
        assert root.tag == f"{SVG}svg"
        title, *caption = [
            "".join(element.itertext()) for element in root.findall(f"{SVG}text")
        ]  # ours, not plotly's
        assert title == "Word vectors before attention"
        assert " ".join(caption).replace("” random", "”\nrandom").split("\n") == [
            f"“{NASTY}”",
            "random weights, h 4, d_model 64, seed 3 · Headscope",
        ]
        assert {"<", ">", "&", "amp", "مرحبا"} <= set(written(root))
        assert root.find(f"{SVG}rect").get("fill") == paper
        assert "Source Sans" in root.get("font-family")
        assert {element.tag.removeprefix(SVG) for element in root.iter()} & {
            "script",
            "img",
            "foreignObject",
        } == set()
        for element in root.iter():
            for attribute, value in element.attrib.items():
                assert not attribute.lower().startswith("on")
                if attribute.endswith("href"):
                    assert value.startswith(("data:image/png;base64,", "#"))
                assert not re.search(r"""url\((?!["']?#)""", value)
        assert page.locator("img[src='x']").count() == 0


def test_a_csv_has_harmless_cells_and_a_png_twice_the_pixels(visit, app):
    page = visit(link(f"{app}/embeddings", text='=1+1 @x hello, "you" -5 小猫'))
    name, content = saved_file(page, MAP, "CSV")
    assert name == "headscope-words_map-1-1-x-hello-you-5-小猫.csv"
    _, *body = rows(content)
    assert {"'=", "'+", "'@", "'-", "hello", "小"} <= {line[-1] for line in body}

    _, drawn = saved_file(page, MAP, "SVG")
    root = ET.fromstring(drawn)
    name, content = saved_file(page, MAP, "PNG")
    assert name.endswith(".png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (2 * int(root.get("width")), 2 * int(root.get("height")))
    plot = page.locator(f".st-key-{MAP} .js-plotly-plot").bounding_box()
    assert width > 2 * plot["width"]
    assert height > 2 * plot["height"]
    colours = len(np.unique(pixels(content).reshape(-1, 4), axis=0))
    assert colours > 50  # a picture, not a blank sheet


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
    images = [
        value for e in root.iter(f"{SVG}image") for key, value in e.attrib.items() if key.endswith("href")
    ]
    assert [value for value in images if value.startswith("data:image/png") and len(value) > 5000]
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

    canvas = page.locator(".overview canvas.all")
    for theme, paper in PAPER.items():
        page.emulate_media(color_scheme=theme)
        settled(page)
        root = ET.fromstring(saved_file(page, "overview", "SVG")[1])
        assert written(root)[0] == "All layers and heads"
        assert written(root)[1:8] == ["1", "2", "3", "1", "2", "3", "4"]  # layers, heads
        assert f"“{text}”" in " ".join(written(root))
        assert "random weights, h 4, d_model 32, seed 0 · Headscope" in " ".join(written(root))
        assert root.find(f"{SVG}rect").get("fill") == paper
        box = canvas.bounding_box()
        [picture] = [image.get("href") for image in root.iter(f"{SVG}image")]
        saved, shown = pixels(picture), pixels(canvas)
        assert saved.shape[:2] == (2 * round(box["height"]), 2 * round(box["width"]))
        saved = saved[::2, ::2]
        painted = saved[..., 3] == 255
        assert painted.mean() > 0.125
        # The outline of the chosen head is not saved, and cells end between the pixels of a screen.
        others = painted & (np.abs(saved - shown).max(-1) > 2)
        assert others.sum() < 0.12 * painted.sum()
    content = saved_file(page, "overview", "PNG")[1]
    assert struct.unpack(">II", content[16:24]) == (2 * int(root.get("width")), 2 * int(root.get("height")))

    page.locator(".overview .orders button", has_text="entropy").click()
    ranked = table["entropy"].astype(np.float32).sort_values(kind="stable").index
    found = written(ET.fromstring(saved_file(page, "overview", "SVG")[1]))[1:13]
    assert found == [f"{layer + 1}.{head + 1}" for layer, head in ranked]
