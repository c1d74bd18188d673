"""The app for tests of a slow server: each run waits while a test holds the lock."""

import fcntl
import os
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from app import ROUTES  # noqa: E402
from pages._kit import state  # noqa: E402

begin = state.begin


def late() -> None:
    with open(os.environ["HEADSCOPE_LOCK"]) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    begin()


if begin.__name__ != "late":  # once for all runs
    state.begin = late
app = st.App(ROOT / "pages" / "frame.py", routes=ROUTES)
