"""The changes of the page What if: choosing one, the list of those in effect, heads to switch off."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, Tokens
from mha_core.analysis.frames import WINDOW, window
from mha_core.attention.edits import Edit, Hide, ModuleEdit, Output, SameHeads, Scale, Temperature
from mha_core.attention.masks import MASKS
from mha_core.attention.positions import POSITIONS
from mha_core.attention.score_rule import MAX_DIVISOR, MIN_DIVISOR
from mha_core.scene import changes, swaps
from mha_core.scene.changes import Change
from mha_core.scene.scene import Scene
from mha_core.scene.swaps import Swap
from pages._kit import choice, compute, heatmaps, model_source, state
from pages._kit.text import isolated, joined, literal, t
from pages.understand._what_if import sides

HOT = 4.0  # the first temperature offered
NUMBERS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5.7, 8, 11.3, 16, 32, 100)  # the steps of the slider
SIZES = (1, 2, 3)  # of a mask
FIELDS = {"mask": "mask", "code": "position"}  # fields of an edit, and of the scene with the same names
ROW, EDGE = 30, 60  # pixels of the picture of all heads
ALL = 0  # layers, heads or words, in the fields that count from 1


def choose(
    trace: AttentionTrace,
    typed: Tokens | None,
    chosen: Sequence[Change],
    *,
    layer: int,
    head: int,
    query: int,
) -> None:
    """The controls that choose a change, and some to try. `typed` are the words that can be swapped."""
    best = int(trace.layers[layer].weights(head, rows=[query])[0].argmax())  # from which most is taken
    third_party = model_source.is_third_party(trace)
    _start(trace, layer=layer, query=query, key=best)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            kind = st.selectbox(
                t("what_if.kind"),
                [
                    name
                    for name, kind in changes.KINDS.items()
                    if name not in ("swap", "row", *changes.OF_CACHE)  # they are made elsewhere
                    and not (third_party and issubclass(kind.type, ModuleEdit))
                ],
                format_func=lambda kind: t(f"what_if.{kind}"),
                key="change_kind",
                width=250,
            )
            values = {name: _place(name, trace) for name in changes.KINDS[kind].names}
            st.button(
                t("what_if.apply"),
                key="apply_change",
                type="primary",
                on_click=_apply,
                args=(chosen,),
                disabled=_is_whole(kind, values),
            )
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.caption(t("what_if.try"), width="content")
            kept = [change for change in chosen if isinstance(change, Swap)]  # the words keep their places
            examples = _examples(layer=layer, head=head, query=query, key=best)
            # Beside a change fewer are shown: they stay in one line, whatever the width of their letters.
            for nth, edit in enumerate(examples[:-1] if chosen else examples):
                if edit in chosen or (third_party and isinstance(edit, ModuleEdit)):
                    continue
                st.button(
                    f"▸ {describe(edit, trace)}",  # an icon is as wide as its name until its font has come
                    key=f"try_{nth}",
                    type="tertiary",
                    on_click=_set,
                    args=([*kept, edit],),
                )
            _swap(typed, chosen)


def _is_whole(kind: str, values: Mapping[str, changes.Value]) -> bool:
    """Whether a change would block every word from every word."""
    return kind == "cut" and values["from"] is values["to"] is None


def _apply(chosen: Sequence[Change]) -> None:
    """Add the change in the fields as they are now: a press may come before a run has seen them."""
    kind = st.session_state["change_kind"]
    values = {name: st.session_state.get(f"change_{name}") or None for name in changes.KINDS[kind].names}
    if not _is_whole(kind, values) and all(values[name] for name in FIELDS.keys() & values):
        _set([*chosen, changes.change_of(kind, values)])


def _swap(typed: Tokens | None, chosen: Sequence[Change]) -> None:
    """A popover that swaps two words of the typed text, or swaps them back."""
    words = () if typed is None else swaps.places(typed)
    if typed is None or len(words) < 2:
        return
    # The key changes with each swap, because a new popover is closed and does not cover what has changed.
    popover = st.popover(f"⇄ {t('what_if.swap')}", key=f"swap_{len(chosen)}")
    with popover.container(horizontal=True, vertical_alignment="bottom"):
        first, second = (
            st.selectbox(
                t(f"what_if.swap_{name}"),
                range(len(words)),
                index=index,
                format_func=lambda at: isolated(swaps.word(typed, words[at])),
                key=f"swap_{name}",
                width=150,
            )
            for name, index in (("one", 0), ("other", 1))
        )

        def apply() -> None:  # with the words that are chosen now, as in `_apply`
            one, other = (words[st.session_state[f"swap_{name}"]].tokens[0] for name in ("one", "other"))
            if one != other:
                _set(_toggled(chosen, [Swap(one, other)]))

        st.button(t("what_if.swap_apply"), key="apply_swap", disabled=first == second, on_click=apply)


def heads(after: AttentionTrace, chosen: Sequence[Change], *, query: int) -> None:
    """How much each head writes, as a picture in which a press switches a head off and on again.

    A long text has it for the queries around the token; without known values there is none.
    """
    if not all(layer.knows("v") for layer in after.layers):
        return
    written = compute.once(after, _written, query=query)
    off = np.isnan(written)
    for edit in chosen:
        if isinstance(edit, Output):
            at = slice(None) if edit.layer is None else edit.layer
            off[at, slice(None) if edit.heads is None else np.ravel(edit.heads)] = True
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
        _set(_toggled(chosen, [Output(layer=at, heads=head) for at in layers for head in of_layers]))

    heatmaps.draw([picture], key="what-if-heads", tall=ROW * len(written) + EDGE, painted=switch)


def _written(trace: AttentionTrace, *, query: int) -> np.ndarray:
    """The mean length of the output vectors of each head; NaN where a layer has fewer. (layer, head)"""
    lengths = np.full((len(trace.layers), max(layer.n_heads for layer in trace.layers)), np.nan)
    for at, layer in enumerate(trace.layers):
        rows = window(layer.n_query, min(query, layer.n_query - 1), WINDOW)
        heads = [None] if rows is None else range(layer.n_heads)  # of a long text one after the other
        outputs = (layer.output(head, rows=rows) for head in heads)
        lengths[at, : layer.n_heads] = np.hstack([np.linalg.norm(one, axis=-1).mean(-1) for one in outputs])
    return lengths


def _toggled(chosen: Sequence[Change], others: Sequence[Change]) -> list[Change]:
    """The changes with these added, or without them if all of them act already."""
    if set(others) <= set(chosen):
        return [change for change in chosen if change not in others]
    return [*chosen, *(other for other in others if other not in chosen)]


def painter(chosen: Sequence[Change], *, layer: int, head: int) -> Callable[[str, range, range], None]:
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
        over = [change for change in chosen if is_cell and _hides(change, layer, head, rows[0], keys[0])]
        _set([change for change in chosen if change not in over] if over else _toggled(chosen, [hidden]))

    return hide


def _hides(edit: Change, layer: int, head: int, row: int, key: int) -> bool:
    if not isinstance(edit, Hide):
        return False
    places: tuple[tuple[Any, int], ...] = ((edit.heads, head), (edit.rows, row), (edit.keys, key))
    return edit.layer in (None, layer) and all(picked is None or at in picked for picked, at in places)


def listed(chosen: Sequence[Change], trace: AttentionTrace, typed: Tokens | None) -> None:
    """The changes that act, each of which can be lifted, and those with a number can be moved.

    `trace` is of the text in which words have changed places, `typed` are the tokens before that.
    """
    with st.container(horizontal=True, vertical_alignment="center"):
        for change in chosen:
            st.button(
                describe(change, trace, typed),
                key=f"lift_{changes.text(change)}",
                icon=":material/close:",
                help=t("what_if.lift"),
                on_click=_set,
                args=([other for other in chosen if other != change],),
            )
        st.button(t("what_if.reset"), key="reset_changes", type="tertiary", on_click=_set, args=([],))
    for nth, change in enumerate(chosen):
        values = changes.values_of(change)
        if "by" in values:
            key = f"move_{nth}"
            st.session_state[key] = values["by"]
            st.select_slider(
                describe(change, trace),
                sorted({*NUMBERS, values["by"]}),
                key=key,
                format_func="{:.4g}".format,
                on_change=_move,
                args=(chosen, nth, key),
                width=420,
            )


def take_away(scene: Scene, before: AttentionTrace, chosen: Sequence[Change]) -> None:
    """A button that takes away the changes that cannot be computed by themselves."""
    wrong = [one for one in chosen if sides.changed(scene, before, [one])[2] is not None]
    if wrong:
        said = joined(describe(change, before, sides.typed(scene, before)) for change in wrong)
        others = [one for one in chosen if one not in wrong]
        st.button(t("what_if.take_away", change=said), key="take_away", on_click=_set, args=(others,))


def taken_away(scene: Scene) -> None:
    """Name the changes that went with the sentence before."""
    text_before, edits, text = st.session_state.get("taken_away", ("", "", None))
    if text != scene.text:
        return
    chosen, _ = changes.read(edits)
    kept = changes.read(scene.edits)[0]
    earlier = replace(scene, text=text_before)
    before = compute.peek(earlier)
    gone = [change for change in chosen if change not in kept]
    if before is None or not gone:
        return
    arranged = sides.changed(earlier, before, changes.swaps_of(chosen))[0].trace
    said = joined(describe(change, arranged, sides.typed(earlier, before)) for change in gone)
    st.caption(t("what_if.taken_away", changes=said))


def _move(chosen: Sequence[Change], nth: int, key: str) -> None:
    """Another number of the nth change, as its slider has it."""
    kind, values = changes.kind_of(chosen[nth]), changes.values_of(chosen[nth])
    moved = changes.change_of(kind, values | {"by": float(st.session_state[key])})
    _set([*chosen[:nth], moved, *chosen[nth + 1 :]])


def describe(change: Change, trace: AttentionTrace, typed: Tokens | None = None) -> str:
    """A change in words, as Markdown. Words that change places are `typed` ones."""
    if isinstance(change, Swap):
        names = dict(zip(("one", "other"), _swapped(change, typed), strict=True))
        return t("what_if.swap_says", **names)
    kind, values = changes.kind_of(change), changes.values_of(change)
    layer = t("what_if.in_layer", layer=values["layer"]) if "layer" in values else t("what_if.in_all_layers")
    of_head = _heads(values.get("head"))
    words = {
        "query": _word(trace.sides.queries.labels, values.get("from")),
        "key": _word(trace.sides.keys.labels, values.get("to")),
        "by": f"{values.get('by', 0):.4g}",
        "since": values.get("since"),
        **{name: literal(choice.word(FIELDS[name], values[name])) for name in FIELDS.keys() & values},
    }
    kind = "unordered" if values.get("code") == "none" else kind
    return t(f"what_if.{kind}_says", layer=layer, head=of_head, **words)


def _swapped(swap: Swap, typed: Tokens | None) -> list[str]:
    """Both words in quotation marks, or the numbers of their tokens where the text has no such word."""
    words = {} if typed is None else {at: place for place in swaps.places(typed) for at in place.tokens}
    return [
        f"“{literal(isolated(swaps.word(typed, words[at])))}”" if typed and at in words else str(at + 1)
        for at in (swap.one, swap.other)
    ]


def _set(chosen: Sequence[Change]) -> None:
    state.go(edits=changes.write(chosen))


def _start(trace: AttentionTrace, *, layer: int, query: int, key: int) -> None:
    """The fields' first values: the token in focus and what it looks at, anew for another sentence."""
    is_new = st.session_state.get("changed_text") != trace.tokens.text
    offers = {"layer": layer + 1, "head": ALL, "from": query + 1, "to": key + 1}
    for name, count in _counts(trace).items():
        if is_new or not ALL <= st.session_state.get(f"change_{name}", -1) <= count:
            st.session_state[f"change_{name}"] = offers[name]
    st.session_state.setdefault("change_by", HOT)
    st.session_state["changed_text"] = trace.tokens.text


