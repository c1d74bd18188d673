"""Every text on screen comes from the catalogues, complete in each language, and user text stays text."""

import ast
import json
import re
import string
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mha_core.analysis.derivation import STEPS, adjust
from mha_core.analysis.embeddings import RELATIONS
from mha_core.analysis.roles import ROLES
from mha_core.traces.trace import MATRICES
from mha_core.training.model import ARCHITECTURES
from pages._kit import text
from pages._kit.text import literal
from pages.models._real import literature

ROOT = Path(__file__).parents[2]
LANGUAGES = sorted((ROOT / "assets" / "languages").glob("*.json"))
ENGLISH = json.loads((ROOT / "assets" / "languages" / "en.json").read_text(encoding="utf-8"))

SIZES = ("h", "d_model", "layers", "seed", "d_k", "d_v", "n_kv_heads")
NUMBERS = (*SIZES, "layer", "head", "token", "key_token")
TRAINED = tuple(f"train_{key}" for key in ("h", "d_model", "architecture", "language"))
CHOICES = ("mask", "position", "architecture", *TRAINED)
COLUMNS = ("role", "score", "weight", "baseline", "control", "n")
PATTERNS = ("previous token", "next token", "same token", "first token", "entropy", "distance")
TURNED = ("first", "second", "x", "y", "x_after", "y_after", "theta", "angle")
FOUND = json.loads((ROOT / "assets" / "published_heads.json").read_text(encoding="utf-8"))["findings"]
MEASURED = {entry["measure"].removeprefix(literature.LINK) for entry in FOUND}
NOTES = {
    "project": ("values", "cross", "before"),
    "adjust": ("norm", "scale", "clip", "rotary"),
    "split": ("same", "shared", "rotary"),
    "scale": ("own",),
    "mask": ("none", "biased", "added", "by_words", "capped"),
    "softmax": ("empty", "sinks"),
}
# The keys that are put together where they are used, with {} for what is filled in.
FAMILIES = {
    "eye.{}": {key for key in ENGLISH if key.startswith("eye.")},
    "matrix.{}": {f"matrix.{name}" for name in (*MATRICES, "hops", "other")},
    "axis.{}": {f"axis.{axis}" for axes in MATRICES.values() for axis in axes} | {"axis.packed"},
    "control.{}": {f"control.{key}" for key in (*NUMBERS, *CHOICES)},
    "control.{}_help": {f"control.{key}_help" for key in CHOICES},
    "save.{}": {f"save.{name}" for name in ("open", "png", "svg", "csv")},
    "answer.{}": {f"answer.{kind}" for kind in ("pronoun", "itself", "hidden")},
    "model.{}": {f"model.{architecture}" for architecture in ARCHITECTURES},
    "model.layer.{}": {f"model.layer.{kind}" for kind in ("block", "lookup")},
    "before.{}": {"before.before", "before.after"},
    "train.curve.{}": {f"train.curve.{curve}" for curve in ("loss", "answer", "accuracy", "right")},
    "role.{}": {f"role.{role}" for role in ROLES},
    "roles.column.{}": {f"roles.column.{column}" for column in COLUMNS},
    "roles.pattern.{}": {f"roles.pattern.{pattern}" for pattern in PATTERNS},
    "words.intro_{}": {"words.intro_trained", "words.intro_random"},
    "words.relation_{}": {f"words.relation_{kind}" for known in RELATIONS.values() for kind in known},
    "words.cosines_{}": {"words.cosines_one", "words.cosines_several"},
    "words.agree_{}": {f"words.agree_{verdict}" for verdict in ("all", "some", "none", "random")},
    "literature.measure_{}": {f"literature.measure_{name}" for name in MEASURED},
    "literature.how_{}": {f"literature.how_{kind}" for kind in literature.HOW},
    "literature.{}": {f"literature.column_{column}" for column in ("paper", "ours", "baseline")},
    "rotation.column_{}": {f"rotation.column_{column}" for column in TURNED},
    "sharing.vector_{}": {f"sharing.vector_{name}" for name in ("kv", "position", "q")},
    "sweep.line_{}": {f"sweep.line_{column}" for column in ("answer", "accuracy", "right")},
    "sweep.column_{}": {f"sweep.column_{column}" for column in ("answer", "accuracy")},
    "sweep.best_{}": {"sweep.best_even", "sweep.best_uneven"},
    "sweep.one_{}": {"sweep.one_coin", "sweep.one_able"},
    "sweep.roles_{}": {"sweep.roles_redundant", "sweep.roles_mixed"},
    "steps.{}.title": {f"steps.{step.__name__}.title" for step in (*STEPS, adjust)},
    "steps.{}.{}": {
        f"steps.{s.__name__}.{note}" for s in (*STEPS, adjust) for note in ("why", *NOTES.get(s.__name__, ()))
    },
}
SPECIAL = set(string.punctuation)


