"""Every text on screen comes from the catalogues, which are complete; user text is escaped."""

import ast
import json
import pickle
import re
import string
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import autocorrect_py
import pytest
from streamlit.testing.v1 import AppTest

from mha_core.analysis import patterns
from mha_core.analysis.derivation import STEPS, adjust
from mha_core.analysis.embeddings import RELATIONS
from mha_core.analysis.published import published_heads
from mha_core.analysis.roles import ROLES
from mha_core.atlases import measures
from mha_core.atlases.texts import SMALL
from mha_core.errors import MhaError, Phrase, listed
from mha_core.export import head_view
from mha_core.scene.link import CHOICES
from mha_core.sources.huggingface.catalogue import hub_models
from mha_core.static import parts
from mha_core.traces.matrices import MATRICES
from mha_core.training.lexicon import lexicon
from mha_core.training.model import ARCHITECTURES
from pages._kit import text
from pages._kit.choice import WORDED
from pages._kit.text import literal, said
from pages.models._real import literature

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "assets" / "languages").glob("*.json"))
LANGUAGES = [file for file in FILES if "." not in file.stem]
MESSAGES = [file for file in FILES if file.stem.startswith("errors.")]
ENGLISH = json.loads((ROOT / "assets" / "languages" / "en.json").read_text(encoding="utf-8"))

# Keys that end in a name which the library lists, with {} for the name: a new name needs a text.
NAMED = {
    "matrix.{}": set(MATRICES),
    "axis.{}": {axis for matrix in MATRICES.values() for axis in matrix.axes},
    "model.{}": set(ARCHITECTURES),
    "option.{}": {f"{field}.{name}" for field, names in CHOICES.items() if field in WORDED for name in names},
    "role.{}": set(ROLES),
    "roles.pattern.{}": set(patterns.MEASURES),
    "atlas.measure.{}": {*measures.MEASURES} - {*patterns.MEASURES},
    "atlas.about.{}": {"role", "position", *measures.MEASURES} - {*patterns.POSITIONS},
    "atlas.language.{}": {*SMALL.values()},
    "words.relation_{}": {kind for relations in RELATIONS.values() for kind in relations},
    "words.class_{}": {kind for name in ("en", "zh") for kind in lexicon(name).kinds.values()},
    "hub.{}": {model.id.rpartition("/")[2] for model in hub_models()},
    "literature.role_{}": {head.role for heads in published_heads().values() for head in heads},
    "literature.how_{}": set(literature.HOW),
    "next.{}": {file.stem for file in (ROOT / "pages").glob("*/[!_]*.py") if file.parent.name[0] != "_"},
    "steps.{}.title": {step.__name__ for step in (*STEPS, adjust)},
}
SPECIAL = set(string.punctuation)
SENTENCE = re.compile(r"\b[a-z]{2,} [a-z]+ [a-z]+")


