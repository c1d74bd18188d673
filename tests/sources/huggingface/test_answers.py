"""The answers of models of transformers: the softmax of their own logits, in the traced pass."""

import numpy as np
import pytest
import torch
import transformers

import mha_core as mha
from mha_core import edits
from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # many models
MASK = "w90"
FAMILIES = {
    "masked": ("deberta-v2", "modernbert", "big_bird"),
    "next": ("gemma2", "gpt2", "mamba2", "bloom"),
    "target": ("bart", "t5"),
}
OF_FAMILY = [(kind, family) for kind, families in FAMILIES.items() for family in families]


def tokenizer_of(built) -> transformers.PreTrainedTokenizerFast:
    tokenizer = tiny.tokenizer(built)
    tokenizer.mask_token = MASK
    return tokenizer


def texts(kind: str, length: tuple[int, int]) -> tuple[str, str | None]:
    text, target = tiny.texts(length)
    if kind == "masked":
        words = text.split()
        words[3] = words[-2] = MASK
        text = " ".join(words)
    return text, target if kind == "target" else None


def own_answers(built, tokenizer, trace: mha.AttentionTrace) -> torch.Tensor:
    """The probabilities of the model itself, by its own attention. (token, word)"""
    inputs = dict(tokenizer(trace.tokens.text, return_tensors="pt"))
    if trace.answered is not trace.tokens:
        inputs["decoder_input_ids"] = torch.tensor([[tiny.WORDS.index(w) for w in trace.answered.pieces]])
    with torch.no_grad():
        return built(**inputs).logits[0].float().softmax(-1)


def check(trace: mha.AttentionTrace, expected: torch.Tensor, atol: float) -> None:
    assert len(trace.answers) == len(trace.answered) == len(expected)
    for answer, row in zip(trace.answers, expected, strict=True):
        if answer is None:
            continue
        shares = np.array([share for _, share in answer])
        np.testing.assert_allclose(shares, row.topk(5).values, atol=atol)
        np.testing.assert_allclose(shares, [row[tiny.WORDS.index(word)] for word, _ in answer], atol=atol)


@pytest.mark.parametrize(("kind", "family"), OF_FAMILY)
def test_answers_are_the_softmax_of_the_models_own_logits(kind, family):
    built = tiny.model(family)
    tokenizer = tokenizer_of(built)
    door = {"source": built, "tokenizer": tokenizer, "answers": True}
    for length in ((13, 11), (31, 19)):
        text, target = texts(kind, length)
        target = {} if target is None else {"target": target}
        trace = mha.trace(text, **door, **target)
        check(trace, own_answers(tiny.model(family), tokenizer, trace), atol=1e-5)
        masked = kind == "masked"
        at = [at for at, piece in enumerate(trace.answered.pieces) if not masked or piece == MASK]
        assert [at for at, answer in enumerate(trace.answers) if answer is not None] == at
        last = mha.trace(text, **door | {"answers": [at[-1]]}, **target)
        assert [answer is None for answer in last.answers].count(False) == 1
        assert [word for word, _ in last.answers[at[-1]]] == [word for word, _ in trace.answers[at[-1]]]
    assert mha.trace(text, **door | {"answers": False}, **target).answers == ()


@pytest.mark.parametrize(("kind", "family"), [("masked", "bert"), ("next", "gpt2"), ("target", "t5")])
def test_answers_of_a_folder_come_from_its_trained_head_and_are_saved(kind, family, tmp_path):
    built = tiny.model(family)
    built.tie_weights()
    tokenizer = tokenizer_of(built)
    built.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text, target = texts(kind, (13, 11))
    target = {} if target is None else {"target": target}
    trace = mha.trace(text, source=tmp_path / "model", answers=True, **target)
    saved = type(built).from_pretrained(tmp_path / "model", attn_implementation="eager")
    check(trace, own_answers(saved, tokenizer, trace), atol=1e-5)
    trace.save(tmp_path / "trace.safetensors")
    loaded = mha.load(tmp_path / "trace.safetensors")
    assert loaded.answers == trace.answers
    assert loaded.answered == trace.answered
    assert mha.trace(text, source=tmp_path / "model", **target).answers == ()


