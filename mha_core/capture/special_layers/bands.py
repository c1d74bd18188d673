"""Attention in bands: each token looks at a fixed number of neighbours (Longformer, LED).

Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
"""

import inspect
from collections.abc import Sequence
from typing import NamedTuple

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


class Banded(NamedTuple):
    """Attention in bands as q, k and v (1, head, token, width), with its rule and the uses behind them."""

    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    uses: list[Use]


def watch(_place: str, part: nn.Module) -> bool:
    """Collect the attention of a part. Returns False: the part has a softmax."""
    part.register_forward_hook(_on_leaving, with_kwargs=True)
    return False


def reaches(model: nn.Module) -> list[int]:
    """The number of neighbours on each side, for each layer in bands."""
    return [reach for part in model.modules() if isinstance(reach := getattr(part, REACH, None), int)]


def _on_leaving(module: nn.Module, args: tuple, kwargs: dict, output: tuple[Tensor, ...]) -> None:
    """Add the call to the collector of this thread, if q, k and v with a window give its output."""
    if (active := collector.current()) is None:
        return
    with torch.no_grad(), torch._C.DisableTorchFunction():  # not seen by modes that follow the code
        found = banded(module, args, kwargs, output[0], active.uses)
        if found is not None:
            active.uses = found.uses
            active.add(module, found.q, found.k, found.v, found.rule, output[0])


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


def banded(
    module: nn.Module, args: tuple, kwargs: dict, output: Tensor, uses: Sequence[Use]
) -> Banded | None:
    """The attention of a module in bands as q, k, v and a window, compared with the module's output.

    The padding to whole windows is left out. None where the output differs, as with global tokens.
    """
    arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    mask = arguments.get("attention_mask")
    by_name = {use.proof.name: use for use in uses if module._modules.get(use.proof.name) is use.module}
    if arguments.get("is_global_attn") or mask is None or len(mask) != 1 or not by_name.keys() >= {*MATRICES}:
        return None
    n = int((mask == 0).sum())
    if not (mask[0, :n] == 0).all():
        return None
    cut = [_cut(by_name[name], n) for name in MATRICES]
    q, k, v = (use.y.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for use in cut)
    rule = ScoreRule(mask=masks.window(n, n, getattr(module, REACH)).to(q.device))
    difference = gap(attend(q, k, v, rule).transpose(1, 2).flatten(2), output[:, :n])
    return Banded(q, k, v, rule, cut) if difference <= CLOSE[q.dtype] else None


def _cut(use: Use, n: int) -> Use:
    """A copied use of a matrix, for the first tokens (1, token, width): the model scales queries in place."""
    x = use.x.transpose(0, 1)[:, :n]
    return Use.of(use.module, x, use.module.forward(x), use.proof)
