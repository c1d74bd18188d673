"""Roles of heads: the links of the sentences, and heads whose behaviour is known."""

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.patterns import POSITIONS
from mha_core.analysis.roles import ROLES, labels, of_model, roles
from mha_core.analysis.roles import shipped as shipped_roles
from mha_core.sources import mini
from mha_core.training import checkpoints, evaluation
from mha_core.training.data import LINK_NAMES
from mha_core.training.fit import Plan
from mha_core.training.lexicon import lexicon
from mha_core.training.model import ARCHITECTURES, Flow, Pass, Shape, SmallModel
from mha_core.training.questions import HIDDEN_WORD, LINKS, heads_of, questions_of

# Roles


class Planted(SmallModel):
    """Head number i looks i − 16 positions further, with all its weight; uniformly where nothing is there."""

    def __init__(self):
        super().__init__(Shape("one-layer", 33, 66), len(lexicon("en").vocabulary))

    def forward(self, ids, *, padding=None, rules=None, shift=0):
        n = ids.shape[1]
        distance = torch.arange(n) - torch.arange(n)[:, None]
        bias = torch.where(distance == torch.arange(-16, 17)[:, None, None], 0.0, -1e4)
        zeros = torch.zeros(len(ids), 33, n, 1)
        rule = mha.ScoreRule(bias=bias[None], mask=padding[:, None, None])
        return Pass([Flow(mha.Attended(zeros, zeros, zeros, zeros, rule), zeros)], zeros, zeros)


@pytest.fixture(scope="module")
def planted():
    return of_model(Planted().requires_grad_(False), "en").set_index(["role", "head"])


def test_each_head_of_fixed_distance_scores_what_its_distance_finds(planted):
    material = evaluation.material("en")
    for name in evaluation.LINKS:
        distances = (material.key - material.query)[material.kind == LINK_NAMES.index(name)]
        found = planted.loc[name]
        assert found["score"].tolist() == pytest.approx([(distances == i - 16).mean() for i in range(33)])
        # The baseline is the best fixed distance, so here it is the best head.
        assert found["baseline"].to_numpy() == pytest.approx(found["score"].max())
        assert (found["n"] == len(distances)).all()


def test_planted_positions_are_found_and_no_fixed_distance_passes_for_a_link(planted):
    heads = {"previous token": 15, "next token": 17, "same token": 16}
    for name, head in heads.items():
        assert planted.loc[(name, head), "score"] == 1
        assert planted.loc[name].drop(head)["score"].max() < 0.5
    found = labels(planted.reset_index())
    assert {role: head for (_, head), (role, _) in found.items()} == heads


def test_uniform_attention_is_never_right():
    model = SmallModel(Shape("glass-box", 2, 16), len(lexicon("en").vocabulary)).requires_grad_(False)
    for layer in model.layers:
        layer.attention.projections().w_q.zero_()
        layer.attention.projections().b_q.zero_()
    found = of_model(model, "en")
    of_links = found[found["role"].isin(evaluation.LINKS)]
    assert (of_links["score"] == 0).all()
    positions = found[found["role"].isin(POSITIONS)]
    np.testing.assert_allclose(positions["score"], positions["baseline"], rtol=1e-5)
    np.testing.assert_array_equal(positions["score"], positions["weight"])
    assert labels(found) == {}


@pytest.fixture(scope="module")
def random_model():
    """An untrained model with sharp weights, and its table."""
    model = SmallModel(Shape("standard", 3, 12), len(lexicon("en").vocabulary), seed=5).requires_grad_(False)
    for layer in model.layers:
        layer.attention.projections().w_q.mul_(8)
    return model, of_model(model, "en", seed=7)


