"""Masks: boolean, True where a query may look at a key.

A new mask is a function of (n_query, n_key, size) and a line in `MASKS`.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from mha_core.errors import MhaError, listed, named_type, one_of


def causal(n_query: int, n_key: int, size: int) -> Tensor:
    """A token may look at itself and at earlier tokens: key ≤ query. (query, key)

    With more keys than queries, the queries are the last tokens, as in generation with a cache.
    """
    return DISTANCES["causal"](_offset(n_query, n_key), size)


def window(n_query: int, n_key: int, size: int) -> Tensor:
    """A token may look at most `size` positions away, to either side. (query, key)

    Source: Beltagy et al. 2020 (Longformer), section 3.1.
    """
    return DISTANCES["window"](_offset(n_query, n_key), size)


def streaming(n_query: int, n_key: int, size: int) -> Tensor:
    """A token sees itself, the `size` tokens before it, and the first token of all. (query, key)

    It is causal: what a cache of constant size keeps, with the first token as the sink of the weights that go
    nowhere else. Source: Xiao et al. 2023 (StreamingLLM), section 3.
    """
    kept = window(n_query, n_key, size) | (torch.arange(n_key) == 0)
    return causal(n_query, n_key, size) & kept


def prefix(n_query: int, n_key: int, size: int) -> Tensor:
    """All queries may look at the first `size` keys; the rest is causal. (query, key)

    Source: Raffel et al. 2020 (T5), section 3.2.1.
    """
    return causal(n_query, n_key, size) | (torch.arange(n_key) < size)


def padding(n_query: int, n_key: int, size: int) -> Tensor:
    """The last `size` keys are padding and hidden from all queries. (query, key)"""
    return (torch.arange(n_key) < n_key - size).expand(n_query, n_key)


def of_blocks(blocks: Tensor, n_key: int, size: int) -> Tensor:
    """True for the keys in the chosen blocks of `size` keys each; −1 means no block.

    (…, query, chosen) → (…, query, key)
    """
    n_blocks = -(-n_key // size)
    places = blocks.long().masked_fill(blocks < 0, n_blocks)  # an additional block, which is cut off
    allowed = torch.zeros(*blocks.shape[:-1], n_blocks + 1, dtype=torch.bool, device=blocks.device)
    return allowed.scatter_(-1, places, True)[..., :n_blocks].repeat_interleave(size, dim=-1)[..., :n_key]


MASKS: dict[str, Callable[[int, int, int], Tensor] | None] = {
    "full": None,  # every query may look at every key: this needs no L × L tensor
    "causal": causal,
    "window": window,
    "streaming": streaming,
    "prefix": prefix,
    "padding": padding,
}
DISTANCES: dict[str, Callable[[Tensor, int], Tensor]] = {  # masks that know only how far away a key is
    "causal": lambda offset, size: offset <= 0,
    "window": lambda offset, size: offset.abs() <= size,
}
DEFAULT_SIZE = 2
LONG = 4096  # tokens up to which a mask may be (query, key): 16 MB


def build(mask: str | Tensor | None, n_query: int, n_key: int) -> Tensor | None:
    """A mask by name ("causal", "window:3", "prefix:4", "padding:2") or as a (query, key) tensor.

    Returns a boolean (query, key) tensor, or None where nothing is hidden.
    Raises `MhaError` for an unknown name, a size that is not a whole number, or a wrong shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, str):
        combined = combine(mask, None, batch=1, n_heads=1, n_query=n_query, n_key=n_key)
        assert combined is not None  # it is the mask
        return combined[0, 0]
    name, _, size = mask.partition(":")
    one_of("mask", name, MASKS)
    if size and not size.isdecimal():
        raise MhaError(
            "The size of mask {mask!r} must be a whole number, as in '{name}:3'.", mask=mask, name=name
        )
    function = MASKS[name]
    reach = min(int(size or DEFAULT_SIZE), n_query + n_key)  # a larger number may not fit into an int64
    return None if function is None else function(n_query, n_key, reach)


