"""Seventeen cases, each a scene that shows one fact about attention, and a line on what to notice in it."""

from base64 import b64encode
from html import escape

import streamlit as st

from pages._kit.cases import cases
from pages._kit.text import t
from pages.learn._cases.pictures import TALL, WIDE, picture

st.title(t("cases.heading"), anchor=False)
st.caption(t("cases.intro"))
cards = st.grid(3, min_column_width=300)
for case in cases():
    source = f"data:image/svg+xml;base64,{b64encode(picture(case).encode()).decode()}"
    image = f'<img src="{source}" alt="" style="width: 100%; aspect-ratio: {WIDE} / {TALL}">'
    with cards.container(border=True, height="stretch"):
        with st.container(key=f"picture_{case.number}"):
            st.html(f'<a href="{escape(case.address)}" tabindex="-1" aria-hidden="true">{image}</a>')
        st.header(f"{case.number}. [{case.title}]({case.address})", anchor=False)
        st.markdown(case.notice)
