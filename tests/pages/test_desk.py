"""The teacher's desk: signs and spread of real answers, and nothing of the truth before the reveal."""

import csv
import io
import json
import math

import pytest
import streamlit
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core import MhaError
from mha_core.lessons.lesson import Lesson
from mha_core.lessons.question import written_row
from tests.lessons.student import FIELDS, MORE_FIELDS
from tests.pages.test_lessons import FILE, NUMBERS, SCREENS

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

from mha_core.room import rooms as room_module
from mha_core.room.rooms import RoomKey, Unavailable
from pages._server import rooms as of_server
from pages.learn._lessons import acts, desk, desk_answers, library, opening, place, seat

PAGE = "learn/lessons.py"
LESSON = Lesson.read(FILE, "nine")
# What the desk is told of a vote before its screen is revealed.
VOTE = {"heading", "count", "lost", "counts", "rows", "mean", "numbers", "answers"}
OF_ANSWER = {"answer", "count", "text", "links"}


@pytest.fixture
def room(rooms, monkeypatch):
    """A room with the lesson of nine kinds, whose signs all come with the first drawing of the desk."""
    monkeypatch.setattr(desk_answers, "SECONDS", math.inf)
    return rooms.open(LESSON)


@pytest.fixture
def desk_of(opened_on):
    """`desk_of(room)`: the desk, for which the browser has sent the room's secret."""

    def open_(room: RoomKey):
        app = opened_on(PAGE, desk=room.code)
        app.session_state[opening.SECRETS] = {room.code: room.secret}
        return app.run()

    return open_


@pytest.fixture
def act(click):
    return lambda app, **what: click(app, "desk", what, event="acted")


def answered(rooms, room, name: str = "", **answers: str):
    """A student who has given answers, by the kinds of the questions."""
    seat = rooms.enter(room.code, rooms.join(room.code, name))
    for kind, answer in answers.items():
        seat.keep(NUMBERS[kind], 1, answer, language="en")
    return seat


def away(*_):
    raise Unavailable("The database of the rooms does not answer now ({reason}).", reason="OperationalError")


def signs(app, component) -> list[list[str]]:
    table = component(app, "desk")["table"]
    return [[table["signs"][at][0] for at in row["signs"]] for row in table["rows"]]


def test_each_answer_has_a_sign_and_who_needs_help_comes_first(rooms, room, desk_of, component):
    right = {kind: one for kind, (_, one, _) in SCREENS.items() if one}
    wrong = {kind: one for kind, (_, _, one) in SCREENS.items() if one}
    answered(rooms, room, "Ada", **right)
    answered(rooms, room, "", **wrong).ask_for_help(True)
    answered(rooms, room, "", point="99")  # no word of the sentence: no page sends that
    app = desk_of(room)
    told = component(app, "desk")["table"]["rows"]
    assert [(row["number"], row["name"], row["help"]) for row in told] == [
        (2, "", True),
        (1, "Ada", False),
        (3, "", False),
    ]
    kinds = list(SCREENS)
    by_kind = [dict(zip(kinds, row, strict=True)) for row in signs(app, component)]
    assert {by_kind[1][kind] for kind in right if kind != "why"} == {"right"}
    assert by_kind[1]["why"] == "unchecked"
    assert by_kind[0]["cell"] == "misread"  # row and column exchanged
    assert {by_kind[0][kind] for kind in wrong if kind != "cell"} == {"other"}
    assert by_kind[0]["why"] == by_kind[0]["choose"] == "empty"
    assert by_kind[2]["point"] == "unchecked"
    assert all(text for name, text in component(app, "desk")["table"]["signs"] if name != "empty")


