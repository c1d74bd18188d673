"""Numbers from papers: heads of well-known models that have a role, and the sizes of their attention."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from mha_core import resources
from mha_core.attention.latent import LatentSpec
from mha_core.attention.module import AttentionSpec
from mha_core.errors import Phrase


@dataclass(frozen=True)
class PublishedHead:
    """One head, its role, and the score in the paper (None if the paper only names the head).

    `layer` and `head` count from 1, as on screen; `printed` is the head's name in the paper. `baseline` is
    the paper's score of a simple rule, such as the word at a fixed distance.
    """

    layer: int
    head: int
    role: str
    score: float | None
    source: Phrase
    printed: str
    baseline: float | None = None


@dataclass(frozen=True)
class PublishedSizes:
    """A model: its number of attention layers, the sizes of each, and the source."""

    name: str
    layers: int
    spec: AttentionSpec | LatentSpec
    source: Phrase


def kind(spec: AttentionSpec | LatentSpec) -> str:
    """mha, gqa, mqa or mla: how the heads of a layer share keys and values.

    Sources: Vaswani et al. 2017; Ainslie et al. 2023; Shazeer 2019; DeepSeek-AI 2024.
    """
    if isinstance(spec, LatentSpec):
        return "mla"
    if spec.n_kv_heads == spec.n_heads:
        return "mha"
    return "mqa" if spec.n_kv_heads == 1 else "gqa"


@cache
def published_heads() -> dict[str, tuple[PublishedHead, ...]]:
    """The published heads by the id of their model, in the order of the file."""
    return {
        model: tuple(PublishedHead(**entry | {"source": _citation(**entry["source"])}) for entry in entries)
        for model, entries in _file("published_heads.json").items()
    }


@cache
def published_sizes() -> tuple[PublishedSizes, ...]:
    """The well-known models, in the order of the file."""
    return tuple(_model(entry) for entry in _file("published_sizes.json"))


def _model(entry: dict) -> PublishedSizes:
    about = {name: entry.pop(name) for name in ("name", "layers")}
    about["source"] = _citation(**entry.pop("source"))
    sizes = {"n_heads": entry.pop("h")} | entry
    spec = LatentSpec(**sizes) if "kv_rank" in sizes else AttentionSpec(**({"bias": False} | sizes))
    return PublishedSizes(spec=spec, **about)


def _citation(
    paper: str | None = None, *, table: str | None = None, section: str | None = None, also: str | None = None
) -> Phrase:
    """A source as it is cited; without a `paper` the number is Headscope's own.

    `also` is what else it is from or about: "configuration" (the published one) or "encoder" (its layers).
    """
    if paper is None:
        return Phrase("measured for Headscope")
    place = Phrase(paper)
    if table:
        place = Phrase("{paper}, table {table}", paper=paper, table=table)
    if section:
        place = Phrase("{paper}, section {section}", paper=paper, section=section)
    if also == "configuration":
        return Phrase("{source}, and the published configuration", source=place)
    if also == "encoder":
        return Phrase("{source}; layers of the encoder", source=place)
    return place


def _file(name: str) -> Any:
    return json.loads(resources.path("assets", name).read_text(encoding="utf-8"))
