"""A caller's own mask and positions: padded and packed texts are traced as the model computes them."""

import math

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import mha_core as mha
from tests.parity import tiny
from tests.sources.tiny import fast, module, own_weights

PAD = 1
BODIES = {n: [7 + at * 31 % 500 for at in range(n)] for n in (11, 37)}
TARGET = [9, 8, 12, 10, 11]
FAMILIES = ("roberta", "gpt2", "gemma2", "bloom", "falcon", "t5")


def padded(body: list[int], side: str) -> tuple[list[int], list[int]]:
    """The ids with five of padding on a side, and their mask."""
    filling, ones = [PAD] * 5, [1] * len(body)
    return (filling + body, [0] * 5 + ones) if side == "left" else (body + filling, ones + [0] * 5)


def of_their_own(model: nn.Module, input_ids: list[int], **given: list[int]) -> dict[str, list[np.ndarray]]:
    """The weights that a copy of the model returns for its texts; those inside the target have no padding."""
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = [model.config.decoder_start_token_id, *TARGET]
    found = own_weights(model, input_ids=input_ids, **given)
    return {kind: weights for kind, weights in found.items() if kind != "decoder"}


def traced(model: nn.Module, ids: list[int], **given: list[int]) -> mha.AttentionTrace:
    target = {"target": TARGET} if model.config.is_encoder_decoder else {}
    return mha.trace(ids, source=model, **target, **given)


