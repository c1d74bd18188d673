"""One token at a time: what a decoder computes for the newest token, and what it keeps of all others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError
from mha_core.analysis.cost import cost, spec_of, step_flops, variants
from mha_core.analysis.frames import Crop, picture
from mha_core.analysis.published import kind
from mha_core.attention.edits import Exchange
from mha_core.focus import token_names
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from mha_core.sources import decoding, mini
from mha_core.sources.decoding import CacheCheck, NextWord
from mha_core.traces.answers import is_known
from mha_core.traces.source import DECODER, ModelSource, TrainedSource
from mha_core.training.lexicon import HAN
from mha_core.training.model import ARCHITECTURES
from pages._kit import (
    answers,
    chooser,
    components,
    compute,
    heatmaps,
    model_info,
    model_source,
    refusals,
    state,
)
from pages._kit.scene import scene_and_trace
from pages._kit.text import counted, in_bytes, isolated, literal, said, t
from pages.understand._steps import cache_changes, cache_rows

ROW = "row"  # in the link: the newest token, counted from 1; the last one of the text without it
TALL = 400  # pixels of the matrix
DRAWN = 64  # rows of the matrix


def page() -> None:
    scene, before = scene_and_trace(_causal(state.current()), heading=t("decode.heading"))
    head_line = st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute")
    head_line.title(t("decode.heading"), anchor=False)
    try:
        decoding.check_causal(before)
    except MhaError as error:
        refusals.show(error)
        return
    if scene.source == "file":
        st.info(t("decode.file"), icon=":material/draft:")
        return
    layer, head, _ = indices(before, scene.focus)
    at = _row(before)
    acting = cache_changes.acting(scene, before)
    try:
        after = compute.trace(scene, edits=acting) if acting else before
    except MhaError as error:  # a model with attention of its own code takes no edits
        refusals.show(error, page_offers=True)
        after, acting = before, ()
    found = _read(scene, before, at)
    changed = _read(scene, after, at) if acting else found
    with head_line:
        _badge(changed.check)
    st.caption(t("decode.intro"))
    _step(before, at, changed.words)
    _says(after, found, changed)
    chooser.show(chooser.rows([one.n_heads for one in before.layers], layer, head), [])
    rows, matrix, costs = st.columns([9, 7, 6], gap="medium")
    shown = after.layers[layer]
    with rows:
        if shown.knows("q"):
            cache_rows.draw(shown, head=head, at=at, edits=acting)
            _notes(shown, head)
        if any(isinstance(one, Exchange) and one.since <= at for one in acting):
            st.caption(t("decode.exchanged"))
    with matrix:
        _matrix(after, layer=layer, head=head, at=at)
    with costs:
        _bytes(after, layer, at)
    st.header(t("decode.touch"), divider="gray")
    cache_changes.choose(scene, before, at=at)
    model_info.about(before)


def _causal(scene: Scene) -> Scene:
    """The scene with a small decoder, or with random weights under a causal mask."""
    if scene.source == "mini" and not scene.architecture.startswith(DECODER):
        sharing = f"{DECODER}-{scene.architecture}"
        return replace(scene, architecture=sharing if sharing in ARCHITECTURES else DECODER)
    if scene.source == "random" and scene.mask.partition(":")[0] not in ("causal", "streaming"):
        return replace(scene, mask="causal")
    return scene


class _Found(NamedTuple):
    """The words that can come next, or why there are none, and the comparison with the full run."""

    words: Sequence[NextWord]
    check: CacheCheck
    silent: MhaError | None = None


def _row(trace: AttentionTrace) -> int:
    """The position of the newest token: the one that the link names, the last one of a new text."""
    last = len(trace.tokens) - 1
    if st.session_state.get("decoded_text", trace.tokens.text) != trace.tokens.text:
        st.query_params.pop(ROW, None)
    st.session_state["decoded_text"] = trace.tokens.text
    named = st.query_params.get(ROW)
    if named is None:
        return last
    at = (token_names.as_number(named) or 0) - 1
    if not 0 <= at < last:
        at = last
        state.say_instead(ROW, last + 1)
    return at


def _read(scene: Scene, trace: AttentionTrace, at: int) -> _Found:
    """The next words and the comparison of a step, once for everybody who sees this trace."""
    entry = model_source.loaded_model(scene) if scene.source == "model" else None
    computed = partial(_computed, trace, at, entry and entry.model, asks=scene.ask_model)
    key = (compute.serial_number(trace), "decode", at, scene.ask_model)
    return compute.kept("results", key, lambda: model_source.run_model(trace, computed))


def _computed(trace: AttentionTrace, at: int, model: Any, *, asks: bool) -> _Found:
    origin, text = trace.source.origin, trace.tokens.text[: trace.tokens.spans[at][1]]
    if isinstance(origin, TrainedSource):
        trained = compute.small_model(origin)
        run = decoding.cached(trace, trained, last=at)
        words = [
            NextWord(word, share, mini.continued(text, word) if text else mini.appended(text, word))
            for word, share in trace.answers[at] or ()
        ]
        return _Found(words, run.check(trace, mini.full_scores(trained, trace)[at]))
    run = decoding.cached(trace, model, last=at)
    if model is None or not asks:
        return _Found((), run.check(trace))
    assert isinstance(origin, ModelSource)  # of the model
    ids = origin.input_ids[: at + 1]
    try:
        scores = decoding.full_scores(model, ids, trace.source.edits)
    except MhaError as error:  # it has no head that writes, or not enough memory
        return _Found((), run.check(trace), error)
    return _Found(decoding.next_words(model, ids, scores, text), run.check(trace, scores))


def _badge(check: CacheCheck) -> None:
    """Whether the cached run has the numbers of the full one."""
    compared = [one for one in (check.weights, check.scores) if one is not None]
    hint = t("decode.check_help")
    if not compared:
        st.badge(t("check.impossible", reason=literal(said(check.reason))), color="gray", help=hint)
    elif check.passed:
        equal = t("decode.equal", gap=model_info.one_digit(max(compared)))
        st.badge(equal, icon=":material/check:", color="green", help=hint)
    else:
        differs = t("decode.differs", gap=f"{max(compared):.1g}")
        st.badge(differs, icon=":material/error:", color="red", help=hint)


def _step(trace: AttentionTrace, at: int, words: Sequence[NextWord]) -> None:
    """Back, the next word, and the button that appends it: the text's own one, a probable one, or any."""
    tokens, text = trace.tokens, trace.tokens.text[: trace.tokens.spans[at][1]]
    added: dict[str, str | None] = {}
    if at + 1 < len(tokens):
        added[t("decode.own_word", word=isolated(tokens.labels[at + 1]))] = None
    for one in words:
        if one.text is not None:
            added.setdefault(t("decode.word", word=isolated(one.word), share=f"{one.share:.0%}"), one.text)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            t("decode.back"),
            key="decode_back",
            icon=":material/arrow_back:",
            disabled=not any(end for _, end in tokens.spans[:at]),
            on_click=_go,
            args=(at,),
        )
        key = f"decode_word_{components.digest(repr((at, *added)).encode())}"
        word = st.selectbox(
            t("decode.next_word"),
            list(added),
            index=0 if added else None,
            key=key,
            accept_new_options=True,
            placeholder=t("decode.type_word"),
            label_visibility="collapsed",
            width=260,
        )
        st.button(
            t("decode.next"),
            key="decode_next",
            icon=":material/arrow_forward:",
            type="secondary" if word is None else "primary",
            disabled=word is None,
            on_click=_next,
            args=(text, at, key, added),
        )


