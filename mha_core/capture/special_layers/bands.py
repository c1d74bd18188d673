"""Attention in bands: each token looks at a fixed number of neighbours (Longformer, LED).

Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
"""

import inspect

import torch
from torch import Tensor, nn

from mha_core.attention import masks
from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import collector
from mha_core.capture.gap import CLOSE, gap
from mha_core.capture.projections import Use

REACH = "one_sided_attn_window_size"  # attribute of a module: the number of neighbours on each side
MATRICES = ("query", "key", "value")


def reaches(model: nn.Module) -> list[int]:
    """The number of neighbours on each side, for each layer in bands."""
    return [reach for part in model.modules() if isinstance(reach := getattr(part, REACH, None), int)]


def on_leaving(module: nn.Module, args: tuple, kwargs: dict, output: tuple[Tensor, ...]) -> None:
    """Add the call to the collector of this thread, if q, k and v with a window give its output.

    The padding to whole windows is left out. The output differs with global tokens.
    """
    if (active := collector.current()) is None:
        return
    with torch.no_grad(), torch._C.DisableTorchFunction():  # not seen by modes that follow the code
        arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        mask = arguments.get("attention_mask")
        uses = {u.proof.name: u for u in active.uses if module._modules.get(u.proof.name) is u.module}
        if mask is None or len(mask) != 1 or arguments.get("is_global_attn"):
            return
        if not uses.keys() >= {*MATRICES}:
            return
        n = int((mask == 0).sum())
        if not (mask[0, :n] == 0).all():
            return
        cut = [_cut(uses[name], n) for name in MATRICES]
        q, k, v = (use.y.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for use in cut)
        rule = ScoreRule(mask=masks.window(n, n, getattr(module, REACH)).to(q.device))
        difference = gap(attend(q, k, v, rule).transpose(1, 2).flatten(2), output[0][:, :n])
        if difference <= CLOSE[q.dtype]:
            active.uses = cut
            active.add(module, q, k, v, rule, output[0])


def dense(bands: Tensor, reach: int) -> Tensor:
    """Weights of neighbours, (…, query, 2 · reach + 1), as weights of keys. (…, query, key)

    Positions outside the text are left out; they have no weight. Weights with columns for global tokens
    get one more axis, which marks that they are not (query, key).
    """
    n, width = bands.shape[-2:]
    if width != 2 * reach + 1:
        return bands.unsqueeze(0)
    places = torch.arange(n, device=bands.device)[:, None] + torch.arange(width, device=bands.device)
    wide = bands.new_zeros(*bands.shape[:-1], n + 2 * reach)
    return wide.scatter_(-1, places.expand(bands.shape), bands)[..., reach : n + reach]


def _cut(use: Use, n: int) -> Use:
    """A copied use of a matrix, for the first tokens (1, token, width): the model scales queries in place."""
    x = use.x.transpose(0, 1)[:, :n]
    return Use.of(use.module, x, use.module.forward(x), use.proof)
