"""Typed text is split into the words of a small language and kept as typed; no word is refused."""

import dataclasses
import json
import tomllib
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core import resources
from mha_core.errors import MhaError
from mha_core.scene.page import parts
from mha_core.traces.tokens import EMPTY
from mha_core.traces.tokens import words as typed_words
from mha_core.training.language import EVERYDAY, MAX_WORDS, Grammar
from mha_core.training.lexicon import (
    BRACKETS,
    FORMS,
    HIDDEN,
    LANGUAGES,
    PAD,
    PART,
    SPARES,
    START,
    Lexicon,
    Noun,
    lexicon,
    normalized,
    spelled,
)
from mha_core.training.questions import QUESTIONS

KNOWN = dataclasses.replace(EVERYDAY, unknown=0.0)

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


def read_words(text, language="en", limit=32):
    """The pieces behind [CLS] and the words they are read as.

    An unknown word is read as a spare, such as "[name 3]", and an unknown number as another number.
    """
    words = lexicon(language)
    tokens, numbers = words.cut(text, limit=limit)
    assert tokens.pieces[0] == START
    assert numbers[0] == words.number[START]
    assert tokens.spans[0] == (0, 0)
    read_as = [words.vocabulary[number] for number in numbers]
    changed = [
        at
        for at, (piece, word) in enumerate(zip(tokens.pieces, read_as, strict=True))
        if at and normalized(piece) != word
    ]
    assert tokens.unknown == tuple(changed)
    assert {read_as[at] for at in changed} <= {*words.spares, *words.words["number"]}
    return tokens.pieces[1:], read_as[1:]


def kinds(text, language="en", limit=MAX_WORDS):
    """The words a text is read as, with only the kind of unknown ones: "the name walked"."""
    return " ".join(
        word if normalized(piece) == word else word.strip("[]").split()[0] if " " in word else "number"
        for piece, word in zip(*read_words(text, language, limit), strict=True)
    )


# The vocabulary


def test_the_vocabulary_is_special_tokens_the_sorted_words_and_spares(small):
    assert small.vocabulary[:3] == (PAD, START, HIDDEN) == ("[PAD]", "[CLS]", "[MASK]")
    assert small.vocabulary[3 : 3 + len(small.known)] == small.known == tuple(sorted(set(small.known)))
    assert small.vocabulary[3 + len(small.known) :] == small.spares
    assert small.number == {word: number for number, word in enumerate(small.vocabulary)}
    assert len(set(small.vocabulary)) == len(small.vocabulary)
    assert small.n_words == len({START, HIDDEN, *small.known})


def test_there_are_as_many_spares_of_each_kind_as_listed(small):
    assert small.spares[0].endswith(" 1]")
    assert len(small.spares) == sum(SPARES[small.code].values())
    for kind, count in SPARES[small.code].items():
        assert [spare for spare in small.spares if spare.startswith(f"[{kind} ")] == [
            f"[{kind} {nth}]" for nth in range(1, count + 1)
        ]


@pytest.mark.parametrize(("language", "least"), [("en", 3000), ("zh", 2400)])
def test_the_vocabulary_has_thousands_of_words(language, least):
    assert len(lexicon(language).known) >= least


@pytest.mark.parametrize(("language", "least"), [("en", 200), ("zh", 100)])
def test_most_ordinary_sentences_are_known_whole(language, least):
    """Short sentences as pupils type them, written down before anybody looked which words were missing."""
    file = Path(__file__).with_name(f"ordinary_{language}.txt")
    sentences = file.read_text(encoding="utf-8").splitlines()
    assert len(set(sentences)) == len(sentences) >= least
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


