"""A link is a scene: it reads back the same, invalid values are named, and old links open."""

from dataclasses import fields, replace
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mha_core as mha
from mha_core.attention.positions import POSITIONS
from mha_core.focus.fields import CHARACTERS
from mha_core.focus.focus import CHOICES, Focus
from mha_core.scene.changes import write
from mha_core.scene.link import APP_ONLY, COMPARED, NUMBERS, SETTINGS, Other
from mha_core.scene.page import PAGES, Page, parts
from mha_core.scene.scene import DEFAULTS, NESTED, Scene, scene_of_values, view
from mha_core.traces.layer import KINDS
from mha_core.training import checkpoints
from mha_core.training.model import ARCHITECTURES
from tests.scene.test_changes import chosen_changes
from tests.sources import tiny

ANYWHERE = [name for name in SETTINGS if name not in APP_ONLY]
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
named = words.filter(bool)
sizes = st.none() | st.integers(1, 128)
numbers = st.integers(1, 10**8 - 1)
scenes = st.builds(
    Scene,
    text=words | st.just(DEFAULTS.text),
    twin=words | st.just(DEFAULTS.twin),
    source=st.sampled_from(ANYWHERE),
    architecture=st.sampled_from([*ARCHITECTURES]),
    run=st.none() | named,
    step=st.none() | st.integers(0, 200_000),
    file=st.none() | named,
    kind=st.none() | st.sampled_from([*KINDS]),
    model=st.none() | named,
    revision=st.sampled_from([None, "main", "refs/pr/3", "v1.0"]),
    dtype=st.sampled_from([None, "float32", "bfloat16"]),
    target=st.none() | named,
    ask_model=st.booleans(),
    h=st.integers(1, 128),
    d_model=st.integers(1, 8192),
    seed=st.integers(0, 2**31 - 1),
    layers=st.integers(1, 128),
    d_k=sizes,
    d_v=sizes,
    n_kv_heads=sizes,
    position=st.sampled_from(POSITIONS),
    mask=st.sampled_from(["full", "causal", "window"]),
    bias=st.booleans(),
    edits=st.lists(chosen_changes(), max_size=4).map(lambda chosen: write(dict.fromkeys(chosen))),
    against=st.just("") | st.builds("{}:{}".format, st.sampled_from(COMPARED), words),
    focus=st.builds(
        Focus,
        **dict.fromkeys(("layer", "head", "sentence"), numbers),
        **dict.fromkeys(("token", "key_token", "pins"), words),
        **{name: st.sampled_from(["", *names]) for name, names in CHOICES.items()},
        **dict.fromkeys(("lines", "hop1", "hop2"), st.just("") | numbers.map(str)),
        heads=st.lists(st.integers(0, 99).map(str)).map(",".join),
        threshold=st.just("") | st.floats(0, 1).map(str),
    ),
    page=st.sampled_from([*PAGES]).flatmap(
        lambda name: st.builds(
            Page.of,
            st.just(name),
            words,
            st.fixed_dictionaries({}, optional=dict.fromkeys(PAGES[name], words)),
        )
    ),
)


@settings(max_examples=100)
@given(scenes)
def test_a_link_has_what_differs_from_the_defaults_and_reads_back_as_its_scene(scene):
    link = scene.link()
    address = f"https://a.b:8501/base/{'?' * (scene.page == Page())}{link}"
    for written in (link, address):
        assert Scene.of_link(written) == (scene, ())
    said = parts(link).values
    values = {one.name: getattr(scene, one.name) for one in fields(Scene) if one.name not in NESTED}
    for name, value in (values | vars(scene.focus)).items():
        if name not in ("text", "twin"):
            default = getattr(DEFAULTS, name, getattr(DEFAULTS.focus, name, None))
            assert (name in said) == (value != default), name


MASKED = DEFAULTS.text.replace("animal", "[MASK]")
COST = Page("cost", "by-heads", (("cost_h", "3"),))
CLASSES = Page("embeddings", "relations", (("classes", "animal,food"),))


