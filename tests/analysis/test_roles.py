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
from mha_core.training.questions import HIDDEN_WORD, LINKS, QUESTIONS, heads_of, questions_of

# Of those that are shipped: each architecture and language, the narrowest and a wide one.
SAMPLE = [plan for plan in checkpoints.PLANS if plan.h == 4 and plan.d_model in (32, 64)]

# The material


@pytest.fixture(params=["en", "zh"])
def language(request):
    return request.param


def items(language: str, name: str):
    """Each item of a link as its words, its query and its key."""
    material, vocabulary = evaluation.material(language), lexicon(language).vocabulary
    for i in np.flatnonzero(material.kind == LINK_NAMES.index(name)):
        row = material.sentence[i]
        words = [vocabulary[word] for word in material.ids[row, : material.lengths[row]]]
        yield words, int(material.query[i]), int(material.key[i])


def test_each_item_is_a_link_of_the_everyday_sentences_with_the_word_that_answers(language):
    material, sentences = evaluation.material(language), evaluation.everyday(language)
    length = material.ids.shape[1]
    assert np.array_equal(material.ids, sentences.ids[:, :length])
    questions = np.array([QUESTIONS.index(LINKS[LINK_NAMES[kind]]) for kind in material.kind])
    at = material.sentence, material.query, questions
    np.testing.assert_array_equal(sentences.links[at], material.kind)
    np.testing.assert_array_equal(sentences.keys[at], material.key)
    items = np.stack((material.kind, *at[:2]), 1)
    assert len(np.unique(items, axis=0)) == len(items)
    assert (np.diff(material.sentence) >= 0).all()
    assert {*material.kind} == {*range(len(LINKS))}


def test_there_are_enough_links_of_every_kind_and_no_distance_finds_most_of_them(language):
    """An adjective is next to its noun in almost every sentence, so no head is named after that link."""
    for name in evaluation.LINKS:
        distances = [key - query for _, query, key in items(language, name)]
        assert 0 not in distances
        assert len(distances) >= (80 if name == "adjective to noun" else 150)
        most = np.unique(distances, return_counts=True)[1].max()
        assert most <= evaluation.MAX_AT_DISTANCE
        if name != "adjective to noun":
            assert most <= 0.52 * len(distances)
    assert {"word before", "word after"}.isdisjoint(evaluation.LINKS)  # these are positions
    for name in ("word before", "word after"):
        assert len([*items(language, name)]) == evaluation.MAX_LINKS


def test_the_material_is_the_same_when_made_again(language):
    before = evaluation.material(language)
    evaluation.material.cache_clear()
    for name, value in vars(before).items():
        np.testing.assert_array_equal(value, getattr(evaluation.material(language), name))


# Roles


class Planted(SmallModel):
    """Head number i looks i − 16 positions further, with all its weight; uniformly where nothing is there."""

    def __init__(self, language="en"):
        super().__init__(Shape("one-layer", 33, 66), len(lexicon(language).vocabulary))

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
    for name in evaluation.LINKS:
        distances = np.array([key - query for _, query, key in items("en", name)])
        found = planted.loc[name]
        assert found["score"].tolist() == pytest.approx([(distances == i - 16).mean() for i in range(33)])
        # The baseline is the best fixed distance, so here it is the best head.
        assert found["baseline"].to_numpy() == pytest.approx(found["score"].max())
        assert (found["n"] == len(distances)).all()


def test_planted_positions(planted):
    for name, head in {"previous token": 15, "next token": 17, "same token": 16}.items():
        assert planted.loc[(name, head), "score"] == 1
        assert planted.loc[name].drop(head)["score"].max() < 0.5


def test_uniform_attention_is_never_right():
    found = of_model(uniform(), "en")
    of_links = found[found["role"].isin(evaluation.LINKS)]
    assert (of_links["score"] == 0).all()
    positions = found[found["role"].isin(POSITIONS)]
    np.testing.assert_allclose(positions["score"], positions["baseline"], rtol=1e-5)
    np.testing.assert_array_equal(positions["score"], positions["weight"])
    assert labels(found) == {}


def uniform() -> SmallModel:
    model = SmallModel(Shape("glass-box", 2, 16), len(lexicon("en").vocabulary)).requires_grad_(False)
    for layer in model.layers:
        layer.attention.projections().w_q.zero_()
        layer.attention.projections().b_q.zero_()
    return model


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


def test_a_mean_weight_and_the_uniform_baseline_of_a_position(random_model):
    _, table = random_model
    looks = evaluation.link_weights(random_model[0], evaluation.material("en"))
    found = table[(table["role"] == "previous token") & (table["layer"] == 1) & (table["head"] == 2)].iloc[0]
    cells = [weights[1, 2, m, m - 1] for weights in looks.weights for m in range(1, weights.shape[3])]
    uniform = [1 / weights.shape[3] for weights in looks.weights for _ in range(1, weights.shape[3])]
    assert found["score"] == found["weight"] == pytest.approx(np.mean(cells, dtype=float))
    assert found["baseline"] == pytest.approx(np.mean(uniform))
    assert found["n"] == len(cells)


def test_the_control_is_the_same_model_before_training(random_model):
    _, table = random_model
    before = SmallModel(Shape("standard", 3, 12), len(lexicon("en").vocabulary), seed=7)
    np.testing.assert_array_equal(table["control"], of_model(before, "en")["score"])
    assert not np.allclose(table["control"], table["score"])


