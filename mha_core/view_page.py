"""The head view as a page of its own: its style and its scripts deflated, its numbers as letters.

A file is UTF-16, in which bytes take 3 % more than they are. What is handed on as text, as to a notebook, may
be written in any way later: its letters are ASCII and take 25 % more.
"""

import html
import json
import re
import struct
import zlib
from collections.abc import Mapping
from functools import cache

from mha_core import base85, bundled, utf16

# In this order they are one module.
SCRIPTS = (
    *("common.js", "attention.js", "direction.js", "eye.js", "sides.js", "curves.js", "more.js"),
    *("drawing.js", "lines.js", "arcs.js", "shaded.js", "window.js", "matrix_marks.js", "matrix.js"),
    *("save.js", "sharing.js", "chosen.js", "bar.js", "panel.js", "pointer.js", "keys.js", "head_view.js"),
)
STYLE = "head_view.css"
REMARK = re.compile(r"^\s*(?://.*|/\*[^*]*\*/\s*)\n", re.MULTILINE)
INDENT = re.compile(r"^\s+", re.MULTILINE)


def asset(name: str) -> str:
    return bundled.path("assets", "components", name).read_text(encoding="utf-8")


def script() -> str:
    """All scripts of the view as one module."""
    return "\n".join(asset(name) for name in SCRIPTS)


def bare(text: str) -> str:
    """A script or style without what only people read: remarks on lines of their own, and indents."""
    return INDENT.sub("", REMARK.sub("", text))


@cache
def page(sorry: str, *, ascii: bool = False) -> str:
    """A page without its numbers, for which ``__NUMBERS__`` stands.

    `sorry` is what a browser says that cannot unpack it. Its letters are those of `utf16`, or of `base85`.
    """
    how, reader = (base85, "base85.js") if ascii else (utf16, "utf16.js")
    program = bare(asset("page.css") + asset(STYLE)) + "\0" + bare(f"{script()}\n{asset('page.js')}")
    parts = {
        "OLD": html.escape(sorry),
        "PROGRAM": how.encoded(zlib.compress(program.encode(), 9)),
        "START": bare(asset(reader) + asset("page_start.js")),
    }
    return _filled(asset("page.html"), parts)


def filled(header: Mapping[str, object], blob: bytes, *, ascii: bool = False) -> str:
    """The whole page: header and blob as assets/components/page.js reads them."""
    said = zlib.compress(json.dumps(header).encode(), 9)
    how, inside = (base85 if ascii else utf16), struct.pack("<I", len(said)) + said + blob
    sorry = header["texts"]["old_browser"]
    return _filled(page(sorry, ascii=ascii), {"NUMBERS": how.encoded(inside)})


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """What is filled in is no template itself."""
    return re.sub(r"__([A-Z]+)__", lambda found: parts.get(found[1], found[0]), template)