@pytest.mark.parametrize(
    ("link", "changed"),
    [
        *((link, {}) for link in ("", "?", "http://localhost:8501", "lang=zh&word=cat")),
        # Only the default sentence has a default second one.
        ("text=a", {"text": "a", "twin": ""}),
        ("text=a&twin=b", {"text": "a", "twin": "b"}),
        ("twin=", {"twin": ""}),
        (f"text={MASKED}", {"text": MASKED}),
        ("text=Is it? 1 %26 2&head=3", {"text": "Is it? 1 & 2", "twin": "", "focus": Focus(head=3)}),
        # A page, its heading, and only that page's fields; several values of one field
        ("http://localhost:8501/base/cost?cost_h=3&operation=scores#by-heads", {"page": COST}),
        ("steps?operation=scores", {"page": Page("steps", "", (("operation", "scores"),))}),
        ("embeddings?classes=animal&classes=food#relations", {"page": CLASSES}),
    ],
)
def test_a_link_says_what_differs_from_the_default_scene(link, changed):
    assert Scene.of_link(link) == (replace(DEFAULTS, **changed), ())


def test_the_default_scene_is_written_with_its_text_and_several_values_as_the_app_does():
    assert parts(DEFAULTS.link()).values == {"text": DEFAULTS.text}
    link = "embeddings?text=the+cat&classes=animal&classes=food#relations"
    assert Scene.of_link(link).scene.link() == link


def test_an_unknown_page_or_field_is_refused_by_name(refused):
    assert "There is no page called 'maps'" in str(refused(Page, name="maps"))
    said = str(refused(Page, name="cost", fields=(("h", "3"),)))
    assert "The page cost has no field 'h'; its own fields are cost_tokens," in said


@pytest.mark.parametrize(
    ("name", "value", "reason", "taken"),
    [
        ("h", "-1", "h is a whole number from 1 to 128", 1),
        ("h", "two", "h is a whole number from 1 to 128", 4),
        ("seed", "9" * 30, "seed is a whole number from 0 to 2,147,483,647", 2**31 - 1),
        ("bias", "maybe", "bias is true or false", True),
        ("ask_model", "maybe", "ask_model is true or false", False),
        ("mask", "", "mask is full, causal, ", "full"),
        ("source", "gpt2", "source is mini, random, run, file or model", "mini"),
        ("revision", "../x", "revision is a branch, tag or commit of the hub", None),
        ("against", "me", "against is untrained, head, h, ", ""),
        ("edits", "cut,layer=0", "a change is cut, off, even, ", ""),
        ("layer", "0", "layer is a whole number from 1 to 99,999,999", "1"),
        ("head", "9" * 9, "head is a whole number from 1 to 99,999,999", "99999999"),
        ("head", "x", "head is a whole number from 1 to 99,999,999", "1"),
        ("drawing", "zzz", "drawing is lines, text, arcs or matrix", "lines"),
        ("heads", "1,two", "heads are whole numbers from 0 to ", ""),
        ("threshold", "nan", "threshold is a number from 0", ""),
        ("hop1", "x", "hop1 is a whole number from 0 to ", ""),
        ("pins", "a " * 6000, "pins has at most 10,000 characters", ""),
    ],
)
def test_an_invalid_value_is_named_with_the_rule_and_its_replacement(name, value, reason, taken):
    scene, (refused,) = scene_of_values({name: value, "text": "a b", "token": "b"})
    assert (refused.name, refused.value, refused.replacement) == (name, value, taken)
    assert refused.reason.startswith(reason)
    said = {} if taken in (None, "") else {name: str(taken)}
    assert scene_of_values({**said, "text": "a b", "token": "b"}) == (scene, ())


