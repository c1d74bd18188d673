"""Typed text is cut into the words of a small language and comes back as it was typed."""

import dataclasses
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core import resources
from mha_core.training.language import Grammar
from mha_core.training.lexicon import (
    FORMS,
    HIDDEN,
    LANGUAGES,
    PAD,
    PART,
    START,
    Lexicon,
    Noun,
    lexicon,
    normalized,
)

COMMON = """
the a an and or but because if while i you he she it we they me him her us them my your his is are was
were be has have had do does did will would can could may must not no yes what when where why who how
which in on at to from of for with by about under over one two three four ten big small old new good bad
happy sad man woman boy girl king queen child people dog cat horse bird animal street road house school
water bread apple book table car train day night week year time word sentence question answer attention
model eat drink sleep run walk go come see make take give find know think want like love read write
speak very too also always never today tomorrow yesterday hello thanks please didn't can't isn't it's i'm
"""


@pytest.fixture(params=LANGUAGES)
def small(request) -> Lexicon:
    return lexicon(request.param)


def cut(text, language="en", limit=32):
    """The pieces behind [CLS] and the words they stand for, None for an unknown one."""
    words = lexicon(language)
    tokens, numbers = words.cut(text, limit=limit)
    assert tokens.pieces[0] == START
    assert numbers[0] == words.number[START]
    assert tokens.spans[0] == (0, 0)
    known = [None if number is None else words.vocabulary[number] for number in numbers[1:]]
    return tokens.pieces[1:], known


# The vocabulary


def test_the_vocabulary_is_sorted_and_unique_behind_three_special_tokens(small):
    assert small.vocabulary[:3] == (PAD, START, HIDDEN) == ("[PAD]", "[CLS]", "[MASK]")
    ordinary = small.vocabulary[3:]
    assert list(ordinary) == sorted(set(ordinary))
    assert small.number == {word: number for number, word in enumerate(small.vocabulary)}


@pytest.mark.parametrize(("language", "least"), [("en", 3000), ("zh", 2400)])
def test_the_vocabulary_is_large_enough_to_play_with(language, least):
    assert len(lexicon(language).vocabulary) >= least


@pytest.mark.parametrize(("language", "least"), [("en", 200), ("zh", 100)])
def test_most_ordinary_sentences_are_known_whole(language, least):
    """Short sentences as pupils type them, written down before anybody looked which words were missing."""
    file = Path(__file__).with_name(f"ordinary_{language}.txt")
    sentences = file.read_text(encoding="utf-8").splitlines()
    assert len(set(sentences)) == len(sentences) >= least
    known = [None not in lexicon(language).cut(sentence, limit=32)[1] for sentence in sentences]
    assert sum(known) >= 0.85 * len(sentences)


@pytest.mark.parametrize("file", ["cases.json", "examples.json"])
def test_every_word_of_the_cases_and_the_examples_is_known(file):
    texts = [
        entry[key]
        for entry in json.loads(resources.path("assets", file).read_text(encoding="utf-8"))
        for key in ("text", "twin")
        if entry.get(key)
    ]
    assert len(texts) > 5
    for text in texts:
        assert None not in cut(text, "en" if text.isascii() else "zh")[1], text


def test_every_word_stands_in_a_pattern_so_that_it_is_trained(small):
    """A slot of its class and form, or the word itself, is in some sentence that can be generated."""
    slots, literal = set(), set(" ".join(small.grammar["pronouns"].values()).split())
    for template in small.templates():
        for part in PART.findall(template):
            if part.startswith("{"):
                slots.add(part[1:-1])
            else:
                literal |= set(part.split("|"))
    nouns_in_roles = {
        group
        for roles in (
            *((s["a"], s["b"]) for s in small.grammar["schema"]),
            small.grammar["agreement_classes"],
        )
        for group in " ".join(roles).split()
    }
    everyday = {slot for slot in slots if "." not in slot}
    literal |= {w for s in small.grammar["schema"] for w in f"{s['to_a']} {s['to_b']}".split()}
    literal |= {w for some in small.grammar["articles"].values() for w in " ".join(some).split()} | {"an"}
    for name, verbs in small.verbs.items():
        for verb in verbs:
            literal |= {
                word
                for form, word in zip(FORMS, verb, strict=True)
                if f"{name}.{form}" in slots or (form == "base" and name in slots)
            }
    for noun in small.nouns:
        if noun.group in everyday | nouns_in_roles:
            literal |= {noun.one, noun.many}
        if f"{noun.group}.bare" in slots:
            literal.add(noun.one)
    for name, members in small.words.items():
        literal |= {*members} if name in everyday else set()
    assert set(small.vocabulary[3:]) - literal == set()


def test_every_word_is_written_as_it_is_looked_up(small):
    for word in small.vocabulary[3:]:
        assert normalized(word) == word
        assert word.strip() == word != ""
        assert not set(word) & set("{}|/[] ’")


