"""What `streamlit run app.py` starts: the frame with its pages."""

import streamlit as st

import mha_core  # noqa: F401 (torch is loaded when the server starts, not when the first visitor comes)

app = st.App("pages/frame.py")
