"""Runs heavy work one at a time, in the order of the requests. Visitors who wait see their place."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import streamlit as st

from mha_core import MhaError
from pages._kit.text import t
from pages._server import limits

Result = TypeVar("Result")
HEAVY_BYTES = 16_000_000  # of a trace that takes its turn; a smaller one is computed at once
POLL_SECONDS = 0.5  # between two looks at whether the one who waits is still there


class Turns:
    """A queue of at most `max_waiting`: two at once would need twice the memory and save no time."""

    def __init__(self, max_waiting: int):
        self.max_waiting = max_waiting
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """How many have their turn or wait for it."""
        return len(self._queue)

    @contextmanager
    def turn(self, show: Callable[[int], None]) -> Iterator[None]:
        """Wait for one's turn, and have it for the length of the block.

        `show` is called with the number of those before one, again and again while there are any; what it
        raises ends the waiting. Raises `MhaError` where too many are waiting.
        """
        ticket = object()
        with self._changed:
            if len(self._queue) > self.max_waiting:
                raise MhaError(
                    "{n} long texts or effects are computed or wait for it; at most "
                    "{limit} wait. Come back in a minute, or take a shorter text.",
                    n=len(self._queue),
                    limit=self.max_waiting,
                )
            self._queue.append(ticket)
        try:
            while place := self._place(ticket):
                show(place)
            yield
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _place(self, ticket: object) -> int:
        with self._changed:
            if self._queue[0] is not ticket:
                self._changed.wait(POLL_SECONDS)
            return self._queue.index(ticket)


heavy_work = Turns(limits.current().heavy_waiting)


def in_turn(function: Callable[[], Result]) -> Result:
    """What the function returns, called when it is its turn; the page shows the place meanwhile.

    The function may not wait for a turn itself. Raises `MhaError` where too many are waiting.
    """
    place = st.empty()

    def show(count: int) -> None:
        place.info(t("long.waiting", count=count), icon=":material/hourglass_top:")

    with heavy_work.turn(show), place, st.spinner(t("long.computing")):
        result = function()
    place.empty()
    return result
