"""The model behind a trace: one sentence on the page, the details in an expander, and what was checked."""

import numpy as np
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, against_torch
from mha_core.analysis import patterns
from mha_core.analysis.frames import window
from mha_core.sources.huggingface import files
from mha_core.traces.source import FileSource, ModelSource, RandomSource, TrainedSource
from mha_core.training import checkpoints
from mha_core.training.model import ARCHITECTURES
from pages._kit import charts, choice, compute, model_source, state, views
from pages._kit.text import joined, literal, number, paragraph, said, t

MAX_CHECKED_ROWS = 1024  # compared with torch
EXACT = 1e-5  # largest difference that rounding of 32-bit numbers explains


def about(trace: AttentionTrace) -> None:
    """Show the source of the weights, and for a trained model its task and its scores."""
    source = trace.source
    if isinstance(source, FileSource):
        names = {"file": literal(source.file), "name": literal(source.name)}
        heads = counted({layer.n_heads for layer in trace.layers})
        st.caption(t("file.about", layers=len(trace.layers), heads=heads, **names))
        if source.edits:
            st.caption(literal(charts.changes(source)))
        skipped(trace)
        return
    if isinstance(source, ModelSource):
        _of_model(trace, source)
        return
    if not isinstance(source, TrainedSource):
        st.caption(t("model.random"))
        return
    kind = "untrained"
    if source.step:
        kind = "trained" if trace.questions else "trained_decoder"  # asked for the next word alone
    architecture = choice.word("architecture", source.architecture)
    sizes = {"architecture": architecture, "h": source.h, "d_model": source.d_model}
    st.caption(t(f"model.{kind}", steps=f"{source.step:,}", **sizes))
    if more := views.fold(t("model.more"), key="model_more"):
        with more:
            _details(trace, source)


def _details(trace: AttentionTrace, source: TrainedSource) -> None:
    """The questions a small model was trained on, and its scores on sentences it was not trained on."""
    asked = joined(t(f"head_view.question_{question}") for question in trace.questions)
    lines = [t(f"model.{source.architecture}"), t("model.supervised", questions=asked), t("model.heads")]
    if source.is_decoder:
        lines[1:] = [t("model.next_taught")]
    if scores := scores_of(source):
        command = f"python -m mha_core.training.workshop {checkpoints.name(source)}"
        lines += [_scores(scores), t("model.made", command=command)]
    st.markdown("\n\n".join(lines))


def layer(trace: AttentionTrace, number: int) -> None:
    """Show what a layer reads and what its output is used for."""
    if note := of_layer(trace, number):
        st.caption(literal(said(note)))


def notes(trace: AttentionTrace) -> list[str]:
    """For each layer, what it reads and what its output is used for, without markup."""
    return [paragraph([of_layer(trace, at), collapsed(trace, at)]) for at in range(len(trace.layers))]


def of_layer(trace: AttentionTrace, layer: int) -> str:
    """A note on what a layer reads and what its output is used for; "" where that is not known."""
    n_layers = len(trace.layers)
    if isinstance(trace.source, FileSource | ModelSource):
        name = trace.layers[layer].name
        return t("file.layer", name=name) if name else ""
    if not isinstance(trace.source, TrainedSource):
        return t("heads.stacked", layer=layer + 1, layers=n_layers, before=layer) if layer else ""
    kind = "block" if ARCHITECTURES[trace.source.architecture][layer] == "block" else "lookup"
    return t(f"model.layer.{kind}", layer=layer + 1, layers=n_layers)


def collapsed(trace: AttentionTrace, layer: int) -> str:
    """A note if all tokens have become alike and all weights even, as measured in this trace, or ""."""
    # Only layers with random weights are attention alone; blocks of other models have more than that.
    stacked = layer and isinstance(trace.source, RandomSource)
    spread = patterns.collapse(trace.layers[layer]) if stacked else None
    return "" if spread is None else t("heads.collapsed", share=f"{100 * spread:.2g}")


def note_small_models_only() -> None:
    """Show a note on pages about our small models to a user who has chosen a third-party model."""
    if state.setting("source") == "model":
        st.info(t("real.not_here"), icon=":material/deployed_code:")


def left_out(trace: AttentionTrace, layer: LayerTrace, *, count: int) -> None:
    """Show why `count` of the nine steps are left out."""
    if not model_source.is_third_party(trace):
        st.info(t("file.partly", count=count), icon=":material/help:")
        return
    reasons = [t("real.no_start")] if not (layer.knows("x") and layer.knows("w_q")) else []
    reasons += [t("real.no_end")] if not layer.knows("w_o") else []
    st.info(paragraph(reasons), icon=":material/help:")


