"""The target of an encoder–decoder: the ids that its decoder reads, from a text or generated."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from mha_core.errors import MhaError, Phrase
from mha_core.sources.huggingface import PreTrainedModel
from mha_core.sources.huggingface.tokenizer import (
    Ids,
    check_length,
    check_tokenizer,
    token_ids,
    using_tokenizer,
)
from mha_core.traces.tokens import check_characters

MAX_NEW_TOKENS = 32  # of a target that the model generates


def decoder_ids(
    module: PreTrainedModel, tokenizer: Any, target: str | Ids, *, limit: int, most: int, name: str
) -> list[int]:
    """The decoder's input for a target: its tokens shifted to the right by one, as in training.

    The model's own shift is used if it has one: mBART and PLBart put the language token, which is last in the
    tokenizer's output, in front. Ids without an end token get the start token in front; ids that begin with
    the start token are not changed. Raises `MhaError` for a target that is empty, or longer than `limit` or
    than the `most` that the decoder takes, and if the start token is not known.
    """
    start = start_token(module)
    if isinstance(target, str):
        if not target.strip():
            raise MhaError("The target is empty; type at least one word, or leave it out.")
        check_characters(target)
        check_tokenizer(tokenizer, name)
        with using_tokenizer(name):
            labels = list(tokenizer(text_target=target, verbose=False)["input_ids"])
    else:
        labels = token_ids(tokenizer, target)
    shift = getattr(module, "prepare_decoder_input_ids_from_labels", None)
    if labels and labels[0] == start and (shift is None or not isinstance(target, str)):
        ids = labels[:-1] if isinstance(target, str) and _is_end(module, tokenizer, labels[-1]) else labels
    elif not (labels and _is_end(module, tokenizer, labels[-1])):
        ids = [start, *labels]
    elif (shifted := _shifted(shift, labels)) is not None:
        ids = shifted
    else:
        ids = [start, *labels[:-1]]
    if None in ids:
        raise MhaError(
            "It is not known with which token a target of {name} begins: neither its config nor its "
            "generation config has a decoder_start_token_id. Set it there.",
            name=name,
        )
    check_length(len(ids), name, Phrase("target"), limit=limit, most=most)
    return ids


def start_token(module: PreTrainedModel) -> int | None:
    """The first id of the decoder, chosen as by `generate` of transformers; None where it is not known."""
    settings = (module.config, getattr(module, "generation_config", None))
    for name in ("decoder_start_token_id", "bos_token_id"):
        for each in settings:
            if isinstance(number := getattr(each, name, None), int):
                return number
    return None


def _is_end(module: PreTrainedModel, tokenizer: Any, number: int) -> bool:
    """Whether a token marks the end of a target or, after the end, its language."""
    ends = getattr(module.config.get_text_config(decoder=True), "eos_token_id", None)
    special = getattr(tokenizer, "all_special_ids", ())
    return number in special or number in (ends if isinstance(ends, list | tuple) else (ends,))


def _shifted(shift: Callable[[Tensor], Tensor] | None, labels: list[int]) -> list[int] | None:
    """The labels shifted by the model's own function; None if it has none or the start token is missing."""
    if shift is None:
        return None
    try:
        return shift(torch.tensor([labels]))[0].tolist()
    except (AttributeError, ValueError, TypeError):
        return None


def written_target(module: PreTrainedModel, inputs: Mapping[str, Tensor], *, name: str) -> list[int]:
    """The decoder's input while the model generates a target, always with the most probable token."""
    if not module.can_generate():
        raise MhaError("{name} cannot write a target itself; type one.", name=name)
    generate: Any = module.generate  # torch's types do not know it
    with torch.no_grad():
        # Without a cache: some models size it for the number of the encoder's layers.
        ids = generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, num_beams=1, use_cache=False)
    # The last token is generated, but never read.
    return ids[0].tolist()[: max(1, ids.shape[1] - 1)]
