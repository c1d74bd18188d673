"""A score split by the writers of its query and key: by hand, for small models and most families."""

import re

import numpy as np
import pytest

import mha_core as mha
from mha_core import edits
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

TIRED = "The animal didn't cross the street because it was too tired."
SHARE = 1e-5  # of the sum of the terms' sizes
HALF_SHARE = {"float16": 1e-2, "bfloat16": 5e-2}
# Each with its own way: shared layers; learned positions and norms behind; ALiBi; parallel blocks; latent
# keys; norms before and behind; sinks and experts; partly rotated heads; scaled residuals; relative
# positions; norms of heads behind; gated layers between others; two texts, also with relative positions.
FAMILIES = (
    *("albert", "bert", "bloom", "cohere", "deepseek_v3", "gemma2", "gpt_oss", "gpt_neox", "granite"),
    *("mpnet", "olmo2", "qwen3_next", "marian", "t5"),
)


def gap(why: mha.Attribution) -> float:
    return float(abs(why.terms.sum() - why.value) / np.abs(why.terms).sum())


def test_of_random_weights_every_term_is_a_product_by_hand():
    trace = mha.trace("How are you?", h=2, d_model=8, layers=2, mask="causal")
    place = {"head": 1, "query": 2, "key": 1}
    first, second = trace.layers
    why = mha.attribution(trace, layer=1, **place)
    assert [writer.label for writer in why.query_writers] == [
        *("layer 1 head 1", "layer 1 head 2", "layer 1 biases", "layer 2 biases")
    ]

    def written(position: int, name: str) -> np.ndarray:
        matrix, bias = (np.asarray(getattr(second.projections, f"{kind}_{name}")) for kind in "wb")
        heads = [first.contribution(head)[position] @ matrix for head in range(2)]
        rows = np.stack([*heads, np.asarray(first.projections.b_o) @ matrix, bias])
        return rows[:, 4:]  # of the second head

    expected = 4**-0.5 * written(2, "q") @ written(1, "k").T
    np.testing.assert_allclose(why.terms, expected, atol=1e-6)
    assert why.value == pytest.approx(float(second.scaled(1)[2, 1]))
    assert (why.labels, why.visible, why.soft_cap, why.bias) == (("you", "are"), True, None, None)
    assert not mha.attribution(trace, layer=1, head=1, query=1, key=2).visible


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "alibi"])
def test_positions_are_writers_where_they_are_added(position):
    trace = mha.trace("How are you?", h=2, d_model=8, position=position)
    why = mha.attribution(trace, layer=0, head=0, query="you", key="How")
    kinds = [writer.kind for writer in why.query_writers]
    assert kinds == ["word", *(["position"] if position in ("sinusoidal", "learned") else []), "bias"]
    assert gap(why) <= SHARE
    assert (why.bias is not None) == (position == "alibi")


@pytest.mark.parametrize("architecture", ["glass-box", "standard"])
def test_of_a_small_model_all_before_the_second_layer_wrote_into_it(architecture):
    trace = mha.trace(TIRED, source="mini", architecture=architecture)
    for head in range(4):
        why = mha.attribution(trace, layer=1, head=head, query="it", key="animal")
        labels = [writer.label for writer in why.key_writers]
        assert labels[:3] == ["word", "position", "layer 1 head 1"]
        assert labels[5:] == ["layer 1 head 4", "layer 1 MLP", "layer 1 biases", "layer 2 biases"]
        assert gap(why) <= SHARE


def test_terms_follow_edits():
    change = (edits.Output(layer=0, heads=2), edits.Hide(layer=1, rows="it", keys="animal"))
    trace = mha.trace(TIRED, source="mini", edits=change)
    why = mha.attribution(trace, layer=1, head=0, query="it", key="animal")
    off = [writer.head for writer in why.query_writers].index(2)
    assert not why.terms[off].any()
    assert not why.visible
    assert gap(why) <= SHARE


