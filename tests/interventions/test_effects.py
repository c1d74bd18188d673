"""The effect of a head on an answer is exactly that of the edit that switches the head off."""

import math
from threading import Thread

import numpy as np
import pandas as pd
import pytest
import torch

import mha_core as mha
from mha_core import edits
from mha_core.interventions.effects import MeasurementStopped
from mha_core.sources import mini
from mha_core.sources.huggingface import model as huggingface
from mha_core.training.lexicon import lexicon
from tests.parity import tiny
from tests.sources import tiny as small
from tests.sources.huggingface.test_answers import texts, tokenizer_of

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # many models
TIRED = "The animal didn't cross the street because it was too tired."


def log_probability(trace: mha.AttentionTrace, at: int, word: str) -> float:
    return math.log(dict(trace.answers[at])[word])


def check(frame: pd.DataFrame, without, at: int, word: str, atol: float = 1e-4) -> None:
    """`without` traces the text with edits; heads without which the word is no answer at all are left out."""
    compared = 0
    value = log_probability(without(), at, word)
    assert frame.attrs["value"] == pytest.approx(value, abs=atol)
    for row in frame.iloc[::3].itertuples():
        edited = without(edits.Output(layer=row.layer, heads=row.head))
        if word in dict(edited.answers[at]):
            assert row.effect == pytest.approx(log_probability(edited, at, word) - value, abs=atol)
            compared += 1
    assert compared


