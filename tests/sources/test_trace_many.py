"""Many texts: traces in order, each equal to that of its text alone, batched where that is exact."""

from itertools import count, islice

import numpy as np
import pytest
import torch
import transformers

import mha_core as mha
from mha_core.capture.batch import Batch, MixedTexts
from mha_core.sources import trace_many
from mha_core.sources.huggingface import forward_pass
from mha_core.sources.huggingface.batches import same_layer
from tests.parity import tiny
from tests.sources.tiny import TEXT, fast, forget, module

TEXTS = ["The animal", "a bird sang; the street was too wide for it.", TEXT, "it", f"{TEXT} it sang", "动物"]
TOGETHER = ("bert", "roberta", "gpt2", "cohere", "gemma2", "gpt_oss", "deepseek_v3")
PLAIN = {"h": 3, "d_model": 12}


@pytest.fixture(autouse=True, scope="module")
def _forgotten():
    yield
    forget()


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """How many texts went through a model in each pass."""
    seen, forward = [], forward_pass.forward

    def counted(model, inputs, **more):
        seen.append(len(inputs["input_ids"]))
        return forward(model, inputs, **more)

    monkeypatch.setattr(forward_pass, "forward", counted)
    return seen


def assert_same(one: mha.AttentionTrace, other: mha.AttentionTrace) -> bool:
    """Whether two traces are equal up to rounding in every tensor, rule and matrix."""
    pairs = zip(one.layers, other.layers, strict=True)
    assert max(np.abs(a.weights() - b.weights()).max() for a, b in pairs) <= 1e-5
    alike = (one.tokens, one.source) == (other.tokens, other.source)
    return alike and all(map(same_layer, one.layers, other.layers))


@pytest.mark.parametrize("family", TOGETHER)
def test_each_trace_equals_that_of_its_text_alone(family, passes):
    model, tokenizer = module(family), fast("word_piece" if family == "bert" else "byte_level")
    alone = [mha.trace(text, source=model, tokenizer=tokenizer) for text in TEXTS]
    passes.clear()
    together = list(trace_many(TEXTS, source=model, tokenizer=tokenizer, batch=4))
    single = sum(len(trace.tokens) == 1 for trace in alone)
    assert passes == [2, 1, 1] + [1] * single + [4] + [2 - single] * (single < 2)  # the trial, and the texts
    assert [trace.tokens.text for trace in together] == TEXTS
    assert all(map(assert_same, together, alone))
    assert max(np.abs(t.layers[0].weights()).max() for t in together) > 0.2


