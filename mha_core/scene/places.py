"""Where a focus looks in a trace: its layer, its head and its token."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mha_core.focus.focus import Focus, is_unset
from mha_core.focus.token_names import as_number, names, numbered, position
from mha_core.scene.first_look import first_token, focus_on_answer
from mha_core.traces.tokens import Sides, Tokens
from mha_core.traces.trace import AttentionTrace


def indices(trace: AttentionTrace, focus: Focus) -> tuple[int, int, int]:
    """Layer, head and token of the focus, as positions from 0 that exist in the trace."""
    token = token_in(trace.sides.queries, focus)
    if is_unset(focus, trace.sides.queries):
        focus = focus_on_answer(focus, trace, token)
    layer = min(focus.layer, len(trace.layers)) - 1
    of_layer = trace.layers[layer]
    return layer, min(focus.head, of_layer.n_heads) - 1, min(token, of_layer.n_query - 1)


def token_in(tokens: Tokens, focus: Focus) -> int:
    """The position from 0 of the focus's token among these."""
    at = position(tokens, focus.token)
    return first_token(tokens) if at is None else at


def with_names(focus: Focus, sides: Sides, *, new_text: bool) -> Focus:
    """The focus with tokens named by words instead of numbers, so that they can be found in another text.

    In a `new_text`, or if the text does not have the focus's token, only its `first_token` is looked at. The
    tokens of a second sentence are not in these `sides`.
    """
    queries, keys = sides.queries, sides.keys
    if new_text:
        focus = replace(focus, sentence=1, key_token="", pins="", number="")
    if focus.sentence != 1:
        return focus
    token, key = numbered(queries, focus.token), position(keys, focus.key_token)
    if focus.token and (new_text or position(queries, focus.token) is None):
        token = first_token(queries)
    of_pins = keys if focus.side == "key" else queries
    pins = [position(of_pins, pin) for pin in focus.pins.split()]
    return replace(
        focus,
        token=focus.token if token is None else names(queries)[token],
        key_token="" if key is None else names(keys)[key],
        pins=" ".join(names(of_pins)[pin] for pin in pins if pin is not None),
    )


def shape_of(trace: AttentionTrace) -> list[int]:
    """The number of heads of each layer."""
    return [layer.n_heads for layer in trace.layers]


def clamped(focus: Focus, shapes: Sequence[Sequence[int]]) -> Focus:
    """The focus with layers and heads beyond those of all these traces replaced by the last one."""
    n_layers, n_heads = max(map(len, shapes)), max(max(shape) for shape in shapes)
    drawn = focus.heads.split(",")
    kept = [one for one in drawn if (as_number(one) or 0) <= n_heads]
    hops = {name: as_number(getattr(focus, name)) or 0 for name in ("hop1", "hop2")}
    last: dict[str, Any] = {name: str(n_heads) for name, hop in hops.items() if hop > n_heads}
    return replace(
        focus,
        layer=min(focus.layer, n_layers),
        head=min(focus.head, n_heads),
        heads=focus.heads if len(kept) == len(drawn) else ",".join(kept),
        **last,
    )
