"""The overview of all layers and heads, below the view of one layer. It starts open where there are many."""

import json
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import AttentionTrace
from mha_core.analysis.frames import MAX_ALL_PAIRS, origin
from mha_core.analysis.overview import Heads, Overview, overview
from mha_core.analysis.patterns import MEASURES
from mha_core.export.payload import Panel, pack
from mha_core.scene.scene import Scene
from pages._kit import charts, components, compute, head_labels, state, views
from pages._kit.head_labels import NO_LABEL, RoleLabel
from pages._kit.text import paragraph, t, templates

SMALL = "overview_weights"  # the payload of the small pictures, for long texts
HEIGHT = 516  # pixels until it is drawn, which is after all that is below it
MIN_LAYERS = 3  # with so many layers the overview is open from the start
AT_ONCE = 1 << 27  # weights of all heads that are computed before the page is done: about a second
LEFT = 10  # seconds without a look at it after which a growing overview ends

_overview = components.component("overview", "pictures/overview.js", "pictures/overview.css")

# Measures by which heads can be sorted, and whether the largest comes first.
ORDERS = {"entropy": False, "distance": True, "first token": True, "previous token": True}
DIGITS = {"distance": 1}


class Growing:
    """An overview that one thread computes, head by head, while pages show what there is.

    It ends when it is complete, when a reader stops it, or when nobody has looked for `LEFT` seconds.
    """

    def __init__(self, trace: AttentionTrace, key: str, first: tuple[int, int]):
        self.heads, self.key, self.stopped, self.looked = Heads(trace), key, False, time.monotonic()
        # The chosen head, its layer, and then the others as they stand on the page, from the top.
        self.order = sorted(self.heads.places, key=lambda at: (at != first, at[0] != first[0], at))

    def start(self) -> None:
        self.stopped, self.looked = False, time.monotonic()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        for layer, head in self.order:
            if self.stopped or time.monotonic() - self.looked > LEFT:
                self.stopped = True
                return
            if (layer, head) not in self.heads.done:
                self.heads.add(layer, head)
        compute.kept("overviews", self.key, self.heads.overview)


growing: "weakref.WeakKeyDictionary[AttentionTrace, Growing]" = weakref.WeakKeyDictionary()


def opens(trace: AttentionTrace) -> bool:
    """Whether the overview is open from the start: for many layers and for long texts."""
    return trace.sides.length > MAX_ALL_PAIRS or len(trace.layers) >= MIN_LAYERS


def fold(trace: AttentionTrace, *, opened: bool) -> DeltaGenerator | None:
    """Draw the fold of the overview, which is filled last; None if it is closed.

    A single layer has no fold unless `opened`, because the picture of its heads stands above.
    """
    if len(trace.layers) < 2 and not opened:
        return None
    expander = views.fold(t("overview.title"), key="overview_open", expanded=opened)
    if expander is None:
        return None
    shares = any(layer.n_kv_heads < layer.n_heads for layer in trace.layers)
    expander.caption(paragraph([t("overview.how"), t("overview.brackets") if shares else ""]))
    return expander.container(height=HEIGHT, border=False, key="overview_fold")


