"""A room from a student's seat: joining, answers that are kept once, the pace of the class, failures."""

import json
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import OperationalError

from mha_core.lessons.lesson import Lesson, shipped
from mha_core.room import rooms as room_module
from mha_core.room.rooms import Pace
from pages._server import rooms as server_rooms
from pages.learn._lessons import library, place
from tests.pages.test_lessons import drawn, link

PAGE = "learn/lessons.py"
HEADS = shipped()["heads"]
HOSTILE = "<img src=x> =1 $x$ **b** :red[c] 李雷"


@pytest.fixture
def desk(rooms):
    """A teacher's desk in a room with the first lesson, where each reveal is the teacher's."""
    key = rooms.open(HEADS)
    return rooms.desk(key.code, key.secret)


@pytest.fixture
def invitation(rooms, desk):
    return rooms.invitation(desk.code)


@pytest.fixture
def act(click):
    """`act(app, do="look")`: what a browser sends from its seat, or from another component."""
    return lambda app, key="room", **what: click(app, key, what, event="acted")


@pytest.fixture
def seated(opened_on, act, invitation):
    """`seated("Ada", screen=2)`: the page of a student who has joined by the invitation."""
    return lambda name="", **link: act(
        opened_on(PAGE, room=invitation, **link), do="join", asked="", name=name
    )


@pytest.fixture
def gone(rooms, monkeypatch):
    """`gone()`: from now on the database does not answer; `gone(False)`: it does again."""
    real = {name: getattr(rooms, name) for name in ("_reading", "_writing")}

    def failing():
        with room_module._answering():
            raise OperationalError("select", {}, Exception("no connection"))

    def set_gone(is_gone: bool = True) -> None:
        for name, answering in real.items():
            monkeypatch.setattr(rooms, name, failing if is_gone else answering)

    return set_gone


def lock(act, app, answer: str, screen: int = 1, vote: int = 1, language: str = "en"):
    return act(app, do="lock", screen=screen, vote=vote, answer=answer, language=language)


def written(desk) -> list[tuple[int, int, int, str]]:
    return [(one.student, one.screen, one.vote, one.answer) for one in desk.answers()]


def test_a_code_is_typed_as_one_likes_and_opens_the_room(opened_on, component, desk, invitation):
    app = opened_on(PAGE)
    app.text_input(key="room_typed").set_value(f" {desk.code[:3].lower()}-{desk.code[3:].lower()} ")
    app.button[0].click().run()
    assert link(app, "room") == invitation
    data = component(app, "room")
    assert "What is a head?" in data["heading"]
    assert f"{desk.room().expires:%Y-%m-%d}" in data["what"]


def test_who_joins_is_known_and_comes_back_by_the_token(opened_on, component, act, desk, invitation, seated):
    data = component(seated("  Ada   Lovelace "), "room")
    assert [(one.number, one.name) for one in desk.students()] == [(1, "Ada Lovelace")]
    assert data["you"] == "You are Ada Lovelace"
    app = act(opened_on(PAGE, room=desk.code), do="enter", token=data["token"])
    assert component(app, "room")["you"] == "You are Ada Lovelace"
    assert len(desk.students()) == 1
    app = act(app, do="leave")
    assert "heading" in component(app, "room")
    app = act(app, do="join", asked="", name="x" * 41)
    assert "at most 40 characters; this one has 41" in component(app, "room")["problem"]
    app = act(app, do="join", asked="", name="")
    assert component(app, "room")["you"] == "You are student 2"
    assert link(app, "room") == invitation  # which stands in the address instead of the code


def test_a_name_is_said_as_it_is_in_the_language_of_the_page(component, desk, seated):
    app = seated(HOSTILE, lang="zh")
    assert component(app, "room")["you"] == f"你是 {HOSTILE}"
    assert component(app, "lesson")["question"]["words"][1] == "卡车"
    assert desk.students()[0].name == HOSTILE


@pytest.mark.parametrize("code", ["<script>", "K7QM2X-AAAAAAAA"])
def test_a_wrong_code_is_refused_in_a_sentence(code, rooms, opened_on, component):
    app = opened_on(PAGE, room=code)
    assert "There is no room" in component(app, "room")["gone"]
    assert app.text_input(key="room_typed").value == ""


