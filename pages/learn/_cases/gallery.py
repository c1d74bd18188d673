"""The cases of the gallery: each is the link of a scene in which one fact can be seen."""

import json
from dataclasses import dataclass
from functools import cache

import streamlit as st

from mha_core.scene import link as grammar
from mha_core.scene.scene import Scene
from pages._kit.text import ASSETS, t


@dataclass(frozen=True)
class Case:
    """A case: its name, and the link of its scene, which may lead to a heading of a long page."""

    name: str
    link: str

    @property
    def scene(self) -> Scene:
        return Scene.of_link(self.link).scene

    @property
    def address(self) -> str:
        """Where it opens, seen from the page of the cases."""
        query = grammar.written(grammar.parts(self.link).items())
        place = grammar.of_page(self.scene.page.name, query, self.scene.page.section)
        return f"./{place.removesuffix('?')}"


@cache
def cases() -> tuple[Case, ...]:
    """The cases in their order."""
    entries = json.loads((ASSETS / "cases.json").read_text(encoding="utf-8"))
    return tuple(Case(entry["case"], entry["link"]) for entry in entries)


def card(number: int, case: Case) -> None:
    """What the case shows, as the link that opens it, and what to notice there."""
    st.header(f"{number}. [{t(f'case.{case.name}.title')}]({case.address})", anchor=False)
    st.markdown(t(f"case.{case.name}.notice"))
