"""The rooms of this server: whether it offers any, their database, and the version that browsers poll."""

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
PATIENCE = 2.0  # seconds that a health check waits for the database
CLEANING_SECONDS = 3600  # between two searches for expired rooms
MAX_WRONG = 60  # wrong codes a minute on the whole server, so that nobody finds rooms by guessing
MINUTE = 60.0
SECRET = 8  # letters and digits of an invitation after its code
_lock = threading.Lock()
_wrong: deque[float] = deque()  # when the latest wrong codes were typed
_opened: list["Rooms"] = []
# Separate threads, so that a database that hangs holds up no file, and no page that does not need it.
_polls = ThreadPoolExecutor(4, "rooms")


def offered() -> bool:
    """Whether this server offers rooms."""
    return os.environ.get(ROOMS, "") not in ("", "0")


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

    Raises `MhaError` if there is none, and for any typed code once too many were wrong within a minute.
    """
    opened = rooms()
    from mha_core.room.rooms import Unknown

    code, secret = _parts(text)
    if secret:  # it cannot be guessed, so wrong ones are not counted
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
    """Whether the database of the rooms answers in time."""
    try:
        await asyncio.wait_for(asyncio.to_thread(lambda: rooms().check()), PATIENCE)
    except (MhaError, TimeoutError):
        return False
    return True


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