@pytest.mark.slow
def test_wrong_codes_are_few_a_minute(rooms, opened_on, component, desk, invitation, monkeypatch):
    quota = server_rooms.WRONG_CODES
    for code in (desk.code, "AAAAAA") * quota.most.visitor:  # wrong invitations do not count
        assert "There is no room" in component(opened_on(PAGE, room=f"{code}-AAAAAAAA"), "room")["gone"]
    monkeypatch.setattr(quota, "seconds", 3_600)  # on a slow machine, too
    for _ in range(quota.most.address):
        opened_on(PAGE, room="AAAAAA")
    for code in (desk.code, "BBBBBB"):  # a right one would tell that it is right
        assert "60 wrong codes" in component(opened_on(PAGE, room=code), "room")["gone"]
    assert "What is a head?" in component(opened_on(PAGE, room=invitation), "room")["heading"]
    monkeypatch.setattr(quota, "seconds", 0)
    assert "What is a head?" in component(opened_on(PAGE, room=desk.code), "room")["heading"]


@pytest.mark.parametrize("token", ["1-AAAAAAAAAAAAAAAAAAAAAAAAAA", ""])
def test_a_forged_token_joins_again(token, opened_on, component, act, invitation, seated):
    seated("Ada")
    data = component(act(opened_on(PAGE, room=invitation), do="enter", token=token), "room")
    assert data["is_refused"]
    assert "Join again" in data["problem"]
    assert "token" not in data


def test_a_server_without_rooms_or_their_database_says_so(opened_on, component, monkeypatch):
    monkeypatch.delenv(server_rooms.ROOMS, raising=False)
    assert "HEADSCOPE_ROOMS=1" in opened_on(PAGE, room="AAAAAA").info[0].value
    assert not [one for one in opened_on(PAGE).text_input if one.key == "room_typed"]
    monkeypatch.setenv(server_rooms.ROOMS, "1")
    monkeypatch.setenv(room_module.DATABASE, "mysql://nowhere")
    monkeypatch.setattr(server_rooms, "_opened", [])
    assert "SQLite or PostgreSQL" in component(opened_on(PAGE, room="AAAAAA"), "room")["problem"]


def test_an_answer_is_kept_once_and_nothing_of_the_truth_is_told_before_the_reveal(
    component, act, desk, seated
):
    app = seated()
    assert component(app, "room")["kept"] == {}
    app = lock(act, app, "4")
    assert component(app, "room")["kept"] == {"1.1": "4"}
    app = lock(act, lock(act, app, "4"), "7")  # sent again, and another one of another tab
    assert written(desk) == [(1, 1, 1, "4")]
    data = component(app, "lesson")
    assert (data["answer"], data["room"]["told"][:5]) == ("4", "Kept.")
    assert not drawn(app, "lesson_reveal")
    assert not drawn(app, "lesson_view")
    assert "notice" not in json.dumps(data)
    desk.reveal(1)
    app = act(app, do="look")
    reveal = component(app, "lesson_reveal")
    assert reveal["right"] is False
    assert (reveal["texts"]["again"], reveal["texts"]["like"] != "") == ("", True)
    app = act(app, "lesson_reveal", do="again")  # it cannot be changed
    assert component(app, "lesson")["answer"] == "4"
    desk.set_together(False)  # each reveals on their own
    app = act(app, "lesson", do="go", number=2)
    assert component(lock(act, app, "7", screen=2), "lesson_reveal")["right"]


def test_a_screen_that_is_revealed_shows_nothing_to_who_has_not_answered(component, act, desk, seated):
    app = seated()
    desk.reveal(1)
    app = act(app, do="look")
    assert "answer" not in component(app, "lesson")
    assert not drawn(app, "lesson_reveal")
    assert component(lock(act, app, "3"), "lesson_reveal")["right"]


def test_a_like_case_is_for_practice_and_is_not_kept(component, act, desk, seated):
    desk.reveal(1)
    app = act(lock(act, seated(), "3"), "lesson_reveal", do="like")
    app = act(app, "lesson", do="lock", answer="2")
    assert component(app, "lesson_reveal")["like"]
    assert written(desk) == [(1, 1, 1, "3")]


