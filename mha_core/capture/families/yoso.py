"""YOSO: a value weighs as much as its key is expected to share a hash bucket with the query.

Source: Zeng et al. 2021, "You Only Sample (Almost) Once: Linear Cost Self-Attention Via Bernoulli Sampling".
"""

import inspect
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

from torch import Tensor

from mha_core.capture.families.mixing import Kernel, current, with_globals
from mha_core.errors import Phrase

YOSO = Kernel(Phrase("expected hash collisions (YOSO)"), tokens=2, heads=1)


def watch(place: str, part: Any) -> bool:
    """Record the input and output of a layer's sum. False where it hashes at random or adds a convolution."""
    if not part.use_expectation or part.use_conv:
        return False
    forward = inspect.unwrap(type(part).forward)
    cumulation = forward.__globals__["YosoCumulation"]
    around = SimpleNamespace(apply=partial(_cumulate, place, part.num_attention_heads, cumulation))
    part.forward = MethodType(with_globals(forward, {"YosoCumulation": around}), part)
    return True


def _cumulate(place: str, n_heads: int, cumulation: Any, *args: Any) -> Tensor:
    """The layer's own result, recorded.

    The arguments are masks of queries and keys, queries, keys and values (head, token, width), and settings.
    """
    result = cumulation.apply(*args)
    if (recorder := current()) is not None and len(result) == n_heads:
        query_mask, key_mask, query, key, value, settings = args
        more = {"query_mask": query_mask, "key_mask": key_mask, "query": query, "key": key}
        arguments = {"value": value[None], **more, "settings": settings}
        recorder.add(place, YOSO, partial(_yoso, cumulation), arguments, result[None])
    return result


def _yoso(
    cumulation: Any,
    *,
    value: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    query: Tensor,
    key: Tensor,
    settings: dict,
) -> Tensor:
    return cumulation.apply(query_mask, key_mask, query, key, value[0], settings)[None]
