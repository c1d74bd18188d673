"""With how many bits a model of others computes: chosen before it is loaded, a part of the link."""

import streamlit as st

from mha_core import device
from mha_core.sources.huggingface.model import DTYPES
from pages._kit.text import t


def usual() -> str:
    """The kind of numbers in which a model computes here unless another is chosen."""
    return device.usual_dtype(device.pick().name)


def control() -> None:
    """A choice of the kinds of numbers, by the field's own names: they stand in the link."""
    st.selectbox(
        t("control.dtype"),
        list(DTYPES),
        list(DTYPES).index(usual()),
        key="dtype",
        help=t("control.dtype_help"),
        bind="query-params",
    )
