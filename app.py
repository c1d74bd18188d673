"""What `streamlit run app.py` starts: the frame with its pages."""

import streamlit as st

app = st.App("pages/frame.py")