def largest_gap(trace: mha.AttentionTrace, theirs: dict, read: list[int]) -> float:
    """The largest difference of the weights of all tokens that are read."""
    rows = np.array(read, dtype=bool)
    gaps = []
    for kind, layers in theirs.items():
        for layer, weights in zip(trace.part(kind).layers, layers, strict=True):
            ours = layer.weights()
            if kind != "cross":
                ours, weights = ours[:, rows], weights[:, rows]
            gaps.append(np.abs(ours - weights).max())
    return max(gaps)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_text_is_shown_as_the_model_reads_it(family, side):
    for implementation in ("eager", "sdpa"):
        model = module(family, **({"alibi": False} if family == "falcon" else {}))  # its weights are others
        if implementation == "sdpa" and not model._supports_sdpa:
            continue
        model.set_attn_implementation(implementation)
        ids, mask = padded(BODIES[37], side)
        trace = traced(model, ids, attention_mask=mask)
        assert largest_gap(trace, of_their_own(model, ids, attention_mask=mask), mask) <= 1e-5
        read = np.array(mask) == 1
        for layer in trace.layers:
            if layer.kind != "decoder":
                rows = read if layer.kind != "cross" else slice(None)
                assert not layer.allowed()[:, rows][..., ~read].any()
                assert not layer.weights()[:, rows][..., ~read].any()


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_positions_are_those_that_the_caller_gives(family):
    model, body = module(family), BODIES[37]
    ids, mask = padded(body, "left")
    positions = [0] * 5 + list(range(len(body)))
    trace = traced(model, ids, attention_mask=mask, position_ids=positions)
    theirs = of_their_own(model, ids, attention_mask=mask, position_ids=positions)
    assert largest_gap(trace, theirs, mask) <= 1e-5
    alone = traced(model, body)  # which has the same positions
    for one, other in zip(trace.layers, alone.layers, strict=True):
        np.testing.assert_allclose(one.weights()[:, 5:, 5:], other.weights(), atol=1e-5)
    other = traced(model, ids, attention_mask=mask, position_ids=[2 * at for at in range(len(ids))])
    assert np.abs(other.layers[0].weights() - trace.layers[0].weights()).max() > 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_packed_texts_are_each_what_they_are_alone(family):
    model, ids = module(family), BODIES[37]
    positions = [*range(13), *range(24)]
    for cache in (True, False):  # with one as in a call of the model
        model.config.use_cache = cache
        trace = traced(model, ids, position_ids=positions)
        assert largest_gap(trace, of_their_own(model, ids, position_ids=positions), [1] * 37) <= 1e-5
    first, second = traced(model, ids[:13]), traced(model, ids[13:])
    for layer, one, other in zip(trace.layers, first.layers, second.layers, strict=True):
        np.testing.assert_allclose(layer.weights()[:, :13, :13], one.weights(), atol=1e-5)
        np.testing.assert_allclose(layer.weights()[:, 13:, 13:], other.weights(), atol=1e-5)
        assert not layer.allowed()[..., 13:, :13].any()


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array, lambda row: torch.tensor([row]) > 0])
def test_padding_of_a_tokenizer_is_marked(kind, folder):
    source = str(folder("bert", "word_piece"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    text = "The animal didn't cross."
    batch = tokenizer(text, padding="max_length", max_length=17)
    trace = mha.trace(batch["input_ids"], source=source, attention_mask=kind(batch["attention_mask"]))
    alone = mha.trace(text, source=source)
    n = len(alone.tokens)
    assert trace.tokens.pieces[:n] == alone.tokens.pieces
    assert trace.tokens.special == (*alone.tokens.special, *range(n, 17))
    for one, other in zip(trace.layers, alone.layers, strict=True):
        np.testing.assert_allclose(one.weights()[:, :n, :n], other.weights(), atol=1e-5)


def test_a_typed_text_takes_a_mask_too():
    model, tokenizer = module("gpt2"), fast()
    n = len(tokenizer("a bird sang")["input_ids"])
    mask = [1, 0, *[1] * (n - 2)]
    trace = mha.trace("a bird sang", source=model, tokenizer=tokenizer, attention_mask=mask)
    assert not trace.layers[0].allowed()[..., 1].any()
    assert trace.tokens.text == "a bird sang"


def test_padding_has_no_answers(refused):
    model = transformers.GPT2LMHeadModel(module("gpt2").config).eval()
    ids, mask = padded(BODIES[11], "left")
    answers = mha.trace(ids, source=model, attention_mask=mask, answers=True).answers
    assert [answer is not None for answer in answers] == [bool(read) for read in mask]
    theirs = model(torch.tensor([ids]), attention_mask=torch.tensor([mask])).logits[0, -1].softmax(-1)
    assert answers[-1][0][0] == str(theirs.argmax().item())
    assert answers[-1][0][1] == pytest.approx(theirs.max().item(), rel=1e-4)
    message = str(refused(mha.trace, ids, source=model, attention_mask=mask, answers=[0]))
    assert message == "Nothing is answered at token 0, which the attention_mask leaves out."


@pytest.mark.parametrize(
    "given", [{"attention_mask": [0, 0, *[1] * 10]}, {"position_ids": [*range(5), *range(7)]}]
)
def test_effects_are_those_in_the_model_that_read_these_ids_mask_and_positions(given, tmp_path):
    model = transformers.GPT2LMHeadModel(module("gpt2", n_layer=1).config).eval()
    ids = [5, 9, 200, 7] * 3
    settings = {"source": model, "answers": [-1]} | given

    def log_probability(word: str, **edited: object) -> float:
        return math.log(dict(mha.trace(ids, **settings, **edited).answers[-1])[word])

    mha.trace(ids, **settings).save(tmp_path / "a.safetensors")
    trace = mha.load(tmp_path / "a.safetensors")
    [(word, _), *_] = trace.answers[-1]
    frame = mha.effects(trace, answer=int(word), source=model)
    value = log_probability(word)
    assert frame.attrs["value"] == pytest.approx(value, abs=1e-4)
    for row in frame.itertuples():
        off = log_probability(word, edits=[mha.edits.Output(layer=row.layer, heads=row.head)])
        assert row.effect == pytest.approx(off - value, abs=1e-4)
    split = mha.attribution(trace, layer=0, head=0, query=-1, key=3, source=model)
    assert split.terms.sum() == pytest.approx(split.value, abs=1e-4)


def test_the_texts_of_a_pair_have_their_segments():
    model, tokenizer, (one, other) = module("bert"), fast("word_piece"), ("The animal sang.", "It was tired.")
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    given = tokenizer(one, other)
    theirs = of_their_own(model, **given)
    ones, settings = [1] * len(given["input_ids"]), {"source": model, "tokenizer": tokenizer}
    traces = [
        mha.trace(given, **settings),
        mha.trace(tokenizer(one, other, return_tensors="pt"), **settings),
        mha.trace(one, text_pair=other, **settings),
        *mha.trace_many([given, [5, 6]], **settings),
    ]
    for trace in traces[:-1]:
        assert largest_gap(trace, theirs, ones) <= 1e-5
        assert trace.tokens.pieces == traces[0].tokens.pieces
        assert not any("segment" in note for note in trace.source.notes)
    tokens = traces[2].tokens
    assert [tokens.text[slice(*tokens.spans[at])] for at in (1, tokens.index("was"))] == ["The", "was"]
    alone = mha.trace(given["input_ids"], **settings)
    assert "so the model read them as one segment" in alone.source.notes[-1]
    assert largest_gap(alone, of_their_own(model, given["input_ids"]), ones) <= 1e-5


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ([5, 6], {"text_pair": "a"}, "mha.trace(tokenizer(one, other), source=model)"),
        ("a", {"text_pair": [5]}, "text_pair is a second text beside a first one"),
        ({"ids": [5]}, {}, "The text must be a string, or the ids of its tokens; got a dict."),
        ({"input_ids": [5, 6], "labels": [5, 6]}, {}, "would also read labels"),
        ({"input_ids": [[5, 6], [7, 8]]}, {}, "no id of a token"),
        ({"input_ids": [5, 6], "attention_mask": [0, 0]}, {}, "attention_mask hides every token"),
    ],
)
def test_what_is_no_pair_and_no_result_of_a_tokenizer_is_refused(text, more, said, refused):
    model = transformers.BertForMaskedLM(module("bert").config).eval()
    assert said in str(refused(mha.trace, text, source=model, tokenizer=fast("word_piece"), **more))