def _go(row: int) -> None:
    """Move to the step of a token, counted from 1."""
    st.query_params[ROW] = str(row)


def _next(text: str, at: int, key: str, added: Mapping[str, str | None]) -> None:
    if not (word := st.session_state[key]):
        return
    if word in added and added[word] is None:  # the text goes on
        _go(at + 2)
        return
    longer = added.get(word) or typed(text, word.strip())
    st.session_state["decoded_text"] = longer
    st.query_params.pop(ROW, None)
    state.go(text=longer)


def typed(text: str, word: str) -> str:
    """The text with what was typed behind it; a word in letters has a space before it."""
    joins = not text or HAN.match(word) or not word[:1].isalnum()
    return f"{text}{word}" if joins else f"{text.rstrip()} {word}"


def _says(trace: AttentionTrace, found: _Found, changed: _Found) -> None:
    """The next word as the model expects it, without and with the changes of the cache."""
    if not found.words:
        if found.silent is not None:
            st.caption(literal(said(found.silent)))
        else:
            st.caption(t("decode.silent") if model_source.is_third_party(trace) else t("decode.random"))
        return
    told = _expected(found.words)
    if changed is not found:
        first, after = found.words[0], {one.word: f"{one.share:.0%}" for one in changed.words}
        shares = {"share": f"{first.share:.0%}", "now": after.get(first.word, t("decode.less"))}
        expected, word = _expected(changed.words), literal(isolated(first.word))
        told = t("decode.before_after", before=told, after=expected, word=word, **shares)
    st.markdown(told)


