"""What callers say beside their numbers: which tokens they are of, and where they come from."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mha_core.errors import MhaError
from mha_core.tokens import MAX_TOKENS, Tokens, words

NO_TEXT = "␣"  # what stands for a piece that is white space alone


def texts(
    tokens: "str | Sequence[str] | Tokens", keys: "str | Sequence[str] | Tokens | None"
) -> tuple[Tokens, Tokens]:
    """The tokens that look and those that are looked at, the same where no `keys` are given."""
    looking = as_tokens(tokens, "tokens")
    return looking, looking if keys is None else as_tokens(keys, "keys")


def as_tokens(given: "str | Sequence[str] | Tokens", name: str = "tokens") -> Tokens:
    """Tokens as they are, a list of pieces, or a text, which is cut into words as `mha.words` does.

    Raises `MhaError` for anything else, for none, and for more than `MAX_TOKENS`.
    """
    if isinstance(given, Tokens):
        return given
    if isinstance(given, str):
        return words(given)
    try:
        pieces = list(given)
    except TypeError:
        pieces = [None]
    if not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise MhaError(
            f"{name} is {type(given).__name__} and no list of strings; give the pieces of the text, such as "
            f"tokenizer.convert_ids_to_tokens(ids), or the text itself."
        )
    if len(pieces) > MAX_TOKENS:
        raise MhaError(f"{name} has {len(pieces):,} tokens; the limit is {MAX_TOKENS:,}.")
    shown = [piece if piece.strip() else NO_TEXT for piece in pieces]
    spans, at = [], 0
    for piece in shown:
        spans.append((at, at + len(piece)))
        at += len(piece) + 1
    return Tokens(" ".join(shown), tuple(shown), tuple(spans))


def described(source: str | Mapping[str, object]) -> Mapping[str, object]:
    """What is told about where numbers come from: a name, or a mapping of plain values with one."""
    told = {"name": source} if isinstance(source, str) else dict(source)
    plain = all(isinstance(value, str | int | float | None) for value in told.values())
    if not isinstance(told.get("name"), str) or not plain:
        raise MhaError("source is a name, or a mapping with a 'name' and plain values: text and numbers.")
    return MappingProxyType(told)
