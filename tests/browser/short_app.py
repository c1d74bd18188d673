"""The app for tests of live training: with few sentences, so that it learns something in a short time."""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from app import ROUTES  # noqa: E402
from mha_core.training import data, fit, queue  # noqa: E402

fit.LIVE["steps"] = 500
data.SENTENCES = 50 * data.BATCH
queue.PAIRS = 2
app = st.App(ROOT / "pages" / "frame.py", routes=ROUTES)
