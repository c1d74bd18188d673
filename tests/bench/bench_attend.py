"""The cost of seeing everything: our instrumented forward pass against torch's.

Run it with ``python tests/bench/bench_attend.py``; the last lines are one JSON object each.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import mha_core as mha

D_MODEL, HEADS = 512, 8
PAIRS = {16: 2000, 128: 800, 512: 160, 2048: 18}  # repetitions, so that each length takes about the same time
TARGETS = {16: 1.0, 128: 1.0, 512: 1.0, 2048: 1.1}


def twins():
    """Our module and torch's, with the same weights."""
    torch.manual_seed(0)
    ours = mha.MultiHeadAttention(mha.AttentionSpec(D_MODEL, HEADS)).eval()
    theirs = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True).eval()
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.o.weight,
            "out_proj.bias": ours.o.bias,
        }
    )
    return ours, theirs


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(ours, theirs, length: int) -> dict:
    """Time both in alternating order, so that a busy moment affects both."""
    x = torch.randn(1, length, D_MODEL)

    def ours_once():
        return ours(x)

    def theirs_once():
        return theirs(x, x, x, need_weights=True, average_attn_weights=False)

    # A ratio is only meaningful for the same work.
    attended, (output, weights) = ours_once(), theirs_once()
    torch.testing.assert_close(attended.output, output, atol=1e-5, rtol=0)
    weights_of_trace = torch.from_numpy(mha.LayerTrace.of(attended).weights().copy())
    torch.testing.assert_close(weights_of_trace, weights[0], atol=1e-5, rtol=0)

    pairs = []
    for turn in range(PAIRS[length] + 4):
        if turn % 2:
            mine, other = seconds(ours_once), seconds(theirs_once)
        else:
            other, mine = seconds(theirs_once), seconds(ours_once)
        pairs.append((mine, other))
    pairs = pairs[4:]  # warm-up
    low, median, high = statistics.quantiles([mine / other for mine, other in pairs], n=4)
    return {
        "ours_ms": statistics.median(mine for mine, _ in pairs) * 1e3,
        "torch_ms": statistics.median(other for _, other in pairs) * 1e3,
        "low": low,
        "ratio": median,
        "high": high,
    }


def main() -> None:
    ours, theirs = twins()
    results = []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, d_model {D_MODEL}, h {HEADS}")
    print(f"load average before the run: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors\n")
    print("forward pass, median of paired runs     ratio")
    print("    L     ours ms    torch ms    quarter  median  quarter    target")
    with torch.inference_mode():
        for length, target in TARGETS.items():
            t = compare(ours, theirs, length)
            print(
                f"{length:>5}{t['ours_ms']:>12.3f}{t['torch_ms']:>12.3f}"
                f"{t['low']:>11.3f}{t['ratio']:>8.3f}{t['high']:>9.3f}{target:>10.2f}"
            )
            results.append(
                {"name": f"attend_ratio_L{length}", "value": round(t["ratio"], 4), "target": target}
            )
    print()
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
