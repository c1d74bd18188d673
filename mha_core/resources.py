"""The version of the library, and the files that come with it, in a checkout or in an installed wheel."""

import os
import tempfile
from pathlib import Path

VERSION = "0.1.0"
OPENED = "HEADSCOPE_OPENED"  # environment variable: the saved trace that the app opens first
LINK = "HEADSCOPE_LINK"  # environment variable: the link that the first visit opens
LESSON = "HEADSCOPE_LESSON"  # environment variable: a lesson file that the page Lessons also offers
ATLAS = "HEADSCOPE_ATLAS"  # environment variable: the folder of an atlas that the app also has
ROOMS = "HEADSCOPE_ROOMS"  # environment variable: "1" on a server that offers rooms
RUNS = "HEADSCOPE_RUNS"  # environment variable: the folder of finished models, which servers may share
PACKAGE = Path(__file__).resolve().parent


def path(*parts: str) -> Path:
    """The path of a file or folder of the checkout, ``path("assets", "weights")``, also in a wheel."""
    carried = PACKAGE / "_app"
    return (carried if carried.exists() else PACKAGE.parent).joinpath(*parts)


def runs() -> Path:
    """The folder of models trained here or opened from files: `HEADSCOPE_RUNS`, or in the user's cache."""
    if folder := os.environ.get(RUNS):
        return Path(folder)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home folder
        cache = Path(tempfile.gettempdir())
    return cache / "headscope" / "runs"
