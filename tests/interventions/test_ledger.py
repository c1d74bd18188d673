"""A word's logit, split by its writers: exact in families of each kind, and with a head made by hand."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.errors import MhaError
from mha_core.interventions.ledger import written
from mha_core.sources.huggingface.model import model_of
from tests.parity import tiny

# Learned positions; grouped heads; ALiBi; parallel blocks; latent keys; experts and sinks; norms behind;
# gated layers between others; scaled logits; an activation written as a choice between two sums.
FAMILIES = ("gpt2", "llama", "bloom", "gpt_neox", "deepseek_v3", "gpt_oss", "olmo2", "qwen3_next", "cohere")
FAMILIES += ("apertus",)


def made(family: str):
    model = tiny.model(family)
    tokenizer = tiny.tokenizer(model)
    text = tiny.texts((6, 6))[0]
    return model, tokenizer, text


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        ("The animal didn't cross the street because it was too tired.", "glass-box"),
        ("The animal didn't cross the street because it was too tired.", "standard"),
        ("The [MASK] was tired.", "latent"),
        ("The animal was", "decoder"),
    ],
)
def test_of_a_small_model_the_answer_is_split_by_the_heads_that_are_asked(text, architecture):
    trace = mha.trace(text, source="mini", architecture=architecture)
    found = mha.ledger(trace)
    word, share = trace.answers[found.token][0]
    assert (found.word, found.probability) == (word, pytest.approx(share, rel=1e-5))
    assert abs(found.gap) <= 1e-5 * np.abs(found.shares).sum()
    heads = [s for w, s in zip(found.writers, found.shares, strict=True) if (w.kind, w.layer) == ("head", 1)]
    asked = 1 if "it" in trace.tokens.pieces else 4  # the question about a noun is one head's
    assert np.count_nonzero(heads) == asked


def test_logits_are_those_of_torch_also_after_an_edit():
    model, tokenizer, text = made("llama")
    off = [mha.edits.Output(values=0.0, layer=0, heads=1)]
    plain, edited = (mha.trace(text, source=model, tokenizer=tokenizer, edits=e) for e in ([], off))
    of = {"source": model, "tokenizer": tokenizer}
    with torch.no_grad():
        theirs = model(**tokenizer(text, return_tensors="pt")).logits[0, 3]
    found = plain.logits(3, **of)
    np.testing.assert_allclose(found["logit"], theirs.sort(descending=True).values, atol=1e-5)
    assert found["probability"].sum() == pytest.approx(1)
    assert found["id"].tolist() == theirs.argsort(descending=True).tolist()
    word = int(found["id"][2])
    after = edited.logits(3, words=[word, found["word"][0]], **of)
    assert after["word"].tolist() == [found["word"][2], found["word"][0]]
    assert after["logit"][0] == pytest.approx(mha.ledger(edited, token=3, word=word, **of).logit, rel=1e-6)
    assert after["logit"][0] != pytest.approx(float(theirs[word]), rel=1e-4)
    small = mha.trace("The animal was tired because it was too tired.", source="mini")
    answer = small.logits("it")
    assert answer["word"][0] == small.answers[small.tokens.index("it")][0][0]
    assert set(answer["word"]) == {"[CLS]", *small.tokens.pieces}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shares_sum_to_the_logit_that_torch_computes(family):
    model, tokenizer, text = made(family)
    trace = mha.trace(text, source=model, tokenizer=tokenizer)
    found = mha.ledger(trace, token=3, source=model, tokenizer=tokenizer)
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0, 3].double()
    assert found.logit == pytest.approx(float(logits.max()), rel=1e-5)
    assert abs(found.gap) <= 1e-5 * np.abs(found.shares).sum()
    assert found.probability == pytest.approx(float(logits.softmax(0).max()), rel=1e-4)
    heads = {(writer.layer, writer.head) for writer in found.writers if writer.kind == "head"}
    assert heads == {(at, head) for at, layer in enumerate(trace.layers) for head in range(layer.n_heads)}
    scales = dict.fromkeys(range(len(trace.layers)), 1.0)
    if family == "olmo2":  # norms behind W^O, with their scale here: γ / RMS
        for at, layer in enumerate(model.model.layers):
            summed = layer.self_attn.o_proj.register_forward_hook(
                lambda *seen, at=at: scales.update({at: seen[2][0, 3]})
            )
            model(**tokenizer(text, return_tensors="pt"))
            summed.remove()
            norm = layer.post_attention_layernorm
            scales[at] = (norm(scales[at]) / scales[at]).detach().numpy()
    for writer, norm in zip(found.writers, found.norms, strict=True):
        if writer.kind == "head":
            vector = trace.layers[writer.layer].contribution(writer.head)[3] * scales[writer.layer]
            assert norm == pytest.approx(np.linalg.norm(vector), rel=1e-5)
        assert (norm > 0) == (writer.kind != "end")


def test_a_head_that_writes_one_word_is_the_first_writer_of_that_word():
    model, tokenizer, text = made("gpt2")
    word, h = 40, model.config.n_head
    width = model.config.n_embd // h
    with torch.no_grad():  # head 1 of the last layer writes the word's own direction, whatever it reads
        block = model.transformer.h[-1].attn
        direction = model.lm_head.weight[word] - model.lm_head.weight.mean(0)
        block.c_attn.bias[2 * h * width + width : 2 * h * width + 2 * width] = 3.0
        block.c_proj.weight[width : 2 * width] = direction / direction.norm()
    trace = mha.trace(text, source=model, tokenizer=tokenizer)
    found = mha.ledger(trace, word=word, source=model, tokenizer=tokenizer)
    first = found.frame().iloc[0]
    assert (first.kind, first["layer"], first["head"]) == ("head", len(trace.layers) - 1, 1)
    loaded = model_of(model, tokenizer=tokenizer, answers=True)
    for writer, share in zip(found.writers, found.shares, strict=True):
        if writer.kind != "head":  # what it adds to this word, among all words
            everything = written(trace, writer, source=loaded).set_index("word").share
            assert everything[found.word] == pytest.approx(share, abs=1e-6)
            assert everything.is_monotonic_decreasing
    over = mha.ledger(trace, word=word, other=7, source=model, tokenizer=tokenizer)
    lone = mha.ledger(trace, word=7, source=model, tokenizer=tokenizer)
    assert over.logit == pytest.approx(found.logit - lone.logit, abs=1e-4)
    np.testing.assert_allclose(over.shares, found.shares - lone.shares, atol=1e-5)
    assert repr(over).startswith(f"<Ledger of {over.word!r} over {over.other!r} at token 5")


def test_after_a_head_is_off_its_share_is_gone():
    model, tokenizer, text = made("llama")
    off = [mha.edits.Output(values=0.0, layer=0, heads=1)]
    trace = mha.trace(text, source=model, tokenizer=tokenizer, edits=off)
    found = mha.ledger(trace, source=model, tokenizer=tokenizer)
    share = next(s for w, s in zip(found.writers, found.shares, strict=True) if (w.layer, w.head) == (0, 1))
    assert share == pytest.approx(0.0, abs=1e-6)


def test_what_has_no_ledger_is_refused_with_the_reason():
    model, tokenizer, text = made("gpt2")
    trace = mha.trace(text, source=model, tokenizer=tokenizer)
    for asked, said in (
        ({"word": "no word"}, "cannot answer with"),
        ({"word": 10**6}, "its number from 0 to"),
        ({"token": 9}, "tokens 0 to 5"),
    ):
        with pytest.raises(MhaError, match=said):
            mha.ledger(trace, source=model, tokenizer=tokenizer, **asked)
        with pytest.raises(MhaError, match=said):
            trace.logits(asked.get("token"), [asked.get("word", 0)], source=model, tokenizer=tokenizer)
    with pytest.raises(MhaError, match="answers nothing"):
        mha.ledger(mha.trace("How are you?", h=2, d_model=8))
    with pytest.raises(MhaError, match="words are several"):
        trace.logits(words="yes", source=model, tokenizer=tokenizer)
    with pytest.raises(MhaError, match=r"has no head that writes words \(GPT2Model\)"):
        mha.trace(text, source=model.transformer, tokenizer=tokenizer).logits(
            source=model.transformer, tokenizer=tokenizer
        )
    of = {"source": model, "tokenizer": tokenizer}
    likely = mha.ledger(trace, **of)
    cut = "w8 w9"
    for word, fixes in (("no word", [likely.word]), (cut, ["w8", "w9"])):
        with pytest.raises(MhaError) as refused:
            mha.ledger(trace, word=word, **of)
        assert [fix["word"] for fix in refused.value.fixes][: len(fixes)] == fixes
        for fix in refused.value.fixes:  # each works all the way
            assert mha.ledger(trace, **fix, **of).word == fix["word"]
    odd, tokenizer, text = made("nystromformer")  # its landmarks are means of tokens
    tokenizer.mask_token = "w90"
    trace = mha.trace(f"{text} w90", source=odd, tokenizer=tokenizer)
    with pytest.raises(MhaError, match="cannot be split by who wrote it"):
        mha.ledger(trace, source=odd, tokenizer=tokenizer)


@pytest.mark.parametrize("family", ["gemma2", "bert", "albert"])  # a soft cap, and two spellings of GELU
def test_activations_behind_the_last_layer_are_frozen_so_that_heads_have_their_shares(family):
    model, tokenizer, text = made(family)
    tokenizer.mask_token = "w90"
    trace = mha.trace(f"{text} w90 w8", source=model, tokenizer=tokenizer)
    found = mha.ledger(trace, token=-2, source=model, tokenizer=tokenizer)
    with torch.no_grad():
        logits = model(**tokenizer(f"{text} w90 w8", return_tensors="pt")).logits[0, -2]
    assert abs(found.shares.sum() - float(logits.max())) <= 1e-5 * np.abs(found.shares).sum()
    assert np.count_nonzero([w.kind == "head" for w in found.writers]) == sum(x.n_heads for x in trace.layers)
