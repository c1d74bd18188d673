"""Long texts are computed one at a time: visitors see their place, and leaving gives it back."""

import threading
from contextlib import ExitStack

import pytest

from mha_core import MhaError
from pages._kit import compute
from pages._server import turns
from pages._server.turns import Turns

LONG = " ".join(f"w{number}" for number in range(40))


@pytest.fixture
def other(monkeypatch):
    """Another visitor, who has a turn from `other.enter_context(queue.turn(print))` until `other.close()`."""
    monkeypatch.setattr(turns, "POLL_SECONDS", 0.01)
    with ExitStack() as held:
        yield held


def test_turns_are_in_order_and_places_count_down(other):
    queue, places, order = Turns(5), {}, []
    other.enter_context(queue.turn(print))

    def wait(name: int, next_one: threading.Event):
        def show(place):
            places.setdefault(name, []).append(place)
            next_one.set()

        with queue.turn(show):
            order.append(name)

    threads = []
    for name in range(3):
        waits = threading.Event()
        threads.append(threading.Thread(target=wait, args=(name, waits)))
        threads[-1].start()
        assert waits.wait(60)
    other.close()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]
    assert [seen[0] for seen in places.values()] == [1, 2, 3]
    assert all(seen == sorted(seen, reverse=True) for seen in places.values())


class Left(BaseException):
    """Raised as Streamlit ends a run whose visitor has left or requested something else."""


def test_leaving_frees_the_place_and_too_many_are_refused(other):
    queue = Turns(1)
    other.enter_context(queue.turn(print))

    def in_vain(place):
        pytest.fail("more wait than may")

    def leave(place):
        if place == 1:
            with pytest.raises(MhaError, match=r"2 long texts .* at most 1 wait"), queue.turn(in_vain):
                pass
            raise Left

    for _ in range(2):
        with pytest.raises(Left), queue.turn(leave):
            pytest.fail("it is not its turn")
    other.close()
    with queue.turn(lambda place: pytest.fail("nobody is before")):
        pass


def test_a_waiting_visitor_sees_the_place_and_then_the_result(other, monkeypatch, english):
    queue, seen = Turns(1), []
    monkeypatch.setattr(turns, "heavy_work", queue)

    def info(said: str, **_: str) -> None:
        seen.append(said)
        other.close()

    place = turns.st.empty()
    monkeypatch.setattr(place, "info", info)
    monkeypatch.setattr(turns.st, "empty", lambda: place)
    other.enter_context(queue.turn(print))
    assert turns.in_turn(lambda: len(queue.queue)) == 1
    assert set(seen) == {english("long.waiting", count=1)}
    assert not queue.queue


def test_a_long_text_waits_for_its_turn_unless_cached(opened, other, monkeypatch):
    monkeypatch.setattr(turns, "heavy_work", Turns(0))
    monkeypatch.setattr(compute, "is_large", lambda scene, text: text == LONG)
    compute.caches["large traces"].clear()
    link = {"source": "random", "text": LONG, "twin": "", "h": 2, "d_model": 8}
    assert not opened(**link).error
    other.enter_context(turns.heavy_work.turn(print))
    assert not opened(**link).error
    [refusal] = (error.value for error in opened(**link | {"h": 1}).error)
    assert "at most 0 wait" in refusal
    short = opened(**link | {"text": "a b"})
    assert not short.error
    compute.caches["large traces"].clear()
