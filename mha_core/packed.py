"""The packed matrix: W^Q, W^K and W^V on top of each other, so that Q, K and V are one product.

Two ways to see a product agree in every bit, as long as it is the same product: that of the whole
packed matrix, or of one of the three alone, cut into heads or contracted head by head. What does
not hold in every bit: Q as it was computed, rows of the packed product, and X times W^Q alone.
A product may sum in another order when the matrix has another height; for numbers of ordinary size
the two differ by 2e-6 at most.
"""

import torch
from torch import Tensor, nn


def project_packed(x: Tensor, weight: Tensor, bias: Tensor | None, n_heads: int) -> Tensor:
    """One product for all heads, then a cut: (batch, L, d_model) → (h·d_k, batch·L) → (batch, h, L, d_k).

    ``Q[m, e] = Σ_d X[m, d] · W[d, e] + b[e]``.
    """
    return cut(product(x, weight.mT, bias), x, n_heads)


def project_per_head(x: Tensor, weight: Tensor, bias: Tensor | None, n_heads: int) -> Tensor:
    """The same projection seen head by head: W reshaped to (d_model, h, d_k), contracted with X.

    ``Q[h, m, c] = Σ_d W[d, h, c] · X[m, d] + b[h, c]``: (batch, L, d_model) → (batch, h, L, d_k),
    the identical tensor that `project_packed` gives.
    """
    per_head = torch.tensordot(weight.unflatten(-1, (n_heads, -1)), x, dims=([0], [2]))  # (h, d_k, batch, L)
    if bias is not None:
        per_head += bias.view(n_heads, -1, 1, 1)
    return per_head.permute(2, 0, 3, 1)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``W X^T + b``: (batch, L, d_model), (out, d_model) as in `nn.Linear` → (out, batch·L).

    Turned, because torch spreads a product with few tokens over the processors better this way round.
    The bias is added afterwards: the fused product rounds differently from the per-head view.
    """
    product = weight @ x.flatten(0, 1).mT
    return product if bias is None else product.add_(bias[:, None])


def cut(product: Tensor, x: Tensor, n_heads: int) -> Tensor:
    """(h·d, batch·L) → (batch, h, L, d), for the x that was projected."""
    return product.view(n_heads, -1, x.shape[0], x.shape[1]).permute(2, 0, 3, 1)


def name_apart(module: nn.Module) -> None:
    """Let a module with a packed `qkv` have q, k and v in its state dict, as views of the packed numbers.

    So a file says which matrix is which, and the way they are multiplied is free to change.
    """
    module.register_state_dict_post_hook(_take_apart)
    module.register_load_state_dict_pre_hook(_put_together)


def _take_apart(module: nn.Module, state: dict[str, Tensor], prefix: str, _metadata: dict) -> None:
    for kind, _ in module.qkv.named_parameters():
        parts = state.pop(f"{prefix}qkv.{kind}").split(module.widths)
        state.update({f"{prefix}{name}.{kind}": part for name, part in zip("qkv", parts, strict=True)})


def _put_together(
    module: nn.Module,
    state: dict[str, Tensor],
    prefix: str,
    _metadata: dict,
    _strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Pack what was loaded. A part that is missing or does not fit is named, and stays as it is."""
    for kind, packed in module.qkv.named_parameters():
        parts = list(packed.detach().split(module.widths))
        for index, name in enumerate("qkv"):
            given = state.pop(f"{prefix}{name}.{kind}", None)
            if given is None:
                missing.append(f"{prefix}{name}.{kind}")
            elif given.shape != parts[index].shape:
                # Each part by itself: a W^Q with a row too many and a W^K with one too few would fit.
                errors.append(
                    f"size mismatch for {prefix}{name}.{kind}: found {tuple(given.shape)}, "
                    f"expected {tuple(parts[index].shape)}."
                )
            else:
                parts[index] = given
        if f"{prefix}qkv.{kind}" in state:
            unexpected.append(f"{prefix}qkv.{kind}")  # it would not be read
        state[f"{prefix}qkv.{kind}"] = torch.cat(parts)
