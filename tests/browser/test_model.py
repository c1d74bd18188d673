"""Third-party models in a browser: chosen, loaded, with pieces joined to words and kinds of attention."""

from urllib.parse import urlsplit

from playwright.sync_api import expect

from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import model as huggingface


def traced(family: str, folder):
    return huggingface.follow(huggingface.load(folder(family)), Scene.text)


def test_a_piece_shows_what_it_looks_at_and_pieces_are_joined_to_words(model, folder, eye):
    view = eye(model("bert", layer=1, head=2, token=3))
    trace = traced("bert", folder)
    view.token(1).hover()
    drawn = [line for line in view.lines() if line[:2] == (1, 1)]
    assert max(drawn, key=lambda line: line[3])[2] == trace.layers[0].weights(1)[1].argmax()
    view.away()
    pieces = trace.tokens.words
    assert len(view.words()) == len(pieces)
    view.menu("Options").get_by_text("Join tokens into words").click()
    words = view.words()
    assert len(words) == len(set(pieces)) < len(pieces)
    assert view.said().startswith(f"“{words[sorted(set(pieces)).index(pieces[2])]}” looks at")


def test_the_page_about_a_model_fits_a_phone(model):
    page = model("llama", "model", width=390)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    cache = page.locator("[data-testid=stTable] table").first.bounding_box()
    assert cache["x"] + cache["width"] <= 390
    # The role, the place and the two scores of each known head are in sight; the rest is swiped.
    assert page.locator(".stDataFrame .dvn-scroller").count() > 2


def test_a_click_on_the_strip_of_layers_moves_to_that_layer_on_both_pages(model, settled, eye):
    page = model("llama", "model", layer=2, head=5)
    page.locator(".st-key-place").get_by_text("1 full").click()
    settled(page)
    assert "layer=1" in page.url.partition("?")[2].split("&")
    page.reload()
    settled(page)
    expect(page.locator(".st-key-place").get_by_role("radio", name="1 full")).to_be_checked()
    page.get_by_role("link", name="Heads", exact=True).last.click()
    page.wait_for_url(lambda url: urlsplit(url).path == "/")
    settled(page)
    assert eye(page).title().startswith("The six matrices of head 5, layer 1")