@pytest.mark.parametrize(
    ("answer", "screen", "vote", "reason"),
    [
        ("99", 1, 1, "99"),
        ("3", 1, 2, "no second vote on screen 1"),
        ("3", 99, 1, "no screen 99"),
    ],
)
def test_what_is_no_answer_is_said_and_dropped(answer, screen, vote, reason, component, act, desk, seated):
    data = component(lock(act, seated(), answer, screen, vote), "room")
    assert data["not_taken"]["key"] == f"{screen}.{vote}"
    assert reason in data["not_taken"]["reason"]
    assert written(desk) == []
    app = seated()
    assert component(act(lock(act, app, answer, screen, vote), do="look"), "room")["not_taken"] is None


def test_a_first_answer_that_comes_late_is_shown_once_it_is_revealed(component, act, desk, seated):
    app = seated()
    desk.vote_again(1)
    app = lock(act, app, "4", vote=1)
    assert written(desk) == [(1, 1, 1, "4")]
    desk.reveal(1)
    app = act(app, do="look")
    assert component(app, "lesson")["answer"] == "4"
    assert component(app, "lesson_reveal")["right"] is False


def test_the_teacher_takes_the_class_to_a_screen_and_lets_it_go(component, act, desk, seated):
    app = act(seated(screen=2), "lesson", do="go", number=4)
    desk.set_pace(Pace(3, paused=True))
    app = act(app, do="look")
    data = component(app, "lesson")
    assert (data["number"], data["room"]["fixed"], "paused" in data["room"]["paused"]) == (3, True, True)
    app = act(app, "lesson", do="go", number=5)
    assert component(app, "lesson")["number"] == 3
    app = lock(act, app, "3", screen=3)  # it was on its way
    assert written(desk) == [(1, 3, 1, "3")]
    assert component(app, "lesson")["room"]["paused"] == ""
    desk.reveal(3)
    assert component(act(app, do="look"), "lesson_reveal")["texts"]["next"] == ""  # no button leads on
    desk.set_pace(Pace())
    app = act(app, do="look")
    assert (component(app, "lesson")["number"], component(app, "lesson")["room"]["fixed"]) == (3, False)


def test_a_class_goes_on_to_the_next_lesson_with_its_teacher(rooms, opened_on, component, act):
    following = shipped()["several-heads"]
    key, first = rooms.open(HEADS, following), len(HEADS.screens)
    desk = rooms.desk(*key)
    app = opened_on(PAGE, room=rooms.invitation(key.code))
    app = lock(act, act(app, do="join", asked="", name="Ada"), "3")
    desk.set_pace(Pace(first + 1))
    app = act(app, do="look")
    data = component(app, "lesson")
    assert (data["title"], data["number"]) == (following.title["en"], first + 1)
    assert data["question"]["kind"] == following.screens[0].question.kind == "estimate"
    app = lock(act, app, "1", screen=first + 1)
    heads, number = component(app, "room")["along"]
    assert (place.read_answers(heads["answers"]), place.read_answers(number["answers"])) == (
        {1: ("3", "en")},
        {1: ("1", "en")},
    )
    desk.set_pace(Pace())
    app = act(act(app, do="look"), "lesson", do="go", number=99)
    end = component(app, "lesson_end")
    assert len(end["can"]) == len(end["receipt"]["titles"]) + 1 == 3
    assert end["receipt"]["lines"][1].startswith(f"2 of {first + len(following.screens)} ")


def test_an_answer_keeps_the_language_of_its_lock(opened_on, component, act, desk, invitation, seated):
    token = component(seated(lang="zh"), "room")["token"]
    app = act(opened_on(PAGE, room=invitation, lang="en"), do="enter", token=token)
    assert component(app, "lesson")["room"]["language"] == "en"
    app = lock(act, app, "2", language="zh")  # which waited in the browser
    assert [(one.answer, one.language) for one in desk.answers()] == [("2", "zh")]
    desk.reveal(1)
    app = act(app, do="look")
    assert component(app, "lesson")["question"]["words"][1] == "卡车"
    assert component(app, "lesson_reveal")["right"]
    desk.vote_again(2)
    app = act(lock(act, app, "2", screen=2, language="zh"), "lesson", do="go", number=2)
    assert component(app, "lesson")["room"]["first"] is None  # the same place is another word here


