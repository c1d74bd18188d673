"""A class in a room: who may come in and do what, and each answer written once. In both databases."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from mha_core import MhaError
from mha_core.lessons.lesson import Lesson
from mha_core.lessons.question import MAX_TEXT
from mha_core.room import rooms as module
from mha_core.room.receipt import ALPHABET, sign, token
from mha_core.room.rooms import MAX_NAME, MAX_STUDENTS, Pace, Rooms, Unknown, normalized

HOSTILE = [
    '=HYPERLINK("http://a.b")',
    "<script>alert(1)</script>",
    "'); DROP TABLE answers; --",
    "\\input{x} $x$ **b** [a](javascript:b)",
    "动物 🐈‍⬛ é abc",
    "{name} %s %(a)s",
]
# In no text of PostgreSQL, and in no file.
UNWRITABLE = ["a\0b", "a\ud800b", "a\u202eb"]


def answered(desk) -> list[tuple]:
    return [(one.student, one.screen, one.vote, one.answer) for one in desk.answers()]


def at_once(count: int, act) -> list:
    """The results of the act for 0, 1, …, all begun at the same moment."""
    start = threading.Barrier(count)

    def one(number: int):
        start.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


# Who may come in


def test_a_new_room_has_a_code_that_can_be_read_aloud_and_typed_in_any_way(rooms, key, lesson):
    assert normalized(f" {key.code[:3].lower()}-{key.code[3:].lower()} ") == key.code
    assert len(key.code) == 6
    assert set(key.code) <= set(ALPHABET)
    assert not set(ALPHABET) & set("0O1ILU")
    room = rooms.room(key.code)
    assert (room.code, room.lesson, room.pace) == (key.code, lesson, Pace())
    assert (room.together, room.version, room.votes, room.revealed) == (True, 1, {}, frozenset())
    assert (room.expires - room.opened).days == 30


def test_lessons_of_an_hour_are_one_course_in_their_order(rooms, lesson):
    other = Lesson.read(lesson.write().replace("minutes = 5", 'minutes = 4\ntitle.zh = "猫"'), "more")
    key = rooms.open(lesson, other)
    module._courses.clear()  # as another server reads it
    room, desk = rooms.room(key.code), rooms.desk(*key)
    assert room.lessons == (lesson, other)
    assert (room.lesson.screens, room.lesson.title) == (2 * lesson.screens, {"zh": "猫"})
    assert [room.part(screen).name for screen in (1, 3, 4, 6, 7)] == ["cats", "cats", "more", "more", "more"]
    desk.set_pace(Pace(6))
    desk.reveal(6)
    seat = rooms.enter(key.code, rooms.join(key.code))
    for screen in (1, 6):
        seat.keep(screen, 1, "3", language="en")
    assert answered(desk) == [(1, 1, 1, "3"), (1, 6, 1, "3")]
    assert desk.check_receipt(seat.receipt()).answered == 2
    with pytest.raises(MhaError, match="no screen 7"):
        seat.keep(7, 1, "3", language="en")
    for lessons in ((), 13 * (lesson,)):
        with pytest.raises(MhaError, match=f"1 to 12 lessons; got {len(lessons)}"):
            rooms.open(*lessons)


def test_a_server_that_starts_knows_the_rooms_in_which_somebody_sits(rooms, key, desk, sit, later, lesson):
    rooms.open(lesson)
    sit("Ada")
    desk.remove(sit().number)
    assert rooms.going_on() == [(key.code, rooms.room(key.code).expires, 1)]
    later(31 * 86_400)
    assert rooms.going_on() == []


def test_another_code_opens_nothing(rooms, key):
    asks = (rooms.room, rooms.version, rooms.join, rooms.invitation)
    asks += (lambda code: rooms.enter(code, "1-A"), lambda code: rooms.desk(code, key.secret))
    for code in ("", "AAAAAA", "aaaaaa", "%", "' OR 1=1", "A" * 10_000, *UNWRITABLE):
        for ask in asks:
            with pytest.raises(Unknown, match="There is no room"):
                ask(code)
        assert not rooms.is_invited(f"{code}-AAAAAAAA")


def test_only_the_secret_opens_the_desk_and_a_renewed_one_shuts_the_old_link(rooms, key, desk):
    for secret in ("", "x", key.secret[:-1], key.secret + "x", key.secret.swapcase(), *UNWRITABLE):
        with pytest.raises(MhaError, match="does not open"):
            rooms.desk(key.code, secret)
    with rooms._reading() as act:  # the database does not hold it
        row = act.execute(module.select(module.rooms)).one()
    assert key.secret.encode() not in b"".join(str(value).encode() for value in row) + row.secret_hash
    renewed = desk.renew()
    with pytest.raises(MhaError, match="or no longer"):
        rooms.desk(key.code, key.secret)
    assert rooms.desk(key.code, renewed).room().version == 2


def test_an_invitation_is_that_of_its_room_alone(rooms, key, lesson):
    invitation, other = rooms.invitation(key.code), rooms.open(lesson)
    assert rooms.is_invited(invitation)
    assert rooms.is_invited(f" {invitation.lower()} ")
    code, _, signed = invitation.partition("-")
    forged = [code, f"{code}-", f"{other.code}-{signed}", f"{code}-{signed[:-1]}", f"{code}-AAAAAAAA", ""]
    for text in [*forged, f"{code}-{signed[:-1]}\ud800"]:
        assert not rooms.is_invited(text)


def test_a_browser_that_did_not_hear_of_its_place_gets_it_again(rooms, key, desk, lesson):
    held = at_once(6, lambda _: rooms.join(key.code, "Ada", asked="drawn"))
    assert len(set(held)) == 1
    assert rooms.join(key.code, "Bob", asked="drawn") == held[0]
    others = {rooms.join(key.code, "Ada", asked=asked) for asked in ("", "", "other", "x" * 999, *UNWRITABLE)}
    assert len(others) == 5  # both of the last are "ab"
    assert [one.name for one in desk.students()] == 6 * ["Ada"]
    other = rooms.open(lesson)
    assert rooms.join(other.code, asked="drawn") != held[0]
    assert len(rooms.desk(*other).students()) == 1


def test_a_token_comes_back_as_its_student_and_one_that_the_room_did_not_sign_is_nobodys(rooms, key, lesson):
    held, other = rooms.join(key.code), rooms.open(lesson)
    assert [rooms.enter(key.code, held).student().number for _ in range(2)] == [1, 1]
    elsewhere = rooms.join(other.code)
    with rooms._reading() as act:
        signing = act.execute(module.select(module.rooms.c.key).order_by(module.rooms.c.id)).scalars().first()
    assert held == token(signing, 1)
    forged = ["", "1", "1-", "-", held[2:], f"2{held[1:]}", held[:-1], f"{held}A", held.lower(), f"0{held}"]
    nobody = [token(signing, 2), token(signing, 0)]  # well signed, and on none of the chairs
    receipts = [f"1-{sign(signing, 'receipt', 1, length=26)}", f"1-{sign(b'', 'student', 1, length=26)}"]
    for text in [*forged, *nobody, *receipts, elsewhere, f"{'9' * 500}-A", f"١{held[1:]}", *UNWRITABLE]:
        with pytest.raises(MhaError, match="not a place in the room"):
            rooms.enter(key.code, text)


# Names


NAMES = {name: name for name in ("", "Ada", "学生 12", *HOSTILE)}
NAMES |= {"  Ada \n\t Lovelace ": "Ada Lovelace", **dict.fromkeys(UNWRITABLE, "ab")}


NAMES["é" * MAX_NAME] = "é" * MAX_NAME


def test_a_name_is_kept_as_typed_without_lines_and_what_no_text_can_have(desk, sit):
    for typed in NAMES:
        sit(typed)
    with pytest.raises(MhaError, match=f"at most {MAX_NAME} characters; this one has {MAX_NAME + 1}"):
        sit("é" * (MAX_NAME + 1))
    assert [one.name for one in desk.students()] == [*NAMES.values()]


# Answers


def test_an_answer_is_written_once(desk, sit):
    seat = sit("Ada")
    assert seat.keep(1, 1, "3", language="en") == "3"
    assert seat.keep(1, 1, "4", language="zh") == "3"
    assert seat.keep(3, 1, "5", language="zh") == "5"
    assert seat.answers() == {(1, 1): ("3", "en"), (3, 1): ("5", "zh")}
    assert answered(desk) == [(1, 1, 1, "3"), (1, 3, 1, "5")]
    assert [one.language for one in desk.answers()] == ["en", "zh"]
    assert sit("Ada").answers() == {}  # nobody sees those of others
    assert abs((desk.answers()[0].at - datetime.now(UTC)).total_seconds()) < 60


ANSWERS = {answer: answer for answer in (*HOSTILE, "", " 7:40,3:60 ", "x" * MAX_TEXT)}
ANSWERS |= dict.fromkeys(UNWRITABLE, "ab")  # or it would be sent again for ever


def test_an_answer_comes_back_to_the_letter_without_what_no_text_can_have(desk, sit):
    for typed, kept in ANSWERS.items():
        assert sit().keep(1, 1, typed, language="en") == kept
    assert [one.answer for one in desk.answers()] == [*ANSWERS.values()]


def test_an_answer_to_nothing_that_is_asked_is_refused(desk, sit):
    seat = sit()
    for screen, vote, answer, message in (
        *((screen, 1, "3", f"no screen {screen}") for screen in (0, 4, -1, 2**40)),
        *((1, vote, "3", "no second vote on screen") for vote in (2, 0, 2**40)),
        (1, 1, "x" * (MAX_TEXT + 1), f"at most {MAX_TEXT} characters; this one has {MAX_TEXT + 1}"),
    ):
        with pytest.raises(MhaError, match=message) as caught:
            seat.keep(screen, vote, answer, language="en")
        assert type(caught.value) is MhaError
    assert desk.answers() == []


def test_two_tabs_of_one_student_keep_one_answer(desk, sit):
    seat = sit()
    kept = at_once(8, lambda number: seat.keep(1, 1, str(number), language="en"))
    assert len(set(kept)) == 1
    assert answered(desk) == [(1, 1, 1, kept[0])]


@pytest.mark.slow
def test_fifty_students_join_and_answer_at_once_and_all_acts_of_the_teacher_count(rooms, key, desk):
    tokens = at_once(50, lambda number: rooms.join(key.code, f"student {number}"))
    assert sorted(one.number for one in desk.students()) == [*range(1, 51)]
    seats = [rooms.enter(key.code, held) for held in tokens]
    answers = [f"{seat.number}" for seat in seats]
    # A browser that was not told sends its answer again.
    sent = at_once(100, lambda n: seats[n % 50].keep(1, 1, answers[n % 50], language="en"))
    assert sent == answers * 2
    assert answered(desk) == [(number, 1, 1, str(number)) for number in range(1, 51)]
    assert rooms.counts() == {"rooms": 1, "students": 50, "answers": 50}
    at_once(12, lambda number: desk.reveal(number % 3 + 1))
    assert (rooms.version(key.code), desk.room().revealed) == (13, {1, 2, 3})


# What the teacher does


def test_a_second_vote_is_open_once_the_teacher_says_so(desk, sit):
    seat, late = sit(), sit()
    seat.keep(1, 1, "3", language="en")
    desk.vote_again(1)
    assert (desk.room().vote(1), desk.room().vote(2)) == (2, 1)
    assert seat.keep(1, 2, "4", language="en") == "4"
    assert seat.answers() == {(1, 1): ("3", "en"), (1, 2): ("4", "en")}
    assert late.keep(1, 1, "5", language="en") == "5"  # it had waited in a browser without a network
    with pytest.raises(MhaError, match="no second vote"):
        seat.keep(1, 3, "5", language="en")
    assert Counter((one.screen, one.vote) for one in desk.answers()) == {(1, 1): 2, (1, 2): 1}


def test_what_came_of_an_answer_is_shown_when_the_teacher_says_so(desk):
    assert not desk.room().shows(1)
    desk.reveal(1)
    assert (desk.room().shows(1), desk.room().shows(2)) == (True, False)
    with pytest.raises(MhaError, match="Screen 1 has been revealed"):
        desk.vote_again(1)
    desk.set_together(False)
    assert (desk.room().shows(2), desk.room().vote(1)) == (True, 1)
    desk.set_together(True)
    desk.conceal(1)
    desk.vote_again(1)
    assert (desk.room().shows(1), desk.room().vote(1)) == (False, 2)
    desk.reveal(1)
    desk.set_together(True)
    assert (desk.room().shows(1), desk.room().shows(2)) == (True, False)


def test_each_act_of_the_teacher_makes_a_new_version_and_no_answer_does(rooms, key, desk, sit):
    seat = sit()
    seat.keep(1, 1, "3", language="en")
    seat.at(2)
    seat.ask_for_help(True)
    assert rooms.version(key.code) == 1
    paces = [Pace(2), Pace(2, paused=True), Pace(None, paused=True), Pace()]
    acts = [lambda pace=pace: desk.set_pace(pace) for pace in paces]
    acts += [lambda: desk.reveal(2), lambda: desk.vote_again(1), lambda: desk.set_together(False)]
    for number, act in enumerate([*acts, lambda: desk.keep_for(3), desk.renew], start=2):
        act()
        assert rooms.version(key.code) == number == desk.room().version
        assert desk.room().pace == paces[min(number - 2, 3)]


def test_no_screen_of_the_lesson_is_refused(desk):
    for screen in (0, 4, -1, 2**40):
        for act in (desk.reveal, desk.vote_again, lambda one: desk.set_pace(Pace(one))):
            with pytest.raises(MhaError, match=f"no screen {screen}"):
                act(screen)
    assert desk.room().version == 1


def test_the_desk_sees_where_everybody_is_and_who_needs_it(desk, sit):
    first, second = sit("Ada"), sit()
    first.at(3)
    second.ask_for_help(True)
    seen = [(one.number, one.name, one.screen, one.needs_help) for one in desk.students()]
    assert seen == [(1, "Ada", 3, False), (2, "", 1, True)]
    desk.helped(2)
    assert not second.student().needs_help
    desk.helped(99)  # has gone


def test_two_teachers_have_two_rooms(rooms, lesson):
    keys = [rooms.open(lesson) for _ in range(2)]
    desks = [rooms.desk(*key) for key in keys]
    with pytest.raises(MhaError, match="does not open"):
        rooms.desk(keys[0].code, keys[1].secret)
    rooms.enter(keys[0].code, rooms.join(keys[0].code, "Ada")).keep(1, 1, "3", language="en")
    desks[0].reveal(1)
    assert (desks[1].answers(), desks[1].students()) == ([], [])
    assert (desks[1].room().version, desks[1].room().revealed) == (1, frozenset())


def test_a_server_beside_it_has_the_same_rooms(url, rooms, key, desk, sit):
    beside = Rooms(url)
    sit("Ada").keep(1, 1, "3", language="en")
    desk.reveal(1)
    there = beside.desk(key.code, key.secret)
    assert (there.room(), there.students()) == (desk.room(), desk.students())
    assert answered(there) == answered(desk)
    beside.close()


# Limits


def test_a_full_room_says_how_many_it_holds(rooms, key, desk):
    for _ in range(MAX_STUDENTS - 3):
        rooms.join(key.code)

    def join(_):
        try:
            return rooms.join(key.code)
        except MhaError as error:
            return str(error)

    refused = [said for said in at_once(6, join) if "full" in said]
    assert refused == 3 * [f"A room has at most {MAX_STUDENTS} students; this one is full."]
    assert [one.number for one in desk.students()] == [*range(1, MAX_STUDENTS + 1)]


def test_rooms_of_an_hour_and_of_a_server_are_counted(rooms, lesson, later, monkeypatch):
    for name, most in (("MAX_OPENED", 2), ("MAX_ROOMS", 3)):
        monkeypatch.setattr(module, name, most)
    for _ in range(2):
        rooms.open(lesson)
    with pytest.raises(MhaError, match="2 rooms were opened here within the last hour"):
        rooms.open(lesson)
    later(3601)
    rooms.open(lesson)
    with pytest.raises(MhaError, match="already has 3 rooms, its limit"):
        rooms.open(lesson)
    assert rooms.counts()["rooms"] == 3


def test_a_room_is_kept_for_a_year_at_most(rooms, lesson, desk):
    for days in (0, -1, 367):
        for ask in (lambda days: rooms.open(lesson, days=days), desk.keep_for):
            with pytest.raises(MhaError, match=f"1 to 366 days; got {days}"):
                ask(days)


# The end of a room


def acts_of(seat) -> list:
    acts = [lambda: seat.at(2), lambda: seat.ask_for_help(True), lambda: seat.keep(2, 1, "3", language="en")]
    return [seat.student, seat.answers, seat.receipt, *acts]


def everything_is_gone(rooms, key, desk, seat) -> None:
    assert set(rooms.counts().values()) == {0}
    at_the_door = (rooms.room, rooms.join, lambda code: rooms.desk(code, key.secret))
    asks = [lambda act=act: act(key.code) for act in (*at_the_door, lambda code: rooms.enter(code, "1-A"))]
    asks += [desk.room, desk.students, desk.answers, desk.renew, desk.delete, *acts_of(seat)]
    for ask in (*asks, lambda: desk.reveal(1), lambda: desk.helped(1)):
        with pytest.raises(Unknown):
            ask()


def test_a_deleted_room_is_gone_with_everything_in_it(rooms, key, desk, sit, lesson):
    seat = sit("Ada")
    seat.keep(1, 1, "3", language="en")
    desk.reveal(1)
    desk.delete()
    everything_is_gone(rooms, key, desk, seat)
    other = rooms.open(lesson)  # in SQLite in the rows of the first one
    rooms.enter(other.code, rooms.join(other.code)).keep(1, 1, "4", language="en")
    for ask in (desk.answers, *acts_of(seat)):
        with pytest.raises(Unknown):
            ask()
    assert rooms.desk(*other).students()[0].screen == 1


def test_a_room_is_deleted_while_a_hundred_answer(rooms, key, desk):
    seats = [rooms.enter(key.code, rooms.join(key.code)) for _ in range(25)]

    def act(number: int) -> str:
        try:
            if number == 50:
                desk.delete()
                return "deleted"
            return seats[number % 25].keep(number // 25 % 3 + 1, 1, "3", language="en")
        except Unknown:
            return "unknown"

    assert set(at_once(100, act)) <= {"deleted", "unknown", "3"}
    assert set(rooms.counts().values()) == {0}


def test_a_room_is_deleted_when_its_days_are_over_which_a_teacher_may_extend(rooms, lesson, later):
    key = rooms.open(lesson, days=1)
    desk, seat = rooms.desk(*key), rooms.enter(key.code, rooms.join(key.code))
    seat.keep(1, 1, "3", language="en")
    assert rooms.expire() == 0
    assert (desk.room().expires - desk.room().opened).days == 1
    later(module.DAY - 10)
    desk.keep_for(3)
    later(3 * module.DAY - 10)
    assert rooms.expire() == 0
    assert rooms.room(key.code).code == key.code
    later(10)
    for ask in (desk.answers, desk.room, *acts_of(seat)):  # also before it is deleted
        with pytest.raises(Unknown):
            ask()
    assert rooms.counts()["answers"] == 1
    assert rooms.expire() == 1
    everything_is_gone(rooms, key, desk, seat)


def test_a_room_in_which_nobody_sits_is_deleted_after_a_day(rooms, key, lesson, later):
    used = rooms.open(lesson)
    rooms.join(used.code)
    later(module.EMPTY_SECONDS - 10)
    assert rooms.expire() == 0
    later(10)
    assert rooms.expire() == 1
    assert rooms.room(used.code)
    with pytest.raises(Unknown):
        rooms.room(key.code)


# Receipts


def test_the_desk_checks_the_receipt_of_a_student(rooms, key, desk, sit):
    sit()
    seat = sit("Ada")
    for screen in (1, 3):
        seat.keep(screen, 1, "3", language="en")
    desk.vote_again(3)
    seat.keep(3, 2, "4", language="en")
    text = seat.receipt(datetime(2026, 11, 26, 23, 59, tzinfo=UTC))
    assert text.startswith(f"{key.code}-2-2-20261126-")
    for typed in (text, f" {text.lower()}\n"):
        found = desk.check_receipt(typed)
        assert (found.code, found.number, found.answered) == (key.code, 2, 2)
        assert found.day.isoformat() == "2026-11-26"


def test_a_receipt_that_was_changed_in_any_part_is_refused(rooms, key, desk, sit, lesson):
    text = sit().receipt(datetime(2026, 11, 26, tzinfo=UTC))
    other = rooms.open(lesson)
    parts = text.split("-")
    _, number, _, _, signed = parts
    wrong = {
        0: (other.code,),
        1: ("2", f"0{number}", f"{number}_0", "١", "9" * 5000),
        2: ("3",),
        3: ("20261127", "2026W484", "2026-11-26"),
        4: (signed[:-1] + ("A" if signed[-1] != "A" else "B"), signed[:-1], f"{signed}A", "\ud800"),
    }
    forged = [[*parts[:at], part, *parts[at + 1 :]] for at, those in wrong.items() for part in those]
    for typed in (*forged, parts[:4], [""]):
        with pytest.raises(MhaError, match="has not signed the receipt"):
            desk.check_receipt("-".join(typed))
    with pytest.raises(MhaError, match="has not signed"):
        rooms.desk(*other).check_receipt(text)
