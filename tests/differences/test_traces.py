"""Two runs: ports of GPT-2, Llama and BERT with planted faults, other precisions and orders of heads."""

import copy

import pytest
import torch
from torch import nn

import mha_core as mha
from mha_core.errors import MhaError
from tests.differences.ports import ROWS, SHARED, VARIANTS, D, H, Port, changed

IDS = ([3, 5, 7, 9, 2, 4, 8], [11, 12, 13, 14, 15], [1, 2, 3, 4, 5, 6, 7, 8, 9])
N_PADDED = 3
EQUAL = "The two runs are equal within rounding, up to W^O of the last layer compared."


@pytest.fixture(scope="module")
def models():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "bos_token_id": None, "eos_token_id": None}
    gpt2 = transformers.GPT2Config(n_embd=D, n_head=H, n_layer=2, n_positions=16, **sizes)
    llama = transformers.LlamaConfig(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=SHARED, num_hidden_layers=2, **sizes
    )
    bert = transformers.BertConfig(
        hidden_size=D, num_attention_heads=H, num_hidden_layers=2, intermediate_size=2 * D, vocab_size=40
    )
    made = {
        "gpt2": transformers.GPT2Model(gpt2).eval(),
        "llama": transformers.LlamaModel(llama).eval(),
        "bert": transformers.BertModel(bert).eval(),
    }
    for model in made.values():
        for weight in model.parameters():
            weight.data.normal_(0, 0.2)
    found = {name: (model, [mha.trace(ids, source=model) for ids in IDS]) for name, model in made.items()}
    padded = {f"{name} padded": (made[name], recorded(made[name], padded=True)) for name in ("gpt2", "bert")}
    return found | padded


def recorded(model: nn.Module, *, padded: bool = False):
    """A recorder of each text, alone or as the second of two whose end is padding."""
    recorders = []
    for ids in IDS:
        batch = torch.tensor([ids[::-1], ids] if padded else [ids])
        keep = torch.ones(batch.shape, dtype=torch.bool)
        keep[1:, -N_PADDED:] = False
        tokens = [str(one) for one in ids]
        with torch.no_grad(), mha.record(model, tokens=tokens, item=len(batch) - 1) as recorder:
            model(batch, attention_mask=keep)
        recorders.append(recorder)
    return recorders


def compared(models, name: str, *parts: str) -> mha.Difference:
    """A port with parts of its code replaced, beside its model of transformers."""
    model, theirs = models[name]
    name, *padded = name.split()
    port = Port(name, copy.deepcopy(model), changed(name, *parts)).eval()
    return mha.difference(recorded(port, padded=bool(padded)), theirs)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1] or 'unknown'}")
def test_a_port_differs_where_its_fault_is_and_for_that_reason(models, row):
    name, cause, matrix, *parts = row
    found = compared(models, name, *parts)
    assert (found.matrix, found.layer) == (matrix, 0)
    named = [" & ".join(f"{one.term}={one.value}" for one in causes) for causes in found.causes]
    assert named == ([cause] if cause else [])
    assert all(one.sentence in str(found) for causes in found.causes for one in causes)
    is_drawn = found.mine is not None and found.mine.shape == found.theirs.shape
    assert found._repr_html_().count("<svg") == 3 * is_drawn


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: " ".join(row)[:40])
def test_a_right_port_is_equal(models, row):
    assert str(compared(models, *row)) == EQUAL


def test_what_follows_w_o_of_the_last_layer_is_not_called_equal(models):
    model, theirs = models["gpt2"]
    scaled = changed("gpt2", "self.c_proj(y)", "self.c_proj(y) * 1.1")
    port = Port("gpt2", copy.deepcopy(model), scaled).eval()
    port.attention[0] = changed("gpt2")(port.blocks[0].attn)
    assert str(mha.difference(recorded(port), theirs)) == EQUAL


