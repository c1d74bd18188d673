"""The page Token, inside one head: its query against every key, and its output as a mixture of values."""

import numpy as np
import pandas as pd
import streamlit as st

from mha_core.analysis.token import Leading, Mixture, against_keys, densest, leading, mixture, vectors
from mha_core.figures.annotated import annotated
from mha_core.figures.heatmap import FEW_COLUMNS, heatmap
from mha_core.traces.matrices import MATRICES
from pages._kit.text import literal, number, t
from pages.see._token.subject import Subject, chart, table, whole, word

MOST_KEYS = 24  # keys that the query is shown against
MOST_TERMS = 10  # tokens that a mixture is written out of
LEAST_SHARE = 0.005  # of the largest weight: smaller ones are told together
ROOMY, LEAST_SHOWN = 100, 0.001  # where scores lose their decimals, and weights turn into "less than"
STRIP, BUTTON = 104, 26  # pixels: one vector as a line of cells, and beside its last number a button


def search(subject: Subject) -> None:
    """The token's q, k and v, and q against every key: products, score, what the softmax gets, weight."""
    layer = subject.of_layer
    st.markdown(t("one.search", token=subject.name))
    _vectors(subject)
    if layer.n_kv_heads < layer.n_heads:
        st.caption(t("heads.shares", head=subject.head + 1, kv=layer.kv_head(subject.head) + 1))
    st.markdown(t("one.products", token=subject.name, d_k=layer.d_k, scale=literal(number(layer.scale))))
    products, numbers = against_keys(subject.trace, subject.token, layer=subject.layer, head=subject.head)
    kept = densest(numbers[["weight"]].T, MOST_KEYS)
    shown = numbers.iloc[kept]
    seen = np.isfinite(numbers["masked"])
    changed = not np.allclose(numbers["masked"][seen], numbers["scaled"][seen])
    drawn = heatmap(
        products.iloc[kept], kind="signed", rows=t("axis.key"), columns=t("one.product", d_k=t("axis.d_k"))
    )
    written = [[_short(row.score), _into(row.masked), _share(row.weight)] for row in shown.itertuples()]
    headers = ["q · k", t("one.adjusted") if changed else t("one.scaled"), t("one.weight")]
    chart(
        subject,
        annotated(drawn, written, headers),
        key="one-products",
        alt=t("one.products_alt", token=subject.labels[subject.token], keys=len(kept), d_k=layer.d_k),
    )
    if changed:
        st.caption(t("one.adjusted_note"))
    if not seen.all():
        st.caption(t("one.hidden_note", count=int((~seen).sum())))
    if len(kept) < len(numbers):
        most = number(np.delete(numbers["weight"].to_numpy(), kept).max())
        st.caption(t("one.partly", shown=len(kept), count=len(numbers), most=most))
    table(
        _with_tokens(pd.concat([numbers, _named(products, "q·k ")], axis=1)), name="scores", subject=subject
    )


def _vectors(subject: Subject) -> None:
    own = vectors(subject.trace, subject.token, layer=subject.layer, head=subject.head)
    limits = {name: float(np.abs(vector.to_numpy()).max()) for name, vector in own.items()}
    if "k" in limits:  # a token that looks at another text has a query alone
        limits["q"] = limits["k"] = max(limits["q"], limits["k"])  # they meet each other, v meets neither
    cells = st.grid(len(own), min_column_width=260)
    said = {"q": t("matrix.q"), "k": t("matrix.k"), "v": t("matrix.v")}
    for name, vector in own.items():
        with cells.container():
            st.caption(f"**{literal(MATRICES[name].written(subject.of_layer, subject.head))}** {said[name]}")
            axis = t("axis.d_v") if name == "v" else t("axis.d_k")
            drawn = heatmap(vector, kind="signed", rows="", columns=axis, limit=limits[name] or None)
            drawn.update_layout(height=STRIP, margin_r=BUTTON)
            drawn.update_traces(showscale=False, texttemplate=None)
            values = vector.to_numpy()
            alt = t(
                "one.vector_alt",
                what=said[name],
                size=values.size,
                low=number(values.min()),
                high=number(values.max()),
            )
            chart(subject, drawn, key=f"one-{name}", alt=alt)