def _counts(trace: AttentionTrace) -> Mapping[str, int]:
    return {
        "layer": len(trace.layers),
        "head": trace.layers[0].n_heads,
        "from": len(trace.sides.queries),
        "to": len(trace.sides.keys),
    }


def _place(name: str, trace: AttentionTrace) -> changes.Value:
    """The field of a place, or of the number or the name in an edit. None is all."""
    key, label = f"change_{name}", t(f"what_if.{name}")
    if name in FIELDS:
        names = _masks() if name == "mask" else POSITIONS
        words = partial(choice.word, FIELDS[name])
        return st.selectbox(label, names, format_func=words, key=key, width=150)
    if name == "by":
        return st.number_input(label, MIN_DIVISOR, float(MAX_DIVISOR), step=1.0, key=key, width=130)
    labels = {"from": trace.sides.queries.labels, "to": trace.sides.keys.labels}.get(name)

    def named(option: int) -> str:
        if option == ALL:
            return t("what_if.all")
        return str(option) if labels is None else isolated(labels[option - 1])

    options = range(ALL, _counts(trace)[name] + 1)
    return st.selectbox(label, options, format_func=named, key=key, width=120) or None


def _masks() -> list[str]:
    """Every mask that hides something, in each of the sizes where its size changes what it hides."""
    names = []
    for name, make in MASKS.items():
        if make is not None:
            first, *others = (make(8, 8, size) for size in SIZES)
            is_sized = not all(map(first.equal, others))
            names += [f"{name}:{size}" for size in SIZES] if is_sized else [name]
    return names


