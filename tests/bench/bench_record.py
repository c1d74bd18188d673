"""The cost of `mha.record`: a recorded pass against the same pass alone, at 256 tokens.

Run it with ``python tests/bench/bench_record.py`` (half a minute); the lines are one JSON object each.
The models are random, of 6 layers with 8 heads and d_model 512: torch's own encoder, and blocks that call
its attention function. They take turns on one thread, and the seconds are those of the processor. A recording
keeps q, k and v of each layer, with the model given also its matrices, and computes some rows of each call
again; of the encoder it also computes all q, k and v again, which torch's module does not show.
"""

import torch
from measuring import in_turns, median_ratio, report
from torch import Tensor, nn

import mha_core as mha

LENGTH, D, HEADS, LAYERS = 256, 512, 8, 6
TURNS, MAX_RATIO = 15, 1.3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(1, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(1, LENGTH, D))
        return x + self.mlp(x)


def recorded(model: nn.Module, x: Tensor, *given: nn.Module, check: str | None = None) -> None:
    with mha.record(*given, tokens=[str(at) for at in range(LENGTH)], check=check):
        model(x)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # a recording cannot see into it
    encoder = nn.TransformerEncoderLayer(D, HEADS, 4 * D, 0.0, batch_first=True)
    models = {
        "encoder": nn.TransformerEncoder(encoder, LAYERS, enable_nested_tensor=False).eval(),
        "blocks": nn.Sequential(*(Block() for _ in range(LAYERS))).eval(),
    }
    x = torch.randn(1, LENGTH, D)
    for name, model in models.items():
        ways = {
            "plain": lambda model=model: model(x),
            "with the model": lambda model=model: recorded(model, x, model),
            "without": lambda model=model: recorded(model, x),
            "with the proof of its tokens": lambda model=model: recorded(model, x, model, check="order"),
        }
        taken = in_turns(ways, TURNS)
        for way, runs in {"with the model": 1, "without": 1, "with the proof of its tokens": 3}.items():
            ratio = median_ratio(taken[way], taken["plain"])
            report(f"seconds of a recorded pass / plain, {name}, {way}", ratio, runs * MAX_RATIO)


if __name__ == "__main__":
    main()