@pytest.mark.parametrize("kind", SCREENS)
def test_the_truth_is_in_nothing_before_the_reveal_and_the_class_sees_question_spread_and_runs_in_turn(
    rooms, room, desk_of, component, act, kind
):
    number = NUMBERS[kind]
    right, wrong = (SCREENS[kind][nth] or {"choose": "1", "why": "Damn."}[kind] for nth in (1, 2))
    for nth, answer in enumerate((right, wrong, wrong)):
        answered(rooms, room, f"Ada {nth}", **{kind: answer})
    app = act(desk_of(room), do="screen", number=number)
    told = component(app, "desk")
    [scene] = told["spreads"]
    assert set(scene["question"]) <= FIELDS | MORE_FIELDS.get(kind, set())
    [vote] = scene["votes"]
    assert set(vote) <= VOTE
    assert vote["count"] == 3
    assert all(set(one) == OF_ANSWER for one in vote.get("answers", ()))
    if kind in ("draw", "estimate"):
        item = LESSON.screens[number - 1].item("en")
        true = [*map(str, item.row.round(4)), written_row(item.row), item.key.answers[0]]
        message = json.dumps(told)
        assert [one for one in true if float(one.partition(":")[0]) > 0.05 and one in message] == []
    app = act(app, do="projector", shown=True)

    def wall() -> dict:
        told = component(app, "desk")
        assert "Ada" not in json.dumps(told)
        assert not {"table", "hidden"} & set(told)
        return told

    assert room.code in wall()["invitation"]["way_in"]
    [scene] = wall()["spreads"]
    assert (scene["votes"], "runs" in scene) == ([], False)
    app = act(app, do="spread")
    [scene] = wall()["spreads"]
    typed = kind in ("find", "why")  # what a student has typed is for the teacher
    assert wall()["note"].startswith("3 have answered") is typed
    assert [vote["count"] for vote in scene["votes"]] == ([] if typed else [3])
    assert "truth" not in json.dumps(scene)
    app = act(app, do="reveal")
    assert rooms.room(room.code).revealed == {number}
    [scene] = wall()["spreads"]
    headings = [run["heading"] for run in scene["runs"]]
    own = [] if kind == "choose" else ["The model's own"]
    if kind == "draw":
        assert headings == ["Mean of the class", *own]
    else:
        assert headings == ([] if typed else ["2 of 3", "1 of 3"] if right != wrong else ["3 of 3"]) + own
    assert all(run["sentences"] for run in scene["runs"])
    assert "Damn." not in json.dumps(wall())
    if not typed and kind not in ("draw", "choose"):
        assert [run["right"] for run in scene["runs"]] == [False, True, None]
    told = component(act(app, do="projector", shown=False), "desk")
    assert told["table"]["rows"]
    assert "truth" in told["spreads"][0]["votes"][0]


def test_names_and_results_are_hidden_until_a_screen_is_revealed(rooms, room, desk_of, component, act):
    answered(rooms, room, "Ada", point="3", cell="9,3")
    app = act(desk_of(room), do="hide")
    assert signs(app, component)[0][:3] == ["answered", "answered", "empty"]
    assert "Ada" not in json.dumps(component(app, "desk"))
    app = act(app, do="reveal")
    assert signs(app, component)[0][:2] == ["right", "answered"]
    app = act(app, do="conceal")
    assert signs(app, component)[0][:2] == ["answered", "answered"]


def test_the_pace_is_the_classes_and_a_second_vote_is_beside_the_first(rooms, room, desk_of, act, component):
    seat = answered(rooms, room, point="7")
    app = act(desk_of(room), do="again")
    seat.keep(1, 2, "3", language="en")
    app = app.run()
    votes = component(app, "desk")["spreads"][0]["votes"]
    counted = [(vote["heading"], vote["counts"][6], vote["counts"][2]) for vote in votes]
    assert counted == [("Vote 1", 1, 0), ("Vote 2", 0, 1)]
    assert signs(app, component)[0][0] == "right"
    app = act(app, do="here")
    app = act(app, do="screen", number=4)
    assert rooms.room(room.code).pace == (4, False)
    app = act(act(app, do="pause"), do="free")
    assert rooms.room(room.code).pace == (None, True)
    assert component(app, "desk")["number"] == 4


def test_questions_in_two_languages_have_a_spread_each(rooms, desk_of, component):
    scene = SCREENS["point"][0].removeprefix("scene = ")
    chinese = '"text=动物没有过马路，因为它太累了。&layer=2&head=1&token=它"'
    text = f'minutes = 5\n[[screens]]\nkind = "point"\nscene.en = {scene}\nscene.zh = {chinese}\n'
    room = rooms.open(Lesson.read(text, "two"))
    for language in ("en", "zh"):
        rooms.enter(room.code, rooms.join(room.code)).keep(1, 1, "3", language=language)
    spreads = component(desk_of(room), "desk")["spreads"]
    assert [one["question"]["words"][2] for one in spreads] == ["animal", "没有"]
    assert [one["votes"][0]["counts"][2] for one in spreads] == [1, 1]
    assert all(one["heading"] for one in spreads)


def test_a_room_is_opened_as_the_teacher_says(opened_on, rooms):
    app = opened_on(PAGE, desk="new", lesson="heads")
    assert app.get_by_key("room_lessons").value == ["heads"]
    app.get_by_key("room_lessons").set_value(["several-heads", "heads"])
    app.get_by_key("room_together").set_value(False)
    app.get_by_key("room_days").set_value(7)
    app = app.get_by_key("room_open").click().run()
    [code] = app.session_state[opening.SECRETS]
    room = rooms.room(code)
    assert (room.together, (room.expires - room.opened).days) == (False, 7)
    assert [one.name for one in room.lessons] == ["several-heads", "heads"]
    assert app.query_params["desk"] in (code, [code])
    assert "lesson" not in app.query_params


def test_the_address_of_a_desk_has_no_sentence_of_another_page(opened_on):
    app = opened_on(PAGE, desk="K7QM2X", lang="zh")
    assert app.query_params.keys() == {"desk", "lang"}


