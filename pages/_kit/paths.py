"""Where the app's files lie, in a checkout and in a wheel alike."""

from pathlib import Path

PAGES = Path(__file__).parents[1]
ASSETS = PAGES.parent / "assets"