def show(
    trace: AttentionTrace,
    scene: Scene,
    fold: DeltaGenerator | None,
    *,
    layer: int,
    head: int,
    link: str | None = None,
    weights: tuple[str, str] | None = None,
) -> None:
    """Draw every head as a small picture, with its measures, and the same as a table; nothing without a fold.

    `link` is the key of the container whose link a chosen head follows, if heads are shown on another page.
    `weights` is the name and the digest of a payload on the page that has all weights (`head_view`).
    """
    if fold is None:
        return
    shared = [shown.n_heads // shown.n_kv_heads for shown in trace.layers]
    key = compute.cache_key(scene)
    where = replace(origin(trace), note=t("overview.note"))
    meta = charts.described("overview", t("overview.title"), where)
    roles = head_labels.labels(trace)

    def draw(pictures: Overview, waiting: Collection[tuple[int, int]] = ()) -> None:
        labels = dict(roles or head_labels.position_labels(pictures.positions()))
        for place in waiting:
            label = labels.get(place, NO_LABEL)
            said = " · ".join(filter(None, (label.text, t("overview.waiting"))))
            labels[place] = label._replace(text=said)
        header = described(pictures, labels, shared=shared, meta=meta, waiting=waiting)
        small = None if weights else pack([Panel("", (), dict(enumerate(pictures.thumbs)))], bits=8)
        _mount(header, weights, small, {"chosen": {"layer": layer, "head": head}, "link": link})
        with st.popover(t("overview.table")):
            st.dataframe(table(pictures, labels), hide_index=True, key="overview_table")

    with fold:
        n_weights = sum(layer.n_heads * layer.n_query * layer.n_key for layer in trace.layers)
        if n_weights <= AT_ONCE or key in compute.caches["overviews"]:
            with st.spinner(t("overview.working")):
                pictures = compute.kept("overviews", key, lambda: overview(trace))
            draw(pictures)
            return
        if trace not in growing:
            growing[trace] = Growing(trace, key, (layer, head))
            growing[trace].start()
        run = weakref.ref(growing[trace])  # a session keeps the function, which may not hold the trace
        every = None if growing[trace].stopped else 1.0

        def grow() -> None:
            if (now := run()) is None or key in compute.caches["overviews"]:
                st.rerun()
            now.looked = time.monotonic()
            waiting = set(now.order) - now.heads.done
            count, done = len(now.order), len(now.order) - len(waiting)
            with st.container(horizontal=True, vertical_alignment="center"):
                st.progress(done / count, text=t("overview.progress", done=done, count=count))
                label = t("overview.go_on") if now.stopped else t("overview.stop")
                if st.button(label, key="overview_stop"):
                    now.start() if now.stopped else setattr(now, "stopped", True)
                    st.rerun()
            draw(now.heads.overview(), waiting)

        st.fragment(grow, run_every=every)()


def _mount(header: dict, weights: tuple[str, str] | None, small: bytes | None, scene: dict) -> None:
    """Send the facts once, with `small` weights if the page has no others; a choice sends its head alone."""
    facts = json.dumps(header).encode()
    weights = weights or (SMALL, components.digest(small or b""))
    with st.container(gap=None):  # the bytes show nothing
        data = {"digest": components.digest(facts), "weights": weights} | scene
        _overview(key="overview", data=data, on_picked_change=_picked)
        components.send("overview", facts)
        if small is not None:
            components.send(SMALL, small)


def _picked() -> None:
    picked = st.session_state.overview.picked
    state.go(layer=picked["layer"] + 1, head=picked["head"] + 1)


def described(
    pictures: Overview,
    labels: Mapping[tuple[int, int], RoleLabel],
    *,
    shared: Sequence[int],
    meta: Mapping[str, object],
    waiting: Collection[tuple[int, int]],
) -> dict:
    """The measures and labels of all heads as overview.js reads them.

    `shared` gives for each layer how many heads share a key/value head, `meta` the texts of a saved file
    (`charts.described`); `waiting` are the heads that are not computed yet.
    """
    head_labels = [labels.get(key, NO_LABEL) for key in pictures.table.index]
    measures = pictures.table[list(MEASURES)].assign(role=[label.score for label in head_labels])
    return {
        "meta": meta,
        "heads": [len(layer) for layer in pictures.thumbs],
        "shared": list(shared),
        "measures": list(measures),
        "values": [[_digits(value) for value in row] for row in measures.to_numpy().tolist()],
        "orders": [{"name": name, "label": _measure(name), "down": down} for name, down in ORDERS.items()]
        + [{"name": "role", "label": t("overview.role"), "down": False}],
        "facts": [
            {"name": name, "label": _measure(name), "digits": DIGITS.get(name, 2)} for name in MEASURES
        ],
        "waiting": [at for at, key in enumerate(pictures.table.index) if key in waiting],
        "roles": [label.role for label in head_labels],
        "labels": [label.text for label in head_labels],
        "texts": {
            **templates("overview."),
            "canvas": t("overview.canvas", layers=len(pictures.thumbs), heads=len(head_labels)),
            "of_layer": t("control.layer"),
            "of_head": t("control.head"),
        },
    }


def _digits(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")


def table(pictures: Overview, labels: Mapping[tuple[int, int], RoleLabel]) -> pd.DataFrame:
    """The measures, layers and heads from 1: the same as the pictures, for screen readers."""
    frame = pictures.table.reset_index()
    rows = pd.DataFrame({t("control.layer"): frame["layer"] + 1, t("control.head"): frame["head"] + 1})
    rows[t("overview.role")] = [labels.get(key, NO_LABEL).text for key in pictures.table.index]
    return rows.join(frame[list(MEASURES)].round(3).rename(columns=_measure))


def _measure(name: str) -> str:
    return t(f"roles.pattern.{name}")
