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
# The steps behind a number: those that add up terms, whose columns have names, and the others.
SUMS = ("score", "projection", "mixture", "columns", "heads")
CHANGES = (
    "scale",
    "cap",
    "bias",
    "mask",
    "temperature",
    "norm",
    "clip",
    "rotary",
    "gate",
    "patch",
    "rounding",
)
STAGES = (*CHANGES, "vectors", "products", "powers", "shares", "mixture")
NASTY = (
    "<img src=x onerror=alert(1)> </script><script>alert(2)</script> __NUMBERS__ __OLD__ {tokens} <!-- --> $&"
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


def program(page: str) -> list[str]:
    """The style and the script of a page."""
    return unpacked(page, "program").decode().split("\0")


def saved_html(view: head_view.HeadView, folder: Path) -> str:
    view.save(folder / "view.html")
    return (folder / "view.html").read_text(encoding="utf-8")


# What is asked for


def test_the_last_layer_is_shown_by_default(traced):
    header = head_view.view(traced).header
    assert (header["layer"], header["head"], header["token"], header["on"]) == (1, 0, None, [0])
    header = head_view.view(traced, layer=0, head=2, token=3).header
    assert (header["layer"], header["head"], header["token"], header["on"]) == (0, 2, 3, [2])
    assert (header["layers"], header["heads"]) == (2, 3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"layer": 2}, "This trace has layers 0 to 1; layer 2 was asked for."),
        ({"layer": -3}, "This trace has layers 0 to 1; layer -3 was asked for."),
        ({"token": 4}, "This trace has tokens 0 to 3; token 4 was asked for."),
        ({"token": -5}, "This trace has tokens 0 to 3; token -5 was asked for."),
        ({"head": 3}, "This layer has heads 0 to 2; head 3 was asked for."),
        ({"heads": [0, -4]}, "This layer has heads 0 to 2; head -4 was asked for."),
        ({"heads": []}, "heads names no head; name one at least, or leave it out."),
        ({"layer": "a"}, "layer is a whole number; got 'a'."),
        ({"head": 1.5}, "head is a whole number; got 1.5."),
        ({"token": "a"}, "There is no token 'a'; there is one, two and three."),
        ({"token": "two"}, "'two' is at the positions 1 and 3; say which, as in 'two~2'."),
        ({"titles": "ab"}, "titles are a list with a title for each trace, here 1; got 'ab'."),
        ({"titles": ("a", "b")}, "titles are a list with a title for each trace, here 1; got ('a', 'b')."),
        ({"titles": [7]}, "titles are a list with a title for each trace, here 1; got [7]."),
        ({"height": 20}, "height 20 is out of range; 100 to 10000 work."),
    ],
)
def test_missing_layers_heads_and_tokens_are_refused(traced, refused, asked, said):
    assert str(refused(head_view.view, traced, **asked)) == said


def test_heads_a_word_and_a_height_can_be_given(traced):
    view = traced.view(heads=[0, 2], token="one", height=300)
    assert (view.header["on"], view.header["token"], view.height) == ([0, 2], 0, 300)
    assert traced.view(token="two~2").header["token"] == 3
    asked = {"layer": 1, "head": 2, "heads": [1], "token": 3}
    numbers = {name: np.array(value)[()] for name, value in asked.items()}
    assert traced.view(**numbers).header == traced.view(**asked).header
    assert 'style="width:100%;height:300px;border:0"' in view._repr_html_()


def test_a_frame_is_as_high_as_its_text_needs(traced):
    long = mha.trace("word " * 60, h=3, d_model=12, layers=2)
    heights = [view.height for view in (traced.view(), traced.view(beside=long), long.view())]
    assert heights[0] < heights[1] == heights[2] == head_view.MAX_HEIGHT
    assert f"height:{heights[0]}px" in traced.view()._repr_html_()


def test_two_traces_are_titled_by_their_differences(traced):
    same = mha.trace(TEXT, h=3, d_model=12, layers=2)
    assert traced.view(beside=same).blob == pack(
        [head_view.panel(each, [0, 1]) for each in (traced, same)], values=True
    )
    named = traced.view(beside=same, titles=("left", "right"))
    panels = [head_view.panel(traced, [0, 1], "left"), head_view.panel(same, [0, 1], "right")]
    assert named.blob == pack(panels, values=True)
    models = [replace(trace, source=name) for trace, name in ((traced, "bert"), (same, "gpt2"))]
    panels = [head_view.panel(each, [0, 1], f"{each.source.name} · \u2068{TEXT}\u2069") for each in models]
    view = models[0].view(beside=models[1])
    assert view.blob == pack(panels, values=True)
    assert view.header["source"] == "h=3, d_model=12"


