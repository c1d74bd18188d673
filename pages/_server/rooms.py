"""The rooms of this server: whether it offers any, their database, and the version that browsers poll."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from mha_core import MhaError, resources
from pages._server import logs
from pages._server.quotas import Most, Quota, address

if TYPE_CHECKING:
    from mha_core.lessons.lesson import Lesson
    from mha_core.room.rooms import Room, RoomKey, Rooms

ROOMS = resources.ROOMS
PATIENCE = 2.0  # seconds that a health check waits for the database
HEALTH_SECONDS = 5.0  # that the result of a health check is kept
LOG_SECONDS = 60.0  # between two lines of the log on a database that is away
CLEANING_SECONDS = 3600  # between two searches for expired rooms
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # addresses that a machine has for itself alone
SECRET = 8  # letters and digits of an invitation after its code
_lock = threading.Lock()
# Nobody finds rooms by guessing, fills one, or opens all that a server has. A school shares an address.
WRONG_CODES = Quota(
    lambda most: MhaError(
        "{most} wrong codes were typed from here within a minute, the limit. Wait a minute, or use the link "
        "or the QR code of your teacher.",
        most=most,
    ),
    Most(visitor=10, address=60, server=300),
    60,
)
PLACES = Quota(
    lambda most: MhaError(
        "{most} students joined from here within the last hour, which is the limit. Try again later.",
        most=most,
    ),
    Most(visitor=6, address=400, server=4_000),
    3_600,
)
OPENED = Quota(
    lambda most: MhaError(
        "{most} rooms were opened from here within the last hour, which is the limit. Try again later.",
        most=most,
    ),
    Most(visitor=6, address=30, server=300),
    3_600,
)
_opened: list["Rooms"] = []
_health: dict[str, float] = {}  # when the database was asked, and whether it took a row
_unavailable: list[float] = []  # when it did not take an act, since the last line of the log
# Separate threads, so that a database that hangs holds up no file, and no page that does not need it.
_polls = ThreadPoolExecutor(4, "rooms")


def offered() -> bool:
    """Whether this server offers rooms."""
    return os.environ.get(ROOMS, "") not in ("", "0")


def may_open() -> bool:
    """Whether this visitor may open rooms here: everybody, or on the machine of the server alone."""
    if os.environ.get(ROOMS) != resources.THIS_MACHINE:
        return offered()
    return address() in ("", "127.0.0.1", "::1", resources.address())


def for_others(page: str) -> str:
    """The address of a page as other machines of the network have it; itself where they have none."""
    parts = urlsplit(page)
    if parts.hostname not in LOOPBACK or st.get_option("server.address") in LOOPBACK:
        return page
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"{resources.address()}{port}").geturl()


def is_for_others(page: str) -> bool:
    """Whether other machines can open that address."""
    return urlsplit(page).hostname not in LOOPBACK


def is_overheard(page: str) -> bool:
    """Whether what this browser and that page send each other crosses a network unencrypted."""
    return urlsplit(page).scheme == "http" and is_for_others(page)


def rooms() -> "Rooms":
    """The rooms of this server; the first call opens their database.

    Raises `MhaError` if the extra is missing or the database cannot be opened.
    """
    with _lock:
        if not _opened:
            try:
                from mha_core.room.rooms import Rooms
            except ModuleNotFoundError as error:
                raise MhaError(
                    "Rooms need {name}, which is not installed: {command}",
                    name=error.name,
                    command=resources.install("room"),
                ) from None
            _opened.append(Rooms())
        return _opened[0]


def code_of(text: str) -> str:
    """The code in an invitation, or in what a person has typed."""
    return _parts(text)[0]


def find(text: str) -> "Room":
    """The room of an invitation, or of a code that a person has typed.

    Raises `MhaError` if there is none, and for any typed code of a visitor who has typed too many wrong ones.
    """
    opened = rooms()
    from mha_core.room.rooms import Unknown

    code, secret = _parts(text)
    if secret:  # it cannot be guessed, so wrong ones are not counted
        return opened.room(code if opened.is_invited(f"{code}-{secret}") else f"{code}-{secret}")
    WRONG_CODES.check()
    try:
        return opened.room(code)
    except Unknown:
        WRONG_CODES.count()
        raise


def join(code: str, name: str, asked: str) -> str:
    """Take a place in a room, as `Rooms.join`. Raises `MhaError` for a visitor who has taken too many."""
    PLACES.check()
    token = rooms().join(code, name, asked=asked)
    PLACES.count()
    return token


def open_room(*lessons: "Lesson", together: bool, days: int) -> "RoomKey":
    """Open a room, as `Rooms.open`. Raises `MhaError` for a visitor who has opened too many."""
    OPENED.check()
    key = rooms().open(*lessons, together=together, days=days)
    OPENED.count()
    return key


def _parts(text: str) -> tuple[str, str]:
    """The code and the secret of an invitation; for a code alone, the code as it was meant, and ""."""
    from mha_core.room.rooms import CODE_LENGTH, normalized

    code, _, secret = text.strip().upper().partition("-")
    if len(code) == CODE_LENGTH and len(secret) == SECRET:
        return code, secret
    return normalized(text), ""


async def clean() -> None:
    """Delete expired rooms and log how many are left, every hour while the server runs."""
    while offered():
        try:
            deleted = await run_in_threadpool(lambda: rooms().expire())
            logs.event("rooms", deleted=deleted, **await run_in_threadpool(lambda: rooms().counts()))
        except MhaError as error:  # tried again in an hour; a page that needs the rooms says why it has none
            logs.event("rooms", problem=str(error))
        await asyncio.sleep(CLEANING_SECONDS)


async def answer() -> bool:
    """Whether the database of the rooms takes answers in time; asked anew after `HEALTH_SECONDS`."""
    if time.monotonic() - _health.get("at", -HEALTH_SECONDS) >= HEALTH_SECONDS:
        _health["at"] = time.monotonic()
        try:
            await asyncio.wait_for(asyncio.to_thread(lambda: rooms().check()), PATIENCE)
            _health["well"] = 1.0
        except (MhaError, TimeoutError) as error:
            _health["well"] = 0.0
            logs.event("rooms", problem=str(error) or type(error).__name__)
    return bool(_health["well"])


def note_unavailable(error: MhaError) -> None:
    """Count an act that the database did not take; the log has the count and the reason once a minute."""
    with _lock:
        _unavailable.append(time.monotonic())
        if len(_unavailable) > 1 and _unavailable[-1] - _unavailable[0] < LOG_SECONDS:
            return
        count = len(_unavailable)
        _unavailable[:] = _unavailable[-1:]
    logs.event("rooms", unavailable=count, problem=str(error))


async def version(request: Request) -> JSONResponse:
    """The version of the room of an invitation; a browser reruns its page when the version changes.

    An invitation cannot be guessed, so nobody finds rooms here by trying codes.
    """
    try:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(_polls, _version, request.path_params["invitation"])
    except MhaError:  # the database cannot be reached at the moment
        return JSONResponse({}, 503, {"cache-control": "no-store"})
    return JSONResponse({"version": found}, 200 if found else 404, {"cache-control": "no-store"})


def _version(invitation: str) -> int | None:
    """The version of the room; None if there is no such room, or no longer."""
    if not offered() or not rooms().is_invited(invitation):
        return None
    return rooms().version(invitation.partition("-")[0])
