"""A class in browsers: students join, answer and see what came of it, also where servers end."""

import contextlib
import os
import signal
from types import SimpleNamespace
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from mha_core.lessons.lesson import shipped
from mha_core.room.rooms import Pace

KEPT, REVEALED = ".class", ".reveal .told p"


@pytest.fixture
def room(school):
    """A room with the first lesson, and its teacher, who acts on the database of the server."""
    key = school.rooms.open(shipped()["heads"])
    return SimpleNamespace(
        server=school.server,
        file=school.file,
        code=key.code,
        link=f"/lessons?room={school.rooms.invitation(key.code)}",
        desk=school.rooms.desk(key.code, key.secret),
    )


@pytest.fixture(scope="module")
def devices(browser):
    """`with devices(viewport=…) as page`: a tab in a browser of its own, which remembers nothing.

    One that was given back is used again, since it has compiled the scripts of the app.
    """
    free = {}

    @contextlib.contextmanager
    def lend(**how):
        settings = {"locale": "en-US", "viewport": {"width": 1100, "height": 900}} | how
        ready = free.setdefault(str(settings), [])
        page = ready.pop() if ready else browser.new_context(**settings).new_page()
        yield page
        first, *others = page.context.pages
        for other in others:
            other.close()
        first.evaluate("localStorage.clear(), sessionStorage.clear()")
        first.goto(urljoin(first.url, "/_stcore/health"))
        first.context.clear_cookies()
        ready.append(first)

    yield lend
    for pages in free.values():
        for page in pages:
            page.context.close()


@pytest.fixture
def come(devices, room):
    """`come("Ada")`: a browser of its own, whose student has joined; None does not join."""
    failures = []

    def failed(error) -> None:
        failures.append(str(error))

    with contextlib.ExitStack() as left:

        def open_(name: str | None = "", link: str = "", **how):
            page = left.enter_context(devices(**how))
            page.on("pageerror", failed)
            left.callback(page.remove_listener, "pageerror", failed)
            page.goto(room.server.address + (link or room.link))
            if name is not None:
                page.get_by_label("Name or number").fill(name)
                page.get_by_role("button", name="Join", exact=True).click()
                expect(page.locator(".lesson .act")).to_be_visible()
            return page

        yield open_
    assert failures == []


def choose(page, at: int) -> None:
    page.locator(".words [role=radio]").nth(at - 1).click()


def lock(page) -> None:
    page.get_by_role("button", name="Lock in my answer").click()


def answer(page, at: int) -> None:
    choose(page, at)
    lock(page)
    expect(page.locator(KEPT)).to_have_text("Kept. Your teacher reveals what came of it.")


def written(desk) -> list[tuple[int, int, int, str]]:
    return [(one.student, one.screen, one.vote, one.answer) for one in desk.answers()]


def test_two_students_answer_and_see_what_came_of_it_once_it_is_revealed(come, room):
    desk = room.desk
    ada = come(None, link="/lessons")
    ada.get_by_label("Join your class").fill(room.code.lower())
    ada.keyboard.press("Enter")
    ada.get_by_label("Name or number").fill("Ada")
    ada.keyboard.press("Enter")
    bo = come("Bo", viewport={"width": 390, "height": 844}, has_touch=True)
    answer(ada, 3)
    choose(bo, 4)
    bo.keyboard.press("Enter")  # on the chosen word
    expect(bo.locator(KEPT)).to_contain_text("Kept.")
    assert written(desk) == [(1, 1, 1, "3"), (2, 1, 1, "4")]
    for page in (ada, bo):
        expect(page.locator(REVEALED)).to_have_count(0)
    desk.vote_again(1)
    expect(bo.locator(KEPT)).to_contain_text("Second vote")
    expect(bo.locator(".words [aria-checked=true]")).to_contain_text("couldn't")  # the first answer
    choose(bo, 3)
    lock(bo)
    expect(bo.locator(KEPT)).to_contain_text("Kept.")
    desk.reveal(1)
    for page, mark in ((ada, "Right"), (bo, "Right")):
        expect(page.locator(REVEALED).first).to_be_visible()
        expect(page.locator(".mark")).to_contain_text(mark)
    assert written(desk) == [(1, 1, 1, "3"), (2, 1, 1, "4"), (2, 1, 2, "3")]


