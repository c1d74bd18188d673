"""Starts the server: its settings, its memory, and whether it is ready for visitors."""

import contextlib
import ctypes
import gc
import os

import streamlit as st

from mha_core import MhaError, device
from mha_core.sources import mini
from pages._server import limits, logs, streamlit_parts

OBJECTS_PER_RUN = 1_400  # that a run of a page leaves behind
GC_THRESHOLDS = (7 * OBJECTS_PER_RUN, 10, 10)  # new objects before a collection; every tenth has older ones
MAX_ARENAS, M_ARENA_MAX = 2, -8  # the second is the number of this setting in glibc's malloc.h


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
    _share_arenas()
    logs.begin()


def _share_arenas() -> None:
    """Make all threads take their memory from the same few arenas.

    glibc has 8 for each processor, and shared objects leave holes in each when they are freed, so that memory
    grew for as long as a lesson lasted. Other systems have no such function.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MAX_ARENAS)


def tune_garbage_collection() -> None:
    """Exempt all that has been imported from garbage collection, during which nobody is served (0.2 s).

    With Python's own thresholds all newer objects would be searched every fifty runs of a page.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def ready() -> bool:
    """Whether this server can show its first page, that is, open a shipped model.

    Anybody may ask, so the model is read only once, which takes 13 ms.
    """
    try:
        mini.model(mini.find("en", "glass-box", 4, 64))
    except (MhaError, OSError):
        return False
    return True
