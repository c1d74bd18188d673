"""The limits on visitors and caches, on your own machine and on a server for strangers."""

import os
from dataclasses import dataclass, field, fields
from typing import Any

from mha_core import resources

HOSTED = resources.HOSTED
FRAMES = "HEADSCOPE_FRAMES"  # environment variable: sites that may embed the app in their pages
THIS_MACHINE = ("http://localhost:*", "http://127.0.0.1:*", "file:")  # `file:` is for slides


def _limit(meaning: str, own: object, strangers: object) -> Any:
    return field(default=own, metadata={"meaning": meaning, "strangers": strangers})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All limits, each with its meaning, its figure on your own machine and that for strangers.

    The meanings are those of the table in assets/deploy/README.md; None means no limit.
    """

    hosted: bool = _limit(
        "only models on its disk with a revision in assets/models.json; nothing fetched", False, True
    )
    characters: int = _limit("characters of a text", 40_000, 8_000)
    tokens: int = _limit("tokens of a text", 32_768, 512)
    h: int = _limit("h", 64, 64)
    d_model: int = _limit("d_model", 1024, 512)
    d_k: int = _limit("d_k", 1024, 128)
    d_v: int = _limit("d_v", 1024, 128)
    n_kv_heads: int = _limit("heads of keys and values", 64, 64)
    layers: int = _limit("layers of random weights", 16, 6)
    trace_bytes: int = _limit("bytes of one trace", 2_000_000_000, 150_000_000)
    trace_flops: int = _limit("operations of one trace", 4_000_000_000_000, 30_000_000_000)
    upload_megabytes: int = _limit("megabytes of a file", 200, 4)  # a model saved on Train has 3
    uploads_bytes: int | None = _limit(
        "bytes of the files of all pages together; the oldest are dropped", None, 200_000_000
    )
    waiting_of_visitor: int = _limit("trainings that wait for one visitor", 2, 1)
    waiting: int = _limit("trainings that wait in all", 40, 20)
    heavy_waiting: int = _limit("long texts and effects of models that wait in all", 20, 20)
    sessions: int | None = _limit("open pages; the next visitor is asked to come back", None, 150)
    messages_per_second: float | None = _limit("messages of one page each second, in the long run", None, 4.0)
    messages_at_once: int | None = _limit("messages of one page at once; further ones wait", None, 40)
    metrics: bool = _limit("Streamlit's metrics and agent interface can be read", True, False)


OWN = Limits()
STRANGERS = Limits(**{one.name: one.metadata["strangers"] for one in fields(Limits)})

# The results that all visitors share, with their bytes on your own machine and for strangers. Each name has
# its own bytes, so that a long text does not push out what a class looks at. The latest is always kept.
KEPT = {
    # Strangers: any two models of the list, since Compare shows two.
    "models": ("the models in memory; the latest one is always there", 2_000_000_000, 1_100_000_000),
    "model traces": ("the traces of models that are kept", 1_000_000_000, 200_000_000),
    "large traces": ("the large traces of random weights that are kept", 2_000_000_000, 150_000_000),
    "traces": ("the other traces that are kept", 120_000_000, 120_000_000),
    "results": ("what is computed from short texts: matrices, figures", 120_000_000, 120_000_000),
    "views": ("the numbers that head views send to the browser", 120_000_000, 120_000_000),
    "overviews": ("the overviews of all layers and heads", 32_000_000, 32_000_000),
    "vocabularies": ("the words of all models on the map of words", 32_000_000, 32_000_000),
    "mixers": ("the matrices of layers without softmax", 140_000_000, 140_000_000),
    "similarities": ("the similarities of the heads of all layers", 4_000_000, 4_000_000),
    "roles": ("the roles of the heads of all models", 4_000_000, 4_000_000),
}


def kept_bytes(name: str) -> int:
    """The most bytes of the results of that name on this server."""
    _, own, strangers = KEPT[name]
    return strangers if current().hosted else own


def current() -> Limits:
    """The limits of this server, chosen by its environment."""
    return STRANGERS if os.environ.get(HOSTED, "") not in ("", "0") else OWN


def framing_sites() -> tuple[str, ...] | None:
    """The other sites that may show the app in a frame; None if every site may.

    The environment can name them. Otherwise every site may on a server for strangers, and on your own machine
    only the pages of that machine.
    """
    named = tuple(os.environ.get(FRAMES, "").split())
    return named or (None if current().hosted else THIS_MACHINE)
