"""One head on the page Token: the query against every key, and the output as a mixture of values."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.frames import origin
from mha_core.analysis.token import Leading, Mixture, against_keys, densest, leading, mixture, vectors
from mha_core.traces.matrices import MATRICES
from pages._kit import compute, heatmaps, state
from pages._kit.heatmaps import MatrixCell
from pages._kit.text import bold, literal, number, paragraph, signed, t
from pages.see._token.subject import Subject, sum_of_row, table, word
from pages.see._token.weights import partly

MAX_KEYS = 24  # in the figure of q against the keys
MAX_TERMS = 10  # tokens in a mixture that is written out
MIN_SHARE = 0.005  # of the largest weight; smaller weights are added up to one term
VECTOR_HEIGHT = 64  # pixels of one vector as a row of cells, with its numbers


def search(subject: Subject) -> None:
    """The token's q, k and v, and q against every key: products, score, softmax input, weight."""
    layer = subject.of_layer
    st.markdown(t("one.search", token=subject.name))
    drawn = subject.of(_vectors, head=subject.head)
    traces = dict.fromkeys(MATRICES, subject.trace)
    heatmaps.draw(drawn, key="one-vectors", tall=VECTOR_HEIGHT, traces=traces)
    if layer.n_kv_heads < layer.n_heads:
        st.caption(t("heads.shares", head=subject.head + 1, kv=layer.kv_head(subject.head) + 1))
    st.markdown(t("one.products", token=subject.name, d_k=layer.d_k, scale=literal(number(layer.scale))))
    products, numbers = subject.of(against_keys, head=subject.head)
    heatmaps.draw(
        subject.of(_steps, head=subject.head, scale=state.focus().scale), key="one-products", traces=traces
    )
    best = numbers.loc[numbers["weight"].idxmax()]
    found = {"key": word(str(best.name)), "share": f"{100 * best['weight']:.0f}"}
    found |= {name: literal(number(best[name])) for name in ("score", "masked", "weight")}
    st.markdown(t("one.found", token=subject.name, count=len(numbers), **found))
    if _is_adjusted(numbers):
        st.caption(t("one.adjusted_note"))
    if hidden := int((~np.isfinite(numbers["masked"])).sum()):
        st.caption(t("one.hidden_note", count=hidden))
    partly(numbers[["weight"]].T, MAX_KEYS)
    table(
        subject,
        lambda: _with_tokens(pd.concat([numbers, products.add_prefix("q·k ")], axis=1)),
        name="scores",
    )


def _is_adjusted(numbers: pd.DataFrame) -> bool:
    """Whether there is more than a mask between the scaled scores and the softmax."""
    visible = numbers[np.isfinite(numbers["masked"])]
    return not np.allclose(visible["masked"], visible["scaled"])


def _steps(trace: AttentionTrace, *, layer: int, head: int, token: int, scale: str) -> list[heatmaps.Heatmap]:
    """The way from the products of each key to its weight: products, scores, weights."""
    source = origin(trace, layer=layer, head=head)
    products, numbers = compute.once(trace, against_keys, layer=layer, head=head, token=token)
    scaled = t("one.adjusted") if _is_adjusted(numbers) else t("one.scaled")
    keys = densest(numbers[["weight"]].T, MAX_KEYS)
    products, numbers = products.iloc[keys], numbers.iloc[keys]
    scores = numbers[["score", "masked"]].set_axis(pd.Index(["q · k", scaled], name="step"), axis=1)
    weights = numbers[["weight"]].set_axis(pd.Index([t("one.weight")], name="step"), axis=1)
    masked = ~np.isfinite(scores.to_numpy())
    limit = heatmaps.scale_end(scale, float(numbers["weight"].max()))
    return [
        heatmaps.Heatmap("products", "q ⊙ k", t("one.product"), products, "signed", origin=source),
        heatmaps.Heatmap(
            "scores",
            "q · k",
            t("one.score"),
            scores,
            "signed",
            hidden=masked if masked.any() else None,
            origin=source,
            result=True,
            cell=lambda row, column: MatrixCell(("scores", "masked")[column], head, token, int(keys[row])),
        ),
        heatmaps.Heatmap(
            "weights",
            "softmax",
            t("one.weight"),
            weights,
            "weights",
            limit=limit,
            origin=source,
            result=True,
            cell=lambda row, _: MatrixCell("weights", head, token, int(keys[row])),
        ),
    ]


def _vectors(trace: AttentionTrace, *, layer: int, head: int, token: int) -> list[heatmaps.Heatmap]:
    """The token's q, k and v as rows of cells."""
    vector_frames = vectors(trace, token, layer=layer, head=head)
    limits = {name: float(np.abs(vector.to_numpy()).max()) for name, vector in vector_frames.items()}
    if "k" in limits:  # absent where the keys are those of another text
        limits["q"] = limits["k"] = max(limits["q"], limits["k"])  # one scale, since q and k are multiplied
    return [
        heatmaps.Heatmap(
            name,
            MATRICES[name].written(trace.layers[layer], head),
            t(f"matrix.{name}"),
            vector,
            "signed",
            limit=limits[name] or None,
            origin=origin(trace, layer=layer, head=head),
            cell=partial(_cell, name, head, token),
        )
        for name, vector in vector_frames.items()
    ]


