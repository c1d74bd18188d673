"""The settings under Advanced: they stay in force while the menu is closed."""

from playwright.sync_api import expect

from tests.browser.conftest import link_of


def test_a_setting_in_the_closed_menu_holds_and_back_undoes_it(visit, app, settled):
    page = visit(f"{app}/?source=random&twin=")
    sentence = page.get_by_role("textbox", name="Sentence", exact=True)
    seed = page.get_by_role("spinbutton", name="Seed", exact=True)
    first = sentence.input_value()

    def link() -> dict[str, str]:
        return {name: value for name, value in link_of(page).items() if name in ("seed", "text")}

    page.get_by_role("button", name="Advanced", exact=True).click()
    seed.fill("7")
    page.keyboard.press("Enter")
    settled(page)
    assert link() == {"seed": "7"}
    page.keyboard.press("Escape")
    expect(seed).to_have_count(0)
    sentence.fill("one two three")
    page.keyboard.press("Enter")
    settled(page)
    assert link() == {"seed": "7", "text": "one two three"}
    for undone in ({"seed": "7"}, {}):
        page.go_back()
        settled(page)
        assert link() == undone
        expect(sentence).to_have_value(first)
    page.get_by_role("button", name="Advanced", exact=True).click()
    expect(seed).to_have_value("0")
