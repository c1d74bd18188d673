"""Edits: the cells they act on, their effect on a score rule, and what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mha_core as mha
from mha_core import MhaError, edits
from mha_core.attention import masks
from mha_core.attention.edits import Site, by_layer, checked, edited
from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.traces.tokens import words

TEXT = words("the cat saw it because the dog ran")
H, L, D_K, D_V = 3, len(TEXT), 5, 7
SITE = Site("self", H, D_V, TEXT, TEXT)
EXAMPLES = [
    edits.Hide(rows="it", keys=["cat", 0], heads=-1, layer=-1),
    edits.Hide(keys="dog", kind="self"),
    edits.Mask(mask="causal", heads=[0, 2]),
    edits.Evict(keys=["cat", 0], since=4),
    edits.Exchange(one=3, other=1, since=5, layer=1),
    edits.Scale(factor=1.0),
    edits.Temperature(temperature=0.5, layer=0),
    edits.Bias(values=[[1.0, -2.0]], rows="it", keys=[0, 1]),
    edits.Weights(rows=["it", -1], heads=[0, 2]),
    edits.Weights(values=np.full((1, 2, L), 1 / L, np.float32), rows=[0, 3], heads=1),
    edits.Output(heads=1),
    edits.Output(values=np.arange(D_V), heads=[0, 1], rows=[2]),
]


def qkv(*batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*batch, H, L, d, generator=draw) for d in (D_K, D_K, D_V))


def layer_with(*changes: edits.Edit, rule: ScoreRule = ScoreRule()) -> mha.LayerTrace:
    q, k, v = qkv()
    return mha.LayerTrace({"q": q, "k": k, "v": v}, edited(rule, changes, SITE))


@pytest.mark.parametrize("edit", EXAMPLES, ids=repr)
def test_an_edit_is_a_value_that_json_keeps(edit):
    again = edits.read(json.loads(json.dumps(edit.to_json())))
    assert again == edit
    assert hash(again) == hash(edit)
    assert edit.describe()


@pytest.mark.parametrize("edit", EXAMPLES, ids=repr)
def test_the_layer_s_matrices_are_those_of_attend_with_a_batch_axis(edit):
    q, k, v = qkv()
    by_hand = isinstance(edit, edits.Weights) and edit.values is not None  # weight on all keys
    rule = edited(ScoreRule(mask=None if by_hand else masks.build("window", L, L)), [edit], SITE)
    layer = mha.LayerTrace({"q": q, "k": k, "v": v}, rule)
    output = attend(q[None], k[None], v[None], rule)[0]
    np.testing.assert_allclose(layer.output(), output, atol=1e-6)
    for head in range(H):  # for one head, for some rows and for one key it is the same
        np.testing.assert_allclose(layer.output(head, rows=[3, 1]), output[head, [3, 1]], atol=1e-6)
        np.testing.assert_array_equal(layer.weights(head, rows=[3]), layer.weights(head)[[3]])
    np.testing.assert_allclose(layer.column(2), layer.weights()[:, :, 2], atol=1e-6)
    assert mha.against_torch(layer).passed


def test_only_the_named_cells_are_hidden():
    plain, layer = layer_with(), layer_with(edits.Hide(rows="it", keys="dog", heads=1))
    hidden = ~layer.allowed()
    assert np.argwhere(hidden).tolist() == [[1, TEXT.index("it"), TEXT.index("dog")]]
    others = np.delete(plain.weights(1)[3], TEXT.index("dog"))
    np.testing.assert_allclose(
        np.delete(layer.weights(1)[3], TEXT.index("dog")), others / others.sum(), atol=1e-6
    )
    np.testing.assert_allclose(layer.weights(0), plain.weights(0), atol=1e-6)


def test_scale_and_temperature_in_numbers():
    raw = layer_with().scores()
    np.testing.assert_allclose(layer_with(edits.Scale(factor=1.0)).masked(), raw, atol=1e-6)
    hot = layer_with(edits.Temperature(temperature=2.0), edits.Temperature(temperature=3.0))
    expected = torch.softmax(torch.tensor(raw) * D_K**-0.5 / 6, -1)
    np.testing.assert_allclose(hot.weights(), expected, atol=1e-6)


def test_uniform_rows_share_what_they_may_look_at_whatever_the_order():
    for changes in (
        [edits.Weights(rows=3), edits.Hide(rows=3, keys=[0, 1])],
        [edits.Hide(rows=3, keys=[0, 1]), edits.Weights(rows=3)],
    ):
        layer = layer_with(*changes, rule=ScoreRule(mask=masks.build("causal", L, L)))
        np.testing.assert_allclose(layer.weights()[:, 3], [[0, 0, 0.5, 0.5, 0, 0, 0, 0]] * H)


def test_a_later_patch_lies_over_an_earlier_one():
    layer = layer_with(edits.Output(values=1.0), edits.Output(values=2.0, heads=0, rows=0))
    assert (layer.output(0)[0] == 2).all()
    assert (layer.output(0)[1:] == 1).all()
    assert (layer.output(1) == 1).all()


@pytest.mark.parametrize("mask", ["causal", "window:1", "prefix:3", "padding:2", "full"])
def test_a_mask_by_its_name_hides_beside_what_is_hidden(mask):
    before = ScoreRule(mask=masks.build("window:3", L, L))
    expected = before.hiding(masks.build(mask, L, L))
    changed = layer_with(edits.Mask(mask=mask, heads=1), rule=before)
    np.testing.assert_array_equal(changed.weights(1), layer_with(rule=expected).weights(1))
    np.testing.assert_array_equal(changed.weights(0), layer_with(rule=before).weights(0))


def test_a_patch_takes_the_numbers_of_another_trace():
    q, k, v = qkv()
    other = mha.LayerTrace({"q": k, "k": q, "v": v})
    rows = edits.Weights(values=other.weights(1, rows=[2, 5]), heads=1, rows=[2, 5])
    outputs = edits.Output(values=other.output(0, rows=[1]), heads=0, rows=1)
    layer = layer_with(rows, outputs)
    np.testing.assert_array_equal(layer.weights(1, rows=[2, 5]), other.weights(1, rows=[2, 5]))
    np.testing.assert_array_equal(layer.output(0, rows=[1]), other.output(0, rows=[1]))
    np.testing.assert_array_equal(layer.weights(0), layer_with().weights(0))


def test_edits_go_to_their_layers_and_kinds():
    sites = [SITE, Site("cross", H, D_V, TEXT, words("two more")), SITE]
    last, cross, every = edits.Hide(layer=-1, rows=0), edits.Scale(factor=1.0, kind="cross"), edits.Output()
    assert by_layer([last, cross, every], sites) == [(every,), (cross, every), (last, every)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: edits.Hide(heads=1), "needs rows= or keys="),
        (lambda: edits.Hide(rows=[]), "rows of an edit is empty"),
        (lambda: edits.Hide(rows=1.5), "row of an edit is a whole number"),
        (lambda: edits.Hide(rows=True), "row of an edit is a whole number"),
        (lambda: edits.Hide(rows=0, heads="it"), "head of an edit is a whole number"),
        (lambda: edits.Hide(rows=0, kind="mine"), "no kind of attention called 'mine'"),
        (lambda: edits.Mask(mask="diagonal"), "no mask called 'diagonal'"),
        (lambda: edits.Mask(mask="window:x"), "must be a whole number"),
        (lambda: edits.Mask(mask=3), "is a name, as 'causal'"),
        (lambda: edits.Scale(factor=float("nan")), "scale nan is no finite number"),
        (lambda: edits.Temperature(temperature=0), "out of range"),
        (lambda: edits.Temperature(temperature="hot"), "temperature of an edit is a number"),
        (lambda: edits.Scale(factor=10**400), "factor of an edit is a number"),
        (lambda: edits.Bias(values="much"), "a number or a table"),
        (lambda: edits.Bias(values=[[float("inf")]]), "finite numbers"),
        (lambda: edits.Weights(values=[0.7, 0.7]), "a row sums to 1 or less"),
        (lambda: edits.Weights(values=[-0.1, 0.7]), "at least 0"),
        (lambda: edits.Output(values=np.zeros((1, 1, 1, 1))), "three axes"),
        (lambda: checked("off"), "edits is a list of edits"),
        (lambda: checked([edits.Output()] * 65), "more than 64"),
        (
            lambda: by_layer([edits.Output(layer=2)], [SITE]),
            "layer 3” names a layer that is not there: there are 1, counted from 1",
        ),
        (lambda: by_layer([edits.Output(kind="cross")], [SITE]), "acts on no layer"),
        (
            lambda: layer_with(edits.Output(heads=H)),
            "head 4” names heads that are not there: there are 3, counted",
        ),
        (lambda: layer_with(edits.Hide(keys="bird")), "'bird'"),
        (lambda: layer_with(edits.Hide(keys="the")), "positions 0 and 5"),
        (lambda: layer_with(edits.Weights(values=[1.0])), "have shape"),
        (lambda: layer_with(edits.Output(values=np.zeros(D_V + 1))), "have shape"),
        (
            lambda: layer_with(
                edits.Weights(values=[0] * (L - 1) + [1]), rule=ScoreRule(mask=masks.build("causal", L, L))
            ),
            "hidden from its query",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused(change, message):
    with pytest.raises(MhaError, match=message):
        change()


def test_a_patch_that_would_fill_the_memory_is_refused_before_it_is_laid_out(monkeypatch):
    long = words("word " * 3000)
    monkeypatch.setattr("mha_core.attention.edits.torch.where", lambda *_: pytest.fail("laid out"))
    with pytest.raises(MhaError, match="9,000,000 numbers in a layer"):
        edited(ScoreRule(), [edits.Weights()], Site("self", H, D_V, long, long))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["edit", "layer", "kind", "heads", "rows", "keys", "values", "factor", "mask", "temperature"]
        ),
        st.sampled_from([*edits.TYPES, "self", "causal", 0, 1, -1, 0.5, [0], [[0.5, 0.5]]]) | junk,
    )
)
@pytest.mark.slow
def test_any_values_of_a_file_are_an_edit_or_refused(values):
    try:
        edit = edits.read(values)
    except (MhaError, TypeError, KeyError):
        return
    try:
        rule = edited(ScoreRule(), [edit], SITE)
    except MhaError:
        return
    q, k, v = qkv()
    assert attend(q, k, v, rule).isfinite().all()


@pytest.mark.parametrize("number", [np.array(1), torch.tensor(1), np.int64(1)], ids=repr)
def test_a_number_without_an_axis_is_one_number(number):
    assert edits.Hide(rows=number, keys=number) == edits.Hide(rows=1, keys=1)