def test_an_effect_is_what_the_edit_does_and_the_largest_is_first():
    trace = mha.trace(TIRED, source="mini")
    frame = mha.effects(trace)
    assert frame.columns.tolist() == ["layer", "head", "effect"]
    assert (frame.effect.abs().diff().dropna() <= 0).all()
    assert {*zip(frame.layer, frame["head"], strict=True)} == {(at // 4, at % 4) for at in range(8)}
    assert frame.attrs | {"value": 0} == {"at": 8, "answer": "animal", "value": 0}
    check(frame, lambda *e: mha.trace(TIRED, source="mini", edits=e), 8, "animal")


def test_an_answer_depends_on_the_heads_of_its_question():
    """Of the last layer; a glass-box has nothing that leads around them."""
    trace = mha.trace(TIRED, source="mini")
    frame = mha.effects(trace, at="cross").set_index(["layer", "head"]).effect
    asked = [head for head, questions in enumerate(trace.source.questions) if "noun" in questions.split()]
    assert [head for head in range(4) if abs(frame[1, head]) > 1e-5] == asked
    hidden = mha.trace(TIRED.replace("animal", "[MASK]"), source="mini")
    frame = mha.effects(hidden, at="[MASK]").set_index(["layer", "head"]).effect
    assert (frame[1].abs() > 1e-5).all()  # at a hidden word all help


def test_an_unknown_word_is_an_answer_as_it_was_typed():
    text = "The zorg didn't cross the street because it was too tired."
    trace = mha.trace(text, source="mini")
    words = {word for word, _ in trace.answers[8]}
    frame = mha.effects(trace, at=8, answer="zorg")
    assert "zorg" in words
    assert frame.attrs["answer"] == "zorg"
    assert math.exp(frame.attrs["value"]) == pytest.approx(dict(trace.answers[8])["zorg"], abs=1e-4)


def test_a_margin_counts_both_words_and_keeps_edits():
    change = (edits.Output(layer=0, heads=2),)
    trace = mha.trace(TIRED, source="mini", edits=change)
    frames = [mha.effects(trace, answer=word) for word in ("animal", "street")]
    margin = mha.effects(trace, answer="animal", against="street").set_index(["layer", "head"])
    first, second = (frame.set_index(["layer", "head"]).effect for frame in frames)
    pd.testing.assert_series_equal(margin.effect.sort_index(), (first - second).sort_index(), atol=1e-4)
    assert abs(margin.loc[(0, 2), "effect"]) < 1e-4  # it is off already


def test_a_gradient_is_the_slope_of_the_answer_by_a_heads_output():
    """Against the difference quotient of the output's factor, from traces with a head at 1 ± a little."""
    trace = mha.trace(TIRED, source="mini")
    frame = mha.effects(trace, method="gradient")
    for row in frame.itertuples():
        output, ends = trace.layers[row.layer].output(row.head), []
        for factor in (0.99, 1.01):
            values = torch.tensor(output * factor)
            change = edits.Output(layer=row.layer, heads=row.head, values=values)
            ends.append(log_probability(mha.trace(TIRED, source="mini", edits=[change]), 8, "animal"))
        assert row.effect == pytest.approx((ends[0] - ends[1]) / 0.02, abs=5e-3, rel=2e-2)
    both = mha.effects(trace, method="both")
    assert both.columns.tolist() == ["layer", "head", "effect", "estimate"]
    ranks = both[["effect", "estimate"]].rank()
    expected = np.corrcoef(ranks.effect, ranks.estimate)[0, 1]
    assert both.attrs["rank_correlation"] == pytest.approx(expected)


SENTENCES = ["The dog was tired.", "The man saw the woman because she was near the house.", TIRED]


def averaged(corpus: list[str], door: dict) -> list[np.ndarray]:
    """Of each layer the heads' outputs averaged over all tokens of the corpus, (head, d_v)."""
    layers = zip(*(mha.trace(text, **door).layers for text in corpus), strict=True)
    return [np.concatenate([layer.output() for layer in same], 1).mean(1) for same in layers]


def check_means(corpus: list[str], text: str, door: dict, answers: dict, at: int, word: str) -> None:
    """Each effect equals that of the edit that replaces a head's output by its mean."""
    trace = mha.trace(text, **door, **answers)
    source = {} if "tokenizer" not in door else door
    frame = mha.effects(trace, at=at, answer=word, baseline=corpus, **source)
    zero = mha.effects(trace, at=at, answer=word, **source)
    of_mean, of_zero = (one.set_index(["layer", "head"]).effect.sort_index() for one in (frame, zero))
    assert (of_mean - of_zero).abs().max() > 1e-3
    means, compared = averaged(corpus, door), 0
    for row in frame.iloc[::2].itertuples():
        mean = edits.Output(layer=row.layer, heads=row.head, values=means[row.layer][row.head].tolist())
        edited = mha.trace(text, **door, **answers, edits=[mean])
        if word in dict(edited.answers[at]):
            effect = log_probability(edited, at, word) - frame.attrs["value"]
            assert row.effect == pytest.approx(effect, abs=1e-4)
            compared += 1
    assert compared


def test_outputs_are_averaged_over_all_tokens_of_all_texts(refused):
    traces = [mha.trace(text, source="mini") for text in SENTENCES]
    for mean, expected in zip(
        mha.mean_outputs(iter(traces)), averaged(SENTENCES, {"source": "mini"}), strict=True
    ):
        np.testing.assert_allclose(mean, expected, atol=1e-6)
    mean = edits.Output(layer=1, heads=3, values=mha.mean_outputs(traces)[1][3])
    edited = mha.trace(TIRED, source="mini", edits=[mean])
    np.testing.assert_allclose(edited.layers[1].output(3), np.tile(mean.values, (13, 1)), atol=1e-6)
    assert "no trace" in str(refused(mha.mean_outputs, []))
    assert "different layers" in str(refused(mha.mean_outputs, [*traces, mha.trace(TIRED, h=2, d_model=8)]))
    weights = mha.from_weights(traces[0].layers[0].weights(), traces[0].tokens.labels)
    assert refused(mha.mean_outputs, [weights])
    for wrong in (None, 3, traces[0]):
        assert "takes several traces, as in a list; got" in str(refused(mha.mean_outputs, wrong))
    for wrong in ("text", [3], traces[0].layers):
        assert "A trace is needed" in str(refused(mha.mean_outputs, wrong))


@pytest.mark.parametrize(("kind", "family"), [("masked", "albert"), ("next", "mixtral"), ("target", "t5")])
def test_effects_work_for_models_of_transformers(kind, family):
    built = tiny.model(family)
    door = {"source": built, "tokenizer": tokenizer_of(built)}
    text, target = texts(kind, (13, 11))
    door |= {} if target is None else {"target": target}
    trace = mha.trace(text, **door, answers=True)
    at = next(at for at, answer in enumerate(trace.answers) if answer)
    word = trace.answers[at][0][0]
    source = {"source": built, "tokenizer": door["tokenizer"]}
    frame = mha.effects(trace, at=at, answer=word, method="both", **source)
    assert len(frame) == sum(layer.n_heads for layer in trace.layers)
    assert ("kind" in frame) == (kind == "target")
    check(frame, lambda *e: mha.trace(text, **door, edits=e, answers=[at]), at, word)
    assert frame.attrs["rank_correlation"] > 0.7  # where effects are small the slope is most of them
    assert trace.answers == mha.trace(text, **door, answers=True).answers  # nothing is left in the model


def test_with_a_baseline_a_head_gives_its_mean_over_texts():
    check_means(SENTENCES, TIRED, {"source": "mini"}, {}, 8, "animal")


def test_mean_outputs_work_for_models_of_transformers():
    built = tiny.model("llama")
    door = {"source": built, "tokenizer": tokenizer_of(built)}
    corpus = [texts("next", (length, 11))[0] for length in (13, 7, 5)]
    answers = mha.trace(corpus[0], **door, answers=True).answers
    at = next(at for at, answer in enumerate(answers) if answer)
    check_means(corpus, corpus[0], door, {"answers": [at]}, at, answers[at][0][0])


def test_a_baseline_of_nothing_or_with_a_target_is_refused(refused):
    trace = mha.trace(TIRED, source="mini")
    for baseline in ([], TIRED, [1, 2], 3):
        assert "list of texts" in str(refused(mha.effects, trace, baseline=baseline))
    built = tiny.model("marian")
    door = {"source": built, "tokenizer": tokenizer_of(built)}
    text, target = texts("target", (13, 11))
    trace = mha.trace(text, target=target, **door, answers=True)
    assert "with a target" in str(refused(mha.effects, trace, baseline=[text], **door))


def test_a_target_that_a_model_has_written_is_read_again_in_its_pieces():
    """Its text would be split differently by the tokenizer."""
    model = huggingface.model_of(small.module("t5"), tokenizer=small.fast())
    trace = huggingface.follow(model, "the animal", answers=True)
    read = huggingface.reading(model, "the animal", target=trace.answered.text)
    assert read.target.pieces != trace.answered.pieces
    frame = mha.effects(trace, source=model, method="gradient")
    assert frame.attrs["at"] == len(trace.answered) - 1
    assert frame.attrs["answer"] == trace.answers[-1][0][0]
    why = mha.attribution(trace, layer=4, head=0, query=1, key=1, source=model)
    assert abs(why.terms.sum() - why.value) <= 1e-5 * abs(why.terms).sum()


def test_answers_and_effects_work_in_half_precision():
    dtype = torch.bfloat16
    built = tiny.model("llama").to(dtype)
    door = {"source": built, "tokenizer": tokenizer_of(built)}
    text, _ = texts("next", (13, 11))
    frame = mha.effects(mha.trace(text, **door), method="both", **door)
    alone = tiny.model("llama").to(dtype).float()
    full = {"source": alone, "tokenizer": door["tokenizer"]}
    answer = frame.attrs["answer"]
    expected = mha.effects(mha.trace(text, **full), answer=answer, **full).set_index(["layer", "head"])
    ours = frame.set_index(["layer", "head"])
    np.testing.assert_allclose(ours.effect.sort_index(), expected.effect.sort_index(), atol=0.1)


def test_a_model_of_a_folder_is_loaded_by_its_name(tmp_path):
    built = tiny.model("gpt2")
    built.save_pretrained(tmp_path)
    tokenizer_of(built).save_pretrained(tmp_path)
    text, _ = texts("next", (13, 11))
    trace = mha.trace(text, source=tmp_path, answers=True)
    trace.save(tmp_path / "trace.safetensors")
    frames = [mha.effects(one) for one in (trace, mha.load(tmp_path / "trace.safetensors"))]
    pd.testing.assert_frame_equal(*frames)
    assert frames[0].attrs["at"] == 12


def test_progress_is_reported_and_a_measurement_can_be_stopped():
    trace = mha.trace(TIRED, source="mini")
    steps = []
    mha.effects(trace, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (8, 8)
    with pytest.raises(MeasurementStopped, match="Stopped after 0 of 8 heads"):
        mha.effects(trace, cancelled=lambda: True)


def test_threads_are_independent():
    built = tiny.model("llama")
    model = {"source": built, "tokenizer": tokenizer_of(built)}
    lines = [" ".join(tiny.WORDS[5 + n : 12 + n]) for n in range(4)]
    alone = [mha.effects(mha.trace(line, **model), **model) for line in lines]
    together: list = [None] * 4

    def measure(n: int) -> None:
        together[n] = mha.effects(mha.trace(lines[n], **model), **model)

    threads = [Thread(target=measure, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_trace_without_effects_is_refused_by_name(refused):
    trace = mha.trace(TIRED, source="mini")
    for wrong in (None, 1, "a text", []):
        assert "A trace is needed, as mha.trace(text) returns it" in str(refused(mha.effects, wrong))
    weights = mha.from_weights(np.full((1, 1, 2, 2), 0.5), ["a", "b"])
    assert "(weights) runs nothing" in str(refused(mha.effects, weights))
    assert "(random weights) answers nothing" in str(refused(mha.effects, mha.trace("a b", h=2, d_model=4)))
    assert "at is a token at which the model answers: 1, 2" in str(refused(mha.effects, trace, at="[CLS]"))
    for word in ("xyzzy", "dog", lexicon("en").number["dog"]):  # the model answers with words of the text
        error = refused(mha.effects, trace, answer=word)
        assert "The model cannot answer with" in str(error)
        assert error.fixes[0] == {"answer": "animal"}
    assert "method" in str(refused(mha.effects, trace, method="guess"))
    untrained = mini.model(mini.find("en", "glass-box", 4, 64), trained=False)
    assert "computes other numbers than the trace" in str(refused(mha.effects, trace, source=untrained))


def test_a_wrong_or_uneditable_model_is_refused(refused):
    text, _ = texts("next", (13, 11))
    built = {family: tiny.model(family) for family in ("codegen", "llama")}
    doors = {family: {"source": one, "tokenizer": tokenizer_of(one)} for family, one in built.items()}
    watched = mha.trace(text, **doors["codegen"], answers=True)
    assert "would change the picture" in str(refused(mha.effects, watched, **doors["codegen"]))
    trace = mha.trace(text, **doors["llama"])
    with torch.no_grad():
        built["llama"].model.layers[0].self_attn.q_proj.weight.mul_(1.5)
    small.forget()
    assert "computes other numbers than the trace" in str(refused(mha.effects, trace, **doors["llama"]))
