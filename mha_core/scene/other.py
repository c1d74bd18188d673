"""The other scene that a scene is compared with, as a link names it: ``against=h:1``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

UNTRAINED, TWIN, HEAD, MODEL = "untrained", "twin", "head", "model"
KINDS = (UNTRAINED, HEAD, "h", "mask", "position", "architecture", TWIN, MODEL)


class Other(NamedTuple):
    """What differs on the other side, and its value there; "" if there is no choice."""

    kind: str
    value: str = ""

    def link(self) -> str:
        return self.kind + (f":{self.value}" if self.value else "")


def read(link: str, offered: Mapping[str, Sequence[str]]) -> tuple[Other | None, bool]:
    """What a link names, and whether it is missing from what is `offered`: then the first offer is used.

    A second sentence is never that first offer, since its text field is shown only if a link names it.
    """
    kind, _, value = link.partition(":")
    if value in offered.get(kind, ()):
        return Other(kind, value), False
    first = kind if kind in offered else next((name for name in offered if name != TWIN), None)
    nearest = None if first is None else Other(first, offered[first][0])
    return nearest, bool(value or (link and kind not in offered))
