"""A text as tokens of any tokenizer: the place of each piece, its words, and the longest text."""

from contextlib import nullcontext

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core.errors import MhaError
from mha_core.sources.huggingface import memory
from mha_core.sources.huggingface.tokenizer import MAX_ID, encoded, max_tokens, tokens_of
from mha_core.traces.tokens import Tokens, word_groups
from tests.parity import tiny
from tests.sources.tiny import TEXT, TOKENIZERS, fast, module

KEPT = {kind: fast(kind) for kind in TOKENIZERS}
TEXTS = [TEXT, "动物没有过马路", "naïve café 🙂", " two  spaces\n\tand tabs", "שלום world", "ﷺ", "e\u0301a"]


def tokens(kind: str, text: str):
    return encoded(KEPT[kind], text, limit=4096, name="x")[0]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_every_piece_can_be_read_and_is_at_its_place(kind, text):
    found = tokens(kind, text)
    assert len(set(found.labels)) == len(found)
    for at, (piece, (start, end)) in enumerate(zip(found.pieces, found.spans, strict=True)):
        assert piece
        assert not set(piece) & set("Ġ▁Ċ� ")
        assert 0 <= start <= end <= len(text)
        if at in found.special:
            assert start == end
        elif "<unk>" not in piece and "·" not in piece and start < end and piece.isascii():
            assert text[start:end] == piece.removeprefix("##")
    assert list(found.words) == sorted(found.words)
    assert set(found.words) == set(range(max(found.words) + 1))


def test_a_piece_that_is_written_in_another_way_than_typed_is_at_its_place():
    found = tokens("word_piece", "the 🙂 street")
    at = found.pieces.index("<unk>")
    assert found.text[slice(*found.spans[at])] == "🙂"


def test_words_are_those_of_the_text_and_in_chinese_characters():
    assert tokens("word_piece", "didn't").words == (0, 1, 1, 1, 1, 2)  # alone are the special pieces
    found = tokens("byte_level", "动物")
    assert found.pieces == ("动·1", "动·2", "动·3", "物·1", "物·2", "物·3")
    assert found.words == (0, 0, 0, 1, 1, 1)
    assert found.spans == ((0, 1),) * 3 + ((1, 2),) * 3


@given(st.text(min_size=1, max_size=30))
def test_any_text_gives_pieces_that_can_be_drawn(text):
    if not text.strip():
        return
    try:
        found = tokens("byte_level", text)
    except MhaError:
        assert any(0xD800 <= ord(letter) < 0xE000 for letter in text)
        return
    assert len(set(found.labels)) == len(found)
    assert all(piece and not any(letter.isspace() for letter in piece) for piece in found.pieces)
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(found.pieces)


@pytest.mark.parametrize("kind", [*TOKENIZERS, "in Python"])
def test_half_of_a_character_is_refused_with_the_rest_of_the_text(kind, refused):
    tokenizer = transformers.ByT5Tokenizer() if kind == "in Python" else KEPT[kind]
    error = refused(encoded, tokenizer, "it \ud83d is", limit=99, name="x")
    assert str(error) == "The text has half of a character (U+D83D); remove it."
    assert error.fixes == ({"text": "it  is"},)


def test_an_error_inside_a_tokenizer_has_its_name(refused):
    class Broken(transformers.ByT5Tokenizer):
        def __call__(self, *args, **kwargs):
            raise RuntimeError("no more")

    error = refused(encoded, Broken(), "it is", limit=99, name="mine")
    assert str(error) == "The tokenizer of mine cannot read this text (RuntimeError: no more)."
    assert isinstance(error.__cause__, RuntimeError)


@pytest.mark.slow
def test_the_tokenizer_of_canine_gives_characters():
    model = tiny.model("canine")
    trace = mha.trace("it 动🙂", source=model, tokenizer=transformers.CanineTokenizer())
    assert trace.tokens.pieces[1:-1] == ("i", "t", "␣", "动", "🙂")
    assert trace.tokens.special == (0, 6)


def test_a_token_without_a_vector_is_refused_also_where_no_table_of_vectors_is_named(refused):
    model = tiny.model("sam3_lite_text_text_model")
    with pytest.raises(NotImplementedError):
        model.get_input_embeddings()
    message = str(refused(mha.trace, [5, 7_000_000], source=model, tokenizer=tiny.tokenizer(model)))
    assert "has no vector for the token 7,000,000" in message


