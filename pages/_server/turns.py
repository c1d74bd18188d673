"""Runs heavy work one at a time, in the order of the requests. Visitors who wait see their position."""

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
HEAVY_BYTES = 16_000_000  # a larger trace waits for its turn; others are computed at once
POLL_SECONDS = 0.5  # between two checks that the visitor who waits is still there


class Turns:
    """A queue of at most `max_waiting`; two tasks at once would need twice the memory and save no time."""

    def __init__(self, max_waiting: int):
        self.max_waiting = max_waiting
        self.queue: deque[object] = deque()  # of the tasks that run or wait
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, show: Callable[[int], None]) -> Iterator[None]:
        """Wait for a turn, and hold it for the length of the block.

        While others are ahead, `show` is called again and again with their number; an exception from it ends
        the waiting. Raises `MhaError` if too many are waiting.
        """
        ticket = object()
        with self._changed:
            if len(self.queue) > self.max_waiting:
                raise MhaError(
                    "{n} long texts or effects are computed or wait for it; at most "
                    "{limit} wait. Come back in a minute, or take a shorter text.",
                    n=len(self.queue),
                    limit=self.max_waiting,
                )
            self.queue.append(ticket)
        try:
            while ahead := self._count_ahead(ticket):
                show(ahead)
            yield
        finally:
            with self._changed:
                self.queue.remove(ticket)
                self._changed.notify_all()

    def _count_ahead(self, ticket: object) -> int:
        with self._changed:
            if self.queue[0] is not ticket:
                self._changed.wait(POLL_SECONDS)
            return self.queue.index(ticket)


heavy_work = Turns(limits.current().heavy_waiting)


def in_turn(function: Callable[[], Result]) -> Result:
    """The result of a function that is called when its turn comes; until then the page shows its position.

    The function may not wait for a turn itself. Raises `MhaError` if too many are waiting.
    """
    notice = st.empty()

    def show(count: int) -> None:
        notice.info(t("long.waiting", count=count), icon=":material/hourglass_top:")

    with heavy_work.turn(show), notice, st.spinner(t("long.computing")):
        result = function()
    notice.empty()
    return result