def test_an_untrained_model_has_no_labels(language):
    model = SmallModel(Shape("glass-box", 8, 64), len(lexicon(language).vocabulary), seed=1)
    assert labels(of_model(model, language)) == {}


def test_a_model_of_another_language_is_refused():
    with pytest.raises(mha.MhaError, match="another language"):
        of_model(SmallModel(Shape(), len(lexicon("zh").vocabulary)), "en")
    with pytest.raises(mha.MhaError, match="small language"):
        of_model(SmallModel(Shape(), 10), "fr")


QUESTION_OF = LINKS | {"previous token": "before", "next token": "after"}


@pytest.mark.parametrize("h", [4, 8])
def test_each_head_is_labelled_with_a_link_of_its_question(language, h):
    table = shipped_roles(mini.find(language, "glass-box", h, 64))
    named = {head: role for (layer, head), (role, _) in labels(table).items() if layer == 1}
    for head, asked in enumerate(questions_of(h)):
        if asked != (HIDDEN_WORD,):
            assert QUESTION_OF[named[head]] in asked, (head, named[head])


@pytest.mark.parametrize("h", [4, 8])
def test_each_link_is_found_best_by_the_head_of_its_question(language, h):
    table = shipped_roles(mini.find(language, "glass-box", h, 64))
    last = table[table["layer"] == 1].pivot(index="role", columns="head", values="score")
    for role, question in QUESTION_OF.items():
        if role in last.index and question in heads_of(h):
            own = last.loc[role, list(heads_of(h)[question])].max()
            assert own >= 0.75, role
            assert own >= last.loc[role].max() - 0.03, role  # a noun mostly stands behind its adjective


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(plan, marks=[] if plan.architecture == "one-layer" else pytest.mark.slow)
        for plan in checkpoints.PLANS
        if plan in SAMPLE or plan.architecture == "one-layer"
    ],
    ids=checkpoints.name,
)
def test_the_shipped_roles_are_those_that_are_measured_again(plan):
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


def test_a_trace_of_another_training_of_the_same_shape_is_not_mismistaken_for_the_shipped_model(shipped):
    further = checkpoints.untrained(shipped.plan)
    further.model.layers[0].attention.projections().w_q.mul_(1.5)
    with pytest.raises(mha.MhaError, match="does not come with Headscope; give the file of that model"):
        roles(mini.follow(further, "The animal was too tired."))


def test_a_trace_without_a_small_model_is_refused_with_what_works():
    with pytest.raises(mha.MhaError, match="takes a small model") as refused:
        roles(mha.trace("a b", h=2, d_model=8))
    assert "'random'" in str(refused.value)
    assert refused.value.fixes == ({"source": "mini"},)
    with pytest.raises(mha.MhaError, match="got a int"):
        roles(3)


# Labels


def table(*rows) -> pd.DataFrame:
    """layer, head, role, score, baseline, control of each row."""
    return pd.DataFrame(rows, columns=["layer", "head", "role", "score", "baseline", "control"])


@pytest.mark.parametrize(
    ("score", "baseline", "control", "named"),
    [
        (0.61, 0.1, 0.1, True),
        (0.59, 0.1, 0.1, False),
        (0.71, 0.5, 0.1, True),
        (0.69, 0.5, 0.1, False),
        (0.71, 0.1, 0.5, True),
        (0.69, 0.1, 0.5, False),
    ],
)
def test_a_label_needs_score_and_margin_over_baseline_and_control(score, baseline, control, named):
    found = labels(table((1, 2, "cue to noun", score, baseline, control)))
    assert found == ({(1, 2): ("cue to noun", score)} if named else {})


def test_a_position_is_a_label_from_half_of_the_weight_on():
    assert labels(table((0, 0, "next token", 0.51, 0.1, 0.1))) == {(0, 0): ("next token", 0.51)}
    assert labels(table((0, 0, "next token", 0.49, 0.1, 0.1))) == {}


def test_the_best_head_has_to_beat_the_best_untrained_one():
    rows = [(0, 0, "noun to cue", 0.8, 0.1, 0.1), (1, 3, "noun to cue", 0.0, 0.1, 0.65)]
    assert labels(table(*rows)) == {}
    elsewhere = (1, 3, "cue to noun", 0.0, 0.1, 0.65)
    assert labels(table(rows[0], elsewhere)) == {(0, 0): ("noun to cue", 0.8)}


def test_each_head_gets_its_best_role_alone_and_the_first_of_equals():
    found = labels(
        table(
            (1, 0, "next token", 0.9, 0.1, 0.1),
            (0, 1, "same token", 0.7, 0.1, 0.1),
            (0, 1, "noun to cue", 0.8, 0.1, 0.1),
            (0, 1, "cue to noun", 0.95, 0.9, 0.1),
            (0, 1, "verb to object", 0.8, 0.1, 0.1),
        )
    )
    assert [*found.items()] == [((0, 1), ("noun to cue", 0.8)), ((1, 0), ("next token", 0.9))]


def test_labels_follow_from_the_table_of_a_model(planted):
    """The heads of the positions are named after them; no fixed distance passes for a link."""
    found = labels(planted.reset_index())
    assert {key[1]: role for key, (role, _) in found.items()} == {
        15: "previous token",
        16: "same token",
        17: "next token",
    }