# Words of the sentences written by hand that the languages do not have, so that these are read, too.
MEANT_UNKNOWN = {
    "en": {"approved", "Beyoncé", "engine", "fixed", "jury", "loan", "mechanic", "Swiss", "theory", "Zurich"},
    "zh": {"顿"},
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_written_by_hand_name_words_that_they_have(language):
    file = Path(__file__).with_name(f"by_hand_{language}.toml")
    sentences = tomllib.loads(file.read_text(encoding="utf-8"))["sentence"]
    assert len({sentence["text"] for sentence in sentences}) == len(sentences) >= 30
    unknown, asked = set(), 0
    for sentence in sentences:
        tokens, _ = lexicon(language).cut(sentence["text"], limit=MAX_WORDS)
        unknown |= {tokens.pieces[at] for at in tokens.unknown}
        assert set(sentence) - {"text"} <= set(QUESTIONS)
        for question in set(sentence) - {"text"}:
            for word, answer in sentence[question].items():
                assert tokens.index(word) != tokens.index(answer)  # both are there, each once
                asked += 1
    assert unknown == MEANT_UNKNOWN[language]
    assert asked >= 60


def test_every_word_occurs_in_some_pattern(small):
    """A slot of its class and form, or the word itself, is in some sentence that can be generated."""
    slots, literal = set(), set(" ".join(small.grammar["pronouns"].values()).split())
    for template in small.templates():
        for part in PART.findall(template):
            if part.startswith("{"):
                slots.add(part[1:-1])
            elif part not in BRACKETS:
                literal |= set(spelled(part))
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
    assert set(small.known) - literal == set()


def test_every_word_is_written_as_it_is_looked_up(small):
    for word in small.known:
        assert normalized(word) == word
        assert word.strip() == word != ""
        assert not set(word) & set("{}|/[] ’")


def test_common_words_are_known():
    assert [word for word in COMMON.split() if word not in lexicon().known] == []


def test_every_word_of_the_vocabulary_is_cut_as_one_known_word(small):
    for word in (HIDDEN, *small.known):
        tokens, numbers = small.cut(word, limit=2)
        assert (tokens.pieces[1:], numbers[1:]) == ((word,), [small.number[word]])
        assert tokens.unknown == ()


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


def test_a_language_that_does_not_exist_is_refused_with_those_that_are(refused):
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


def test_each_form_of_a_noun_has_the_pronouns_that_can_refer_to_it():
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
    pieces, known = read_words(text)
    assert " ".join(pieces) == "The Animal didn’t cross the STREET , because it was too [MASK] ."
    assert " ".join(known) == "the animal didn't cross the street , because it was too [MASK] ."


@pytest.mark.parametrize("written", ["didn't", "didn’t", "DIDN'T", "Didn’t", "dIdN’T"])
def test_capitals_and_curly_apostrophes_are_the_same_word(written):
    assert read_words(written) == ((written,), ["didn't"])


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


# Unknown words


@pytest.mark.parametrize(
    "unknown", ["xyzzy", "😀", "[PAD]", "[CLS]", "[SEP]", "3.14", "(", "Mask", "[ MASK ]", "[name 3]"]
)
def test_a_word_that_is_not_known_is_a_spare_and_never_a_special_token(unknown):
    pieces, read_as = read_words(f"the {unknown} sat")
    assert (read_as[0], read_as[-1]) == ("the", "sat")
    assert set(read_as[1:-1]) & {*lexicon().spares, *lexicon().words["number"]}
    assert not {HIDDEN, PAD, START} & set(read_as)
    assert "".join(pieces) == f"the{unknown}sat".replace(" ", "")  # spelled as it was typed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The animal met Beyoncé.", "the animal met name ."),
        ("Beyoncé met the animal.", "name met the animal ."),
        ("the animal met beyoncé", "the animal met other"),
        ("the gloops gloop", "the s other"),
        ("she gloopedly glooped", "she ly ed"),
        ("she is glooping", "she is ing"),
        ("Glooping is good", "ing is good"),  # the first word has a capital anyway
        ("Gloopedly she sat", "ly she sat"),
        ("Gloops sat", "name sat"),
        ("Jonas sat", "name sat"),
        ("the man, Gloopings", "the man , name"),
        ("a pid, a xing, a sxs", "a other , a other , a other"),  # too short for an ending
        ("42 dogs, 3.14 dogs, 2nd", "number dogs , number dogs , number"),
        ("B2B", "number"),
        ("# 😀 ∑ €", "symbol symbol symbol symbol"),
        ("מרחבא مرحبا 猫", "other other other"),
        ("def f(x): return x*2", "other other symbol other symbol symbol return other symbol number"),
        ("ÉCOLE", "name"),
    ],
)
def test_an_unknown_english_word_is_read_by_its_form(text, expected):
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("鑫淼焱猫", "character character character 猫"),
        ("我看见了Beyoncé", "我 看见 了 latin"),
        ("beyoncé and 猫", "latin latin 猫"),
        ("我有42个苹果", "我 有 number 个 苹果"),
        ("😀猫", "symbol 猫"),
        ("مرحبا，ひらがな", "latin ， latin latin latin latin"),
        ("猫（狗）", "猫 symbol 狗 symbol"),
    ],
)
def test_a_chinese_text_is_read_by_characters_where_a_word_is_not_known(text, expected):
    assert kinds(text, "zh") == expected


@pytest.mark.parametrize(
    ("language", "one", "two"),
    [("en", "the gloop sat", "a dog saw the gloop near GLOOP"), ("zh", "我看见了鑫", "鑫和鑫在学校")],
)
def test_a_word_is_read_alike_wherever_it_is(language, one, two):
    readings = {
        word
        for text in (one, two)
        for word in read_words(text, language)[1]
        if word in lexicon(language).spares
    }
    assert len(readings) == 1