def _examples(*, layer: int, head: int, query: int, key: int) -> list[Edit]:
    """Edits to try: the edge that matters in all heads and in one, a head, scale, temperature, one W."""
    return [
        Hide(layer=layer, rows=query, keys=key),
        Hide(layer=layer, heads=head, rows=query, keys=key),
        Output(layer=layer, heads=head),
        Scale(layer=layer, factor=1.0),
        Temperature(layer=layer, temperature=HOT),
        SameHeads(layer=layer),
    ]


def _heads(picked: changes.Value) -> str:
    """The heads of an edit: all, one, or several in a row."""
    if picked is None:
        return t("what_if.of_all_heads")
    if isinstance(picked, range):
        return t("what_if.of_heads", first=picked.start, last=picked.stop - 1)
    return t("what_if.of_head", head=picked)


def _word(labels: Sequence[str], picked: int | range | None) -> str:
    """A token by its label, or its number where the sentence has none of it; “every word” for all.

    Several in a row are named by the first and the last.
    """
    if picked is None:
        return t("what_if.every_word")
    if isinstance(picked, range):
        return f"{_word(labels, picked.start)} … {_word(labels, picked.stop - 1)}"
    return f"“{literal(isolated(labels[picked - 1]))}”" if picked <= len(labels) else str(picked)
