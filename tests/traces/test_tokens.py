"""Text of any language is split into words without loss, and every label is unique."""

from itertools import pairwise

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from mha_core import words
from mha_core.traces.tokens import CHUNK, Tokens, word_groups

# Text as people type it, and text as nobody does: scripts, joiners, marks, brackets and digits in a heap.
TYPED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aZ09 .,:'’-‑_!?…<>/[]()*$é́ßकि한動あーกำ\u200b\u200c\u200d\ufe0f\u20e3👩🏽‍🇺🇦1#\n\t"),
    ),
    max_size=40,
)

INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")


def cut_words(text):
    """The tokens, or None for a text without any."""
    try:
        return words(text)
    except ValueError:
        return None


# Invariants


@given(TYPED)
@example("3.1\u0301")
@example("..\u0301 --\u0301")
@example("<s>\u0301 [MASK]\u0301")
@example("7.1️⃣")
@example("a \u200d b")
@example("soft\u00adhyphen")
@example("\u061cعربي")
def test_a_text_is_cut_without_loss_into_visible_tokens_and_never_in_a_grapheme_cluster(text):
    tokens = cut_words(text)
    spans, pieces = (tokens.spans, tokens.pieces) if tokens else ((), ())
    assert INVISIBLE.sub("", "".join(pieces)) == INVISIBLE.sub("", "".join(CHUNK.findall(text)))
    assert tuple(text[start:end] for start, end in spans) == pieces
    assert len(pieces) == (len(tokens.labels) if tokens else 0)
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(edges)
    for piece in pieces:
        assert not regex.search(r"\s", piece)
        assert INVISIBLE.sub("", piece), ascii(piece)  # a row of a heat map needs a name that can be read
    for (_, end), (start, _) in pairwise(spans):
        if end == start:
            assert any(end == match.end() for match in regex.finditer(r"\X", text)), (text, end)


@given(st.lists(st.sampled_from(["the", "The", "é", "e\u0301", "!", "..", "the₁", "動", "1"]), max_size=17))
def test_no_two_labels_are_alike(pieces):
    tokens = cut_words(" ".join(pieces))
    if tokens:
        assert len(set(tokens.labels)) == len(tokens)


@given(TYPED, st.integers(1, 7))
def test_the_text_that_a_limit_proposes_is_accepted_and_is_the_beginning(text, limit):
    whole = cut_words(text)
    if whole is None or len(whole) <= limit:
        return
    with pytest.raises(ValueError, match="and the limit is") as caught:
        words(text, limit=limit)
    (fix,) = caught.value.fixes
    assert words(fix["text"], limit=limit).pieces == whole.pieces[:limit]


# Known texts: what is between bars is one token.


@pytest.mark.parametrize(
    "text",
    [
        "The| animal| didn't| cross| the| street",
        "l’eau| de| l'île",
        "a| well-known| non‑breaking",
        "How| are| you|?",
        "(|yes|)|,| “|no|”|;| a|/|b| &| c",
        "so|...| what|?|!",
        "so|…| wow|!!| a| --| b",
        "3.14| and| 1,000| and| 12:30| and| 1,000,000.50|.",
        "in| 1999|,| 42| is| x2",
        "snake_case| _private",
        "動|物|沒|有|過|馬|路|。",
        "我|爱| Python|!",
        "猫|は|と|て|も|か|わ|い|い|。",
        "コ|ー|ヒ|ー",
        "ส|วั|ส|ดี",
        "안녕하세요| 세계",
        "नमस्ते| दुनिया| हिन्दी",
        "مرحبا| بالعالم|،| كيف",
        "نمی‌خواهم| می‌روم",
        "שלום| עולם",
        "Привет|,| мир|!",
        "Ελλάδα",
        "café| cafe\u0301| naïve",
        "👨‍👩‍👧‍👦| 👩🏽‍🚀| 👍🏿| 🇺🇦|🇩🇪| 1️⃣| #️⃣| ❤️| 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
        "👍|👍🏽|👍",
        "x\u0302| q\u0307\u0323",
        "<s>| a| </s>| [MASK]| [CLS]| <br>",
        "$|x|$| *|a|*| [|x|]|(|y|)",
        "a| <| b| >| c",
        "1| <| 2",
        "C|+|+| and| C|#",
        "me|@|example|.|org",
        "50|%| of| €|20",
        "\ufeff|a|\t|b|\r\n|c|\u00a0|d|\u3000|e|\u200b|f|\u2028|g|\u200e|h|\x00|i",  # these only separate
    ],
)
def test_a_text_is_cut_where_the_bars_are(text):
    pieces = ("".join(CHUNK.findall(piece)) for piece in text.split("|"))
    assert words(text.replace("|", "")).pieces == tuple(filter(None, pieces))


def test_repeated_pieces_are_numbered_and_single_ones_are_not():
    assert words("the cat the dog the").labels == ("the\u2009₁", "cat", "the\u2009₂", "dog", "the\u2009₃")
    assert words("The the").labels == ("The", "the")
    assert words("é e\u0301").labels == ("é\u2009₁", "é\u2009₂")
    assert words(" ".join(["a"] * 12)).labels[-1] == "a\u2009₁₂"


