"""A link as a QR code, for phones that point at a projected page."""

from functools import lru_cache
from itertools import groupby

import segno


@lru_cache(maxsize=256)
def drawn(link: str) -> dict[str, object]:
    """Its width in modules, and its dark ones as the path of an SVG."""
    rows = [list(row) for row in segno.make(link, error="m", micro=False).matrix]
    parts = []
    for y, row in enumerate(rows):
        x = 0
        for dark, run in groupby(row):
            width = len([*run])
            if dark:
                parts.append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    return {"size": len(rows), "path": "".join(parts)}
