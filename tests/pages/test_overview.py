"""All layers and heads on the page Heads: the component's input, and the effect of a choice."""

import json

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis.overview import Overview, overview
from mha_core.analysis.patterns import MEASURES
from mha_core.scene.scene import Scene
from pages._kit import overview as kit

LAYERS = {"layers": 3, "h": 2, "d_model": 6, "layer": 2, "head": 1, "text": "one two one two three"}


@pytest.fixture
def layered(opened_on_random):
    """`layered(mask="causal")`: the app on random weights of three layers, or of others."""
    return lambda *folds, **link: opened_on_random(*folds, **(LAYERS | link))


def sent(app, key: str) -> tuple[str, str, bytes]:
    """The name, the digest and the bytes that are sent under a key."""
    said, data = app.get_by_key(key).proto.bytes.split(b"\n", 1)
    return json.loads(said)["name"], json.loads(said)["digest"], data


def component_heads(app) -> tuple[dict, pd.DataFrame]:
    """The heads that the component gets, and their measures, a row for each head."""
    _, digest, data = sent(app, "overview_blob")
    assert digest == chosen(app)["digest"]
    header = json.loads(data)
    return header, pd.DataFrame(np.array(header["values"], np.float32), columns=header["measures"])


def chosen(app) -> dict:
    """The message of each choice."""
    return json.loads(app.get_by_key("overview").proto.json)[0]


def of(**settings) -> tuple[mha.AttentionTrace, Overview]:
    sizes = {key: value for key, value in (LAYERS | settings).items() if key not in ("layer", "head")}
    trace = mha.trace(**(Scene(source="random").settings() | sizes))
    return trace, overview(trace)


def test_one_layer_has_no_overview_two_are_a_click_away_and_more_are_open(layered, english):
    for layers, expanded in ((1, []), (2, [False]), (3, [True])):
        folds = [fold for fold in layered(layers=layers).expander if fold.label == english("overview.title")]
        assert [fold.proto.expanded for fold in folds] == expanded


def test_the_component_gets_every_head_from_the_numbers_of_the_head_view(layered, english):
    app = layered(mask="causal")
    header, measures = component_heads(app)
    assert header["heads"] == [2, 2, 2]
    assert chosen(app)["chosen"] == {"layer": 1, "head": 0}
    name, digest, _ = sent(app, "head_view_blob")
    assert chosen(app)["weights"] == [name, digest]
    with pytest.raises(KeyError):
        app.get_by_key(f"{kit.SMALL}_blob")
    assert [*measures] == [*MEASURES, "role"]
    expected = of(mask="causal")[1].table[list(MEASURES)]
    np.testing.assert_allclose(measures[list(MEASURES)], expected, rtol=1e-5)
    [table] = [frame.value for frame in app.dataframe if english("overview.role") in frame.value]
    assert table[english("control.layer")].tolist() == [1, 1, 2, 2, 3, 3]
    assert table[english("control.head")].tolist() == [1, 2] * 3
    columns = [english(f"roles.pattern.{name}") for name in MEASURES]
    np.testing.assert_allclose(table[columns], expected, atol=0.0005)


@pytest.mark.slow
def test_for_a_long_text_thumbnails_are_sent_in_the_same_form(layered, javascript):
    text = " ".join(f"w{n}" for n in range(301))
    app = layered(mask="causal", text=text)
    name, digest, blob = sent(app, f"{kit.SMALL}_blob")
    assert chosen(app)["weights"] == [name, digest]
    code = """const side = Array.from({ length: 32 }, (_, at) => at);
      return [...openPayload(file("blob"))[0].layers.values()].map((layer) => layer.heads.map((head) =>
        side.map((row) => side.map((key) =>
          layer.sees(head, row, key) ? layer.weight(head, row, key) : null))));"""
    found = np.array(javascript(["numbers/payload.js"], code, blob=blob), np.float32)
    np.testing.assert_allclose(found, of(mask="causal", text=text)[1].thumbs, atol=1 / 254)