def test_a_servers_own_limits_are_applied():
    most = dict.fromkeys(NUMBERS, 7) | {CHARACTERS: 3}
    scene, refused = scene_of_values({"h": "8", "d_model": "7", "text": "abcd", "target": "abc"}, most)
    assert (scene.h, scene.d_model, scene.text, scene.target) == (7, 7, DEFAULTS.text, "abc")
    assert {one.name: one.reason for one in refused} == {
        "h": "h is a whole number from 1 to 7",
        "text": "text has at most 3 characters",
    }


@pytest.mark.parametrize(
    ("link", "taken"),
    [
        ("h=1000", {"h": 64}),  # the largest that divides d_model
        ("h=1000&d_model=96", {"h": 48}),
        ("h=0&d_model=0", {"h": 1, "d_model": 1}),
        ("d_model=1024", {"d_model": 512}),
        ("d_model=1024&h=12", {"d_model": 504}),
        ("d_model=0&h=12", {"d_model": 12}),
        ("d_model=99999&h=99999", {"d_model": 512, "h": 64}),
        ("d_model=1024&h=12&position=rotary", {"d_model": 504}),
        ("d_model=1020&h=20&position=rotary", {"d_model": 480}),
        ("d_k=0&position=rotary", {"d_k": 2}),
        ("d_model=1024&h=12&d_k=5", {"d_model": 512}),
        ("n_kv_heads=99&h=12&d_model=24", {"n_kv_heads": 12}),
        ("layers=99", {"layers": 6}),
        ("d_model=1024&h=5&n_kv_heads=2", {"d_model": 512}),  # nothing fits, and a page says so
    ],
)
def test_a_number_beyond_a_limit_becomes_the_nearest_that_fits_the_others(link, taken):
    most = dict.fromkeys(NUMBERS, 9999) | {"d_model": 512, "h": 64, "n_kv_heads": 64, "layers": 6}
    scene, refused = scene_of_values(parts(f"source=random&text=a b&{link}").values, most)
    assert {one.name: one.replacement for one in refused} == taken
    assert {name: getattr(scene, name) for name in taken} == taken
    if "n_kv_heads=2" not in link:
        scene.trace()


@pytest.mark.parametrize(
    ("link", "refused", "changed"),
    [
        ("http://localhost:8501/maps?h=2", ("page", "maps"), {"page": Page(), "h": 2}),  # the home page
        ("cost?text=a&amp;h=8&cost_h=4&lang=zh&embed=true", ("amp;h", "8"), {"text": "a", "h": 4}),
        # Only the invalid part; what an older link says is read.
        (
            "edits=unordered;nonsense;off,layer=1",
            ("edits", "nonsense"),
            {"edits": "position,code=none;off,layer=1"},
        ),
        ("h=1000&n_kv_heads=3&d_k=1", ("h", "1000"), {"h": 64}),  # which no small model prevents
    ],
)
def test_one_wrong_part_of_a_link_is_refused_and_the_rest_is_read(link, refused, changed):
    scene, (one,) = Scene.of_link(link)
    assert (one.name, one.value) == refused
    assert {name: getattr(scene, name) for name in changed} == changed


@settings(max_examples=200)
@given(st.text(max_size=60) | st.text("texhd_modlkns=&?#%+;,12~/:", max_size=60))
def test_any_text_is_read_as_a_scene_that_has_a_link(text):
    scene, refused = Scene.of_link(text)
    if scene.source in ANYWHERE:
        assert Scene.of_link(scene.link()) == (scene, ())
    assert all(one.value != one.replacement for one in refused)


@pytest.mark.parametrize(
    ("link", "now"),
    [
        ("hops?architecture=standard&hop1=3", "steps?architecture=standard&hop1=3&steps_view=layers"),
        ("positions?code=rotary", "steps?code=rotary&steps_view=order"),
        ("http://a.b/base/sweep?width=128#x", "train?width=128&train_view=heads#x"),
    ],
)
def test_an_older_link_opens_the_page_that_replaced_its_own(link, now):
    assert Scene.of_link(link) == Scene.of_link(now)
    assert Scene.of_link(link).refused == ()


