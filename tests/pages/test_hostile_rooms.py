"""Acts and answers that no page of ours sends: a desk and a seat go on, whatever comes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

import streamlit

from mha_core import MhaError
from mha_core.lessons.lesson import Lesson
from pages._server import rooms as server_rooms
from pages.learn._lessons import acts, desk, desk_spread, opening, seat, signs
from tests.pages.test_lessons import FILE, NUMBERS, SCREENS

PAGE = "learn/lessons.py"
LESSON = Lesson.read(FILE, "nine")
# Answers of another version or of another question, and answers that nothing can be drawn from.
ODD = [
    *("cut,from=500,to=1", "cut,from=9,to=500", "cut,from=3-5,to=1", "cut,from=9", "cut,to=3"),
    *("cut,layer=1,from=9,to=3", "cut,from=9,to=3;cut,from=9,to=5", "swap,from=3,to=7", "even,from=3"),
    *("off,layer=9,head=1", "off,layer=1,head=99", "off,layer=1", "off,head=1", "mask,mask=causal"),
    *("00003", "٣", " 3 ", "1_0", "1e400", "nan", "-inf", "0", "-1", "0.5", "1", "9" * 600),
    *("3,3,3", "3:100,3:0", "999:100", "3:1e2", "1,1", "4,1", ",", ":", "", " ", "\0"),
]


@pytest.fixture
def room(rooms, monkeypatch):
    monkeypatch.setattr(signs, "SECONDS", math.inf)
    return rooms.open(LESSON)


@pytest.fixture
def desk_page(opened_on, room):
    app = opened_on(PAGE, desk=room.code)
    app.session_state[opening.SECRETS] = {room.code: room.secret}
    return app.run()


@pytest.mark.parametrize("kind", SCREENS)
def test_every_odd_answer_that_is_kept_leaves_the_desk_and_its_files_whole(
    rooms, room, desk_page, component, click, kind
):
    for answer in ODD:
        one = rooms.enter(room.code, rooms.join(room.code))
        one.keep(NUMBERS[kind], 1, answer, language="en")
    opened = rooms.desk(*room)
    opened.reveal(NUMBERS[kind])
    app = click(desk_page, "desk", {"do": "screen", "number": NUMBERS[kind]}, event="acted")
    told = component(app, "desk")
    assert told["number"] == NUMBERS[kind]
    [spread] = told["spreads"]
    [vote] = spread["votes"]
    lost = int(vote["lost"].rpartition(" ")[2]) if vote["lost"] else 0
    assert vote["count"] + lost == len(ODD)
    for button in ("desk_csv", "desk_json"):
        assert app.get_by_key(button)


def test_a_spread_that_cannot_be_drawn_leaves_the_desk_its_controls(desk_page, component, monkeypatch):
    def fail(*_):
        raise IndexError("no such word")

    monkeypatch.setattr(desk_spread, "spreads", fail)
    app = desk_page.run()
    told = component(app, "desk")
    assert told["place"]
    assert "error" in told["spreads"][0]["refusal"]


def test_a_refusal_that_is_neither_deletion_nor_a_wrong_secret_is_shown_and_ends_nothing(
    rooms, desk_page, component, monkeypatch
):
    """It was taken for a deletion, and the desk ran again for ever."""

    def refuse(*_):
        raise MhaError("The lesson cannot be read.")

    monkeypatch.setattr(desk, "_data", refuse)
    app = desk_page.run()
    assert component(app, "desk")["problem"] == "The lesson cannot be read."


ANSWER = {"do": "lock", "screen": 1, "vote": 1, "answer": "3"}
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
def test_a_broken_act_is_ignored(rooms, room, opened_on, desk_page, click, where):
    app, key = desk_page, "desk"
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


def test_one_message_carries_few_acts(rooms, room, opened_on, monkeypatch):
    done = []
    streamlit.session_state["k"] = type("Sent", (), {"acted": {"do": "free"}})()
    acts.begin()
    done = [acts.read("k", desk.ACTS) for _ in range(2_000)]
    assert sum(one is not None for one in done) == acts.MAX_ACTS


def test_guessed_codes_count_with_whatever_act_they_come(rooms, room, opened_on, click, component):
    most = server_rooms.WRONG_CODES.most.visitor
    app = opened_on(PAGE, room=room.code)  # typed, and right
    for _ in range(most):
        app.query_params["room"] = "K7QM2X"
        app = app.run()
    app.query_params["room"] = room.code
    app = click(app, "room", {"do": "join", "name": "Eve", "asked": ""}, event="acted")
    assert rooms.desk(*room).students() == []


def test_one_visitor_takes_few_places_and_opens_few_rooms_and_others_go_on(rooms, room, opened_on, click):
    invitation = rooms.invitation(room.code)
    app = opened_on(PAGE, room=invitation)
    most = server_rooms.PLACES.most.visitor
    for at in range(most + 3):
        app = click(app, "room", {"do": "join", "name": f"Eve {at}", "asked": str(at)}, event="acted")
        app = click(app, "room", {"do": "leave"}, event="acted")
    assert len(rooms.desk(*room).students()) == most
    click(opened_on(PAGE, room=invitation), "room", {"do": "join", "name": "Ada", "asked": ""}, event="acted")
    assert len(rooms.desk(*room).students()) == most + 1