def test_a_tokenizer_in_python_is_read_too():
    tokenizer = transformers.ByT5Tokenizer()
    assert not tokenizer.is_fast
    found = encoded(tokenizer, "it 动", limit=99, name="x")[0]
    assert found.pieces == ("i", "t", "␣", "动·1", "动·2", "动·3", "</s>")
    assert found.special == (6,)
    assert found.spans[:2] == ((0, 1), (1, 2))
    assert found.words[0] == found.words[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 🙂 b", ["a", "🙂", "b"]),
        ("🙂🙂", ["🙂\u2009₁", "🙂\u2009₂"]),
        ("it 👩\u200d👧 x", ["it", "👩\u200d👧", "x"]),  # two emoji and a joiner that nobody sees
        ("动物 naïve", ["动", "物", "naïve"]),
    ],
)
@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece", "in Python", "as a target"])
def test_the_parts_of_a_cut_character_are_joined_without_their_numbers(kind, text, words):
    if kind == "in Python":
        found = encoded(transformers.ByT5Tokenizer(), text, limit=99, name="x")[0]
    elif kind == "as a target":  # nobody says where its pieces are in the text
        ids = KEPT["byte_level"](text)["input_ids"]
        found = tokens_of(KEPT["byte_level"], [0, *ids], text, start=True)
    else:
        found = tokens(kind, text)
    labels = word_groups(found).labels
    assert [label for label in labels if label[0] not in "␣<"] == words
    assert not any(piece.startswith(("·", "\u200d")) for piece in found.pieces)


def test_parts_of_a_character_that_is_not_in_the_text_lose_their_numbers_too():
    pieces_of = ("🙂·1", "🙂·2", "U+200D·1", "U+200D·2", "x·1")
    found = word_groups(Tokens("", pieces_of, ((0, 0),) * 5, (0, 0, 1, 1, 2)))
    assert found.labels == ("🙂", "U+200D", "x·1")


@pytest.mark.parametrize("family", ["roberta", "mpnet", "prophetnet", "bert", "bart", "led"])
def test_a_model_takes_as_many_tokens_as_the_limit_says_and_no_more(family):
    built = tiny.model(family)
    config = built.config
    if family == "led":  # other positions on each side
        config.max_encoder_position_embeddings, config.max_decoder_position_embeddings = 64, 48
        built = type(built)(config)
    tokenizer, target = fast(), {"use_cache": False}
    limit = max_tokens(built, tokenizer)
    if config.is_encoder_decoder:
        target["decoder_input_ids"] = torch.tensor([[7]])
    built(torch.full((1, limit), 7), **target)
    if family not in ("prophetnet", "led"):  # these have no error: one is clamped, one padded
        with pytest.raises((IndexError, RuntimeError)):
            built(torch.full((1, limit + 1), 7), **target)
    if family in ("bart", "led"):
        limit = max_tokens(built, tokenizer, side="decoder")
        for n, raises in ((limit, False), (limit + 1, True)):
            with pytest.raises((IndexError, RuntimeError)) if raises else nullcontext():
                built(torch.tensor([[7]]), decoder_input_ids=torch.full((1, n), 7))
    tokenizer.model_max_length = 31
    assert max_tokens(built, tokenizer) == 31


def test_a_model_without_positions_takes_as_many_tokens_as_anything_here():
    assert max_tokens(tiny.model("t5"), fast()) == MAX_ID


def test_a_text_beyond_our_limit_is_read_where_the_caller_raises_it(refused):
    model = module("llama", num_hidden_layers=1, max_position_embeddings=1 << 16)
    message = str(refused(mha.trace, [7] * 32_769, source=model))
    assert message.endswith("32,769 tokens and the limit is 32,768; LlamaModel reads it with limit=32769.")
    message = str(refused(mha.trace, [7] * 4097, source=model, limit=4096))
    assert message.endswith("4,097 tokens and the limit is 4,096; LlamaModel reads it with limit=4097.")
    assert len(mha.trace([7] * 4097, source=model).tokens) == 4097


def test_a_text_whose_masks_do_not_fit_in_memory_is_refused_with_a_length_that_does(refused, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10 * 3000**2)
    model = module("llama", num_hidden_layers=1, max_position_embeddings=1 << 16)
    assert "up to 3,000 tokens fit" in str(refused(mha.trace, [7] * 4097, source=model))


def test_a_number_that_the_tokenizer_has_no_piece_for_is_shown_as_the_number():
    tokenizer = KEPT["byte_level"]
    beyond = len(tokenizer) + 7
    word = tokenizer.encode("tired", add_special_tokens=False)
    found = tokens_of(tokenizer, [0, beyond, *word], start=True)
    assert found.pieces[1] == f"<{beyond}>"
    assert found.special[:2] == (0, 1)
    assert len(found) == 2 + len(word)
