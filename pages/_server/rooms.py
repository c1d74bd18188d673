"""The rooms of this server: whether it has any, its database, and what browsers ask of a room in between."""

import asyncio
import os
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from mha_core import MhaError, resources
from pages._server import logs

if TYPE_CHECKING:
    from mha_core.room.rooms import Room, Rooms

ROOMS = resources.ROOMS
PATIENCE = 2.0  # seconds that the health of the server waits for the database
CLEANED = 3600  # seconds between two looks for rooms whose time is over
MAX_WRONG = 60  # codes that are typed wrong, a minute, on the whole server: so nobody finds rooms by trying
MINUTE = 60.0
SECRET = 8  # letters and digits of an invitation after its code
_lock = threading.Lock()
_wrong: deque[float] = deque()  # when the latest of them were typed
_opened: list["Rooms"] = []
# Of their own, so that a database that hangs holds back no file and no page that needs none.
_looks = ThreadPoolExecutor(4, "rooms")


def offered() -> bool:
    """Whether this server offers rooms."""
    return os.environ.get(ROOMS, "") not in ("", "0")


def rooms() -> "Rooms":
    """The rooms of this server, whose database is opened by the first who asks.

    Raises `MhaError` where the extra is missing or the database cannot be opened.
    """
    with _lock:
        if not _opened:
            try:
                from mha_core.room.rooms import Rooms
            except ModuleNotFoundError as error:
                raise MhaError(
                    "Rooms need {name}, which is not installed: pip install 'headscope[room]'.",
                    name=error.name,
                ) from None
            _opened.append(Rooms())
        return _opened[0]


def code_of(text: str) -> str:
    """The code in an invitation, or in what a person has typed."""
    return _parts(text)[0]


def find(text: str) -> "Room":
    """The room of an invitation, or of a code that a person has typed.

    Raises `MhaError` where there is none, and for any typed code once too many were wrong within a minute.
    """
    opened = rooms()
    from mha_core.room.rooms import Unknown

    code, secret = _parts(text)
    if secret:  # cannot be guessed, so that trying tells nothing
        return opened.room(code if opened.is_invited(f"{code}-{secret}") else f"{code}-{secret}")
    with _lock:
        while _wrong and _wrong[0] <= time.monotonic() - MINUTE:
            _wrong.popleft()
        if len(_wrong) >= MAX_WRONG:
            raise MhaError(
                "{most} wrong codes were typed on this server within a minute, its limit. Wait a minute, or "
                "use the link or the QR code of your teacher.",
                most=MAX_WRONG,
            )
    try:
        return opened.room(code)
    except Unknown:
        with _lock:
            _wrong.append(time.monotonic())
        raise


def _parts(text: str) -> tuple[str, str]:
    """The code and the secret part of an invitation; without one, the code that was meant, and ""."""
    from mha_core.room.rooms import CODE_LENGTH, normalized

    code, _, secret = text.strip().upper().partition("-")
    if len(code) == CODE_LENGTH and len(secret) == SECRET:
        return code, secret
    return normalized(text), ""


async def clean() -> None:
    """Delete the rooms whose time is over, and note how many there are, every hour while the server runs."""
    while offered():
        try:
            deleted = await run_in_threadpool(lambda: rooms().expire())
            logs.event("rooms", deleted=deleted, **await run_in_threadpool(lambda: rooms().counts()))
        except MhaError as error:  # tried again in an hour; a page that needs the rooms says why it has none
            logs.event("rooms", problem=str(error))
        await asyncio.sleep(CLEANED)


async def answer() -> bool:
    """Whether the database of the rooms answers in time."""
    try:
        await asyncio.wait_for(asyncio.to_thread(lambda: rooms().check()), PATIENCE)
    except (MhaError, TimeoutError):
        return False
    return True


async def version(request: Request) -> JSONResponse:
    """The version of a room by its invitation: a browser asks the page anew when it is another.

    An invitation cannot be guessed, so that nobody finds rooms here by their codes.
    """
    try:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(_looks, _version, request.path_params["invitation"])
    except MhaError:  # the database, for a moment
        return JSONResponse({}, 503, {"cache-control": "no-store"})
    return JSONResponse({"version": found}, 200 if found else 404, {"cache-control": "no-store"})


def _version(invitation: str) -> int | None:
    """None where there is no such room, or no longer."""
    if not offered() or not rooms().is_invited(invitation):
        return None
    return rooms().version(invitation.partition("-")[0])