@cache
def calls(function: str = "t") -> list[tuple[str, str, ast.Call]]:
    """Every ``t(…)`` in the pages: its place, its key with {} for variable parts, and the call."""
    found = []
    for file in sorted((ROOT / "pages").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                found.append((f"{file.relative_to(ROOT)}:{node.lineno}", _key(node.args[0]), node))
    return found


def _key(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join("{}" if isinstance(part, ast.FormattedValue) else part.value for part in node.values)
    return node.value if isinstance(node, ast.Constant) else f"<{ast.unparse(node)}>"


def placeholders(words: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(words) if name is not None}


@cache
def message_names() -> frozenset[str]:
    """What is called with a template: errors and phrases."""
    return frozenset({"MhaError", "Phrase", *re.findall(r"class (\w+)\(MhaError\)", sources())})


def messages_in(code: str) -> list[tuple[str, set[str]]]:
    """The template of each error and phrase, in <> where it is put together, and the fields it is given."""
    names, found = message_names(), []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
            fields = {word.arg for word in node.keywords} - {"fixes"}
            found += [(template, fields) for template in _templates(node.args[0])]
    return found


def _templates(node: ast.expr) -> list[str]:
    """The templates of an argument: one, or one of two; none where it is a phrase made elsewhere."""
    if isinstance(node, ast.IfExp):
        return [*_templates(node.body), *_templates(node.orelse)]
    if isinstance(node, ast.Constant):
        return [node.value]
    return [f"<{ast.unparse(node)}>"] if isinstance(node, ast.JoinedStr | ast.BinOp) else []


@cache
def messages() -> list[tuple[str, set[str]]]:
    files = (file for room in ("mha_core", "pages") for file in sorted((ROOT / room).rglob("*.py")))
    return [message for file in files for message in messages_in(file.read_text(encoding="utf-8"))]


def plain_sentences(code: str) -> list[str]:
    """The sentences in code that are no templates; not docstrings, types, warnings, patterns, reprs."""
    names, left_out = message_names(), set()
    for node in ast.walk(tree := ast.parse(code)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_repr = isinstance(node, ast.FunctionDef) and node.name == "__repr__"
        called = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if is_docstring or is_repr or called in names | {"warn", "compile"} or called.endswith("Error"):
            left_out.update(ast.walk(node))
        if isinstance(node, ast.arg) and node.annotation is not None:  # the axes of an array
            left_out.update(ast.walk(node.annotation))
        if isinstance(node, ast.JoinedStr):  # one text with its parts
            left_out.update(node.values)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    return [words for node in texts if node not in left_out and SENTENCE.search(words := str(_key(node)))]


def faults(found: Iterable[tuple[str, set[str]]]) -> list[str]:
    """The templates that cannot be translated, or that name a missing field."""
    return [words for words, fields in found if words.startswith("<") or _named(words) - fields]


def _named(words: str) -> set[str]:
    return set(re.findall(r"\{(\w+)[!:}]", words.replace("{{", "")))


def _places(words: str) -> set[str]:
    return set(re.findall(r"\{\w+[^}]*\}", words.replace("{{", "")))


def differences(translated: dict[str, str]) -> set[str]:
    """The templates that a translation lacks, has too many, or has with other fields or forms of numbers."""
    ours = {template for template, _ in messages()}
    others = {one for one in ours & translated.keys() if _places(translated[one]) != _places(one)}
    return ours ^ translated.keys() | others


@cache
def sources() -> str:
    """The code, the scripts and the lists of published heads and of cases, as one text."""
    files = [*(ROOT / "pages").rglob("*.py"), *(ROOT / "mha_core").rglob("*.py")]
    files += [*(ROOT / "assets").rglob("*.js"), ROOT / "assets" / "published_heads.json"]
    files += [ROOT / "assets" / "cases.json"]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def source_words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sources()))


@cache
def script_keys() -> tuple[re.Pattern, ...]:
    """The keys that scripts put together, as texts[`draw_${name}`]."""
    templates = sorted(set(re.findall(r"texts\[`([^`]+)`\]", sources())))
    return tuple(re.compile(re.sub(r"\$\{[^}]+\}", "([^_]+)", template)) for template in templates)


def is_in_sources(word: str) -> bool:
    """Whether a word occurs in the sources, as it is or composed by a script of parts that do."""
    parts = (key.fullmatch(word) for key in script_keys())
    return word in source_words() or any(part and source_words().issuperset(part.groups()) for part in parts)


def texts_of(key: str, texts: Iterable[str]) -> set[str]:
    """The keys that a key stands for: itself, or with {} all keys whose variable parts are in the sources."""
    form = re.compile(re.escape(key).replace(r"\{\}", r"([^.]+)"))
    return {
        text
        for text in texts
        if (filled := form.fullmatch(text))
        and all(is_in_sources(word) for part in filled.groups() for word in re.findall(r"\w+", part))
    }


def unused(texts: Iterable[str]) -> set[str]:
    prefixes = [
        head_view.TEXTS,
        head_view.LEDGER_TEXTS,
        parts.TEXTS,
        *(prefix for _, prefix, _ in calls("templates")),
    ]
    for_scripts = {f"{prefix}{{}}" for prefix in prefixes} | {key for _, key, _ in calls("template")}
    keys = {key for _, key, _ in calls()} | for_scripts
    named = {key.format(name) for key, names in NAMED.items() for name in names}
    return set(texts).difference(named, *(texts_of(key, texts) for key in keys))


def test_every_key_in_use_has_a_text():
    every = [(place, key) for place, key, _ in [*calls(), *calls("template")]]
    every += [(place, f"{prefix}{{}}") for place, prefix, _ in calls("templates")]
    assert [(place, key) for place, key in every if not texts_of(key, ENGLISH)] == []


@pytest.mark.parametrize("key", NAMED)
def test_every_name_that_the_library_lists_has_a_text(key):
    assert key in {used for _, used, _ in calls()}
    missing = sorted({key.format(name) for name in NAMED[key]} - set(ENGLISH))
    assert missing == [], "write these in assets/languages/en.json and in each other language"


def test_every_text_is_in_use():
    assert unused(ENGLISH) == set()


def test_an_unused_text_is_found():
    keys = {"role.unheardof", "steps.project.gone_long_ago", "app.no_such_text"}
    assert unused([*ENGLISH, *keys]) == keys


def test_every_use_of_a_text_fills_its_placeholders():
    empty = [
        (place, key, missing)
        for place, key, call in calls()
        if key in ENGLISH and all(word.arg is not None for word in call.keywords)
        if (missing := placeholders(ENGLISH[key]) - {word.arg for word in call.keywords})
    ]
    assert empty == []


@pytest.mark.parametrize("file", LANGUAGES, ids=lambda file: file.stem)
def test_every_language_has_the_same_keys_and_placeholders_once_and_no_blank_text(file):
    pairs = []
    json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=pairs.extend)
    other, keys = dict(pairs), [key for key, _ in pairs]
    assert set(ENGLISH) - set(other) == set(), f"translate these in {file.name}"
    assert set(other) - set(ENGLISH) == set(), "write these in en.json, or take them away"
    assert {key for key in other if placeholders(other[key]) != placeholders(ENGLISH[key])} == set()
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert [key for key, words in pairs if not words.strip()] == []
    masks = {words for key, words in pairs if key.startswith("option.mask.")}
    missing = {name for name in masks if name not in other["control.mask_help"]}
    assert missing == set(), f"say in control.mask_help what a word may look at under these in {file.name}"


