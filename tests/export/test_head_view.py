"""The head view as a value: what it refuses, what its page contains, and that it loads nothing."""

import base64
import html
import json
import re
import struct
import tomllib
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.export import head_view, scripts
from mha_core.export.payload import BUDGET, pack, size
from mha_core.traces.matrices import VIEWED
from mha_core.traces.source import MiniSource
from mha_core.traces.tokens import Tokens
from mha_core.training import checkpoints
from mha_core.training.questions import HIDDEN_WORD, QUESTIONS

ROOT = Path(__file__).parents[2]
TEXT = "one two three two"
NASTY = (
    "<img src=x onerror=alert(1)> </script><script>alert(2)</script> __PARTS__ __OLD__ {tokens} <!-- --> $&"
)


@pytest.fixture(scope="module")
def traced() -> mha.AttentionTrace:
    return mha.trace(TEXT, h=3, d_model=12, layers=2)


def unpacked(page: str, name: str) -> bytes:
    """The content of one of the two slots of a page, as a browser reads it."""
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', page)[1]
    return zlib.decompress(base64.b64decode(found, validate=True))


def inside(page: str) -> tuple[dict, bytes]:
    """The header and the payload in a page."""
    data = unpacked(page, "numbers")
    start = 4 + struct.unpack("<I", data[:4])[0]
    return json.loads(data[4:start]), data[start:]


def panels_of(blob: bytes) -> list[dict]:
    """The header of a payload."""
    return json.loads(blob[8 : 8 + struct.unpack("<I", blob[4:8])[0]])["panels"]


def program(page: str) -> list[str]:
    """The style and the script of a page."""
    return unpacked(page, "program").decode().split("\0")


def saved_html(view: head_view.HeadView, folder: Path) -> str:
    view.save(folder / "view.html")
    return (folder / "view.html").read_text(encoding="utf-8")


# What is asked for


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, (1, 0, None, None)),  # the last layer
        ({"layer": 0, "head": 2, "token": 3}, (0, 2, 3, [2])),
        ({"layer": -2, "head": -2, "token": -2}, (0, 1, 2, [1])),
        ({"heads": [0, 2], "token": "one"}, (1, 0, 0, [0, 2])),
        ({"token": "two~2"}, (1, 0, 3, None)),
        (dict(zip(("layer", "head", "token"), np.array([0, 2, 3]), strict=True)), (0, 2, 3, [2])),
        ({"heads": np.array([1])}, (1, 1, None, [1])),
        ({"head": 1, "heads": [2]}, (1, 1, None, [2])),
    ],
)
def test_a_view_looks_where_it_was_asked_to(traced, asked, shown):
    view = traced.view(**asked)
    assert tuple(view.header[name] for name in ("layer", "head", "token", "on")) == shown
    assert (view.header["layers"], view.header["heads"], view.header["questions"]) == (2, 3, [[]])
    assert view.blob == head_view.view(traced, **asked).blob
    json.dumps(view.header)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"layer": 2}, "This trace has layers 0 to 1; layer 2 was asked for."),
        ({"token": -5}, "This trace has tokens 0 to 3; token -5 was asked for."),
        ({"head": 3}, "This layer has heads 0 to 2; head 3 was asked for."),
        ({"heads": [0, -4]}, "This layer has heads 0 to 2; head -4 was asked for."),
        ({"heads": []}, "heads names no head; name one at least, or leave it out."),
        ({"layer": "a"}, "layer is a whole number; got 'a'."),
        ({"head": 1.5}, "head is a whole number; got 1.5."),
        ({"token": "a"}, "There is no token 'a'; there is one, two and three."),
        ({"token": "two"}, "'two' is at the positions 1 and 3; say which, as in 'two~2'."),
        ({"titles": "ab"}, "titles are a list with a title for each trace, here 1; got 'ab'."),
        ({"titles": [7]}, "titles are a list with a title for each trace, here 1; got [7]."),
        ({"height": 20}, "height 20 is out of range; 100 to 10000 work."),
    ],
)
def test_missing_layers_heads_and_tokens_are_refused(traced, refused, asked, said):
    assert str(refused(head_view.view, traced, **asked)) == said


