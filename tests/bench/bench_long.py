"""The cost of a long text in the app: memory and seconds of the page Heads, without a browser.

Run it with ``python tests/bench/bench_long.py`` (``--quick``: two layers); the last lines are one JSON object
each. The text runs in a process of its own, after a small sentence, as on a server that already had visitors.
Every part of the page is computed, up to the bytes for the browser.

The target is the memory that the long text adds to that server: at most twice its Q, K and V of all layers.
The server itself has 385 MB, of which torch takes 200, pandas 69 and Streamlit 53. The page shows tables, so
all are needed, and a limit on their sum would measure their releases, not our page.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

HEADS, D_MODEL, TOKENS = 12, 768, 4096
MAX_ADDED = 2.0  # multiple of Q, K and V of all layers; with two layers a constant 80 MB exceeds it
STATUS = Path("/proc/self/status")


def memory(name: str) -> int:
    """Bytes of resident memory of this process, now (VmRSS) or at most so far (VmHWM)."""
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def child(n_layers: int) -> dict:
    import logging

    logging.disable(logging.WARNING)  # warnings about a page without a browser
    from streamlit.testing.v1 import AppTest

    from pages._kit import compute, head_view, matrices, overview
    from pages.see._heads import measurements

    parts = {
        "trace": (compute, "trace"),
        "overview": (overview, "show"),
        "view": (head_view, "draw_traces"),
        "measured": (measurements, "show"),
        "check": (matrices, "check_badge"),
        "numbers": (matrices, "numbers"),
    }
    seconds = dict.fromkeys(parts, 0.0)

    def timed(part: str, function):
        def call(*args, **named):
            start = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                seconds[part] += time.perf_counter() - start

        return call

    for part, (module, name) in parts.items():
        setattr(module, name, timed(part, getattr(module, name)))

    def open_page(text: str, **link: object) -> float:
        app = AppTest.from_file(ROOT / "pages" / "frame.py", default_timeout=3600)
        for key, value in ({"source": "random", "twin": "", "text": text} | link).items():
            app.query_params[key] = str(value)
        for fold in ("overview_open", "measurements", "likeness", "numbers"):
            app.session_state[fold] = True
        start = time.perf_counter()
        app.run()
        if refused := [*app.exception, *app.error]:
            raise RuntimeError([error.value for error in refused])
        return time.perf_counter() - start

    open_page("a small sentence", layers=2, h=4, d_model=64)
    bare = memory("VmRSS")
    seconds.update(dict.fromkeys(parts, 0.0))
    text = " ".join(f"w{n % 997}" for n in range(TOKENS))
    link = {"layers": n_layers, "h": HEADS, "d_model": D_MODEL, "layer": 1, "head": 3, "token": TOKENS // 2}
    whole = open_page(text, mask="causal", **link)
    return {
        "bare": bare,
        "peak": memory("VmHWM"),
        "held": memory("VmRSS"),
        "qkv": n_layers * 3 * TOKENS * D_MODEL * 4,
        "seconds": {"page": whole} | seconds,
    }


def case(n_layers: int) -> dict:
    command = [sys.executable, __file__, "--child", str(n_layers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(quick: bool) -> None:
    if not STATUS.exists():
        sys.exit("This reads /proc, which this system does not have.")
    print(f"load average before the run: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
    n_layers = 2 if quick else 12
    c = case(n_layers)
    print(f"{TOKENS:,} tokens, {n_layers} layers of {HEADS} heads, d_model {D_MODEL}, causal mask")
    for name in ("bare", "held", "peak", "qkv"):
        print(f"{name:>10} {c[name] / 1e6:7.0f} MB")
    print()
    for name, spent in c["seconds"].items():
        print(f"{name:>10} {spent:7.1f} s")
    print()
    cells = f"{n_layers}x{HEADS}_L{TOKENS}"
    added = (c["peak"] - c["bare"]) / c["qkv"]
    for name, value, target in (
        (f"page_megabytes_{cells}", c["peak"] / 1e6, None),
        (f"page_memory_above_a_bare_server_over_qkv_{cells}", added, None if quick else MAX_ADDED),
        (f"page_seconds_{cells}", c["seconds"]["page"], None),
    ):
        print(json.dumps({"name": name, "value": round(value, 3), "target": target}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.child)))
    else:
        main(asked.quick)
