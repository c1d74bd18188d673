"""Records the matrix products of any model's run below our code, in torch's dispatcher.

Whatever code computes attention, its weights end as a factor of a product, in rows that sum to 1. A mode
below torch's own functions keeps these factors. What else mixes tokens shows in a second run: one token is
disturbed wherever a module writes it, all attention is what it was, and no other token may move.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

CLOSE = 1e-4  # between numbers that rounding puts apart
MOVED = 1e-3  # by a disturbance of the size of a token
MOST = 0.8  # of scores: their columns are no tokens
PRODUCTS = (torch.ops.aten.bmm.default, torch.ops.aten.mm.default)
KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclass(eq=False)
class Factor:
    """Rows (…, key) of at most 1, a factor of a product; `modules` ran it, the innermost one first."""

    rows: Tensor
    modules: tuple[str, ...]

    @property
    def are_whole(self) -> bool:
        """Does each row sum to 1, as those of a softmax do? Then they are weights for certain."""
        return bool(((self.rows.sum(-1) - 1).abs() < CLOSE).all())

    def are_inside(self, n_tokens: int) -> bool:
        """Is there a matrix for each token, of a size that no parts of the text have? It mixes streams."""
        size = self.rows.shape[-1]
        return self.rows.shape == (n_tokens, size, size) and n_tokens % size != 0

    def heads(self, n_query: int, n_key: int) -> Iterator[Tensor]:
        """The factor as (head, query, key) in each way in which a product may lay heads and queries."""
        if self.rows.shape[-1] == n_key and self.rows.numel() % (n_query * n_key) == 0:
            yield self.rows.reshape(-1, n_query, n_key)
            for parts in self.rows if self.rows.dim() > 2 else (self.rows,):
                if parts.shape[0] > n_query and parts.shape[0] % n_query == 0:
                    yield parts.reshape(n_query, -1, n_key).transpose(0, 1)


@dataclass
class Run:
    """The factors of a run by the number of their product, these products, and the modules' outputs.

    The latter are (token, width) for each call of a module that computed a vector for each token, in order.
    """

    factors: dict[int, Factor] = field(default_factory=dict)
    products: dict[int, Tensor] = field(default_factory=dict)
    made: list[tuple[str, Tensor]] = field(default_factory=list)


class Products(TorchDispatchMode):
    """Records products with rows that sum to 1; with `still`, they are replaced by those of that run."""

    def __init__(self, run: Run, modules: list[str], still: Run | None):
        super().__init__()
        self.run, self.modules, self.still, self.number = run, modules, still, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in PRODUCTS:
            return self._product((args[0], args[1].mT), result)
        if func is KERNEL:
            return self._product((_weights_of_kernel(*args, **(kwargs or {})),), result[0]), *result[1:]
        return result

    def _product(self, sides: tuple[Tensor, ...], result: Tensor) -> Tensor:
        self.number += 1
        rows = next(filter(_are_weights, sides), None)
        if rows is not None:
            self.run.factors[self.number] = Factor(rows.clone(), tuple(self.modules[::-1]))
            self.run.products[self.number] = result.clone()
            if self.still is not None:
                return self.still.products.get(self.number, result).clone()
        return result


def _are_weights(rows: Tensor) -> bool:
    """Whether these can be weights. Some rows sum to less than 1, because of a sink or a full mask."""
    if min(rows.shape[-2:]) < 2 or not rows.is_floating_point():
        return False
    sums = rows.sum(-1)
    if bool(((rows == 0) | (rows == 1)).all()):  # a permutation, or a choice
        return False
    return bool((rows >= 0).all()) and bool((sums < 1 + CLOSE).all()) and bool((sums > 0).any())


def _weights_of_kernel(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None) -> Tensor:
    """The weights of torch's fused kernel, by torch's own unfused code."""
    grouped = q.shape[1] != k.shape[1]
    math = torch.ops.aten._scaled_dot_product_attention_math
    return math(q, k, v, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=grouped)[1]


def run(
    model: nn.Module, forward: Callable[[], object], n: int, *, still: Run | None = None, token: int = 0
) -> Run:
    """A run of a model on `n` tokens; with `still`, one in which only one token changes.

    That token is perturbed in all outputs of modules; other tokens and the products of attention are fixed.
    """
    names, running, found = {part: name for name, part in model.named_modules()}, [], Run()
    draw = torch.Generator().manual_seed(9)

    def began(module: nn.Module, args: tuple) -> None:
        running.append(names.get(module, ""))

    def ended(module: nn.Module, args: tuple, output: object) -> Tensor | None:
        name = running.pop()
        if by_token(output, n) is None:
            return None
        output = output.detach().clone(memory_format=torch.contiguous_format)
        made = by_token(output, n)
        found.made.append((name, made.clone()))
        if still is not None:
            disturbed = made[token] + torch.randn(made[token].shape, generator=draw)
            made.copy_(still.made[len(found.made) - 1][1])
            made[token] = disturbed
        return output  # laid alike in both runs, so that torch makes the same products of it

    hooks = [register_module_forward_pre_hook(began), register_module_forward_hook(ended)]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), Products(found, running, still):
            forward()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for hook in hooks:
            hook.remove()
    return found


def by_token(output: object, n: int) -> Tensor | None:
    """A view (token, width) of a module's output for one text or picture; None for anything else."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        return None
    shape = output.shape
    if len(shape) == 2 and shape[0] == n:
        return output
    if len(shape) == 3 and shape[:2] in ((1, n), (n, 1)):
        return output.reshape(n, -1)
    if len(shape) == 4 and shape[0] == 1 and n > 1:
        if shape[1] * shape[2] == n:
            return output.reshape(n, -1)
        if shape[2] * shape[3] == n:
            return output[0].flatten(1).T
    return None


def mixers(
    model: nn.Module, forward: Callable[[], object], n: int, calm: Run
) -> tuple[list[str], list[Factor]]:
    """Modules through which a token affects another without attention, and factors without tokens.

    Scores of other tokens then change in a row: some if tokens are mixed on the way to queries and keys, all
    if rows and columns are something else.
    """
    token = n // 2
    disturbed = run(model, forward, n, still=calm, token=token)
    rest = [at for at in range(n) if at != token]
    modules = [
        name
        for (name, one), (_, other) in zip(calm.made, disturbed.made, strict=True)
        if float((one[rest] - other[rest]).abs().max()) > MOVED
    ]
    mistaken = []
    for number, one in calm.factors.items():
        if number not in disturbed.factors:
            continue
        for before, after in zip(one.heads(n, n), disturbed.factors[number].heads(n, n), strict=True):
            moved = _moved(before[:, rest][:, :, rest], after[:, rest][:, :, rest])
            if moved > MOST:
                mistaken.append(one)
            elif moved:
                modules.append(one.modules[0])
            break
    return modules, mistaken


def _moved(one: Tensor, other: Tensor) -> float:
    """The share of scores that changed, without a shift of a whole row, which softmax ignores."""
    ratio = other.log() - one.log()
    seen = (one > CLOSE) & (other > CLOSE)
    middle = ratio.masked_fill(~seen, float("nan")).nanmedian(-1, keepdim=True).values
    moved = (ratio - middle).abs() > MOVED
    return float((moved & seen).sum() / seen.sum().clamp_min(1))
