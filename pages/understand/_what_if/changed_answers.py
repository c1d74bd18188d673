"""The model's answers on the page What if, and what each head does for one of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError, effects
from mha_core.focus.focus import Focus
from mha_core.scene import swaps
from mha_core.scene.scene import Scene
from mha_core.scene.swaps import Swap
from mha_core.sources import mini
from mha_core.traces.answers import NOTHING, SURE, Answer, is_known
from pages._kit import answers, compute, heatmaps, model_source
from pages._kit.text import isolated, literal, number, percent, said, signed, t
from pages._kit.why import by_model, source_of
from pages.understand._what_if.sides import Rearranged

MAX_LINES = 3  # answers that are said in sentences; more of them are a table
ROW, EDGE = 44, 40  # pixels of a picture of layers and heads
DECISIVE = 0.5  # of an answer's probability, which a head takes away


class Answered(NamedTuple):
    """Both traces with the model's answers, and the same for the chosen kind of attention."""

    before: AttentionTrace
    after: AttentionTrace
    seen: tuple[AttentionTrace, AttentionTrace]


def asked(
    text: Rearranged, before: AttentionTrace, after: AttentionTrace, *, scene: Scene
) -> Answered | None:
    """Both traces with the model's answers, a transformers model's only on request; None without any."""
    if scene.source != "model":
        return Answered(before, after, (before, after)) if any(before.answers) else None
    typed = scene.text, ()
    texts = [typed] if after is before else [typed, (text.scene.text, after.source.edits)]
    found = answers.traces_with_answers(scene, texts)
    if not found:
        return None
    seen = found[0].with_kind(scene.kind), found[-1].with_kind(scene.kind)
    return Answered(found[0].whole, found[-1].whole, seen)


def show(before: AttentionTrace, after: AttentionTrace, swapped: Sequence[Swap]) -> None:
    """Show the model's answer at each word, wherever it stands, before and after the changes.

    A small model is asked about every word: its answers are shown at pronouns and hidden words, and where
    they have changed; many are put into a table. If words cannot be matched, only the new answers are shown.
    """
    partners: Sequence[int] | None = swaps.order(before.answered, after.answered, swapped)
    columns: tuple[str, ...] = ("before",) if before is after else ("before", "after")
    if partners is None:
        before, partners, columns = after, range(len(after.answers)), ("after",)
    pairs = [
        (at, old, new)
        for at, (partner, new) in enumerate(zip(partners, after.answers, strict=True))
        if (old := before.answers[partner]) is not None and new is not None
    ]
    if first := mini.main_tokens(after):
        pairs = [(at, old, new) for at, old, new in pairs if at in first or old[0][0] != new[0][0]]
    labels, few = after.answered.labels, len(pairs) <= MAX_LINES
    if before is not after:
        told = [one for one in pairs if few or one[0] in first]
        with st.container(key="changed_answers"):
            for at, old, new in sorted(told, key=lambda one: one[1][0][0] == one[2][0][0]):  # others first
                word = literal(isolated(labels[at]))
                st.markdown(became(word, old, new, hedged=bool(first)))
        if few:
            return
    rows = [
        {
            t("what_if.at"): labels[at],
            **{t(f"what_if.answer_{side}"): _words({"before": old, "after": new}[side]) for side in columns},
        }
        for at, old, new in pairs
    ]
    table = pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1))
    st.caption(t("what_if.answers"))
    if few:  # on a phone they have several lines
        st.table(table.map(literal), hide_index=True, border="horizontal")
    else:
        st.dataframe(table, hide_index=True)


def of_word(scene: Scene, before: AttentionTrace, after: AttentionTrace) -> None:
    """Ask for a word, and say its probability before and after the changes."""
    word = st.text_input(
        t("what_if.word"),
        key="what_if_word",
        placeholder=t("what_if.word"),
        label_visibility="collapsed",
        width=320,
    )
    if not word:
        return
    try:
        shares = [by_model(scene, one, _share, word=word) for one in (before, after)]
    except MhaError as refusal:
        st.info(literal(said(refusal)), icon=":material/block:")
        return
    (_, _, old), (named, token, new) = shares
    facts = {"word": literal(_named(named)), "token": literal(isolated(token))}
    st.markdown(t("what_if.word_share", before=number(old), after=number(new), **facts))


def _share(trace: AttentionTrace, *, word: str, source: Any) -> tuple[str, str, float]:
    """The word as the model writes it, the token where it is asked, and the word's probability there."""
    frame = trace.logits(words=[word], source=source)
    return frame["word"][0], trace.answered.labels[frame.attrs["at"]], float(frame["probability"][0])


def became(word: str, old: Answer, new: Answer, *, hedged: bool) -> str:
    """A sentence on how an answer has changed; `hedged` as small models are, if they are not sure."""
    if is_known(old) or is_known(new):
        if old[0][0] != new[0][0] or not (is_known(old) and is_known(new)):
            return t("what_if.answer_other", word=word, before=_guess(old, hedged), after=_guess(new, hedged))
        kind = "same"
    else:
        kind = "neither"
    words = {"before": literal(_named(old[0][0])), "after": literal(_named(new[0][0]))}
    shares = {"before_share": percent(old[0][1]), "after_share": percent(new[0][1])}
    return t(f"what_if.answer_{kind}", word=word, unknown=t("answer.unsure"), **words, **shares)


