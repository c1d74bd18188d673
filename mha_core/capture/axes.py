"""Which axis of a batch counts texts and which count heads."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mha_core.errors import MhaError, Phrase
from mha_core.traces.indices import index


def text_axis(
    lead: Sequence[int],
    batch: int | None,
    inside: Sequence[int] = (),
    *,
    documented: bool = False,
    alone: bool = False,
    told: bool = False,
    n_shared: int = 1,
) -> int | None:
    """The axis that counts texts, or parts of one, of the axes of queries before (token, width), if any does.

    `batch` is the number of texts where it is known. `inside` are axes that lie within a token in memory,
    as heads do that a projection was cut into. `documented` says that the first of several axes counts
    texts, as in torch's own function, `alone` that the model was given one text, `told` that somebody said
    how many texts there are. `n_shared` heads in a row share a key. Raises `MhaError` where it cannot be
    told.
    """
    large = [axis for axis, size in enumerate(lead) if size > 1]
    outside = [axis for axis in large if axis not in inside]
    if not large:
        return None
    if batch == 1:  # the axis counts parts of the text, such as windows of a picture, if not heads
        if documented and len(lead) > 1 and lead[0] > 1:
            return 0
        return outside[0] if len(outside) == 1 < len(large) else None
    if batch is not None:
        fits = [axis for axis in large if lead[axis] == batch]
        fits = fits if len(fits) == 1 else [axis for axis in fits if axis in outside]
        if len(fits) == 1:
            if told:
                _check_heads(lead, fits[0], inside, n_shared)
            return fits[0]
        if documented and lead[0] == batch:
            return 0
    elif len(outside) == 1 < len(large):
        return outside[0]
    elif len(lead) > 1 and documented:
        return 0
    elif len(lead) > 1 and lead[0] == 1:
        _check_heads(lead, 0, inside, n_shared)
        return None
    sizes = " × ".join(map(str, lead))
    if alone:
        raise MhaError(
            "It has {sizes} heads, or parts in which the text is read, and it cannot be told which. batch=1 "
            "says that all are heads; or give what was computed to mha.from_tensors(q=, k=, v=, tokens=).",
            sizes=sizes,
        )
    if batch is None:
        for axis in outside:  # batch= is no help where it leaves heads or parts
            _check_heads(lead, axis, inside, n_shared)
    raise MhaError(
        "It has {sizes} heads or texts, and it cannot be told how many texts there are; give batch=, or "
        "record one text at a time, with batch=1, or give what was computed to "
        "mha.from_tensors(q=, k=, v=, tokens=)."
        if batch is None
        else "It has {sizes} heads or texts, and it cannot be told where the {batch} texts are; record one "
        "text at a time, with batch=1, or give what was computed to mha.from_tensors(q=, k=, v=, tokens=).",
        sizes=sizes,
        batch=batch,
    )


def _check_heads(lead: Sequence[int], at: int, inside: Sequence[int], n_shared: int) -> None:
    """Raises `MhaError` where axes beside that of the texts may count heads or parts of a text."""
    rest, n_last = [], 1
    for axis in reversed(range(len(lead))):
        n_last *= lead[axis]
        if lead[axis] > 1 and axis != at and n_last > n_shared:  # heads that share a key are no parts
            rest.append(axis)
    if len(rest) > 1 and not set(rest) <= set(inside):
        raise MhaError(
            "It has {sizes} heads or parts of texts, and it cannot be told which; record one text at a time, "
            "or give what was computed for one part to mha.from_tensors(q=, k=, v=, tokens=). For one text "
            "batch=1 says that all are heads.",
            sizes=" × ".join(map(str, lead)),
        )


def inner_axes(tensor: Tensor) -> tuple[int, ...]:
    """The axes before (token, width) that lie within a token in memory."""
    if tensor.dim() < 3 or tensor.shape[-2] == 1:
        return ()
    strides = tensor.stride()
    return tuple(
        axis for axis in range(tensor.dim() - 2) if tensor.shape[axis] > 1 and 0 < strides[axis] < strides[-2]
    )


def item_index(item: int, n_items: int) -> int:
    """The index of an item of a batch, 0 for what all items share; raises `MhaError` as `index` does."""
    return 0 if n_items == 1 else index("item", item, n_items, of=Phrase("The batch"))


def of_item(tensor: Tensor, axis: int | None, item: int) -> Tensor:
    """The queries, keys, values or outputs (head, token, width) of one text; `axis` counts the texts."""
    if axis is not None and tensor.dim() > 2:
        tensor = tensor.select(axis, item_index(item, tensor.shape[axis]))
    return tensor.reshape(-1, *tensor.shape[-2:])


def unrepeated(k: Tensor, v: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values with as few heads as they have numbers for: neighbours that share them have one."""
    k, v = (part.expand(1, n_heads, -1, -1) for part in (k, v))
    for n_kv in range(1, n_heads):
        if n_heads % n_kv:
            continue
        cut = [part.unflatten(1, (n_kv, -1)) for part in (k, v)]
        if all(torch.equal(part[:, :, 0], part[:, :, 1]) for part in cut) and all(
            torch.equal(part, part[:, :, :1].expand_as(part)) for part in cut
        ):
            return cut[0][:, :, 0], cut[1][:, :, 0]
    return k, v
