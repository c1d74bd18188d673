"""Shared by all figures: placeholders for the colours of a page's theme, and the style of axis titles."""

import html

COLOURS = 10  # of a theme; more lines repeat them


def colour(number: int) -> str:
    """A placeholder that a page replaces with its theme's colour of that number, from 0."""
    return f"#{number % COLOURS + 1:06d}"


def axis_title(words: str) -> dict:
    """The title of an axis, shown as typed, tags included."""
    return {"text": html.escape(words), "standoff": 14, "font": {"size": 12}}
