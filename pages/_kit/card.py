"""What a model of others is: one line under its heads, and its card on the page Real model."""

import streamlit as st

from mha_core import AttentionTrace
from pages._kit.text import literal, number, t

FOLDER_SIGNS = ("/", "\\")


def brief(trace: AttentionTrace) -> None:
    """Model, sizes, and how exactly it is seen."""
    source = trace.source
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            t(
                "real.about",
                name=literal(short(str(source["name"]))),
                architecture=literal(source["architecture"]),
                layers=len(trace.layers),
                heads=counted({layer.n_heads for layer in trace.layers}),
            ),
            width="content",
        )
        exact(trace)
    if skipped := source.get("skipped"):
        with st.expander(t("real.skipped", count=len(skipped))):
            for reason in skipped:
                st.markdown(literal(reason))


def exact(trace: AttentionTrace) -> None:
    """Is what is shown what the model itself computes? Tried when it was loaded."""
    if trace.source["route"] == "weights":
        st.badge(t("real.weights_only"), color="gray", help=t("real.weights_only_help"))
        return
    gap = literal(number(trace.source["difference"]))
    st.badge(
        t("real.exact", difference=gap), icon=":material/check:", color="green", help=t("real.exact_help")
    )


def short(name: str) -> str:
    """A model as it is called; of a folder the last part of its path."""
    is_folder = name.startswith((".", "~", *FOLDER_SIGNS)) or "\\" in name
    return name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] if is_folder else name


def counted(numbers: set[int]) -> str:
    """One number, or from the least to the largest."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
