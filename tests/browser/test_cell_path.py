"""The path of one cell on Steps: lit by keys, forwards and backwards, with the numbers of the trace."""

import re
from urllib.parse import urlencode

from playwright.sync_api import expect

import mha_core as mha
from tests.browser.conftest import click_cell, link_of

SETTINGS = {"h": 4, "n_kv_heads": 2, "d_model": 24, "mask": "causal"}
TEXT = "The old cat saw the new cat"
HEAD, QUERY, KEY, HIDDEN = 2, 3, 1, 5
LINK = {"source": "random", "text": TEXT, "twin": "", "layer": 1, "head": HEAD + 1, "token": QUERY + 1}
LINK |= {"operation": "scores", "key_token": KEY + 1, **SETTINGS}
STAGES = ["vectors", "products", "scale", "mask", "powers", "shares", "mixture"]

# The texts, the colours and the lengths of the lines of all that is drawn.
LOOK = """svg => [...svg.querySelectorAll("*")].map((one) => {
    const { fill, strokeDasharray, display } = getComputedStyle(one);
    return [one.textContent, fill, strokeDasharray, display].join(" ");
})"""


def test_the_path_of_a_cell_is_lit_by_keys_and_goes_back_as_it_came(visit, app, settled):
    layer = mha.trace(TEXT, **SETTINGS).layers[0]
    words = mha.words(TEXT).labels
    page = visit(f"{app}/steps?{urlencode(LINK)}", sent=(sent := []))
    path, slider = page.locator(".page-path"), page.get_by_role("slider", name="Path to this number")
    drawing, sentence = path.locator("svg"), path.locator(".sentence")
    drawing.wait_for()
    before = len(sent)

    def at(stage: str, said: str) -> None:
        assert float(slider.input_value()) == STAGES.index(stage) + 1
        expect(sentence).to_have_text(said)
        expect(slider).to_have_attribute("aria-valuetext", said)

    def numbers() -> list[str]:
        return [text for text in drawing.locator(".number, .result").all_text_contents() if text]

    # On the step "Raw scores" the path is lit up to the score; what lies ahead has no numbers.
    score = layer.scores(HEAD)[QUERY, KEY]
    scaled, weight = score / 6**0.5, layer.weights(HEAD)[QUERY, KEY]
    at("products", f"q · k = {written(score)}: 6 products added up.")
    assert numbers() == [written(score)]
    for stage, said in (
        ("scale", f"Divided by √6: {written(score)} / 2.449 = {written(scaled)}."),
        ("mask", f"The mask lets “saw” look at “old”: the score stays {written(scaled)}."),
    ):
        slider.press("ArrowRight")
        at(stage, said)
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    expect(sentence).to_have_text(re.compile(rf"= {weight:.4f}: the weight of “old”\.$"))
    lit = drawing.evaluate(LOOK)
    slider.press("End")
    at("mixture", "Each value times its weight, all added up: the output of head 3 for “saw”.")
    drawing.locator("rect.cell").nth(-1).hover()
    output = written(layer.output(HEAD)[QUERY, 5])
    expect(sentence).to_have_text(f"head₃ of saw, dimension 6: {output}.")
    assert drawing.evaluate(LOOK) != lit
    slider.press("ArrowLeft")
    assert drawing.evaluate(LOOK) == lit

    # It plays on request alone, and stage by stage for those who want nothing to move.
    page.emulate_media(reduced_motion="reduce")
    slider.press("Home")
    assert slider.input_value() == "0"
    path.get_by_role("button", name="Play").click()
    path.get_by_role("button", name="Pause").click()
    assert float(slider.input_value()).is_integer()
    assert float(slider.input_value()) > 0

    # The path of a hidden cell ends at the mask.
    slider.press("End")
    hidden = path.get_by_role("radio", name=words[HIDDEN], exact=True)
    hidden.click()
    at("mask", "The mask hides “new” from “saw”: score −∞, weight 0. The path ends here.")
    assert numbers()[-1] == "−∞"
    hidden.focus()
    page.keyboard.press("ArrowUp")
    assert link_of(page)["key_token"] == words[HIDDEN - 1]
    assert len(sent) == before

    # A step of the page lights it up to there, and a click on a cell of its matrices is another path.
    page.get_by_role("button", name="Next step").click()
    click_cell(page.locator(".heatmaps figure canvas").nth(1), 5, 0)
    settled(page)
    score = layer.scores(HEAD)[5, 0]
    at("scale", f"Divided by √6: {written(score)} / 2.449 = {written(score / 6**0.5)}.")
    assert link_of(page)["key_token"] == "The"
    expect(page.locator(".heatmaps .cell-path:visible")).to_have_count(0)
    for _ in range(5):
        page.get_by_role("button", name="Next step").click()
    expect(path).to_be_hidden()  # the output of the layer is of all heads


def written(value: float) -> str:
    """Four digits, as a browser writes them."""
    return f"{value:#.4g}".replace("-", "−")