def test_the_measure_is_that_of_one_trace_for_each_sentence(random_model):
    model, _ = random_model
    material, vocabulary = evaluation.material("en"), lexicon("en").vocabulary
    looks = evaluation.link_weights(model, material)
    trained = checkpoints.Trained(model, Plan("standard", 3, 12), 0, {})
    for item in range(0, len(material.kind), 250):
        row, query, key = material.sentence[item], material.query[item], material.key[item]
        words = [vocabulary[word] for word in material.ids[row, 1 : material.lengths[row]]]
        weights = np.array([layer.weights() for layer in mini.follow(trained, " ".join(words)).layers])
        np.testing.assert_allclose(looks.weight[item], weights[:, :, query, key], atol=1e-5)
        np.testing.assert_array_equal(looks.right[item], weights[:, :, query].argmax(2) == key)
        np.testing.assert_allclose(looks.weights[row], weights, atol=1e-5)
    assert len(looks.weights) == len(material.ids)


def test_the_table_has_every_head_and_role_once_and_its_bounds(random_model):
    _, table = random_model
    assert [*table] == ["layer", "head", "role", "score", "weight", "baseline", "control", "n"]
    assert len(table) == 2 * 3 * len(ROLES) == len(table.drop_duplicates(["layer", "head", "role"]))
    assert table["role"].tolist() == [*ROLES] * 6
    assert table[["score", "weight", "baseline", "control"]].stack().between(0, 1).all()
    material = evaluation.material("en")
    for role, n in table.groupby("role")["n"].first().items():
        if role in LINKS:
            assert n == (material.kind == LINK_NAMES.index(role)).sum()
        else:  # every row that has such a key
            rows = material.lengths - (0 if role == "same token" else 1)
            assert n == rows.sum()


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_untrained_model_has_no_labels(language):
    model = SmallModel(Shape("glass-box", 8, 64), len(lexicon(language).vocabulary), seed=1)
    assert labels(of_model(model, language)) == {}


def test_the_control_is_the_same_model_before_training(random_model):
    _, table = random_model
    before = of_model(SmallModel(Shape("standard", 3, 12), len(lexicon("en").vocabulary), seed=7), "en")
    np.testing.assert_array_equal(table["control"], before["score"])
    assert not np.allclose(table["control"], table["score"])


QUESTION_OF = LINKS | {"previous token": "before", "next token": "after"}


@pytest.mark.parametrize(("language", "h"), [("zh", 4), ("en", 8)])
def test_each_head_is_labelled_with_a_link_of_its_question_and_finds_it_best(language, h):
    table = shipped_roles(mini.find(language, "glass-box", h, 64))
    named = {head: role for (layer, head), (role, _) in labels(table).items() if layer == 1}
    for head, asked in enumerate(questions_of(h)):
        if asked != (HIDDEN_WORD,):
            assert QUESTION_OF[named[head]] in asked, (head, named[head])
    last = table[table["layer"] == 1].pivot(index="role", columns="head", values="score")
    for role, question in QUESTION_OF.items():
        if role in last.index and question in heads_of(h):
            own = last.loc[role, list(heads_of(h)[question])].max()
            assert own >= 0.75, role
            assert own >= last.loc[role].max() - 0.03, role  # a noun mostly stands behind its adjective


@pytest.mark.parametrize(
    ("language", "architecture"), [("en", "one-layer"), ("zh", "glass-box"), ("en", "latent")]
)
def test_the_shipped_roles_are_those_that_are_measured_again(language, architecture):
    plan = mini.find(language, architecture, 4, 64)
    trained = checkpoints.load_model(checkpoints.path(plan))
    measured, written = roles(trained), shipped_roles(plan)
    pd.testing.assert_frame_equal(written, measured, check_exact=False, rtol=0, atol=5e-3)
    names = {head: role for head, (role, _) in labels(measured).items()}
    assert {head: role for head, (role, _) in labels(written).items()} == names