def calls() -> list[tuple[str, str, ast.Call]]:
    """Every ``t(…)`` in the pages: where it is, its key with {} for what is filled in, and the call."""
    found = []
    for file in sorted((ROOT / "pages").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t":
                found.append((f"{file.relative_to(ROOT)}:{node.lineno}", _key(node.args[0]), node))
    return found


def _key(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join("{}" if isinstance(part, ast.FormattedValue) else part.value for part in node.values)
    return node.value if isinstance(node, ast.Constant) else f"<{ast.unparse(node)}>"


def placeholders(words: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(words) if name is not None}


def test_every_key_in_use_has_a_text():
    missing = [
        (place, wanted)
        for place, key, _ in calls()
        for wanted in sorted(FAMILIES.get(key, {key}))
        if wanted not in ENGLISH
    ]
    assert missing == []


def test_every_text_is_in_use():
    used = {wanted for _, key, _ in calls() for wanted in FAMILIES.get(key, {key})}
    assert sorted(set(ENGLISH) - used) == []


def test_every_family_of_keys_is_in_use():
    assert set(FAMILIES) - {key for _, key, _ in calls()} == set()


def test_every_placeholder_is_filled_in_where_a_text_is_used():
    empty = [
        (place, key, missing)
        for place, key, call in calls()
        if key in ENGLISH and all(word.arg is not None for word in call.keywords)
        if (missing := placeholders(ENGLISH[key]) - {word.arg for word in call.keywords})
    ]
    assert empty == []


@pytest.mark.parametrize("file", LANGUAGES, ids=lambda file: file.stem)
def test_every_language_has_the_same_keys_and_placeholders(file):
    other = json.loads(file.read_text(encoding="utf-8"))
    assert set(other) == set(ENGLISH)
    assert {key for key in other if placeholders(other[key]) != placeholders(ENGLISH[key])} == set()


@pytest.mark.parametrize("file", LANGUAGES, ids=lambda file: file.stem)
def test_no_key_is_written_twice_and_no_text_is_blank(file):
    pairs = []
    json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=pairs.extend)
    keys = [key for key, _ in pairs]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert [key for key, words in pairs if not words.strip()] == []


NASTY = [
    *string.punctuation,
    string.punctuation,
    *("<s>", "</s>", "<br>", "<script>alert(1)</script>", "&lt;", "&#60;"),
    *("$x$", "$$x$$", r"\(x\)", "*a*", "**a**", "_a_", "__a__", "~~a~~", "`a`", "```a```"),
    *("[x](y)", "![x](y)", "[x]: y", "[^1]", "# a", "- a", "+ a", "1. a", "1) a", "> a", "| a | b |", "---"),
    *(":red[x]", ":red-background[x]", ":material/check:", ":smile:", ":streamlit:", "--", "->", "<-", "..."),
    *("\\", "\\\\", r"\*", "\\$", "a\\"),
]


# What Streamlit's page replaces in text after Markdown has been read, seen in a browser with 1.67.
REPLACED = re.compile(r"^--$|^<->$|https?://|www\.|\w@\w|:streamlit:")


def read(markdown: str) -> str:
    """The text that Markdown makes of escaped text: a backslash before a mark stands for the mark."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown)


@pytest.mark.parametrize("typed", NASTY)
def test_every_character_that_markdown_knows_is_escaped(typed):
    shown = literal(typed)
    assert re.fullmatch(r"(?:\\[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~])*", shown)
    assert read(shown).replace("\u2060", "") == typed  # a word joiner has no width


@pytest.mark.parametrize("typed", ["--", "<->", "<http://a.bc>", "<www.a.bc>", "<a@b.cd>", "<:streamlit:>"])
def test_nothing_is_left_that_streamlit_replaces_in_plain_text(typed):
    assert not REPLACED.search(read(literal(typed)))


def test_only_the_ascii_punctuation_marks_are_changed():
    characters = [chr(code) for code in range(0x2100)]
    assert {c for c in characters if literal(c) != c} == SPECIAL


@pytest.mark.parametrize("typed", ["", "plain words", "动物 حيوان", "a₁ b₂", "l’eau", "👍🏽"])
def test_text_without_punctuation_passes_unchanged(typed):
    assert literal(typed) == typed


def test_what_is_no_text_becomes_text():
    assert read(literal(0.5)).replace("\u2060", "") == "0.5"
    assert read(literal(ValueError("a*b"))).replace("\u2060", "") == "a*b"


def _says(lang: str | list[str] | None = None, locale: str | None = None, key: str = "both") -> str:
    """What `t` gives a page that is opened with this ``?lang=`` in a browser of this language."""
    app = AppTest.from_string(
        f"import streamlit as st\nfrom pages._kit.text import t\nst.text(t({key!r}, n=3))", default_timeout=60
    )
    if lang is not None:
        app.query_params["lang"] = lang
    app.context = {"locale": locale}
    app.run()
    assert not app.exception
    return app.text[0].value


@pytest.fixture
def two_languages(tmp_path, monkeypatch):
    """An English catalogue and a German one that lacks a text and has left another one empty."""
    for name, words in {
        "en": {"both": "English {n}", "english only": "only {n}", "empty": "filled {n}"},
        "de": {"both": "{n} Deutsch", "empty": ""},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(words), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no language", encoding="utf-8")
    monkeypatch.setattr(text, "LANGUAGES", tmp_path)
    text.catalogue.cache_clear()
    text.languages.cache_clear()
    yield
    text.catalogue.cache_clear()
    text.languages.cache_clear()


@pytest.mark.usefixtures("two_languages")
def test_the_languages_are_the_files_that_there_are():
    assert text.languages() == ("de", "en")


@pytest.mark.usefixtures("two_languages")
@pytest.mark.parametrize(
    ("lang", "locale", "said"),
    [
        (None, None, "English 3"),
        ("de", None, "3 Deutsch"),
        ("de", "en-US", "3 Deutsch"),
        ("en", "de-DE", "English 3"),
        (None, "de-DE", "3 Deutsch"),
        (None, "de", "3 Deutsch"),
        (None, "de-Latn-AT", "3 Deutsch"),
        (None, "fr-FR", "English 3"),
        ("fr", "de-DE", "3 Deutsch"),
        ("", "de-DE", "3 Deutsch"),
        (["en", "de"], "en-US", "3 Deutsch"),
        ("../../etc/passwd", None, "English 3"),
        ("notes", None, "English 3"),
        (None, "", "English 3"),
    ],
)
def test_the_link_comes_before_the_browser_and_both_before_english(lang, locale, said):
    assert _says(lang, locale) == said


@pytest.mark.usefixtures("two_languages")
@pytest.mark.parametrize(("key", "said"), [("english only", "only 3"), ("empty", "filled 3")])
def test_a_text_that_a_language_lacks_is_said_in_english(key, said):
    assert _says("de", key=key) == said


@pytest.mark.usefixtures("two_languages")
def test_a_key_that_no_language_has_is_an_error_and_not_a_blank():
    with pytest.raises(KeyError, match="nowhere"):
        text.t("nowhere")
