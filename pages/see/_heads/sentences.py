"""The head view of the page Heads: one sentence or two, the six matrices of a head, the other heads."""

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from mha_core import AttentionTrace
from mha_core.scene.scene import Scene
from mha_core.traces.matrices import MATRICES, VIEWED
from pages._kit import (
    answers,
    cell_path,
    compute,
    controls,
    head_labels,
    head_view,
    invitation,
    model_info,
    state,
)
from pages._kit.text import t, template

MAX_WORD = 100  # characters typed over a word


def show(
    trace: AttentionTrace,
    twin: AttentionTrace | None,
    scene: Scene,
    *,
    layer: int,
    head: int,
    token: int,
    reports: bool,
    answered: Sequence[AttentionTrace] = (),
) -> tuple[str, str] | None:
    """Draw one sentence or two with everything about a head: its lines, its six matrices, the other heads.

    With `reports` the view sends each move, for parts of the page that follow it. `answered` are traces of
    the same sentences with the model's answers, if these have been asked for. Returns as `draw_traces` does.
    """
    traces = [trace] if twin is None else [trace, twin]
    words = [compute.once(one, _words) for one in traces]
    more = {
        "strips": True,
        "matrices": True,
        "swings": invitation.is_newcomer() and controls.at_start(),
        "reports": reports,
        "computes": scene.source == "mini",
        "answers": [answers.in_words(one) for one in answered] or [one.answers for one in words],
        "notes": words[0].notes,
        "roles": words[0].roles,
        "explains": True,
        "explanation": _explanation(traces),
    }
    if scene.source != "file":
        if scene.source != "model":  # whose pieces are not always words
            more["rewrite"] = template("heads.rewrite")
        more |= {"without": t("heads.without"), "block": template("heads.block")}
    # A session keeps the function, which therefore must not hold a trace with all its results.
    typed = [*zip(("text", "twin"), (one.tokens for one in traces), strict=False)]

    def change(chosen: dict) -> None:
        field, tokens = typed[chosen["panel"]]
        start, end = tokens.spans[chosen["word"]]
        text = tokens.text[:start] + chosen["text"][:MAX_WORD] + tokens.text[end:]
        state.go(**{field: text, "token": chosen["word"] + 1})

    return head_view.draw_traces(
        traces, layer=layer, head=head, token=token, values=True, more=more, on_word=change
    )


class SentenceWords(NamedTuple):
    """The words of a sentence's view: at each token the answers, and by layer its note and the role of each
    head, alone and with its score ("" for a head without a role).
    """

    answers: list[list[answers.AnswerText]]
    notes: list[str]
    roles: dict[int, list[tuple[str, str]]]


def _words(trace: AttentionTrace) -> SentenceWords:
    labels = head_labels.labels(trace)
    roles = {
        number: [
            (label.name, label.text)
            for head in range(layer.n_heads)
            for label in [labels.get((number, head), head_labels.NO_LABEL)]
        ]
        for number, layer in enumerate(trace.layers)
    }
    return SentenceWords(answers.in_words(trace), model_info.notes(trace), roles)


def _explanation(traces: Sequence[AttentionTrace]) -> dict | None:
    """The explanation of the number that was asked about in the view, as long as the number is there."""
    asked = st.session_state.get(head_view.EXPLAINED)
    if asked is None or asked["panel"] >= len(traces):
        return None
    trace, name, layer, head = traces[asked["panel"]], asked["name"], asked["layer"], asked["head"]
    if name not in VIEWED or layer >= len(trace.layers) or head >= trace.layers[layer].n_heads:
        return None
    place = {"layer": layer, "head": head, "row": asked["row"], "column": asked["column"]}
    symbol = MATRICES[name].written(trace.layers[layer], head)
    return cell_path.describe_cell(trace, name, **place, symbol=symbol) | {"id": asked["id"]}