def test_every_message_is_a_template_with_its_fields():
    assert faults(messages()) == []


@pytest.mark.parametrize(
    "code", ['MhaError(f"{n} heads")', 'Phrase("a " + name)', 'mha.MhaError("{n} heads", m=1)']
)
def test_a_message_without_a_template_is_found(code):
    assert len(faults(messages_in(code))) == 1


@pytest.mark.parametrize("room", ["capture", "interventions", "sources"])
def test_every_sentence_on_a_model_is_a_template(room):
    files = sorted((ROOT / "mha_core" / room).rglob("*.py"))
    assert [words for file in files for words in plain_sentences(file.read_text(encoding="utf-8"))] == []


def test_a_sentence_that_is_no_template_is_noticed():
    code = """skip("its scores are lost")\nskip(f"{name} is not shown here")"""
    assert len(plain_sentences(code)) == 2


def test_every_message_is_said_in_the_languages_that_have_messages():
    translated = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in MESSAGES}
    assert {name: found for name, words in translated.items() if (found := differences(words))} == {}
    assert [name for name, words in translated.items() if not all(map(str.strip, words.values()))] == []


def test_a_missing_translation_or_one_with_other_fields_is_found():
    template = "{name} {value} is out of range; {low} to {high} work."
    kept = {one: one for one, _ in messages()}
    assert differences(kept) == set()
    assert differences(kept | {template: "{name} {low} {high}"}) == {template}
    assert differences(kept | {template: template.replace("{low}", "{low:,}")}) == {template}
    assert differences(kept | {"of an earlier release": "alt"}) == {"of an earlier release"}
    del kept[template]
    assert differences(kept) == {template}