def test_layers_that_only_one_run_has_are_not_called_equal():
    one, two = (mha.trace("How are you?", h=4, d_model=32, layers=n) for n in (1, 2))
    found = mha.difference(one, two)
    assert found.is_equal
    assert str(found).splitlines()[0] == "Layers after layer 1 are not compared: one run has 1, the other 2."


def test_a_w_o_that_was_not_recorded_is_not_called_equal(models):
    in_parts = "sum(one @ w for one, w in zip(heads.unbind(1), self.wo.split(D // H)))"
    found = compared(models, "llama", "heads.transpose(1, 2).reshape(b, n, -1) @ self.wo", in_parts)
    assert found.is_equal
    assert "W^O and its bias were not recorded in both runs of layer 2" in str(found)


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("self.c_proj(y)", "y", "lost"),
        ("self.c_proj(y)", "y @ self.c_proj.weight.T", "no bias"),
        ("dim=-1", "dim=1", "heads"),
        ("dim=-1)", "dim=-1).square()", None),
    ],
)
def test_a_fault_of_the_second_layer_is_found_there(models, old, new, cause):
    model, theirs = models["gpt2"]
    port = Port("gpt2", copy.deepcopy(model), changed("gpt2", old, new)).eval()
    port.attention[0] = changed("gpt2")(port.blocks[0].attn)
    found = mha.difference(recorded(port), theirs)
    assert (found.layer, [one.value for of in found.causes for one in of]) == (1, [cause] if cause else [])


def test_heads_in_another_order_are_equal_and_named(models):
    order = "q, k, v = (one[:, [2, 0, 3, 1]] for one in (q, k, v))\n        att = q @"
    found = compared(
        models, "gpt2", "att = q @", order, "y.transpose(1, 2)", "y[:, [1, 3, 0, 2]].transpose(1, 2)"
    )
    assert (found.is_equal, found.heads) == (True, (1, 3, 0, 2))
    assert "theirs are my heads 2, 4, 1, 3" in str(found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_difference_and_a_changed_weight_is_one_of_unknown_cause(models, dtype):
    model, theirs = models["llama"]
    half = copy.deepcopy(model).to(dtype)
    assert mha.difference([mha.trace(ids, source=half) for ids in IDS], theirs).is_equal
    half.layers[1].self_attn.v_proj.weight.data += 1
    found = mha.difference([mha.trace(ids, source=half) for ids in IDS], theirs)
    assert (found.matrix, found.layer, found.causes) == ("v", 1, ())
    assert "unknown" in str(found)


def test_what_cannot_be_compared_is_refused():
    one, other = (mha.trace(text, h=4, d_model=32) for text in ("How are you?", "Two words"))
    for mine, theirs, said in (
        (one, other, "other lengths"),
        (one, [one, one], "of the same texts"),
        ([], [], "there are 0 of one run"),
        (one, "trace", "got a str"),
        (one, mha.trace("How are you?", h=2, d_model=32), "4 heads and the other 2"),
    ):
        with pytest.raises(MhaError, match=said):
            mha.difference(mine, theirs)


def test_other_words_are_noted():
    mine, theirs = (mha.trace(f"The {noun} saw it.", h=2, d_model=16) for noun in ("dog", "cat"))
    assert "dog in my run is cat in theirs" in str(mha.difference(mine, theirs))
    assert "in my run is" not in str(mha.difference(mine, mine))


def test_what_replaced_w_o_is_saved(models, tmp_path):
    model, [theirs, *_] = models["gpt2"]
    port = Port(
        "gpt2", copy.deepcopy(model), changed("gpt2", "y.transpose(1, 2)", "y.flip(1).transpose(1, 2)")
    )
    [recorder, *_] = recorded(port.eval())
    recorder.trace.save(tmp_path / "port.safetensors")
    trace = mha.load(tmp_path / "port.safetensors")
    assert trace.layers[0].projections.w_o is None
    assert trace.layers[0].result(rows=[1]).shape == (1, D)
    assert mha.difference(trace, theirs).causes[0][0].value == "reversed"
