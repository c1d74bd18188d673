"""The head view on a page: its numbers sent once, its scene with every run, its wishes carried out."""

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
MOST_PACKED = 4  # forms of one trace
_kept: WeakKeyDictionary[AttentionTrace, dict] = WeakKeyDictionary()


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
    fit; when a reader asks for others, the scene moves to them. What comes back tells another component
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
    """The blob, once for the same traces: no settings or source would tell two of them apart for certain."""
    key = (tuple(titles), tuple(numbers), heads if heads is None else tuple(heads))
    kept = _kept.setdefault(traces[0], {})
    others, blob = kept.get(key, ((), b""))
    if [ref() for ref in others] != list(traces[1:]) or not blob:
        panels = [views.panel(trace, numbers, title) for title, trace in zip(titles, traces, strict=True)]
        if len(kept) >= MOST_PACKED:
            kept.clear()
        blob = pack(panels, heads=heads)
        kept[key] = [weakref.ref(trace) for trace in traces[1:]], blob
    return blob


def _texts() -> dict[str, str]:
    """The view fills in what is in braces itself."""
    return {name: t(f"eye.{name}", **{slot: f"{{{slot}}}" for slot in SLOTS}) for name in TEXTS}


SLOTS = (
    *("layer", "head", "heads", "text", "tokens", "list", "who", "share"),
    *("from", "to", "value", "score", "most", "cells", "weight", "count"),
)


def _mount(header: dict, blob: bytes, key: str, lengths: Sequence[int], on_open=None) -> str:
    """The digest of the blob; where nobody carries a wish out (`on_open`), the view offers none."""
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
    """Move the scene to what a reader has before him in the view."""
    moved = {"layer": chosen["layer"] + 1, "head": chosen["head"] + 1}
    if chosen.get("token") is not None:
        moved["token"] = chosen["token"] + 1
    if chosen.get("key") is not None:  # of another text than those that look
        moved["key_token"] = chosen["key"] + 1
    state.go(**moved)
