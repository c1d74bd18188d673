"""What 32 heads at a glance cost the browser: our grid against plotly, one figure or one chart a head.

Run as `python tests/bench/bench_grid.py`; needs Chromium. Blocked time is the sum of the long tasks
of the main thread until the page is quiet, as the browser itself reports it.
"""

import json
from pathlib import Path
from statistics import median

from chromium import chromium, served

ROOT = Path(__file__).parents[2]
HEADS, TOKENS, ROUNDS = 32, 64, 5
PAGE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots
import mha_core as mha
from pages._kit import components

trace = mha.trace(" ".join(f"w{{i}}" for i in range({TOKENS})), h={HEADS}, d_model=128)
layer, labels = trace.layers[0], trace.tokens.labels
weights, how = layer.weights(), st.query_params.get("how")
if how == "ours":
    components.head_grid(
        layer, labels, chosen=0, limits=[1.0] * {HEADS}, roles=[""] * {HEADS}, on_pick=print, meta={{}}
    )
elif how == "figure":
    figure = make_subplots(rows=4, cols=8)
    for head in range({HEADS}):
        figure.add_heatmap(z=weights[head], showscale=False, row=head // 8 + 1, col=head % 8 + 1)
    st.plotly_chart(figure)
elif how == "charts":
    for head in range({HEADS}):
        st.plotly_chart(go.Figure(go.Heatmap(z=weights[head], showscale=False)), key=str(head))
st.text("drawn")
"""
WATCH = """
    window.blocked = 0;
    const add = (list) => list.getEntries().forEach((task) => { window.blocked += task.duration; });
    new PerformanceObserver(add).observe({ type: 'longtask', buffered: true });
"""
DRAWN_BY_US = f"""
    [...document.querySelectorAll('*')]
        .some((e) => e.shadowRoot?.querySelectorAll('button').length === {HEADS})
"""
DRAWN_BY_PLOTLY = f"document.querySelectorAll('.heatmaplayer image').length >= {HEADS}"
DONE = {"empty": "true", "ours": DRAWN_BY_US, "figure": DRAWN_BY_PLOTLY, "charts": DRAWN_BY_PLOTLY}


def blocked(browser, address: str, how: str) -> float:
    """Milliseconds for which the main thread could not answer a click."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(WATCH)
    page.goto(f"{address}/?how={how}")
    page.get_by_text("drawn").wait_for()
    page.wait_for_function(DONE[how], timeout=60_000)
    page.wait_for_timeout(1000)
    milliseconds = page.evaluate("window.blocked")
    page.close()
    return milliseconds


def main() -> None:
    with served(PAGE) as address, chromium() as browser:
        for how in DONE:
            blocked(browser, address, how)  # fills the browser's cache
        times = {how: [] for how in DONE}
        for _ in range(ROUNDS):
            for how, measured in times.items():
                measured.append(blocked(browser, address, how))
    middle = {how: median(measured) for how, measured in times.items()}
    for how, milliseconds in middle.items():
        print(f"{how:8} {milliseconds:7.0f} ms blocked")
    ours = max(middle["ours"] - middle["empty"], 1.0)
    for peer in ("figure", "charts"):
        ratio = ours / (middle[peer] - middle["empty"])
        print(json.dumps({"name": f"grid_blocked_vs_plotly_{peer}", "value": round(ratio, 3), "target": 0.1}))


if __name__ == "__main__":
    main()
