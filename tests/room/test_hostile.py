"""Rooms with late and removed students, a database that is not what it was, and heavy lesson files."""

import time

import pytest
from sqlalchemy import text

from mha_core.errors import MhaError
from mha_core.lessons.lesson import Lesson, LessonError
from mha_core.room import rooms as module
from mha_core.room.rooms import GRACE, Pace, Unavailable

# What comes late: the acts of the teacher before the answer, the seconds after them, its vote, and the mark.
LATE = [
    ([], 0, 1, ""),
    ([lambda desk: desk.reveal(1)], GRACE + 1, 1, "revealed"),
    ([lambda desk: desk.reveal(1)], GRACE, 1, ""),
    ([lambda desk: desk.set_pace(Pace(None, True))], GRACE + 1, 1, "paused"),
    ([lambda desk: desk.set_pace(Pace(2))], GRACE + 1, 1, "screen"),
    ([lambda desk: desk.set_pace(Pace(2))], GRACE, 1, ""),
    ([lambda desk: desk.set_pace(Pace(1))], GRACE + 1, 1, ""),
    ([lambda desk: desk.vote_again(1)], GRACE + 1, 1, "vote"),
    ([lambda desk: desk.vote_again(1)], GRACE + 1, 2, ""),
]


@pytest.mark.parametrize(("acts", "seconds", "vote", "mark"), LATE)
def test_an_answer_that_comes_late_is_kept_and_marked(desk, sit, monkeypatch, acts, seconds, vote, mark):
    now = module._now()
    monkeypatch.setattr(module, "_now", lambda: now)
    seat = sit("Ada")
    for act in acts:
        act(desk)
    monkeypatch.setattr(module, "_now", lambda: now + seconds)
    seat.keep(1, vote, "3", language="en")
    assert [one.late for one in desk.answers()] == [mark]


def test_a_removed_student_is_gone_with_the_answers_and_the_place_is_not_given_again(rooms, key, desk, sit):
    ada, bob = sit("Ada"), sit("Bob")
    token = rooms.join(key.code, "Eve", asked="7")
    eve = rooms.enter(key.code, token)
    eve.keep(1, 1, "3", language="en")
    desk.remove(eve.number)
    assert [one.name for one in desk.students()] == ["Ada", "Bob"]
    assert desk.answers() == []
    for act in (lambda: rooms.enter(key.code, token), lambda: eve.keep(1, 1, "4", language="en")):
        with pytest.raises(MhaError):
            act()
    assert sit("Cleo").number == 4
    again = rooms.join(key.code, "Eva", asked="7")  # from the same page
    assert rooms.enter(key.code, again).number == 5
    assert ada.keep(1, 1, "3", language="en") == bob.keep(1, 1, "3", language="en") == "3"


def test_a_closed_door_lets_nobody_else_in(rooms, key, desk, sit):
    ada = sit("Ada")
    desk.close_door(True)
    with pytest.raises(MhaError, match="closed the door"):
        sit("Bob")
    assert ada.keep(1, 1, "3", language="en") == "3"
    desk.close_door(False)
    assert sit("Bob").number == 2


@pytest.mark.parametrize("replaced", [False, True])
def test_no_answer_is_confirmed_into_a_file_that_a_restart_would_not_open(file, tmp_path, replaced):
    key = file.open(Lesson.read(SMALL))
    seat = file.enter(key.code, file.join(key.code))
    for part in tmp_path.glob("rooms.sqlite3*"):
        part.unlink()
    if replaced:
        (tmp_path / "rooms.sqlite3").touch()
    for act in (lambda: seat.keep(1, 1, "3", language="en"), seat.answers, file.check):
        with pytest.raises(Unavailable):
            act()


def test_health_is_told_of_a_database_that_takes_no_rows_or_has_another_schema(file):
    file.check()
    with file._engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'of_2030'"))
    with pytest.raises(Unavailable, match="of_2030"):
        file.check()
    with file._engine.begin() as connection:
        connection.execute(text("PRAGMA query_only=ON"))
    with pytest.raises(Unavailable):
        file.check()


def test_readers_do_not_wait_for_writers(file):
    key = file.open(Lesson.read(SMALL))
    writers = [file._engine.connect() for _ in range(15)]  # all that may write
    try:
        assert file.room(key.code).code == key.code
    finally:
        for one in writers:
            one.close()


# Lesson files

SMALL = 'minutes = 5\n[[screens]]\nkind = "why"\nscene = "text=it was late&token=it"\n'
SCREENS = "".join("[[screens]]\n" + "".join(f"k{at} = 1\n" for at in range(250)) for _ in range(24))
HEAVY = {
    "24 screens of 250 unknown fields": "minutes = 5\n" + SCREENS,
    "a key of 20,000 parts": "a." * 20_000 + "a = 1",
    "4,500 tables": "\n".join(f"[a{at}.b.c.d]" for at in range(4_500)),
    "5,000 languages": "[title]\n" + "\n".join(f"k{at} = 'a'" for at in range(5_000)),
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_file_is_refused_with_few_problems_and_little_work(name):
    """Each took 4 to 30 seconds of a processor when every problem searched all lines."""
    began = time.process_time()
    with pytest.raises(LessonError) as refused:
        Lesson.read(HEAVY[name])
    assert time.process_time() - began < 1
    assert len(refused.value.problems) <= 20
    assert len(str(refused.value)) < 5_000


def test_a_lesson_that_grows_beyond_a_file_when_it_is_written_is_refused():
    tabs = "x" + "\t" * 599
    screen = (
        SMALL.removeprefix("minutes = 5\n")
        + f'ask = "{tabs}"\nnotice = "{tabs}"\nhints = ["{tabs}", "{tabs}"]\n'
    )
    text = "minutes = 5\n" + 24 * screen
    assert len(text) < 64_000
    with pytest.raises(LessonError, match="64,000 bytes"):
        Lesson.read(text)


def test_a_word_that_the_text_does_not_have_is_a_problem_of_any_question():
    lesson = Lesson.read(SMALL.replace("token=it", "token=cat"))
    [(number, error)] = lesson.check("en")
    assert number == 1
    assert "cat" in str(error)
