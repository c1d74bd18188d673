"""The head view on a page: its numbers are sent once, its scene with every run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from mha_core import AttentionTrace, Tokens
from mha_core.analysis.frames import MAX_ALL_PAIRS
from mha_core.export import head_view as views
from mha_core.export.payload import BUDGET, Panel, fitting, pack
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import position
from mha_core.traces.tokens import Sides
from pages._kit import components, compute, state
from pages._kit.text import language, said

EXPLAINED = "head_view_explained"  # key in the session: the number that is explained
HEIGHT, WITH_MATRICES = 530, 1000  # pixels until it is drawn

_view = components.component("head_view", "streamlit/head_view.js", *views.STYLES, box="view")


def draw_traces(
    traces: Sequence[AttentionTrace],
    *,
    layer: int,
    head: int,
    token: int,
    heads: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    key: str = "head_view",
    values: bool = False,
    follows: bool = True,
    more: Mapping[str, object] | None = None,
    on_word: Callable[[dict], None] | None = None,
) -> tuple[str, str] | None:
    """Draw one or more sentences side by side, titled by their texts or by `titles`.

    `heads` are on at first, by default those that answer at the token, else the chosen one; positions count
    from 0. As many layers and heads are sent as fit, with `values` also q, k and v. A choice in a view that
    `follows` moves the scene; other views are for texts that are not the scene's. `more` is added to the
    header; `on_word` is called with the choice when a word is hidden or typed over. Returns the name and the
    digest of the payload if it has every weight of a text that is not long.
    """
    first, *others = traces
    place = {"layer": layer, "head": head}
    numbers, loaded, is_whole = compute.once(first, _fitting, *others, values=values, **place)
    names = [trace.title for trace in traces] if titles is None else titles
    blob = packed(traces, names, numbers, loaded, values)
    drawn = None if heads is None else tuple(heads)
    header = compute.once(first, _header, *others, token=token, on=drawn, name=key, **place)
    header = {**header, "texts": views.texts(language()), "brief": titles is None, "reports": True}
    if len(numbers) < len(first.layers) or loaded is not None:
        header["held"] = views.held(header["texts"], first, layer, numbers, loaded)
    header |= more or {}
    focus = state.focus()
    if follows and 1 < focus.sentence <= len(traces):
        nth = focus.sentence - 1
        header["asked"] = {"nth": nth} | _asked(traces[nth].sides, focus)
    height = WITH_MATRICES if values else HEIGHT
    digest = _mount(header, blob, key, height, follows=follows, on_word=on_word)
    return (key, digest) if is_whole else None


def _fitting(
    first: AttentionTrace, *others: AttentionTrace, layer: int, head: int, values: bool
) -> tuple[list[int], list[int] | None, bool]:
    """The layers and heads that travel (None for all heads), and whether they are all weights of the text."""
    traces = [first, *others]
    budget = BUDGET // len(traces)
    numbers, loaded = fitting(views.largest(traces).layers, layer, head, budget=budget, values=values)
    every = loaded is None and len(numbers) == len(first.layers)
    if not every:
        numbers = [layer]  # a page asks for another one; several would be sent again each time
    return numbers, loaded, every and first.sides.length <= MAX_ALL_PAIRS


def _header(*traces: AttentionTrace, **options: Any) -> dict:
    return views.header_of(traces, said=said, texts={}, **options)


def _asked(sides: Sides, focus: Focus) -> dict[str, list[tuple[str, int]]]:
    """For each text of a further sentence, the tokens that the focus names and where they are."""
    asked = focus.token, focus.key_token, *focus.pins.split()
    return {
        side: [(name, at) for name in asked if (at := position(tokens, name)) is not None]
        for side, tokens in (("query", sides.queries), ("key", sides.keys))
    }


def draw_weights(
    panels: Sequence[tuple[Sequence[np.ndarray], Tokens]],
    *,
    layer: int,
    token: int,
    source: str,
    key: str,
) -> None:
    """Draw weights that belong to no trace: for each sentence those of every layer, and its tokens."""
    packed = [Panel(tokens.text, tokens.labels, dict(enumerate(layers))) for layers, tokens in panels]
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
        texts=views.texts(language()),
    )
    _mount(header, blob, key, HEIGHT)


def packed(
    traces: Sequence[AttentionTrace],
    titles: Sequence[str],
    numbers: Sequence[int],
    heads: Sequence[int] | None,
    values: bool,
) -> bytes:
    """The blob of these traces, packed once per object, because two traces can have the same settings."""
    shown = (tuple(titles), tuple(numbers), heads if heads is None else tuple(heads), values)

    def pack_panels() -> bytes:
        panels = [views.panel(trace, numbers, title) for title, trace in zip(titles, traces, strict=True)]
        return pack(panels, heads=heads, values=values)

    return compute.kept("views", (*map(compute.serial_number, traces), *shown), pack_panels)


def _mount(
    header: dict,
    blob: bytes,
    key: str,
    height: int,
    *,
    follows: bool = False,
    on_word: Callable[[dict], None] | None = None,
) -> str:
    """Mount the view. With `follows` it looks at the focus; without `on_word` words stay as they are.

    Returns the digest of the blob.
    """

    def change() -> None:
        if on_word and key in st.session_state:  # the key is gone if the reader has left the page at once
            on_word(st.session_state[key].changed)

    def explain() -> None:
        st.session_state[EXPLAINED] = st.session_state[key].explained

    digest = components.digest(blob)
    _view(
        key=key,
        data=header | {"digest": digest, "follows": follows},
        height=height,
        on_changed_change=change,
        on_explained_change=explain,
    )
    components.send(key, blob)
    return digest
