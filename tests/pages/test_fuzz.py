"""Whatever browsers send to the desk and the seats of a room, everybody can go on and no answer changes.

`HEADSCOPE_FUZZ=20000 pytest tests/pages/test_fuzz.py` sends that many others, in about twenty minutes.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mha_core.lessons.lesson import Lesson
from tests.pages.test_lessons import FILE, NUMBERS, SCREENS

pytest.importorskip("sqlalchemy", reason="the extra [room] is not installed")

from mha_core.room.export import rows
from pages._server import logs
from pages._server import rooms as of_server
from pages.learn._lessons import desk, items, opening, screen, seat
from tests.pages.conftest import FRAME, run
from tests.pages.test_desk import ODD, values

PAGE = "learn/lessons.py"
EACH = 50  # messages in one room
MESSAGES = int(os.environ.get("HEADSCOPE_FUZZ", "100"))

near = st.integers(-1, 15)
right = st.sampled_from([one for _, *both in SCREENS.values() for one in both if one])
written = st.lists(st.tuples(near, st.sampled_from(",:;-=. "), near), max_size=4).map(
    lambda parts: ",".join(f"{a}{sign}{b}" for a, sign, b in parts)
)
changes = st.tuples(st.sampled_from(["cut", "off", "even", "swap"]), near, near).map(
    lambda parts: "{},from={},to={}".format(*parts)
)
texts = right | written | changes | st.sampled_from(ODD) | st.text(max_size=20)
numbers = st.sampled_from([*NUMBERS.values()]) | near | st.integers()
TYPES = {int: numbers, str: texts, bool: st.booleans()}


def sent(acts):
    """The acts of a component, mostly with fields of the right types."""
    whole = [
        st.fixed_dictionaries({"do": st.just(what)} | {name: TYPES[kind] for name, kind in fields.items()})
        for what, fields in acts.items()
    ]
    broken = [
        st.fixed_dictionaries({"do": st.just(what)}, optional=dict.fromkeys(fields, values))
        for what, fields in acts.items()
    ]
    return st.one_of(*whole, *whole, *broken, values)


messages = st.one_of(
    st.tuples(st.just("desk"), st.none(), sent(desk.ACTS)),
    st.tuples(st.just("seat"), st.integers(0, 1), sent(seat.ACTS)),
    st.tuples(st.just("screen"), st.integers(0, 1), sent(screen.ACTS)),
)


@pytest.mark.slow
@settings(
    max_examples=MESSAGES // EACH,
    derandomize="HEADSCOPE_FUZZ" not in os.environ,
    phases=[Phase.generate],  # a failure is not made smaller, which takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(messages, min_size=EACH, max_size=EACH))
def test_whatever_is_sent_the_class_goes_on_and_no_answer_changes(rooms, click, component, monkeypatch, sent):
    failures: list[BaseException] = []
    monkeypatch.setattr(logs, "failure", lambda error: failures.append(error) or "0")
    for quota in (of_server.WRONG_CODES, of_server.PLACES):
        quota.times.clear()
    room = rooms.open(Lesson.read(FILE, "nine"))
    opened = rooms.desk(*room)

    def new_desk():
        app = run(FRAME, {"desk": room.code}, PAGE)
        app.session_state[opening.SECRETS] = {room.code: room.secret}
        return app.run()

    def new_seat():
        return run(FRAME, {"room": rooms.invitation(room.code)}, PAGE)

    at_desk, seats = new_desk(), [new_seat(), new_seat()]
    seats = [click(one, "room", {"do": "join", "name": "", "asked": ""}, event="acted") for one in seats]
    tokens = [one.session_state[seat.TOKENS][room.code] for one in seats]
    kept: dict = {}
    for where, number, act in sent:
        if where == "desk":
            at_desk = click(at_desk, "desk", act, event="acted").run()
            if not at_desk.query_params.get("desk") or at_desk.query_params.get("projector"):
                at_desk = new_desk()
            assert component(at_desk, "desk")["place"]
        else:
            app, key = seats[number], "room" if where == "seat" else "lesson"
            try:
                app.get_by_key(key)
            except KeyError:  # the door, or the end of the lesson
                key = "room"
            app = click(app, key, act, event="acted")
            if not app.query_params.get("room"):
                app = new_seat()
            if seat.TOKENS not in app.session_state or room.code not in app.session_state[seat.TOKENS]:
                app = click(app, "room", {"do": "enter", "token": tokens[number]}, event="acted")
            seats[number] = app
            assert component(app, "room")["you"]
        assert not failures, (where, act, failures)
        now = {(one.student, one.screen, one.vote): one.answer for one in opened.answers()}
        assert {at: now.get(at) for at in kept} == kept
        kept = now
    assert len(rows(opened, items.trace)) == len(kept)