def test_answers_of_a_folder_without_a_trained_head_are_refused(tmp_path, refused):
    built = tiny.model("bert")
    tokenizer = tokenizer_of(built)
    built.base_model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    text, _ = texts("masked", (13, 11))
    error = refused(mha.trace, text, source=tmp_path, answers=True)
    assert "has no trained weights to answer with: cls.predictions" in str(error)
    assert mha.trace(text, source=tmp_path).layers


def test_a_model_without_answers_is_refused_by_name(refused):
    text, _ = tiny.texts((13, 11))
    built = {family: tiny.model(family) for family in ("bert", "gpt2", "prophetnet", "xlnet")}
    door = {family: {"source": one, "tokenizer": tokenizer_of(one)} for family, one in built.items()}
    assert f"and the text has none; write {MASK} for a word" in str(
        refused(mha.trace, text, **door["bert"], answers=True)
    )
    body = {"source": built["gpt2"].base_model, "tokenizer": door["gpt2"]["tokenizer"]}
    assert "has no head that writes words (GPT2Model)" in str(refused(mha.trace, text, **body, answers=True))
    for family in ("prophetnet", "xlnet"):  # of ProphetNet the hidden cells have a little weight
        assert "look at those behind it" in str(refused(mha.trace, text, **door[family], answers=True))
    said = str(refused(mha.trace, text, **door["gpt2"], answers=True, max_bytes=5000))
    assert "at 13 tokens take 0.00 GB; the limit is 0.00 GB (max_bytes); answers=[-1]" in said
    assert mha.trace(text, **door["gpt2"], answers=[-1], max_bytes=5000).answers[-1]
    for wrong in ([], "w7", [13], [True], 1):
        refused(mha.trace, text, **door["gpt2"], answers=wrong)
    assert "answers is an argument of Hugging Face models" in str(refused(mha.trace, text, answers=True))
    many = mha.trace_many([text, text[:-3]], **door["gpt2"], answers=[-1])
    assert [one.answers[-1] for one in many] == [
        mha.trace(one, **door["gpt2"], answers=[-1]).answers[-1] for one in (text, text[:-3])
    ]


def test_an_edit_changes_the_answer_as_it_does_by_hand():
    built = tiny.model("llama")
    tokenizer = tokenizer_of(built)
    text, _ = texts("next", (13, 11))
    door = {"source": built, "tokenizer": tokenizer, "answers": True}
    off = mha.trace(text, **door, edits=[edits.Output(layer=0, heads=2)])
    own = tiny.model("llama")
    attention = own.model.layers[0].self_attn
    width = attention.o_proj.in_features // own.config.num_attention_heads
    with torch.no_grad():
        attention.o_proj.weight[:, 2 * width : 3 * width] = 0
    check(off, own_answers(own, tokenizer, off), atol=1e-5)
    assert off.answers != mha.trace(text, **door).answers


def test_a_model_that_computes_some_logits_is_asked_only_for_those():
    built = tiny.model("llama")
    model = huggingface.model_of(built, tokenizer=tokenizer_of(built))
    shapes = []
    model.module.register_forward_hook(lambda _, __, result: shapes.append(tuple(result.logits.shape)))
    text, _ = tiny.texts((13, 11))
    asked = huggingface.follow(model, text, answers=[-1, 4])
    assert shapes[-1] == (1, 2, tiny.VOCABULARY)
    looked_at = huggingface.follow(model, text)
    assert shapes[-1] == (1, 1, tiny.VOCABULARY)  # whoever asks nothing waits for no words
    for one, other in zip(asked.layers, looked_at.layers, strict=True):
        np.testing.assert_array_equal(one.weights(), other.weights())


def test_without_a_tokenizer_the_words_are_ids():
    trace = mha.trace([5, 6, 7], source=tiny.model("gpt2"), answers=True)
    assert all(0 <= int(word) < tiny.VOCABULARY for answer in trace.answers for word, _ in answer)
