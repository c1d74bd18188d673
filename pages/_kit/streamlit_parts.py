"""The private names of Streamlit that the pages rely on: selectors of the elements in our style sheet.

A new version may rename them; then tests/pages/test_streamlit_parts.py fails. The selectors of the scripts
are in assets/components/streamlit.js.
"""

import streamlit as st

SIDEBAR = '[data-testid="stSidebar"]'
PRIMARY = '[data-testid="stBaseButton-primary"]'
TAG = "[data-tag]"  # a chosen option of a multiselect
RADIO = '[role="radio"]'
KEYED = "st-key-"  # prefix of an element's key in its class

INVISIBLE = ("history", "charts", "unseen")
CARRIERS = ("_blob",)  # endings of the keys of components that hold data and show nothing


def style() -> None:
    """The style rules that Streamlit's theme cannot express; called before the page draws anything."""
    st.html(f"<style>{_rules()}</style>")  # no user text in it


def _rules() -> str:
    invisible = [
        *(_keyed(key) for key in INVISIBLE),
        *(f'[class*="{KEYED}"][class*="{end}"]' for end in CARRIERS),
    ]
    return f"""
{", ".join(invisible)} {{ display: none; }}
{SIDEBAR} {_keyed("source")} {RADIO} {{ padding: 0.25rem 0.6rem; }}
/* Streamlit writes white on its main colour, which is light in the dark theme. */
:is({PRIMARY}, {TAG}, {TAG} *) {{ color: light-dark(#ffffff, #14161b) !important; }}
"""


def _keyed(key: str) -> str:
    return f".{KEYED}{key}"
