"""What if in a browser: heads are switched off and cells hidden in the pictures."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import click_cell, over_cell

OTHER = "The answer at it changes: animal .* → (perhaps )?(no word here|street)"


def pictures(page, key: str):
    return page.locator(f".st-key-{key} .heatmaps")


def drag(page, canvas, start: tuple[int, int], end: tuple[int, int]) -> None:
    over_cell(canvas, *start)
    page.mouse.down()
    over_cell(canvas, *end)
    page.mouse.up()


def test_a_click_on_a_head_switches_it_off_and_on_and_changes_the_answer(visit, app, settled):
    page = visit(f"{app}/what-if", width=1440)
    heads = pictures(page, "what-if-heads")
    expect(heads.get_by_role("button", name="Hide cells")).to_be_hidden()  # it needs no pen
    expect(page.get_by_text(re.compile("The answer at it"))).to_have_count(0)
    for head in (4, 1):
        canvas = heads.locator("figure canvas")
        canvas.scroll_into_view_if_needed()
        click_cell(canvas, 1, head - 1)
        page.wait_for_url(f"**edits=off%2Clayer%3D2%2Chead%3D{head}**")
        settled(page)
        expect(heads.get_by_text("Hatched: off")).to_be_visible()
        if head == 1:  # it finds the noun
            expect(page.get_by_text(re.compile(OTHER))).to_be_visible()
            page.get_by_role("button", name="head 1 off, layer 2").click()
        else:
            over_cell(heads.locator("figure canvas"), 1, head - 1)
            expect(heads.locator(".reading")).to_have_text(re.compile("off"))
            page.mouse.down()
            page.mouse.up()
        page.wait_for_url(lambda url: "edits" not in url)
        expect(page.get_by_text(re.compile("The answer at it"))).to_have_count(0)
        settled(page)
        expect(heads.get_by_text("Hatched: off")).to_have_count(0)


def test_two_words_are_swapped_in_a_menu_that_closes(visit, app, settled):
    page = visit(f"{app}/what-if", width=1440)
    page.get_by_role("button", name="Swap two words").click()
    for field, word in (("one", "animal"), ("other", "street")):
        page.locator(f".st-key-swap_{field}").get_by_role("combobox").click()
        page.get_by_role("option", name=word).click()
        settled(page)
    page.locator(".st-key-apply_swap button").click()
    page.wait_for_url("**edits=swap%2Cfrom%3D3%2Cto%3D7**")
    expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)  # it lies on what has changed
    settled(page)
    # A row of the changed text is its word's, and that is in focus.
    click_cell(pictures(page, "what-if-weights").locator("figure canvas").nth(1), 6, 0)
    page.wait_for_url("**token=animal**")


def test_cells_are_hidden_by_dragging_and_shown_by_a_click(visit, app, settled):
    page = visit(f"{app}/what-if?head=4", width=1440)
    weights = pictures(page, "what-if-weights")
    pen = weights.get_by_role("button", name="Hide cells")
    pen.click()
    expect(pen).to_have_attribute("aria-pressed", "true")
    canvas = weights.locator("figure canvas").first
    canvas.scroll_into_view_if_needed()
    drag(page, canvas, (8, 3), (8, 2))  # backwards
    page.wait_for_url("**edits=cut%2Clayer%3D2%2Cfrom%3D9%2Cto%3D3-4**")
    expect(page.get_by_text(re.compile(OTHER))).to_be_visible()
    settled(page)
    changed = weights.locator("figure canvas").nth(1)
    over_cell(changed, 8, 3)
    expect(weights.locator(".reading")).to_contain_text("hidden by the mask")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(lambda url: "edits" not in url)
    expect(page.get_by_text(re.compile(OTHER))).to_have_count(0)
    settled(page)
    expect(weights.locator(".cell-path")).to_be_hidden()  # the pen is still in the hand

    # In one head alone, which is not asked for the noun, by the keyboard.
    page.get_by_role("radio", name="head 4", exact=True).click()
    settled(page)
    over_cell(weights.locator("figure canvas").first, 8, 2)
    weights.locator("figure canvas").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**edits=cut%2Clayer%3D2%2Chead%3D4%2Cfrom%3D9%2Cto%3D3**")
    expect(page.get_by_text(re.compile("The answer at it stays animal"))).to_be_visible()
    settled(page)
    weights.get_by_role("button", name="Hide cells").click()
    click_cell(weights.locator("figure canvas").first, 8, 2)
    expect(weights.locator(".cell-path h3")).to_be_visible()


def test_cells_are_hidden_by_touch(visit, app, settled):
    page = visit(f"{app}/what-if", width=390, height=844)
    weights = pictures(page, "what-if-weights")
    weights.get_by_role("button", name="Hide cells").click()
    canvas = weights.locator("figure canvas").first
    canvas.scroll_into_view_if_needed()
    assert canvas.evaluate("(canvas) => getComputedStyle(canvas).touchAction") == "none"
    drag(page, canvas, (8, 2), (9, 3))
    page.wait_for_url("**edits=cut%2Clayer%3D2%2Cfrom%3D9-10%2Cto%3D3-4**")
    settled(page)


def test_from_heads_a_word_is_blocked_in_one_click(visit, app, settled):
    page = visit(f"{app}/", width=1440)
    foot = page.locator(".foot")
    view = page.locator(".view")
    view.locator(".panel").first.get_by_text("[CLS]", exact=True).first.click()
    expect(foot.get_by_role("link")).to_have_count(0)  # the start of the sentence is no word
    page.go_back()
    foot.get_by_role("link", name="What if “it” could not see “animal”?").click()
    page.wait_for_url("**/what-if?edits=cut%2Cfrom%3D9%2Cto%3D3")
    expect(
        page.get_by_role("button", name="“it” blocked from “animal”: all heads, all layers")
    ).to_be_visible()
    expect(page.get_by_text(re.compile("it changes: animal .* → (perhaps )?street"))).to_be_visible()
    page.go_back()
    settled(page)
    expect(foot.get_by_role("link", name="What if “it” could not see “animal”?")).to_be_visible()