def test_common_words_are_known():
    assert [word for word in COMMON.split() if word not in lexicon().number] == []


def test_every_word_of_the_vocabulary_is_cut_as_one_known_word(small):
    for number, word in enumerate(small.vocabulary[2:], start=2):  # [MASK] and all ordinary ones
        tokens, numbers = small.cut(word, limit=2)
        assert (tokens.pieces[1:], numbers[1:]) == ((word,), [number])


def test_the_digest_is_of_the_words_and_nothing_else(small):
    again = dataclasses.replace(small, verbs=dict(reversed(small.verbs.items())))
    assert again.digest == small.digest
    assert len(small.digest) == 16
    assert lexicon("en").digest != lexicon("zh").digest


def test_any_other_word_makes_another_digest(small):
    digests = {small.digest}
    for name in small.words:
        more = dataclasses.replace(small, words={**small.words, name: (*small.words[name], f"new{name}")})
        digests.add(more.digest)
    noun = small.nouns[0]
    renamed = dataclasses.replace(noun, one=f"{noun.one}s")
    digests.add(dataclasses.replace(small, nouns=(renamed, *small.nouns[1:])).digest)
    assert len(digests) == len(small.words) + 2


def test_a_word_of_the_file_more_makes_another_digest(monkeypatch, tmp_path):
    before, file = lexicon("en").digest, resources.path("assets", "small_languages", "en.toml")
    changed = file.read_text(encoding="utf-8").replace('greeting = "hello', 'greeting = "ahoy hello')
    (tmp_path / "en.toml").write_text(changed, encoding="utf-8")
    monkeypatch.setattr(resources, "path", lambda *parts: tmp_path / parts[-1])
    assert lexicon.__wrapped__("en").digest != before


def test_a_language_that_is_not_there_is_refused_with_those_that_are(refused):
    error = refused(lexicon, "fr")
    assert str(error) == "There is no small language called 'fr'; en or zh can be used."
    assert [lexicon(fix["small language"]).code for fix in error.fixes] == ["en", "zh"]


def test_nouns_have_a_class_a_kind_and_a_plural_where_there_is_one():
    by_word = {noun.one: noun for noun in lexicon().nouns}
    assert by_word["animal"] == Noun("animal", "animals", "animal", "other")
    assert by_word["child"] == Noun("child", "children", "person", "person")
    assert by_word["king"] == Noun("king", "kings", "man", "man")
    assert by_word["mary"] == Noun("mary", None, "woman", "woman", is_name=True)
    assert by_word["bread"] == Noun("bread", None, "food", "other")
    assert not any(noun.many for noun in lexicon("zh").nouns)


def test_no_word_is_a_form_of_two_nouns(small):
    owner = {}
    for noun in small.nouns:
        for form in {noun.one, noun.many} - {None}:
            assert owner.setdefault(form, noun) is noun, form


def test_verbs_have_five_forms_each():
    go = next(verb for verb in lexicon().verbs["intransitive"] if verb[0] == "go")
    assert dict(zip(FORMS, go, strict=True)) == {
        "base": "go", "third": "goes", "past": "went", "participle": "gone", "ing": "going",
    }  # fmt: skip
    for verbs in lexicon("zh").verbs.values():
        assert all(len(verb) == 5 and len(set(verb)) == 1 for verb in verbs)


def test_a_word_is_found_under_all_its_classes():
    classes = lexicon().classes
    assert classes["animal"] == ("animal",)
    assert set(classes["fish"]) == {"animal"}
    assert "intransitive.past" in classes["went"]
    assert {"transitive.past", "transitive.participle"} <= set(classes["found"])
    assert {"object", "transitive.base"} <= set(classes["watch"])


def test_the_pronouns_are_those_of_the_language():
    assert lexicon("en").pronouns == {"he", "she", "it", "they"}
    assert lexicon("zh").pronouns == {"他", "她", "它"}


def test_each_form_of_a_noun_has_the_pronouns_that_can_stand_for_it():
    fitting = lexicon().fitting
    assert fitting["street"] == {"it"}
    assert fitting["streets"] == fitting["kings"] == {"they"}
    assert fitting["sheep"] == {"it", "they"}
    assert (fitting["king"], fitting["mary"], fitting["child"]) == ({"he"}, {"she"}, {"he", "she"})
    assert "quickly" not in fitting
    assert lexicon("zh").fitting["老师"] == {"他", "她"}


# Cutting


def test_a_sentence_is_cut_as_it_was_typed():
    text = "The Animal  didn’t cross\tthe STREET, because it was too [MASK]."
    pieces, known = cut(text)
    assert " ".join(pieces) == "The Animal didn’t cross the STREET , because it was too [MASK] ."
    assert " ".join(known) == "the animal didn't cross the street , because it was too [MASK] ."


@pytest.mark.parametrize("written", ["didn't", "didn’t", "DIDN'T", "Didn’t", "dIdN’T"])
def test_capitals_and_curly_apostrophes_are_the_same_word(written):
    assert cut(written) == ((written,), ["didn't"])


