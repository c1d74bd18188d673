"""The link that a run opens: read once, with what is used in place of each value that it cannot have."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from math import isinf
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace, Tokens
from mha_core.focus import token_names
from mha_core.focus.fields import CHARACTERS
from mha_core.focus.focus import Focus
from mha_core.scene.link import NUMBERS, WEIGHTS, WITH_HEADS, is_older
from mha_core.scene.page import PAGES, SEPARATOR
from mha_core.scene.places import clamped, shape_of
from mha_core.scene.scene import DEFAULTS, NESTED, Opened, Scene, scene_of_values
from pages._kit import choice, compute, model_source
from pages._kit.text import LANG, joined, language, languages, literal, paragraph, t
from pages._server import limits, streamlit_parts

CONTROLS = tuple(field.name for field in fields(Scene) if field.name not in NESTED)  # each has its control
# The fields of pages among which the numbers are; of the others, any text can be meant.
OWN_NUMBERS = {"component"}.union(*(PAGES[page] for page in ("steps", "cost", "train", "model")))
GARBLED = "amp;"  # the beginning of a name where a mail has made "&amp;" of an "&"
MAX_SENTENCES = 2  # side by side
MAX_QUOTED = 40  # characters of a wrong value
OF_SENTENCE = ("token", "key_token", "pins")  # fields whose values are words of the sentence
TEXTS = ("text", "twin", "target")  # they share one length limit
SIZES = ("h", "d_model", "d_k", "d_v", "n_kv_heads", "layers")  # each has a figure in `Limits`
WORDS = {"source": "source.", "drawing": "head_view.draw_"}  # fields whose values are words on screen
REPLACED = "replaced"  # values that the page uses in place of those of the link (state.say_instead)
SHAPES = "shapes"  # the number of heads by layer, for each of the traces that the page compares (pair.py)

Replacements = Mapping[str, tuple[str, object]]  # a field's value in the link, and the one used instead


def max_values() -> dict[str, int]:
    """The largest values that the controls offer: what one page can show and one server can share."""
    figures = limits.current()
    return {name: getattr(figures, name) if name in SIZES else one.most for name, one in NUMBERS.items()}


def max_characters() -> int:
    """The longest text accepted from a field or a link."""
    return limits.current().characters


def offered_sources() -> list[str]:
    """The sources that have something to show, and the one that the link or the session names."""
    held, link = st.session_state, st.query_params
    asked = held.get("source", link.get("source"))
    has_run = held.get("runs") or held.get("run") or link.get("run")
    offered = {"run": bool(has_run and compute.run_names()), "model": model_source.offers_models()}
    return [source for source in compute.SOURCES if source == asked or offered.get(source, True)]


class OpenedLink(NamedTuple):
    """A link as it was opened: its values by name, and their scene with the values that were refused."""

    values: Mapping[str, str]
    result: Opened

    @classmethod
    def read(cls) -> "OpenedLink":
        """Read the link in the address; the values of a repeated field are joined by commas."""
        given = {name: SEPARATOR.join(st.query_params.get_all(name)) for name in st.query_params}
        return cls(given, scene_of_values(given, max_values() | {CHARACTERS: max_characters()}))

    def refused(self) -> Replacements:
        """The values that no control or focus can have here, each with the one that is used instead."""
        link, now = self.values, st.session_state.get("file")
        found: dict[str, tuple[str, object]] = {
            name: (value, model_source.usual_dtype() if name == "dtype" else taken)
            for name, value, _, taken in self.result.refused
        }
        if link.get("source", DEFAULTS.source) not in offered_sources():
            found["source"] = link["source"], DEFAULTS.source
        if link.get(LANG, language()) not in languages():
            found[LANG] = link[LANG], language()
        if link.get("number") and self.result.scene.focus.matrix in ("", "none"):  # a number of none
            found.setdefault("number", (link["number"], None))
        if link.get("file", "") not in ("", now):  # a file is open for one visit
            found["file"] = link["file"], now
        found |= {name: (value, None) for name, value in link.items() if name.startswith(GARBLED)}
        if link.get("source") == "model" and link.get("model"):
            found |= self._refused_model(link["model"])
        return found

    def _refused_model(self, name: str) -> Replacements:
        if not model_source.is_offered(name):
            return {"model": (name, next(iter(model_source.local_models()), None))}
        asked = self.values.get("revision")
        taken = model_source.revision_of(replace(DEFAULTS, model=name, revision=asked)) if asked else None
        return {"revision": (asked, taken)} if asked and taken != asked else {}

    def begin_controls(self) -> None:
        """Start each control with the value used in place of a refused value of the link."""
        names = {one.name for one in self.result.refused} & {*CONTROLS}
        for name in names | self.values.keys() & {*WITH_HEADS}:
            taken = getattr(self.result.scene, name)
            if str(taken) != self.values[name]:
                streamlit_parts.begin_with(name, None if taken in (None, "") else str(taken))
        for name in self.values.keys() & OWN_NUMBERS:
            with suppress(ValueError):
                if isinf(float(self.values[name].rpartition(SEPARATOR)[2])):  # Streamlit raises for it
                    streamlit_parts.begin_with(name, None)

    def replaced(self, trace: AttentionTrace | None) -> Replacements:
        """The values that the drawn page has replaced: those beyond its `trace`, and its own fields."""
        link, asked, held = self.values, self.result.scene.focus, st.session_state
        found: dict[str, tuple[str, object]] = {}
        if trace is not None:
            found |= self._beyond(clamped(asked, held.get(SHAPES) or [shape_of(trace)]))
            found |= self._not_in_sentence(trace)
        shared = {*CONTROLS, *asked.link()} - {"kind"}
        own = {name: held[name] for name in link if name in held and name not in shared}
        for name, value in own.items():
            if isinstance(value, str | int | float | list | None) and not _is_same(link[name], value):
                found[name] = link[name], value
        by_page = held.get(REPLACED, {})
        return found | {name: (link[name], by_page[name]) for name in link if name in by_page}

    def _beyond(self, taken: Focus) -> Replacements:
        """The numbers that are beyond the last layer, head or sentence."""
        asked = self.result.scene.focus
        if asked.sentence > MAX_SENTENCES:
            twin = st.session_state.get("twin") or ""
            taken = replace(taken, sentence=MAX_SENTENCES if twin.strip() else 1)
        was, now = asked.link(), taken.link()
        return {
            name: (value, now[name])
            for name, value in self.values.items()
            if name in was and was[name] != now[name]
        }

    def _not_in_sentence(self, trace: AttentionTrace) -> Replacements:
        """The words and token numbers that are not in the sentence."""
        asked, now, sides = self.result.scene.focus, st.session_state["focus"], trace.sides
        if asked.sentence == MAX_SENTENCES:  # its words belong to the other sentence, which the browser has
            return {}
        pins = sides.keys if asked.side == "key" else sides.queries
        words = {
            "token": (sides.queries, [asked.token]),
            "key_token": (sides.keys, [asked.key_token]),
            "pins": (pins, asked.pins.split()),
        }
        return {
            name: (self.values[name], getattr(now, name))
            for name, (tokens, named) in words.items()
            if name in self.values and any(not _is_in(tokens, one) for one in named if one)
        }


def say(found: Replacements, line: DeltaGenerator) -> None:
    """One line on the values that a link cannot have."""
    if found:
        line.caption(paragraph(_in_words(name, *values) for name, values in found.items()))


def _in_words(name: str, value: str, taken: object) -> str:
    """One value of a link, and the one that is used instead, as a sentence."""
    if name == WEIGHTS:
        return t("link.older_weights") if is_older(value) else t("link.other_weights")
    if name.startswith(GARBLED):
        return t("link.garbled", name=literal(name[:MAX_QUOTED]), value=literal(value[:MAX_QUOTED]))
    other = joined(map(str, taken)) if isinstance(taken, list) else taken
    is_none = other in (None, "")
    other = t("link.none") if is_none else _on_screen(name, str(other))
    if not is_none and (name in OF_SENTENCE or not any(map(str.isalnum, other))):
        other = f"“{other}”"  # a word or a mark would be read as one of the note
    words = {"name": name, "value": literal(value[:MAX_QUOTED]) or t("link.none"), "taken": literal(other)}
    if name in TEXTS and len(value) > max_characters():
        return t("link.too_much", most=t("link.characters", count=f"{max_characters():,}"), **words)
    most = max_values().get(name)
    if most is not None and value.isascii() and value.isdecimal():
        number = token_names.as_number(value)  # None for a number of more than 18 digits
        if number is None or number > most:
            return t("link.too_much", most=f"{most:,}", **words)
    return t("link.refused", **words)


def _on_screen(name: str, value: str) -> str:
    """The word for a value that its control shows."""
    if name in choice.WORDED:
        return choice.word(name, value)
    return t(f"{WORDS[name]}{value}") if name in WORDS else value


def _is_in(tokens: Tokens, name: str) -> bool:
    if name.isascii() and name.isdecimal():  # a number beyond the end is replaced by the last one
        return 0 < (token_names.as_number(name) or 0) <= len(tokens)
    return token_names.position(tokens, name) is not None


def _is_same(text: str, value: str | float | list | None) -> bool:
    """Whether a value of a link is that of a control."""
    if isinstance(value, list):
        return sorted(map(str, value)) == sorted(filter(None, text.split(SEPARATOR)))
    if value is None:
        return not text
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    with suppress(ValueError):
        return text == value if isinstance(value, str) else float(text) == value
    return False