def test_an_answer_that_is_locked_while_the_server_is_away_arrives_once_also_from_a_page_that_is_left(
    come, room
):
    ada, bo = come("Ada"), come("Bo")
    for page in (ada, bo):
        choose(page, 3)
    bo.context.set_offline(True)  # closes no connection: what is sent is lost
    room.server.process.kill()
    room.server.process.wait()
    for page in (ada, bo):
        lock(page)
    expect(ada.locator(".saving")).to_contain_text("waits in this browser")
    ada.locator(".words [role=radio]").nth(3).click(force=True)  # it is locked
    expect(ada.locator(".words [aria-checked=true]")).to_contain_text("truck")
    room.server.start()
    expect(ada.locator(KEPT)).to_contain_text("Kept.")
    expect(ada.locator(".saving")).to_have_text("")
    bo.context.set_offline(False)
    bo.close()
    again = bo.context.new_page()
    again.goto(room.server.address + room.link)
    expect(again.locator(KEPT)).to_contain_text("Kept.")
    assert written(room.desk) == [(1, 1, 1, "3"), (2, 1, 1, "3")]
    assert [student.name for student in room.desk.students()] == ["Ada", "Bo"]


def test_a_student_comes_back_in_another_tab_and_on_another_device(come, room):
    page = come("Ada")
    tab = page.context.new_page()
    tab.goto(room.server.address + room.link)
    expect(tab.locator(".seat summary")).to_have_text("You are Ada")
    answer(page, 3)
    expect(tab.locator(KEPT)).to_contain_text("Kept.")
    page.locator(".seat summary").click()
    field = page.get_by_label("Continue on another device")
    link = field.input_value()
    expect(page.get_by_role("img", name="QR code of this link")).to_be_visible()
    page.get_by_role("button", name="Copy the link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    page.context.grant_permissions(["clipboard-read"])
    assert page.evaluate("navigator.clipboard.readText()") == link
    device = come(None, link=link.removeprefix(room.server.address))
    expect(device.locator(KEPT)).to_contain_text("Kept.")
    assert "#" not in device.url
    device.reload()
    expect(device.locator(".seat summary")).to_have_text("You are Ada")
    assert len(room.desk.students()) == 1


def test_a_class_goes_where_its_teacher_is_and_a_room_that_is_deleted_lets_it_go(come, room):
    page = come("Ada")
    answer(page, 3)
    expect(page.locator(".step").last).to_be_visible()
    room.desk.set_pace(Pace(2, paused=True))
    expect(page.locator(KEPT)).to_contain_text("paused")
    expect(page.locator(".place")).to_have_text("2 of 7")
    expect(page.locator(".step").last).not_to_be_visible()
    choose(page, 4)
    expect(page.get_by_role("button", name="Lock in my answer")).to_be_disabled()
    room.desk.set_pace(Pace())
    expect(page.get_by_role("button", name="Lock in my answer")).to_be_enabled()
    page.get_by_role("button", name="I need help").click()
    expect(page.get_by_role("button", name="I need help", pressed=True)).to_be_visible()
    os.kill(room.server.process.pid, signal.SIGSTOP)
    lock(page)
    room.desk.delete()  # before that answer comes
    os.kill(room.server.process.pid, signal.SIGCONT)
    expect(page.locator(".seat .problem")).to_contain_text("This room is closed")
    page.get_by_role("link", name="Go on alone with your answers").click()
    expect(page.locator(REVEALED).first).to_contain_text("You pointed at truck.")


def test_a_frame_of_another_site_without_cookies_is_a_seat_too(strict, host, room):
    address = f"{room.server.address}{room.link}&amp;embed=true"
    strict.goto(host(f'<iframe src="{address}" width="900" height="900"></iframe>'))
    frame = strict.frames[1]
    frame.get_by_label("Name or number").fill("Ada")
    frame.get_by_role("button", name="Join", exact=True).click()
    answer(frame, 3)
    room.desk.reveal(1)
    expect(frame.locator(REVEALED).first).to_be_visible()
    frame.locator(".seat summary").click()  # where nothing is kept, the link is the way back
    expect(frame.locator(".seat")).to_contain_text("Save the link below")
    link = frame.get_by_label("Continue on another device").input_value()
    strict.goto(
        host(f'<iframe src="{link.replace("#", "&amp;embed=true#")}" width="900" height="900"></iframe>')
    )
    expect(strict.frames[1].locator(".seat summary")).to_have_text("You are Ada")
