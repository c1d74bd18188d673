"""Layers whose q, k and v are what three matrices made of one x, cut into heads and nothing more: most are.

What was shown of one in the trial of its model is shown again each time, by where the numbers lie. While a
model runs, its own numbers fill the processor's caches and each line of ours takes several times as long
as afterwards: so only what cannot wait is done there, and the rest when the model is through.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from mha_core.attention.module import Projections
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import learned
from mha_core.capture.call import Call, copied
from mha_core.capture.leaves import Leaf, known


@dataclass(eq=False, slots=True)
class Plain:
    """One call: copies of q, k and v, (1, head, token, width), and of x, and what made them of it."""

    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    rule: ScoreRule
    x: Tensor
    matrices: list[nn.Module]  # of q, k and v
    o: nn.Module | None = None

    def finished(self, names: Mapping[int, str]) -> Call:
        """The same with all that is known of it."""
        (w_q, b_q), (w_k, b_k), (w_v, b_v) = (known(module) for module in self.matrices)
        return Call(
            names[id(self.module)],
            self.module,
            self.q,
            self.k,
            self.v,
            self.rule,
            looks_outside=False,
            tensors={"x": self.x.view(-1, self.x.shape[-1])},
            projections=Projections(w_q, w_k, w_v, None, b_q, b_k, b_v, None),
            o=self.o,
        )


def plain(
    module: nn.Module | None, q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule, leaves: list[Leaf]
) -> Plain | None:
    """A call of a module that was plain in the trial, if it is so again: else None."""
    made_by = learned.matrices(module)
    if made_by is None:
        return None
    by_module, matrices, place = {id(leaf.module): leaf for leaf in leaves}, [], None
    for which, heads in zip(made_by, (q, k, v), strict=True):
        if (leaf := by_module.get(which)) is None:
            return None
        matrix, x, y, versions = leaf
        place = x.data_ptr() if place is None else place
        if x.data_ptr() != place or versions != (x._version, y._version):
            return None
        # The same numbers in the same place, (…, token, h · width) and (1, h, token, width).
        if y.data_ptr() != heads.data_ptr() or y.dtype != heads.dtype or not y.is_contiguous():
            return None
        batch, count, tokens, width = heads.shape
        if batch != 1 or y.shape[-1] != count * width or y.numel() != count * tokens * width:
            return None
        if heads.stride()[1:] != (width, count * width, 1):
            return None
        matrices.append(matrix)
    return Plain(module, copied(q), copied(k), copied(v), rule, copied(x), matrices)
