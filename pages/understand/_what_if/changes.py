"""The edits of the page What if: choosing one, the list of those that act, and what came of them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError
from mha_core.analysis.cone import cone
from mha_core.analysis.frames import WINDOW, around, window
from mha_core.attention.edits import Edit, Hide, Output
from mha_core.attention.positions import POSITIONS
from mha_core.attention.score_rule import MAX_DIVISOR, MIN_DIVISOR
from pages._kit import compute, heatmaps, model_source, state
from pages._kit.text import isolated, literal, t
from pages.understand._what_if import link

SATURATED = 0.99  # a row with such a weight hardly learns: the gradient of its softmax is nearly 0
HOT = 4.0  # the temperature that is offered first
NUMBERS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5.7, 8, 11.3, 16, 32, 100)  # to which one is moved
MASKS = ("causal", "window:1", "window:2", "window:3", "prefix:2", "padding:2")
NAMES = {"mask": MASKS, "code": POSITIONS}  # that an edit has one of
HEAD_ROW = 30  # pixels of a row of the picture of all heads
ROW, EDGE = 36, 60  # pixels of a picture of layers and tokens
ALL = 0  # layers, heads or words, in the fields that count from 1


def current(scene: state.Scene) -> tuple[Edit, ...]:
    """The edits of the link; a part of it that is none is said in a quiet line."""
    edits, refused = link.read(scene.edits)
    if refused:
        st.caption(t("what_if.refused", parts=literal("; ".join(refused)[:80])))
    return edits


def choose(trace: AttentionTrace, edits: Sequence[Edit], *, layer: int, head: int, query: int) -> None:
    """Which edit, and where; and some to try at once."""
    best = int(trace.layers[layer].weights(rows=[query]).mean(0)[0].argmax())  # from which most is taken
    third_party = model_source.is_third_party(trace)
    _start(trace, layer=layer, query=query, key=best)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            kind = st.selectbox(
                t("what_if.kind"),
                [name for name in link.KINDS if not (third_party and name in link.OF_OWN_MODULES)],
                format_func=lambda kind: t(f"what_if.{kind}"),
                key="change_kind",
                width=250,
            )
            values = {name: _place(name, trace) for name in link.KINDS[kind].names}
            whole = kind == "cut" and values["from"] is values["to"] is None  # nothing would be left
            st.button(
                t("what_if.apply"),
                key="apply_change",
                type="primary",
                on_click=_set,
                args=([] if whole else [*edits, link.edit_of(kind, values)],),
                disabled=whole,
            )
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.caption(t("what_if.try"), width="content")
            for nth, edit in enumerate(_examples(layer=layer, head=head, query=query, key=best)):
                st.button(
                    describe(edit, trace),
                    key=f"try_{nth}",
                    icon=":material/play_arrow:",
                    type="tertiary",
                    on_click=_set,
                    args=([edit],),
                )
            swap(trace)


def swap(trace: AttentionTrace) -> None:
    """Two words of the sentence change places; the sentence of before is then the second one."""
    tokens = trace.tokens
    words: dict[int, tuple[int, int]] = {}
    for at, (start, end) in enumerate(tokens.spans):
        if start < end:
            number = tokens.words[at] if tokens.words else at
            words[number] = (words.get(number, (start, end))[0], end)
    spans = sorted(words.values())
    if len(spans) < 2:
        return
    options = range(len(spans))
    popover = st.popover(t("what_if.swap"), icon=":material/swap_horiz:")
    with popover.container(horizontal=True, vertical_alignment="bottom"):
        first, second = (
            st.selectbox(
                t(f"what_if.swap_{name}"),
                options,
                index=index,
                format_func=lambda at: isolated(tokens.text[slice(*spans[at])]),
                key=f"swap_{name}",
                width=150,
            )
            for name, index in (("one", 0), ("other", 1))
        )
        st.button(
            t("what_if.swap_apply"),
            key="apply_swap",
            disabled=first == second,
            on_click=state.go,
            kwargs={"text": swapped(tokens.text, spans[first], spans[second]), "twin": tokens.text},
        )


def swapped(text: str, one: tuple[int, int], other: tuple[int, int]) -> str:
    """A text in which two parts, from a position to before another, change places."""
    (start, end), (other_start, other_end) = sorted((one, other))
    middle = text[end:other_start]
    return text[:start] + text[other_start:other_end] + middle + text[start:end] + text[other_end:]


def reached(before: AttentionTrace, after: AttentionTrace, edits: Sequence[Edit]) -> None:
    """How far the heads' outputs of each token moved, layer by layer, and where nothing can change at all."""
    if len(before.tokens) > WINDOW or not before.sides.same:
        return
    try:
        cells = ~np.stack(cone(before, edits))
    except MhaError as error:
        st.caption(literal(str(error)))
        return
    moved = np.stack(
        [
            np.linalg.norm(one.concat() - other.concat(), axis=-1)
            for one, other in zip(before.layers, after.layers, strict=True)
        ]
    )
    layers = pd.RangeIndex(1, len(moved) + 1, name="layer")
    frame = pd.DataFrame(moved, layers, pd.Index(before.tokens.labels, name="token"))
    picture = heatmaps.Heatmap(
        "reached",
        "‖Δ‖",
        t("what_if.reached"),
        frame,
        "weights",
        limit=float(moved.max()) or 1.0,
        hidden=cells,
        hidden_text=t("what_if.unreached"),
    )
    heatmaps.draw([picture], key="what-if-reached", tall=ROW * len(moved) + EDGE)