# Refusals


NOTHING = ["", " ", "\n\t\r ", "\u00a0\u3000", "\u200b\ufeff\u2060", "\u200e\u202c", "\u200c", "\u200d\u200d"]


@pytest.mark.parametrize(
    ("text", "limit", "said", "kept"),
    [
        (
            "one two, three four",
            {"limit": 3},
            "5 tokens and the limit is 3; remove 2 or keep the first 3.",
            3,
        ),
        (
            "a " * 33_000,
            {},
            "33,000 tokens and the limit is 32,768; remove 232 or keep the first 32,768.",
            32_768,
        ),
        *((text, {}, "There is no text to look at; type at least one word.", None) for text in NOTHING),
        *(  # no text is longer than NaN or infinity
            ("one two", {"limit": limit}, "limit is a number of tokens, at least 1", None)
            for limit in (0, -1, float("nan"), float("inf"), "3", None, True)
        ),
    ],
)
def test_a_text_beyond_the_limit_or_without_a_token_is_refused(text, limit, said, kept, refused):
    error = refused(words, text, **limit)
    assert said in str(error)
    if kept:
        assert words(error.fixes[0]["text"], **limit).pieces == words(text, limit=99_999).pieces[:kept]


# Looking a word up


def test_a_word_is_its_position_and_of_several_the_nth():
    tokens = words("The cat saw the dog and the cat.")
    for labels in (tokens.labels, tokens.typed):
        assert [tokens.index(label) for label in labels] == list(range(9))
    assert tokens.typed[2:5] == ("saw", "the~1", "dog")
    literal = Tokens("a a a~2", ("a", "a", "a~2"), ((0, 1), (2, 3), (4, 7)))
    assert [literal.index(label) for label in literal.typed] == [0, 1, 2]
    assert [tokens.index(word) for word in ("The", "saw", "dog", ".")] == [0, 2, 4, 8]
    assert [tokens.index(word) for word in ("the~1", "the~2", "cat~2", "dog~1")] == [3, 6, 7, 4]
    assert words("a ~ b").index("~") == 1
    assert words("caf\u00e9 au lait").index("cafe\u0301") == 0


@pytest.mark.parametrize(
    ("word", "said", "positions"),
    [
        ("the", "'the' is at the positions 3 and 6; say which, as in 'the~2'.", (3, 6)),
        ("the~3", "There are 2 'the', at 3 and 6; not 3.", ()),
        ("the~0", "There are 2 'the', at 3 and 6; not 0.", ()),
        ("cot", "There is no token 'cot'; there is cat.", ()),
        ("zebra", "There is no token 'zebra'; there is The, cat, saw, the, dog and and.", ()),
        ("", "There is no token ''; there is The, cat, saw, the, dog and and.", ()),
        (None, "A word is looked up, as in index('it'); got None.", ()),
    ],
)
def test_a_missing_or_repeated_word_is_refused(refused, word, said, positions):
    error = refused(words("The cat saw the dog and the cot"[:-3] + "cat").index, word)
    assert str(error) == said
    assert error.fixes == tuple({"token": at} for at in positions)


def test_a_tokenizers_mark_is_optional_and_a_split_word_is_refused_with_its_pieces(refused):
    pieces, spans = (
        ("It", "Ġun", "bel", "iev", "ably", "Ġis"),
        ((0, 2), (3, 5), (5, 8), (8, 11), (11, 15), (16, 18)),
    )
    tokens = Tokens("It unbelievably is", pieces, spans, words=(0, 1, 1, 1, 1, 2))
    assert [tokens.index(word) for word in ("Ġis", "is", "un", "bel")] == [5, 5, 1, 2]
    error = refused(tokens.index, "unbelievably")
    assert str(error) == "'unbelievably' was cut into Ġun, bel, iev and ably, at the positions 1, 2, 3 and 4."
    assert error.fixes == tuple({"token": at} for at in (1, 2, 3, 4))


# Pieces of words


@pytest.mark.parametrize(
    ("words", "special", "of"),
    [
        ((0, 1, 1, 2), (), (0, 1, 1, 2)),
        ((0, 1, 1, 1), (3,), (0, 1, 1, 2)),  # a special piece is alone
        ((4, 7, 7, 9), (), (0, 1, 1, 2)),  # numbers without gaps
        ((0, 1, 2, 3), (), None),
        ((), (), None),
    ],
)
def test_pieces_of_one_word_are_joined(words, special, of):
    tokens = Tokens(
        "the animal sat", ("the", "ani", "##mal", "sat"), ((0, 3), (4, 7), (7, 10), (11, 14)), words, special
    )
    found = word_groups(tokens)
    assert (found and (found.of, found.labels)) == (of and (of, ("the", "animal", "sat")))


def test_words_that_are_alike_are_distinguished_and_pieces_without_a_place_keep_their_names():
    tokens = Tokens(
        "ab ab", ("<s>", "a", "b", "a", "b"), ((0, 0), (0, 1), (1, 2), (3, 4), (4, 5)), (0, 1, 1, 2, 2), (0,)
    )
    assert word_groups(tokens).labels == ("<s>", "ab\u2009₁", "ab\u2009₂")
