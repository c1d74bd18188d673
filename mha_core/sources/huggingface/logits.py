"""The logits of a transformers model: its answers at hidden tokens, or for the next token.

A masked language model answers at its mask. A causal model, and the decoder of an encoder–decoder, answer at
every token with the next one. The answers are ``softmax(logits)`` of the traced pass itself.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mha_core.capture.gap import gap
from mha_core.errors import MhaError, Phrase
from mha_core.sources.huggingface import PreTrainedModel, forward_pass, memory
from mha_core.sources.huggingface.token_labels import readable
from mha_core.sources.huggingface.tokenizer import letters_of
from mha_core.traces.answers import Answer, most_probable
from mha_core.traces.tokens import Tokens

if TYPE_CHECKING:
    from mha_core.sources.huggingface.model import Model

MAX_BYTES = 1 << 30  # of the logits of one text
Asked = bool | Sequence[int | str]  # all rows with an answer, or some


def question_of(
    model: "Model", inputs: Mapping[str, Tensor], tokens: Tokens, answers: Asked, *, max_bytes: int
) -> list[int]:
    """The positions of the text, or of the target, at which the model answers.

    Raises `MhaError` for a model without a trained language-model head, for a model whose input already has
    the answer, for a masked model without a mask token in the text, and for too many bytes.
    """
    if not isinstance(answers, bool | list | tuple) or answers in ([], ()):
        raise MhaError(
            "answers is True, or a list of tokens, as in answers=[-1]; got {answers:.60}.",
            answers=repr(answers),
        )
    if model.writes is None:
        raise MhaError(
            "{name} has no head that writes words ({architecture}), so it answers nothing.",
            name=model.name,
            architecture=model.architecture,
        )
    if model.untrained_head is not None:
        raise MhaError(
            "{name} has no trained weights to answer with: {part} is missing from its files.",
            name=model.name,
            part=model.untrained_head,
        )
    if model.writes != "masked" and model.reads_ahead:
        raise MhaError(
            "{name} lets a token look at those behind it, which it would have to predict, so what it "
            "writes is no answer.",
            name=model.name,
        )
    name = "decoder_input_ids" if model.has_target else "input_ids"
    ids = inputs[name][0].tolist()
    mask = inputs.get("attention_mask") if name == "input_ids" else None
    unread = () if mask is None else (mask[0] == 0).nonzero().flatten().tolist()
    chosen = _rows(model, tokens, ids, answers, unread)
    _check_bytes(model, len(chosen), n_tokens=len(ids), max_bytes=max_bytes)
    return chosen


def _rows(
    model: "Model", tokens: Tokens, ids: Sequence[int], answers: Asked, unread: Sequence[int]
) -> list[int]:
    """The positions at which the model answers: all of them, or those in `answers`.

    The attention mask hides the tokens at `unread`. Raises `MhaError` for a token that does not exist or is
    hidden, and for a masked model without a mask token there.
    """
    mask = getattr(model.tokenizer, "mask_token_id", None)
    masks = [at for at, number in enumerate(ids) if number == mask and at not in unread]
    if model.writes == "masked" and not masks:
        raise MhaError(
            "{name} answers at a hidden word, and the text has none; its tokenizer has no mask."
            if mask is None
            else "{name} answers at a hidden word, and the text has none; write {mask} for a word.",
            name=model.name,
            mask=mask and model.tokenizer.mask_token,
        )
    everything = masks if model.writes == "masked" else [at for at in range(len(ids)) if at not in unread]
    if isinstance(answers, bool):
        return everything if answers else []
    chosen = []
    for one in answers:
        at = tokens.index(one) if isinstance(one, str) else one
        if isinstance(at, bool) or not isinstance(at, int) or not -len(ids) <= at < len(ids):
            raise MhaError(
                "answers names tokens 0 to {last}, or True for all; got {one:.60}.",
                last=len(ids) - 1,
                one=repr(one),
            )
        if (at := at % len(ids)) in unread:
            raise MhaError("Nothing is answered at token {at}, which the attention_mask leaves out.", at=at)
        if at not in everything:
            raise MhaError("{name} answers at hidden tokens, and token {at} is none.", name=model.name, at=at)
        chosen.append(at)
    return sorted(set(chosen))


def _check_bytes(model: "Model", n_rows: int, *, n_tokens: int, max_bytes: int) -> None:
    """Raise `MhaError` where the logits of these rows, in the model's dtype and in fp32, are too large.

    They need ``rows · words · (bytes of a number + 4)``; if the model computes all rows, all tokens count.
    """
    config = model.module.config.get_text_config(decoder=True)
    weight = next(model.module.parameters())
    leaves_out = leaves_rows_out(model.module)
    n_rows = n_rows if leaves_out else n_tokens
    needed = n_rows * (getattr(config, "vocab_size", None) or 1) * (weight.element_size() + 4)
    free = memory.free_bytes(str(weight.device))
    if needed <= min(max_bytes, needed if free is None else free):
        return
    shorter = n_rows == 1 or not leaves_out
    raise MhaError(
        "The answers of {name} at {n_rows:,} tokens take {size:,.2f} GB; the limit is {limit:,.2f} GB "
        "(max_bytes); {advice} takes less."
        if needed > max_bytes
        else "The answers of {name} at {n_rows:,} tokens take {size:,.2f} GB; no more is free; {advice} "
        "takes less.",
        name=model.name,
        n_rows=n_rows,
        size=needed / 1e9,
        limit=max_bytes / 1e9,
        advice=Phrase("a shorter text") if shorter else Phrase("answers=[-1], the last row"),
    )


def leaves_rows_out(module: PreTrainedModel) -> bool:
    """Whether the model can compute the logits of some rows only."""
    return "logits_to_keep" in inspect.signature(type(module).forward).parameters


def asked(module: PreTrainedModel, at: Sequence[int]) -> dict[str, Tensor]:
    """The argument with which the model computes only the logits of these rows; empty if it cannot."""
    device = next(module.parameters()).device
    return {"logits_to_keep": torch.tensor(at, device=device)} if leaves_rows_out(module) else {}


def logits_of(result: object, at: Sequence[int], *, n_tokens: int, name: str) -> Tensor:
    """The logits of some rows of a result, in fp32. (text, row, word)

    Raises `MhaError` where the model returned none of these rows.
    """
    logits = getattr(result, "logits", None)
    if isinstance(logits, Tensor) and logits.dim() == 3:
        if logits.shape[1] == n_tokens:
            return logits[:, list(at)].float()
        if logits.shape[1] == len(at):  # the model left out the others
            return logits.float()
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else None
    raise MhaError(
        "{name} returns no scores of words for each of {n_tokens} tokens, but {shape}, so its "
        "answers are not known.",
        name=name,
        n_tokens=n_tokens,
        shape=shape or Phrase("none"),
    )


def at_tokens(logits: Tensor, at: Sequence[int], n_tokens: int, tokenizer: Any) -> tuple[Answer | None, ...]:
    """The answer of each token, None without one. `logits` are (row, word) for the rows `at`."""
    answers: list[Answer | None] = [None] * n_tokens
    for row, position in zip(logits, at, strict=True):
        chances = row.softmax(-1).cpu()  # one row at a time: a vocabulary is large
        [answers[position]] = most_probable(chances[None], lambda number: word_of(tokenizer, number))
    return tuple(answers)


def word_of(tokenizer: Any, number: int) -> str:
    """A word of the vocabulary, written as tokens are; without a tokenizer, or outside of it, its id."""
    piece = None if tokenizer is None else tokenizer.convert_ids_to_tokens([number])[0]
    if piece is None:
        return str(number) if tokenizer is None else f"<{number}>"
    special = number in tokenizer.all_special_ids
    return readable([str(piece)], special=[special], letters=letters_of(tokenizer))[0]


def reads_ahead(module: PreTrainedModel) -> bool:
    """Whether the scores for the next token depend on later tokens: then they are not a prediction."""
    inputs = forward_pass.probe(module)
    key = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    changed = inputs[key].clone()
    changed[0, -1] = changed[0, 0]
    one, other = (
        forward_pass.output(forward_pass.forward(module, i)) for i in (inputs, {**inputs, key: changed})
    )
    return gap(one[:, :-1], other[:, :-1]) > forward_pass.close(module)
