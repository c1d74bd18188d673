"""The head view on a page: its numbers are sent once, its scene with every run."""

import weakref
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import longest
from mha_core.export import head_view as views
from mha_core.export.payload import BUDGET, Panel, fitting, pack
from pages._kit import components, heights, state
from pages._kit.text import t

TEXTS = tuple(views.texts("en"))
MAX_BLOBS = 4  # of one trace, with different layers, heads or titles
_blobs: WeakKeyDictionary[AttentionTrace, dict] = WeakKeyDictionary()


_view = components.component(
    "head_view", "head_view_app.js", html='<div class="view"></div>', style=views.STYLE
)


def of_traces(
    traces: Sequence[AttentionTrace],
    *,
    layer: int,
    head: int,
    token: int,
    heads: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    key: str = "head_view",
) -> dict[str, object] | None:
    """One or more sentences side by side, called by their texts unless by `titles`.

    `heads` are drawn at first, all positions from 0. As many layers and heads travel as
    fit; when others are chosen, the scene moves to them. The return value tells another component
    where the browser has the layer's numbers (blobs.js), if all heads of it travel.
    """
    brief = titles is None  # the sentences stand above the view, word by word
    numbers, loaded = fitting(views.longest(traces).layers, layer, head, budget=BUDGET // len(traces))
    titles = [trace.title for trace in traces] if titles is None else list(titles)
    blob = _packed(traces, titles, numbers, loaded)
    header = views.header_of(
        traces,
        layer=layer,
        head=head,
        token=token,
        on=heads,
        name=key,
        source=views.caption_of(traces, layer),
        texts=_texts(),
    )
    digest = _mount(header | {"brief": brief}, blob, key, [longest(trace) for trace in traces], _opened)
    return {"name": key, "digest": digest, "layer": layer} if loaded is None else None


def of_weights(
    panels: Sequence[tuple[Sequence[np.ndarray], Sequence[str]]],
    *,
    layer: int,
    token: int,
    source: str,
    key: str,
) -> None:
    """The same for weights that belong to no trace: of each sentence every layer's, and its labels."""
    packed = [Panel(" ".join(labels), labels, dict(enumerate(layers))) for layers, labels in panels]
    blob = pack(packed)
    n_heads = len(panels[0][0][layer])
    header = views.header(
        [[[0], [0]] for _ in panels],  # a small model reads [CLS] first
        n_layers=len(panels[0][0]),
        n_heads=n_heads,
        layer=layer,
        head=0,
        token=token,
        on=range(n_heads),
        name=key,
        source=source,
        title=packed[0].title,
        texts=_texts(),
    )
    _mount(header, blob, key, [len(labels) for _, labels in panels])


def _packed(
    traces: Sequence[AttentionTrace],
    titles: Sequence[str],
    numbers: Sequence[int],
    heads: Sequence[int] | None,
) -> bytes:
    """The blob of these traces, packed once for the same objects: two traces can have the same settings."""
    key = (tuple(titles), tuple(numbers), heads if heads is None else tuple(heads))
    blobs = _blobs.setdefault(traces[0], {})
    others, blob = blobs.get(key, ((), b""))
    if [ref() for ref in others] != list(traces[1:]) or not blob:
        panels = [views.panel(trace, numbers, title) for title, trace in zip(titles, traces, strict=True)]
        if len(blobs) >= MAX_BLOBS:
            blobs.clear()
        blob = pack(panels, heads=heads)
        blobs[key] = [weakref.ref(trace) for trace in traces[1:]], blob
    return blob


def _texts() -> dict[str, str]:
    """The texts of the view with their slots in braces: the browser fills them in."""
    return {name: t(f"head_view.{name}", **{slot: f"{{{slot}}}" for slot in SLOTS}) for name in TEXTS}


SLOTS = (
    *("layer", "head", "heads", "text", "tokens", "list", "who", "share"),
    *("from", "to", "value", "score", "maximum", "cells", "weight", "count"),
)


def _mount(header: dict, blob: bytes, key: str, lengths: Sequence[int], on_open=None) -> str:
    """Mount the view and return the digest of its blob; without `on_open` it has no button to open a head."""
    digest = components.digest(blob)
    # The bytes show nothing and leave no gap. (Not in the sidebar: a fragment may not write there.)
    with st.container(gap=None):
        _view(
            key=key,
            data=header | {"digest": digest, "opens": on_open is not None},
            height=heights.view(lengths),
            on_opened_change=lambda: on_open and on_open(st.session_state[key].opened),
        )
        components.send(key, blob, key=f"{key}_blob")
    return digest


def _opened(chosen: dict) -> None:
    """Move the scene to the layer, head and tokens that are chosen in the view."""
    moved = {"layer": chosen["layer"] + 1, "head": chosen["head"] + 1}
    if chosen.get("token") is not None:
        moved["token"] = chosen["token"] + 1
    if chosen.get("key") is not None:  # of another text than the queries
        moved["key_token"] = chosen["key"] + 1
    state.go(**moved)
