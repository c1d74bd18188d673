"""Where the files that come with the library lie: in a checkout, or inside an installed wheel."""

import os
import tempfile
from pathlib import Path

OPENED = "HEADSCOPE_OPENED"  # of the environment: the saved trace that the app shows at first
LINK = "HEADSCOPE_LINK"  # of the environment: the link that the first visit of the app is sent to
LESSON = "HEADSCOPE_LESSON"  # of the environment: a lesson file that the page Lessons offers, too
RUNS = "HEADSCOPE_RUNS"  # of the environment: the folder of finished models, which servers may share
PACKAGE = Path(__file__).resolve().parent


def path(*parts: str) -> Path:
    """A file or folder of the checkout, ``path("assets", "weights")``, wherever it was installed to."""
    carried = PACKAGE / "_app"
    return (carried if carried.exists() else PACKAGE.parent).joinpath(*parts)


def runs() -> Path:
    """The folder of models that were trained here or opened from files: `HEADSCOPE_RUNS`, or in the cache."""
    if folder := os.environ.get(RUNS):
        return Path(folder)
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        cache = Path(tempfile.gettempdir())
    return cache / "headscope" / "runs"
