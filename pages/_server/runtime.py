"""Starts the server: its settings, and whether it is ready for visitors."""

import os

import streamlit as st

from mha_core import MhaError, device
from mha_core.sources import mini
from pages._server import limits, logs, streamlit_parts


def begin() -> None:
    """Configure Streamlit, torch and the log, before the server takes visitors."""
    st.secrets.load_if_toml_exists()  # some hosts can set the environment only there
    server = limits.current()
    if server.hosted:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is imported
        streamlit_parts.set_option("server.maxUploadSize", server.upload_megabytes)
        streamlit_parts.set_option("client.showErrorDetails", "none")
        streamlit_parts.set_option("client.toolbarMode", "minimal")  # leaves room for the links to all pages
    streamlit_parts.set_option("logger.enableRich", False)  # errors of pages would be printed outside the log
    streamlit_parts.hold_few_uploads(server.uploads_bytes)
    streamlit_parts.ask_no_other_site()
    device.leave_a_core()
    logs.begin()


def ready() -> bool:
    """Whether this server can show its first page, that is, open a shipped model.

    Anybody may ask, so the model is read only once, which takes 13 ms.
    """
    try:
        mini.model(mini.find("en", "glass-box", 4, 64))
    except (MhaError, OSError):
        return False
    return True
