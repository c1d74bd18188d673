"""The cards of the cases: a picture, the title that opens the scene, and what to notice there."""

from base64 import b64encode
from html import escape

import streamlit as st

from pages._kit.cases import Case
from pages._kit.text import language
from pages.learn._cases.pictures import TALL, WIDE, picture


def card(case: Case) -> None:
    source = f"data:image/svg+xml;base64,{b64encode(_picture(case).encode()).decode()}"
    image = f'<img src="{source}" alt="" style="width: 100%; aspect-ratio: {WIDE} / {TALL}">'
    with st.container(key=f"picture_{case.number}"):
        st.html(f'<a href="{escape(case.address)}" tabindex="-1" aria-hidden="true">{image}</a>')
    st.header(f"{case.number}. [{case.title}]({case.address})", anchor=False)
    st.markdown(case.notice)


@st.cache_data(  # drawn once in each language, from what the shipped weights say
    show_spinner=False, max_entries=64, hash_funcs={Case: lambda case: (case.number, language())}
)
def _picture(case: Case) -> str:
    return picture(case)
