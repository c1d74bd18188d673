"""The focus on pages that compute on the server: a choice reruns only that part of the page."""

import numpy as np
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.conftest import link_of, matrix_of


def kinds(heard: list) -> set[str]:
    return {ForwardMsg.FromString(bytes(one)).WhichOneof("type") for one in heard}


def words_and_chosen(page) -> tuple:
    """The words to choose from, and the one that is chosen."""
    row = page.locator(".chooser [data-field=token]")
    return row.get_by_role("radio"), row.locator("[aria-checked=true] bdi")


def test_a_choice_runs_a_part_of_the_page(visit, app, settled):
    page = visit(f"{app}/steps?steps_view=layers&architecture=standard", heard=(heard := []))
    words, chosen = words_and_chosen(page)
    expect(chosen).to_have_text("it")
    before = len(heard)
    words.filter(has_text="animal").click()
    settled(page)
    expect(chosen).to_have_text("animal")
    assert link_of(page)["token"] == "animal"
    assert "navigation" not in kinds(heard[before:])  # the frame did not run


def test_a_choice_is_in_the_link_the_history_and_other_pages(visit, app, settled):
    page = visit(f"{app}/token", heard=(heard := []))
    words, chosen = words_and_chosen(page)
    before = len(heard)
    for word in ("animal", "street"):
        words.filter(has_text=word).click()
        settled(page)
    assert "navigation" not in kinds(heard[before:])
    page.go_back()
    settled(page)
    assert link_of(page)["token"] == "animal"
    expect(chosen).to_have_text("animal")
    page.reload()
    settled(page)
    expect(chosen).to_have_text("animal")
    words.filter(has_text="street").click()
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.locator(".view .strip .token[aria-selected=true] bdi").first).to_have_text("street")
    assert link_of(page)["token"] == "street"


def test_a_page_that_returns_after_many_choices_is_not_sent_again(visit, app, settled):
    page = visit(app, heard=(heard := []))
    whole = sum(map(len, heard))
    page.get_by_role("link", name="Token", exact=True).first.click()
    words, chosen = words_and_chosen(page)
    for word in ("animal", "street", "it"):
        words.filter(has_text=word).click()
        expect(chosen).to_have_text(word)
        settled(page)
    page.get_by_role("link", name="Cost", exact=True).first.click()
    settled(page)
    before = len(heard)
    page.get_by_role("link", name="Heads", exact=True).first.click()
    settled(page)
    assert sum(map(len, heard[before:])) < whole / 2


def test_a_choice_is_an_entry_of_the_history_however_late_the_server_answers(visit, app):
    page = visit(f"{app}/token")
    chosen = page.locator(".chooser [data-field=token] [aria-checked=true] bdi")
    page.evaluate("Object.getPrototypeOf(WebSocket).prototype.send = () => {}")  # it hears of nothing
    for word in ("animal", "street"):
        page.locator(".chooser [data-field=token]").get_by_role("radio").filter(has_text=word).click()
        page.wait_for_url(f"**token={word}")
    page.go_back()
    page.wait_for_url("**token=animal")
    expect(chosen).to_have_text("animal")


def test_on_steps_every_picture_follows_a_word_without_the_server(visit, app):
    page = visit(f"{app}/steps?operation=softmax&head=2", sent=(sent := []))
    weights = np.nan_to_num(matrix_of(page, "weights A₂"))
    words = page.locator(".chooser [data-field=token]").get_by_role("radio")
    labels = words.locator("bdi").all_inner_texts()
    # Framed, and pointed at.
    framed = "root => [...new Set(root.heatmaps.gallery.pictures['weights A₂'].map.marks.rows)]"
    before = len(sent)
    for word in ("animal", "street"):
        words.filter(has_text=word).click()
        at = labels.index(word)
        assert page.locator(".heatmaps").evaluate(framed) == [at]
        shown = words.locator("span").all_inner_texts()
        assert shown == ["·" if weight < 0.005 else f"{weight:.2f}" for weight in weights[at]]
        assert link_of(page)["token"] == word
    page.keyboard.press("ArrowLeft")
    assert link_of(page)["token"] == "the"
    expect(words.locator(":focus").or_(words.and_(page.locator(":focus")))).to_contain_text("the")
    assert len(sent) == before
