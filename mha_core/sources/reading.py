"""A text as the numbers that a model reads, and as tokens that a person reads, by the model's tokenizer."""

import threading
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mha_core.errors import MhaError
from mha_core.sources import pieces
from mha_core.tokens import MAX_TOKENS, Tokens

MOST_NEW = 32  # tokens of a target that the model writes itself
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

_one_at_a_time = threading.Lock()  # tokenizers in Rust refuse two callers at once


def text(tokenizer, typed: str, *, limit: int, name: str) -> tuple[Tokens, dict[str, list[int]]]:
    """A text's tokens and the model's inputs. Raises `MhaError` for one that is empty or too long."""
    if not typed.strip():
        raise MhaError("There is no text to look at; type at least one word.")
    fast = bool(getattr(tokenizer, "is_fast", False))
    with _one_at_a_time:
        found = tokenizer(typed, return_offsets_mapping=fast, verbose=False)
        ids = list(found["input_ids"])
        raw = [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]
        special, letters = _special(tokenizer, ids, found), _letters(tokenizer)
    offsets = found["offset_mapping"] if fast else None
    tokens = pieces.tokens(typed, raw, special=special, letters=letters, offsets=offsets)
    if all(special):
        raise MhaError(f"The tokenizer of {name} finds nothing in this text; type another word.")
    if len(tokens) > limit:
        kept = max(0, limit - sum(special) - 1)
        raise MhaError(
            f"The text has {len(tokens):,} tokens and {name} takes {limit:,}; "
            f"remove {len(tokens) - limit:,} or keep the first {limit:,}.",
            fixes=({"text": typed[: tokens.spans[kept][1]]},),
        )
    return tokens, {key: list(found[key]) for key in INPUTS if key in found}


def target(tokenizer, typed: str, *, start: int, limit: int, name: str) -> list[int]:
    """What the decoder reads for a typed target: the start token, then the target without its end."""
    if not typed.strip():
        raise MhaError("The target is empty; type at least one word, or leave it out.")
    with _one_at_a_time:
        ids = list(tokenizer(text_target=typed, verbose=False)["input_ids"])
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]
    ids = ids if ids and ids[0] == start else [start, *ids]
    if len(ids) > limit:
        raise MhaError(f"The target has {len(ids):,} tokens and {name} takes {limit:,}.")
    return ids


def target_tokens(tokenizer, ids: Sequence[int], typed: str | None) -> Tokens:
    """The tokens of a target, typed or written by the model."""
    with _one_at_a_time:
        found = tokenizer.convert_ids_to_tokens(list(ids))
        special, letters = _special(tokenizer, ids), _letters(tokenizer)
        typed = tokenizer.decode(list(ids), skip_special_tokens=True) if typed is None else typed
    # A model can have more numbers than its tokenizer has pieces, and write one of them.
    raw = [f"<{number}>" if piece is None else str(piece) for number, piece in zip(ids, found, strict=True)]
    special = [known or piece is None for known, piece in zip(special, found, strict=True)]
    special[0] = True  # what the decoder starts with stands for no text, whatever token it is
    return pieces.tokens(typed, raw, special=special, letters=letters)


def written(module: nn.Module, inputs: Mapping[str, Tensor], *, name: str) -> list[int]:
    """What the decoder reads while it writes a target by itself, the likeliest token each time."""
    if not module.can_generate():
        raise MhaError(f"{name} cannot write a target itself; type one.")
    with torch.no_grad():
        ids = module.generate(**inputs, max_new_tokens=MOST_NEW, do_sample=False, num_beams=1)
    # The last token is written, but never read.
    return ids[0].tolist()[: max(1, ids.shape[1] - 1)]


def check(module: nn.Module, ids: list[int], *, name: str) -> None:
    """Raises `MhaError` for tokens that the model has no vectors for."""
    embedding = getattr(module.get_input_embeddings(), "num_embeddings", None)
    if embedding is not None and max(ids) >= embedding:
        raise MhaError(
            f"The tokenizer of {name} knows tokens that the model does not: number {max(ids):,} of "
            f"{embedding:,}. It belongs to another model."
        )


def limit(config, tokenizer) -> int:
    """The most tokens that a model takes: what its tokenizer and its positions say, and never above ours."""
    said = [MAX_TOKENS]
    if isinstance(most := getattr(tokenizer, "model_max_length", None), int):
        said.append(most)
    config = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        if isinstance(most := getattr(config, name, None), int) and most > 0:
            # Positions of RoBERTa start behind that of the filling.
            behind = most in (514, 1026, 4098, 8194) and getattr(config, "pad_token_id", None) == 1
            said.append(most - 2 if behind else most)
    return min(said)


def _special(tokenizer, ids: Sequence[int], found=None) -> list[bool]:
    encodings = getattr(found, "encodings", None)
    marks = encodings[0].special_tokens_mask if encodings else [0] * len(ids)
    stand_for_nothing = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [bool(mark) or number in stand_for_nothing for mark, number in zip(marks, ids, strict=True)]


def _letters(tokenizer) -> Mapping[str, int] | None:
    """Which letters of this tokenizer stand for bytes; None where they stand for themselves."""
    if type(tokenizer).__name__ == "ByT5Tokenizer":
        return pieces.LATIN
    if getattr(tokenizer, "is_fast", False):
        backend = tokenizer.backend_tokenizer
        parts = [part for part in (backend.decoder, backend.pre_tokenizer) if part is not None]
        return pieces.BYTES if any(b"ByteLevel" in part.__getstate__() for part in parts) else None
    return pieces.BYTES if hasattr(tokenizer, "byte_decoder") else None
