"""A long text: a first picture, the overview of a layer, the trace of a model, and the frames of a moved map.

Run it with ``python tests/bench/bench_long.py [TOKENS …]``; the lines are one JSON object each. Seconds are
those of one thread: a machine that others use would add their turns to each small product.
The floor is ``softmax(q kᵀ / √d_k)`` of the same heads, block by block. Memory is the peak beyond the trace.

The model has the shape of GPT-2 and random weights; its plain pass is that of transformers with sdpa, the
other one eager with all weights, where these fit. The map is that of a saved page, in Chromium: the time in
scripts from one frame to the next while it is dragged, at most, and in how many frames that is more than
16 ms. What else runs on the processor counts as script, so read it on a quiet machine.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from chromium import chromium
from measuring import in_turns, median_ratio, memory, report

import mha_core as mha
from mha_core.analysis.overview import overview
from mha_core.attention.functional import row_blocks
from mha_core.export.payload import Panel, block_size, pack
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.tensors import shared

HEADS, D_MODEL = 12, 768
FRAME = 16  # milliseconds of script
MODEL_TOKENS = (2048, 4096)  # of which the weights of all heads fit (2.4 GB), and of which they do not
VIEWPORT = "document.querySelector('.view').view.drawings[0].drawing.map.viewport"
# Milliseconds in listeners and callbacks of frames, from one frame to the next.
FRAMES = """(() => {
  let [spent, depth] = [0, 0];
  const timed = (act) => function (...given) {
    const start = performance.now();
    depth += 1;
    try { return (act.handleEvent ?? act).apply(this, given); }
    finally { depth -= 1; if (!depth) spent += performance.now() - start; }
  };
  const [ask, listen] = [window.requestAnimationFrame, EventTarget.prototype.addEventListener];
  window.requestAnimationFrame = (act) => ask(timed(act));
  EventTarget.prototype.addEventListener = function (name, act, ...how) {
    listen.call(this, name, act && timed(act), ...how);
  };
  window.frames_ = [];
  const frame = () => { window.frames_.push(spent); spent = 0; ask(frame); };
  ask(frame);
})()"""


def floor(layer: mha.LayerTrace, heads: range) -> None:
    q, k = (shared(layer.tensors)[name] for name in "qk")
    for head in heads:
        for rows in row_blocks(layer.n_query, layer.n_key):
            torch.softmax((q[head, rows] @ k[head].T).mul_(layer.scale), -1)


def check_needle(n: int) -> None:
    """A needle at a random place is the largest of its block at every size, and its row's strongest key."""
    row, key = sorted(np.random.default_rng(n).integers(0, n, 2))[::-1]
    q, k = torch.randn(2, 1, n, 8, generator=torch.Generator().manual_seed(n))
    q[0, row], k[0, key] = 10.0, 10.0
    [layer] = mha.from_tensors(q=q, k=k, v=k, tokens=["a"] * n, mask="causal").layers
    for size in (16, 64, 512, 4096):
        largest, sums = layer.blocks(0, size)
        assert largest[row // size, key // size] > 0.99
        rows = np.diff(np.append(np.arange(0, n, size), n))
        report(
            f"row sums of blocks of {size} off 1, L {n}",
            abs(sums.sum(1) / rows - 1).max() * 1e5,
            1,
            unit="1e-5",
        )
    assert layer.strongest(0, 1).keys[row, 0] == key


def check_model(n: int) -> None:
    """A trace of all heads of a model, and the first picture of one, beside the model's own passes."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=1009, n_positions=n)
    plain, other = (GPT2Model(config).eval().requires_grad_(False) for _ in range(2))
    other.load_state_dict(plain.state_dict(), assign=True)
    plain.set_attn_implementation("sdpa")
    other.set_attn_implementation("eager")
    model = huggingface.adopt(GPT2Model(config).eval().requires_grad_(False))
    model.module.load_state_dict(plain.state_dict(), assign=True)
    ids = {"input_ids": torch.randint(0, 1000, (1, n))}
    layers, heads = [], iter(range(HEADS))

    def ours() -> None:
        layers[:] = huggingface.flow(model, ids)[0]

    def first() -> None:
        pack([Panel("", ["a"] * n, {0: layers[0]})], heads=[next(heads)], values=True)

    ways = {"ours": ours, "first": first, "plain": lambda: plain(**ids)}
    if n == MODEL_TOKENS[0]:
        ways["weights"] = lambda: other(**ids, output_attentions=True)
    ours()
    turns = in_turns(ways, 2)
    for way, pass_ in (("plain", "the plain pass"), ("weights", "a pass with output_attentions")):
        if way in turns:
            report(f"trace of a model / {pass_}, L {n}", median_ratio(turns["ours"], turns[way]))
    report(
        f"first picture of a head / the model's trace, L {n}",
        median_ratio(turns["first"], turns["ours"]),
        0.2,
    )


def check_frames(n: int) -> None:
    """The script of each frame while a matrix of a saved page is dragged, at several sizes of its cells."""
    trace = mha.trace("a b c d " * (n // 4), h=HEADS, d_model=D_MODEL, mask="causal")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "long.html"
        trace.view(token=n - 1).save(file)
        page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
        page.add_init_script(FRAMES)
        page.goto(file.as_uri(), timeout=300_000)
        page.get_by_role("button", name="matrix", exact=True).click(timeout=300_000)
        canvas = page.locator("canvas.matrix")
        for times in (4, 64, 512):  # as large as in the whole matrix
            while page.evaluate(f"{VIEWPORT}.cell / {VIEWPORT}.minCell") < times:
                page.get_by_role("button", name="Zoom in").click()
            canvas.scroll_into_view_if_needed()
            box = canvas.bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            before = page.evaluate(f"{VIEWPORT}.x")
            page.evaluate("frames_.length = 0")
            for nth in range(4):
                page.mouse.move(x, y)
                page.mouse.down()
                page.mouse.move(x + 120, y + 40 * (-1) ** nth, steps=40)
                page.mouse.up()
            assert page.evaluate(f"{VIEWPORT}.x") != before
            spent = page.evaluate("frames_")
            slow = sum(one > FRAME for one in spent)
            report(
                f"milliseconds of script in a frame at most, L {n}, x {times}",
                max(spent),
                FRAME,
                slow=slow,
                of=len(spent),
            )


def main() -> None:
    torch.set_num_threads(1)
    for n in MODEL_TOKENS:
        check_model(n)
    for n in map(int, sys.argv[1:] or (4096, 32_768)):
        check_needle(n)
        check_frames(n)
        for mask in ("full", "causal"):
            trace = mha.trace("a b c d " * (n // 4), h=HEADS, d_model=D_MODEL, mask=mask)
            [layer] = trace.layers
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
            before, kept = memory(), sum(shared(layer.tensors)[name].nbytes for name in "qkv")
            heads = iter(range(HEADS))  # each is new: a layer keeps the sums of rows

            def first(trace: mha.AttentionTrace = trace, heads=heads) -> None:
                labels = trace.tokens.labels
                pack([Panel("", labels, {0: trace.layers[0]})], heads=[next(heads)], values=True)

            turns = in_turns({"ours": first, "floor": lambda layer=layer: floor(layer, range(1))}, 2)
            about = f"L {n}, {mask}, blocks of {block_size(layer)}"
            report(f"first picture of a head / softmax, {about}", median_ratio(turns["ours"], turns["floor"]))
            if n <= 4096:
                ways = {"ours": lambda trace=trace: overview(trace)}
                turns = in_turns(ways | {"floor": lambda layer=layer: floor(layer, range(HEADS))}, 1)
                report(f"overview / softmax, {about}", median_ratio(turns["ours"], turns["floor"]), 1.5)
            report(
                f"peak memory beyond the trace / q, k, v, {about}", (memory(name="VmHWM") - before) / kept, 2
            )


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    report("seconds of all", time.perf_counter() - start)
