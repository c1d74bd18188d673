# %% [markdown]
# # Your own torch module
#
# Any torch code is recorded while it runs: modules of torch, of a library, or your own. You change nothing
# in them.

# %%
import torch
from torch import nn
from torch.nn import functional as F

import mha_core as mha

torch.manual_seed(0)


class Block(nn.Module):
    """Causal attention with four heads, written by hand."""

    def __init__(self, d_model: int = 48, n_heads: int = 4):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        batch, length, d_model = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(heads.transpose(1, 2).reshape(batch, length, d_model))


model = nn.Sequential(Block(), Block()).eval()
tokens = ["the", "old", "cat", "saw", "it"]
x = torch.randn(1, len(tokens), 48)

# %%
with mha.record(model, tokens=tokens) as recorder:
    output = model(x)

trace = recorder.trace
trace

# %% [markdown]
# q, k and v are those that flowed. Each matrix is computed from them when you ask for it.

# %%
layer = trace.layers[1]
layer.name, layer.q.shape, layer.weights(head=3).round(2)

# %%
trace.view(layer=1, head=3)

# %% [markdown]
# W^O was recognized by what it did: it multiplied the concatenated heads. So you can see what a head adds to
# the output, and all of them add up to the module's own:

# %%
added = layer.contribution().sum(axis=0) + layer.projections.b_o.numpy()
before = model[0](x)[0].detach()
gap = float((torch.tensor(added) + before - output[0].detach()).abs().max())
gap

# %% [markdown]
# ## What the trace does not show
#
# Attention is not the only thing that mixes tokens. `check="mixing"` changes one token at a time and looks
# which others move; whatever it finds beside attention is named.

# %%
mixer = nn.Sequential(Block(), nn.Conv1d(len(tokens), len(tokens), 1), Block()).eval()
with mha.record(mixer, tokens=tokens, check="mixing") as recorder:
    mixer(x)

recorder.trace.source.skipped

# %% [markdown]
# ## If you only have the weights
#
# Any library's `attentions` are enough for a picture:

# %%
_, weights = nn.MultiheadAttention(48, 4, batch_first=True).eval()(x, x, x, average_attn_weights=False)
mha.view(weights, tokens)
