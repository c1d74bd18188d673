"""The page Atlas in a browser: from a head on the map to its passport, a text of it, and back from Heads."""

from urllib.parse import urlencode

from playwright.sync_api import expect

import mha_core as mha
from mha_core import resources
from mha_core.atlases import library
from tests.browser.conftest import link_of

TEXT = "The dog chased the cat because it was angry."
# Where a head of the layer with that name is drawn, in pixels of the window.
PLACE = """([layer, head]) => {
    const figure = document.querySelector('[class*=st-key-atlas_map] .js-plotly-plot');
    const { left, top } = figure.getBoundingClientRect(), { _size: size, xaxis, yaxis } = figure._fullLayout;
    const { x, y } = figure.calcdata.find(([{ trace }]) => trace.name === layer)[head];
    return [left + size.l + xaxis.c2p(x), top + size.t + yaxis.c2p(y)];
}"""


def test_a_head_on_the_map_leads_to_its_passport_and_a_text_of_it_to_heads_and_back(visit, app, eye, settled):
    page = visit(f"{app}/?{urlencode({'text': TEXT, 'twin': ''})}")
    page.get_by_role("link", name="What does this head do in 1,000 other").click()
    claim = page.locator(".st-key-atlas_claim")
    expect(claim).to_contain_text("Pronoun → noun in 100%")
    expect(page.get_by_text("In your sentence, “The dog chased")).to_be_visible()
    settled(page)
    page.mouse.click(*page.evaluate(PLACE, ["layer 2", 3]))
    expect(claim).to_contain_text("96% of the weight")
    settled(page)
    page.get_by_role("combobox", name="Decile").click()
    page.get_by_role("option", name="3", exact=True).click()
    atlas = mha.Atlas(resources.path(*library.FOLDER) / "glass-box-en-h4-d64")
    example = atlas.top("previous token", layer=1, head=3, n=1, decile=3).iloc[0]
    expect(page.locator(".st-key-shown_atlas_text")).to_contain_text(example["string"][:-1])
    settled(page)
    was = link_of(page)
    assert (was["text"], was["head"], was["atlas_decile"]) == (TEXT, "4", "3")
    page.get_by_role("link", name="Heads", exact=True).last.click()
    eye(page)
    settled(page)
    now = link_of(page)
    tokens = mha.trace(example["string"], source="mini").tokens
    assert (now["text"], now["head"]) == (example["string"], "4")
    assert tokens.index(now["token"]) == example["query"]
    page.go_back()
    expect(claim).to_contain_text("96% of the weight")
    settled(page)
    assert link_of(page) == was
