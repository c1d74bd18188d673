"""The teacher's desk in a browser: a room is opened, students answer, and the secret stays where it is."""

import re

import pytest
from playwright.sync_api import expect

from mha_core.lessons.lesson import Lesson, shipped

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

from mha_core.room.rooms import Rooms, Unknown

TIRED = "text=The animal didn't cross the street because it was too tired.&twin=&layer=2&head=1&token=it"
FILE = f"""
minutes = 5
title = "Two questions"
[[screens]]
kind = "point"
scene = "{TIRED}"
[[screens]]
kind = "cell"
scene = "{TIRED}"
[[screens]]
kind = "find"
scene = "{TIRED}"
"""


def seats(rooms: Rooms, code: str, *names: str) -> list:
    return [rooms.enter(code, rooms.join(code, name)) for name in names]


def sign(page, name: str, screen: int):
    """The sign of a student on a screen."""
    return page.locator(".class tbody tr", has_text=name).locator("td").nth(screen - 1).get_by_role("img")


def press(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_a_teacher_opens_a_room_from_a_card_reveals_votes_again_and_deletes_it(school, visit, settled):
    page = visit(f"{school.app}/lessons")
    page.locator(".card", has_text="What is a head?").get_by_role("button", name="Teach").click()
    press(page, "Open the room")
    code = page.locator(".desk .code").inner_text()
    assert re.search(rf"\?desk={code}$", page.url)
    assert school.rooms.room(code).lesson == shipped()["heads"]
    expect(page.locator(".invite .link")).to_have_attribute(
        "href", f"{school.app}/lessons?room={school.rooms.invitation(code)}"
    )
    expect(page.locator(".class")).to_have_count(0)

    ada, other = seats(school.rooms, code, "Ada", "")
    ada.keep(1, 1, "3", language="en")
    other.keep(1, 1, "7", language="en")
    other.ask_for_help(True)
    expect(sign(page, "Ada", 1)).to_have_accessible_name("right · is here now")
    expect(sign(page, "Student 2", 1)).to_have_accessible_name("another answer · is here now")
    expect(page.locator(".students")).to_have_text("2 students have joined")
    expect(page.locator(".answered")).to_have_text("2 of 2 have answered")
    expect(page.locator(".class tbody tr").first).to_contain_text("needs you")  # first in line
    counts = page.locator(".spread .word output")
    expect(counts).to_have_text(["0", "0", "1", "0", "0", "0", "1", *["0"] * 6])
    expect(page.locator(".true")).to_have_count(0)

    press(page, "Vote again")
    expect(page.locator(".spread .vote")).to_have_count(2)
    other.keep(1, 2, "3", language="en")
    expect(sign(page, "Student 2", 1)).to_have_accessible_name("right · is here now")
    press(page, "Reveal")
    expect(page.locator(".true")).to_have_text(["truck1", "truck1"])
    assert school.rooms.room(code).revealed == {1}
    press(page, "All on this screen")
    press(page, "Next screen")
    expect(page.locator(".desk .place")).to_have_text("2 of 7")
    press(page, "Pause")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_attribute("aria-pressed", "true")
    assert school.rooms.room(code).pace == (2, True)
    page.get_by_role("button", name="needs you").click()
    expect(page.get_by_role("button", name="needs you")).to_have_count(0)

    page.get_by_text("Afterwards: results, receipts, deletion").click()
    sure = page.get_by_role("checkbox", name="Delete the room")
    sure.press("Space")  # a click would miss what still moves as the fold opens
    expect(sure).to_be_checked()
    page.get_by_role("button", name="Delete it now").press("Enter")  # nor would a click always arrive then
    expect(page.get_by_text(f"Room {code} is deleted")).to_be_visible()
    with pytest.raises(Unknown):
        school.rooms.room(code)


def test_the_secret_is_in_no_request_no_log_and_no_query_and_an_old_one_opens_nothing(school, visit, settled):
    key = school.rooms.open(Lesson.read(FILE))
    asked = []
    page = visit(f"{school.app}/lessons")
    page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer')}"))
    page.goto(f"{school.app}/lessons?desk={key.code}#{key.secret}")
    expect(page.locator(".desk .code")).to_have_text(key.code)
    assert key.secret not in page.url
    page.reload()
    expect(page.locator(".desk .code")).to_have_text(key.code)
    settled(page)
    assert len(asked) > 10
    assert [one for one in asked if key.secret in one] == []

    page.get_by_role("button", name="Your link to this desk").click()
    press(page, "Make a new link")
    expect(page.get_by_text("You have a new link.")).to_be_visible()
    link = page.locator(".code-block pre").inner_text().strip()
    assert link.startswith(f"{school.app}/lessons?desk={key.code}#")
    assert key.secret not in link
    page.reload()
    expect(page.locator(".desk .code")).to_have_text(key.code)

    page.evaluate("sessionStorage.clear()")
    page.goto(f"{school.app}/_stcore/health")
    page.goto(f"{school.app}/lessons?desk={key.code}#{key.secret}")
    expect(page.get_by_role("alert").first).to_contain_text("does not open the teacher's desk")
    assert page.evaluate("sessionStorage.length") == 0
    page.goto(f"{school.app}/_stcore/health")
    page.goto(f"{school.app}/lessons?desk={key.code}")
    expect(page.get_by_role("alert").first).to_contain_text("the part after #")
    page.goto(link)  # only the part after # is another: the page is not loaded again
    expect(page.locator(".desk .code")).to_have_text(key.code)
    written = school.log.read_text(encoding="utf-8", errors="replace")
    assert "started" in written
    for secret in (key.secret, link.rpartition("#")[2]):
        assert secret not in written


def test_the_class_is_led_by_keys_and_a_phone_shows_the_whole_desk(school, visit):
    key = school.rooms.open(Lesson.read(FILE))
    (ada,) = seats(school.rooms, key.code, "<b>Ada</b>")
    ada.keep(2, 1, "3,9", language="en")
    page = visit(f"{school.app}/lessons?desk={key.code}#{key.secret}", width=390, touch=True)
    expect(sign(page, "<b>Ada</b>", 2)).to_have_accessible_name(re.compile("row and column exchanged"))
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    press(page, "Hide names and results")
    expect(sign(page, "Student 1", 2)).to_have_accessible_name("answered")
    expect(page.get_by_text("<b>Ada</b>")).to_have_count(0)

    page.set_viewport_size({"width": 1280, "height": 720})
    press(page, "Project")
    expect(page.locator(".projector h1")).to_contain_text("Which word")  # somebody has answered already
    expect(page.locator(".class")).to_have_count(0)
    page.keyboard.press("c")
    expect(page.locator(".projector .qr svg")).to_be_visible()
    page.keyboard.press("PageDown")
    expect(page.locator(".projector .place")).to_have_text("2 of 3")
    page.keyboard.press("s")
    expect(page.locator(".projector td", has_text="1")).to_be_visible()
    expect(page.locator(".true, .run")).to_have_count(0)
    page.keyboard.press("r")
    expect(page.locator(".run h2")).to_have_text(["1 of 1 ↻", "The model's own"])
    expect(page.locator(".run .told").first).to_contain_text("You pointed at the cell")
    sizes = page.locator(".go, .projector h1, .run p").evaluate_all(
        "all => all.map((element) => parseFloat(getComputedStyle(element).fontSize))"
    )
    assert min(sizes) >= 28
    assert "Ada" not in page.locator(".desk").inner_text()
    page.keyboard.press("Escape")
    expect(page.locator(".class")).to_be_visible()


def test_what_is_typed_scrolled_or_reached_by_the_keyboard_stays_while_answers_come(school, visit):
    key = school.rooms.open(Lesson.read(FILE))
    of_class = seats(school.rooms, key.code, *(f"Student {number:02}" for number in range(1, 41)))
    page = visit(f"{school.app}/lessons?desk={key.code}#{key.secret}")

    def answers(number: int) -> None:
        of_class[number - 1].keep(1, 1, "3", language="en")
        expect(sign(page, f"Student {number}", 1)).to_have_accessible_name("right · is here now")

    page.get_by_text("Afterwards: results, receipts, deletion").click()
    receipt = page.get_by_label("Check a student's receipt")
    receipt.press_sequentially("K7QM")
    table = page.locator(".table .scrolls")
    table.evaluate("box => { box.scrollTop = 300; }")
    answers(40)
    assert table.evaluate("box => box.scrollTop") == 300
    expect(receipt).to_have_value("K7QM")
    expect(receipt).to_be_focused()
    table.focus()
    answers(39)
    page.keyboard.press("End")
    expect(table).to_be_focused()


def test_a_sentence_that_a_student_found_is_run_in_another_tab_which_knows_no_secret(school, visit):
    key = school.rooms.open(Lesson.read(FILE))
    (ada,) = seats(school.rooms, key.code, "Ada")
    ada.keep(3, 1, "The <b>dog</b> didn't cross the street because it was too wide.", language="en")
    page = visit(f"{school.app}/lessons?desk={key.code}#{key.secret}")
    press(page, "Go to screen 3")
    found = page.locator(".given li")
    expect(found).to_contain_text("The <b>dog</b> didn't cross the street")
    with page.context.expect_page() as opened:
        found.get_by_role("link").first.click()
    tab = opened.value
    expect(tab.get_by_label("Sentence", exact=True).first).to_have_value(re.compile("<b>dog</b>"))
    assert tab.evaluate("[sessionStorage.length, String(window.opener)]") == [0, "null"]
    tab.close()
    expect(page.locator(".desk .code")).to_have_text(key.code)
