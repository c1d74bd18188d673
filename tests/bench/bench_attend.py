"""The cost of seeing everything: our instrumented forward pass against torch's.

Run it with ``python tests/bench/bench_attend.py``; the lines are one JSON object each.
"""

import statistics
import time

import torch
from measuring import in_turns, median_ratio, report

import mha_core as mha

D_MODEL, HEADS = 512, 8
TURNS = {16: 2000, 128: 800, 512: 160, 2048: 18}  # so that each length takes about the same time
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


@torch.inference_mode()
def main() -> None:
    ours, theirs = twins()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, d_model {D_MODEL}, h {HEADS}")
    for length, target in TARGETS.items():
        x = torch.randn(1, length, D_MODEL)
        ways = {
            "ours": lambda x=x: ours(x),
            "torch": lambda x=x: theirs(x, x, x, need_weights=True, average_attn_weights=False),
        }
        # A ratio is only meaningful for the same work.
        attended, (output, weights) = ways["ours"](), ways["torch"]()
        torch.testing.assert_close(attended.output, output, atol=1e-5, rtol=0)
        traced = torch.from_numpy(mha.LayerTrace.of(attended).weights().copy())
        torch.testing.assert_close(traced, weights[0], atol=1e-5, rtol=0)

        taken = in_turns(ways, TURNS[length], time.perf_counter)
        milliseconds = {f"{name}_ms": round(statistics.median(each) * 1e3, 3) for name, each in taken.items()}
        report(f"attend_ratio_L{length}", median_ratio(taken["ours"], taken["torch"]), target, **milliseconds)


if __name__ == "__main__":
    main()