def _cell(name: str, head: int, token: int, _row: int, column: int) -> MatrixCell:
    return MatrixCell(name, head, token, column)


def mixed(subject: Subject) -> None:
    """The row of weights as a sentence, the mixture of values, and one output component written out."""
    mix = subject.of(mixture, head=subject.head)
    leading_terms = largest_terms(mix)
    if not len(leading_terms.positions):
        st.markdown(t("token.looks_nowhere", head=subject.head + 1, query=subject.name))
        return
    with st.container(border=True):
        st.markdown(compute.once(mix, sentence, token=subject.label))
    total = float(mix.weights.to_numpy().sum(dtype=np.float64))
    st.markdown(paragraph([t("one.mixture", token=subject.name, head=subject.head + 1), sum_of_row(total)]))
    component = _component(mix)
    parts = replace(
        compute.once(mix, table_of_parts),
        framed=(component, component + 1),
        origin=subject.origin,
        # The part of a token is a term of the output's number.
        cell=lambda _, column: MatrixCell("output", subject.head, subject.token, column),
    )
    heatmaps.draw([parts], key="one-mixture", traces={parts.name: subject.trace})
    st.markdown(compute.once(mix, written_out, component=component))
    st.caption(t("one.sum_check", difference=literal(number(mix.difference))))

    def numbers() -> pd.DataFrame:
        frame = _with_tokens(pd.concat([mix.weights, mix.parts.add_prefix("weight·v ")], axis=1))
        frame.loc[len(frame)] = [pd.NA, t("one.output"), total, *mix.output]
        return frame

    table(subject, numbers, name="mixture")


def largest_terms(mix: Mixture) -> Leading:
    """The named tokens of a mixture: at most `MAX_TERMS`, each at least `MIN_SHARE` of the largest weight."""
    return leading(mix.weights, MAX_TERMS, minimum=MIN_SHARE * float(mix.weights.max()))


def sentence(mix: Mixture, *, token: str) -> str:
    """The row of a token in words: the token = weight · token + …, largest first, small ones as one term."""
    leading_terms, weights, keys = largest_terms(mix), mix.weights.to_numpy(), mix.weights.index
    terms = [
        t("one.term", weight=signed(weights[at]), token=bold(keys[at])) for at in leading_terms.positions
    ]
    if leading_terms.n_others:
        others = t("one.others", count=leading_terms.n_others)
        terms.append(t("one.term_others", weight=signed(leading_terms.others), others=others))
    return t("one.sentence", token=bold(token), terms=" + ".join(terms))


def table_of_parts(mix: Mixture) -> heatmaps.Heatmap:
    """The part of each named token, largest weight first, then the sum of all others, then the output."""
    leading_terms, parts = largest_terms(mix), mix.parts
    names, rows = list(parts.index[leading_terms.positions]), list(parts.to_numpy()[leading_terms.positions])
    if leading_terms.n_others:
        names.append(t("one.others", count=leading_terms.n_others))
        rows.append(_rest(mix, leading_terms.positions))
    index = pd.Index([*names, t("one.output")], name="part")
    frame = pd.DataFrame([*rows, mix.output.to_numpy()], index, columns=parts.columns)
    return heatmaps.Heatmap("mixture", t("one.part"), t("one.gives"), frame, "signed", row=len(frame) - 1)


def written_out(mix: Mixture, component: int) -> str:
    """One component of the output, written out as a sum of products."""
    leading_terms = largest_terms(mix)
    weights, values = mix.weights.to_numpy(), mix.values.to_numpy()[:, component]
    terms = [f"{signed(weights[at])} · {_bracketed(values[at])}" for at in leading_terms.positions]
    if leading_terms.n_others:
        terms.append(_bracketed(_rest(mix, leading_terms.positions)[component]))
    total = signed(mix.output.to_numpy()[component])
    return t("one.equation", component=component + 1, terms=" + ".join(terms), total=total)


def _rest(mix: Mixture, positions: np.ndarray) -> np.ndarray:
    """The sum of the parts of the tokens that are not named. (d_v,)"""
    return np.delete(mix.parts.to_numpy(), positions, axis=0).sum(axis=0)


def _component(mix: Mixture) -> int:
    width = len(mix.output)
    if "component" in st.session_state:
        st.session_state.component = min(st.session_state.component or 1, width)
    st.number_input(
        t("one.component"),
        1,
        width,
        1,
        key="component",
        width=200,
        bind="query-params",
        help=t("one.component_help"),
    )
    return st.session_state.component - 1


def _with_tokens(numbers: pd.DataFrame) -> pd.DataFrame:
    frame = numbers.reset_index(names="token")
    frame.insert(0, "position", pd.array(range(1, len(frame) + 1), dtype="Int64"))
    return frame


def _bracketed(value: float) -> str:
    return f"({signed(value)})" if value < 0 else signed(value)