def test_every_shipped_model_has_its_roles_and_its_own_copy_of_them():
    for plan in checkpoints.PLANS:
        table = shipped_roles(plan)
        assert len(table) == len(ARCHITECTURES[plan.architecture]) * plan.h * len(ROLES)
        assert table["role"].tolist() == [*ROLES] * (len(table) // len(ROLES))
        table["score"] = 0.0
        assert shipped_roles(plan)["score"].any()


# What roles are asked of


@pytest.fixture(scope="module")
def shipped() -> checkpoints.Trained:
    return checkpoints.load_model(checkpoints.path(mini.find("en", "one-layer", 4, 64)))


@pytest.mark.slow
@pytest.mark.parametrize("trained", [True, False])
def test_a_trace_a_model_and_its_file_have_the_same_roles(shipped, trained, tmp_path):
    model = shipped if trained else checkpoints.untrained(shipped.plan)
    trace = mha.trace("The animal was too tired.", source="mini", architecture="one-layer", trained=trained)
    expected = of_model(model.model, "en", seed=shipped.plan.seed)
    pd.testing.assert_frame_equal(roles(trace), expected)
    pd.testing.assert_frame_equal(roles(model), expected)
    if trained:  # a file holds half precision, as the shipped ones do
        checkpoints.save_model(tmp_path / "own.safetensors", model)
        pd.testing.assert_frame_equal(roles(tmp_path / "own.safetensors"), expected)


def test_what_has_no_roles_is_refused_with_what_works(shipped, refused):
    further = checkpoints.untrained(shipped.plan)
    further.model.layers[0].attention.projections().w_q.mul_(1.5)
    other = mini.follow(further, "The animal was too tired.")  # of the same shape as a shipped model
    said = "does not come with Headscope; give the file of that model"
    assert said in str(refused(roles, other))
    error = refused(roles, mha.trace("a b", h=2, d_model=8))
    assert "takes a small model" in str(error)
    assert "'random weights'" in str(error)
    assert error.fixes == ({"source": "mini"},)
    assert "got a int" in str(refused(roles, 3))


# Labels


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        # A score alone, and a margin over the baseline and the control
        ([(1, 2, "cue to noun", 0.61, 0.1, 0.1)], {(1, 2): ("cue to noun", 0.61)}),
        ([(1, 2, "cue to noun", 0.59, 0.1, 0.1)], {}),
        ([(1, 2, "cue to noun", 0.71, 0.5, 0.1)], {(1, 2): ("cue to noun", 0.71)}),
        ([(1, 2, "cue to noun", 0.69, 0.5, 0.1)], {}),
        ([(1, 2, "cue to noun", 0.71, 0.1, 0.5)], {(1, 2): ("cue to noun", 0.71)}),
        ([(1, 2, "cue to noun", 0.69, 0.1, 0.5)], {}),
        # A position from half of the weight on
        ([(0, 0, "next token", 0.51, 0.1, 0.1)], {(0, 0): ("next token", 0.51)}),
        ([(0, 0, "next token", 0.49, 0.1, 0.1)], {}),
        # The best head has to beat the best untrained one
        ([(0, 0, "noun to cue", 0.8, 0.1, 0.1), (1, 3, "noun to cue", 0.0, 0.1, 0.65)], {}),
        (
            [(0, 0, "noun to cue", 0.8, 0.1, 0.1), (1, 3, "cue to noun", 0.0, 0.1, 0.65)],
            {(0, 0): ("noun to cue", 0.8)},
        ),
        # Each head gets its best role alone, and the first of equals
        (
            [
                (1, 0, "next token", 0.9, 0.1, 0.1),
                (0, 1, "same token", 0.7, 0.1, 0.1),
                (0, 1, "noun to cue", 0.8, 0.1, 0.1),
                (0, 1, "cue to noun", 0.95, 0.9, 0.1),
                (0, 1, "verb to object", 0.8, 0.1, 0.1),
            ],
            {(0, 1): ("noun to cue", 0.8), (1, 0): ("next token", 0.9)},
        ),
    ],
)
def test_heads_are_labelled_by_their_scores(rows, named):
    table = pd.DataFrame(rows, columns=["layer", "head", "role", "score", "baseline", "control"])
    assert [*labels(table).items()] == [*named.items()]
