"""Shared by all figures: placeholders for the colours of a page's theme, intervals, and axis titles."""

import html

import pandas as pd

COLOURS = 10  # of a theme; more lines repeat them


def colour(number: int) -> str:
    """A placeholder that a page replaces with its theme's colour of that number, from 0."""
    return f"#{number % COLOURS + 1:06d}"


def interval(rows: pd.DataFrame, middle: str, low: str, high: str, **look: object) -> dict:
    """The interval of each value, from one column to another, as plotly's error bars in this look."""
    up, down = rows[high] - rows[middle], rows[middle] - rows[low]
    return {"type": "data", "symmetric": False, "array": up.to_numpy(), "arrayminus": down.to_numpy(), **look}


def axis_title(words: str) -> dict:
    """The title of an axis, shown as typed, tags included."""
    return {"text": html.escape(words), "standoff": 14, "font": {"size": 12}}
