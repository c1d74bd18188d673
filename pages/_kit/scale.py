"""Where the colours of weights end: at 1, at the largest weight of all heads, or of each head."""

import numpy as np
import streamlit as st

from mha_core import LayerTrace
from pages._kit.text import number, t

SHARED, OWN, FULL = ENDS = ("shared", "per head", "0 to 1")  # they stand in the link


def control() -> None:
    st.segmented_control(
        t("heads.scale"),
        ENDS,
        default=SHARED,
        required=True,
        key="scale",
        help=t("heads.scale_help"),
        bind="query-params",
    )


def chosen() -> str:
    """The end that is chosen. A link sets it before the control is drawn, which stands below its pictures."""
    linked = st.query_params.get("scale", SHARED)
    return st.session_state.get("scale", linked if linked in ENDS else SHARED)


def limits(layer: LayerTrace) -> np.ndarray:
    """The weight at which each head's colours end. (head,)"""
    largest = layer.weights().max(axis=(1, 2))
    ends = {SHARED: np.full_like(largest, largest.max()), OWN: largest, FULL: np.ones_like(largest)}[chosen()]
    return np.where(ends > 0, ends, 1.0)  # a layer that is hidden altogether has no largest weight


def note(ends: np.ndarray) -> str:
    """The scale in words, so that nobody compares what cannot be compared."""
    if chosen() == OWN:
        return t("heads.scale_each")
    return t("heads.scale_now", limit=number(ends[0]))