def scores_of(source: TrainedSource) -> dict | None:
    """The held-out scores of a shipped model; None for a model that the user trained."""
    entry = checkpoints.manifest().get(checkpoints.name(source))
    if entry is None or (source.seed, source.step) != (entry["plan"]["seed"], entry["plan"]["steps"]):
        return None
    return entry["scores"]


def _scores(scores: dict) -> str:
    """The held-out scores of a shipped model in words."""
    if of_decoder := scores.get("perplexity"):
        numbers = {name: f"{of_decoder[name]:.0f}" for name in ("model", "trigram", "unigram")}
        return t("model.perplexity", words=f"{of_decoder['words']:,}", **numbers)
    return t(
        "model.scores",
        **{key: f"{100 * scores[key]:.0f}" for key in ("answer", "shapes", "accuracy", "agreement")},
        **{key: f"{scores[key]:.2f}" for key in ("right", "wrong")},
        **{key: scores[key] + 1 for key in ("layer", "head")},
        asked=scores["written"]["asked"],
        written=f"{100 * scores['written']['right']:.0f}",
        sure=f"{100 * scores['written']['sure_right']:.0f}",
    )


def _of_model(trace: AttentionTrace, source: ModelSource) -> None:
    """Show the name and sizes of a third-party model, and a badge with the error of its trace."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            t(
                "real.about",
                name=literal(short(source.name)),
                architecture=literal(source.architecture),
                layers=len(trace.layers),
                heads=counted({layer.n_heads for layer in trace.layers}),
            ),
            width="content",
        )
        exact(trace)
    if trace.mixers:
        rules = joined(dict.fromkeys(said(mixer.rule) for mixer in trace.mixers))
        st.caption(t("real.mixers", count=len(trace.mixers), rules=literal(rules)))
    skipped(trace)


def skipped(trace: AttentionTrace) -> None:
    """Show which layers are left out, each with its reason, and the notes about the others."""
    if reasons := trace.source.skipped:
        with st.expander(t("real.skipped", count=len(reasons))):
            for reason in reasons:
                st.markdown(literal(said(reason)))
    for note in trace.source.notes:
        st.caption(literal(said(note)))
    if n_biased := sum(bool(layer.about.bias) for layer in trace.layers):
        st.caption(t("real.bias_by_words", count=n_biased))


def exact(trace: AttentionTrace) -> None:
    """Show whether the trace equals what the model itself computes, as measured when it was loaded."""
    if not trace.layers:  # the matrix of a mixer is compared whenever it is drawn
        return
    source = trace.source
    assert isinstance(source, ModelSource)
    if source.route == "weights":
        st.badge(t("real.weights_only"), color="gray", help=t("real.weights_only_help"))
        return
    difference = literal(number(source.difference))
    explanation = t("real.watched_help") if source.route == "watch" else t("real.exact_help")
    if source.difference > EXACT:  # half precision rounds in another order
        st.badge(t("real.close", difference=difference), color="blue", help=explanation)
        return
    st.badge(t("real.exact", difference=difference), icon=":material/check:", color="green", help=explanation)


def one_digit(difference: float) -> str:
    """A small difference with one digit and no exponent, as in 0.0000005."""
    return np.format_float_positional(difference, precision=1, fractional=False, trim="-")


def check_badge(layer: LayerTrace, query: int) -> None:
    """Show whether this layer equals what torch computes; in a long text, for the rows around the token."""
    check = compute.once(layer, against_torch, rows=window(layer.n_query, query, MAX_CHECKED_ROWS))
    hint = t("check.help")
    if check.difference is None:
        st.badge(t("check.impossible", reason=said(check.reason)), color="gray", help=hint)
    elif check.passed:
        passed = t("check.passed", difference=one_digit(check.difference))
        st.badge(passed, icon=":material/check:", color="green", help=hint)
    else:
        difference = literal(number(check.difference))
        st.badge(t("check.failed", difference=difference), icon=":material/error:", color="red", help=hint)


def short(name: str) -> str:
    """The name of a model; for a folder the last part of its path."""
    return name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] if files.is_path(name) else name


def counted(numbers: set[int]) -> str:
    """One number, or the range from the smallest to the largest."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
