"""The head view against BertViz: bytes and seconds from a trace of 12 layers × 12 heads to a picture.

    pip install bertviz
    python tests/bench/bench_view.py

Ours is the page of `trace.view().save(…)`, with q, k and v in single precision, opened in Chromium without a
network until its lines are drawn. For a long text it contains the chosen layer, where BertViz's page always
contains all; the number of layers inside is printed. BertViz's page needs scripts from elsewhere, so for
BertViz only making and loading the page count, without drawing: the ratio favours it. Its numbers count once,
although its page has them twice. Both run with the same weights.

Then, for ours only: the time from a click on a head, a word or a layer until its pictures are on the screen,
beside that of a click without effect, which is one frame. The size of a saved page is tested in
tests/export/test_head_view.py.
"""

import contextlib
import io
import re
import statistics
import tempfile
import time
from pathlib import Path

import torch
from chromium import chromium
from measuring import report

import mha_core as mha
from mha_core.export.head_view import ALL_LAYERS, panel
from mha_core.export.payload import BUDGET, fitting, pack

LAYERS, HEADS, D_K = 12, 12, 64
LENGTHS = (16, 64, 128, 256, 512)
# Targets at 512 tokens: a page with q, k and v, the app's payload without v, and seconds.
FEWER_BYTES, FEWER_SENT, LESS_TIME = 140, 260, 20
MAX_CLICK = 50  # milliseconds until another head, word or layer is drawn, at 64 tokens
# Milliseconds from each click until the task after its frame, when the drawing is on the screen.
CLICKS = """async (places) => {
  const root = document.querySelector('.view'), found = {}, chosen = {};
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  }));
  for (const [name, selector] of Object.entries(places)) {
    [found[name], chosen[name]] = [[], new Set()];
    for (let nth = 0; nth < 24; nth += 1) {
      const all = [...root.querySelectorAll(selector)];
      await painted();
      const start = performance.now();
      all[(5 * nth) % all.length].click();
      await painted();
      found[name].push(performance.now() - start);
      const { state, chosenHead, chosenToken } = root.view.selection;
      chosen[name].add([state.layer, chosenHead, chosenToken].join());
    }
  }
  const moved = ([name, states]) => states.size > 1 || name === 'nothing';
  if (!Object.entries(chosen).every(moved)) throw Error('a click has chosen nothing');
  return found;
}"""
PLACES = {
    "head": ".all-heads .grid button",
    "word": ".token.query",
    "layer": ".segments:has(> :nth-child(12)) button",
    "nothing": ".caption",
}


def trace_of(length: int) -> mha.AttentionTrace:
    generator = torch.Generator().manual_seed(length)
    rule = mha.ScoreRule()  # no mask, or half of BertViz's numbers would be the short 0.0
    draw = lambda: torch.randn(HEADS, length, D_K, generator=generator) * 1.5  # noqa: E731
    layers = tuple(mha.LayerTrace({"q": draw(), "k": draw(), "v": draw()}, rule) for _ in range(LAYERS))
    tokens = mha.words(" ".join(f"word{n}" for n in range(length)))
    return mha.AttentionTrace(tokens, layers, {"name": "bench"})


def load(browser, page_file: Path, drawn: str) -> float:
    page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page.set_default_timeout(300_000)
    start = time.perf_counter()
    page.goto(page_file.as_uri(), wait_until="load", timeout=300_000)
    page.wait_for_function(drawn, timeout=300_000)
    seconds = time.perf_counter() - start
    page.close()
    return seconds


def ours(browser, trace: mha.AttentionTrace, folder: Path) -> tuple[int, float, float, int]:
    """Bytes of the page, seconds to make it and to show it, bytes of its layer in the app's payload."""
    start = time.perf_counter()
    view = trace.view(layer=5, head=0, token=len(trace.tokens) // 2)
    file = folder / "ours.html"
    view.save(file)
    made = time.perf_counter() - start
    drawn = "document.querySelector('.view').view?.drawings?.[0].drawing.curves.length > 0"
    return file.stat().st_size, made, load(browser, file, drawn), len(pack([panel(trace, [5])]))


def theirs(browser, trace: mha.AttentionTrace, folder: Path) -> tuple[int, float, float]:
    from bertviz import head_view

    attention = [torch.from_numpy(layer.weights().copy())[None] for layer in trace.layers]
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        made = head_view(attention, list(trace.tokens.labels), html_action="return").data
    seconds = time.perf_counter() - start
    made = re.sub("// HACK: .*", "", made)  # a comment of BertViz 1.4.1 that repeats all numbers
    file = folder / "theirs.html"
    file.write_text(made, encoding="utf-8")
    return file.stat().st_size, seconds, load(browser, file, "document.readyState === 'complete'")


def clicking(browser, folder: Path) -> None:
    """The time until another head, word or layer of 64 tokens is drawn."""
    file = folder / "clicks.html"
    trace_of(64).view(layer=5, head=0).save(file)
    page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page.goto(file.as_uri())
    page.locator(".all-heads .grid button").last.wait_for()
    times = {name: statistics.median(taken) for name, taken in page.evaluate(CLICKS, PLACES).items()}
    page.close()
    floor = times.pop("nothing")
    for name, taken in times.items():
        what = f"milliseconds to the pictures of another {name}, 12 heads x 64 tokens"
        report(what, taken, MAX_CLICK, click_on_nothing=floor)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        ours(browser, trace_of(8), folder)  # fonts, caches
        for length in LENGTHS:
            trace = trace_of(length)
            size, made, shown, sent = ours(browser, trace, folder)
            their_size, their_made, their_shown = theirs(browser, trace, folder)
            loaded, _ = fitting(trace.layers, 5, 0, budget=ALL_LAYERS * BUDGET, values=True)
            facts = {"megabytes": size / 1e6, "layers": len(loaded), "made": made, "shown": shown}
            case, last = f"{LAYERS * HEADS} heads x {length} tokens", length == LENGTHS[-1]
            times = (their_made + their_shown) / (made + shown)
            report(
                f"BertViz bytes / our saved page's, {case}",
                their_size / size,
                FEWER_BYTES if last else None,
                **facts,
            )
            report(
                f"BertViz bytes / what our app sends, {case}", their_size / sent, FEWER_SENT if last else None
            )
            report(f"BertViz seconds / ours, {case}", times, LESS_TIME if last else None)
        clicking(browser, folder)


if __name__ == "__main__":
    main()
