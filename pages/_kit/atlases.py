"""Atlases on the pages: that of a trace's model, what it says of heads in words, and the link to it."""

from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import patterns
from mha_core.atlases import library
from mha_core.atlases.claims import Claim
from mha_core.atlases.measures import ROLES
from mha_core.atlases.query import Atlas
from mha_core.traces.source import Source
from pages._kit import compute
from pages._kit.text import PAGES, t


def atlas_of(source: Source) -> Atlas | None:
    """The atlas of a source's model; None without one, and where the page Atlas says what is wrong."""
    try:
        return library.of(source)
    except MhaError:
        return None


def link(trace: AttentionTrace) -> None:
    """The way to what the chosen head does over many texts; nothing for a model without an atlas."""
    if (found := compute.once(compute.model_of(trace), _link)) is None:
        return
    if st.button(found.label, key="to_atlas", type="tertiary", icon=":material/arrow_forward:"):
        st.switch_page(PAGES / "models/atlas.py", query_params={"atlas": found.folder})


class AtlasLink(NamedTuple):
    """The label of the link to an atlas, and the name of the atlas's folder."""

    label: str
    folder: str


def _link(model: Source | AttentionTrace) -> AtlasLink | None:
    atlas = atlas_of(model.source if isinstance(model, AttentionTrace) else model)
    if atlas is None:
        return None
    return AtlasLink(t("atlas.link", count=f"{atlas.n_texts:,}"), atlas.folder.name)


def measure(name: str) -> str:
    """A measure of an atlas in words."""
    if name in ROLES:
        return t(f"role.{name}")
    return t(f"roles.pattern.{name}") if name in patterns.MEASURES else t(f"atlas.measure.{name}")


def in_words(claim: Claim) -> str:
    """A claim in words: what a head does, in how many texts, with the interval; without markup."""
    said = t(
        f"atlas.claim_{'role' if claim.is_role else 'weight'}",
        measure=measure(claim.measure),
        share=percent(claim.mean),
        count=f"{claim.n:,}",
    )
    if claim.low == claim.high:  # all texts are alike
        return said
    low, high = (100 * end for end in (claim.low, claim.high))
    digits = 0 if round(low) != round(high) else 1
    return t("atlas.claim_interval", claim=said, low=f"{low:.{digits}f}", high=f"{high:.{digits}f}")


def percent(share: float) -> str:
    return f"{share:.0%}"
