"""The page Token in a browser: chosen by pointer and keys, whole on a phone, without plotly."""

import re

import pytest
from playwright.sync_api import expect

FIGURES = {"heads": 2, "layers": 2, "vectors": 3, "products": 3, "mixture": 1}


def test_on_a_phone_every_matrix_fits_the_screen_without_plotly(visit, app):
    page = visit(f"{app}/token", width=390, height=844)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    expect(page.get_by_role("heading", level=1, name=re.compile("“it” in layer 2, head 1"))).to_be_visible()
    for key, count in FIGURES.items():
        canvases = page.locator(f".st-key-one-{key} figure canvas")
        expect(canvases).to_have_count(count)
        box = canvases.first.bounding_box()
        assert 200 < box["width"] <= 390
        assert box["x"] >= 0
    assert page.evaluate("window.Plotly === undefined")

    # The words stay in sight below the header; what is chosen above them is scrolled away.
    page.locator(".st-key-one-products").evaluate("e => e.scrollIntoView()")
    header, words = page.locator("[data-testid=stHeader]"), page.locator(".chooser .strip")
    expect(words).to_be_in_viewport(ratio=1)
    assert words.bounding_box()["y"] == pytest.approx(header.bounding_box()["height"], abs=8)
    assert words.bounding_box()["height"] < 200
    words.get_by_role("radio").first.click()
    expect(page.get_by_role("heading", level=1, name=re.compile("“\\[CLS\\]” in layer 2"))).to_be_attached()


def test_a_bar_has_the_colour_of_its_head_and_leads_to_its_token(visit, app, settled):
    page = visit(f"{app}/token", width=1440, height=1400)
    page.get_by_text("Head 1: every weight").click()
    bars = page.locator(".st-key-one-looks-8 .bars .point path")
    bars.first.scroll_into_view_if_needed()
    assert bars.first.evaluate("(bar) => getComputedStyle(bar).fill") == "rgb(32, 81, 149)"  # head 1
    page.locator(".st-key-one-looks-8 .drag").first.wait_for(state="attached")
    box = bars.first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("heading", level=1, name=re.compile("“animal” in layer 2"))).to_be_visible()
    settled(page)
    assert "token=animal" in page.url


def test_the_clicked_part_of_a_ledger_survives_reload_and_back(visit, app, settled):
    page = visit(f"{app}/token?ledger=true&architecture=standard&layer=1", width=390, height=844)
    ledger = page.locator(".ledger")
    marked = ledger.locator("[aria-pressed=true]")
    ledger.get_by_role("button", name=re.compile("^biases of layer 2 ")).click()
    expect(ledger.get_by_text("Written by the biases of layer 2: most for")).to_be_visible()
    ledger.get_by_role("button", name=re.compile("^head 1 of layer 2 ")).focus()
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("“it” in layer 2, head 1")
    settled(page)
    page.reload()
    expect(marked).to_have_attribute("aria-label", re.compile("^head 1 of layer 2 "))
    settled(page)
    page.go_back()
    expect(heading).to_have_text("“it” in layer 1, head 1")
    expect(marked).to_have_attribute("aria-label", re.compile("^biases of layer 2 "))
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


def test_layer_head_and_word_are_chosen_above_with_pointer_and_keys(visit, app, settled):
    page = visit(f"{app}/token?layer=1", width=1440)
    head = page.get_by_role("radiogroup", name="Head")
    words = page.get_by_role("radiogroup", name=re.compile("The sentence"))
    heading = page.get_by_role("heading", level=1)
    stops = page.locator(".st-key-chooser [role=radio][tabindex='0']")
    expect(stops).to_have_count(3)  # layer, head, sentence
    expect(page.locator(".chooser .strip")).not_to_have_class(re.compile("more-"))  # all of it is in sight
    words.get_by_role("radio", name="animal").click()
    expect(heading).to_have_text("“animal” in layer 1, head 1")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(heading).to_have_text("“cross” in layer 1, head 1")
    expect(words.locator(":focus")).to_contain_text("cross")  # the keyboard stays where it is
    page.wait_for_url("**token=cross**")  # an entry of the history by itself
    page.keyboard.press("Shift+Tab")
    expect(head.locator(":focus")).to_have_text("1")
    page.keyboard.press("End")
    expect(heading).to_have_text("“cross” in layer 1, head 4")
    settled(page)
    assert {"layer=1", "head=4", "token=cross"} <= set(page.url.split("?")[1].split("&"))
    page.reload()
    expect(heading).to_have_text("“cross” in layer 1, head 4")
    page.go_back()
    expect(heading).to_have_text("“cross” in layer 1, head 1")


def test_a_sentence_that_is_scrolled_fades_where_there_is_more_of_it(visit, app, eye):
    words = "+".join(f"word{number}" for number in range(200))
    link = f"source=random&token=1&twin=&text={words}"
    for page, found in (("token", ".chooser .strip"), ("", ".view .strip .scroll")):
        strip = visit(f"{app}/{page}?{link}").locator(found)
        faded = "e => [...e.classList].filter((name) => name.startsWith('more-'))"
        expect(strip).to_have_class(re.compile("more-below"))
        assert strip.evaluate(faded) == ["more-below"], page
        assert strip.evaluate("e => getComputedStyle(e).maskImage").startswith("linear-gradient")
        strip.evaluate("e => e.scrollTo(0, e.scrollHeight / 3)")
        expect(strip).to_have_class(re.compile("more-above"))
        assert strip.evaluate(faded) == ["more-below", "more-above"], page
        strip.evaluate("e => e.scrollTo(0, e.scrollHeight)")
        expect(strip).not_to_have_class(re.compile("more-below"))
