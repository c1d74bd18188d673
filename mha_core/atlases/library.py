"""The atlases at hand: the one that the app was opened with, and the summaries that come with Headscope."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mha_core import resources
from mha_core.atlases.query import Atlas
from mha_core.traces.source import Source

FOLDER = ("assets", "atlases")
_opened = cache(Atlas)


def atlases() -> Iterator[Atlas]:
    """All atlases at hand, the one in the folder `HEADSCOPE_ATLAS` first, the others by their names."""
    if folder := os.environ.get(resources.ATLAS):
        yield _opened(Path(folder))
    for path in sorted(resources.path(*FOLDER).iterdir()):
        if path.is_dir():
            yield _opened(path)


def of(source: Source) -> Atlas | None:
    """The first atlas of the model that a trace comes from; None without one."""
    return next((atlas for atlas in atlases() if atlas.is_of(source)), None)
