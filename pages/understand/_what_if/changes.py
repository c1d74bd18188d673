"""The changes of the page What if: choosing one, the list of those that act, and what came of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError
from mha_core.attention.score_rule import MAX_DIVISOR, MIN_DIVISOR
from pages._kit import compute, state
from pages._kit.text import isolated, literal, short, t
from pages.understand._what_if.link import KINDS, Change, read, write

SATURATED = 0.99  # a row with such a weight hardly learns: the gradient of its softmax is nearly 0
HOT = 4.0  # the temperature that is offered first
ALL = 0  # layers, heads or words, in the fields that count from 1


def current(scene: state.Scene) -> tuple[Change, ...]:
    """The changes of the link; a part of it that is none is said in a quiet line."""
    changes, refused = read(scene.edits)
    if refused:
        st.caption(t("what_if.refused", parts=literal("; ".join(refused)[:80])))
    return changes


def choose(trace: AttentionTrace, changes: tuple[Change, ...], *, layer: int, head: int, query: int) -> None:
    """Which change, and where; and some to try at once."""
    best = _best_key(trace, layer, query)
    _start(trace, layer=layer, query=query, key=best)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            kind = st.selectbox(
                t("what_if.kind"),
                list(KINDS),
                format_func=lambda kind: t(f"what_if.{kind}"),
                key="change_kind",
                width=250,
            )
            values = {name: _place(name, trace) for name in KINDS[kind].places}
            new = Change(kind, *(values.get(name) for name in ("layer", "head", "from", "to", "by")))
            st.button(
                t("what_if.apply"),
                key="apply_change",
                type="primary",
                on_click=_set,
                args=([*changes, new],),
                disabled=kind == "cut" and new.query is new.key is None,
            )
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(t("what_if.try"), width="content")
            for nth, change in enumerate(_examples(layer=layer, head=head, query=query, key=best)):
                st.button(
                    describe(change, trace),
                    key=f"try_{nth}",
                    icon=":material/play_arrow:",
                    type="tertiary",
                    on_click=_set,
                    args=([change],),
                )


def listed(changes: Sequence[Change], trace: AttentionTrace) -> None:
    """The changes that act, each of which can be lifted."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for change in changes:
            st.button(
                describe(change, trace),
                key=f"lift_{change.text()}",
                icon=":material/close:",
                help=t("what_if.lift"),
                on_click=_set,
                args=([other for other in changes if other != change],),
            )
        st.button(t("what_if.reset"), key="reset_changes", type="tertiary", on_click=_set, args=([],))


def describe(change: Change, trace: AttentionTrace) -> str:
    """A change in words."""
    values = change.values
    layer = t("what_if.in_layer", layer=change.layer) if "layer" in values else t("what_if.in_all_layers")
    of_head = t("what_if.of_head", head=change.head) if "head" in values else t("what_if.of_all_heads")
    words = {
        "query": _word(trace.sides.queries.labels, change.query),
        "key": _word(trace.sides.keys.labels, change.key),
        "by": "" if change.by is None else f"{change.by:g}",
    }
    return t(f"what_if.{change.kind}_says", layer=layer, head=of_head, **words)


def traced(scene: state.Scene, changes: Sequence[Change]) -> tuple[AttentionTrace | None, MhaError | None]:
    """The trace of the scene with these changes, or why there is none."""
    try:
        return compute.trace(scene, edits=tuple(change.edit() for change in changes)), None
    except MhaError as error:
        return None, error


def answers(before: AttentionTrace, after: AttentionTrace) -> None:
    """What became of the model's answers."""
    for at, (old, new) in enumerate(zip(before.answers, after.answers, strict=True)):
        if old is None or new is None:
            continue
        names = {"word": literal(isolated(before.tokens.labels[at]))}
        for name, (word, share) in {"before": old[0], "after": new[0]}.items():
            names |= {name: literal(isolated(word)), f"{name}_share": short(share)}
        other = old[0][0] != new[0][0]
        st.markdown(t("what_if.answer_other", **names) if other else t("what_if.answer_same", **names))


