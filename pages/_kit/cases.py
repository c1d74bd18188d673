"""The cases, which are scenes that show one fact each, and the case that the open page belongs to."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import streamlit as st

from mha_core.focus.token_names import as_number
from mha_core.scene import page
from mha_core.scene.scene import Scene
from pages._kit import components, state
from pages._kit.text import ASSETS, DEFAULT, in_link, language, t

FIELD = "case"  # in an address: the number of the case that it opens
EMPHASIS = re.compile(r"\*(.+?)\*")
HEIGHT = 84  # pixels, until it is drawn

_case = components.component("case", "streamlit/case.js", "streamlit/case.css")


@dataclass(frozen=True)
class Case:
    """A case: its number, its name, and the link to its scene in each language.

    A link may lead to a heading on a long page. A language without a link of its own has the English one.
    """

    number: int
    name: str
    links: Mapping[str, str]

    @property
    def link(self) -> str:
        return self.links.get(language(), self.links[DEFAULT])

    @property
    def scene(self) -> Scene:
        return Scene.of_link(self.link).scene

    @property
    def title(self) -> str:
        return t(f"case.{self.name}.title")

    @property
    def notice(self) -> str:
        """A sentence that says what to notice."""
        return t(f"case.{self.name}.notice")

    @property
    def address(self) -> str:
        """The relative address that opens it from any page."""
        parts = page.parts(self.link)
        values = {**parts.values, FIELD: str(self.number), **in_link()}
        return f"./{page.compose(parts._replace(values=values))}"


@cache
def cases() -> tuple[Case, ...]:
    """The cases in their order."""
    entries = json.loads((ASSETS / "cases.json").read_text(encoding="utf-8"))
    return tuple(
        Case(number, one["case"], {DEFAULT: one["link"], **one.get("links", {})})
        for number, one in enumerate(entries, start=1)
    )


def show() -> None:
    """At the top of a page that was opened by a case: what to notice, and the cases beside it."""
    number, count = as_number(st.query_params[FIELD]) or 0, len(cases())
    if not 0 < number <= count:
        state.say_instead(FIELD, None)
        return
    case = cases()[number - 1]
    beside = {"previous": number - 1, "next": number + 1}
    _case(
        key="case",
        data={
            "place": t("cases.place", number=number, count=count),
            "title": EMPHASIS.split(case.title),
            "notice": EMPHASIS.split(case.notice),
            "beside": [
                {
                    "text": t(f"cases.{name}"),
                    "title": EMPHASIS.sub(r"\1", cases()[at - 1].title),
                    "href": cases()[at - 1].address,
                }
                for name, at in beside.items()
                if 0 < at <= count
            ],
            "leave": t("cases.leave"),
            "field": FIELD,
        },
        height=HEIGHT,
    )
