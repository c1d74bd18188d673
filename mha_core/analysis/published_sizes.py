"""The sizes of attention in well-known models, from their papers and configurations."""

import json
from dataclasses import dataclass
from functools import cache

from mha_core import resources
from mha_core.analysis.citation import citation
from mha_core.attention.latent import LatentSpec
from mha_core.attention.module import AttentionSpec
from mha_core.errors import Phrase

FILE = ("assets", "published_sizes.json")


@dataclass(frozen=True)
class PublishedSizes:
    """A model: its number of attention layers, the sizes of each, and the source."""

    name: str
    layers: int
    spec: AttentionSpec | LatentSpec
    source: Phrase

    @property
    def kind(self) -> str:
        """How its heads share keys and values: mha, gqa, mqa or mla."""
        return kind(self.spec)


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
def published_sizes() -> tuple[PublishedSizes, ...]:
    """The well-known models, in the order of the file."""
    return tuple(_model(dict(entry)) for entry in json.loads(resources.path(*FILE).read_text("utf-8")))


def _model(entry: dict) -> PublishedSizes:
    about = {name: entry.pop(name) for name in ("name", "layers")}
    about["source"] = citation(**entry.pop("source"))
    sizes = {"n_heads": entry.pop("h")} | entry
    spec = LatentSpec(**sizes) if "kv_rank" in sizes else AttentionSpec(**({"bias": False} | sizes))
    return PublishedSizes(spec=spec, **about)
