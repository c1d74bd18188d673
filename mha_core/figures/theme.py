"""What all figures share: stand-ins for the colours of a page's theme, and the look of axis titles."""

import html

COLOURS = 10  # of a theme; then they come round again


def colour(number: int) -> str:
    """A stand-in that a page replaces with its theme's colour of that number, from 0."""
    return f"#{number % COLOURS + 1:06d}"


def axis_title(words: str) -> dict:
    """The title of an axis, shown as typed, tags included."""
    return {"text": html.escape(words), "standoff": 14, "font": {"size": 12}}
