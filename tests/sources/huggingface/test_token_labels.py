"""Labels of tokenizer pieces as a person reads them: no Ġ, no ▁, no �."""

from mha_core.sources.huggingface.token_labels import BYTES, readable


def labels(raw: list[str], letters=None) -> list[str]:
    return readable(raw, special=[False] * len(raw), letters=letters)


def test_letters_that_stand_for_bytes_are_read():
    assert labels(["The", "Ġanimal", "Ċ", "Ġ", "ĠĠx", "Ã©"], BYTES) == ["The", "animal", "⏎", "␣", "␣x", "é"]


def test_a_character_that_is_cut_is_shown_in_numbered_parts():
    assert labels(["åĬ", "¨", "çī", "©"], BYTES) == ["动·1", "动·2", "物·1", "物·2"]
    # The last byte of one character and the first of the next in one piece.
    assert labels(["å", "Ĭ¨ç", "ī©"], BYTES) == ["动·1", "动·2物·1", "物·2"]
    assert labels(["<0xE5>", "<0x8A>", "<0xA8>", "▁x"]) == ["动·1", "动·2", "动·3", "x"]


def test_bytes_that_are_no_character_are_shown_as_digits():
    assert labels(["å", "x"], BYTES) == ["0xE5", "x"]
    assert labels(["<0xFF>"]) == ["0xFF"]


def test_a_space_of_sentencepiece_is_a_space():
    assert labels(["▁The", "▁", "ani", "mal", "▁▁x"]) == ["The", "␣", "ani", "mal", "␣x"]


def test_special_pieces_are_shown_unchanged():
    raw = ["<s>", "åĬ", "¨", "</s>"]
    found = readable(raw, special=[True, False, False, True], letters=BYTES)
    assert found == ["<s>", "动·1", "动·2", "</s>"]