@pytest.mark.parametrize("settings", [PLAIN, {"source": "mini"}])
def test_other_sources_trace_many_texts(settings):
    texts = ["The cat saw it.", "The animal"]
    alone = [mha.trace(text, **settings) for text in texts]
    for one, other in zip(trace_many(texts, **settings), alone, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_array_equal(one.layers[0].weights(), other.layers[0].weights())


def test_only_the_result_of_reduce_is_kept():
    model, tokenizer = module("bert"), fast()
    lengths = list(
        trace_many(TEXTS, source=model, tokenizer=tokenizer, batch=4, reduce=lambda t: len(t.tokens))
    )
    assert lengths == [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert list(trace_many(["How are you?"], reduce=lambda t: t.tokens.pieces, **PLAIN)) == [
        ("How", "are", "you", "?")
    ]


@pytest.mark.parametrize("settings", [PLAIN, {"source": "model"}])
def test_an_endless_iterator_of_texts_is_read_lazily(settings):
    if "source" in settings:
        settings = {"source": module("gpt2"), "tokenizer": fast(), "batch": 2}
    texts = (f"{n} animals" for n in count())
    found = islice(trace_many(texts, **settings), 11)
    assert [trace.tokens.text for trace in found] == [f"{n} animals" for n in range(11)]


def test_each_text_has_its_target():
    model, targets = module("t5"), ([8, 9], torch.tensor([11, 12, 13]), [7])
    texts = ([5, 6, 7], [6, 7], [9])
    alone = [mha.trace(text, source=model, target=to) for text, to in zip(texts, targets, strict=True)]
    together = list(trace_many(iter(texts), source=model, target=iter(targets)))
    assert [trace.answered.pieces for trace in together] == [
        ("0", "8", "9"),
        ("0", "11", "12", "13"),
        ("0", "7"),
    ]
    assert all(map(assert_same, together, alone))


def test_a_text_without_a_target_is_reported_at_its_turn(refused):
    for texts, targets, said in (
        ([[5], [6], [7]], [[8], [9]], "there are 2 targets and more texts"),
        ([[5], [6]], [[8], [9], [7]], "there are 2 texts and more targets"),
    ):
        found = trace_many(texts, source=module("t5"), target=targets)
        assert [len(next(found).tokens) for _ in range(2)] == [1, 1]
        assert said in str(refused(next, found))
    assert "target has one for each text" in str(refused(trace_many, [[5]], source=module("t5"), target="a"))
    assert "Text 1: GPT2Model reads one text and writes no other" in str(
        refused(next, trace_many([[5]], source=module("gpt2"), target=[[6]]))
    )


def test_a_text_of_as_many_tokens_as_heads_keeps_its_axes_apart():
    """A norm of heads sees (text, head, token, width): of 6 heads and 6 tokens, which axis is which?"""
    model = tiny.model("hunyuan_v1_dense")
    n_heads = model.config.num_attention_heads
    texts = [list(range(5, 5 + n)) for n in (n_heads - 1, n_heads)]
    alone = [mha.trace(ids, source=model) for ids in texts]
    assert all(map(assert_same, trace_many(texts, source=model), alone))


def test_a_text_that_does_not_fit_is_reported_at_its_turn(refused):
    for settings in (PLAIN, {"source": module("bert"), "tokenizer": fast()}):
        found = trace_many(["One.", "Two.", " ", "Four."], **settings)
        assert [next(found).tokens.text for _ in range(2)] == ["One.", "Two."]
        assert str(refused(next, found)) == "Text 3: There is no text to look at; type at least one word."


def test_invalid_arguments_are_refused(refused):
    assert "takes several texts" in str(refused(trace_many, "One text."))
    assert "takes several texts" in str(refused(trace_many, np.array(7)))
    assert "batch 0 is out of range" in str(refused(trace_many, ["a"], batch=0))


# What keeps texts from going together


class Mixing(torch.nn.Module):
    """Something that looks at the neighbours in a batch."""

    def __init__(self, inner: torch.nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + x.mean(0, keepdim=True)


def traced_one_by_one(passes, texts, **settings) -> list[int]:
    """How many texts were in each pass, after their traces were found to be those of each text alone."""
    alone = [mha.trace(text, **settings) for text in texts]
    passes.clear()
    assert all(map(assert_same, trace_many(texts, **settings), alone))
    return passes


def test_texts_that_would_affect_each_other_are_traced_one_by_one(passes, monkeypatch):
    model = module("gpt2")
    model.h[0].mlp = Mixing(model.h[0].mlp)
    found = traced_one_by_one(passes, TEXTS, source=model, tokenizer=fast())
    assert found == [2, 1, 1] + [1] * len(TEXTS)
    for rope in (
        {"rope_type": "dynamic"},
        {"rope_type": "longrope", "short_factor": [1.0] * 7, "long_factor": [1.5] * 7}
        | {"original_max_position_embeddings": 9},
    ):  # the codes depend on the longest text
        codes = {"rope_theta": 10_000.0, "factor": 2.0} | rope
        model = module("llama", rope_parameters=codes, max_position_embeddings=97)
        texts = [list(range(3, 3 + n)) for n in (4, 11, 5)]
        assert traced_one_by_one(passes, texts, source=model) == [1, 1, 1]
    forward = transformers.BertModel.forward  # which does not mask padding
    unmasked = lambda self, attention_mask=None, **more: forward(self, **more)  # noqa: E731
    monkeypatch.setattr(transformers.BertModel, "forward", unmasked)
    found = traced_one_by_one(passes, [[3, 4, 5], [6, 7]], source=module("bert"))
    assert found == [2, 1, 1, 1]  # of the two that are tried, the first one says it


def test_a_pass_that_does_not_keep_its_texts_apart_is_not_cut():
    batch = Batch({}, [3, 5], 5)
    q = torch.zeros(1, 3, 10, 4)
    with pytest.raises(MixedTexts):
        batch.add(None, q, q, q, mha.ScoreRule(), torch.zeros(1, 10, 3, 4))


def test_texts_are_traced_one_by_one_after_a_pass_that_mixes_them(monkeypatch, passes):
    add = Batch.add

    def fails(self, *args):
        if len(self.lengths) > 2:
            raise MixedTexts("three")
        add(self, *args)

    monkeypatch.setattr(Batch, "add", fails)
    found = traced_one_by_one(passes, TEXTS, source=module("gpt2"), tokenizer=fast())
    assert found == [2, 1, 1, 1, 5] + [1] * 5  # one has a single token
