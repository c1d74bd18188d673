"""The limits on visitors and caches, on your own machine and on a server for strangers."""

import os
from dataclasses import dataclass, field, fields
from typing import Any

HOSTED = "HEADSCOPE_HOSTED"  # environment variable: "1" on a server for strangers
FRAMES = "HEADSCOPE_FRAMES"  # environment variable: sites that may embed the app in their pages
THIS_MACHINE = ("http://localhost:*", "http://127.0.0.1:*", "file:")  # `file:` is for slides


def _limit(meaning: str, everywhere: int | None = None) -> Any:
    about = {"meaning": meaning}
    return field(metadata=about) if everywhere is None else field(metadata=about, default=everywhere)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All limits, each with its meaning for the table in assets/deploy/README.md; None means no limit.

    Those with a default are the same on every server.
    """

    hosted: bool = _limit("for strangers")
    pinned: bool = _limit("only models on its disk with a revision in assets/models.json; nothing fetched")
    characters: int = _limit("characters of a text")
    tokens: int = _limit("tokens of a text")
    h: int = _limit("h")
    d_model: int = _limit("d_model")
    d_k: int = _limit("d_k")
    d_v: int = _limit("d_v")
    n_kv_heads: int = _limit("heads of keys and values")
    layers: int = _limit("layers of random weights")
    trace_bytes: int = _limit("bytes of one trace")
    trace_flops: int = _limit("operations of one trace")
    models_bytes: int = _limit("bytes of the models in memory; the latest one is always there")
    model_traces_bytes: int = _limit("bytes of the traces of models that are kept")
    small_traces_bytes: int = _limit("bytes of the traces of short texts that are kept", 120_000_000)
    results_bytes: int = _limit("bytes of what is computed of them: matrices, figures", 120_000_000)
    overviews_bytes: int = _limit("bytes of the overviews of all traces", 32_000_000)
    vocabularies_bytes: int = _limit("bytes of the words of all models on the map of words", 32_000_000)
    mixers_bytes: int = _limit("bytes of the matrices of layers without softmax", 140_000_000)
    similarities_bytes: int = _limit("bytes of the similarities of the heads of all layers", 4_000_000)
    roles_bytes: int = _limit("bytes of the roles of the heads of all models", 4_000_000)
    upload_megabytes: int = _limit("megabytes of a file")
    uploads_bytes: int | None = _limit("bytes of the files of all pages together; the oldest are dropped")
    waiting_of_visitor: int = _limit("trainings that wait for one visitor")
    waiting: int = _limit("trainings that wait in all")
    heavy_waiting: int = _limit("long texts and effects of models that wait in all", 20)
    sessions: int | None = _limit("open pages; the next visitor is asked to come back")
    messages_per_second: float | None = _limit("messages of one page each second, in the long run")
    messages_at_once: int | None = _limit("messages of one page at once; further ones wait")
    metrics: bool = _limit("Streamlit's metrics and agent interface can be read")


OWN = Limits(
    hosted=False,
    pinned=False,
    characters=40_000,
    tokens=4096,
    h=64,
    d_model=1024,
    d_k=1024,
    d_v=1024,
    n_kv_heads=64,
    layers=16,
    trace_bytes=2_000_000_000,
    trace_flops=2_000_000_000_000,
    models_bytes=2_000_000_000,
    model_traces_bytes=1_000_000_000,
    upload_megabytes=200,
    uploads_bytes=None,
    waiting_of_visitor=2,
    waiting=40,
    sessions=None,
    messages_per_second=None,
    messages_at_once=None,
    metrics=True,
)
STRANGERS = Limits(
    hosted=True,
    pinned=True,
    characters=8_000,
    tokens=512,
    h=64,
    d_model=512,
    d_k=128,
    d_v=128,
    n_kv_heads=64,
    layers=6,
    trace_bytes=150_000_000,
    trace_flops=30_000_000_000,
    models_bytes=1_100_000_000,  # any two of the list, since Compare shows two
    model_traces_bytes=200_000_000,
    upload_megabytes=4,  # a model saved on Train has 3
    uploads_bytes=200_000_000,
    waiting_of_visitor=1,
    waiting=20,
    sessions=150,
    messages_per_second=4.0,
    messages_at_once=40,
    metrics=False,
)


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


def table() -> str:
    """The limits as a Markdown table, one row for each."""
    rows = [("what", "your own machine", f"`{HOSTED}=1`"), ("---", "---", "---")]
    for one in fields(Limits)[1:]:
        values = (_written(getattr(limits, one.name)) for limits in (OWN, STRANGERS))
        rows.append((one.metadata["meaning"], *values))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _written(value: float | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "no limit" if value is None else f"{value:,.15g}"