def test_a_ledger_below_a_view_has_the_same_numbers_and_is_of_the_same_text(refused):
    trace = mha.trace("The animal was tired because it slept.", source="mini")
    found = mha.ledger(trace)
    view = trace.view(ledger=found)
    header, _ = inside(view.html())
    drawn = header["ledger"]
    assert sum(part["share"] for part in drawn["parts"]) == pytest.approx(found.logit, abs=1e-4)
    assert [part["head"] for part in drawn["parts"]] == [writer.head for writer in found.writers]
    assert (header["token"], drawn["label"], drawn["word"]) == (found.token, "it", found.word)
    other = mha.trace("How are you?", source="mini")
    assert "explains token 6, 'it', which this trace" in str(refused(other.view, ledger=found))
    assert "ledger= takes what mha.ledger" in str(refused(trace.view, ledger=3))


def test_a_frame_is_as_high_as_its_text_needs_or_as_was_asked_for(traced):
    long = mha.trace("word " * 60, h=3, d_model=12, layers=2)
    heights = [view.height for view in (traced.view(), traced.view(beside=long), long.view())]
    assert heights[0] < heights[1] == heights[2] == head_view.MAX_HEIGHT
    assert f"height:{heights[0]}px" in traced.view()._repr_html_()
    assert 'style="width:100%;height:300px;border:0"' in traced.view(height=300)._repr_html_()


def test_two_traces_are_titled_by_their_differences(traced):
    same = mha.trace(TEXT, h=3, d_model=12, layers=2)
    other = mha.trace("a longer sentence than the first one was", h=3, d_model=12, layers=2, seed=5)
    bert, gpt2 = (replace(trace, source=name) for trace, name in ((traced, "bert"), (same, "gpt2")))
    for first, second, titles, source in (
        (traced, same, (None, None), traced.view().header["source"]),
        (bert, gpt2, [f"{name} · \u2068{TEXT}\u2069" for name in ("bert", "gpt2")], "h 3, d_model 12"),
        (
            *(traced, other, [f"seed {n} · \u2068{one.title}\u2069" for n, one in ((0, traced), (5, other))]),
            "random weights, h 3, d_model 12, mask: full, positions: sinusoidal",  # true of both
        ),
    ):
        view = first.view(beside=second, token=3)
        panels = [
            head_view.panel(*each) for each in ((first, [0, 1], titles[0]), (second, [0, 1], titles[1]))
        ]
        assert view.blob == pack(panels, values=True)
        assert (view.header["source"], view.header["token"]) == (source, 3)
        assert len(view.header["special"]) == len(view.header["groups"]) == 2
    named = traced.view(beside=same, titles=("left", "right"))
    assert [panel["title"] for panel in panels_of(named.blob)] == ["left", "right"]


def test_a_panel_is_titled_by_the_beginning_of_a_long_text():
    long = mha.trace("word " * 500, h=1, d_model=2)
    assert head_view.panel(long, [0]).title == f"{long.title[:400]}…"


def test_the_repr_of_a_view_is_one_short_line(traced):
    long = mha.trace("word " * 300, h=3, d_model=12, layers=2)
    for view in (traced.view(), long.view()):
        assert len(repr(view)) < 250
        assert "\n" not in repr(view)
    assert repr(traced.view(layer=0)) == (
        "<HeadView headscope-one-two-three-two: random weights, h 3, d_model 12, seed 0, mask: full, "
        "positions: sinusoidal; layers[0] of 2, 3 heads>"
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: mha.trace("one two", h=3, d_model=12), "these have 2 and 1 layers, with 3 and 3 heads"),
        (lambda: mha.trace("a", h=4, d_model=12, layers=2), "these have 2 and 2 layers, with 3 and 4 heads"),
        (lambda: mha.AttentionTrace(mha.words("one two"), (), "none"), "layers, with 3 and 0 heads"),
    ],
)
def test_a_trace_of_another_model_cannot_be_shown_beside(traced, refused, other, said):
    assert said in str(refused(traced.view, beside=other()))


def test_a_large_layer_has_only_the_heads_around_the_chosen_one(monkeypatch, tmp_path):
    trace = mha.trace(" ".join(["a"] * 40), h=6, d_model=24, layers=2)
    one = size(trace.layers[0], 1, values=True)
    monkeypatch.setattr(head_view, "ALL_LAYERS", 3 * one / BUDGET)
    view = trace.view(layer=1, head=5)
    assert len(view.blob) < 4 * one
    assert (view.header["layers"], view.header["heads"]) == (2, 6)
    said = "Only layer 2 of 2 is in this view. Only heads 4 to 6 of 6 are in this view."
    with pytest.warns(UserWarning, match=said):
        view.save(tmp_path / "view.html")
    assert view.header["held"] == said