def test_the_component_gets_words_only_for_saved_files(layered, english):
    text = "<img src=x> $x$ 小猫 حيوان"
    header, _ = component_heads(layered(text=text))
    meta = header.pop("meta")
    assert meta["title"] == english("overview.title")
    assert meta["caption"][:2] == [f"“{text}”", english("overview.note")]
    assert meta["file"] == "headscope-overview-img-src-x-x-小猫-حيوان"
    assert not any(word in json.dumps(header, ensure_ascii=False) for word in ("img", "小猫", "حيوان", "$"))


def test_heads_of_random_weights_are_named_after_where_they_look(layered, english):
    link = {"layers": 2, "h": 2, "d_model": 32, "mask": "causal", "text": "one two three"}
    header, measures = component_heads(layered("overview_open", **link))
    named = of(**link)[1].positions()
    assert named
    assert header["roles"] == [named.get(key, ("",))[0] for key in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert header["labels"] == [role and english(f"role.{role}") for role in header["roles"]]
    np.testing.assert_array_equal(measures["role"].isna(), [not role for role in header["roles"]])
    assert header["texts"]["none"] == english("overview.none")


def test_trained_heads_are_named_by_their_questions(opened, eye, english):
    app = opened("overview_open")
    header, measures = component_heads(app)
    roles = eye(app)[0]["roles"]
    assert header["labels"] == [scored for _, scored in roles["0"] + roles["1"]]  # as in the view of one head
    assert header["roles"][4] == "noun"
    role, score = english("head_view.question_noun"), f"{measures['role'][4]:.2f}"
    assert header["labels"][4] == f"{role}, test score {score}"


def test_choosing_a_head_moves_layer_and_head(layered, click, move, place):
    app = click(layered(), "overview", {"layer": 2, "head": 1})
    assert place(app)[:2] == (2, 1)
    assert chosen(app)["chosen"] == {"layer": 2, "head": 1}
    move(app, layer=1)
    assert chosen(app)["chosen"] == {"layer": 0, "head": 1}


def test_the_overview_of_a_trace_is_computed_once(layered, move, monkeypatch):
    asked = []

    def counting(trace):
        asked.append(trace)
        return overview(trace)

    monkeypatch.setattr(kit, "overview", counting)
    app = layered("advanced", text="a text that no other test has")
    move(app, head=2)
    assert len(asked) == 1
    app.number_input(key="seed").set_value(7).run()
    assert len(asked) == 2
    assert asked[0] is not asked[1]


def test_a_long_overview_grows_from_the_chosen_head_while_the_page_is_used_and_can_be_stopped(
    layered, english, monkeypatch
):
    started = []
    monkeypatch.setattr(kit, "AT_ONCE", 0)
    monkeypatch.setattr(
        kit.Growing, "start", lambda self: started.append(self) or vars(self).update(stopped=False)
    )
    app = layered(text="another text that no other test has", layer=2, head=2)
    [run] = started
    assert run.order[:3] == [(1, 1), (1, 0), (0, 0)]
    assert np.isnan(component_heads(app)[1].to_numpy()).all()
    waiting, words = component_heads(app)[0], english("overview.waiting")
    assert (waiting["waiting"], waiting["labels"]) == ([*range(6)], [words] * 6)
    run.heads.add(1, 1)
    stop = [one for one in app.button if one.label == english("overview.stop")]
    app = stop[0].click().run()
    assert run.stopped
    header, measures = component_heads(app)
    assert np.flatnonzero(np.isfinite(measures["entropy"])).tolist() == [3]
    assert header["waiting"] == [0, 1, 2, 4, 5]
    assert words not in header["labels"][3]
    go_on = [one for one in app.button if one.label == english("overview.go_on")]
    app = go_on[0].click().run()
    assert len(started) == 2
    run._work()  # what the thread does
    assert len(run.heads.done) == 6
    app.run()
    _, expected = of(text="another text that no other test has")
    assert component_heads(app)[0]["waiting"] == []
    np.testing.assert_allclose(component_heads(app)[1][[*MEASURES]], expected.table[[*MEASURES]], rtol=1e-5)
    assert english("overview.stop") not in [one.label for one in app.button]
    left = kit.Growing(mha.trace("a b", h=2, d_model=4), "left", (0, 0))
    left.looked -= kit.LEFT + 1
    left._work()
    assert not left.heads.done