def test_spans_lead_back_to_the_text(small):
    text = " [MASK]动物， 小猫!! The  cat’s😀 "
    tokens, numbers = small.cut(text, limit=32)
    assert [text[start:end] for start, end in tokens.spans[1:]] == list(tokens.pieces[1:])
    starts = [start for start, _ in tokens.spans[1:]]
    assert starts == sorted(set(starts))
    assert len(tokens) == len(numbers)
    assert tokens.text == text
    covered = "".join(tokens.pieces[1:])
    assert covered == "".join(text.split())


@pytest.mark.parametrize(
    "unknown", ["xyzzy", "😀", "[PAD]", "[CLS]", "[SEP]", "3.14", "(", "Mask", "[ MASK ]"]
)
def test_a_word_that_is_not_known_is_none_and_never_mask(unknown):
    _, known = cut(f"the {unknown} sat")
    assert known[0] == "the"
    assert known[-1] == "sat"
    assert None in known
    assert HIDDEN not in known
    assert PAD not in known
    assert START not in known


@given(text=st.text(min_size=1, max_size=40))
def test_only_a_typed_mask_hides_and_nothing_typed_is_padding(text):
    for language in LANGUAGES:
        try:
            pieces, known = cut(text, language, limit=64)
        except ValueError:
            assert not text.strip() or len(text) >= 1
            continue
        for piece, word in zip(pieces, known, strict=True):
            assert (word == HIDDEN) == (piece == "[MASK]")
            assert word not in (PAD, START)
            assert word is None or word == HIDDEN or word == normalized(piece)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("小猫没有过马路，因为它太累了。", "小猫 没有 过 马路 ， 因为 它 太 累 了 。"),
        ("小猫没有过马路,因为它太宽了", "小猫 没有 过 马路 None 因为 它 太 宽 了"),
        ("面包车和面包", "面包车 和 面包"),
        ("公交车在马路旁边", "公交车 在 马路 旁边"),
        ("小 猫", "小 猫"),
        ("小猫[MASK]马路", "小猫 [MASK] 马路"),
        ("长颈鹿没有", "长颈鹿 没有"),
        ("巧克力冰淇淋", "巧克力 冰淇淋"),
        ("猫cat狗", "猫 None 狗"),
        ("他把书放在桌子上因为它太重了", "他 把 书 放 在 桌子 上 因为 它 太 重 了"),
    ],
)
def test_chinese_is_cut_by_the_longest_match(text, expected):
    _, known = cut(text, "zh")
    assert " ".join(map(str, known)) == expected


def test_made_chinese_sentences_are_cut_into_the_words_they_were_made_of():
    words, rng = lexicon("zh"), Random(1)
    grammar = Grammar(words)
    sentences = [sentence for _ in range(2000) for sentence in grammar.sentences(rng)]
    sentences += [
        sentence
        for name in (*grammar.names, "agreement")
        for split in ("validation", "test")
        for _ in range(20)
        for sentence in grammar.pair(rng, name, split)
    ]
    for sentence in sentences:
        tokens, numbers = words.cut("".join(sentence.words[1:]), limit=32)
        assert tokens.pieces == sentence.words
        assert numbers == [words.number[word] for word in sentence.words]


def test_made_english_sentences_are_cut_into_the_words_they_were_made_of():
    words, rng = lexicon("en"), Random(1)
    grammar = Grammar(words)
    for _ in range(1000):
        for sentence in grammar.sentences(rng):
            text = " ".join(sentence.words[1:]).replace(" .", ".").replace(" ,", ",").capitalize()
            tokens, numbers = words.cut(text.replace("'", "’"), limit=32)
            assert tuple(map(normalized, tokens.pieces[1:])) == sentence.words[1:]
            assert numbers == [words.number[word] for word in sentence.words]


@pytest.mark.parametrize(("language", "word"), [("en", "the "), ("zh", "长颈鹿")])
@pytest.mark.parametrize("limit", [2, 3, 7, 32])
def test_a_text_is_as_long_as_the_limit_or_refused_with_its_beginning(language, word, limit, refused):
    words = lexicon(language)
    tokens, _ = words.cut(word * (limit - 1), limit=limit)
    assert len(tokens) == limit
    for count in (limit, 5 * limit, 1000):  # far more pieces than any text of so many tokens has, too
        error = refused(words.cut, word * count, limit=limit)
        assert str(limit - 1) in str(error)
        [fix] = error.fixes
        again, _ = words.cut(fix["text"], limit=limit)
        assert again.pieces == tokens.pieces


@pytest.mark.parametrize("text", ["", "  ", "\n\u200b"])
def test_a_text_without_a_word_is_refused(text, refused):
    assert str(refused(lexicon().cut, text, limit=32)) == (
        "There is no text to look at; type at least one word."
    )
