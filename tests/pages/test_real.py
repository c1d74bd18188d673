"""Third-party models in the app: chosen, loaded with progress, shown on every page, or refused."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import mha_core as mha
from mha_core import device, edits
from mha_core.analysis import comparison
from mha_core.scene import swaps
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import catalogue, files
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.loaded import LoadedModels, Loading, ModelKey
from mha_core.traces.facts import Facts
from mha_core.traces.source import ModelSource
from mha_core.traces.tokens import word_groups
from pages._kit import model_info, model_source, refusals
from pages._kit.text import literal
from pages._server import limits, turns
from pages._server.turns import Turns
from pages.models._real import card
from pages.understand._what_if import changed_answers
from tests.pages.conftest import FRAME, PAGES, ROOT, codes, go_to, infos, keys, refused_by_link
from tests.sources import tiny

WHAT_IF = "understand/what_if.py"
pytestmark = pytest.mark.usefixtures("no_other_model")


@pytest.fixture
def given(folder, monkeypatch):
    """`given("bert")`: its folder, offered by name. (AppTest accepts only values that are offered.)"""

    def offer(*families: str) -> None:
        monkeypatch.setenv(model_source.FOLDERS, model_source.os.pathsep.join(map(folder, families)))

    return offer


@pytest.fixture
def on_model(on_folder, folder):
    """`on_model("bert", head=2)`: the page Heads, or another, on a tiny model, opened by a link."""
    return lambda family, page="see/heads.py", **link: on_folder(folder(family), page, **link)


def trace_of_family(family, folder, text=Scene.text):
    return huggingface.follow(huggingface.load(folder(family)), text)


def test_a_model_is_loaded_named_and_its_numbers_are_what_is_drawn(on_model, folder, shows, draws, eye, said):
    app = on_model("bert", layer=2, head=3)
    trace = trace_of_family("bert", folder)
    shows(app, trace, layer=1, head=2)
    draws(app, trace, trace_of_family("bert", folder, Scene.twin))
    header, _ = eye(app)
    assert header["special"][0] == [list(trace.tokens.special)] * 2
    of = word_groups(trace.tokens).of
    assert [header["groups"][0][side]["of"] for side in ("query", "key")] == [list(of)] * 2
    assert (header["layers"], header["heads"]) == (2, 3)
    words = " ".join(said(app))
    assert "BertModel" in words
    assert ":green-badge[:material/check: exact, Δ " in words


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", "deepseek_v3", "gpt_oss"])
def test_every_page_works_with_every_kind_of_model(on_model, family):
    app = on_model(family)
    for page in PAGES:
        go_to(app, page)
        assert not app.error, page


@pytest.mark.slow
def test_two_texts_have_a_choice_of_kind_and_a_target(on_model, tokens, eye, folder):
    app = on_model("t5", target="The street.")
    kinds = app.segmented_control(key="shown_kind").options
    assert kinds == ["encoder", "decoder", "cross"]
    whole = huggingface.follow(huggingface.load(folder("t5")), Scene.text, target="The street.")
    for kind in kinds:
        app.segmented_control(key="shown_kind").set_value(kind).run()
        assert tokens(app)[0] == list(whole.part(kind).tokens.labels)
    assert eye(app)[1][0]["keys"] == list(whole.tokens.labels)
    assert "target" in {area.key for area in app.text_area}
    assert "target" not in {area.key for area in on_model("bert").text_area}


def test_a_score_of_a_real_model_is_split_by_its_writers(opened, given, folder, heatmaps):
    """Where there are two texts: each kind of attention, its layers counted by themselves."""
    given("t5")
    two = {"source": "model", "model": folder("t5"), "target": "The street."}
    model = huggingface.load(folder("t5"))
    whole = huggingface.follow(model, Scene.text, target="The street.")
    for kind, number in {"encoder": 1, "decoder": 4, "cross": 5}.items():
        app = opened("why", kind=kind, layer=2, head=3, token=2, key_token=2, **two)
        why = mha.attribution(whole, layer=number, head=2, query=1, key=1, source=model).largest(12)
        drawn = heatmaps(app, "why-terms")["why"]
        np.testing.assert_allclose(drawn["values"], why.terms, atol=1e-4)
        assert f"{'encoder' if kind == 'encoder' else 'decoder'} 1 · head 1" in drawn["rows"]
    assert "encoder 2 · head 2" in drawn["columns"]  # the keys are the encoder's
    assert not any(" 3 · " in name for name in drawn["rows"] + drawn["columns"])


@pytest.mark.slow
def test_a_logit_of_a_real_model_is_drawn_by_its_writers(opened_on, given, folder, component):
    given("gpt2")
    link = {"source": "model", "model": folder("gpt2"), "token": 4}
    app = opened_on("see/token.py", "ledger", **link)
    app.button(key="ledger_ask").click().run()
    model = huggingface.load(folder("gpt2"), answers=True)
    found = mha.ledger(huggingface.follow(model, Scene.text), token=3, source=model)
    drawn = [part["share"] for part in component(app, "ledger_bars")["parts"]]
    np.testing.assert_allclose(drawn, found.shares, atol=1e-4)
    app.text_input(key="ledger_other").set_value("no such word").run()
    assert "several tokens of this model" in app.info[0].value
    given("t5")  # its decoder answers, at tokens of its own
    two = {"source": "model", "model": folder("t5"), "target": "The street.", "token": 2}
    for kind, offers in {"encoder": False, "decoder": True, "cross": True}.items():
        app = opened_on("see/token.py", "ledger", kind=kind, **two)
        assert ("ledger_ask" in keys(app)) == offers, kind


@pytest.mark.slow
def test_an_edit_changes_the_chosen_kind_of_attention_of_a_real_model(on_model, folder, eye, heatmaps):
    app = on_model("t5", WHAT_IF, target="The street.", kind="cross", edits="cut,layer=2,from=1,to=1")
    cut = [edits.Hide(kind="cross", layer=1, rows=0, keys=0)]
    model = huggingface.load(folder("t5"))
    edited = huggingface.follow(model, Scene.text, target="The street.", edits=cut).part("cross")
    assert (edited.layers[1].weights()[:, 0, 0] == 0).all()
    assert edited.layers[0].weights()[:, 0, 0].all()
    for packed, layer in zip(eye(app, "what_if_view")[1][1]["layers"], edited.layers, strict=True):
        np.testing.assert_allclose(packed["weights"], layer.weights(), atol=2e-5)
    reached = heatmaps(app, "what-if-reached")["reached"]
    assert reached["columns"] == list(edited.sides.queries.labels)
    assert np.isnan(reached["values"][0]).all()  # the cut is in layer 2
    assert np.isfinite(reached["values"][1]).tolist() == [True] + [False] * (len(reached["columns"]) - 1)
    app.toggle(key="ask_model").set_value(True).run()
    app.button(key="measure_effects").click().run()
    answered = huggingface.follow(model, Scene.text, target="The street.", answers=True, edits=cut)
    frame = mha.effects(answered, source=model)
    drawn = heatmaps(app, "what-if-effects")["effect"]
    effect = drawn["values"]
    assert drawn["rows"] == ["encoder 1", "encoder 2", "decoder 1", "cross 1", "decoder 2", "cross 2"]
    np.testing.assert_allclose(effect.max(), frame.effect.max(), atol=1e-3)
    np.testing.assert_allclose(effect.min(), frame.effect.min(), atol=1e-3)
    largest, head = frame.layer[0], frame["head"][0] + 1
    assert any(f"head {head} of {drawn['rows'][largest]}" in text.value for text in app.markdown)


def test_answers_of_a_model_can_be_requested_by_link_and_with_swaps(on_model, folder, heatmaps, eye):
    model = huggingface.load(folder("gpt2"), answers=True)
    swapped = Scene.text.replace("animal", "x").replace("street", "animal").replace("x", "street")
    before, after = (huggingface.follow(model, text, answers=True) for text in (Scene.text, swapped))
    animal, street = (before.tokens.pieces.index(piece) for piece in ("an", "street"))
    app = on_model("gpt2", WHAT_IF, ask_model="true", edits=f"swap,from={animal + 1},to={street + 1}")
    partners = swaps.order(before.tokens, after.tokens, [swaps.Swap(animal, street)])
    table = app.dataframe[0].value
    answers = [before.answers[at][0][0] for at in partners], [one[0][0] for one in after.answers]
    for column, expected in zip(("before", "after"), answers, strict=True):
        guesses = [text.removeprefix("the model does not know (").split(" ")[0] for text in table[column]]
        assert guesses == [word.strip() for word in expected]
    for said, trace in zip(eye(app, "what_if_view")[0]["answers"], (before, after), strict=True):
        for [line], answer in zip(said, trace.answers, strict=True):
            assert (line[2] or line[1].removeprefix("perhaps ")).lstrip("“").startswith(answer[0][0])
    drawn = heatmaps(app, "what-if-weights")["difference"]["values"]
    old, new = (trace.layers[1].weights(0) for trace in (before, after))
    np.testing.assert_allclose(drawn, new - old[np.ix_(partners, partners)], atol=1e-5)


def test_differently_split_pieces_are_not_compared(on_model, english, heatmaps):
    """The first word has no space before it: elsewhere it is split differently."""
    app = on_model("gpt2", WHAT_IF, ask_model="true", edits="swap,from=1,to=2")
    assert english("what_if.unpaired") in [one.value for one in app.caption]
    assert [*heatmaps(app, "what-if-weights")] == ["before", "after"]
    assert [*app.dataframe[0].value] == ["word", "after"]


def test_answers_of_a_model_are_below_the_sentences(on_model, folder, eye, english):
    """On request, for both sentences; the other page shows them, too, and the link keeps the request."""
    app = on_model("gpt2")
    assert eye(app)[0]["answers"] == [[], []]
    app.toggle(key="ask_model").set_value(True).run()
    assert app.query_params["ask_model"] == "true"
    model = huggingface.load(folder("gpt2"), answers=True)
    for said, text in zip(eye(app)[0]["answers"], (Scene.text, Scene.twin), strict=True):
        trace = huggingface.follow(model, text, answers=True)
        assert len(said) == len(trace.answers)
        for [line], answer, word in zip(said, trace.answers, trace.tokens.labels, strict=True):
            assert line[0] == english("answer.next", query=word)
            assert (line[2] or line[1].removeprefix("perhaps ")).lstrip("“").startswith(answer[0][0])
            assert (line[1] == english("answer.unsure")) == (answer[0][1] < 0.3)
    app.toggle(key="ask_model").set_value(False).run()
    assert eye(app)[0]["answers"] == [[], []]
    app = on_model("t5", target="The street.", ask_model="true")
    assert english("answer.elsewhere") in [one.value for one in app.caption]
    app.segmented_control(key="shown_kind").set_value("cross").run()
    header, panels = eye(app)
    asked = [english("answer.next", query=word) for word in panels[0]["tokens"]]
    assert [question for [[question, *_]] in header["answers"][0]] == asked
    app = on_model("bert", ask_model="true")
    assert any("has no trained weights to answer with" in info for info in infos(app))
    assert eye(app)[0]["answers"] == [[], []]


def test_a_long_text_of_a_model_and_the_writers_of_a_score_wait_for_their_turn(on_model, monkeypatch):
    queue = Turns(0)  # it is full, and another visitor has the turn
    monkeypatch.setattr(turns, "heavy_work", queue)
    with queue.turn(lambda place: None):
        assert not on_model("bert", text="The street is old. " * 2).error
        long = on_model("bert", text="The street is wide. " * 400)
        assert any("at most 0 wait" in error.value for error in long.error)
        app = on_model("bert")
        app.session_state["why"] = True
        assert any("at most 0 wait" in info for info in infos(app.run()))


def test_effects_of_a_models_heads_wait_for_their_turn(on_model, monkeypatch):
    app = on_model("t5", WHAT_IF, target="The street.", ask_model="true")
    seen, effects = [], changed_answers.effects

    def in_turn(*given, **more):
        seen.append(len(turns.heavy_work.queue))
        return effects(*given, **more)

    monkeypatch.setattr(changed_answers, "effects", in_turn)
    app.button(key="measure_effects").click().run()
    assert seen == [1]


def test_without_a_model_the_page_says_what_to_install_and_type(opened, english):
    app = opened(source="model")
    assert english("real.none") in infos(app)
    assert files.INSTALL_PACKAGE in codes(app)
    assert {"use_mini", "use_random"} <= {*keys(app)}
    app.button(key="use_random").click().run()
    assert app.selectbox(key="shown_source").value == "random"


@pytest.mark.slow
def test_a_model_is_downloaded_only_on_request(opened_on, english, monkeypatch):
    monkeypatch.setattr(huggingface, "load", lambda *_, **__: pytest.fail("loaded unasked"))
    names = [*model_source.local_models(), *model_source.downloadable()]
    button = (app := opened_on("models/real.py")).button(key=f"model_{names.index('openai-community/gpt2')}")
    assert button.label == literal("openai-community/gpt2")
    button.click().run()
    assert app.selectbox(key="shown_source").value == "model"
    assert english("real.fetch_sized", size="548\u00a0MB") in [b.label for b in app.button]
    asked = []

    def find(name, **_):
        asked.append(name)
        raise mha.MhaError(f"{name} cannot be had.")

    monkeypatch.setattr(files, "find", find)
    app.button(key="fetch_model").click().run()
    assert asked == ["openai-community/gpt2"]
    assert "cannot be had" in app.error[0].value.replace("\\", "")
    assert app.selectbox(key="model").value == "openai-community/gpt2"
    app.button(key="again").click().run()
    assert len(asked) == 2
    assert {"use_mini", "use_random"} <= {*keys(app)}


@pytest.mark.slow
def test_a_missing_folder_is_refused_and_stays_typed(opened):
    app = opened(source="model", model="~nobody/x")
    assert "no folder" in app.error[0].value
    assert app.selectbox(key="model").value == "~nobody/x"
    assert {"again", "use_mini"} <= {*keys(app)}


@pytest.mark.slow
def test_the_beginning_of_a_text_beyond_the_limit_is_used(opened, opened_on, given, folder, heatmaps, eye):
    given("gpt2")
    link = {"source": "model", "model": folder("gpt2"), "text": "a bird " * 60, "ask_model": "true"}
    app = opened("why", **link, twin="a cat " * 60, layer=2, head=1, token=3)
    assert infos(app) == []
    assert any("first 97 tokens" in caption.value for caption in app.caption)
    assert app.text_area(key="text").value == link["text"]
    assert heatmaps(app, "why-terms")["why"]["values"].size
    assert [len(answers) for answers in eye(app)[0]["answers"]] == [97, 97]
    app = opened_on("understand/steps.py", "why", **link, layer=2, head=1, token=3)  # in a fragment
    assert heatmaps(app, "why-terms")["why"]["values"].size
    app = opened_on("understand/what_if.py", **link, edits="off,layer=1,head=2")
    assert [*heatmaps(app, "what-if-weights")] == ["before", "after", "difference"]


@pytest.mark.slow
def test_stopped_loading_is_reported_and_can_begin_again(folder, monkeypatch, tokens):
    name = folder("llama") + "/."  # under this name nothing is loaded
    monkeypatch.setenv(model_source.FOLDERS, name)
    app = AppTest.from_file(ROOT / FRAME, default_timeout=600)
    app.query_params["source"], app.query_params["model"] = "model", name
    app.session_state["model_stopped"] = ModelKey(name)
    app.run()
    assert any("You stopped loading" in info for info in infos(app))
    assert model_source.loaded().find(ModelKey(name)) is None
    app.button(key="fetch_model").click().run()
    assert model_source.loaded().find(ModelKey(name))
    assert tokens(app)[0]


@pytest.mark.slow
def test_a_folder_that_was_saved_again_is_loaded_again(opened, tmp_path, six, shows, heatmaps, monkeypatch):
    model, tokenizer = tiny.module("gpt2"), tiny.fast()
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    monkeypatch.setenv(model_source.FOLDERS, str(tmp_path))
    app = opened("measurements", source="model", model=str(tmp_path), layer=1, head=1)
    before, similarities = six(app)["weights"], heatmaps(app, "alike")["alike"]["values"]
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.mul_(1.5)
    model.save_pretrained(tmp_path)
    app.run()
    shows(app, mha.trace(Scene.text, source=model, tokenizer=tokenizer))
    assert not np.allclose(six(app)["weights"], before, equal_nan=True)
    assert not np.allclose(heatmaps(app, "alike")["alike"]["values"], similarities)


def shelf_of(max_bytes: int) -> LoadedModels:
    return LoadedModels(max_bytes, max_trace_bytes=10**9, reason=str)


def test_visitors_with_and_without_answers_share_the_memory(on_model, monkeypatch):
    seen, load, shelf = [], huggingface.load, shelf_of(max_bytes=10**9)
    monkeypatch.setattr(
        huggingface, "load", lambda *names, **more: (seen.append(more["answers"]), load(*names, **more))[1]
    )
    monkeypatch.setattr(model_source, "loaded", lambda: shelf)
    silent = on_model("gpt2")
    asking = on_model("gpt2", ask_model="true")
    for app in (silent, asking) * 2:
        app.run()
        assert not app.error
    assert seen == [False, True]
    assert len(shelf.entries) == 1


def test_a_page_keeps_its_model_while_another_is_loaded(on_model, folder, monkeypatch, eye):
    """Another model comes at the moment at which this one has been loaded, and there is room for one."""
    shelf, leave, other = shelf_of(max_bytes=1), Loading.leave, ModelKey(folder("bert"))

    def another(loading):
        leave(loading)
        if loading.key != other:
            assert shelf.begin(other).finished.wait(600)

    monkeypatch.setattr(Loading, "leave", another)
    monkeypatch.setattr(model_source, "loaded", lambda: shelf)
    app = on_model("gpt2")
    assert eye(app)[1]
    assert (len(shelf.entries), other in shelf.entries) == (1, True)


def test_any_two_models_of_the_list_fit_into_a_server_for_strangers():
    two = sorted(model.bytes for model in catalogue.hub_models() if model.revision)[-2:]
    assert sum(two) <= limits.KEPT["models"][2]


def test_a_link_with_answers_opens_on_a_page_without_them(on_model):
    model_source.loaded.clear()
    app = on_model("gpt2", "understand/steps.py?steps_view=layers", ask_model="true")
    assert not app.error
    assert app.query_params["ask_model"] == "true"  # for the next page
    app.switch_page("see/heads.py").run()
    assert app.toggle(key="ask_model").value


def test_a_download_includes_the_head_for_answers(opened, monkeypatch):
    [name] = [model.id for model in catalogue.hub_models() if model.id == "openai-community/gpt2"]
    monkeypatch.setattr(LoadedModels, "load", lambda _, loading: loading.finished.set())
    app = opened(source="model", model=name, ask_model="true")
    app.button(key="fetch_model").click().run()
    assert "fetch_model" not in keys(app)
    app.toggle(key="ask_model").set_value(False).run()
    assert "fetch_model" not in keys(app)


@pytest.mark.slow
def test_a_hosted_server_has_the_models_of_the_list_at_their_revisions_alone(opened, folder, monkeypatch):
    [pinned] = [model for model in catalogue.hub_models() if model.id == "openai-community/gpt2"]
    monkeypatch.setenv(limits.HOSTED, "1")
    monkeypatch.setenv(model_source.FOLDERS, folder("bert"))
    here = [("us/bird", "f" * 40), (pinned.id, "e" * 40), (pinned.id, pinned.revision)]
    cached = [(name, Path(folder("gpt2")), commit) for name, commit in here]
    monkeypatch.setattr(catalogue, "in_hub_cache", lambda: cached)
    model_source.models_in.clear()
    app = opened(source="model", model=folder("bert"), lang="en")
    assert app.selectbox(key="model").options == [pinned.id]
    assert not app.selectbox(key="model").proto.accept_new_options
    [line] = refused_by_link(app)
    assert line.endswith(f"which is not possible. Using {pinned.id}.")
    for name in (folder("gpt2"), folder("bert"), "us/bird"):
        scene = Scene(source="model", model=name)
        with pytest.raises(mha.MhaError, match="not on this server"):
            model_source.read(scene, "A bird sang.")
        assert not model_source.may_load(scene)
    for revision in (None, "e" * 40, pinned.revision):  # the page says that another one is not taken
        scene = Scene(source="model", model=pinned.id, revision=revision)
        assert model_source.key_of(scene) == ModelKey(pinned.id, pinned.revision)
    link = {"source": "model", "model": pinned.id, "lang": "en"}
    line = f"The link says revision = {'e' * 40}, which is not possible. Using {pinned.revision}."
    assert refused_by_link(opened(**link, revision="e" * 40)) == [line]
    assert not refused_by_link(opened(**link, revision=pinned.revision))
    cached.pop()
    model_source.models_in.clear()
    assert not model_source.local_models()


@pytest.fixture
def navigation(monkeypatch):
    """The files of the pages in the navigation, of the latest run."""
    listed, navigate = [], model_source.st.navigation

    def seen(pages, **how):
        listed[:] = [page._page.name for page in pages if page.visibility == "visible"]
        return navigate(pages, **how)

    monkeypatch.setattr(model_source.st, "navigation", seen)
    return listed


def test_a_hosted_server_without_a_model_leaves_the_page_out_and_a_link_to_it_says_so(
    opened, opened_on, navigation, monkeypatch, english
):
    for hosted in ("0", "1"):
        monkeypatch.setenv(limits.HOSTED, hosted)
        app = opened_on("understand/cost.py")
        links = [link.proto.page for link in app.get("page_link")]
        assert ("real.py" in navigation, "model" in links) == (hosted == "0", hosted == "0")
    assert english("source.model") not in opened().selectbox(key="shown_source").options
    for link in ({}, {"source": "model"}, {"source": "model", "model": "openai-community/gpt2"}):
        app = opened_on("models/real.py", **link)
        assert [words.value for words in app.info] == [english("real.none_hosted")]
        assert not [*app.error, *codes(app), *app.dataframe, *app.header]
        ways = [*app.get("page_link"), *(button for button in app.button if button.key.startswith("use_"))]
        assert len(ways) == (2 if link else 1)
    app.button(key="use_mini").click().run()
    [way] = app.get("page_link")
    assert (way.proto.label, way.proto.page) == (english("next.heads"), "")


@pytest.fixture
def packaged(folder, monkeypatch):
    """As with MiniLM installed: the model of the package is a tiny one."""
    for room in (catalogue, files):
        monkeypatch.setattr(room, "package", lambda: Path(folder("bert")))
    model_source.models_in.clear()
    model_source.loaded.clear()  # where another test may have asked in vain for the real one


@pytest.mark.parametrize("hosted", ["1", "0"])
def test_a_first_visit_opens_the_packaged_model(packaged, opened_on, navigation, monkeypatch, hosted):
    monkeypatch.setenv(limits.HOSTED, hosted)
    app = opened_on("models/real.py")
    assert not [*app.error, *app.info]
    assert "real.py" in navigation
    assert app.header[0].value == literal(files.PACKAGE)
    assert app.selectbox(key="shown_source").value == app.query_params["source"] == "model"
    app = opened_on("models/real.py", source="random")  # a link that names another source keeps it
    assert app.selectbox(key="shown_source").value == "random"
    app = opened_on("see/heads.py")
    app.switch_page("models/real.py").run()  # and so does a visit that has looked at another
    assert app.selectbox(key="shown_source").value == "mini"
    assert "sentence" not in app.info[0].value  # which the page does not show yet
    app.button(key="take_model").click().run()
    assert app.selectbox(key="model").value == files.PACKAGE


UNKNOWN = "The zyzzyva slept because it was tired."


def test_a_sentence_with_an_unknown_word_is_read_by_the_model_of_the_package(
    packaged, opened, folder, tokens, said, english, place, monkeypatch
):
    heads = refusals.published_heads()[model_source.PACKAGED]
    here = next(one for one in heads if one.role == "reference")
    here = replace(here, layer=2, head=3)  # a head of the tiny model
    known = {model_source.PACKAGED: [replace(here, role="next token", head=1), here]}
    monkeypatch.setattr(refusals, "published_heads", lambda: known)
    app = opened(text=UNKNOWN, twin="")
    assert english("unknown.line") in said(app)
    app.button(key="read_with_package").click().run()
    assert place(app)[:2] == (1, 2)
    assert tokens(app) == [list(trace_of_family("bert", folder, UNKNOWN).tokens.labels)]
    assert app.selectbox(key="model").value == files.PACKAGE
    assert "read_with_package" not in keys(app)
    for text, twin, offered in (
        ("The animal slept.", UNKNOWN, True),
        ("The animal slept.", "", False),
        ("小猫吃了 pizza。", "", False),  # the package's model is English
        ("القط على السجادة", "", False),
        ("I like it😀", "", False),
    ):
        app = opened(text=text, twin=twin)
        assert ("read_with_package" in keys(app)) is offered, text


def test_unknown_words_lead_to_a_real_model_but_not_strangers(opened, opened_on, said, english, monkeypatch):
    def links(app) -> int:
        return [link.proto.label for link in app.get("page_link")].count(english("unknown.more"))

    app = opened(text=UNKNOWN, twin=UNKNOWN)
    assert links(app) == 1
    assert files.INSTALL_PACKAGE not in codes(app)  # that page has it
    assert not links(opened(text="小猫吃了奶酪。", twin=""))
    assert not links(opened_on("understand/embeddings.py", text=UNKNOWN))  # which draws no such model
    monkeypatch.setenv(limits.HOSTED, "1")
    app = opened(text=UNKNOWN, twin="")
    assert english("unknown.line") in said(app)
    assert not links(app)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "source"), [(True, "mini"), (False, "model")])
def test_no_page_tells_strangers_to_install_anything(opened, monkeypatch, said, library, source):
    monkeypatch.setenv(limits.HOSTED, "1")
    monkeypatch.setattr(model_source, "library", lambda: library)
    app = opened(text=UNKNOWN, twin=UNKNOWN, source=source)
    for page in PAGES:
        go_to(app, page)
        texts = [*said(app), *infos(app), *codes(app)]
        assert not re.search(r"\binstall", " ".join(texts)), page


def test_without_the_library_the_pages_say_what_to_install_and_offer_nothing_else(
    opened, opened_on, folder, monkeypatch, english, offers
):
    monkeypatch.setattr(model_source, "library", lambda: False)
    fresh = folder("gpt2") + "/"  # a name under which nothing is loaded
    assert english("source.model") not in opened().selectbox(key="shown_source").options
    named = {"source": "model", "model": fresh}
    for page, link in (("models/real.py", {}), ("models/real.py", named), ("see/token.py", named)):
        app = opened_on(page, **link)
        assert app.info[0].value == english("real.no_library")
        assert codes(app)[0] == files.INSTALL_LIBRARY
        assert [button.key for button in offers(app)] == ["use_mini", "use_random"]
        assert not app.dataframe


@pytest.mark.slow
def test_steps_say_why_some_are_left_out(on_model, english):
    app = on_model("deepseek_v3", "understand/steps.py")
    assert any(english("real.no_start") in info for info in infos(app))
    app = on_model("bert", "understand/steps.py")
    assert not app.info
    assert len([head for head in app.header if head.value[:1].isdigit()]) == 10  # with the text as tokens


@pytest.mark.parametrize(
    ("route", "difference", "named", "explained"),
    [
        ("attend", 0.0, "exact", "exact_help"),
        ("watch", 1e-5, "exact", "watched_help"),
        ("attend", 2e-2, "close", "exact_help"),  # more than rounding
    ],
)
def test_the_page_says_how_a_model_was_traced(monkeypatch, english, route, difference, named, explained):
    told = []
    monkeypatch.setattr(model_info.st, "badge", lambda label, help, **_: told.extend([label, help]))
    monkeypatch.setattr(model_info.st, "caption", told.append)
    texts = ("name", "architecture", "family", "dtype", "device", "torch", "transformers")
    how = {"revision": None, "route": route, "difference": difference, "notes": ("It is *odd*.",)}
    source = ModelSource(**dict.fromkeys(texts, "tiny"), **how)
    trace = mha.trace("A bird sang.", h=2, d_model=4)
    layer = replace(trace.layers[0], about=Facts(bias="It depends on the words."))
    trace = replace(trace, layers=(layer, layer), source=source)
    model_info.exact(trace)
    assert told[0].startswith(english(f"real.{named}", difference="").strip())
    assert told[1] == english(f"real.{explained}")
    model_info.skipped(trace)
    assert told[2:] == [literal("It is *odd*."), english("real.bias_by_words", count=2)]


@pytest.mark.slow
def test_the_page_about_a_model_has_its_card_and_its_heads(on_model, folder, said):
    app = on_model("llama", "models/real.py")
    words = said(app)
    entry = model_source.loaded().find(ModelKey(folder("llama")))
    assert f"**{entry.parameters:,}**".replace(",", "\\,") in words
    assert app.get_by_key("overview")
    rows = next(f.value for f in app.table if "MHA" in str(f.value))
    assert len(rows) == 3  # for each head, by groups, one


@pytest.mark.parametrize(("share", "told"), [(0.25, ""), (0.8, "80% of the weight")])
def test_heads_rest_only_where_most_of_the_weight_is(share, told):
    weights = np.full((1, 1, 4, 4), (1 - share) / 3)
    weights[..., 0] = share
    sentence = card.special_share(mha.from_weights(weights, ["The", "cat", "sat", "."]))
    assert sentence.startswith(told)
    assert bool(sentence) == bool(told)


@pytest.mark.slow
def test_a_model_computes_in_the_dtype_of_the_link(on_model, folder, said, six):
    app = on_model("llama", dtype="bfloat16", layer=1, head=2)
    assert app.selectbox(key="dtype").value == "bfloat16"
    half = huggingface.follow(huggingface.load(folder("llama"), dtype="bfloat16"), Scene.text)
    np.testing.assert_array_equal(six(app)["q"], half.layers[0].q[1])
    assert not np.array_equal(six(app)["q"], trace_of_family("llama", folder).layers[0].q[1])
    app.switch_page("models/real.py").run()
    assert any("bfloat16" in words for words in said(app))
    app.selectbox(key="dtype").set_value("float32").run()
    assert not any("bfloat16" in words for words in said(app))


def test_float32_on_a_cpu_is_not_mentioned(on_model, monkeypatch):
    app = on_model("bert")
    assert app.selectbox(key="dtype").value == model_source.usual_dtype()
    scene = Scene(source="model", model="a", dtype=model_source.usual_dtype())
    assert model_source.key_of(scene) == ModelKey("a") == model_source.key_of(replace(scene, dtype=None))
    assert model_source.key_of(replace(scene, dtype="float16")) == ModelKey("a", None, "float16")
    assert (device.usual_dtype("cpu"), device.usual_dtype("cuda")) == ("float32", "bfloat16")
    monkeypatch.setenv(limits.HOSTED, "1")  # one copy of each model is enough for strangers
    assert model_source.key_of(replace(scene, dtype="float16")) == ModelKey("a")


@pytest.mark.slow
def test_a_failure_in_half_precision_offers_float32(on_model, monkeypatch, tokens):
    load = huggingface.load

    def refusing(name, *, dtype=None, **asked):
        if dtype == "float16":
            raise mha.MhaError("not in half")
        return load(name, dtype=dtype, **asked)

    monkeypatch.setattr(huggingface, "load", refusing)
    app = on_model("gpt2", dtype="float16")
    assert "not in half" in app.error[0].value
    app.button(key="fix_0").click().run()
    assert app.selectbox(key="dtype").value == "float32"
    assert tokens(app)[0]


def test_two_models_on_one_sentence_are_compared_word_by_word(opened_on, folder, given, heatmaps):
    given("bert", "gpt2")
    against = f"model:{folder('gpt2')}"
    link = {"source": "model", "model": folder("bert"), "layer": 1, "head": 1}
    app = opened_on("see/compare.py", against=against, **link)
    first, second = (trace_of_family(family, folder).layers[0] for family in ("bert", "gpt2"))
    compared = comparison.compare(first, second, heads=(0, 0))
    drawn = heatmaps(app, "compare-words")
    np.testing.assert_allclose(drawn["first"]["values"], compared.first, atol=1e-6)
    np.testing.assert_allclose(np.nan_to_num(drawn["second"]["values"]), compared.second, atol=1e-6)
    assert list(drawn["first"]["rows"]) == list(compared.first.index)
    app = opened_on("see/compare.py", against=against, text=Scene.text)  # beside a small model
    assert heatmaps(app, "compare-words")["second"]["values"].shape[0] >= 10
