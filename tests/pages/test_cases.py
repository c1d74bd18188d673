"""The gallery: every case opens as its link says, and the fact that its card claims holds for the numbers."""

import re
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

import mha_core as mha
from mha_core.analysis.cost import by_heads
from mha_core.analysis.derivation import steps
from mha_core.analysis.embeddings import agreement, chance, table, verdict
from mha_core.analysis.head_count import PUBLISHED
from mha_core.analysis.roles import labels, shipped
from mha_core.sources import mini
from pages.learn._cases.gallery import cases
from pages.understand._what_if import link as edits_in_link

CASES = {case.name: case for case in cases()}
FILES = {
    "heads": "see/heads.py",
    "token": "see/token.py",
    "steps": "understand/steps.py",
    "what-if": "understand/what_if.py",
    "embeddings": "understand/embeddings.py",
    "cost": "understand/cost.py",
    "sweep": "learn/sweep.py",
    "compare": "see/compare.py",
}
NUMBERS = ("h", "d_model", "d_k", "d_v", "layers")
SETTINGS = ("text", "source", "mask", *NUMBERS)
TWIN = "The animal didn't cross the street because it was too {}."


def traced(name: str, **other) -> mha.AttentionTrace:
    """The trace that the scene of a case shows, without its edits."""
    values = {"text": TWIN.format("tired"), "source": "mini"} | dict(CASES[name].link) | other
    chosen = {key: values[key] for key in SETTINGS if key in values}
    return mha.trace(**{key: int(value) if key in NUMBERS else value for key, value in chosen.items()})


def base():
    spec = mha.AttentionSpec(512, 8)
    assert (spec.d_k, spec.d_v, mha.AttentionSpec(512, 4).d_k) == (64, 64, 128)


def widths():
    [layer] = traced("widths").layers
    assert layer.scores().shape == (8, 2, 2)
    assert layer.concat().shape == (2, 800)
    assert layer.projections.w_o.shape == (800, 512)
    assert layer.result().shape == (2, 512)


def pronoun():
    for word, noun in (("tired", "animal"), ("wide", "street")):
        trace = traced("pronoun", text=TWIN.format(word))
        weights = trace.layers[1].weights(rows=[trace.tokens.index("it")])[:, 0]
        assert (weights.argmax(axis=-1) == trace.tokens.index(noun)).all()


def mixture():
    trace = traced("mixture")
    layer, row = trace.layers[1], trace.tokens.index("booked")
    weights, values = layer.weights(rows=[row])[:, 0], layer.v
    mixed = np.einsum("hn,hnc->hc", weights, values)
    np.testing.assert_allclose(layer.output()[:, row], mixed, atol=1e-5)


