"""The version of the library, and the files that come with it, in a checkout or in an installed wheel."""

import json
import os
import socket
import sys
import tempfile
from pathlib import Path

VERSION = "0.1.0"
# Environment variables, and what they hold.
OPENED = "HEADSCOPE_OPENED"  # the saved trace that the app opens first
LINK = "HEADSCOPE_LINK"  # the link that the first visit opens
LESSON = "HEADSCOPE_LESSON"  # a lesson file that the page Lessons also offers
ATLAS = "HEADSCOPE_ATLAS"  # the folder of an atlas that the app also has
ROOMS = "HEADSCOPE_ROOMS"  # "1" on a server that offers rooms, or `THIS_MACHINE`
THIS_MACHINE = "this machine"  # rooms are opened on the machine of the server alone
HOSTED = "HEADSCOPE_HOSTED"  # "1" on a server for strangers
RUNS = "HEADSCOPE_RUNS"  # the folder of finished models, which servers may share
PACKAGE = Path(__file__).resolve().parent


def path(*parts: str) -> Path:
    """The path of a file or folder of the checkout, ``path("assets", "weights")``, also in a wheel."""
    carried = PACKAGE / "_app"
    return (carried if carried.exists() else PACKAGE.parent).joinpath(*parts)


def install(extra: str) -> str:
    """The command that installs an extra from where Headscope came: a checkout, a wheel or an index."""
    if (PACKAGE.parent / "pyproject.toml").exists():
        return f'{sys.executable} -m pip install -e "{PACKAGE.parent}[{extra}]"'
    origin: dict = {}  # as pip notes it beside the package (PEP 610)
    for file in PACKAGE.parent.glob("headscope-*.dist-info/direct_url.json"):
        origin = json.loads(file.read_text("utf-8"))
    url = origin.get("url", "")
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        url = f"git+{url}@{commit}"
    return f'{sys.executable} -m pip install "headscope[{extra}]{f" @ {url}" if url else ""}"'


def runs() -> Path:
    """The folder of models trained here or opened from files: `HEADSCOPE_RUNS`, or in the user's cache."""
    if folder := os.environ.get(RUNS):
        return Path(folder)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home folder
        cache = Path(tempfile.gettempdir())
    return cache / "headscope" / "runs"


def address() -> str:
    """The address of this machine on its network, from which it would send; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("10.254.254.254", 1))
        except OSError:  # without a network
            return "127.0.0.1"
        return asked.getsockname()[0]
