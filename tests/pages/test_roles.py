"""The measured roles of heads are shown below them, with their numbers."""

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.analysis import patterns, roles
from mha_core.atlases import library
from mha_core.scene.scene import Scene
from mha_core.sources import mini
from mha_core.training import checkpoints
from pages._kit import compute, head_labels
from pages._kit.text import number
from pages.see._heads import folds


def table_with(app, column: str):
    """The table on the page that has this column."""
    return next(table.value for table in app.dataframe if column in table.value)


@pytest.mark.parametrize("layer", [1, 2])
def test_labels_are_the_measured_ones_with_their_scores(opened, eye, english, layer):
    app = opened("measurements", layer=layer, h=2)  # without an atlas
    plan = mini.find("en", "glass-box", 2, 64)
    table = roles.shipped(plan)
    named = roles.labels(table)
    shown = eye(app)[0]["roles"][str(layer - 1)]
    scores = checkpoints.manifest()["glass-box-en-h2-d64"]["scores"]["questions"]
    asked = mha.trace(Scene().text, source="mini", h=2).source.questions
    for head, (label, scored) in enumerate(shown):
        if layer == 2:  # the last: what the head is asked, and how often its answer is right
            for question in asked[head].split():
                right = f", test score {scores[question]['right']:.2f}" if question in scores else ""
                assert english(f"head_view.question_{question}") in label.split(" · ")
                assert english(f"head_view.question_{question}") + right in scored.split(" · ")
            continue
        role = named.get((layer - 1, head))
        name = "" if role is None else english(f"role.{role[0]}")
        assert (label, scored) == (name, "" if role is None else f"{name}, test score {role[1]:.2f}")
    assert any(scored for _, scored in shown)
    own = table[(table["layer"] == layer - 1) & (table["head"] == 0)]
    drawn = table_with(app, "score")
    assert sorted(drawn["score"]) == sorted(own["score"])
    assert set(drawn["role"]) == {english(f"role.{role}") for role in own["role"]}


def test_labels_come_from_the_atlas_where_the_model_has_one(opened, eye, english):
    app = opened(layer=1)
    [_, (name, text), *_] = eye(app)[0]["roles"]["0"]
    atlas = library.of(mha.trace(Scene().text, source="mini").source)
    row = atlas.head(0, 1).loc["object to preposition"]
    assert name == english("role.object to preposition")
    share, low, high = (f"{100 * row[of]:.0f}" for of in ("mean", "low", "high"))
    assert text == f"{name} in {share}% of {row['n']:.0f} texts ({low}–{high}%)"
    asked = [name for name, _ in eye(app)[0]["roles"]["1"]]
    assert asked[0] == english("head_view.question_noun")  # the last layer's heads are asked


def test_roles_are_shipped_or_measured_once(monkeypatch):
    asked, table = [], roles.shipped(mini.find("en", "glass-box", 4, 64))
    monkeypatch.setattr(roles, "roles", lambda trained: asked.append(trained) or table)
    compute.caches["roles"].clear()
    pd.testing.assert_frame_equal(head_labels.table(compute.trace(Scene()).source), table)
    assert asked == []
    trained = mini.model(mini.find("en", "glass-box", 4, 64))
    run = Scene(source="run", run=compute.trainings().add(trained))
    trace = compute.trace(run)
    assert [head_labels.table(trace.source) for _ in range(3)] == [table] * 3
    assert asked == [trained]
    compute.caches["roles"].clear()


def test_similarity_of_a_long_text_uses_some_of_its_rows(opened, english, drawn, monkeypatch):
    monkeypatch.setattr(folds, "MAX_CELLS", 0)
    words = " ".join(f"word{n}" for n in range(300))
    app = opened("likeness", source="random", text=words, twin="", h=3, d_model=12)
    trace = mha.trace(**(Scene(source="random").settings(words) | {"h": 3, "d_model": 12}))
    alike = patterns.similarity(trace.layers[0], max_rows=folds.MIN_ROWS).to_numpy()
    said = english("roles.alike", mean=number((alike.sum() - 3) / 6))
    assert said in [markdown.value for markdown in app.markdown]
    np.testing.assert_allclose(drawn(app, "alike"), alike, atol=1e-6)
    some = english("roles.alike_some", rows=folds.MIN_ROWS, tokens=300)
    assert some in [caption.value for caption in app.caption]
