"""The app for tests of live training, which ends early and has learned something by then."""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from app import ROUTES  # noqa: E402
from mha_core.training import fit  # noqa: E402

fit.LIVE["steps"] = 250
app = st.App(ROOT / "pages" / "frame.py", routes=ROUTES)