def test_the_frame_has_the_largest_terms_first_and_few_writers_have_the_same_sum():
    trace = mha.trace(TIRED, source="mini")
    why = mha.attribution(trace, layer=1, head=0, query="it", key="animal")
    frame = why.frame()
    assert frame.columns.tolist() == ["query_writer", "key_writer", "term"]
    assert len(frame) == why.terms.size
    assert (frame.term.abs().diff().dropna() <= 0).all()
    shown = repr(why).splitlines()
    assert shown[0].startswith("<Attribution of layer=1, head=0, 'it' looking at 'animal': ")
    assert [line.split()[-1] for line in shown[2:]] == [
        *(f"{term:.6f}" for term in frame.term[:4]),
        f"{frame.term[4]:.6f}>",
    ]
    few = why.largest(3)
    assert few.terms.shape == (4, 4)
    assert [writer.label for writer in few.query_writers][-1] == "rest"
    assert few.terms.sum() == pytest.approx(why.terms.sum())
    assert frame.query_writer[0] in [writer.label for writer in few.query_writers]
    assert why.largest(len(why.terms)).query_writers == why.query_writers


PLACE = {"layer": 0, "head": 0, "query": 0, "key": 0}


def test_refusals_give_the_reason(refused, monkeypatch):
    trace = mha.trace("How are you?", h=2, d_model=8, layers=2)
    layer, labels = trace.layers[0], ["How", "are", "you", "?"]
    weights = mha.from_weights([np.full((2, 2, 2), 0.5)], tokens=["a", "b"])
    arrays = mha.from_tensors(q=[layer.q.copy()], k=[layer.k.copy()], v=[layer.v.copy()], tokens=labels)
    for given, place, said in (
        (weights, {}, "only its weights are known"),
        (arrays, {}, "runs nothing"),
        (trace, {"head": 2}, "head"),
        (trace, {"layer": 2}, "layer"),
        (trace, {"query": "who"}, "who"),
        *(
            (wrong, {}, "A trace is needed, as mha.trace(text) returns it")
            for wrong in (None, 1, "a text", [])
        ),
    ):
        assert said in str(refused(mha.attribution, given, **PLACE | place))
    monkeypatch.setattr("mha_core.interventions.attribution.MAX_NUMBERS", 2 * 8 * 3)
    said = "16 numbers into each of 4 tokens, too many to hold; 3 tokens"
    assert said in str(refused(mha.attribution, trace, **PLACE | {"layer": 1}))
    assert mha.attribution(trace, **PLACE).terms.size


def adopted(family: str, dtype: str = "float32") -> huggingface.Model:
    built = tiny.model(family).to(huggingface.DTYPES[dtype])
    return huggingface.model_of(built, tokenizer=tiny.tokenizer(built))


def traced(model: huggingface.Model, length: tuple[int, int]) -> mha.AttentionTrace:
    text, target = tiny.texts(length)
    return huggingface.follow(model, text, target=target if model.has_target else None)


def attributions(model: huggingface.Model, trace: mha.AttentionTrace) -> list[mha.Attribution]:
    """Of each layer the attribution of a cell, drawn at random."""
    draw = np.random.default_rng(0)
    found = []
    for at, layer in enumerate(trace.layers):
        sizes = {"head": layer.n_heads, "query": layer.n_query, "key": layer.n_key}
        place = {axis: int(draw.integers(size)) for axis, size in sizes.items()}
        found.append(mha.attribution(trace, layer=at, source=model, **place))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_another_model_and_a_limit_between_are_refused(refused):
    trace = traced(adopted("gpt2"), tiny.LENGTHS[0])
    assert "other numbers" in str(refused(mha.attribution, trace, source=adopted("gpt_neo"), **PLACE))
    squeeze = adopted("squeezebert")
    said = str(refused(mha.attribution, traced(squeeze, tiny.LENGTHS[0]), source=squeeze, **PLACE))
    assert re.search(r"not linear .*\(convolution\)", said)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_all_earlier_heads_are_writers_and_the_terms_are_the_score(family):
    """At two lengths, of a cell of each layer."""
    model = adopted(family)
    traces = [traced(model, length) for length in tiny.LENGTHS]
    found = [attributions(model, trace) for trace in traces]
    assert max(gap(why) for each in found for why in each) <= SHARE
    layers = traces[0].layers
    if len(layers) > 1 and {layer.kind for layer in layers} == {"self"}:
        wrote = {(one.layer, one.head) for why in found[0] for one in why.query_writers + why.key_writers}
        assert {(0, head) for head in range(layers[0].n_heads)} <= wrote


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", HALF_SHARE)
@pytest.mark.parametrize("family", ["gemma2", "gpt2"])
def test_in_half_precision_the_terms_are_the_score_within_its_rounding(family, dtype):
    model = adopted(family, dtype)
    for why in attributions(model, traced(model, tiny.LENGTHS[0])):
        assert gap(why) <= HALF_SHARE[dtype]
        assert gap(why) > 0
