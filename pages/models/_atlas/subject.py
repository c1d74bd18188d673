"""The subject of the page Atlas: an atlas, one of its heads, and the visitor's own sentence."""

from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis.frames import Origin
from mha_core.atlases import library
from mha_core.atlases.claims import Claim, claims
from mha_core.atlases.measures import ROLES
from mha_core.atlases.query import Atlas
from mha_core.scene.scene import DEFAULTS
from mha_core.traces.source import TrainedSource
from pages._kit import choice, compute, model_info, model_source, refusals, state
from pages._kit.text import language, t


class Subject(NamedTuple):
    """An atlas and the chosen head, from 0, and the trace of the visitor's sentence if it is of that model.

    `has_own` is False if there is no atlas for the model of the visitor's sentence.
    """

    atlas: Atlas
    layer: int
    head: int
    own: AttentionTrace | None
    has_own: bool

    @property
    def every_claim(self) -> dict[tuple[int, int], tuple[Claim, ...]]:
        return compute.once(self.atlas, claims)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims about the chosen head, the largest first."""
        return self.every_claim.get((self.layer, self.head), ())

    @property
    def name(self) -> str:
        return t("overview.name", layer=self.layer + 1, head=self.head + 1)

    @property
    def origin(self) -> Origin:
        """The source of the numbers, for the caption of a saved figure."""
        settings = self.atlas.manifest["settings"]
        sizes = {"h": settings.get("h"), "d_model": settings.get("d_model")}
        return Origin(source=self.atlas.source, note=_texts(self.atlas), **sizes)


def choose() -> Subject:
    """The chosen atlas and the head at which the scene looks.

    It is at first the atlas of the scene's model, else the first of the reader's language.
    """
    try:
        atlases = [*library.atlases()]
    except MhaError as error:
        refusals.show(error)
        st.stop()
    every = {atlas.folder.name: atlas for atlas in reversed(atlases)}  # of one name the first
    scene = state.current()  # its model may not be there, or cannot read the text
    trace = None if scene.source == "model" and not model_source.ready(scene) else compute.peek(scene)
    first = None if trace is None else library.of(trace.source)
    in_language = (atlas for atlas in atlases if getattr(atlas.source, "language", None) == language())
    choice.draw(
        st.selectbox,
        t("atlas.choose"),
        "atlas",
        [*reversed(every)],
        (first or next(in_language, atlases[0])).folder.name,
        words=lambda name: _name(every[name]),
        width=470,
    )
    atlas = every[st.session_state.atlas]
    heads, focus = atlas.manifest["heads"], state.focus()
    layer = _within("layer", focus.layer, len(heads))
    head = _within("head", focus.head, heads[layer - 1])
    own = trace if trace is not None and atlas.is_of(trace.source) else None
    return Subject(atlas, layer - 1, head - 1, own, has_own=trace is None or first is not None)


def _within(field: str, number: int, most: int) -> int:
    """A layer or a head of the scene, or the last one if the atlas has fewer."""
    if number > most:
        state.say_instead(field, most)
    return min(number, most)


def _name(atlas: Atlas) -> str:
    """The model of an atlas and its texts, in words."""
    source = atlas.source
    if not isinstance(source, TrainedSource):
        return f"{model_info.short(source.name)} · {_texts(atlas)}"
    kind = "usual" if source.architecture == DEFAULTS.architecture else "other"
    of_model = t(
        f"atlas.small_{kind}",
        architecture=choice.word("architecture", source.architecture),
        h=source.h,
        d_model=source.d_model,
        language=t(f"atlas.language.{source.language}"),
    )
    return f"{of_model} · {_texts(atlas)}"


def _texts(atlas: Atlas) -> str:
    return t(f"atlas.texts_{'made_up' if has_links(atlas) else 'read'}", count=f"{atlas.n_texts:,}")


def has_links(atlas: Atlas) -> bool:
    """Whether the links between words are known, as they are in made-up sentences."""
    return not set(ROLES).isdisjoint(atlas.measures)