@pytest.mark.parametrize(
    ("family", "given", "said"),
    [
        ("bert", {"attention_mask": [1, 1]}, "3 tokens of the text, (3,) or (1, 3); got the shape (2,)."),
        ("bert", {"attention_mask": [[1, 1, 1]] * 2}, "(3,) or (1, 3); got the shape (2, 3)."),
        ("bert", {"attention_mask": "110"}, "(3,) or (1, 3); got a str."),
        ("bert", {"attention_mask": [[1], [1, 0]]}, "(3,) or (1, 3); got a list."),
        ("bert", {"attention_mask": [1, 2, 1]}, "attention_mask has whole numbers from 0 to 1; got 2."),
        ("bert", {"attention_mask": [1, 0.5, 1]}, "attention_mask has whole numbers from 0 to 1; got 0.5."),
        ("bert", {"attention_mask": [0, 0, 0]}, "attention_mask hides every token; at least one has a 1."),
        ("bert", {"position_ids": [0, 1]}, "position_ids has a number for each of the 3 tokens"),
        ("bert", {"position_ids": [0, 1, 512]}, "position_ids has whole numbers from 0 to 511; got 512."),
        ("gpt2", {"position_ids": [-1, 0, 1]}, "position_ids has whole numbers from 0 to 96; got -1."),
        ("bloom", {"position_ids": [0, 1, 2]}, "BloomModel takes no position_ids; it takes attention_mask."),
        ("t5", {"position_ids": [0, 1, 2]}, "takes no position_ids; it takes attention_mask."),
    ],
)
def test_masks_and_positions_that_do_not_fit_are_refused(family, given, said, refused):
    assert said in str(refused(mha.trace, [5, 6, 7], source=module(family), **given))


@pytest.mark.parametrize("name", ["attention_mask", "position_ids", "text_pair"])
def test_other_sources_and_many_texts_refuse_them_by_name(name, refused):
    for settings in ({}, {"source": "mini"}):
        message = str(refused(mha.trace, "The cat", **settings, **{name: [1, 1]}))
        assert message.startswith(f"{name} is an argument of Hugging Face models")
    message = str(refused(mha.trace_many, [[5, 6]], source=module("gpt2"), **{name: [1, 1]}))
    assert message == f"{name} is of one text; trace each by itself: mha.trace(text, {name}=…)."


@pytest.mark.filterwarnings("ignore")
def test_a_model_whose_words_depend_on_what_padding_takes_is_refused(refused):
    """An index of MiniMax M3 also chooses among hidden keys, by their content."""
    model, body = tiny.model("minimax_m3_vl_text"), [5 + at * 7 % 80 for at in range(37)]
    ids, mask = padded(body, "left")
    message = str(refused(mha.trace, ids, source=model, attention_mask=mask))
    assert message.startswith("With this mask or these positions some tokens may look at nothing")
    behind, mask = padded(body, "right")
    trace = mha.trace(behind, source=model, attention_mask=mask)
    assert largest_gap(trace, of_their_own(model, behind, attention_mask=mask), mask) <= 1e-5