def heads(after: AttentionTrace, edits: Sequence[Edit], *, query: int) -> None:
    """How much each head writes, as a picture in which a press switches a head off and on again.

    Of a long text that of the queries around the token; nothing where values are not known.
    """
    if not all(layer.knows("v") for layer in after.layers):
        return
    written = compute.of(after, _written, query=query)
    off = np.isnan(written)
    for edit in edits:
        if isinstance(edit, Output):
            off[_places(edit.layer), _places(edit.heads)] = True
    frame = pd.DataFrame(
        written,
        pd.RangeIndex(1, len(written) + 1, name="layer"),
        pd.Index([*range(1, written.shape[1] + 1)], name="head"),
    )
    picture = heatmaps.Heatmap(
        "heads",
        t("what_if.heads_matrix"),
        t("what_if.heads_meaning"),
        frame,
        "weights",
        limit=float(np.nanmax(written)) or 1.0,
        hidden=off,
        hidden_text=t("what_if.heads_off"),
        paints=True,
    )

    def switch(_: str, layers: range, of_layers: range) -> None:
        _set(_toggled(edits, [Output(layer=at, heads=head) for at in layers for head in of_layers]))

    heatmaps.draw([picture], key="what-if-heads", tall=HEAD_ROW * len(written) + EDGE, painted=switch)


def _written(trace: AttentionTrace, *, query: int) -> np.ndarray:
    """The mean length of the output vectors of each head; NaN where a layer has fewer. (layer, head)"""
    lengths = np.full((len(trace.layers), max(layer.n_heads for layer in trace.layers)), np.nan)
    for at, layer in enumerate(trace.layers):
        rows = window(layer.n_query, min(query, layer.n_query - 1), WINDOW)
        for head in range(layer.n_heads):
            lengths[at, head] = np.linalg.norm(layer.output(head, rows=rows), axis=-1).mean()
    return lengths


def _places(picked: int | Sequence[int] | None) -> slice | list[int]:
    if picked is None:
        return slice(None)
    return [picked] if isinstance(picked, int) else list(picked)


def _toggled(edits: Sequence[Edit], others: Sequence[Edit]) -> list[Edit]:
    """With these edits besides, or without them where all of them act already."""
    if set(others) <= set(edits):
        return [edit for edit in edits if edit not in others]
    return [*edits, *(other for other in others if other not in edits)]


