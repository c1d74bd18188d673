"""Every private part of Streamlit that the pages touch: how it calls the elements that our style speaks of.

Any version may rename them; tests/pages/test_streamlit_parts.py fails then. The scripts have theirs in
assets/components/streamlit.js.
"""

import streamlit as st

SIDEBAR = '[data-testid="stSidebar"]'
PRIMARY = '[data-testid="stBaseButton-primary"]'
TAG = "[data-tag]"  # what is chosen of several
RADIO = '[role="radio"]'
KEYED = "st-key-"  # before the key of an element, as a class

INVISIBLE = ("history", "charts", "unseen")
CARRIERS = ("_blob",)  # how the keys of components end that carry data and show nothing


def style() -> None:
    """What Streamlit's theme cannot say: put on the page before anything else."""
    st.html(f"<style>{_rules()}</style>")  # our own words alone


def _rules() -> str:
    nothing = [
        *(_keyed(key) for key in INVISIBLE),
        *(f'[class*="{KEYED}"][class*="{end}"]' for end in CARRIERS),
    ]
    return f"""
{", ".join(nothing)} {{ display: none; }}
{SIDEBAR} {_keyed("source")} {RADIO} {{ padding: 0.25rem 0.6rem; }}
/* Streamlit writes white on its main colour, which in a dark page is a light one. */
:is({PRIMARY}, {TAG}, {TAG} *) {{ color: light-dark(#ffffff, #14161b) !important; }}
"""


def _keyed(key: str) -> str:
    return f".{KEYED}{key}"