# What Streamlit's page replaces in text after Markdown has been read, seen in a browser with 1.67.
REPLACED = re.compile(r"^--$|^<->$|https?://|www\.|\w@\w|:streamlit:")


def unescaped(markdown: str) -> str:
    """The text that Markdown renders for an escaped text."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown)


@pytest.mark.parametrize("typed", [string.punctuation, "<s> --> ~~a~~ :red[x]", "a\\", "1. a", 0.5])
def test_every_character_that_markdown_knows_is_escaped_and_no_other(typed):
    shown = literal(typed)
    assert re.fullmatch(r"(?:\\[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~])*", shown)
    assert unescaped(shown).replace("\u2060", "") == str(typed)  # a word joiner has no width
    characters = [chr(code) for code in range(0x2100)]
    assert {c for c in characters if literal(c) != c} == SPECIAL


@pytest.mark.parametrize("typed", ["--", "<->", "<http://a.bc>", "<www.a.bc>", "<a@b.cd>", "<:streamlit:>"])
def test_streamlits_replacements_do_not_apply_to_user_text(typed):
    assert not REPLACED.search(unescaped(literal(typed)))


def text_shown(lang: str | list[str] | None, locale: str | None) -> str:
    """The text of `t` for a page with this ``?lang=`` in a browser of this language."""
    app = AppTest.from_string(
        "import streamlit as st\nfrom pages._kit.text import t\nst.text(t('both', n=3))", default_timeout=60
    )
    if lang is not None:
        app.query_params["lang"] = lang
    app.context = {"locale": locale}
    app.run()
    assert not app.exception
    return app.text[0].value


CATALOGUES = {
    "en": {
        "both": "English {n}",
        "english only": "only {n}",
        "empty": "filled {n}",
        "list.or": "{first} or {last}",
        "list.two_sentences": "{first} {last}",
        "list.comma": ", ",
        "list.semicolon": "; ",
    },
    "de": {
        "both": "{n} Deutsch",
        "empty": "",
        "list.or": "{first} oder {last}",
        "list.two_sentences": "{first}{last}",
        "list.comma": " / ",
        "list.semicolon": " | ",
    },
    "errors.de": {
        "{n:,} tokens; {fits} {{fit}}.": "{fits} {{passen}}, nicht {n:.1f} Wörter.",
        "nothing": "{nichts}",
        "layer {layer}": "Schicht {layer}",
        "Nothing of {name} is shown: {reasons}.": "Nichts von {name}: {reasons}",
        "{word!r} is at {place}": "Bei {place}: {word!r}",
    },
}


@pytest.fixture
def two_languages(tmp_path, monkeypatch):
    """English, and a German that lacks a text and a message and has left another text empty."""
    for name, words in CATALOGUES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(words), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no language", encoding="utf-8")
    monkeypatch.setattr(text, "FILES", tmp_path)
    clear = (text.catalogue.cache_clear, text.messages.cache_clear, text.languages.cache_clear)
    for one in clear:
        one()
    yield
    for one in clear:
        one()


@pytest.mark.usefixtures("two_languages")
@pytest.mark.parametrize(
    ("lang", "locale", "said"),
    [
        (None, None, "English 3"),
        ("en", "de-DE", "English 3"),
        (None, "de-Latn-AT", "3 Deutsch"),
        ("fr", "de", "3 Deutsch"),
        (["en", "de"], "en-US", "3 Deutsch"),
        ("../../etc/passwd", "fr-FR", "English 3"),
    ],
)
def test_the_link_decides_the_language_then_the_browser_then_english(lang, locale, said):
    assert text.languages() == ("de", "en")  # a file of messages is none
    assert text_shown(lang, locale) == said


@pytest.mark.usefixtures("two_languages")
def test_a_missing_translation_is_shown_in_english_and_an_unknown_key_is_an_error(monkeypatch):
    monkeypatch.setattr(text, "language", lambda: "de")
    assert [text.t(key, n=3) for key in ("english only", "empty")] == ["only 3", "filled 3"]
    with pytest.raises(KeyError, match="nowhere"):
        text.t("nowhere")


FITS = listed([1, 2, Phrase("layer {layer}", layer=3)], "or")
SENTENCES = {  # each message in English and in German
    "with a list": (
        MhaError("{n:,} tokens; {fits} {{fit}}.", n=1500, fits=FITS),
        "1,500 tokens; 1, 2 or layer 3 {fit}.",
        "1 / 2 oder Schicht 3 {passen}, nicht 1500.0 Wörter.",
    ),
    "in a message": (
        MhaError(
            "Nothing of {name} is shown: {reasons}.",
            name="{m}",
            reasons=listed([Phrase("layer {layer}", layer="b"), "c"], "semicolon"),
        ),
        "Nothing of {m} is shown: layer b; c.",
        "Nichts von {m}: Schicht b | c",
    ),
    "in a row": (
        MhaError(listed([Phrase("nothing"), Phrase("layer {layer}", layer=1)], "space")),
        "nothing layer 1",
        "{nichts}Schicht 1",
    ),
    "as it was written": (
        Phrase("{word!r} is at {place}", word="it", place=listed(["a"], "or")),
        "'it' is at a",
        "Bei a: 'it'",
    ),
    "in English alone": (
        MhaError("{n:,} heads of {place}", n=2000, place=Phrase("layer {layer}", layer=1)),
        "2,000 heads of layer 1",
        "2,000 heads of Schicht 1",
    ),
    "without fields": (MhaError("A {brace} stays."), "A {brace} stays.", "A {brace} stays."),
    "no phrase": ("layer 1", "layer 1", "layer 1"),
}


@pytest.mark.usefixtures("two_languages")
@pytest.mark.parametrize("kind", SENTENCES)
def test_a_message_is_shown_in_the_readers_language_or_in_english(kind, monkeypatch):
    message, english, translated = SENTENCES[kind]
    for one in (message, pickle.loads(pickle.dumps(message))):
        for language, shown in (("de", translated), ("en", english)):
            monkeypatch.setattr(text, "language", lambda language=language: language)
            assert (str(one), said(one)) == (english, shown)


# Chinese (assets/languages/STYLE.md)

# What our terms replace.
AVOIDED = "您|请(?!求)|令牌|掩膜|自我注意|注意力汇聚|连结|几率|诱导头|密钥|关键字|热图|补丁|尺寸|推断"
CHINESE_PAGES = ["assets/README.zh.md", "assets/deploy/README.zh.md", "assets/lessons/README.zh.md"]


def faults_of_style(words: str) -> list[str]:
    """The words in it that our terms replace, and what autocorrect would write: spaces, full-width marks."""
    lines = words.replace("|", "\n")  # between the names of columns
    corrected = autocorrect_py.format(lines)
    return [*re.findall(AVOIDED, words), *({corrected} - {lines})]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "assets" / "languages").glob("*zh.json")), ids=lambda file: file.stem
)
def test_chinese_texts_follow_the_rules_of_style(file):
    texts = json.loads(file.read_text(encoding="utf-8"))
    assert {key: faults for key, words in texts.items() if (faults := faults_of_style(words))} == {}


@pytest.mark.parametrize("page", CHINESE_PAGES)
def test_chinese_pages_follow_the_rules_of_style(page):
    words = (ROOT / page).read_text(encoding="utf-8")
    assert autocorrect_py.format_for(words, "markdown") == words


@pytest.mark.parametrize(
    "words", ["第3 个头", "第 3个头", "权重,分数", "输出.", "查询 ，键", "令牌", "请输入"]
)
def test_faults_of_chinese_style_are_found(words):
    assert faults_of_style(words)