def test_a_page_has_as_many_layers_as_fit_and_says_which(monkeypatch, tmp_path):
    trace = mha.trace(TEXT, h=3, d_model=12, layers=4)
    monkeypatch.setattr(head_view, "ALL_LAYERS", 3 * size(trace.layers[0], values=True) / BUDGET)
    view = trace.view()
    assert [layer["number"] for layer in panels_of(view.blob)[0]["layers"]] == [1, 2, 3]
    with pytest.warns(UserWarning, match=re.escape("Only layers 2 to 4 of 4 are in this view.")):
        view.save(tmp_path / "view.html")


# The page


def test_tokens_that_look_like_markup_or_placeholders_stay_text(tmp_path):
    view, plain = (mha.trace(text, h=2, d_model=8).view() for text in (NASTY + " ä 小猫", "plain words"))
    saved = [saved_html(each, tmp_path) for each in (view, plain)]
    for page, other in ((view.html(), plain.html()), saved):
        assert inside(page) == (view.header, view.blob)
        assert page.count("<") == other.count("<")
        assert not re.search(r"__[A-Z]+__", other)  # every placeholder is filled
    assert saved[0].isascii()
    assert saved[0].startswith("<!doctype html>\n")


def test_the_page_names_no_address_to_load_from(traced):
    page = head_view.view(traced).html()
    written = page.replace(re.search(r'id="program">([^<]*)', page)[1], "".join(program(page)))
    assert set(re.findall(r"[a-z]+://[^\s\"'`<>)]+", written)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|<img|<iframe|@import|\bimport\(|XMLHttpRequest|WebSocket", written)
    assert not re.search(r"""(src|href)=["'](?!data:)""", written)
    # Fonts are fetched for a picture where a page has any of its own; here nothing may be.
    assert written.count("fetch(") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize("tokens", [2, 64])
def test_a_saved_page_is_little_larger_than_its_numbers_and_has_q_k_and_v(tokens, tmp_path, normal):
    layers = [
        mha.LayerTrace({name: normal(12, tokens, 64, seed=seed) for name in "qkv"}) for seed in range(12)
    ]
    words = mha.words(" ".join(f"word{n}" for n in range(tokens)))
    view = mha.AttentionTrace(words, tuple(layers), {"name": "drawn"}).view()
    page = saved_html(view, tmp_path)
    assert len(view.blob) > 4 * 144 * tokens * (3 * 64 + 1)
    assert len(page) <= 1.35 * len(view.blob) + 60_000


def test_an_old_browser_gets_a_message(traced, tmp_path):
    page = saved_html(head_view.view(traced), tmp_path)
    said = head_view.texts("en")["old_browser"]
    assert f'<main class="view"><p hidden>{said}</p></main>' in page
    header = traced.view().header
    sorry = head_view.filled(header | {"texts": {"old_browser": "<b> ä"}}, b"")
    assert "<p hidden>&lt;b&gt; &#228;</p>" in sorry


def test_a_view_cannot_be_saved_in_a_folder_that_does_not_exist(traced, tmp_path, refused):
    traced.view().save(str(tmp_path / "again.html"))
    assert (tmp_path / "again.html").exists()
    error = refused(traced.view().save, tmp_path / "nowhere" / "view.html")
    assert str(error) == f"There is no folder {tmp_path / 'nowhere'} to save view.html in."


def test_a_notebook_shows_it_in_a_sandboxed_frame():
    view = mha.trace('"quoted" & <b>', h=2, d_model=8).view()
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)" [^<>]*></iframe>', view._repr_html_())
    assert html.unescape(shown[1]) == view.html()
    assert shown[2].split() == ["allow-scripts", "allow-downloads"]  # no same-origin: not the notebook's own


# What the header says


@pytest.mark.parametrize(
    ("pieces", "told", "positions"),
    [
        (["[CLS]", "a", "[SEP]"], None, [0, 2]),
        (["<s>", "a", "</s>"], None, [0, 2]),
        (["<|endoftext|>", "a", "[MASK]"], None, [0]),
        (["a", "[MASK]"], None, [0]),  # the first token can be a sink; a hidden word is a word
        (["[a]", "< b >", "[CLS"], None, [0]),
        (["[CLS]", "b"], (1,), [1]),  # the tokenizer's own take precedence
        (["[CLS]", "b"], (), [0]),
    ],
)
def test_special_tokens_are_told_or_found_by_form_or_else_the_first_token(pieces, told, positions):
    tokens = pieces if told is None else Tokens("ab", tuple(pieces), ((0, 1), (1, 2)), special=told)
    trace = mha.from_weights(torch.full((1, len(pieces), len(pieces)), 1 / len(pieces)), tokens)
    assert head_view.special(trace) == [positions, positions]


def test_the_caption_names_the_source_of_the_numbers(traced):
    said = "random weights, h 3, d_model 12, seed 0, mask: full, positions: sinusoidal"
    assert traced.view().header["source"] == said
    trained = mha.trace("The animal was tired.", source="mini", h=4, d_model=64)
    seed = checkpoints.manifest()["glass-box-en-h4-d64"]["plan"]["seed"]
    said = (
        f"small trained model, readable, h 4, d_model 64, seed {seed}, {trained.source.step:,} training steps"
    )
    assert trained.view().header["source"] == said


def test_the_caption_names_the_edited_one_of_two_traces(traced):
    edits = [mha.edits.Output(layer=0, heads=1)]
    edited = mha.trace(TEXT, h=3, d_model=12, layers=2, edits=edits)
    named = f"changed: (no) | ({edits[0].describe()})"
    assert traced.view(beside=edited).header["source"].endswith(named)
    assert edited.view(beside=edited).header["source"].endswith(f"changed: ({edits[0].describe()})")
    assert "edited" not in traced.view(beside=traced).header["source"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../a/b: <c>?*", "a-b-c"),
        ("小猫 حيوان", "小猫-حيوان"),
        ("__PARTS__ __FILES__", "__PARTS__-__FILES__"),
    ],
)
def test_a_file_name_consists_of_words(text, name):
    header, _ = inside(mha.trace(text, h=2, d_model=8).view().html())
    assert header["file"] == f"headscope-{name}"


