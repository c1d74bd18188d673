"""The cases of the gallery: each names a page, the values of the link that sets its scene, and a section."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlencode

import streamlit as st

from pages._kit.text import ASSETS, t

FIRST = "heads"  # the page without a path


@dataclass(frozen=True)
class Case:
    """A case: its name, the page that shows it, and what the link says beside.

    On a page that is longer than a screen its fact stands in a `section`, the anchor of a heading.
    """

    name: str
    page: str
    link: Mapping[str, str]
    section: str

    @property
    def address(self) -> str:
        """Where it opens, seen from the page of the cases."""
        path = "" if self.page == FIRST else self.page
        query = f"?{urlencode(self.link)}" if self.link else ""
        return f"./{path}{query}{f'#{self.section}' if self.section else ''}"


@cache
def cases() -> tuple[Case, ...]:
    """The cases in their order."""
    entries = json.loads((ASSETS / "cases.json").read_text(encoding="utf-8"))
    return tuple(
        Case(entry.pop("case"), entry.pop("page"), section=entry.pop("section", ""), link=entry)
        for entry in entries
    )


def card(number: int, case: Case) -> None:
    """What the case shows, as the link that opens it, and what to notice there."""
    st.header(f"{number}. [{t(f'case.{case.name}.title')}]({case.address})", anchor=False)
    st.markdown(t(f"case.{case.name}.notice"))
