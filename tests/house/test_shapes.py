"""The shapes in the types of the public border are true: jaxtyping and beartype check every call of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = ("attention.functional", "attention.module", "traces.layer", "sources.arrays")
# Everything that these modules compute, at distinct prime sizes, in each precision, with fewer key heads,
# two texts, masks and a batch.
RUN = f"""
import pytest
from jaxtyping import TypeCheckError, install_import_hook

with install_import_hook({[f"mha_core.{name}" for name in CHECKED]}, "beartype.beartype"):
    import mha_core.sources.arrays
    import mha_core.traces.layer

import numpy as np
import torch

import mha_core as mha
from mha_core.attention import functional

HEADS, KV, QUERIES, KEYS, D_K, D_V, D_MODEL, BATCH = 6, 2, 5, 7, 3, 11, 13, 2
normal = torch.Generator().manual_seed(0)
random = lambda *shape: torch.randn(*shape, generator=normal)


def look(layer):
    for head in (None, 1):
        for picked in ({{}}, {{"rows": [0, 2]}}, {{"keys": slice(1, 4)}}, {{"rows": 1, "keys": [0]}}):
            for matrix in (layer.scores, layer.scaled, layer.masked, layer.weights, layer.allowed):
                matrix(head, **picked)
        layer.log_sum_exp(head), layer.output(head, rows=[1]), layer.contribution(head)
    layer.q, layer.k, layer.v, layer.x, layer.x_v, layer.concat(), layer.result(), layer.column(2)


spec = mha.AttentionSpec(D_MODEL, HEADS, KV, D_K, D_V)
module = mha.MultiHeadAttention(spec)
x, context = random(BATCH, QUERIES, D_MODEL), random(BATCH, KEYS, D_MODEL)
padding = torch.ones(BATCH, KEYS, dtype=torch.bool)
look(mha.LayerTrace.of(module(x), x=x, projections=module.projections()))
attended = module(x, context, key_padding=padding, mask=torch.ones(QUERIES, KEYS, dtype=torch.bool))
look(mha.LayerTrace.of(attended, x=x, x_v=context, projections=module.projections(), kind="cross", item=1))
look(mha.trace("the old cat saw it", h=2, d_model=14, mask="causal").layers[0])
for dtype in (torch.float64, torch.bfloat16):
    q, k, v = (random(*size).to(dtype) for size in ((HEADS, QUERIES, D_K), (KV, KEYS, D_K), (KV, KEYS, D_V)))
    tokens, keys = list("abcde"), list("fghijkl")
    w_o = random(HEADS * D_V, D_MODEL).to(dtype)
    look(mha.from_tensors(q=q, k=k, v=v, tokens=tokens, keys=keys, w_o=w_o).layers[0])
    two = mha.from_tensors(q=[q, q], k=[k, k], v=torch.stack([v, v]), tokens=tokens, keys=keys)
    if dtype == torch.float64:
        mha.from_weights(np.stack([layer.weights() for layer in two.layers]), tokens, keys)

# A wrong shape would be found.
with pytest.raises(TypeCheckError):
    functional.raw_scores(q, k[..., :1])
"""


@pytest.mark.slow
def test_every_array_has_the_shape_of_its_type():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
