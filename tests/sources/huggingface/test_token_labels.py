"""Labels of tokenizer pieces as a person reads them: no Ġ, no ▁, no �."""

from mha_core.sources.huggingface.token_labels import BYTES, readable

LABELS = [
    # Letters that stand for bytes, and the space of SentencePiece.
    (["The", "Ġanimal", "Ċ", "Ġ", "ĠĠx", "Ã©"], BYTES, ["The", "animal", "⏎", "␣", "␣x", "é"]),
    (["▁The", "▁", "ani", "mal", "▁▁x"], None, ["The", "␣", "ani", "mal", "␣x"]),
    # A character that is cut is shown in numbered parts.
    (["åĬ", "¨", "çī", "©"], BYTES, ["动·1", "动·2", "物·1", "物·2"]),
    # The last byte of one character and the first of the next in one piece.
    (["å", "Ĭ¨ç", "ī©"], BYTES, ["动·1", "动·2物·1", "物·2"]),
    (["<0xE5>", "<0x8A>", "<0xA8>", "▁x"], None, ["动·1", "动·2", "动·3", "x"]),
    # Bytes that are no character, and special pieces.
    (["å", "x"], BYTES, ["0xE5", "x"]),
    (["<0xFF>"], None, ["0xFF"]),
    (["<s>", "åĬ", "¨", "</s>"], BYTES, ["<s>", "动·1", "动·2", "</s>"]),
]


def test_pieces_are_labelled_as_a_person_reads_them():
    for raw, letters, shown in LABELS:
        special = [piece in ("<s>", "</s>") for piece in raw]
        assert readable(raw, special=special, letters=letters) == shown
