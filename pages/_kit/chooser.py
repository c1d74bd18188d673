"""The chooser of a page, where a click chooses the layer, the head and the tokens of the sentence.

It is for pages whose numbers come from the server: each choice reruns the page. Positions count from 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mha_core import AttentionTrace, Tokens
from mha_core.focus import token_names
from pages._kit import components, state
from pages._kit.text import t


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
    weights: np.ndarray | None = None  # one for each word
    allowed: np.ndarray | None = None  # False where a mask hides the word
    limit: float = 1.0  # the weight at which the colours end
    # `weights` and `allowed` for every query, so that the browser can follow a choice without the server.
    every: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def data(self) -> dict:
        names = ("field", "title", "chosen", "caption", "query")
        return {name: getattr(self, name) for name in names} | {
            "tokens": list(self.tokens.labels),
            "names": token_names.names(self.tokens),
            "weights": None
            if self.weights is None or self.allowed is None
            else _shares(self.weights, self.allowed),
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

    def pick(chosen: dict) -> None:
        state.go(**{field: at + first.get(field, 1) for field, at in chosen.items()}, **dict.fromkeys(clears))

    components.chooser(
        [row._asdict() for row in rows if row.count > 1],
        [strip.data for strip in strips],
        key="chooser",
        on_pick=pick,
        sticky=sticky,
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

    With `in_browser` the words follow a chosen token without the server, as everything else on the page does.
    """
    shaded = strips(trace, layer=layer, head=head, query=query, limit=limit)
    if in_browser:
        shown = trace.layers[layer]
        shaded = [shaded[0]._replace(every=(shown.weights(head), shown.allowed(head)))]
    show([layers(trace, layer), heads(trace, layer, head)], shaded, sticky=sticky)


def layers(trace: AttentionTrace, layer: int) -> NumberRow:
    """A row with the layers of a trace."""
    return NumberRow("layer", t("control.layer"), len(trace.layers), layer)


def heads(trace: AttentionTrace, layer: int, head: int) -> NumberRow:
    """A row with the heads of a layer."""
    return NumberRow("head", t("control.head"), trace.layers[layer].n_heads, head, heads=True)


def words(tokens: Tokens, query: int, title: str) -> Strip:
    """A sentence without weights."""
    return Strip("token", title, tokens, query)


def strips(trace: AttentionTrace, *, layer: int, head: int, query: int, limit: float) -> list[Strip]:
    """The sentence shaded by a row of weights; of two texts both, and the one that is looked at is shaded."""
    layer_trace = trace.layers[layer]
    queries, keys = layer_trace.sides.queries, layer_trace.sides.keys
    row, allowed = (of(head, rows=[query])[0] for of in (layer_trace.weights, layer_trace.allowed))
    shading = {"query": queries.labels[query], "weights": row, "allowed": allowed, "limit": limit}
    if trace.sides.same:
        return [Strip("token", t("token.strip"), keys, query, **shading)]
    key = key_of(trace, layer=layer, head=head, query=query)
    return [
        Strip("token", t("control.token"), queries, query, t("two.looks")),
        Strip("key_token", t("control.key_token"), keys, key, t("two.looked_at"), **shading),
    ]


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
