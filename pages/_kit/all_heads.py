"""All heads of one layer at a glance, on one colour scale; of a long text the overview shows them."""

from collections.abc import Sequence

import streamlit as st

from mha_core import AttentionTrace
from mha_core.views import window
from pages._kit import components, roles, scale, state
from pages._kit.text import t


def show(trace: AttentionTrace, scene: state.Scene, *, layer: int, head: int, query: int) -> Sequence[float]:
    """The heads of a layer, and where the colours of each one's weights end."""
    shown, part = trace.layers[layer], window(len(trace.tokens), query)
    if part is not None:
        # All pairs of tokens are too many to be drawn; the part that is drawn has an end of its own.
        largest = float(shown.weights(head, rows=part, keys=part).max())
        return [largest or 1.0] * shown.n_heads
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.subheader(t("heads.all", layer=layer + 1), help=t("heads.all_help"))
        scale.control()
    limits = scale.limits(shown)  # after the control, which a link may have set
    components.head_grid(
        shown,
        trace.tokens.labels,
        chosen=head,
        limits=limits,
        roles=roles.labels(trace, scene, layer),
        on_pick=lambda picked: state.go(head=picked + 1),
    )
    st.caption(scale.note(limits))
    return limits