def test_a_link_that_is_not_a_text_is_refused(refused):
    assert "A link is a text, as in 'text=How are you?&h=4'" in str(refused(Scene.of_link, {"text": "a"}))


@pytest.mark.parametrize("source", APP_ONLY)
def test_a_source_that_only_the_app_has_is_refused_by_name(source, refused):
    scene = Scene(source=source, run="mine", file="mine")
    for ask in (scene.link, scene.trace):
        error = refused(ask)
        assert str(error).startswith(
            f"The source {source!r} of this scene is only in the app in which it was "
        )
        assert error.fixes == tuple({"source": name} for name in ANYWHERE)
    assert Scene.of_link(f"source={source}").scene.source == source


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"h": 0}, "No link can say h=0: h is a whole number from 1 to 128."),
        ({"mask": "window:2"}, "No link can say mask=window:2: mask is full, causal"),
        ({"text": "\ud83d"}, "half of a character"),
        ({"source": "gpt2"}, "There is no source called 'gpt2'; mini, random or model can be used."),
        ({"focus": Focus(head=-1)}, "No link can say head=-1: head is a whole number from 1"),
    ],
)
def test_a_scene_without_a_link_is_refused(changed, said, refused):
    assert said in str(refused(replace(DEFAULTS, **changed).link))


# The edition of the trained weights


@pytest.mark.parametrize(
    ("link", "named"),
    [
        ("text=a b&h=8&token=b", False),
        ("edits=cut,from=9,to=3&against=untrained", False),
        ("head=3", True),
        ("layer=1", True),
        ("heads=1,2", True),
        ("hop2=3", True),
        ("edits=off,layer=1,head=2", True),
        ("against=head:3", True),
        ("source=random&head=3", False),
    ],
)
def test_a_link_to_a_head_of_a_small_model_has_the_edition_of_the_weights(link, named):
    said = parts(Scene.of_link(link).scene.link()).values
    assert said.get("weights") == (str(checkpoints.edition()) if named else None)


@pytest.fixture
def third_edition(monkeypatch):
    """The trained weights are their third edition."""
    monkeypatch.setattr(checkpoints, "edition", lambda: 3)


@pytest.mark.parametrize(
    ("weights", "reason"), [("2", "been trained again"), ("4", "others here"), ("x", "others here")]
)
def test_a_link_to_heads_of_other_weights_loses_only_the_heads(third_edition, weights, reason):
    kept = "text=the cat sat&h=8&d_model=128&token=cat&drawing=matrix&edits="
    edits = "cut,from=2,to=3;off,layer=1,head=2;temperature,by=2;swap,from=2,to=3"
    link = f"{kept}{edits}&against=head:3&layer=1&head=0&heads=2,3&hop1=2&weights={weights}"
    scene, (refused,) = Scene.of_link(link)
    assert (refused.name, refused.value, refused.replacement) == ("weights", weights, 3)
    assert reason in refused.reason
    assert scene == Scene.of_link(f"{kept}cut,from=2,to=3;temperature,by=2;swap,from=2,to=3").scene
    assert Scene.of_link(scene.link()) == (scene, ())


@pytest.mark.parametrize(
    "link",
    [
        "head=3",  # written by hand
        "head=3&weights=",
        "head=3&weights=3",
        "token=cat&edits=cut,from=2,to=3&weights=2",  # the same with any weights
        "source=random&h=4&head=3&weights=2",
    ],
)
def test_a_link_that_is_right_with_these_weights_keeps_its_head(third_edition, link):
    scene, refused = Scene.of_link(f"text=the cat sat&{link}")
    assert refused == ()
    assert scene.focus.head == (3 if "head=3" in link else Focus.head)


# Its trace