def test_the_repr_of_a_view_is_one_short_line(traced):
    long = mha.trace("word " * 300, h=3, d_model=12, layers=2)
    for view in (traced.view(), long.view()):
        assert len(repr(view)) < 250
        assert "\n" not in repr(view)
    assert repr(traced.view(layer=0)) == (
        "<HeadView headscope-one-two-three-two: random, h=3, d_model=12, seed=0, mask=full, "
        "position=sinusoidal; layers[0] of 2, 3 heads>"
    )


def test_the_trace_offers_the_same_view(traced):
    ours, offered = head_view.view(traced, layer=0, head=1, token=2), traced.view(layer=0, head=1, token=2)
    assert (ours.header, ours.blob) == (offered.header, offered.blob)
    from_the_end = traced.view(layer=-2, head=-2, token=-2)
    assert (from_the_end.header, from_the_end.blob) == (ours.header, ours.blob)


def test_another_sentence_of_the_same_model_can_be_shown_beside_it(traced):
    other = mha.trace("a longer sentence than the first one was", h=3, d_model=12, layers=2, seed=5)
    view = traced.view(beside=other, token=3)
    titles = [f"seed={seed} · \u2068{trace.title}\u2069" for seed, trace in ((0, traced), (5, other))]
    pairs = zip((traced, other), titles, strict=True)
    assert view.blob == pack([head_view.panel(each, [0, 1], title) for each, title in pairs], values=True)
    assert len(view.header["special"]) == len(view.header["groups"]) == 2
    assert view.header["token"] == 3
    assert "seed" in traced.view().header["source"]
    assert "seed" not in view.header["source"]  # the caption speaks of both


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"h": 3, "layers": 1}, "these have 2 and 1 layers, with 3 and 3 heads"),
        ({"h": 4, "layers": 2}, "these have 2 and 2 layers, with 3 and 4 heads"),
    ],
)
def test_a_trace_of_another_model_cannot_be_shown_beside(traced, refused, asked, said):
    assert said in str(refused(traced.view, beside=mha.trace("one two", d_model=12, **asked)))


def test_a_trace_without_layers_cannot_be_shown_beside(traced, refused):
    empty = mha.AttentionTrace(mha.words("one two"), (), "no layers")
    assert "layers, with 3 and 0 heads" in str(refused(traced.view, beside=empty))


def test_a_large_layer_has_only_the_heads_around_the_chosen_one(monkeypatch):
    trace = mha.trace(" ".join(["a"] * 40), h=6, d_model=24, layers=2)
    one = size(trace.layers[0], 1, values=True)
    monkeypatch.setattr(head_view, "ALL_LAYERS", 3 * one / BUDGET)
    view = trace.view(layer=1, head=5)
    assert len(view.blob) < 4 * one
    assert (view.header["layers"], view.header["heads"]) == (2, 6)  # the chips say what is not here


# The page


def test_every_placeholder_of_the_page_is_filled(traced, tmp_path):
    view = head_view.view(traced, head=1, token=2)
    for page in (view.html(), saved_html(view, tmp_path)):
        assert inside(page) == (view.header, view.blob)
        assert not re.search(r"__[A-Z]+__", page)


def test_tokens_that_look_like_markup_or_placeholders_stay_text(tmp_path):
    view, plain = (mha.trace(text, h=2, d_model=8).view() for text in (NASTY, "plain words"))
    for page, other in (
        (view.html(), plain.html()),
        (saved_html(view, tmp_path), saved_html(plain, tmp_path)),
    ):
        assert inside(page) == (view.header, view.blob)
        assert page.count("<") == other.count("<")


def test_a_title_and_a_name_that_are_placeholders_stay_text():
    header, _ = inside(mha.trace("__NUMBERS__ __OLD__", h=2, d_model=8).view().html())
    assert header["file"] == "headscope-__NUMBERS__-__OLD__"


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


def test_comments_are_left_out_of_the_page(traced):
    for text, remark in zip(program(head_view.view(traced).html()), ("/*", "//"), strict=True):
        lines = text.splitlines()
        assert len(lines) > 50
        assert not [line for line in lines if line.startswith((remark, " ")) or not line]