def _expected(words: Sequence[NextWord]) -> str:
    answer = tuple((one.word, one.share) for one in words[:3])
    listed = answers.with_shares(answer)
    return t("decode.expects", words=listed) if is_known(answer) else t("decode.unsure", words=listed)


def _notes(layer: LayerTrace, head: int) -> None:
    """Notes on vectors that are drawn in part, that several heads share, or that come from a latent one."""
    if max(layer.d_k, layer.d_v) > cache_rows.CELLS:
        st.caption(t("decode.first_numbers", count=cache_rows.CELLS))
    latent, group = layer.about.latent, layer.n_heads // layer.n_kv_heads
    if latent is not None:
        st.caption(t("decode.latent", rank=latent.kv_rank + (latent.rotary_width or 0)))
    elif group > 1:
        first = layer.kv_head(head) * group + 1
        st.caption(t("decode.grouped", first=first, last=first + group - 1))


def _bytes(trace: AttentionTrace, layer: int, at: int) -> None:
    """The cache of this model, of each kind of attention of its sizes, and the operations of a step."""
    specs = [spec for one in trace.layers if (spec := spec_of(one)) is not None]
    if len(specs) < len(trace.layers):
        st.caption(t("decode.no_sizes"))
        return
    own = specs[layer]
    of_number = 2 if getattr(trace.source.origin, "dtype", "").endswith("16") else 4
    seen = [int(one.allowed(rows=[at])[:, 0, : at + 1].any(0).sum()) for one in trace.layers]
    rows = []
    for name, spec in variants(own).items():
        is_own = name == kind(own)
        kept = [cost(one if is_own else spec, 1).cache for one in specs]
        here = f"**{t('decode.this_model', kind=name.upper())}**" if is_own else name.upper()
        so_far = sum(numbers * count for numbers, count in zip(kept, seen, strict=True))
        rows.append(
            {
                t("decode.column_kind"): here,
                t("decode.column_token"): in_bytes(sum(kept) * of_number, 5),
                t("decode.column_so_far", rows=max(seen)): in_bytes(so_far * of_number),
            }
        )
    st.table(rows, hide_index=True, border="horizontal")
    steps = sum(step_flops(one, count) for one, count in zip(specs, seen, strict=True))
    full = sum(cost(one, at + 1).flops for one in specs)
    st.caption(t("decode.operations", step=counted(steps), full=counted(full), times=f"{full / steps:.3g}"))


def _matrix(trace: AttentionTrace, *, layer: int, head: int, at: int) -> None:
    """The causal matrix of the full run, up to the newest token, whose row is framed."""
    part = slice(max(0, at + 1 - DRAWN), at + 1)
    drawn = picture(trace, "weights", layer=layer, head=head, part=Crop(part, part))
    shown = heatmaps.to_heatmap(drawn, "weights", limit=1.0, query=at)
    heatmaps.draw([shown], key="decode-matrix", tall=TALL, traces={"weights": trace})
    st.caption(t("decode.matrix"))
