"""Starts the server: its settings, its memory, and whether it is ready for visitors."""

import contextlib
import ctypes
import gc
import os

import streamlit as st

from mha_core import MhaError, device
from mha_core.sources import mini
from pages._server import limits, logs, streamlit_parts

OF_A_RUN = 1_400  # objects that a run of a page leaves
PACE = (7 * OF_A_RUN, 10, 10)  # before the youngest objects are searched; each tenth time older ones
MAX_ARENAS, M_ARENA_MAX = 2, -8  # the second is the name of the first in glibc's malloc.h


def begin() -> None:
    """Set what Streamlit, torch and the log have to know of this server, before it takes visitors."""
    st.secrets.load_if_toml_exists()  # where there is no other way to set the environment, they do
    figures = limits.current()
    if figures.hosted:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the hub's library reads it when it is imported
        streamlit_parts.set_option("server.maxUploadSize", figures.upload_megabytes)
        streamlit_parts.set_option("client.showErrorDetails", "none")
        streamlit_parts.set_option("client.toolbarMode", "minimal")  # all pages have room beside it
    streamlit_parts.set_option("logger.enableRich", False)  # errors of pages would stand beside the log
    streamlit_parts.read_lazily()
    streamlit_parts.take_whole_numbers()
    streamlit_parts.hold_few_uploads(figures.uploads_bytes)
    streamlit_parts.ask_no_other_site()
    streamlit_parts.leave_lines_out()
    device.leave_a_core()
    _share_arenas()
    logs.begin()


def _share_arenas() -> None:
    """Let all threads take their memory from the same few arenas.

    glibc has 8 for each processor, and what has been shared for a while, and goes, leaves holes in each:
    memory grew for as long as a lesson took. Other systems have no such function.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MAX_ARENAS)


def settle() -> None:
    """Leave what has been imported out of the searches for garbage, in which nobody is served (0.2 s).

    At Python's own pace all that has come since would be searched every fifty runs of a page.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*PACE)


def ready() -> bool:
    """Whether this server can show its first page: a shipped model opens, which is read once.

    Anybody may ask, and reading it takes 13 ms.
    """
    try:
        mini.model(mini.find("en", "glass-box", 4, 64))
    except (MhaError, OSError):
        return False
    return True