def test_every_text_used_by_the_scripts_exists():
    script = scripts.merged("page/program.js")

    def names(constant: str, brackets: str = r"\[\]") -> list[str]:
        body = re.search(rf"const {constant} = [{brackets}](.*?)[{brackets}]", script)[1]
        return re.findall(r"(\w+)(?=[\":])", body)

    asked = set(re.findall(r"\btexts\.(\w+)", script))
    asked |= {f"draw_{name}" for name in names("DRAWINGS", "{}")}
    asked |= {f"side_{side}" for side in ("query", "key")}
    asked |= {f"{side}_{how}" for side in ("query", "key") for how in ("looks", "nowhere", "each")}
    asked |= {f"matrices_order_{value}" for value in names("ORDERS")} | {"matrices_order"}
    asked |= {f"matrices_end_{value}" for value in names("ENDS")} | {"matrices_end"}
    asked |= {f"matrix_{name}" for name in VIEWED}
    asked |= {f"question_{name}" for name in (*QUESTIONS, HIDDEN_WORD)}
    assert asked - {*head_view.texts("en"), *head_view.ledger_texts("en")} == set()


def test_the_colours_of_the_page_are_those_of_the_app():
    page, printed = map(scripts.asset, ("page/page.css", "pictures/print.css"))
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    light += re.search(r":root, \.print, \.sheet \{(.*?)\}", printed, re.DOTALL)[1]
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    for block, name in ((light, "light"), (dark, "dark")):
        said = dict(re.findall(r"--st-([\w-]+): ([^;]+);", block))
        for one in ("primary", "background", "text", "border"):
            assert said[f"{one}-color"] == theme[name][f"{one}Color"]
        for scale in ("sequential", "categorical", "diverging"):
            colours = theme[name][f"chart{scale.title()}Colors"]
            assert said[f"chart-{scale}-colors"].split(", ") == colours
    assert dict(re.findall(r"--st-([\w-]+): ([^;]+);", light))["base-radius"] == theme["baseRadius"]