def test_a_saved_page_is_ascii_that_every_tool_can_read(tmp_path):
    page = saved_html(mha.trace(NASTY + " ä 小猫", h=2, d_model=8).view(), tmp_path)
    assert page.isascii()
    assert page.startswith("<!doctype html>\n")


@pytest.mark.parametrize("tokens", [2, 16, 64])
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


def test_a_view_is_saved_as_one_file(traced, tmp_path, refused):
    view = head_view.view(traced)
    assert inside(saved_html(view, tmp_path)) == (view.header, view.blob)
    view.save(str(tmp_path / "again.html"))
    assert (tmp_path / "again.html").exists()
    error = refused(view.save, tmp_path / "nowhere" / "view.html")
    assert str(error) == f"There is no folder {tmp_path / 'nowhere'} to save view.html in."


def test_a_notebook_shows_it_in_a_sandboxed_frame():
    view = mha.trace('"quoted" & <b>', h=2, d_model=8).view()
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)" [^<>]*></iframe>', view._repr_html_())
    assert html.unescape(shown[1]) == view.html()
    assert shown[2].split() == ["allow-scripts", "allow-downloads"]  # no same-origin: not the notebook's own


# What the header says


@pytest.mark.parametrize(
    ("pieces", "positions"),
    [
        (["[CLS]", "a", "[SEP]"], [0, 2]),
        (["<s>", "a", "</s>"], [0, 2]),
        (["<|endoftext|>", "a", "[MASK]"], [0]),
        (["a", "[MASK]"], [0]),  # the first token can be a sink; a hidden word is a word
        (["a", "b"], [0]),
        (["[a]", "< b >", "[CLS"], [0]),
    ],
)
def test_special_tokens_are_found_by_form_or_else_the_first_token(pieces, positions):
    trace = mha.from_weights(torch.full((1, len(pieces), len(pieces)), 1 / len(pieces)), pieces)
    assert head_view.special(trace) == [positions, positions]


def test_the_caption_names_the_source_of_the_numbers(traced):
    said = "random, h=3, d_model=12, seed=0, mask=full, position=sinusoidal"
    assert traced.view().header["source"] == said
    trained = mha.trace("The animal was tired.", source="mini", h=4, d_model=64)
    seed = checkpoints.manifest()["glass-box-en-h4-d64"]["plan"]["seed"]
    said = f"mini, glass-box, h=4, d_model=64, seed={seed}, step={trained.source.step}"
    assert trained.view().header["source"] == said


def test_the_caption_names_the_edited_one_of_two_traces(traced):
    edits = [mha.edits.Output(layer=0, heads=1)]
    edited = mha.trace(TEXT, h=3, d_model=12, layers=2, edits=edits)
    named = f"edited=(no) | ({edits[0].describe()})"
    assert traced.view(beside=edited).header["source"].endswith(named)
    assert edited.view(beside=edited).header["source"].endswith(f"edited=({edits[0].describe()})")
    assert "edited" not in traced.view(beside=traced).header["source"]


def test_a_file_name_consists_of_words():
    assert mha.trace("../a/b: <c>?*", h=2, d_model=8).view().header["file"] == "headscope-a-b-c"
    assert mha.trace("小猫 حيوان", h=2, d_model=8).view().header["file"] == "headscope-小猫-حيوان"


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
    asked |= {f"path_columns_{name}" for name in (*SUMS, "softmax")}
    asked |= {f"path_vectors_{name}" for name in SUMS[1:-1]} | {f"path_stage_{name}" for name in STAGES}
    asked |= {f"path_{name}" for name in ("cap", "bias", "temperature", "scale")}
    asked |= {f"path_column_{name}" for name in ("score", "power", "weight")}
    asked |= {f"question_{name}" for name in (*QUESTIONS, HIDDEN_WORD)}
    assert asked | {"old_browser"} == set(head_view.texts("en"))  # that one is in the page itself


def test_the_colours_of_the_page_are_those_of_the_app():
    page, printed = map(scripts.asset, ("page/page.css", "pictures/print.css"))
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    light += re.search(r":root, \.print \{(.*?)\}", printed, re.DOTALL)[1]
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    for block, name in ((light, "light"), (dark, "dark")):
        said = dict(re.findall(r"--st-([\w-]+): ([^;]+);", block))
        assert said["primary-color"] == theme[name]["primaryColor"]
        assert said["background-color"] == theme[name]["backgroundColor"]
        assert said["text-color"] == theme[name]["textColor"]
        assert said["border-color"] == theme[name]["borderColor"]
        assert said["chart-sequential-colors"].split(", ") == theme[name]["chartSequentialColors"]
        assert said["chart-categorical-colors"].split(", ") == theme[name]["chartCategoricalColors"]
        assert said["chart-diverging-colors"].split(", ") == theme[name]["chartDivergingColors"]
    assert dict(re.findall(r"--st-([\w-]+): ([^;]+);", light))["base-radius"] == theme["baseRadius"]