def mixed(subject: Subject) -> None:
    """The row as a sentence of weights, the values it mixes, and one component written out."""
    made = mixture(subject.trace, subject.token, layer=subject.layer, head=subject.head)
    found = worth(made)
    if not len(found.positions):
        st.markdown(t("token.looks_nowhere", head=subject.head + 1, query=subject.name))
        return
    with st.container(border=True):
        st.markdown(sentence(subject, made))
    total = float(made.weights.to_numpy().sum(dtype=np.float64))
    st.markdown(f"{t('one.mixture', token=subject.name, head=subject.head + 1)} {whole(total)}")
    component = _component(made)
    parts = summed(made, t("one.others", count=found.n_others), t("one.output"))
    drawn = heatmap(
        parts,
        kind="signed",
        rows=t("one.gives"),
        columns=t("axis.d_v"),
        framed=(component, component + 1),
        row=len(parts) - 1,
    )
    if parts.shape[1] <= FEW_COLUMNS:
        drawn.update_xaxes(dtick=1)  # there is no component 1.5
    chart(
        subject,
        drawn,
        key="one-mixture",
        alt=t(
            "one.mixture_alt",
            token=subject.labels[subject.token],
            rows=len(parts) - 1,
            d_v=parts.shape[1],
            sentence=sentence(subject, made, marked=False),
        ),
    )
    st.markdown(written_out(made, component))
    st.caption(t("one.sum_check", difference=literal(number(made.difference))))
    given = _with_tokens(pd.concat([made.weights, _named(made.parts, "weight·v ")], axis=1))
    given.loc[len(given)] = [pd.NA, t("one.output"), total, *made.output]
    table(given, name="mixture", subject=subject)


def worth(made: Mixture) -> Leading:
    """The tokens that are named in a mixture: few, and none whose weight is next to nothing here."""
    return leading(made.weights, MOST_TERMS, minimum=LEAST_SHARE * float(made.weights.max()))


def sentence(subject: Subject, made: Mixture, *, marked: bool = True) -> str:
    """The row in words: the token = weight · token + …, largest first, the small ones together.

    `marked` is for places that read Markdown.
    """
    say = (lambda label: f"**{word(label)}**") if marked else str
    amount = _signed if marked else number
    found, weights, keys = worth(made), made.weights.to_numpy(), made.weights.index
    terms = [t("one.term", weight=amount(weights[at]), token=say(keys[at])) for at in found.positions]
    if found.n_others:
        others = t("one.others", count=found.n_others)
        terms.append(t("one.term_others", weight=amount(found.others), others=others))
    return t("one.sentence", token=say(subject.labels[subject.token]), terms=" + ".join(terms))


def summed(made: Mixture, others: str, output: str) -> pd.DataFrame:
    """What each token gives, largest weight first, then the small ones together, then their sum."""
    found, parts = worth(made), made.parts
    names, rows = list(parts.index[found.positions]), list(parts.to_numpy()[found.positions])
    if found.n_others:
        names.append(others)
        rows.append(_rest(made, found.positions))
    return pd.DataFrame([*rows, made.output.to_numpy()], [*names, output], columns=parts.columns)


def written_out(made: Mixture, component: int) -> str:
    """One component of the output as the sum of products that it is."""
    found = worth(made)
    weights, values = made.weights.to_numpy(), made.values.to_numpy()[:, component]
    terms = [f"{_signed(weights[at])} · {_bracketed(values[at])}" for at in found.positions]
    if found.n_others:
        terms.append(_bracketed(_rest(made, found.positions)[component]))
    total = _signed(made.output.to_numpy()[component])
    return t("one.equation", component=component + 1, terms=" + ".join(terms), total=total)


def _rest(made: Mixture, positions: np.ndarray) -> np.ndarray:
    """What the tokens that are not named give together. (d_v,)"""
    return np.delete(made.parts.to_numpy(), positions, axis=0).sum(axis=0)


def _component(made: Mixture) -> int:
    most = len(made.output)
    if "component" in st.session_state:
        st.session_state.component = min(st.session_state.component or 1, most)
    st.number_input(
        t("one.component"),
        1,
        most,
        1,
        key="component",
        width=200,
        bind="query-params",
        help=t("one.component_help"),
    )
    return st.session_state.component - 1


def _with_tokens(numbers: pd.DataFrame) -> pd.DataFrame:
    told = numbers.reset_index(names="token")
    told.insert(0, "position", pd.array(range(1, len(told) + 1), dtype="Int64"))
    return told


def _named(frame: pd.DataFrame, before: str) -> pd.DataFrame:
    return frame.rename(columns=lambda dimension: f"{before}{dimension}")


def _short(value: float) -> str:
    """A score in the little room beside the figure; the table has all its digits."""
    return (f"{value:.2f}" if abs(value) < ROOMY else f"{value:.3g}").replace("-", "−")


def _share(value: float) -> str:
    return f"{value:.3f}" if value >= LEAST_SHOWN or value == 0 else f"<{LEAST_SHOWN}"


def _into(value: float) -> str:
    return _short(value) if np.isfinite(value) else "−∞"


def _signed(value: float) -> str:
    return literal(number(value).replace("-", "−"))


def _bracketed(value: float) -> str:
    return f"({_signed(value)})" if value < 0 else _signed(value)
