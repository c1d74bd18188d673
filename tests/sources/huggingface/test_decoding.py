"""Models of transformers that decode with their own cache, against their full run."""

import pytest
import torch
import transformers

import mha_core as mha
from mha_core import MhaError, edits
from mha_core.capture.gap import gap
from mha_core.sources import decoding
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

# Twelve families: shared keys, latent vectors, windows, sinks, ALiBi, a state beside attention, own code.
FAMILIES = (
    *("gpt2", "llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "gpt_bigcode", "gpt_neox"),
    *("bloom", "falcon", "qwen3_next", "gptj"),
)
TEXT = tiny.texts((11, 7))[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cached_run_is_the_full_run(family):
    built = tiny.model(family)
    trace, words, check = mha.decode(TEXT, source=built, tokenizer=tiny.tokenizer(built), steps=3)
    assert check.passed, check
    assert check.weights is not None
    assert check.scores is not None
    written = torch.tensor([[tiny.WORDS.index(piece) for piece in TEXT.split()]])
    with torch.no_grad():
        own = built.generate(written, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)
    assert [tiny.WORDS[number] for number in own[0, -3:]] == list(trace.tokens.pieces[-3:])
    assert len(words) == 3


def test_in_half_precision_rounding_is_larger():
    built = tiny.model("llama").to(torch.bfloat16)
    check = mha.decode(TEXT, source=built, tokenizer=tiny.tokenizer(built), steps=1).check
    assert check.passed
    assert max(check.weights, check.scores) > 1e-5


@pytest.mark.parametrize(
    ("family", "reason"),
    [("mamba", "keeps no cache"), ("deepseek_v32", "with its cache the model raises an error")],
)
def test_who_cannot_be_compared_writes_by_full_runs_and_says_why(family, reason):
    built = tiny.model(family)
    trace, words, check = mha.decode(TEXT, source=built, tokenizer=tiny.tokenizer(built), steps=2)
    assert reason in check.reason
    assert not check.passed
    ids = [tiny.WORDS.index(piece) for piece in trace.tokens.pieces]
    with torch.no_grad():
        logits = built(torch.tensor([ids]), use_cache=False).logits[0]
    assert ids[-2:] == logits[-3:-1].argmax(-1).tolist()
    assert len(words) == 2


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_model_that_reads_all_at_once_has_no_cache(family):
    built = tiny.model(family)
    with pytest.raises(MhaError, match="nothing that a cache could keep"):
        mha.decode(TEXT, source=built, tokenizer=tiny.tokenizer(built), steps=0)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_rows_exchanged_in_the_model_s_own_cache_change_nothing(family):
    built, ids = tiny.model(family), list(range(5, 16))
    cache = transformers.DynamicCache()
    with torch.no_grad():
        built(torch.tensor([ids[:-1]]), past_key_values=cache, use_cache=True)
        for layer in cache.layers:
            order = [0, 7, 2, 3, 4, 5, 6, 1, 8, 9]
            layer.keys, layer.values = layer.keys[:, :, order], layer.values[:, :, order]
        result = built(torch.tensor([ids[-1:]]), past_key_values=cache, use_cache=True)
    loaded = huggingface.model_of(built, tokenizer=tiny.tokenizer(built))
    touched = [edits.Exchange(one=1, other=7, since=10)]
    assert gap(result.logits[0, -1], decoding.full_scores(loaded, ids, touched)) <= 1e-5


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_rows_dropped_from_the_model_s_own_cache_are_the_edited_run(family):
    built = tiny.model(family)
    loaded = huggingface.model_of(built, tokenizer=tiny.tokenizer(built))
    ids, since = list(range(5, 16)), 6
    cache = transformers.DynamicCache()
    with torch.no_grad():
        built(torch.tensor([ids[:since]]), past_key_values=cache, use_cache=True)
        for layer in cache.layers:
            kept = [at for at in range(since) if at not in (1, 4)]
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        for at in range(since, len(ids)):
            token, place = torch.tensor([[ids[at]]]), torch.tensor([[at]])
            result = built(token, past_key_values=cache, use_cache=True, position_ids=place)
    touched = [edits.Evict(keys=[1, 4], since=since)]
    assert gap(result.logits[0, -1], decoding.full_scores(loaded, ids, touched)) <= 1e-5
    assert gap(result.logits[0, -1], decoding.full_scores(loaded, ids)) > 1e-3
    decoded = mha.decode(ids, source=built, tokenizer=tiny.tokenizer(built), steps=1, edits=touched)
    assert "not compared" in decoded.check.reason
    assert tiny.WORDS.index(decoded.trace.tokens.pieces[-1]) == int(result.logits[0, -1].argmax())


# Which keys a query may see of those before it: an edit, as one would write it into a mask.
TOUCHED = {
    "a row dropped": (edits.Evict(keys=[2, 4], since=6), lambda query, key: query < 6 or key not in (2, 4)),
    "a window": (edits.Mask(mask="window:3"), lambda query, key: query - key <= 3),
    "sinks and a window": (edits.Mask(mask="streaming:2"), lambda query, key: key == 0 or query - key <= 2),
}


@pytest.mark.parametrize("touched", TOUCHED)
@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox"])
def test_an_edited_run_is_the_model_s_own_under_the_same_mask(family, touched):
    built, ids = tiny.model(family), list(range(5, 16))
    edit, sees = TOUCHED[touched]
    seen = [[key <= query and sees(query, key) for key in range(11)] for query in range(11)]
    mask = torch.zeros(1, 1, 11, 11).masked_fill(~torch.tensor(seen), -torch.inf)
    with torch.no_grad():
        logits = built(torch.tensor([ids]), attention_mask=mask, use_cache=False).logits[0, -1]
    loaded = huggingface.model_of(built, tokenizer=tiny.tokenizer(built))
    assert gap(logits, decoding.full_scores(loaded, ids, [edit])) <= 1e-5
    assert gap(logits, decoding.full_scores(loaded, ids)) > 1e-3


def test_a_next_word_has_the_text_that_is_read_as_it():
    built = tiny.model("llama")
    loaded = huggingface.model_of(built, tokenizer=tiny.tokenizer(built))
    ids = [tiny.WORDS.index(piece) for piece in TEXT.split()]
    scores = torch.full((tiny.VOCABULARY,), -9.0)
    scores[[7, 2]] = torch.tensor([3.0, 2.0])  # a word, and the mark of the end
    word, mark, *_ = decoding.next_words(loaded, ids, scores, TEXT)
    assert (word.word, word.text) == ("w7", f"{TEXT} w7")
    assert (mark.word, mark.text) == ("</s>", None)
