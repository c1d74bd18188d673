"""Typed text is split into the words of a small language and kept as typed; no word is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core import resources
from mha_core.errors import MhaError
from mha_core.scene.page import parts
from mha_core.traces.tokens import EMPTY
from mha_core.traces.tokens import words as typed_words
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import (
    BRACKETS,
    HIDDEN,
    LANGUAGES,
    PAD,
    PART,
    SPARES,
    START,
    Lexicon,
    lexicon,
    normalized,
    spelled,
)


@pytest.fixture(params=LANGUAGES)
def small(request) -> Lexicon:
    return lexicon(request.param)


def read_words(text, language="en", limit=MAX_WORDS):
    """The pieces behind [CLS] and the words they are read as; what holds for every text is checked.

    An unknown word is read as a spare, such as "[name 3]", and an unknown number as another number.
    """
    words = lexicon(language)
    tokens, numbers = words.cut(text, limit=limit)
    read_as = [words.vocabulary[number] for number in numbers]
    assert (tokens.text, tokens.pieces[0], tokens.spans[0], read_as[0]) == (text, START, (0, 0), START)
    assert tokens.pieces[1:] == tuple(text[start:end] for start, end in tokens.spans[1:])
    assert "".join(tokens.pieces[1:]) == "".join(typed_words(text, limit=len(text)).pieces)
    pairs = [*zip(tokens.pieces, read_as, strict=True)][1:]
    changed = [(at, word) for at, (piece, word) in enumerate(pairs, 1) if normalized(piece) != word]
    assert tokens.unknown == tuple(at for at, _ in changed)
    assert {word for _, word in changed} <= {*words.spares, *words.words["number"]}
    assert all((word == HIDDEN) == (piece == HIDDEN) and word not in (PAD, START) for piece, word in pairs)
    return tokens.pieces[1:], read_as[1:]


def kinds(text, language="en"):
    """The words a text is read as, with only the kind of unknown ones: "the name walked"."""
    return " ".join(
        word if normalized(piece) == word else word.strip("[]").split()[0] if " " in word else "number"
        for piece, word in zip(*read_words(text, language), strict=True)
    )


# The vocabulary; the shipped weights hold every one of its words in place


def test_the_vocabulary_is_special_tokens_the_sorted_words_and_spares(small):
    known = sorted({*small.known})
    assert small.vocabulary == ("[PAD]", "[CLS]", "[MASK]", *known, *small.spares)
    assert len({*small.vocabulary}) == len(small.vocabulary)


@pytest.mark.parametrize(("language", "least"), [("en", 90), ("zh", 60)])
def test_most_ordinary_sentences_are_known_whole(language, least):
    """Short sentences as pupils type them, written down before anybody looked which words were missing."""
    file = Path(__file__).with_name(f"ordinary_{language}.txt")
    sentences = file.read_text(encoding="utf-8").splitlines()
    assert len({*sentences}) == len(sentences) >= least
    known = [lexicon(language).cut(sentence, limit=32)[0].unknown == () for sentence in sentences]
    assert sum(known) >= 0.85 * len(sentences)


@pytest.mark.parametrize("file", ["cases.json", "examples.json"])
def test_every_word_of_the_cases_and_the_examples_is_known(file):
    entries = json.loads(resources.path("assets", file).read_text(encoding="utf-8"))
    if file == "cases.json":
        links = [link for entry in entries for link in (entry["link"], *entry.get("links", {}).values())]
        said = [parts(link).values for link in links]
    else:
        said = [example for examples in entries.values() for example in examples]
    texts = [one[key] for one in said for key in ("text", "twin") if one.get(key)]
    assert len(texts) > 5
    for text in texts:
        words = lexicon("en" if text.isascii() else "zh")
        assert words.cut(text, limit=MAX_WORDS)[0].unknown == (), text


def test_every_word_occurs_in_some_pattern(small):
    """A slot of its class and form, or the word itself, is in some sentence that can be generated."""
    grammar, schemas = small.grammar, small.grammar["schema"]
    found = {part for template in small.templates() for part in PART.findall(template)} - {*BRACKETS}
    slots = {part[1:-1] for part in found if part.startswith("{")}
    slots |= {f"{slot}.base" for slot in slots}
    roles = (*grammar["agreement_classes"], *(schema[role] for schema in schemas for role in "ab"))
    slots |= {*" ".join(roles).split()}
    literal = {word for part in found if not part.startswith("{") for word in spelled(part)} | {"an"}
    articles = [article for some in grammar["articles"].values() for article in some]
    cues = [schema[to] for schema in schemas for to in ("to_a", "to_b")]
    literal |= {*" ".join((*grammar["pronouns"].values(), *articles, *cues)).split()}
    bare = {noun.one: f"{noun.group}.bare" for noun in small.nouns}
    classes = {word: {*small.classes.get(word, ()), bare.get(word)} for word in small.known}
    assert [word for word in {*small.known} - literal if slots.isdisjoint(classes[word])] == []


def test_every_word_of_the_vocabulary_is_cut_as_one_known_word(small):
    for word in (HIDDEN, *small.known):
        tokens, numbers = small.cut(word, limit=2)
        assert (tokens.pieces[1:], numbers[1:]) == ((word,), [small.number[word]])
        assert tokens.unknown == ()


def test_a_word_of_the_file_more_makes_another_digest(monkeypatch, tmp_path):
    before, file = lexicon("en").digest, resources.path("assets", "small_languages", "en.toml")
    changed = file.read_text(encoding="utf-8").replace('greeting = "hello', 'greeting = "ahoy hello')
    (tmp_path / "en.toml").write_text(changed, encoding="utf-8")
    monkeypatch.setattr(resources, "path", lambda *parts: tmp_path / parts[-1])
    assert lexicon.__wrapped__("en").digest != before


def test_a_language_that_does_not_exist_is_refused_with_those_that_are(refused):
    error = refused(lexicon, "fr")
    assert str(error) == "There is no small language called 'fr'; en or zh can be used."
    assert [lexicon(fix["small language"]).code for fix in error.fixes] == ["en", "zh"]


def test_no_word_is_a_form_of_two_nouns(small):
    owner = {}
    for noun in small.nouns:
        for form in {noun.one, noun.many} - {None}:
            assert owner.setdefault(form, noun) is noun, form


def test_a_word_has_its_classes_and_a_noun_the_pronouns_that_can_refer_to_it():
    words = lexicon()
    for word, classes in {
        "animal": {"animal"}, "fish": {"animal"}, "went": {"intransitive.past"},
        "found": {"transitive.past", "transitive.participle"}, "watch": {"object", "transitive.base"},
    }.items():  # fmt: skip
        assert classes <= {*words.classes[word]}
    for word, pronouns in {
        "street": {"it"}, "streets": {"they"}, "kings": {"they"}, "sheep": {"it", "they"}, "king": {"he"},
        "mary": {"she"}, "child": {"he", "she"}, "quickly": None,
    }.items():  # fmt: skip
        assert words.fitting.get(word) == pronouns
    words = lexicon("zh").fitting
    assert (words["老师"], words["老师们"], words["女孩们"]) == ({"他", "她"}, {"他们", "她们"}, {"她们"})
    assert words["小猫"] == {"它", "它们"}  # 这些小猫 is spelled as 小猫


# Typed text

# How texts are cut, here and in the browser (`tests/static/test_engine.py`)
TEXTS = json.loads(Path(__file__).with_name("cut_texts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TEXTS, ids=[case["text"] for case in TEXTS])
def test_a_text_is_read_as_known_words_and_unknown_ones_by_their_form(case):
    assert kinds(case["text"], case["language"]) == case["words"]


def test_a_sentence_is_cut_as_it_was_typed():
    text = "The Animal  didn’t cross\tthe STREET, because it was too [MASK]."
    pieces, _ = read_words(text)
    assert " ".join(pieces) == "The Animal didn’t cross the STREET , because it was too [MASK] ."


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("en", ["the gloop sat", "a dog saw the gloop near GLOOP"]),
        ("en", ["the man met Gloop and gloop"]),  # with a capital in one place and without in another
        ("zh", ["我看见了鑫", "鑫和鑫在学校"]),
    ],
)
def test_a_word_is_read_alike_wherever_it_is(language, texts):
    read = {word for text in texts for word in read_words(text, language)[1]}
    assert len(read & {*lexicon(language).spares}) == 1


HAN = [chr(code) for code in range(ord("龐"), ord("龐") + 90) if chr(code) not in lexicon("zh").known]
NONSENSE = [f"{a}{b}oq{c}" for a in "bdg" for b in "aei" for c in "klmn"]


@pytest.mark.parametrize(("language", "words", "kind"), [("en", NONSENSE, "other"), ("zh", HAN, "word")])
def test_two_unknown_words_of_one_sentence_differ_as_long_as_there_are_spares(language, words, kind):
    alone = {word: read_words(word, language)[1][0] for word in words}
    one, other = next((a, b) for a in words for b in words if a < b and alone[a] == alone[b])
    _, read_as = read_words(f"{one} {other} {one}", language)
    assert alone[one] == read_as[0] == read_as[2] != read_as[1]
    few = SPARES[language][kind]
    pieces, read_as = read_words(" ".join(words[: MAX_WORDS - 1]), language)
    assert [*pieces] == words[: MAX_WORDS - 1]
    assert {*read_as[:few]} == {*read_as} == {f"[{kind} {nth}]" for nth in range(1, few + 1)}


def has_words(text: str) -> bool:
    """Whether there is anything in a text that can be seen."""
    try:
        return bool(typed_words(text).pieces)
    except MhaError:
        return False


@given(text=st.text(min_size=1, max_size=40))
def test_any_text_is_read_as_tokens(text):
    """Emoji, code, other scripts: each piece is a known word, a mask, a number or a spare."""
    for language in LANGUAGES if has_words(text) else ():
        read_words(text, language)


def test_made_sentences_are_cut_into_the_words_they_were_made_of(corpus):
    """In Chinese almost always: 上衣架 may be 上衣 and 架, or 上 and 衣架."""
    otherwise, sentences = 0, [one for one, _ in corpus.train[:500] + corpus.held_out["test"]]
    for sentence in sentences:
        if corpus.language == "en":
            text = " ".join(sentence.words[1:]).replace(" .", ".").replace(" ,", ",").replace("'", "’")
        else:
            text = "".join(sentence.words[1:])
        tokens, numbers = corpus.words.cut(text.capitalize(), limit=2 * MAX_WORDS)
        as_made = tuple(map(normalized, tokens.pieces[1:])) == sentence.words[1:]
        otherwise += not as_made
        assert not as_made or numbers == [corpus.words.number[word] for word in sentence.words]
    assert otherwise <= (0 if corpus.language == "en" else 0.003 * len(sentences))


# Long texts


@pytest.mark.parametrize(
    ("language", "limit", "text", "expected"),
    [
        ("en", 64, "The dog sat. It was tired!  Why? ", ["The dog sat.", "It was tired!", "Why?"]),
        ("en", 64, "He said: “Stop!” Then he left.", ["He said: “Stop!”", "Then he left."]),
        ("en", 64, "It costs 3.14 euros... or more.", ["It costs 3.14 euros...", "or more."]),
        ("en", 64, "Mr. Gloop sat. He left.", ["Mr. Gloop sat.", "He left."]),
        ("zh", 64, "小猫睡了。它很累！为什么？", ["小猫睡了。", "它很累！", "为什么？"]),
        ("zh", 64, "他说：“你好！”然后走了", ["他说：“你好！”", "然后走了"]),
        ("en", 2, "gloop dog", ["gloop", "dog"]),  # without a stop, between words
        ("zh", 3, "长颈鹿" * 5, ["长颈鹿" * 2, "长颈鹿" * 2, "长颈鹿"]),
        (
            "en",
            5,
            "We left. The dog and the cat sat. It was.",
            ["We left.", "The dog and the", "cat sat.", "It was."],
        ),
    ],
)
def test_a_text_has_these_sentences(language, limit, text, expected):
    assert list(lexicon(language).sentences(text, limit=limit)) == expected


TYPED = st.lists(
    st.sampled_from(
        ["The", "dog", "gloop", "猫", "鑫", "马路", ".", "!", "。", "？”", "3.5", "...", ",", "😀", "\n"]
    ),
    min_size=1,
    max_size=60,
).map(" ".join)


@given(text=TYPED | st.text(min_size=1, max_size=80), limit=st.integers(2, 12))
def test_the_parts_of_a_text_fit_and_are_its_words(text, limit):
    for language in LANGUAGES if has_words(text) else ():
        words = lexicon(language)
        whole, _ = words.cut(text, limit=1000)
        pieces = [words.cut(part, limit=limit)[0].pieces[1:] for part in words.sentences(text, limit=limit)]
        assert all(pieces)
        assert [piece for some in pieces for piece in some] == list(whole.pieces[1:])


@pytest.mark.parametrize(
    ("language", "limit", "text", "kept"),
    [
        ("en", 2, "the the", "the"),
        ("zh", 3, "长颈鹿" * 1000, "长颈鹿" * 2),
        ("en", MAX_WORDS, "gloop " * 3000, ("gloop " * 63).strip()),
        ("zh", MAX_WORDS, "小猫睡了。" * 40, "小猫睡了。"),
        ("zh", MAX_WORDS, "鑫" * 3000, "鑫" * 63),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_a_sentence_that_can_be_read(
    language, limit, text, kept, refused
):
    words = lexicon(language)
    error = refused(words.cut, text, limit=limit)
    assert f"up to {limit - 1} at a time" in str(error)
    assert error.fixes == ({"text": kept},)
    assert len(words.cut(kept, limit=limit)[0]) <= limit


@pytest.mark.parametrize("text", ["", "  ", "\n\u200b"])
def test_a_text_without_a_word_is_refused(text, refused):
    assert str(refused(lexicon().cut, text, limit=32)) == EMPTY
    assert str(refused(lexicon().sentences, text, limit=32)) == EMPTY
