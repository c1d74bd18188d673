"""The nine steps show what was computed: their formulas, matrices and facts are those of the trace."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core.analysis.derivation import FORMULAS, STEPS, Step, steps
from mha_core.traces.facts import Facts

NAMES = ["project", "split", "scores", "scale", "mask", "softmax", "mix", "concat", "output"]
PAPER = {"text": "How are", "d_model": 512, "h": 8, "d_k": 64, "d_v": 100}
GROUPED = {"text": "the cat saw the dog", "d_model": 11, "h": 6, "n_kv_heads": 3, "d_k": 3, "d_v": 7}
SETTINGS = {
    "even": {"text": "one two three", "d_model": 64, "h": 4},
    "d_v 100": PAPER,
    "grouped": GROUPED,
    "causal, alibi, two layers": GROUPED | {"mask": "causal", "position": "alibi", "layers": 2},
    "rotary without bias": {"text": "a b c d", "d_model": 6, "h": 3, "position": "rotary", "bias": False},
    "one token": {"text": "alone", "d_model": 2, "h": 1},
    "many heads": {"text": "a b", "d_model": 24, "h": 12},
}
# How a formula writes each matrix, without the number of the head.
LETTERS = {
    "x": "X",
    "q": "Q",
    "k": "K",
    "v": "V",
    "scores": "S",
    "scaled": "S",
    "masked": "S",
    "weights": "A",
    "output": r"\text{head}",
    "concat": r"\text{concat}",
    "contribution": "",
    "result": "Z",
}
EMPTY_ROWS = np.array([[True, True, False], [False, False, False], [True, False, False]])


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def trace(request):
    return mha.trace(**request.param)


def told(trace: mha.AttentionTrace, head: int = 0, layer: int = 0) -> dict[str, Step]:
    return {step.name: step for step in steps(trace, layer=layer, head=head)}


def values(pictures) -> dict[str, np.ndarray]:
    return {picture.name: picture.frame.to_numpy() for picture in pictures}


def plain(formula: str) -> str:
    """A formula as one reads it: without white space and spacing commands."""
    return re.sub(r"\\[;,!]|\s", "", formula).replace(r"{\cdot}", "·")


def sizes_under(formula: str) -> dict[str, list[str]]:
    r"""What ``\underset{rows \times columns}{symbol}`` says, by symbol."""
    found = {}
    for under, symbol in re.findall(r"\\underset\{(.*?\\times.*?)\}\{((?:[^{}]|\{[^{}]*\})*)\}", formula):
        rows, columns = under.split(r"\times")
        found[symbol] = [side.replace(r"{\cdot}", "·").strip() for side in (rows, columns)]
    return found


def number(size: str) -> int:
    """``8·100`` is 800."""
    return int(np.prod([int(factor) for factor in size.split("·")]))


def test_there_are_nine_steps_in_the_order_of_the_computation(trace):
    assert [step.name for step in steps(trace, layer=0, head=0)] == NAMES
    assert [step.__name__ for step in STEPS] == NAMES
    assert list(FORMULAS) == NAMES


# Formulas


def test_every_formula_is_balanced_and_filled_in(trace):
    last = trace.layers[0].n_heads - 1
    for step in told(trace, last).values():
        # A brace after a backslash is a character, not a group.
        groups = re.sub(r"\\[{}]", "", step.formula)
        depth = np.cumsum([{"{": 1, "}": -1}.get(character, 0) for character in groups])
        assert depth[-1] == 0, step.name
        assert (depth >= 0).all(), step.name
        assert step.formula.count(r"\begin") == step.formula.count(r"\end")
        left = step.formula.replace(r"\sqrt{d_k}", "")  # the one size that is meant as a letter
        for word in ("d_model", "d_k", "d_v", "n_kv", "scale", "None", "[", "]"):
            assert word not in left, step.name


def test_the_sizes_in_the_formulas_are_those_of_the_matrices(trace):
    layer, last = trace.layers[0], trace.layers[0].n_heads - 1
    for step in told(trace, last).values():
        shapes = {LETTERS[picture.name]: picture.frame.shape for picture in step.before + step.after}
        for letter in "QKVO":
            shapes[f"W^{letter}"] = tuple(getattr(layer.projections, f"w_{letter.lower()}").shape)
        for symbol, sizes in sizes_under(step.formula).items():
            stated = tuple(number(size) for size in sizes)
            if symbol == "Q":  # of all heads
                assert stated == (layer.n_query, layer.n_heads * layer.d_k), step.name
            elif symbol.endswith(r"^{\top}"):
                assert stated == shapes["K"][::-1], step.name
            else:
                assert stated == shapes[symbol.partition("_")[0]], (step.name, symbol)


def test_the_formulas_of_a_layer_with_wide_values_carry_its_numbers():
    found = {name: sizes_under(step.formula) for name, step in told(mha.trace(**PAPER), head=6).items()}
    assert found["project"] == {
        "X": ["2", "512"],
        "W^Q": ["512", "8·64"],
        "Q": ["2", "8·64"],
        "W^K": ["512", "8·64"],
        "K": ["2", "8·64"],
        "W^V": ["512", "8·100"],
        "V": ["2", "8·100"],
    }
    assert found["scores"] == {"Q_{7}": ["2", "64"], r"K_{7}^{\top}": ["64", "2"], "S_{7}": ["2", "2"]}
    assert found["mix"] == {"A_{7}": ["2", "2"], "V_{7}": ["2", "100"], r"\text{head}_{7}": ["2", "100"]}
    assert found["concat"] == {r"\text{concat}": ["2", "8·100"]}
    assert found["output"] == {
        r"\text{concat}": ["2", "8·100"],
        "W^O": ["8·100", "512"],
        "Z": ["2", "512"],
    }


def test_the_formulas_name_the_head_its_key_head_and_the_scale():
    found = {name: plain(step.formula) for name, step in told(mha.trace(**GROUPED), head=3).items()}
    assert "Q_{4}" in found["split"]
    assert found["split"].endswith("Q_{6}")
    assert r"Q_{4}}\underset{3\times5}{K_{2}^{\top}}" in found["scores"]
    assert found["scale"].endswith(r"=S_{4}\cdot{0.5774}")
    assert r"{V_{2}}" in found["mix"]
    assert found["concat"].startswith(r"\text{head}_1\Vert…\Vert\text{head}_{6}=")


def test_the_formulas_count_the_key_heads_of_a_grouped_layer():
    found = sizes_under(told(mha.trace(**GROUPED))["project"].formula)
    assert (found["W^Q"][1], found["W^K"][1], found["W^V"][1]) == ("6·3", "3·3", "3·7")


# Matrices


def test_each_step_shows_the_layers_matrices_before_and_after(trace):
    layer = trace.layers[0]
    for head in {0, layer.n_heads - 1}:
        kv = head // (layer.n_heads // layer.n_kv_heads)
        found = told(trace, head)
        own = {name: getattr(layer, name)(head) for name in ("scores", "scaled", "masked", "weights")}
        own |= {"q": layer.q[head], "k": layer.k[kv], "v": layer.v[kv], "x": layer.x}
        own |= {"output": layer.output(head), "contribution": layer.contribution(head)}
        own |= {"concat": layer.concat(), "result": layer.result()}
        expected = {
            "project": ("x", None),
            "split": ("", "q k v"),
            "scores": ("q k", "scores"),
            "scale": ("scores", "scaled"),
            "mask": ("scaled", "masked"),
            "softmax": ("masked", "weights"),
            "mix": ("weights v", "output"),
            "concat": ("output", "concat"),
            "output": ("concat", "contribution result"),
        }
        for name, (before, after) in expected.items():
            assert [picture.name for picture in found[name].before] == before.split()
            if after is not None:
                assert [picture.name for picture in found[name].after] == after.split()
                for matrix, shown in values(found[name].after).items():
                    np.testing.assert_array_equal(shown, own[matrix])
            for matrix, shown in values(found[name].before).items():
                np.testing.assert_array_equal(shown, own[matrix])


def test_the_projections_show_all_heads_side_by_side_as_one_product_made_them(trace):
    layer = trace.layers[0]
    shown = values(told(trace)["project"].after)
    for name in "qkv":
        np.testing.assert_array_equal(shown[name], np.hstack(list(getattr(layer, name))))
    if trace.source.position != "rotary":  # rotary turns Q and K after the product
        p = layer.projections
        for name, weight, bias in (("q", p.w_q, p.b_q), ("k", p.w_k, p.b_k), ("v", p.w_v, p.b_v)):
            product = layer.x @ weight.numpy() + (0 if bias is None else bias.numpy())
            np.testing.assert_allclose(shown[name], product, atol=1e-5)


def test_the_framed_columns_are_the_heads_own(trace):
    layer = trace.layers[0]
    for head in {0, layer.n_heads // 2, layer.n_heads - 1}:
        found = told(trace, head)
        kv = head // (layer.n_heads // layer.n_kv_heads)
        for picture in found["project"].after:
            first, behind = picture.framed
            own = layer.q[head] if picture.name == "q" else getattr(layer, picture.name)[kv]
            np.testing.assert_array_equal(picture.frame.to_numpy()[:, first:behind], own)
        [concat] = found["concat"].after
        np.testing.assert_array_equal(concat.frame.to_numpy()[:, slice(*concat.framed)], layer.output(head))
        unframed = [found[name] for name in NAMES if name not in ("project", "concat")]
        assert {p.framed for step in unframed for p in step.before + step.after} == {None}


def test_the_packed_matrices_have_words_on_one_axis_and_numbers_on_the_other(trace):
    for picture in told(trace)["project"].after:
        assert tuple(picture.frame.index) == trace.tokens.labels
        pd.testing.assert_index_equal(
            picture.frame.columns, pd.RangeIndex(1, picture.frame.shape[1] + 1), exact=True
        )
        assert (picture.symbol, picture.kind) == (picture.name.upper(), "signed")


def test_the_steps_of_a_later_layer_are_that_layers():
    trace = mha.trace(**SETTINGS["causal, alibi, two layers"])
    before, now = told(trace), told(trace, layer=1)
    [z] = [picture.frame for picture in before["output"].after if picture.name == "result"]
    np.testing.assert_allclose(values(now["project"].before)["x"], z, atol=1e-6)
    np.testing.assert_array_equal(values(now["softmax"].after)["weights"], trace.layers[1].weights(0))


@pytest.mark.parametrize("head", [-5, 4])
def test_a_head_that_is_not_there_is_refused(head):
    with pytest.raises(mha.MhaError, match=rf"heads 0 to 3; head {head} was asked for"):
        steps(mha.trace("a b", h=4, d_model=8), layer=0, head=head)


def test_a_lookup_says_that_v_is_made_of_embeddings_and_shows_them():
    trace = mha.trace("the cat saw [MASK]", source="mini", h=4, d_model=32, trained=False)
    block, lookup = (told(trace, head=2, layer=layer)["project"] for layer in (0, 1))
    assert (block.notes, lookup.notes) == (("why",), ("why", "values"))
    assert [[p.name for p in step.before] for step in (block, lookup)] == [["x"], ["x", "x_v"]]
    np.testing.assert_array_equal(values(lookup.before)["x_v"], trace.layers[1].x_v)
    # E stands where V is made of it, once, and X everywhere else; the sizes are the same.
    assert block.formula.replace("{X}", "{E}").count("{E}") == 3
    first, last = lookup.formula.split("{E}")
    assert first + "{X}" + last == block.formula
    assert first.count("{X}") == 2
    assert "W^V" in last
    assert "W^V" not in first
    assert told(trace, layer=1)["split"].facts["difference"] == 0.0


# Facts


def test_the_facts_know_the_sizes_and_count_from_one(trace):
    layer, last = trace.layers[0], trace.layers[0].n_heads - 1
    for step in told(trace, last).values():
        expected = {
            "i": last + 1,
            "kv": layer.n_kv_heads,
            "L": len(trace.tokens),
            "d_model": layer.d_model,
            "h": layer.n_heads,
            "n_kv": layer.n_kv_heads,
            "d_k": layer.d_k,
            "d_v": layer.d_v,
            "scale": f"{layer.d_k**-0.5:.4g}",
        }
        assert step.facts.items() >= expected.items()


@pytest.mark.parametrize(
    "settings", [s for s in SETTINGS.values() if s.get("position") != "rotary"], ids=lambda s: s["text"]
)
def test_both_views_of_the_split_agree_to_the_last_bit(settings):
    assert told(mha.trace(**settings))["split"].facts["difference"] == 0.0


def test_rotary_positions_do_not_spoil_the_comparison_of_the_split():
    assert told(mha.trace(**SETTINGS["rotary without bias"]))["split"].facts["difference"] == 0.0


def test_the_largest_score_is_the_largest_and_its_tokens_are_named(trace):
    for head in {0, trace.layers[0].n_heads - 1}:
        raw = trace.layers[0].scores(head)
        row, column = np.unravel_index(raw.argmax(), raw.shape)
        facts = told(trace, head)["scores"].facts
        assert facts["score"] == raw.max()
        assert (facts["query"], facts["key"]) == (trace.tokens.labels[row], trace.tokens.labels[column])


def test_scaling_shrinks_the_spread_by_the_scale(trace):
    facts = told(trace)["scale"].facts
    assert facts["spread_before"] == pytest.approx(trace.layers[0].scores(0).std())
    assert facts["spread_after"] == pytest.approx(facts["spread_before"] * trace.layers[0].scale, rel=1e-5)


@pytest.mark.parametrize(
    ("mask", "hidden"), [("full", 0), ("causal", 10), ("window:1", 12), ("padding:2", 10), ("prefix:2", 9)]
)
def test_hidden_cells_are_counted(mask, hidden):
    facts = told(mha.trace("a b c d e", h=2, d_model=4, mask=mask))["mask"].facts
    assert (facts["hidden"], facts["cells"]) == (hidden, 25)


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "alibi"])
def test_only_alibi_adds_to_the_scores(position):
    notes = told(mha.trace("a b c", h=2, d_model=4, position=position))["mask"].notes
    assert ("biased" in notes) is (position == "alibi")


def test_what_is_said_is_what_happened():
    plain = told(mha.trace("a b c", h=2, d_model=4))
    assert [plain[name].notes for name in ("split", "mask", "softmax", "mix")] == [
        ("why", "same"),
        ("none",),
        ("why",),
        ("why",),
    ]
    special = told(mha.trace("a b c", h=2, d_model=4, n_kv_heads=1, position="rotary", mask=EMPTY_ROWS))
    assert [special[name].notes for name in ("split", "mask", "softmax")] == [
        ("why", "same", "shared", "rotary"),
        ("why",),
        ("why", "empty"),
    ]


def test_rows_that_see_nothing_are_counted_and_left_out_of_the_sums():
    trace = mha.trace("a b c", h=2, d_model=4, mask=EMPTY_ROWS)
    found = told(trace)
    assert found["mask"].facts["hidden"] == 6
    assert found["softmax"].facts["empty"] == 1
    assert found["softmax"].facts["off"] <= 1e-6
    np.testing.assert_array_equal(values(found["softmax"].after)["weights"][1], 0.0)


def test_a_text_that_is_hidden_altogether_has_steps_too():
    found = told(mha.trace("a b c", h=2, d_model=4, mask=np.zeros((3, 3), bool)))
    assert (found["mask"].facts["hidden"], found["softmax"].facts["empty"]) == (9, 3)
    assert found["softmax"].facts["off"] == 0.0


def test_every_row_of_weights_sums_to_one(trace):
    facts = told(trace)["softmax"].facts
    assert facts["empty"] == 0
    assert 0 <= facts["off"] <= 1e-6


def test_the_shares_of_all_heads_give_the_output_again(trace):
    assert told(trace)["output"].facts["difference"] <= 1e-5


# Models whose attention is not the plain one


def of_rule(**rule) -> mha.AttentionTrace:
    draw = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=draw) for _ in range(3))
    return mha.from_tensors(q=q, k=k, v=v, tokens=["a", "b", "c"], rule=mha.ScoreRule(**rule))


def test_a_scale_of_its_own_is_not_called_the_root_of_d_k():
    step = told(of_rule(scale=0.3))["scale"]
    assert step.notes == ("own",)
    assert "sqrt" not in step.formula
    assert "0.3" in step.formula
    assert told(of_rule(scale=0.5))["scale"].notes == ("why",)


def test_what_is_added_by_the_words_is_not_said_to_be_of_their_places():
    trace = of_rule(bias=torch.ones(2, 3, 3))
    layer = replace(trace.layers[0], about=Facts(bias="It depends on the words."))
    assert set(told(replace(trace, layers=(layer,)))["mask"].notes) == {"none", "by_words"}


def test_what_is_added_capped_and_sunk_is_said():
    assert set(told(of_rule(bias=torch.ones(2, 3, 3)))["mask"].notes) == {"none", "added"}
    assert set(told(of_rule(distance_bias=torch.ones(2, 5)))["mask"].notes) == {"none", "added"}
    assert set(told(of_rule(soft_cap=5.0))["mask"].notes) == {"none", "capped"}
    sunk = told(of_rule(sinks=torch.ones(2)))["softmax"]
    assert sunk.notes == ("sinks",)
    assert 0 < sunk.facts["least"] <= sunk.facts["most"] < 1
