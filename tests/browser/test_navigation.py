"""Going from page to page: the chosen head and token are kept, and Back returns to each page."""

from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser.conftest import link_of

LEFT, TOP = 26, 18  # room for the numbers of layers and heads in the overview


def place(page) -> tuple[str, dict]:
    """The page and the values of its link that are not empty."""
    return urlsplit(page.url).path.strip("/"), {name: value for name, value in link_of(page).items() if value}


def step(page) -> float:
    """Pixels from one small picture to the next."""
    return (page.locator(".overview canvas.all").bounding_box()["height"] - TOP) / 2


def test_a_head_chosen_on_real_model_opens_on_heads_and_back_returns(model, settled, eye):
    page = model("llama", "model", text="The street was wide.")
    away = step(page)
    page.locator(".overview canvas.all").click(position={"x": LEFT + 2.5 * away, "y": TOP + 0.5 * away})
    settled(page)
    assert eye(page).title().startswith("The six matrices of head 3, layer 1")
    where, link = place(page)
    assert (where, link["layer"], link["head"], link["text"]) == ("", "1", "3", "The street was wide.")
    page.go_back()
    settled(page)
    expect(page.get_by_role("heading", name="A real model")).to_be_visible()
    where, link = place(page)
    assert (where, link["layer"], link["head"]) == ("model", "1", "3")
    page.get_by_role("button", name="Open this head").click()  # one that is chosen already
    settled(page)
    assert eye(page).title().startswith("The six matrices of head 3, layer 1")
    page.go_back()
    settled(page)
    assert place(page)[0] == "model"  # and nothing leads away from it by itself


def test_pages_are_in_sections_at_the_top_or_in_the_menu_of_a_phone(visit, app):
    sections = {"Heads": "See", "Steps": "Understand", "Train": "Learn", "Real model": "Models"}
    before = "e => getComputedStyle(e, '::before').content"
    page = visit(f"{app}/steps", width=1366)
    top, aside = (page.get_by_test_id(name) for name in ("stTopNav", "stSidebarNavItems"))
    for links in (top, aside):
        if links is aside:
            page.set_viewport_size({"width": 390, "height": 900})
            opener = page.get_by_role("button", name="Expand sidebar")
            expect(opener).to_be_visible()
            assert opener.evaluate("e => getComputedStyle(e, '::after').content") == '"Menu"'
            opener.click()
        expect(links.get_by_role("link")).to_have_count(12)
        expect(links.get_by_role("link").last).to_be_in_viewport()
        boxes = links.locator("> :has(a)").all()
        named = {box.inner_text(): box.evaluate(before).strip('"') for box in boxes}
        assert {page: name for page, name in named.items() if name != "none"} == sections
    aside.get_by_role("link", name="Cost").click()
    expect(aside).not_to_be_in_viewport()  # the page that was chosen is not covered
    page = visit(f"{app}/steps", width=390)  # on a phone, where Streamlit closes the menu
    page.get_by_role("button", name="Expand sidebar").click()
    page.get_by_test_id("stSidebarNavItems").get_by_role("link", name="Cost").click()
    page.wait_for_url("**/cost**")
    expect(page.get_by_test_id("stSidebarNavItems")).not_to_be_in_viewport()


def test_nothing_is_lost_on_any_way_from_heads_to_another_page_and_back(visit, app, settled):
    sentence = "The dog chased the cat because it was hungry."
    page = visit(f"{app}/?h=8")
    text = page.locator(".st-key-text textarea")
    text.fill(sentence)
    text.press("Enter")
    settled(page)
    page.locator(".view .strip .token").nth(2).click()
    left = page.url
    assert link_of(page)["token"] == "dog"
    for way in (
        "Z: all heads together, through Wᴼ",
        "Turn this into a question",
        "Train",
    ):
        page.get_by_role("link", name=way).first.click()
        page.wait_for_url(lambda url: urlsplit(url).path != "/")
        settled(page)
        there = page.url
        page.go_back()
        settled(page)
        assert page.url == left, way
        expect(text).to_have_value(sentence)
    page.go_forward()
    settled(page)
    assert page.url == there
    for _ in range(2):  # on a page without a sentence
        page.reload()
        settled(page)
        expect(text).not_to_be_visible()
        assert place(page)[1]["text"] == sentence
    page.get_by_role("link", name="Heads", exact=True).first.click()
    settled(page)
    expect(text).to_have_value(sentence)
    for _ in range(2):
        page.go_back()
        settled(page)
    assert page.url == left
    expect(text).to_have_value(sentence)
    page.go_forward()
    settled(page)
    page.reload(wait_until="commit")
    page.get_by_test_id("stApp").wait_for()  # running, or on a fast server at rest again
    page.evaluate("history.back()")  # before the server has answered
    expect(page.locator(".view .strip .token[aria-selected=true] bdi").first).to_have_text("dog")
    settled(page)
    assert page.url == left


def test_back_to_a_link_with_one_sentence_shows_one(visit, app, settled):
    page = visit(f"{app}/?text=A cat slept because it was tired.")
    page.locator(".view .strip .token").nth(2).click()
    settled(page)
    page.go_back()
    settled(page)
    assert "token" not in link_of(page)
    expect(page.locator(".st-key-twin textarea")).to_have_value("")


def test_a_tap_on_a_link_beside_a_typed_sentence_takes_it_to_the_page(visit, app, settled):
    page = visit(app)
    field = page.locator(".st-key-text textarea")
    field.fill("My aunt said that she was ill.")
    link = page.get_by_role("link", name="Token", exact=True).first.element_handle()
    # On a busy page, which hears the tap before it has sent the text.
    field.evaluate(
        """(field, link) => {
            field.blur();
            for (const end = performance.now() + 200; performance.now() < end; );
            link.click();
        }""",
        link,
    )
    page.wait_for_url("**/token**")
    settled(page)
    assert link_of(page) == {"text": "My aunt said that she was ill.", "twin": "", "token": "she"}
    expect(page.get_by_role("heading", level=1)).to_contain_text("she")


def test_an_older_link_opens_and_another_view_can_be_chosen(visit, app, settled):
    page = visit(f"{app}/positions?code=rotary")
    heading = "How does attention know the order of words?"
    assert place(page)[0] == "steps"
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    opened = page.url
    page.get_by_role("radiogroup", name="Views of this page").get_by_role("radio").first.click()
    settled(page)
    expect(page.get_by_role("heading", level=1)).not_to_have_text(heading)
    assert "steps_view" not in place(page)[1]
    page.go_back()
    settled(page)
    assert page.url == opened
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_back_restores_the_controls_of_a_page(visit, app, settled):
    page = visit(f"{app}/train?train_d_model=32&train_h=2")
    left = page.url
    page.locator(".st-key-next a").first.click()
    settled(page)
    page.go_back()
    settled(page)
    assert page.url == left  # one step: nothing stands between the two pages
    for label, value in {"Heads, h": "2", "d_model": "32"}.items():
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
