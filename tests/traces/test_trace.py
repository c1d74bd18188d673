"""A trace never changes, stores little more than Q, K and V, and names the axes of its tables."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mha_core as mha
from mha_core.traces.matrices import MATRICES

PER_HEAD = ("scores", "scaled", "masked", "weights", "allowed", "output", "contribution")


def readings(trace):
    return [
        array.tobytes()
        for layer in trace.layers
        for array in (
            layer.q, layer.k, layer.v, layer.x, layer.concat(), layer.result(),
            *(getattr(layer, name)(head) for name in PER_HEAD for head in (None, 0)),
        )
    ]  # fmt: skip


def test_reading_changes_nothing_also_in_eight_threads():
    settings = {"h": 6, "n_kv_heads": 2, "d_model": 12, "layers": 3, "mask": "causal", "position": "alibi"}
    shared, alone = (mha.trace("the old cat saw the new cat", **settings) for _ in range(2))
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda _: readings(shared), range(24)))
    assert all(one == readings(alone) for one in read)


# What a trace holds


def stored_bytes(trace):
    """Bytes of the storages behind a trace: of queries, keys and values; of everything but the weights."""
    bytes_of = {}
    counted = {}
    for layer in trace.layers:
        for name, tensor in [*layer.tensors.items(), *layer.rule.tensors().items()]:
            storage = tensor.untyped_storage()
            bytes_of[storage.data_ptr()] = storage.nbytes()
            if name in ("q", "k", "v"):
                counted[storage.data_ptr()] = storage.nbytes()
    return sum(counted.values()), sum(bytes_of.values())


@pytest.mark.parametrize(("n_tokens", "position"), [(127, "sinusoidal"), (127, "rotary"), (509, "alibi")])
def test_a_trace_holds_at_most_half_again_of_queries_keys_and_values(n_tokens, position):
    trace = mha.trace("a " * n_tokens, position=position)
    qkv, everything = stored_bytes(trace)
    assert qkv == 3 * n_tokens * 512 * 4
    assert everything <= 1.5 * qkv
    masked = mha.trace("a " * n_tokens, position=position, mask="causal", layers=2)
    assert stored_bytes(masked)[1] - n_tokens**2 <= 2 * everything  # layers share their mask


def test_reading_matrices_leaves_nothing_in_memory():
    trace = mha.trace("a " * 127, h=3, d_model=15)
    before = stored_bytes(trace)
    readings(trace)
    assert stored_bytes(trace) == before
    shown = sum(array.nbytes for array in vars(trace.layers[0]).values() if isinstance(array, np.ndarray))
    assert shown <= before[1]  # only views of q, k, v and x may stay


# Tables


def test_a_trace_is_one_short_line_whatever_its_text():
    trace = mha.trace("How are you?", h=4, d_model=64, layers=2)
    assert repr(trace) == (
        "<AttentionTrace 'How are you?': 4 tokens, 2 layers (4 heads); "
        "random weights, seed 0, mask: full, positions: sinusoidal>"
    )
    assert repr(mha.trace("one", h=1, d_model=2)).startswith(
        "<AttentionTrace 'one': 1 token, 1 layer (1 head); "
    )
    assert len(repr(mha.trace("word " * 300, h=1, d_model=2))) < 250


PICKS = [{"rows": -2, "keys": np.array([2, 0, 1])}, {"rows": [], "keys": slice(None, None, 2)}]


@pytest.mark.parametrize("picked", PICKS, ids=str)
def test_a_crop_of_a_frame_is_cut_out_of_the_whole_and_layers_and_heads_count_from_the_end(picked, glass_box):
    assert (glass_box.layer(-1), glass_box.layer_index(-2)) == (glass_box.layers[1], 0)
    at = {"token": "rows", "query": "rows", "key": "keys"}
    for name in MATRICES.keys() - {"x_v"}:  # which no small model has
        whole, crop = (
            glass_box.frame(name, layer=1, head=3),
            glass_box.frame(name, layer=-1, head=-1, **picked),
        )
        rows, columns = (picked.get(at.get(axis), slice(None)) for axis in MATRICES[name].axes)
        rows, columns = ([pick] if isinstance(pick, int) else pick for pick in (rows, columns))
        expected = whole.iloc[rows, columns]
        pd.testing.assert_frame_equal(crop, expected, rtol=1e-4, atol=1e-6, check_index_type=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "queries", "head": 0},
            "There is no matrix called 'queries'; x, x_v, q, k, v, scores, scaled, masked, weights, output, "
            "concat, contribution or result can be used.",
        ),
        ({"name": "x_v"}, "This layer has no inputs of its own for V: they are X."),
        ({"name": "q"}, "q is a matrix of one head; say which, as in head=0."),
        ({"name": "q", "head": 4}, "This layer has heads 0 to 3; head 4 was asked for."),
        ({"name": "weights", "head": -5}, "This layer has heads 0 to 3; head -5 was asked for."),
        ({"name": "x", "layer": 2}, "This trace has layers 0 to 1; layer 2 was asked for."),
        ({"name": "x", "layer": -3}, "This trace has layers 0 to 1; layer -3 was asked for."),
        ({"name": "x", "rows": [5]}, "This layer has rows 0 to 4; row 5 was asked for."),
        ({"name": "v", "head": 0, "keys": -6}, "This layer has keys 0 to 4; key -6 was asked for."),
    ],
)
def test_a_frame_that_does_not_exist_is_refused(arguments, message, own_values, refused):
    error = refused(own_values.frame, **arguments)
    assert str(error) == message
    for fix in error.fixes:
        if not fix.keys() & {"row", "key"}:
            own_values.frame(**{"layer": 1, **arguments, **fix})  # whose V has an input of its own


# Answers


@pytest.mark.parametrize("count", [4, 6])
def test_answers_for_another_number_of_tokens_are_refused(own_values, count, refused):
    answers = (None,) * count
    error = refused(mha.AttentionTrace, own_values.tokens, own_values.layers, "by hand", answers)
    assert str(error) == f"5 tokens cannot go with {count} answers."
    error = refused(replace, own_values, questions={"noun": (None,) * 5, "doer": answers})
    assert str(error) == f"5 tokens cannot go with {count} answers to 'doer'."
    assert "questions are a mapping" in str(refused(replace, own_values, questions=answers))


def test_questions_belong_to_a_trace_for_good_and_to_its_part(own_values):
    questions = {"noun": ((("cat", 0.75),), *(None,) * 4)}
    trace = replace(own_values, questions=questions)
    questions["doer"] = ()
    assert list(trace.questions) == ["noun"]
    with pytest.raises(TypeError):
        trace.questions["doer"] = ()
    assert trace.part("self").questions == trace.questions
    layers = tuple(replace(layer, kind="encoder") for layer in trace.layers)
    assert replace(trace, layers=layers).part("encoder").questions == trace.questions
    copies = [pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace), replace(trace)]
    assert [one.questions for one in copies] == [trace.questions] * 3


# As arrays with names


@pytest.mark.parametrize("name", ["x", "q", "k", "v", "weights", "contribution", "concat", "result"])
def test_an_array_with_names_holds_the_frames_of_all_heads_and_layers(name):
    trace = mha.trace("the cat saw the dog", h=6, n_kv_heads=2, d_model=12, layers=2, mask="causal")
    found = trace.to_xarray(name)
    assert found.dims[0] == "layer"
    assert found.sizes["layer"] == len(trace.layers)
    for number, layer in enumerate(trace.layers):
        one = trace.to_xarray(name, layer=number)
        assert one.identical(found.isel(layer=number).drop_vars("layer"))
        for head in range(layer.n_heads):
            frame = trace.frame(name, layer=number, head=head)
            own = {"kv_head": layer.kv_head(head)} if "kv_head" in one.dims else {"head": head}
            values = one.sel(own) if set(own) <= set(one.dims) else one
            alone = trace.to_xarray(name, head=head).isel(layer=number)
            np.testing.assert_allclose(alone, values, atol=1e-6)
            np.testing.assert_allclose(values, frame, atol=1e-6)
            assert [*alone.dims] == [*values.dims] == [*MATRICES[name].axes]
            for dim in {"query", "key", "token"} & set(values.dims):
                assert tuple(values[dim].values) == ("the~1", "cat", "saw", "the~2", "dog")


def test_arrays_that_do_not_exist_are_refused(refused):
    one, other = (mha.trace("a b", h=h, d_model=12) for h in (3, 4))
    both = mha.AttentionTrace(one.tokens, (*one.layers, *other.layers), "both")
    assert both.to_xarray("weights", layer=1).shape == (4, 2, 2)
    assert both.to_xarray("weights", head=2).shape == (2, 2, 2)
    for trace, asked, said in (
        (both, {}, "say which, as in layer=0"),
        (both, {"head": 3}, "head 3"),
        (both, {"layer": 2}, "layer 2 was asked for"),
        (both, {"name": "a"}, "no matrix called 'a'"),
        (one, {"name": "x_v"}, "they are X"),
        (replace(one, layers=()), {}, "layer 0"),
    ):
        assert said in str(refused(trace.to_xarray, **{"name": "weights"} | asked))


def test_an_array_with_names_is_asked_by_word_and_says_where_it_comes_from(refused, monkeypatch):
    trace = mha.trace("the cat saw it", h=3, d_model=15, layers=2)
    found = trace.to_xarray("weights", layer=1)
    assert found.name == "weights"
    assert float(found.sel(head=2, query="it", key="cat")) == float(trace.layers[1].weights(2)[3, 1])
    assert found.attrs["text"] == "the cat saw it"
    assert found.attrs["source"].startswith("random weights, seed 0")
    assert trace.frame("weights", head=0).attrs == found.attrs
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert "pip install xarray" in str(refused(trace.to_xarray, "weights"))


# As a figure


def test_a_figure_is_drawn_with_its_numbers_words_and_source(refused):
    trace = mha.trace("the <b> saw it", h=3, d_model=12, mask="causal")
    [layer] = trace.layers
    for name in ("weights", "masked", "q", "result"):
        figure = trace.figure(name, layer=0, head=2)
        frame = trace.frame(name, layer=0, head=2).to_numpy()
        shown = layer.allowed(2) if name in ("weights", "masked") else np.isfinite(frame)
        np.testing.assert_array_equal(figure.data[0].z, np.where(shown, frame, np.nan))
        assert (figure.data[0].zmin == 0) == (name == "weights")
        head = "" if name == "result" else ", head 2"
        assert figure.layout.title.text.startswith(f"{name}, layer 0{head} · random weights, seed ")
    assert figure.layout.yaxis.title.text == "token"
    assert figure.data[0].y == ("the", "&lt;b&gt;", "saw", "it")
    assert trace.figure("weights", head=0).layout.xaxis.title.text == "key: word looked at"
    marked = replace(trace, source="<img src=x>").figure("weights", head=0)
    assert "· &lt;img src=x&gt;" in marked.layout.title.text
    assert "say which, as in head=0" in str(refused(trace.figure, "weights"))
    assert "layer 9" in str(refused(trace.figure, "weights", layer=9, head=0))


@pytest.mark.parametrize("name", ["tokens", "layers", "mixers"])
@pytest.mark.parametrize("wrong", [None, 1, "text", [3], np.zeros(2)], ids=repr)
def test_parts_of_another_type_are_refused_by_name(name, wrong, refused):
    parts = {"tokens": mha.words("a b"), "layers": (), "source": "mine", "mixers": ()}
    assert f"{name} are " in str(refused(mha.AttentionTrace, **parts | {name: wrong}))
