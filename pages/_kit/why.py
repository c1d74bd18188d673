"""Why does a query look there? Its score, split by the parts of the model that wrote query and key."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, Attribution, Ledger, MhaError, Writer, attribution, ledger
from mha_core.analysis.frames import Origin
from mha_core.export import head_view as views
from mha_core.focus import token_names
from mha_core.focus.focus import Focus
from mha_core.interventions.ledger import written
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from mha_core.traces.source import ModelSource
from pages._kit import charts, components, compute, heatmaps, model_source, state
from pages._kit.text import isolated, language, literal, number, paragraph, said, set_language, signed, t

FOLD, LEDGER = "why", "ledger"  # the keys of the folds
BARS, PART = "ledger_bars", "ledger_part"  # the key of the bars, and the field of a link with the clicked one
MAX_WRITERS = 12  # named on each side
MAX_TERMS = 5  # put into words
MAX_WORDS = 3  # that a part raises or lowers most
ROW, EDGE = 24, 90  # pixels of the matrix
HEIGHT = 540  # pixels of a ledger until it is drawn

Result = TypeVar("Result")
Words = dict[str, list[tuple[str, float]]]  # that are "raised" and "lowered", each with its share

_ledger_view = components.component("ledger", "streamlit/ledger.js", "pictures/ledger.css")


def show(scene: Scene, trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """Run the model again and draw what each of its parts contributes to a score; needs q and k of the layer.

    The key is the chosen one, or the one with the largest weight.
    """
    of_layer = trace.layers[layer]
    keys = of_layer.sides.keys
    chosen = token_names.position(keys, scene.focus.key_token)
    if chosen is None:
        chosen = int(np.argmax(of_layer.weights(head, rows=[query])[0]))
    key = st.selectbox(
        t("why.key", query=isolated(of_layer.sides.queries.labels[query])),
        range(len(keys)),
        index=chosen,
        format_func=lambda at: keys.labels[at],
        width=320,
    )
    try:
        with st.spinner(t("why.computing")):
            whole, number = _in_whole(scene, trace, layer)
            why = by_model(scene, whole, attribution, layer=number, head=head, query=query, key=key)
    except MhaError as refusal:
        st.info(literal(said(refusal)), icon=":material/block:")
        return
    _draw(whole, why)


def _in_whole(scene: Scene, trace: AttentionTrace, layer: int) -> tuple[AttentionTrace, int]:
    """The trace with all kinds of attention, while the page has one, and the position of the layer in it."""
    if scene.source != "model":
        return trace, layer
    whole, kind = model_source.whole(scene)
    if kind is None:
        return trace, layer
    return whole, [at for at, one in enumerate(whole.layers) if one.kind == kind][layer]


def source_of(scene: Scene, trace: AttentionTrace) -> object:
    """The model of the trace, as it is in memory; None if the library has it."""
    if scene.source == "run":
        return compute.trainings().model(scene.run, scene.step)
    if scene.source == "model":
        entry = model_source.loaded_model(scene)
        assert entry is not None  # its trace is on screen
        return entry.model
    if isinstance(trace.source.origin, ModelSource):
        raise MhaError(t("why.file"))
    return None


def by_model(
    scene: Scene, trace: AttentionTrace, function: Callable[..., Result], **settings: object
) -> Result:
    """`function(trace, source=…, **settings)`, which runs the model again, computed once for everybody.

    The model itself is no part of the key, in which it would stay in memory.
    """
    return compute.once(trace, _run, of=function, scene=replace(scene, focus=Focus()), **settings)


def _run(trace: AttentionTrace, *, of: Callable, scene: Scene, **settings: Any) -> Any:
    source = source_of(scene, trace)
    return model_source.run_model(trace, partial(of, trace, source=source, **settings))


def _draw(trace: AttentionTrace, why: Attribution) -> None:
    """Draw the score, the matrix of its terms, the largest terms in words, and notes on what is not split."""
    query, key = (literal(isolated(label)) for label in why.labels)
    place = {"head": why.head + 1, "layer": _number(trace, why.layer), "query": query, "key": key}
    st.markdown(t("why.sum", value=signed(why.value), **place))
    few = why.largest(MAX_WRITERS)
    columns = pd.Index(_names(trace, few.key_writers), name="key_writer")
    table = pd.DataFrame(few.terms, pd.Index(_names(trace, few.query_writers), name="query_writer"), columns)
    drawn = heatmaps.Heatmap("why", t("why.symbol"), t("why.meaning"), table, "signed")
    heatmaps.draw([drawn], key="why-terms", stacked=True, tall=ROW * len(table) + EDGE)
    order = np.argsort(-np.abs(why.terms), axis=None, kind="stable")[:MAX_TERMS]
    lines = [
        t(
            "why.term",
            writer=_at(trace, why.query_writers[row], query),
            other=_at(trace, why.key_writers[column], key),
            term=signed(why.terms[row, column], "+z.2f"),
        )
        for row, column in zip(*np.unravel_index(order, why.terms.shape), strict=True)
    ]
    st.markdown("\n".join(f"1. {line}" for line in lines))
    st.caption(paragraph(_notes(trace, why)))


def _number(trace: AttentionTrace, layer: int) -> int:
    """The number of a layer as a page counts it: from 1, among those of its kind."""
    return sum(one.kind == trace.layers[layer].kind for one in trace.layers[: layer + 1])


def _at(trace: AttentionTrace, writer: Writer, token: str) -> str:
    """The contribution of a writer to a token, in words."""
    how = "of" if writer.kind in ("word", "position") else "at"
    return t(f"why.{how}", writer=literal(_name(trace, writer)), token=token)


def _names(trace: AttentionTrace, writers: Sequence[Writer]) -> list[str]:
    """A name for each writer, no two alike."""
    names = [_name(trace, writer) for writer in writers]
    return [
        f"{name} ({writer.name})" if names.count(name) > 1 else name
        for name, writer in zip(names, writers, strict=True)
    ]


def _name(trace: AttentionTrace, writer: Writer) -> str:
    if writer.layer is None:
        return t(f"why.{writer.kind}", name=writer.name)
    place = {"layer": _number(trace, writer.layer), "head": (writer.head or 0) + 1}
    if len(trace.kinds) == 1:
        return t(f"why.{writer.kind}_of_layer", **place)
    return t(f"why.{writer.kind}_of_kind", kind=trace.layers[writer.layer].kind, **place)


def _notes(trace: AttentionTrace, why: Attribution) -> list[str]:
    """Notes on when the sum holds, and on what is done to it afterwards."""
    notes = [t("why.frozen")]
    if why.soft_cap is not None:
        notes.append(t("why.cap", cap=number(why.soft_cap)))
    if why.bias is not None:
        notes.append(t("why.bias_added", bias=signed(why.bias)))
    if not why.visible:
        notes.append(t("why.hidden"))
    return notes


def has_ledger(scene: Scene, trace: AttentionTrace, token: int) -> bool:
    """Whether the model may answer at a token; of a model of transformers only its run tells."""
    if scene.source == "model":
        return model_source.whole(scene)[1] != "encoder"  # its tokens are not those that the decoder answers
    return scene.source != "file" and bool(trace.answers and trace.answers[token])


def show_ledger(scene: Scene, trace: AttentionTrace, *, token: int) -> None:
    """Run the model again and draw how much each of its parts adds to the logit of a word at this token.

    It is the most probable word, or one that the reader types, alone or compared with a second one. A click
    on the bar of a head leads to the head, a click on another one says which words that part writes.
    """
    if scene.source == "model" and not scene.ask_model:  # it is in memory without the layer that scores words
        st.button(t("ledger.ask"), key="ledger_ask", on_click=state.go, kwargs={"ask_model": True})
        return
    with st.container(horizontal=True):
        word, other = (
            st.text_input(label, key=key, placeholder=unasked, width=240, bind="query-params")
            for key, label, unasked in (
                ("ledger_word", t("ledger.word"), t("ledger.likely")),
                ("ledger_other", t("ledger.other"), t("ledger.none")),
            )
        )
    try:
        with st.spinner(t("why.computing")):
            whole, _ = _in_whole(scene, trace, 0)
            found = by_model(scene, whole, ledger, token=token, word=word or None, other=other or None)
    except MhaError as refusal:
        st.info(literal(said(refusal)), icon=":material/block:")
        return
    _draw_ledger(scene, trace, whole, found)


def _draw_ledger(scene: Scene, shown: AttentionTrace, trace: AttentionTrace, found: Ledger) -> None:
    """Draw the shares of a logit, and offer them with the head view as a page.

    `shown` has the kind of attention of the page, `trace` all kinds. A click marks a part; of a head the page
    moves there, of another one it says which words that part writes.
    """
    asked = token_names.as_number(st.query_params.get(PART, ""))
    picked = found.writers[asked - 1] if asked and asked <= len(found.writers) else None
    if PART in st.query_params and picked is None:
        state.say_instead(PART, None)
    layer, head, token = indices(shown, scene.focus)
    here = _in_whole(scene, shown, layer)[1], head
    is_marked = picked is not None and (picked.kind != "head" or (picked.layer, picked.head) == here)
    words = None
    if picked and picked.kind != "head":
        with st.spinner(t("why.computing")):
            words = by_model(scene, trace, _ends, writer=picked, token=found.token)
    drawn = found.drawing(_names(trace, found.writers)) | {
        "texts": views.ledger_texts(language()),
        "chosen": asked - 1 if asked and is_marked else None,
        "words": words,
    }

    def pick() -> None:
        acted = st.session_state[BARS].picked
        state.receive(acted.get("moved"))
        writer = found.writers[acted["at"]]
        if acted["at"] == drawn["chosen"]:
            st.query_params.pop(PART, None)
        else:
            st.query_params[PART] = str(acted["at"] + 1)
        if writer.kind == "head":
            state.go(**_place(trace, writer))

    name = charts.file_name("ledger", "token", found.token + 1, *filter(None, (found.word, found.other)))
    meta = charts.described(BARS, t("ledger.title"), Origin(text=trace.title, source=trace.source))
    data = drawn | {"meta": meta | {"file": name}}
    _ledger_view(key=BARS, data=data, height=HEIGHT, on_picked_change=pick)
    reader = language()

    def page() -> str:
        set_language(reader)  # it is asked for outside of a run
        view = views.view(
            shown, layer=layer, head=head, token=token, ledger=found, language=reader, said=said
        )
        view.header["ledger"] |= drawn
        return view.html()

    st.download_button(t("ledger.save"), page, f"{name}.html", "text/html", on_click="ignore")


def _place(trace: AttentionTrace, writer: Writer) -> dict[str, Any]:
    """The fields of the focus that lead to a head."""
    assert writer.layer is not None  # as of each head
    kind = {"kind": trace.layers[writer.layer].kind} if len(trace.kinds) > 1 else {}
    return {"layer": _number(trace, writer.layer), "head": (writer.head or 0) + 1, **kind}


def _ends(trace: AttentionTrace, *, source: Any, writer: Writer, token: int) -> Words:
    """The words that a part raises and lowers most."""
    frame = written(trace, writer, source=source, token=token)
    ends = {"raised": frame[frame.share > 0], "lowered": frame[frame.share < 0][::-1]}
    return {name: list(zip(some.word, some.share, strict=True))[:MAX_WORDS] for name, some in ends.items()}
