"""A long text: one head's first picture, and the overview of a layer, against a blockwise softmax of torch.

Run it with ``python tests/bench/bench_long.py [TOKENS …]``; the lines are one JSON object each. Seconds are
those of one thread: a machine that others use would add their turns to each small product.
The floor is ``softmax(q kᵀ / √d_k)`` of the same heads, block by block. Memory is the peak beyond the trace.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from measuring import in_turns, median_ratio, memory, report

import mha_core as mha
from mha_core.analysis.overview import overview
from mha_core.attention.functional import row_blocks
from mha_core.export.payload import Panel, block_size, pack
from mha_core.traces.tensors import shared

HEADS, D_MODEL = 12, 768


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


def main() -> None:
    torch.set_num_threads(1)
    for n in map(int, sys.argv[1:] or (4096, 32_768)):
        check_needle(n)
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