def test_a_teacher_teaches_a_lesson_of_her_own(opened_on, rooms):
    app = opened_on(PAGE, lesson="make")
    app.session_state[library.DRAFT] = LESSON
    app = app.run().get_by_key("draft_teach").click().run()
    app = app.get_by_key("room_open").click().run()
    [code] = app.session_state[opening.SECRETS]
    assert rooms.room(code).lesson.screens == LESSON.screens


def test_without_rooms_the_address_says_how_to_turn_them_on(opened_on, monkeypatch, component):
    monkeypatch.delenv(of_server.ROOMS, raising=False)
    app = opened_on(PAGE, desk="K7QM2X")
    assert "HEADSCOPE_ROOMS=1" in app.info[0].value
    assert component(opened_on(PAGE), "lesson_cards")["teach"] == ""


@pytest.mark.parametrize(
    ("address", "is_said"),
    [("http://192.0.2.7:8501/lessons", True), ("https://school.example/lessons", False), ("", False)],
)
def test_a_secret_that_crosses_a_network_unencrypted_is_said(room, desk_of, monkeypatch, address, is_said):
    monkeypatch.setattr(place, "page_address", lambda: address or "http://localhost:8501/lessons")
    warnings = [one.value for one in desk_of(room).warning]
    assert [text for text in warnings if "plain http" in text] == warnings
    assert len(warnings) == is_said


@pytest.mark.parametrize(("secret", "reason"), [("guess", "does not open"), ("", "the part after #")])
def test_a_wrong_secret_is_refused_and_does_not_tell_whether_there_is_a_room(room, desk_of, secret, reason):
    told = [desk_of(RoomKey(code, secret)) for code in (room.code, "K7QM2X")]
    for app in told:
        assert app.error[0].value == told[0].error[0].value
        assert reason in app.error[0].value.replace("\\", "")
        with pytest.raises(KeyError):
            app.get_by_key("desk")


def test_a_database_that_is_away_leaves_the_desk_as_it_was(rooms, room, desk_of, component, monkeypatch, act):
    answered(rooms, room, "Ada", point="3")
    app, desk = desk_of(room), rooms.desk
    monkeypatch.setattr(rooms, "desk", away)
    later = desk_of(room)  # a desk that is opened now comes by itself
    assert any("does not answer now" in one.value for one in later.caption)
    assert not later.error
    app = act(app, do="reveal")
    told = component(app, "desk")
    assert "does not answer now" in told["problem"]
    assert told["table"]["rows"][0]["name"] == "Ada"
    monkeypatch.setattr(rooms, "desk", desk)
    app = app.run()
    assert component(app, "desk")["problem"] == ""
    assert app.get_by_key("desk_keep")
    assert component(later.run(), "desk")["code"] == room.code


def test_the_table_is_saved_without_formulas(rooms, room):
    answered(rooms, room, "=1+1", point="3", why="=HYPERLINK(1)")
    from pages.learn._lessons import desk_after

    desk = rooms.desk(room.code, room.secret)
    files = desk_after.files(desk)
    table = list(csv.DictReader(io.StringIO(files["csv"]().decode("utf-8-sig"))))
    assert [(row["name"], row["answer"], row["right"]) for row in table] == [
        ("'=1+1", "3", "True"),
        ("'=1+1", "'=HYPERLINK(1)", ""),
    ]
    assert [row["name"] for row in json.loads(files["json"]())] == ["=1+1", "=1+1"]


def test_receipts_time_and_deletion_are_the_teachers(rooms, room, desk_of, monkeypatch):
    opened = rooms.desk(*room)
    opened.reveal(NUMBERS["cell"])
    now = room_module._now() + room_module.GRACE + 1
    monkeypatch.setattr(room_module, "_now", lambda: now)
    seat = answered(rooms, room, "Ada", point="3", cell="9,3")
    app = desk_of(room)
    forged = seat.receipt().replace("-2-", "-9-")
    for receipt, said, left in (
        (seat.receipt(), "Ada had answered 2 of 9 screens (1 late) on", ""),
        (forged, "has not signed", forged),
    ):
        app = app.get_by_key("desk_receipt").set_value(receipt).run()
        assert said in app.info[0].value
        assert app.get_by_key("desk_receipt").value == left  # free for the next one, or to be mended
    app.get_by_key("desk_days").set_value(3)
    app = app.get_by_key("desk_keep").click().run()
    left = rooms.room(room.code).expires - rooms.room(room.code).opened
    assert left.days in (2, 3)
    app = app.get_by_key("desk_ends").check().run()
    app = app.get_by_key("desk_delete").click().run()
    assert rooms.counts() == {"rooms": 0, "students": 0, "answers": 0}
    assert f"Room {room.code} is deleted" in app.info[0].value


