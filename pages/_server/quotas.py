"""How often one visitor, one address and all visitors together may do something within a time.

A class shares an address, so an address may do more than a visitor; a stranger with many pages has one, too.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from secrets import token_hex
from typing import NamedTuple

import streamlit as st

from mha_core import MhaError

MAX_ADDRESSES = 10_000  # that are remembered
VISITOR = "visitor"  # in the session: a name for it


class Most(NamedTuple):
    """The most times for one page of a visitor, for one address, and for the whole server."""

    visitor: int
    address: int
    server: int


class Quota:
    """At most so many times within `seconds`; `refusal` is the error of whoever has used that number up."""

    def __init__(self, refusal: Callable[[int], MhaError], most: Most, seconds: float):
        self.refusal, self.most, self.seconds = refusal, most, seconds
        self.times: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises `MhaError` for whoever has used it up."""
        with self._lock:
            for who, most in self._counted():
                if len(self._recent(who)) >= most:
                    raise self.refusal(most)

    def count(self) -> None:
        """Count one time for this visitor."""
        with self._lock:
            for who, _ in self._counted():
                self._recent(who).append(time.monotonic())
            while len(self.times) > MAX_ADDRESSES:
                del self.times[next(iter(self.times))]

    def _counted(self) -> tuple[tuple[str, int], ...]:
        visitor = st.session_state.setdefault(VISITOR, token_hex(8))
        everybody = f"visitor {visitor}", f"address {address()}", "server"
        return tuple(zip(everybody, self.most, strict=True))

    def _recent(self, who: str) -> deque[float]:
        times = self.times.setdefault(who, deque())
        while times and times[0] <= time.monotonic() - self.seconds:
            times.popleft()
        return times


def address() -> str:
    """The address of this visitor; behind a proxy of this network, the one that asked the proxy."""
    peer = st.context.ip_address or ""
    forwarded = st.context.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    try:
        is_own = not peer or ip_address(peer).is_private
    except ValueError:
        is_own = False
    return forwarded if is_own and forwarded else peer
