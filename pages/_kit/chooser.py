"""The chooser of a page, where a click chooses the layer, the head and the tokens of the sentence.

It is for pages whose numbers come from the server: each choice reruns the page. Positions count from 0. The
layers of a large model, which differ in kind, are pills.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from mha_core import AttentionTrace, Tokens
from mha_core.analysis.layer_kinds import LayerKind, layer_kinds
from mha_core.focus import token_names
from mha_core.scene.scene import Scene
from pages._kit import components, state
from pages._kit.text import PAGES, joined, literal, t, template

PLACE = "place"  # the key of the pills, and in a link the position of a chosen layer without softmax
# The most layers of which all pills are in sight, and the height in pixels at which they scroll.
MAX_LAYERS, MAX_LAYERS_ON_PHONE, MAX_HEIGHT = 48, 16, 190
HEIGHT = 115  # pixels until it is drawn

_chooser = components.component("chooser", "view/chooser.js", "view/chooser.css")


class NumberRow(NamedTuple):
    """A row of numbered layers or heads; `field` is the field of the scene that a choice sets."""

    field: str
    title: str
    count: int  # type: ignore[assignment]  # replaces tuple.count, which nobody calls
    chosen: int
    first: int = 1  # the number of the first layer or head
    heads: bool = False  # whether each number has the colour of its head


class Strip(NamedTuple):
    """A sentence whose words can be chosen, shaded by weights if it has any."""

    field: str
    title: str
    tokens: Tokens
    chosen: int
    caption: str = ""  # above the words, if there are two texts
    query: str = ""  # the token that gives the weights
    row: tuple[np.ndarray, np.ndarray] | None = None  # a weight for each word, and whether a mask allows it
    limit: float = 1.0  # the weight at which the colours end
    # The same for every query, so that the browser can follow a choice without the server.
    every: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def data(self) -> dict:
        names = ("field", "title", "chosen", "caption", "query")
        return {name: getattr(self, name) for name in names} | {
            "tokens": list(self.tokens.labels),
            "names": token_names.names(self.tokens),
            "unknown": list(self.tokens.unknown),
            "weights": None if self.row is None else _shares(*self.row),
            "limit": float(self.limit) or 1.0,
            "every": None if self.every is None else list(map(_shares, *self.every)),
        }


def _shares(weights: np.ndarray, allowed: np.ndarray) -> list[float | None]:
    """Weights rounded to the digits that the page shows; None where a mask hides the word."""
    seen = zip(weights, allowed, strict=True)
    return [float(f"{weight:.4g}") if is_allowed else None for weight, is_allowed in seen]


def show(
    rows: Sequence[NumberRow],
    strips: Sequence[Strip],
    *,
    clears: Sequence[str] = (),
    sticky: bool = False,
) -> None:
    """Draw the rows that have more than one number, and the texts; a choice moves the scene.

    It also resets the page's controls with the keys `clears`. The words of a `sticky` chooser stay in sight
    on a phone while the page scrolls.
    """
    first = {row.field: row.first for row in rows}

    def pick() -> None:
        chosen = dict(st.session_state["chooser"].picked)
        if moved := chosen.pop("moved", None):
            state.receive(moved)
            chosen = {}  # the focus already has the choice, by name
        state.go(**{field: at + first.get(field, 1) for field, at in chosen.items()}, **dict.fromkeys(clears))

    _chooser(
        key="chooser",
        data={
            "rows": [row._asdict() for row in rows if row.count > 1],
            "strips": [strip.data for strip in strips],
            "sticky": sticky,
            "focus": state.address(),
            "texts": {name: template(f"token.{name}") for name in ("hint", "hint_hidden")},
        },
        height=HEIGHT,
        on_picked_change=pick,
    )


def show_head(
    trace: AttentionTrace,
    *,
    layer: int,
    head: int,
    query: int,
    limit: float,
    sticky: bool = False,
    in_browser: bool = False,
) -> None:
    """Draw the layers, the heads, and the sentence, shaded by the row of the token `query` up to `limit`.

    Of two texts both are drawn, and the one that is looked at is shaded. With `in_browser` the words of one
    text follow a chosen token without the server, as everything else on the page does.
    """
    shown = trace.layers[layer]
    queries, keys = shown.sides.queries, shown.sides.keys
    row = shown.weights(head, rows=[query])[0], shown.allowed(head, rows=[query])[0]
    every = (shown.weights(head), shown.allowed(head)) if in_browser else None
    shading: dict[str, Any] = {"query": queries.labels[query], "row": row, "limit": limit, "every": every}
    if trace.sides.same:
        strips = [Strip("token", t("token.strip"), keys, query, **shading)]
    else:
        key = key_of(trace, layer=layer, head=head, query=query)
        strips = [
            Strip("token", t("control.token"), queries, query, t("two.looks")),
            Strip("key_token", t("control.key_token"), keys, key, t("two.looked_at"), **shading),
        ]
    show(rows([one.n_heads for one in trace.layers], layer, head), strips, sticky=sticky)


def rows(n_heads: Sequence[int], layer: int, head: int) -> list[NumberRow]:
    """The layers, and the heads of the chosen one; `n_heads` are those of each layer."""
    return [
        NumberRow("layer", t("control.layer"), len(n_heads), layer),
        NumberRow("head", t("control.head"), n_heads[layer], head, heads=True),
    ]


def layer_pills(trace: AttentionTrace, scene: Scene) -> LayerKind:
    """Draw a pill for every layer of a model, which says what it is; returns the layer that is chosen."""
    kinds = layer_kinds(trace)
    st.session_state[PLACE] = pill_position(kinds, scene)
    fits = len(kinds) <= (MAX_LAYERS_ON_PHONE if state.on_phone() else MAX_LAYERS)
    with st.container(height="content" if fits else MAX_HEIGHT, border=False):
        position = st.pills(
            t("layers.title"),
            range(1, len(kinds) + 1),
            key=PLACE,
            format_func=lambda position: f"{position} {kind_of_layer(kinds[position - 1])}",
            required=True,
            help=t("layers.help"),
            on_change=_layer_picked,
            args=(kinds,),
        )
    return kinds[(position or 1) - 1]


def layer_pills_with_link(trace: AttentionTrace, scene: Scene) -> None:
    """Draw the pills on a page about attention weights, with a link if the chosen layer has none."""
    chosen = layer_pills(trace, scene)
    if chosen.mixer is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(t("layers.elsewhere", name=literal(chosen.name)), width="content")
        query = {PLACE: str(st.session_state[PLACE])}
        st.page_link(PAGES / "models/real.py", icon=":material/arrow_forward:", query_params=query)


def kind_of_layer(kind: LayerKind) -> str:
    """The kind and the traits of a layer, in a few words."""
    name = t(f"layers.kind_{kind.kind}", size=kind.size or 0)
    return joined([name, *(t(f"layers.trait_{trait}") for trait in kind.traits)])


def pill_position(kinds: tuple[LayerKind, ...], scene: Scene) -> int:
    """The position of the scene's layer, or of a chosen layer without softmax until the scene moves."""
    moved = st.session_state.get("place_layer", scene.focus.layer) != scene.focus.layer
    st.session_state.place_layer = scene.focus.layer
    linked = st.query_params.get(PLACE, "")
    position: int = st.session_state.get(PLACE) or token_names.as_number(linked) or 0
    if not moved and position in range(1, len(kinds) + 1) and kinds[position - 1].mixer is not None:
        return position
    st.query_params.pop(PLACE, None)
    layer = min(scene.focus.layer, sum(kind.layer is not None for kind in kinds)) - 1
    return next((at for at, kind in enumerate(kinds, 1) if layer >= 0 and kind.layer == layer), 1)


def _layer_picked(kinds: tuple[LayerKind, ...]) -> None:
    """Move the scene to a layer of attention; it has no other layers, so the link keeps their position."""
    position = st.session_state[PLACE]
    if (layer := kinds[position - 1].layer) is None:
        st.query_params[PLACE] = str(position)
    else:
        state.go(layer=layer + 1)


def key_of(trace: AttentionTrace, *, layer: int, head: int, query: int) -> int:
    """The position of the key in focus: the chosen one, or else the one with the largest weight.

    If a text looks at itself, it is the query's own position.
    """
    if trace.sides.same:
        return query
    chosen = token_names.position(trace.sides.keys, state.focus().key_token)
    if chosen is not None:
        return chosen
    return int(trace.layers[layer].weights(head, rows=[query])[0].argmax())
