"""What `streamlit run app.py` starts: the frame with its pages."""

import streamlit as st

from mha_core import trace  # noqa: F401 (so torch is loaded before the first visitor comes)

app = st.App("pages/frame.py")