# What a small model was asked

NONE = (("[CLS]", 0.75), ("it", 0.25))
ASKED = MiniSource("glass-box", "en", 3, 12, 0, 9, 9, questions=("noun", "doer decider", "hidden"))


def asked(answers, **questions) -> mha.AttentionTrace:
    """[CLS], a name, a hidden word and "it", with heads that have the questions in `ASKED`."""
    pieces = ("[CLS]", "Beyoncé", "[MASK]", "it")
    spans = ((0, 0), (0, 7), (8, 14), (15, 17))
    tokens = mha.Tokens("Beyoncé [MASK] it", pieces, spans, special=(0,), unknown=(1,))
    layer = mha.LayerTrace({"weights": torch.full((3, 4, 4), 0.25)})
    return mha.AttentionTrace(tokens, (layer, layer), ASKED, answers, questions=questions)


def test_a_head_has_nothing_to_find_if_all_its_answers_are_nothing_and_unknown_words_are_marked(normal):
    it, word = (("it", 0.9), ("[CLS]", 0.1)), (("saw", 0.8),)
    trace = asked((None, NONE, word, it), noun=(None, NONE, it, it), doer=(None, NONE, NONE, NONE))
    trace = replace(trace, questions={**trace.questions, "decider": (None, NONE, it, NONE)})
    assert trace.view().header["unknown"] == [[[1], [1]]]
    assert trace_of(trace.tokens, normal).view().header["unknown"] == [[[1], []]]
    [heads] = trace.view().header["questions"]
    assert [head["asks"] for head in heads] == [["noun"], ["doer", "decider"], ["hidden"]]
    assert [head["nothing"] for head in heads] == [[0, 1], [0, 1, 3], [0, 1, 3]]
    off = mha.trace("The cat sat", source="mini", edits=[mha.edits.Output(heads=1, layer=1)])
    assert [bool(head["nothing"]) for head in head_view.questions(off)] == [True, False, True, True]


# One text that looks at another

KEYS = tuple(f"k{at}" for at in range(11))


def trace_of(queries: Tokens, normal, layers: int = 2) -> mha.AttentionTrace:
    """Queries that look at the words of `KEYS`."""
    sides = mha.Sides(queries, mha.words(" ".join(KEYS)))
    sizes = {"q": len(queries), "k": len(KEYS), "v": len(KEYS)}
    made = []
    for at in range(layers):
        tensors = {name: normal(3, n, 5, seed=3 * at + nth) for nth, (name, n) in enumerate(sizes.items())}
        made.append(mha.LayerTrace(tensors, kind="cross", sides=sides))
    return mha.AttentionTrace(queries, tuple(made), {"name": "by hand"})


def test_a_view_of_a_cross_part_has_both_texts(normal, refused):
    queries = mha.words("one two three four five six .")
    trace = trace_of(queries, normal)
    header = trace.view(token=6).header
    assert header["special"] == [[[], [0]]]  # a token that nobody looks at is no sink
    assert header["groups"] == [None]
    assert header["file"].startswith("headscope-one-two")
    assert b'"keys": ["k0"' in pack([head_view.panel(trace, [0])])
    assert "token 7 was asked for" in str(refused(trace.view, token=7))
    assert trace.title == f"\u2068{queries.text}\u2069 → \u2068{' '.join(KEYS)}\u2069"
    pieces = Tokens("an imal", ("an", "##x", "end"), ((0, 2), (3, 5), (5, 7)), (0, 0, 1), (2,))
    header = trace_of(pieces, normal).view().header
    assert header["special"] == [[[2], [0]]]
    assert header["groups"][0]["query"]["of"] == [0, 0, 1]
    assert header["groups"][0]["key"] == {"of": list(range(11)), "labels": list(KEYS)}


def test_layers_of_several_kinds_are_refused_with_the_kinds(normal, refused):
    cross = trace_of(mha.words("one two"), normal, layers=1)
    own = mha.LayerTrace({"weights": torch.full((11, 11, 11), 1 / 11)}, kind="encoder")
    both = mha.AttentionTrace(mha.words(" ".join(KEYS)), (own, *cross.layers), "by hand")
    assert "trace.part('cross').view()" in str(refused(both.view))
    assert both.part("cross").view().header["layers"] == 1
