"""Whose attention is looked at, where a trace has several kinds of it."""

from collections.abc import Sequence

import streamlit as st

from pages._kit.text import t


def control(kinds: Sequence[str]) -> None:
    """A choice between encoder, decoder and cross; nothing where there is one kind alone."""
    if len(kinds) < 2:
        return
    if st.session_state.get("kind") not in kinds:
        st.session_state.pop("kind", None)
    st.segmented_control(
        t("control.kind"),
        kinds,
        default=kinds[0],
        required=True,
        key="kind",
        help=t("control.kind_help"),
        bind="query-params",
    )
