"""Lessons in a browser: one by mouse, one by keys on a phone, and nothing of the truth before the lock."""

import re

import pytest
from playwright.sync_api import expect

TIRED = "text=The animal didn't cross the street because it was too tired.&twin=&layer=2&head=1&token=it"
WIDE = TIRED.replace("tired", "wide")
MINE = f"""
minutes = 5
title = "Mine"
paper = "Draw it again."
[[screens]]
kind = "point"
scene = "{TIRED}"
notice = "It is *tired*."
[[screens]]
kind = "draw"
scene = "{TIRED}"
[[screens]]
kind = "order"
scene = "{TIRED}&heads=4,1&key_token=animal"
[[screens]]
kind = "choose"
scene = "{TIRED}"
other = "{WIDE}"
[[screens]]
kind = "estimate"
scene = "{TIRED}&key_token=animal"
[[screens]]
kind = "flip"
scene = "{TIRED}"
[[screens]]
kind = "find"
scene = "{TIRED}"
[[screens]]
kind = "why"
scene = "{TIRED}"
"""
# The page with what components draw, as a source.
SOURCE = """() => {
    const inside = (root) => [root.innerHTML, ...[...root.querySelectorAll('*')]
        .flatMap((e) => (e.shadowRoot ? inside(e.shadowRoot) : []))];
    return inside(document.documentElement).join('');
}"""
BLOB = b"mha0"  # with which every payload of numbers begins


@pytest.fixture
def opened(visit, app, settled):
    """`opened()`: a lesson of ours, opened from its file."""

    def open_(**how):
        page = visit(f"{app}/lessons", **how)
        page.evaluate("localStorage.clear()")
        upload = page.locator("input[type=file]")
        upload.set_input_files({"name": "mine.toml", "mimeType": "text/plain", "buffer": MINE.encode()})
        expect(page.locator(".lesson .place")).to_have_text("1 of 8")
        settled(page)
        return page

    return open_


@pytest.fixture
def lesson(visit, app, settled):
    """`lesson("heads&screen=5")`: a lesson in a browser that knows no answer of it."""

    def open_(link: str, **how):
        page = visit(f"{app}/lessons", **how)
        page.evaluate("localStorage.clear()")
        page.goto(f"{app}/lessons?lesson={link}")
        expect(page.locator(".act")).to_be_visible()
        settled(page)
        return page

    return open_


def word(page, name: str, row: int = 0):
    return page.locator(".words").nth(row).get_by_role("radio", name=name, exact=True)


def bar(page, name: str):
    return page.get_by_role("slider", name=name, exact=True)


def lock(page) -> None:
    page.get_by_role("button", name="Lock in my answer").click()


def comes(page, mark: str, *told: str) -> None:
    """What the answer came to."""
    expect(page.locator(".mark")).to_contain_text(mark)
    for words in told:
        expect(page.locator(".told")).to_contain_text(words)


def next_screen(page, number: int) -> None:
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator(".lesson .place")).to_have_text(f"{number} of 8")
    expect(page.locator(".mark")).to_have_count(0)


def test_a_whole_lesson_by_mouse(opened, settled):
    page = opened()
    expect(page.get_by_role("button", name="Lock in my answer")).to_be_disabled()
    word(page, "street").click()
    lock(page)
    comes(
        page,
        "The model does something else",
        "You pointed at street.",
        "the model says street",
        "gives animal 0.99",
    )
    expect(page.locator(".notice")).to_have_text("It is tired.")
    expect(page.locator(".st-key-lesson_view .answers")).to_contain_text(["street", "animal"])

    next_screen(page, 2)
    track = bar(page, "animal").bounding_box()
    page.mouse.move(track["x"] + track["width"] / 2, track["y"] + track["height"] - 5)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] / 2, track["y"] + 2, steps=4)
    page.mouse.up()
    expect(bar(page, "animal")).to_have_attribute("aria-valuetext", re.compile("animal (9[5-9]|100) %"))
    lock(page)
    comes(page, "Right", "With your row", "still says animal")

    next_screen(page, 3)
    heads = page.locator("ol.heads li .name")
    expect(heads).to_have_text(["head 4", "head 1"])
    page.get_by_role("button", name="Move head 1 up").click()
    expect(heads).to_have_text(["head 1", "head 4"])
    lock(page)
    comes(page, "Right", "You put head 1 first.", "The order is head 1 (0.99")

    next_screen(page, 4)
    pictures = page.locator(".picture")
    assert "tired" not in pictures.first.inner_text()
    pictures.first.click()
    lock(page)
    expect(page.locator(".told")).to_contain_text("You chose picture 1.")

    next_screen(page, 5)
    line = page.get_by_role("slider", name="Your estimate, from 0 to 1").bounding_box()
    page.mouse.click(line["x"] + 0.95 * line["width"], line["y"] + line["height"] / 2)
    lock(page)
    comes(page, "Right", "You said 0.9", "Its own weight on animal is 0.99")

    next_screen(page, 6)
    word(page, "animal", row=1).click()
    expect(page.locator(".built")).to_have_text("“it” cannot see “animal”")
    lock(page)
    comes(page, "Right", "You blocked it from seeing animal.", "Without the change")

    next_screen(page, 7)
    field = page.get_by_role("textbox", name="Your sentence")
    expect(field).to_have_value("The animal didn't cross the street because it was too tired.")
    field.fill("The animal didn't cross the street because it was too wide.")
    field.press("Enter")
    comes(page, "Right", "In your sentence the model says street")

    next_screen(page, 8)
    page.get_by_role("textbox", name="Your reason").fill("Only an animal is tired.")
    lock(page)
    expect(page.locator(".told")).to_contain_text("it is not scored")
    page.get_by_role("button", name="Finish").click()
    expect(page.get_by_role("heading", name="“Mine” is done")).to_be_visible()
    expect(page.locator(".scenes .answered")).to_have_count(8)

    page.get_by_role("button", name="All lessons").click()
    mine = page.locator(".card", has_text="Mine")
    expect(mine).to_contain_text("All answered")
    mine.locator(".start").click()
    comes(page, "The model does something else", "You pointed at street.")


