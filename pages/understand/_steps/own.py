"""Steps that our own models add to those of a head: tokens, residual and norm."""

from collections.abc import Sequence
from contextlib import suppress
from html import escape

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import own_steps
from mha_core.analysis.derivation import HeadContext, Step, steps
from mha_core.analysis.frames import Crop
from mha_core.sources import mini
from mha_core.sources.random_weights import word_vectors
from mha_core.traces.source import ModelSource, RandomSource, TrainedSource
from mha_core.training.lexicon import lexicon
from pages._kit import compute
from pages._kit.text import joined, literal, t

MAX_CHIPS = 64  # tokens that are shown with their numbers
STYLE = """
.cut { display: flex; flex-wrap: wrap; gap: .4rem .3rem; }
.cut > span { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 4px;
  padding: 0 .4rem; text-align: center; line-height: 1.35; }
.cut small { display: block; opacity: .7; font-variant-numeric: tabular-nums; }
.cut .unknown { border-style: dotted; border-color: currentColor; }
"""


def whole(trace: AttentionTrace, *, layer: int, head: int, part: Crop, query: int) -> list[Step]:
    """The steps of a head, with those before and after that the source of the trace makes known."""
    if not trace.layers[layer].knows("q"):
        return []
    found = steps(trace, layer=layer, head=head, part=part)
    view, source = HeadContext(trace, layer, head, part), trace.source
    if isinstance(source, TrainedSource):
        with suppress(MhaError):  # a model that is gone since the trace was computed
            return _of_small(view, source, found, query=query)
    if isinstance(source, RandomSource) and (x := trace.layers[0].x) is not None:
        words = word_vectors(trace.tokens.pieces, x.shape[1], seed=source.seed).numpy()
        return [
            own_steps.tokens(view, words, x - words, random=True, first=not layer, later=layer > 0),
            *found,
        ]
    if isinstance(source, ModelSource) and trace.sides.same:
        cut = Step("tokens", r"\text{text} \to \text{tokens}", (), (), ("model", "special"), view.sizes)
        return [cut, *found]
    return found


def _of_small(view: HeadContext, source: TrainedSource, found: Sequence[Step], *, query: int) -> list[Step]:
    stream = mini.stream(compute.small_model(source), view.trace)
    notes = {
        source.language: True,
        "cls": not source.is_decoder,
        "norm": not view.layer,
        "later": view.layer > 0,
    }
    first = own_steps.tokens(view, stream.words.numpy(), stream.positions.numpy(), **notes)
    before, normed = stream.before[view.layer].numpy(), stream.normed[view.layer]
    last = [] if normed is None else [own_steps.add(view, before, normed.numpy(), query)]
    return [first, *found, *last]


def cut(trace: AttentionTrace) -> None:
    """Draw the text as tokens, with the number of each where the source is a small model."""
    tokens, source = trace.tokens, trace.source
    ids: Sequence[object] = [""] * len(tokens)
    if isinstance(source, TrainedSource):
        ids = lexicon(source.language).cut(tokens.text, limit=len(tokens))[1]
    known = ["" if at not in tokens.unknown else ' class="unknown"' for at in range(len(tokens))]
    chips = "".join(
        f"<span{kind}>{escape(piece)}<small>{number}</small></span>"
        for piece, number, kind in list(zip(tokens.pieces, ids, known, strict=True))[:MAX_CHIPS]
    )
    st.html(f'<style>{STYLE}</style><div class="cut">{chips}</div>')
    if tokens.unknown and isinstance(source, TrainedSource):
        words = dict.fromkeys(tokens.pieces[at] for at in tokens.unknown)
        st.caption(t("steps.tokens.unknown", words=joined(literal(word) for word in words)))
