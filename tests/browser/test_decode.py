"""The view Decode of Steps in a browser: by keys, with Back, a word of one's own and a dropped row."""

from playwright.sync_api import expect

TEXT = "The dog couldn't cross the street because it was too"
WIDTH = "document.querySelector('[data-testid=stMain]').scrollWidth"


def test_a_text_is_written_on_and_its_cache_is_touched(visit, app, settled):
    page = visit(f"{app}/steps?steps_view=decode&text={TEXT}&row=10")
    rows = page.locator(".cache-rows")
    newest, gone = rows.locator(".new th[scope]"), rows.locator(".gone th[scope]")
    expect(newest).to_have_text("wasnew")
    step = page.get_by_role("button", name="Next token")
    step.focus()
    page.keyboard.press("Enter")
    expect(newest).to_have_text("toonew")
    page.go_back()
    expect(newest).to_have_text("wasnew")
    page.go_forward()
    expect(newest).to_have_text("toonew")
    settled(page)
    page.get_by_role("combobox", name="Next word").fill("zorped")
    page.keyboard.press("Enter")
    settled(page)
    step.focus()
    page.keyboard.press("Enter")
    expect(newest).to_have_text("zorpednew")
    expect(newest.locator(".unknown")).to_have_text("zorped")
    expect(page.locator("textarea").first).to_have_value(f"{TEXT} zorped")
    page.get_by_role("button", name="Drop a row").click()
    page.locator(".st-key-decode_drop_row").get_by_role("combobox").click()
    page.get_by_role("option", name="dog").click()
    page.get_by_role("button", name="Drop it from this step on").click()
    page.wait_for_url("**edits=evict%2Cto%3D3%2Csince%3D12**")
    expect(gone).to_have_text(["dog"])
    page.get_by_text("With them").wait_for()
    page.go_back()
    expect(gone).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("radio", name="中文").click()
    page.get_by_role("heading", name="一次一个词元").wait_for()
    settled(page)
    expect(newest).to_have_text("zorped新")
    assert page.evaluate(WIDTH) <= 390
