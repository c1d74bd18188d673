"""The effect of the changes on the page What if: how far outputs and weights moved, layer by layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, LayerTrace, MhaError
from mha_core.analysis.cone import cone
from mha_core.analysis.frames import WINDOW, around, picture, window
from mha_core.attention.edits import Concatenation, Edit
from mha_core.traces.matrices import MATRICES
from pages._kit import compute, heatmaps, model_source, pair
from pages._kit.heatmaps import symbol, to_heatmap
from pages._kit.text import joined, literal, number, said, t
from pages.understand._what_if.sides import Rearranged

SATURATED = 0.99  # a row with such a weight hardly learns: the gradient of its softmax is nearly 0
ROW, EDGE = 36, 60  # pixels of a picture of layers and tokens


def matrices(
    sides: pair.Pair, *, partners: pair.Partners | None, painted: Callable[[str, range, range], None]
) -> None:
    """The matrices of a head that a change alters, from its weights to the output of its layer.

    The others are named. The weights are always drawn, because cells are hidden in their picture.
    """
    if len(sides) == 1:
        pair.show_matrices(sides, ["weights"], key="what-if", painted=painted)
        return
    layer, names = sides[-1].trace.layers[sides[-1].layer], ["weights", "masked", "output"]
    names += ["result"] if layer.knows("w_o") else []
    if partners is None:  # nothing can be set against each other
        pair.show_matrices(sides, names, key="what-if", painted=painted)
        return
    stay = [name for name in names if pair.is_unchanged(sides, name, partners=partners)]
    differ = [name for name in names if name not in stay]
    pair.show_matrices(sides, differ, key="what-if", difference=True, partners=partners, painted=painted)
    if stay:
        symbols = joined(literal(symbol(MATRICES[name].written(layer, sides[-1].head))) for name in stay)
        kind = "unchanged" if differ else "all_unchanged"
        st.markdown(t(f"what_if.{kind}", names=symbols))
    if "weights" in stay:
        pair.show_matrices(sides[-1:], ["weights"], key="what-if", painted=painted)


def without_w_o(trace: AttentionTrace, *, layer: int, head: int, query: int) -> None:
    """If W^O is left out of a layer: Z and the sum of what its heads write, on one scale, and their gap."""
    if not any(
        isinstance(edit, Concatenation) and edit.layer in (None, layer) for edit in trace.source.edits
    ):
        return
    of_layer = trace.layers[layer]
    gap = literal(number(float(np.abs(of_layer.result() - of_layer.concat()).max())))
    alone = of_layer.n_heads == 1
    st.markdown(t("what_if.z_is_head", gap=gap) if alone else t("what_if.z_is_heads", gap=gap))
    part = around(trace, query, layer=layer, head=head)
    both = [
        picture(trace, name, layer=layer, head=head, part=part)
        for name in ("output" if alone else "concat", "result")
    ]
    end = max(float(np.abs(one.frame.to_numpy()).max()) for one in both)
    drawn = [replace(to_heatmap(one, one.name, limit=end, query=query), limit=end) for one in both]
    traces = dict.fromkeys((one.name for one in both), trace)
    heatmaps.draw(drawn, key="what-if-z", traces=traces)


def reached(before: AttentionTrace, after: AttentionTrace, text: Rearranged, *, query: int) -> None:
    """Show how far the heads' outputs of each token moved, layer by layer, and where nothing can change."""
    if text.partners is None:
        return
    rows = window(len(after.sides.queries), query, WINDOW)
    try:
        cells = ~np.stack(_cone(text, after.source.edits))
    except MhaError as error:
        st.caption(literal(said(error)))
        return
    lengths = []
    for layers in zip(before.layers, after.layers, strict=True):
        old, new = (compute.once(layer, LayerTrace.concat, rows=rows) for layer in layers)
        lengths.append(np.linalg.norm(new - text.partners.align(old, "query"), axis=-1))
    moved = np.stack(lengths)
    if not moved.any():
        st.markdown(t("what_if.unmoved"))
        return
    shown = slice(None) if rows is None else rows
    names = pd.RangeIndex(1, len(moved) + 1, name="layer")
    frame = pd.DataFrame(moved, names, pd.Index(after.sides.queries.labels[shown], name="token"))
    picture = heatmaps.Heatmap(
        "reached",
        "‖Δ‖",
        t("what_if.reached"),
        frame,
        "weights",
        limit=float(moved.max()),
        hidden=cells[:, shown],
        hidden_text=t("what_if.unreached"),
    )
    heatmaps.draw([picture], key="what-if-reached", tall=ROW * len(moved) + EDGE)


def _cone(text: Rearranged, edits: Sequence[Edit]) -> list[np.ndarray]:
    """The cells that edits and swapped words can reach in the layers of the chosen kind of attention.

    A change passes through the other kinds, too. Raises `MhaError` as `cone` does.
    """
    whole, kind = text.trace, None
    if text.scene.source == "model":
        whole, kind = model_source.whole(text.scene)
    partners = None if text.partners is None else text.partners.keys
    moved = [at for at, partner in enumerate(partners or ()) if at != partner]
    cells = cone(whole, [replace(edit, kind=kind) for edit in edits], changed=moved)
    return [rows for rows, layer in zip(cells, whole.layers, strict=True) if kind in (None, layer.kind)]


def measured(
    before: AttentionTrace, after: AttentionTrace, text: Rearranged, *, layer: int, head: int, query: int
) -> None:
    """How far the weights of each layer moved; of a long text those of the rows that are drawn."""
    rows = around(before, query, layer=layer, head=head).queries
    pairs = zip(before.layers, after.layers, strict=True)
    table = pd.DataFrame([_measured(*layers, text.partners, rows) for layers in pairs])
    table.index = pd.RangeIndex(1, len(table) + 1, name=t("what_if.layer"))
    if rows is not None:
        st.caption(t("what_if.rows", first=f"{rows.start + 1:,}", last=f"{rows.stop:,}"))
    st.caption(t("what_if.slope_help"))
    st.table(
        table.rename(columns={name: t(f"what_if.{name}") for name in table}).reset_index(),
        hide_index=True,
        border="horizontal",
    )


def _measured(
    before: LayerTrace, after: LayerTrace, partners: pair.Partners | None, rows: slice | None
) -> dict[str, str]:
    """How far weights moved, and how many rows are saturated, before and after.

    A long text is measured one head at a time.
    """
    heads = [None] if rows is None else range(before.n_heads)
    largest, saturated, entropies, slopes = 0.0, np.zeros(2, int), np.zeros(2), np.zeros(2)
    for head in heads:
        tables = [compute.once(one, LayerTrace.weights, head=head, rows=rows) for one in (before, after)]
        if partners is not None:
            old = partners.align(tables[0], *("head",) * (head is None), "query", "key")
            largest = max(largest, float(np.abs(tables[1] - old).max()))
        for side, weights in enumerate(tables):
            saturated[side] += (weights.max(-1) > SATURATED).sum()
            terms = weights * np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
            entropies[side] -= terms.sum(-1).mean() / len(heads)
            slopes[side] += (weights.sum(-1) - (weights**2).sum(-1)).mean() / len(heads)
    return ({} if partners is None else {"largest": f"{largest:.4f}"}) | {
        "saturated": "{} → {}".format(*saturated),
        "entropy": "{:.2f} → {:.2f}".format(*entropies),
        "slope": "{:.3f} → {:.3f}".format(*slopes),  # the trace of the softmax's Jacobian
    }