def measured(before: AttentionTrace, after: AttentionTrace) -> None:
    """How far the weights of each layer moved."""
    pairs = zip(before.layers, after.layers, strict=True)
    rows = [compute.of(new, _measured, before=_Other(old)) for old, new in pairs]
    table = pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name=t("what_if.layer")))
    st.dataframe(
        table.rename(columns={name: t(f"what_if.{name}") for name in table}),
        column_config={t("what_if.largest"): st.column_config.NumberColumn(format="%.4f")},
    )


class _Other:
    """A layer to compare with, known by itself: two traces of the same numbers may have other edits."""

    def __init__(self, layer: LayerTrace):
        self.layer = layer

    def __hash__(self) -> int:
        return id(self.layer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Other) and other.layer is self.layer


def _measured(layer: LayerTrace, *, before: _Other) -> dict[str, object]:
    """How far the weights moved, and how many rows are saturated, before and after."""
    old, new = before.layer.weights(), layer.weights()
    saturated = [int((weights.max(-1) > SATURATED).sum()) for weights in (old, new)]
    entropies = [_entropy(weights) for weights in (old, new)]
    return {
        "largest": float(np.abs(new - old).max()),
        "saturated": "{} → {}".format(*saturated),
        "entropy": "{:.2f} → {:.2f}".format(*entropies),
    }


def _entropy(weights: np.ndarray) -> float:
    """The mean of ``−Σ w log₂ w`` over all rows, in bits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(weights > 0, weights * np.log2(weights), 0.0)
    return float(-terms.sum(-1).mean())


def _set(changes: Sequence[Change]) -> None:
    state.go(edits=write(changes))


def _best_key(trace: AttentionTrace, layer: int, query: int) -> int:
    """The key from which the token takes most, on the mean of all heads of a layer."""
    return int(trace.layers[layer].weights(rows=[query]).mean(0)[0].argmax())


def _start(trace: AttentionTrace, *, layer: int, query: int, key: int) -> None:
    """What the fields offer first: the token in focus and what it looks at, anew for another sentence."""
    counts = _counts(trace)
    text = trace.tokens.text
    if st.session_state.get("changed_text") != text:
        st.session_state["changed_text"] = text
        for name in counts:
            st.session_state.pop(f"change_{name}", None)
    offers = {"layer": layer + 1, "head": ALL, "from": query + 1, "to": key + 1}
    for name, count in counts.items():
        if not ALL <= st.session_state.get(f"change_{name}", -1) <= count:
            st.session_state[f"change_{name}"] = offers[name]
    st.session_state.setdefault("change_by", HOT)


def _counts(trace: AttentionTrace) -> Mapping[str, int]:
    return {
        "layer": len(trace.layers),
        "head": trace.layers[0].n_heads,
        "from": len(trace.sides.queries),
        "to": len(trace.sides.keys),
    }


def _place(name: str, trace: AttentionTrace) -> float | None:
    """The field of a place, or of the number of a change. None is all."""
    key, label = f"change_{name}", t(f"what_if.{name}")
    if name == "by":
        return st.number_input(label, MIN_DIVISOR, float(MAX_DIVISOR), step=1.0, key=key, width=130)
    words = {"from": trace.sides.queries.labels, "to": trace.sides.keys.labels}.get(name)

    def named(option: int) -> str:
        if option == ALL:
            return t("what_if.all")
        return str(option) if words is None else isolated(words[option - 1])

    options = range(ALL, _counts(trace)[name] + 1)
    return st.selectbox(label, options, format_func=named, key=key, width=120) or None


def _examples(*, layer: int, head: int, query: int, key: int) -> tuple[Change, ...]:
    """Changes to try: the edge that matters in all heads and in one, a head, the scale, the temperature."""
    edge = {"layer": layer + 1, "query": query + 1, "key": key + 1}
    return (
        Change("cut", **edge),
        Change("cut", head=head + 1, **edge),
        Change("off", layer=layer + 1, head=head + 1),
        Change("unscaled", layer=layer + 1),
        Change("temperature", layer=layer + 1, by=HOT),
    )


def _word(labels: Sequence[str], number: int | None) -> str:
    """A token by its label, or its number where the sentence has none of it; “every word” for all."""
    if number is None:
        return t("what_if.every_word")
    return f"“{isolated(labels[number - 1])}”" if number <= len(labels) else str(number)
