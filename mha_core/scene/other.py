"""The one other scene that a scene is compared with, as a link names it: ``against=h:1``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

UNTRAINED, TWIN, HEAD, MODEL = "untrained", "twin", "head", "model"
KINDS = (UNTRAINED, HEAD, "h", "mask", "position", "architecture", TWIN, MODEL)


class Other(NamedTuple):
    """What is different on the other side, and the value it has there; "" where there is no choice."""

    kind: str
    value: str = ""

    def link(self) -> str:
        return self.kind + (f":{self.value}" if self.value else "")


def read(link: str, offered: Mapping[str, Sequence[str]]) -> tuple[Other | None, bool]:
    """What a link names, and whether it names what is not `offered`: then it is the first that is.

    The second sentence is none of those: the field for it stands where a link names it.
    """
    kind, _, value = link.partition(":")
    if value in offered.get(kind, ()):
        return Other(kind, value), False
    first = kind if kind in offered else next((name for name in offered if name != TWIN), None)
    return first and Other(first, offered[first][0]), bool(value or (link and kind not in offered))