def test_the_desk_sees_where_a_student_is_and_who_needs_help(act, desk, seated, monkeypatch):
    app = act(seated(), "lesson", do="go", number=4)
    assert desk.students()[0].screen == 4
    app = act(app, do="help", needs_help=True)
    assert desk.students()[0].needs_help
    moved = []
    monkeypatch.setattr(room_module.Seat, "at", lambda *of: moved.append(of))
    app = act(app, do="help", needs_help=False)
    assert not desk.students()[0].needs_help
    assert moved == []  # written only when it changes


def test_the_end_has_a_receipt_that_the_desk_can_check(component, act, desk, seated, monkeypatch):
    app = lock(act, lock(act, seated("Ada"), "3"), "3", screen=2)
    desk.reveal(3)
    now = room_module._now() + room_module.GRACE + 1
    monkeypatch.setattr(room_module, "_now", lambda: now)
    app = act(lock(act, app, "3", screen=3), "lesson", do="go", number=len(HEADS.screens) + 1)
    receipt = component(app, "lesson_end")["receipt"]
    checked = desk.check_receipt(receipt["code"])
    assert (checked.number, checked.answered, checked.day) == (1, 3, datetime.now(UTC).date())
    assert receipt["lines"][:2] == ["Ada", f"3 of {len(HEADS.screens)} screens answered (1 late)"]
    assert component(app, "lesson_end")["then"] is None


def test_without_the_database_the_answer_waits(opened_on, component, act, desk, gone, invitation, seated):
    app = seated()
    gone()
    data = component(opened_on(PAGE, room=invitation), "room")  # a page that begins now
    assert (data["asks_again"], "does not answer now" in data["problem"]) == (True, True)
    app = lock(act, app, "3")
    assert component(app, "lesson")["question"]["kind"] == "point"
    assert component(app, "room")["kept"] == {}
    assert component(app, "room")["not_taken"] is None
    gone(False)
    app = lock(act, app, "3")
    assert component(app, "room")["kept"] == {"1.1": "3"}
    assert written(desk) == [(1, 1, 1, "3")]


def test_a_room_that_is_deleted_says_so_and_leaves_the_answers_to_take_along(component, act, desk, seated):
    app = lock(act, lock(act, seated(), "3"), "4", screen=2)
    [along] = component(app, "room")["along"]
    assert (along["lesson"], place.read_answers(along["answers"])) == (
        "heads",
        {1: ("3", "en"), 2: ("4", "en")},
    )
    desk.delete()
    app = lock(act, app, "3", screen=3)
    assert component(app, "room")["gone"] == "This room is closed, and everything in it is deleted."
    assert not drawn(app, "lesson")


def test_a_lesson_that_nobody_else_has_cannot_be_gone_on_with_alone(rooms, opened_on, component, act):
    own = Lesson.read(HEADS.write().replace("minutes = 7", "minutes = 9"), "heads")
    assert library.version(own) != library.version(HEADS)
    app = opened_on(PAGE, room=rooms.invitation(rooms.open(own).code))
    assert component(act(app, do="join", asked="", name=""), "room")["along"] == []


def test_guessed_codes_count_with_whatever_act_they_come(opened_on, act, desk):
    app = opened_on(PAGE, room=desk.code)  # typed, and right
    for _ in range(server_rooms.WRONG_CODES.most.visitor):
        app.query_params["room"] = "K7QM2X"
        app = app.run()
    app.query_params["room"] = desk.code
    act(app, do="join", asked="", name="Eve")
    assert desk.students() == []


def test_one_visitor_takes_few_places_and_others_go_on(opened_on, act, desk, invitation, seated):
    app, most = opened_on(PAGE, room=invitation), server_rooms.PLACES.most.visitor
    for at in range(most + 3):
        app = act(app, do="join", name=f"Eve {at}", asked=str(at))
        app = act(app, do="leave")
    assert len(desk.students()) == most
    seated("Ada")
    assert len(desk.students()) == most + 1