def _guess(answer: Answer, hedged: bool) -> str:
    """The best word with its probability, or that the model does not know."""
    word, share = literal(_named(answer[0][0])), percent(answer[0][1])
    if not is_known(answer):
        return t("what_if.answer_unknown", unknown=t("answer.unsure"), answer=word, share=share)
    if hedged and answer[0][1] < SURE:
        return t("answer.perhaps", words=f"{word} {share}")
    return t("what_if.answer_known", answer=word, share=share)


def _words(answer: Answer) -> str:
    words = " · ".join(f"{_named(word)} {percent(share)}" for word, share in answer[:3])
    return words if is_known(answer) else f"{t('answer.unsure')} ({words})"


def _named(word: str) -> str:
    """An answer in words: "[CLS]" says that there is nothing."""
    return t("answer.none") if word == NOTHING else isolated(word)


def of_heads(scene: Scene, trace: AttentionTrace) -> None:
    """Show the effect of each head on an answer, measured on request."""
    st.header(t("what_if.effects"))
    st.caption(t("what_if.effects_intro"))
    names = {}
    for place, answer in enumerate(trace.answers):
        if answer is not None:
            shown = {"word": _named(answer[0][0]), "share": percent(answer[0][1])}
            token = isolated(trace.answered.labels[place])
            names[place] = t("what_if.effects_answer", token=token, **shown)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        at = max(mini.main_tokens(trace) or names)
        if len(names) > 1:
            at = st.selectbox(
                t("what_if.effects_at"),
                names,
                index=list(names).index(at),
                format_func=names.__getitem__,
                width=320,
            )
        st.button(
            t("what_if.effects_start"),
            key="measure_effects",
            icon=":material/power_settings_new:",
            on_click=st.session_state.__setitem__,
            args=("effects_of", (trace.tokens.text, at)),
        )
    if st.session_state.get("effects_of") == (trace.tokens.text, at):
        _draw(compute.once(trace, _measured, scene=replace(scene, focus=Focus()), at=at))


def _measured(trace: AttentionTrace, *, scene: Scene, at: int) -> pd.DataFrame:
    """The effects, with a progress bar; its button starts the page anew, which stops the measurement."""
    place = st.empty()
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0)
        st.button(
            t("what_if.effects_stop"),
            key="stop_effects",
            on_click=st.session_state.pop,
            args=("effects_of", None),
        )

    def progress(done: int, total: int) -> None:
        bar.progress(done / total, t("what_if.effects_progress", done=done, total=total))

    source: Any = source_of(scene, trace)
    measure = partial(effects, trace, at=at, method="both", source=source, progress=progress)
    frame = model_source.run_model(trace, measure)
    place.empty()
    return frame


def _draw(frame: pd.DataFrame) -> None:
    """A sentence on the largest effect, both measures over layers and heads, and how their ranks agree."""
    first, about = frame.iloc[0], frame.attrs
    before, after = math.exp(about["value"]), math.exp(about["value"] + first["effect"])
    layers = _layers(frame)
    layer = layers[first["layer"]]
    names = {
        "head": t("what_if.of_head", head=int(first["head"]) + 1),
        "layer": layer if isinstance(layer, str) else t("what_if.in_layer", layer=layer),
        "answer": literal(_named(about["answer"])),
    }
    kind = "one" if abs(after - before) > DECISIVE * before else "none"
    st.markdown(t(f"what_if.effects_{kind}", before=percent(before), after=percent(after), **names))
    drawn = []
    for column, key in (("effect", "effects"), ("estimate", "estimate")):
        table = frame.pivot(index="layer", columns="head", values=column)
        table.index = pd.Index([layers[at] for at in table.index], name="layer")
        table.columns = pd.Index(table.columns + 1, name="head")
        symbol, meaning = t(f"what_if.{key}_matrix"), t(f"what_if.{key}_matrix_meaning")
        drawn.append(heatmaps.Heatmap(column, symbol, meaning, table, "signed"))
    heatmaps.draw(drawn, key="what-if-effects", stacked=True, tall=ROW * frame["layer"].nunique() + EDGE)
    correlation = signed(about["rank_correlation"], "z.2f")
    st.caption(t("what_if.effects_rank", correlation=correlation))


def _layers(frame: pd.DataFrame) -> dict[int, int | str]:
    """The name of each layer on a page: its number, and among several kinds the kind and the number in it."""
    every = frame.drop_duplicates("layer").sort_values("layer")
    if "kind" not in every:
        return {at: at + 1 for at in every["layer"].tolist()}
    numbers = every.groupby("kind").cumcount() + 1
    return dict(zip(every["layer"].tolist(), every["kind"] + " " + numbers.astype(str), strict=True))