def painter(
    edits: Sequence[Edit], trace: AttentionTrace, *, layer: int, head: int
) -> Callable[[str, range, range], None]:
    """A choice in which heads painted cells are hidden, and what hides them, or shows a hidden one again."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(t("what_if.hidden_in"), width="content")
        everywhere = st.segmented_control(
            t("what_if.hidden_in"),
            (True, False),
            format_func=lambda every: (
                t("what_if.of_all_heads") if every else t("what_if.of_head", head=head + 1)
            ),
            default=True,
            required=True,
            key="paint_every_head",
            label_visibility="collapsed",
        )

    def hide(_: str, rows: range, keys: range) -> None:
        hidden = Hide(layer=layer, heads=None if everywhere else head, rows=list(rows), keys=list(keys))
        is_cell = len(rows) == len(keys) == 1
        over = [edit for edit in edits if is_cell and _hides(edit, layer, head, rows[0], keys[0])]
        _set([edit for edit in edits if edit not in over] if over else _toggled(edits, [hidden]))

    return hide


def _hides(edit: Edit, layer: int, head: int, row: int, key: int) -> bool:
    """Whether it hides that cell."""
    if not isinstance(edit, Hide):
        return False
    places = ((edit.heads, head), (edit.rows, row), (edit.keys, key))
    return edit.layer in (None, layer) and all(picked is None or at in picked for picked, at in places)


def listed(edits: Sequence[Edit], trace: AttentionTrace) -> None:
    """The edits that act, each of which can be lifted, and those with a number can be moved."""
    with st.container(horizontal=True, vertical_alignment="center"):
        for edit in edits:
            st.button(
                describe(edit, trace),
                key=f"lift_{link.text(edit)}",
                icon=":material/close:",
                help=t("what_if.lift"),
                on_click=_set,
                args=([other for other in edits if other != edit],),
            )
        st.button(t("what_if.reset"), key="reset_changes", type="tertiary", on_click=_set, args=([],))
    for nth, edit in enumerate(edits):
        values = link.values_of(edit)
        if "by" in values:
            key = f"move_{nth}"
            st.session_state[key] = values["by"]
            st.select_slider(
                describe(edit, trace),
                sorted({*NUMBERS, values["by"]}),
                key=key,
                format_func="{:.4g}".format,
                on_change=_move,
                args=(edits, nth, key),
                width=420,
            )


def _move(edits: Sequence[Edit], nth: int, key: str) -> None:
    """Another number of the nth edit, as its slider has it."""
    kind, values = link.kind_of(edits[nth]), link.values_of(edits[nth])
    moved = link.edit_of(kind, values | {"by": float(st.session_state[key])})
    _set([*edits[:nth], moved, *edits[nth + 1 :]])


def describe(edit: Edit, trace: AttentionTrace) -> str:
    """An edit in words, as Markdown."""
    kind, values = link.kind_of(edit), link.values_of(edit)
    layer = t("what_if.in_layer", layer=values["layer"]) if "layer" in values else t("what_if.in_all_layers")
    of_head = _heads(values.get("head"))
    words = {
        "query": _word(trace.sides.queries.labels, values.get("from")),
        "key": _word(trace.sides.keys.labels, values.get("to")),
        "by": f"{values.get('by', 0):.4g}",
        "mask": literal(str(values.get("mask"))),
        "code": literal(str(values.get("code"))),
    }
    kind = "unordered" if values.get("code") == "none" else kind
    return t(f"what_if.{kind}_says", layer=layer, head=of_head, **words)


def traced(scene: state.Scene, edits: Sequence[Edit]) -> tuple[AttentionTrace | None, MhaError | None]:
    """The trace of the scene with these edits, or why there is none."""
    try:
        return compute.trace(scene, edits=edits), None
    except MhaError as error:
        return None, error


def measured(before: AttentionTrace, after: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """How far the weights of each layer moved; of a long text those of the rows that are drawn."""
    rows = around(before, query, layer=layer, head=head).queries
    pairs = zip(before.layers, after.layers, strict=True)
    table = pd.DataFrame([_measured(*pair, rows) for pair in pairs])
    table.index = pd.RangeIndex(1, len(table) + 1, name=t("what_if.layer"))
    if rows is not None:
        st.caption(t("what_if.rows", first=f"{rows.start + 1:,}", last=f"{rows.stop:,}"))
    st.caption(t("what_if.slope_help"))
    st.dataframe(
        table.rename(columns={name: t(f"what_if.{name}") for name in table}),
        column_config={t("what_if.largest"): st.column_config.NumberColumn(format="%.4f")},
    )


def _measured(before: LayerTrace, after: LayerTrace, rows: slice | None) -> dict[str, object]:
    """How far weights moved, and how many rows are saturated, before and after; a head at a time."""
    largest, saturated, entropies, slopes = 0.0, np.zeros(2, int), np.zeros(2), np.zeros(2)
    for head in range(before.n_heads):
        weights = np.stack([one.weights(head, rows=rows) for one in (before, after)])
        largest = max(largest, float(np.abs(weights[1] - weights[0]).max()))
        saturated += (weights.max(-1) > SATURATED).sum(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(weights > 0, weights * np.log2(weights), 0.0)
        entropies -= terms.sum(-1).mean(-1) / before.n_heads
        slopes += (weights.sum(-1) - (weights**2).sum(-1)).mean(-1) / before.n_heads
    return {
        "largest": largest,
        "saturated": "{} → {}".format(*saturated),
        "entropy": "{:.2f} → {:.2f}".format(*entropies),
        "slope": "{:.3f} → {:.3f}".format(*slopes),  # the trace of the softmax's Jacobian
    }


def _set(edits: Sequence[Edit]) -> None:
    state.go(edits=link.write(edits))


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


def _place(name: str, trace: AttentionTrace) -> link.Value:
    """The field of a place, or of the number or the name in an edit. None is all."""
    key, label = f"change_{name}", t(f"what_if.{name}")
    if name in NAMES:
        return st.selectbox(label, NAMES[name], key=key, width=150)
    if name == "by":
        return st.number_input(label, MIN_DIVISOR, float(MAX_DIVISOR), step=1.0, key=key, width=130)
    words = {"from": trace.sides.queries.labels, "to": trace.sides.keys.labels}.get(name)

    def named(option: int) -> str:
        if option == ALL:
            return t("what_if.all")
        return str(option) if words is None else isolated(words[option - 1])

    options = range(ALL, _counts(trace)[name] + 1)
    return st.selectbox(label, options, format_func=named, key=key, width=120) or None


def _examples(*, layer: int, head: int, query: int, key: int) -> list[Edit]:
    """Edits to try: the edge that matters in all heads and in one, a head, the scale, the temperature."""
    in_layer, of_head = {"layer": layer + 1}, {"layer": layer + 1, "head": head + 1}
    edge = {"from": query + 1, "to": key + 1}
    return [
        link.edit_of("cut", in_layer | edge),
        link.edit_of("cut", of_head | edge),
        link.edit_of("off", of_head),
        link.edit_of("divisor", in_layer | {"by": 1.0}),
        link.edit_of("temperature", in_layer | {"by": HOT}),
    ]


def _heads(picked: link.Value) -> str:
    """The heads of an edit: all, one, or several in a row."""
    if picked is None:
        return t("what_if.of_all_heads")
    if isinstance(picked, range):
        return t("what_if.of_heads", first=picked.start, last=picked.stop - 1)
    return t("what_if.of_head", head=picked)


def _word(labels: Sequence[str], picked: link.Value) -> str:
    """A token by its label, or its number where the sentence has none of it; “every word” for all.

    Several in a row are named by the first and the last.
    """
    if picked is None:
        return t("what_if.every_word")
    if isinstance(picked, range):
        return f"{_word(labels, picked.start)} … {_word(labels, picked.stop - 1)}"
    return f"“{literal(isolated(labels[picked - 1]))}”" if picked <= len(labels) else str(picked)