@pytest.mark.parametrize(
    ("link", "arguments"),
    [
        ("", {"text": DEFAULTS.text, "source": "mini"}),
        (
            "text=The cat saw it&h=2&d_model=32",
            {"text": "The cat saw it", "source": "mini", "h": 2, "d_model": 32},
        ),
        (
            "source=random&text=a b c&h=3&d_model=9&seed=5&mask=causal&bias=false&layers=2",
            {"text": "a b c", "h": 3, "d_model": 9, "seed": 5, "mask": "causal", "bias": False, "layers": 2},
        ),
        (
            "source=random&text=a b c&edits=cut,from=3,to=1;swap,from=1,to=2",
            {"text": "b a c", "h": 4, "d_model": 64, "edits": [mha.edits.Hide(rows=2, keys=0)]},
        ),
    ],
)
def test_a_scene_is_traced_as_its_text_and_settings_are(link, arguments):
    trace, expected = Scene.of_link(link).scene.trace(), mha.trace(**arguments)
    assert trace.tokens == expected.tokens
    for one, other in zip(trace.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(one.weights(), other.weights())


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("source=model", "No model is chosen."),
        ("h=3&d_model=64&source=random", "d_model 64 cannot be split into 3 heads"),
        ("text=", "There is no text to look at"),
        ("edits=swap,from=1,to=3", "There is no word at token 1"),
    ],
)
def test_a_scene_that_cannot_be_traced_is_refused_with_the_reason(link, said, refused):
    assert said in str(refused(Scene.of_link(link).scene.trace))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.folders(tmp_path_factory)


@pytest.mark.parametrize("kind", ["", "decoder", "cross", "x"])
def test_a_scene_of_a_model_has_its_kind_of_attention_with_the_changes_there(folder, kind):
    said = {"text": "the cat", "model": folder("t5"), "kind": kind, "target": "the dog"}
    scene = Scene.of_link(urlencode({"source": "model", "edits": "off,layer=1", **said})).scene
    kind = kind if kind in ("decoder", "cross") else "encoder"
    edits = [mha.edits.Output(layer=0, kind=kind)]
    whole = mha.trace("the cat", source=folder("t5"), target="the dog", edits=edits)
    trace, expected = scene.trace(), whole.part(kind)
    assert trace.sides == expected.sides
    for one, other in zip(trace.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(one.output(0), other.output(0))
    assert not trace.layers[0].output(0).any()


def test_a_target_for_another_model_is_ignored(folder):
    scene = Scene(source="model", model=folder("gpt2"), text="the cat", target="the dog")
    assert scene.trace().tokens == mha.trace("the cat", source=folder("gpt2")).tokens


def test_the_view_of_a_scene_looks_where_the_scene_does(refused):
    assert "layer" in str(refused(view, mha.AttentionTrace(mha.words("a"), (), "none"), Scene()))
    scene = Scene.of_link("text=The cat saw the dog.&layer=1&head=3&token=cat&heads=2,3,99").scene
    header = view(scene.trace(), scene).header
    assert [header[name] for name in ("layer", "head", "token", "on")] == [0, 2, 2, [1, 2]]
    header = view(scene.trace(), replace(scene, focus=Focus(head=99, token=""))).header
    assert [header[name] for name in ("layer", "head", "token", "on")] == [1, 3, None, None]


# The other side of Compare, among what is offered


OFFERED = {"untrained": [""], "head": ["2", "3"], "twin": [""], "model": ["a/b:c"]}


@pytest.mark.parametrize(
    ("link", "offered", "taken", "wrong"),
    [
        *(
            (one.link(), OFFERED, one, False)
            for one in (Other("untrained"), Other("head", "3"), Other("twin"))
        ),
        (Other("model", "a/b:c").link(), OFFERED, Other("model", "a/b:c"), False),
        ("", OFFERED, Other("untrained"), False),
        ("head", OFFERED, Other("head", "2"), False),
        ("head:9", OFFERED, Other("head", "2"), True),
        ("nonsense", OFFERED, Other("untrained"), True),
        ("", {"twin": [""]}, None, False),  # the second sentence is never the first offer
    ],
)
def test_an_other_side_reads_back_from_its_link_or_becomes_the_first_offer(link, offered, taken, wrong):
    assert Other.of_link(link, offered) == (taken, wrong)
