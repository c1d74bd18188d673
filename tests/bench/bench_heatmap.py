"""What does a heatmap cost beside plotly's own? Each run of a page builds a dozen of them for each visitor.

Run it with ``python tests/bench/bench_heatmap.py``; the last lines are one JSON object each. A matrix of 14
tokens with all that the pages put on it (cells hidden by a causal mask, rows that fade, a row and a cell that
are framed), and a bare one, beside plotly's heatmap of the same numbers with nothing on it. They take turns;
the median of the ratios of a turn.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_core.figures.heatmap import heatmap

TOKENS, TURNS, EACH = 14, 41, 5
MAX_RATIOS = {"bare": 4.0, "with all that can be on it": 12.0}  # times plotly's own


def main() -> None:
    names = [f"token {n}" for n in range(TOKENS)]
    weights = np.random.default_rng(0).random((TOKENS, TOKENS), dtype=np.float32)
    frame = pd.DataFrame(weights, index=names, columns=names)
    options = {"kind": "weights", "rows": "query", "columns": "key"}
    hidden = np.triu(np.ones((TOKENS, TOKENS), bool), 1)
    ways = {
        "plotly": lambda: go.Figure(go.Heatmap(z=weights, x=names, y=names)),
        "bare": lambda: heatmap(frame, **options),
        "with all that can be on it": lambda: heatmap(frame, **options, hidden=hidden, row=5, cell=(5, 2)),
    }
    seconds_of = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            start = time.perf_counter()
            for _ in range(EACH):
                way()
            seconds_of[name].append((time.perf_counter() - start) / EACH)
    for name, seconds in seconds_of.items():
        print(f"{name}: {statistics.median(seconds) * 1e3:.2f} ms")
    for name, target in MAX_RATIOS.items():
        ratio = statistics.median(a / b for a, b in zip(seconds_of[name], seconds_of["plotly"], strict=True))
        print(json.dumps({"name": f"{name} / plotly's own", "value": round(ratio, 2), "target": target}))


if __name__ == "__main__":
    main()