def symbols():
    [layer] = traced("symbols").layers
    assert (layer.x.shape, layer.q.shape, layer.result().shape) == ((4, 512), (8, 4, 64), (4, 512))
    np.testing.assert_allclose(layer.weights().sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(layer.scores(0)[0, 1], layer.q[0, 0] @ layer.k[0, 1], rtol=1e-5)


def one_head():
    edits, refused = edits_in_link.read(CASES["one_head"].link["edits"])
    assert not refused
    [layer] = mha.trace("How are you?", h=1, d_model=64, edits=edits).layers
    np.testing.assert_array_equal(layer.result(), layer.output(head=0))


def equal_cost():
    costs = by_heads(512, 64)
    assert list(costs.index) == [1, 2, 4, 8, 16, 32]
    assert costs["parameters"].nunique() == costs["flops"].nunique() == 1


def published():
    bleu = PUBLISHED["bleu"]
    assert bleu.idxmin() == 1
    assert bleu[32] < bleu.max()


def every_pair():
    trace = traced("every_pair")
    assert len(trace.tokens) == 5
    assert (trace.layers[0].weights() > 0).all()


def search():
    layer = traced("search").layers[1]
    assert all(layer.knows(name) for name in ("w_q", "w_k", "w_v"))
    queries = layer.x @ layer.projections.w_q.numpy() + layer.projections.b_q.numpy()
    np.testing.assert_allclose(queries.reshape(13, 4, 16).transpose(1, 0, 2), layer.q, atol=1e-5)


def relations():
    roles = {role for role, _ in labels(shipped(mini.find("en", "glass-box", 16, 64))).values()}
    assert {"previous token", "next token", "pronoun to cue", "pronoun to noun"} <= roles


def stacking():
    project = steps(traced("stacking"), layer=1, head=0)[0]
    assert "stacked" in project.notes
    assert project.facts["gap"] <= 1e-6


def learned():
    sentence, it = TWIN.format("tired"), 8
    before, after = (mha.trace(sentence, source="mini", trained=trained) for trained in (False, True))
    noun = after.tokens.index("animal")
    assert before.layers[1].weights(rows=[it])[..., noun].max() < 0.5
    assert (after.layers[1].weights(rows=[it])[..., noun] > 0.5).sum() >= 3  # of four heads


def masks():
    edits, refused = edits_in_link.read(CASES["masks"].link["edits"])
    assert not refused
    [layer] = mha.trace("How are you?", h=4, d_model=64, mask="causal", edits=edits).layers
    assert (layer.weights()[:, np.triu_indices(4, 1)[0], np.triu_indices(4, 1)[1]] == 0).all()
    assert (layer.weights(rows=[1]) == 0).all()
    assert (layer.output()[:, 1] == 0).all()
    assert (layer.output()[:, 2] != 0).any()


def words():
    sizes = (int(CASES["words"].link[name]) for name in ("h", "d_model"))
    vocabulary, matrix = mini.vectors(mini.model(mini.find("en", "glass-box", *sizes)))
    pairs = [("king", "queen"), ("man", "woman"), ("boy", "girl"), ("uncle", "aunt")]
    cosines = agreement(table(vocabulary, matrix.numpy()), pairs).to_numpy()
    above = cosines[np.triu_indices(len(pairs), 1)]
    assert verdict(above, chance(*matrix.shape).pair) in ("all", "some")


def chinese():
    for word, noun in (("累", "小猫"), ("宽", "马路")):
        trace = traced("chinese", text=f"小猫没有过马路，因为它太{word}了。")
        it, key = trace.tokens.index("它"), trace.tokens.index(noun)
        assert (trace.layers[1].weights(rows=[it])[:, 0].argmax(axis=-1) == key).sum() >= 3  # of four heads


FACTS = {
    fact.__name__: fact
    for fact in (
        *(
            base,
            widths,
            pronoun,
            mixture,
            symbols,
            one_head,
            equal_cost,
            published,
            every_pair,
            search,
            relations,
        ),
        *(stacking, learned, masks, words, chinese),
    )
}


def test_there_are_seventeen_cases_and_each_has_its_fact():
    assert len(CASES) == 17
    assert CASES.keys() - FACTS.keys() == {"latent"}  # of which the page counts what it claims, below


@pytest.mark.parametrize("name", FACTS)
def test_what_a_card_claims_holds(name):
    FACTS[name]()


def test_a_latent_layer_keeps_as_much_as_its_card_says(arrived, english):
    app = arrived(FILES["cost"], **CASES["latent"].link)
    [kept] = [table.value for table in app.table if english("cost.column_kept") in table.value]
    kept = dict(zip(kept[english("cost.column_kind")], kept[english("cost.column_kept")], strict=True))
    assert (kept["MLA"], kept["MHA"]) == ("256 + 32", "8 × (64 + 64)")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_opens_as_its_link_says(arrived, case):
    app = arrived(FILES[case.page], **case.link)
    assert not app.exception
    assert not app.error
    refusals = [caption.value for caption in app.main.caption if "link" in caption.value.lower()]
    assert not refusals


def test_the_page_has_a_card_for_each_with_its_link(arrived, english):
    app = arrived("learn/cases.py")
    assert not app.exception
    links = re.findall(r"\]\((\./[^)]*)\)", " ".join(one.value for one in app.main.header))
    assert len(links) == len(CASES)
    for address, case in zip(links, CASES.values(), strict=True):
        assert dict(parse_qsl(urlsplit(address).query)) == case.link
    assert app.main.header[0].value == f"1. [{english('case.base.title')}](./cost)"