def test_a_word_with_a_capital_in_one_place_and_without_in_another_is_one_word():
    _, read_as = read_words("the man met Gloop and gloop")
    assert read_as[3] == read_as[5]
    assert read_as[3].startswith("[name")


def words_with_one_spare(language: str, words: list[str], kind: str) -> tuple[str, str]:
    """Two unknown words of one kind that are read as the same spare when alone."""
    first = {}
    for word in words:
        _, [read_as] = read_words(word, language)
        assert read_as.startswith(f"[{kind} ")
        if first.setdefault(read_as, word) != word:
            return first[read_as], word
    raise AssertionError("every one has a spare of its own")


HAN = [chr(code) for code in range(ord("龐"), ord("龐") + 90) if chr(code) not in lexicon("zh").known]
NONSENSE = [f"{a}{b}oq{c}" for a in "bdg" for b in "aei" for c in "klmn"]


@pytest.mark.parametrize(("language", "words", "kind"), [("en", NONSENSE, "other"), ("zh", HAN, "character")])
def test_two_unknown_words_of_one_sentence_are_read_as_two_different_ones(language, words, kind):
    one, other = words_with_one_spare(language, words, kind)
    _, read_as = read_words(f"{one} {other} {one}", language)
    assert read_as[0] == read_as[2] != read_as[1]
    assert read_as[0] == read_words(one, language)[1][0]


@pytest.mark.parametrize(("language", "words", "kind"), [("en", NONSENSE, "other"), ("zh", HAN, "character")])
def test_of_more_unknown_words_than_spares_some_are_read_alike(language, words, kind):
    few = SPARES[language][kind]
    assert len(words) > few
    text = " ".join(words[: MAX_WORDS - 1])
    pieces, read_as = read_words(text, language, limit=MAX_WORDS)
    assert list(pieces) == words[: MAX_WORDS - 1]
    assert len(set(read_as[:few])) == few
    assert set(read_as) == {f"[{kind} {nth}]" for nth in range(1, few + 1)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_positions_of_unknown_words_are_named(language):
    text = {"en": "The gloop saw 😀 and the gloop.", "zh": "鑫看见了😀和鑫。"}[language]
    tokens, _ = lexicon(language).cut(text, limit=32)
    assert [tokens.pieces[at] for at in tokens.unknown] == [
        piece for piece in tokens.pieces if piece in ("gloop", "鑫", "😀")
    ]
    assert len(tokens.unknown) == 3


def has_words(text: str) -> bool:
    """Whether there is anything in a text that can be seen."""
    try:
        return bool(typed_words(text).pieces)
    except MhaError:
        return False


@given(text=st.text(min_size=1, max_size=40))
def test_any_text_is_read_as_tokens(text):
    """Emoji, code, other scripts: each piece is a known word, a mask, a number or a spare."""
    for language in LANGUAGES:
        if not has_words(text):
            continue
        pieces, read_as = read_words(text, language, limit=64)
        for piece, word in zip(pieces, read_as, strict=True):
            assert (word == HIDDEN) == (piece == "[MASK]")
            assert word not in (PAD, START)
            words = lexicon(language)
            others = {*words.spares, *words.words["number"], HIDDEN}
            if word not in others:
                assert word == normalized(piece)


# Known words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("小猫没有过马路，因为它太累了。", "小猫 没有 过 马路 ， 因为 它 太 累 了 。"),
        ("小猫没有过马路,因为它太宽了", "小猫 没有 过 马路 symbol 因为 它 太 宽 了"),
        ("面包车和面包", "面包车 和 面包"),
        ("公交车在马路旁边", "公交车 在 马路 旁边"),
        ("小 猫", "小 猫"),
        ("小猫[MASK]马路", "小猫 [MASK] 马路"),
        ("长颈鹿没有", "长颈鹿 没有"),
        ("巧克力冰淇淋", "巧克力 冰淇淋"),
        ("猫cat狗", "猫 latin 狗"),
        ("他把书放在桌子上因为它太重了", "他 把 书 放 在 桌子 上 因为 它 太 重 了"),
    ],
)
def test_chinese_is_cut_by_the_longest_match(text, expected):
    assert kinds(text, "zh") == expected


def made_sentences(language: str, count: int):
    """Sentences with known words, in every shape."""
    grammar, rng = Grammar(lexicon(language), KNOWN), Random(1)
    sentences = [sentence for _ in range(count) for sentence in grammar.sentences(rng)]
    return sentences + [
        sentence
        for name in grammar.names
        for shape in grammar.held_out_shapes
        for sentence in grammar.pair(rng, name, "test", shape)
    ]