@pytest.mark.parametrize(("told", "positions"), [((1,), [1]), ((), [0])])
def test_special_tokens_of_the_tokenizer_take_precedence(told, positions):
    tokens = mha.Tokens("ab", ("[CLS]", "b"), ((0, 1), (1, 2)), special=told)
    trace = mha.from_weights(torch.full((1, 2, 2), 0.5), tokens)
    assert head_view.special(trace) == [positions, positions]


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


def test_a_head_has_nothing_to_find_if_all_its_answers_are_nothing():
    it, word = (("it", 0.9), ("[CLS]", 0.1)), (("saw", 0.8),)
    trace = asked((None, NONE, word, it), noun=(None, NONE, it, it), doer=(None, NONE, NONE, NONE))
    trace = replace(trace, questions={**trace.questions, "decider": (None, NONE, it, NONE)})
    [heads] = trace.view().header["questions"]
    assert [head["asks"] for head in heads] == [["noun"], ["doer", "decider"], ["hidden"]]
    assert [head["nothing"] for head in heads] == [[0, 1], [0, 1, 3], [0, 1, 3]]


def test_a_model_without_questions_has_none_in_the_view(traced):
    assert traced.view().header["questions"] == [[]]


def test_unknown_words_are_marked_on_their_own_side(normal):
    trace = asked((), noun=(None,) * 4)
    assert trace.view().header["unknown"] == [[[1], [1]]]
    crossed = trace_of(trace.tokens, mha.words(" ".join(KEYS)), normal)
    assert crossed.view().header["unknown"] == [[[1], []]]


# One text that looks at another

KEYS = tuple(f"k{at}" for at in range(11))


def trace_of(queries: Tokens, keys: Tokens, normal, layers: int = 2) -> mha.AttentionTrace:
    layers_of_both = []
    for seed in range(layers):
        sizes = {"q": len(queries), "k": len(keys), "v": len(keys)}
        tensors = {name: normal(3, n, 5, seed=10 * seed + len(name + str(n))) for name, n in sizes.items()}
        sides = mha.Sides(queries, keys)
        layers_of_both.append(mha.LayerTrace(tensors, kind="cross", sides=sides))
    return mha.AttentionTrace(queries, tuple(layers_of_both), {"name": "by hand"})


def test_a_view_of_a_cross_part_has_both_texts(normal, refused):
    queries, keys = mha.words("one two three four five six ."), mha.words(" ".join(KEYS))
    trace = trace_of(queries, keys, normal)
    view = trace.view(token=6)
    assert view.header["special"] == [[[], [0]]]  # a token that nobody looks at is no sink
    assert view.header["groups"] == [None]
    assert view.header["file"].startswith("headscope-one-two")
    assert b'"keys": ["k0"' in pack([head_view.panel(trace, [0])])
    assert "token 7 was asked for" in str(refused(trace.view, token=7))
    assert trace.title == f"\u2068{queries.text}\u2069 → \u2068{keys.text}\u2069"


def test_words_and_special_tokens_come_from_the_tokenizer(normal):
    pieces = Tokens("an imal", ("an", "##x", "end"), ((0, 2), (3, 5), (5, 7)), (0, 0, 1), (2,))
    trace = trace_of(pieces, mha.words(" ".join(KEYS)), normal)
    header = trace.view().header
    assert header["special"] == [[[2], [0]]]
    assert header["groups"][0]["query"]["of"] == [0, 0, 1]
    assert header["groups"][0]["key"] == {"of": list(range(11)), "labels": list(KEYS)}


def test_layers_of_several_kinds_are_refused_with_the_kinds(normal, refused):
    queries, keys = mha.words("one two"), mha.words("a b c")
    cross = trace_of(queries, keys, normal, layers=1)
    own = mha.LayerTrace({"weights": torch.full((3, 3, 3), 1 / 3)}, kind="encoder")
    both = mha.AttentionTrace(keys, (own, *cross.layers), "by hand")
    assert "trace.part('cross').view()" in str(refused(both.view))
    assert both.part("cross").view().header["layers"] == 1