def test_a_lesson_by_keys_on_a_phone_loses_nothing(opened, settled):
    page = opened(width=390, height=844, touch=True)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    word(page, "[CLS]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(word(page, "animal")).to_be_checked()
    expect(page.locator(".live")).to_have_text("Chosen: “animal”")
    page.keyboard.press("Enter")
    comes(page, "Right")
    settled(page)
    page.locator("h1").click()
    page.keyboard.press("n")
    expect(page.locator(".lesson .place")).to_have_text("2 of 8")

    bar(page, "[CLS]").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    drawn = bar(page, "animal").get_attribute("aria-valuetext")
    assert drawn == "animal 23 %"
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    page.go_back()
    comes(page, "Right")
    page.go_forward()
    expect(bar(page, "animal")).to_have_attribute("aria-valuetext", drawn)  # it was not locked
    bar(page, "animal").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    comes(page, "Right", "You gave animal 100%")
    page.get_by_role("button", name="Try again").click()
    expect(bar(page, "animal")).to_have_attribute("aria-valuetext", "animal 100 %")


def test_a_browser_keeps_its_own_answers_beside_those_of_somebody_elses_link(lesson, app, settled):
    page = lesson("heads")
    word(page, "animal").click()
    lock(page)
    comes(page, "Right")
    settled(page)
    page.goto(f"{app}/lessons?lesson=heads&answers=1-7")
    comes(page, "The model does something else", "You pointed at street.")
    settled(page)
    page.goto(f"{app}/lessons?lesson=heads")
    comes(page, "Right", "You pointed at animal.")


# Not `choose`: it shows the weights of two pictures, of which nothing says which one is asked for.
@pytest.mark.parametrize("number", [1, 4, 5])
def test_nothing_of_the_truth_is_here_before_the_lock(lesson, settled, number):
    page = lesson(f"heads&screen={number}", heard=(heard := []))
    notice = "A head gives each word a row", "Rows look, columns are looked at", "look at the same noun"

    def known() -> list[bool]:
        source = page.evaluate(SOURCE)
        everything = (
            b"".join(one if isinstance(one, bytes) else one.encode() for one in heard) + source.encode()
        )
        weight = re.search(r">[^<]*\b(0\.9|1\.0)\d", source)
        return [BLOB in everything, any(one.encode() in everything for one in notice), weight is not None]

    assert known() == [False, False, False]
    if number == 5:
        bar(page, "animal").press("End")
    elif number == 4:
        page.locator("td[data-row='4'][data-column='2']").click()
    else:
        word(page, "animal").click()
    lock(page)
    comes(page, "Right")
    settled(page)
    assert known() == [True, True, True]


def test_who_is_here_for_the_first_time_is_invited_once(visit, app, settled):
    page = visit(app)
    page.context.clear_cookies()
    page.goto(app)
    start = page.get_by_role("link", name="New here? One minute")
    expect(start).to_be_visible()
    top = page.locator(".view").bounding_box()["y"]
    page.get_by_role("button", name="Do not show this again").click()
    expect(start).to_have_count(0)
    page.goto(app)
    settled(page)
    expect(start).to_have_count(0)
    assert page.locator(".view").bounding_box()["y"] == pytest.approx(top, abs=1)  # nothing moved for it
    page.context.clear_cookies()
    page.goto(f"{app}/?text=How are you?")
    settled(page)
    expect(start).to_have_count(0)
    page.goto(app)
    start.click()
    expect(page.locator(".lesson .place")).to_have_text("1 of 7")


# Letters smaller than 28 pixels on the page, but those for a screen reader.
SMALL = """() => {
    const small = (root) => [...root.querySelectorAll('*')].flatMap((e) => [
        ...(e.shadowRoot ? small(e.shadowRoot) : []),
        ...([...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim())
            && e.checkVisibility() && !e.closest('style, script, .live')
            && e.textContent !== 'Skip to main content'
            && parseFloat(getComputedStyle(e).fontSize) < 28 ? [e.outerHTML.slice(0, 80)] : []),
    ]);
    return small(document);
}"""


def test_a_class_can_read_a_projected_screen_and_arrow_keys_go_on(lesson, settled):
    page = lesson("heads&screen=5&projector=1", width=1280, height=720)
    assert page.evaluate(SMALL) == []
    expect(page.get_by_role("button", name="Lock in my answer")).to_be_in_viewport()
    expect(page.get_by_test_id("stHeader")).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".lesson .place")).to_have_text("4 of 7")
    settled(page)
    assert page.evaluate(SMALL) == []
    page.locator("td[data-row='4'][data-column='2']").click()
    page.keyboard.press("Enter")
    comes(page, "Right")
    settled(page)
    assert page.evaluate(SMALL) == []
    assert "projector=1" in page.url
    page.get_by_role("button", name="Leave projector").click()
    expect(page.get_by_test_id("stHeader")).to_be_visible()