def test_made_chinese_sentences_are_cut_into_the_words_they_were_made_of():
    """Almost always: the longest match reads 上衣架 as 上衣 and 架 instead of 上 and 衣架."""
    words, sentences, otherwise = lexicon("zh"), made_sentences("zh", 1500), 0
    for sentence in sentences:
        tokens, numbers = words.cut("".join(sentence.words[1:]), limit=2 * MAX_WORDS)
        otherwise += tokens.pieces != sentence.words
        if tokens.pieces == sentence.words:
            assert numbers == [words.number[word] for word in sentence.words]
    assert otherwise < 0.003 * len(sentences)


def test_made_english_sentences_are_cut_into_the_words_they_were_made_of():
    words = lexicon("en")
    for sentence in made_sentences("en", 1000):
        text = " ".join(sentence.words[1:]).replace(" .", ".").replace(" ,", ",").capitalize()
        tokens, numbers = words.cut(text.replace("'", "’"), limit=MAX_WORDS)
        assert tuple(map(normalized, tokens.pieces[1:])) == sentence.words[1:]
        assert numbers == [words.number[word] for word in sentence.words]


# Long texts


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


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "The dog sat. It was tired!  Why? ", ["The dog sat.", "It was tired!", "Why?"]),
        ("en", "no stop at all", ["no stop at all"]),
        ("en", "He said: “Stop!” Then he left.", ["He said: “Stop!”", "Then he left."]),
        ("en", "It costs 3.14 euros... or more.", ["It costs 3.14 euros...", "or more."]),
        ("en", "gloop. 😀! Zorp", ["gloop.", "😀!", "Zorp"]),
        ("zh", "小猫睡了。它很累！为什么？", ["小猫睡了。", "它很累！", "为什么？"]),
        ("zh", "他说：“你好！”然后走了", ["他说：“你好！”", "然后走了"]),
    ],
)
def test_a_text_has_these_sentences(language, text, expected):
    assert list(lexicon(language).sentences(text, limit=MAX_WORDS)) == expected


@pytest.mark.parametrize("limit", [2, 3, 7, 64])
@pytest.mark.parametrize(("language", "word"), [("en", "gloop"), ("en", "dog"), ("zh", "长颈鹿")])
def test_a_long_sentence_without_a_stop_is_cut_between_words(language, word, limit):
    words = lexicon(language)
    parts = words.sentences(" ".join([word] * 200), limit=limit)
    lengths = [len(words.cut(part, limit=limit)[0]) for part in parts]
    assert lengths[:-1] == [limit] * (len(parts) - 1)
    assert set(" ".join(parts).split()) == {word}
    assert sum(lengths) - len(lengths) == 200


def test_a_short_sentence_after_a_long_one_is_not_broken():
    long = "the dog and " * 10 + "the cat sat."
    parts = lexicon().sentences(f"We left. {long} It was late.", limit=16)
    assert parts[0] == "We left."
    assert parts[-1] == "It was late."
    assert len(parts) == 5


TYPED = st.lists(
    st.sampled_from(
        ["The", "dog", "gloop", "猫", "鑫", "马路", ".", "!", "。", "？”", "3.5", "...", ",", "😀", "\n"]
    ),
    min_size=1,
    max_size=60,
).map(" ".join)


@given(text=TYPED | st.text(min_size=1, max_size=80), limit=st.integers(2, 12))
def test_the_parts_of_a_text_fit_and_are_its_words(text, limit):
    for language in LANGUAGES:
        words = lexicon(language)
        if not has_words(text):
            continue
        whole, _ = words.cut(text, limit=1000)
        parts = words.sentences(text, limit=limit)
        pieces = [words.cut(part, limit=limit)[0].pieces[1:] for part in parts]  # none is refused
        assert all(pieces)
        assert [piece for of_part in pieces for piece in of_part] == list(whole.pieces[1:])


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The dog sat. " * 40),
        ("en", "gloop " * 3000),
        ("en", "the dog and the cat , " * 20 + ". The end."),
        ("zh", "小猫睡了。" * 40),
        ("zh", "鑫" * 3000),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_a_sentence_that_can_be_read(language, text, refused):
    words = lexicon(language)
    error = refused(words.cut, text, limit=MAX_WORDS)
    assert f"up to {MAX_WORDS - 1} at a time" in str(error)
    [fix] = error.fixes
    assert fix["text"] == words.sentences(text, limit=MAX_WORDS)[0]
    assert text.startswith(fix["text"])
    tokens, _ = words.cut(fix["text"], limit=MAX_WORDS)
    assert 1 < len(tokens) <= MAX_WORDS


@pytest.mark.parametrize("text", ["", "  ", "\n\u200b"])
def test_a_text_without_a_word_is_refused(text, refused):
    assert str(refused(lexicon().cut, text, limit=32)) == EMPTY
    assert str(refused(lexicon().sentences, text, limit=32)) == EMPTY