def combine(
    mask: Tensor | None,
    key_padding: Tensor | None,
    *,
    batch: int,
    n_heads: int,
    n_query: int,
    n_key: int,
) -> Tensor | None:
    """One mask that broadcasts to (batch, head, query, key), from every accepted shape.

    `mask` may be (query, key), (batch, query, key), (batch, 1, query, key) or
    (batch, head, query, key); `key_padding` is (batch, key), True where a key is a real token.
    Raises `MhaError` for any other shape, with the expected ones.
    """
    if mask is not None:
        accepted = {
            (n_query, n_key): (1, 1),
            (batch, n_query, n_key): (batch, 1),
            (batch, 1, n_query, n_key): (batch, 1),
            (batch, n_heads, n_query, n_key): (batch, n_heads),
        }
        mask = _checked("mask", mask, accepted)
        mask = mask.reshape(*accepted[tuple(mask.shape)], n_query, n_key)
    if key_padding is not None:
        key_padding = _checked("key_padding", key_padding, [(batch, n_key)])[:, None, None, :]
    if mask is None or key_padding is None:
        return mask if key_padding is None else key_padding
    return mask & key_padding.to(mask.device)


def fields(mask: str | Tensor | None, *, n_heads: int, n_query: int, n_key: int) -> dict[str, Any]:
    """The fields of a `ScoreRule` that hide what `mask` hides.

    They take O(tokens) numbers where `is_square` is False: "causal" and "window" are then biases of −∞ by
    distance, (head, n_query + n_key − 1), and "padding" is one row for all queries. Raises as `build` does.
    """
    if is_square(mask, max(n_query, n_key)):
        table = build(mask, n_query, n_key)
        return {} if table is None else {"mask": table}
    if mask is None or isinstance(mask, Tensor) or build(mask, 1, 1) is None:
        return {}
    name, _, size = mask.partition(":")
    reach = min(int(size or DEFAULT_SIZE), n_query + n_key)
    if name == "padding":
        return {"mask": padding(1, n_key, reach)}
    visible = DISTANCES[name](torch.arange(1 - n_key, n_query), reach)
    table = torch.zeros(n_query + n_key - 1).masked_fill(~visible, float("-inf"))
    return {"distance_bias": table.repeat(n_heads, 1)}


def is_square(mask: str | Tensor | None, n_tokens: int) -> bool:
    """Whether `fields` has the mask as a (query, key) tensor: in a long text only one of another shape."""
    if not isinstance(mask, str):
        return mask is not None
    name = mask.partition(":")[0]
    return name != "full" and (n_tokens <= LONG or name not in {*DISTANCES, "padding"})


def _offset(n_query: int, n_key: int) -> Tensor:
    """key position − query position, where the last query has the position of the last key. (query, key)"""
    return torch.arange(n_key) - torch.arange(n_key - n_query, n_key)[:, None]


def _checked(name: str, mask: object, shapes: Collection[tuple[int, ...]]) -> Tensor:
    """The mask as a tensor. Raises `MhaError` unless it is boolean and has one of the shapes."""
    try:
        table = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError):
        raise MhaError(
            "The {name} is {type} and no array of truth values.", name=name, type=named_type(mask)
        ) from None
    check_boolean(name, table)
    if tuple(table.shape) not in shapes:
        raise MhaError(
            "The {name} has shape {shape}; expected {expected}.",
            name=name,
            shape=tuple(table.shape),
            expected=listed(shapes, "or"),
        )
    return table


def check_boolean(name: str, mask: Tensor) -> None:
    """Raise `MhaError` for a mask of numbers, which may be an additive mask."""
    if mask.dtype != torch.bool:
        raise MhaError(
            "The {name} has dtype {dtype}; a mask is boolean, True where a query may look at "
            "a key. Numbers that are added to scores belong in ScoreRule(bias=...).",
            name=name,
            dtype=mask.dtype,
        )