# Answers and acts that no page of ours sends


# Of another version or of another question, and answers that nothing can be drawn from.
ODD = [
    *("cut,from=500,to=1", "cut,from=9,to=500", "cut,from=3-5,to=1", "cut,from=9", "cut,to=3"),
    *("cut,layer=1,from=9,to=3", "cut,from=9,to=3;cut,from=9,to=5", "swap,from=3,to=7", "even,from=3"),
    *("off,layer=9,head=1", "off,layer=1,head=99", "off,layer=1", "off,head=1", "mask,mask=causal"),
    *("00003", "٣", " 3 ", "1_0", "1e400", "nan", "-inf", "0", "-1", "0.5", "1", "9" * 600),
    *("3,3,3", "3:100,3:0", "999:100", "3:1e2", "1,1", "4,1", ",", ":", "", " ", "\0"),
]


@pytest.mark.parametrize("kind", SCREENS)
def test_every_odd_answer_that_is_kept_leaves_the_desk_and_its_files_whole(
    rooms, room, desk_of, component, act, kind
):
    for answer in ODD:
        one = rooms.enter(room.code, rooms.join(room.code))
        one.keep(NUMBERS[kind], 1, answer, language="en")
    opened = rooms.desk(*room)
    opened.reveal(NUMBERS[kind])
    app = act(desk_of(room), do="screen", number=NUMBERS[kind])
    told = component(app, "desk")
    assert told["number"] == NUMBERS[kind]
    [spread] = told["spreads"]
    [vote] = spread["votes"]
    lost = int(vote["lost"].rpartition(" ")[2]) if vote["lost"] else 0
    assert vote["count"] + lost == len(ODD)
    for button in ("desk_csv", "desk_json"):
        assert app.get_by_key(button)


def test_what_cannot_be_drawn_or_read_is_said_and_ends_nothing(room, desk_of, component, monkeypatch):
    """A refusal was taken for a deletion, and the desk ran again for ever."""

    def failing(error):
        def fail(*_):
            raise error

        return fail

    app = desk_of(room)
    monkeypatch.setattr(desk_answers, "spreads", failing(IndexError("no such word")))
    told = component(app.run(), "desk")
    assert told["place"]
    assert "error" in told["spreads"][0]["refusal"]
    monkeypatch.setattr(desk, "_data", failing(MhaError("The lesson cannot be read.")))
    assert component(app.run(), "desk")["problem"] == "The lesson cannot be read."


ANSWER = {"do": "lock", "screen": 1, "vote": 1, "answer": "3", "language": "en"}
BROKEN = [
    *(None, [], {}, "x", 7, {"do": None}, {"do": []}, {"do": "lock"}, {"do": "enter"}),
    *(
        ANSWER | wrong
        for wrong in ({"screen": "1"}, {"screen": 10**40}, {"vote": True}, {"answer": {"a": 1}})
    ),
    *({"do": "screen", "number": "x"}, {"do": "screen", "number": -5}, {"do": "helped", "number": 10**30}),
    *({"do": "help", "needs_help": "yes"}, {"do": "join", "name": 7}),
]


@pytest.mark.parametrize("where", ["desk", "seat"])
def test_a_broken_act_is_ignored(rooms, room, opened_on, desk_of, click, where):
    app, key = desk_of(room), "desk"
    if where == "seat":
        app, key = opened_on(PAGE, room=rooms.invitation(room.code)), "room"
        app = click(app, key, {"do": "join", "name": "Ada", "asked": ""}, event="acted")
    before = rooms.desk(*room).answers(), rooms.room(room.code)
    for sent in BROKEN:
        app = click(app, key, sent, event="acted")
        assert (rooms.desk(*room).answers(), rooms.room(room.code)) == before, sent


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
names = st.sampled_from(
    sorted({"do", *(name for every in (seat.ACTS, desk.ACTS) for one in every.values() for name in one)})
)
dos = st.sampled_from([*seat.ACTS, *desk.ACTS]) | values


@settings(max_examples=150)
@given(st.dictionaries(names, values, max_size=4), dos)
def test_an_act_that_is_read_has_exactly_its_fields_and_their_types(sent, what):
    class Sent:
        acted = sent | {"do": what}

    for every in (seat.ACTS, desk.ACTS):
        acts.begin()
        streamlit.session_state["k"] = Sent()
        found = acts.read("k", every)
        if found is not None:
            assert set(found) == {"do", *every[found["do"]]}
            assert all(type(found[name]) is kind for name, kind in every[found["do"]].items())


def test_one_message_carries_few_acts():
    streamlit.session_state["k"] = type("Sent", (), {"acted": {"do": "free"}})()
    acts.begin()
    done = [acts.read("k", desk.ACTS) for _ in range(2_000)]
    assert sum(one is not None for one in done) == acts.MAX_ACTS
