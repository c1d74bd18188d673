"""Decoders: the texts they learn, the loss of the next word, and the perplexities beside theirs."""

from collections import Counter
from random import Random

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.attention.edits import Hide
from mha_core.sources import mini
from mha_core.training import checkpoints
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import LANGUAGES, lexicon
from mha_core.training.model import Shape, SmallModel
from mha_core.training.workshop import next_words
from mha_core.training.workshop.next_words import next_word_losses, texts

PLANS = [plan for plan in checkpoints.PLANS if plan.is_decoder]
TEXT = "The animal didn't cross the street. Zork drank the"


@pytest.mark.parametrize("language", LANGUAGES)
def test_verbs_have_objects_that_fit_and_words_are_those_of_the_models(language):
    words, grammar = lexicon(language), next_words._grammar(language)
    told = [one for one in grammar.statements if any(part.startswith("{told") for part in one)]
    forms = grammar.phrases._base
    objects = {
        verb: {form for noun in nouns for form in (noun.one, noun.many)}
        for verb, nouns in grammar.phrases._objects.items()
    }
    found = 0
    for template in told:
        made, _ = grammar.phrases.filled(Random(len(template)), template, {})
        verb = next(word.text for word in made if forms.get(word.text) in objects)
        after = made[[word.text for word in made].index(verb) :]
        found += any(word.text in objects[forms[verb]] for word in after)
        assert all(word.text in words.number for word in made)
    assert found > 0.9 * len(told)  # a form such as "fell" has two verbs


def test_texts_begin_with_a_sentence_have_one_length_and_follow_from_their_seed():
    some = texts("en", 7, 0, 30)
    words = lexicon("en")
    assert some.shape == (30, MAX_WORDS)
    assert {*some[:, 0]} == {words.number["[CLS]"]}
    assert (some[:, 1:] > words.number["[MASK]"]).all()
    texts.cache_clear()
    assert np.array_equal(some, texts("en", 7, 0, 30))
    assert not np.array_equal(some, texts("en", 7, 1, 30))


def test_the_loss_of_a_word_is_that_of_its_prefix_and_words_without_a_name_have_none():
    model, n_known = SmallModel(Shape("decoder-latent", 2, 8), 20), 15
    ids = torch.tensor([[1, 4, 17, 6, 14], [1, 15, 3, 3, 16]])
    losses = next_word_losses(model, ids, n_known)
    expected = []
    for text in ids:
        for at in range(1, len(text)):
            if text[at] < n_known:
                passed = model(text[None, :at])
                logits = model.logits(model.read(passed, "next")[0, -1], slice(n_known))
                expected.append(-logits.log_softmax(-1)[text[at]])
    torch.testing.assert_close(losses, torch.stack(expected))


def test_the_probabilities_of_counts_are_those_of_their_formula():
    trained, held_out = np.array([[1, 3, 4, 3], [1, 3, 5, 8]]), np.array([[1, 3, 4, 4, 6], [1, 8, 3, 5, 7]])
    n_words, n_known = 9, 7
    counts = Counter()
    for row in trained.tolist():
        for at, word in enumerate(row[1:], start=1):
            if word < n_known:
                counts.update((tuple([0, *row][at + 2 - n : at + 1]), word) for n in (1, 2, 3))

    def chance(context, word):
        lower = chance(context[1:], word) if context else 1 / n_known
        after = {w: c for (before, w), c in counts.items() if before == context}
        total = sum(after.values())
        return (after.get(word, 0) + len(after) * lower) / (total + len(after)) if after else lower

    found = next_words.counted_chances(trained, held_out, n_words, n_known)
    wanted = [
        (([0, *row][at - 1 : at + 1]), word)
        for row in held_out.tolist()
        for at, word in enumerate(row)
        if at and word < n_known
    ]
    for n in (1, 2, 3):
        by_hand = [chance(tuple(before[len(before) + 1 - n :]), word) for before, word in wanted]
        np.testing.assert_allclose(found[n], by_hand, rtol=1e-12)
    assert sum(chance((1, 3), word) for word in range(n_known)) == pytest.approx(1)


# The shipped ones


@pytest.mark.parametrize("plan", PLANS, ids=checkpoints.name)
def test_every_decoder_predicts_better_than_counts_of_the_same_texts(plan):
    found = checkpoints.manifest()[checkpoints.name(plan)]["scores"]["perplexity"]
    assert found["words"] > 50_000
    assert found["model"] < 0.8 * found["trigram"] < found["unigram"] / 4


@pytest.mark.slow
def test_the_perplexity_of_the_manifest_is_reproducible():
    plan = mini.find("zh", "decoder", 4, 64)
    written = checkpoints.manifest()[checkpoints.name(plan)]["scores"]["perplexity"]
    words = lexicon("zh")
    n_known = len(words.vocabulary) - len(words.spares)
    held_out = torch.from_numpy(texts("zh", "held out", 0, next_words.HELD_OUT))
    with torch.inference_mode():
        losses = [next_word_losses(mini.model(plan).model, some, n_known) for some in held_out.split(64)]
    assert float(torch.cat(losses).mean().exp()) == pytest.approx(written["model"], rel=2e-3)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.language == "en"], ids=checkpoints.name)
def test_each_row_is_that_of_the_text_up_to_it_and_the_rest_is_not_seen(plan):
    sizes = {"source": "mini", "architecture": plan.architecture, "h": plan.h, "d_model": plan.d_model}
    whole, some = mha.trace(TEXT, **sizes), mha.trace("The animal didn't cross", **sizes)
    n = len(some.tokens)
    for one, other in zip(whole.layers, some.layers, strict=True):
        weights = one.weights()
        assert not np.triu(weights, 1).any()
        np.testing.assert_allclose(weights[:, :n, :n], other.weights(), atol=1e-6)
        np.testing.assert_allclose(one.output()[:, :n], other.output(), atol=1e-5)
    for answer, again in zip(whole.answers, some.answers, strict=False):
        assert [word for word, _ in answer] == [word for word, _ in again]
    assert not whole.questions


def test_the_famous_sentence_goes_on_with_something_to_cross_and_a_verb_with_what_fits():
    drinks = {"water", "milk", "tea", "coffee", "juice", "lemonade", "beer", "wine", "cocoa", "soda"}
    for text, fitting, count in (
        ("The animal didn't cross the", {"street", "road", "river", "bridge", "lake", "path"}, 3),
        ("She drank the", drinks, 4),
        ("Humpty dumpty sat on a", {"wall"}, 1),
        ("小猫没有过", {"马路", "街道", "河", "小溪", "公路", "桥"}, 1),
    ):
        said = {word for word, _ in mha.trace(text, source="mini", architecture="decoder").answers[-1]}
        assert len(said & fitting) >= count, said


def test_an_edit_leaves_the_mask_and_an_effect_is_on_the_next_word():
    trace = mha.trace(TEXT, source="mini", architecture="decoder", edits=[Hide(rows="drank", keys="Zork")])
    weights = trace.layers[0].weights()
    at = [trace.tokens.index(word) for word in ("drank", "Zork")]
    assert not weights[:, at[0], at[1]].any()
    assert not np.triu(weights, 1).any()
    effects = mha.effects(trace)
    assert effects.attrs["at"] == len(trace.tokens) - 1
    assert effects.attrs["answer"] == trace.answers[-1][0][0]


def test_a_decoder_refuses_a_hidden_word_and_names_a_model_that_reads_it():
    with pytest.raises(mha.MhaError) as caught:
        mha.trace("The [MASK] sat", source="mini", architecture="decoder")
    assert mha.trace("The [MASK] sat", source="mini", **caught.value.fixes[0]).answers[2]


APPENDED = [
    *(
        ("The cat", "sat", "The cat sat"),
        ("The cat sat", ".", "The cat sat."),
        ("It sat.", "mary", "It sat. Mary"),
    ),
    *(("It sat!", "the", "It sat! The"), ("It saw", "paris", "It saw Paris"), ("And", "i'm", "And I'm")),
    *(
        ("It saw", "it", "It saw it"),
        ("It ", "sat", "It sat"),
        ("小猫", "睡觉", "小猫睡觉"),
        ("“Yes.”", "he", "“Yes.” He"),
    ),
]


def test_the_next_word_is_written_as_people_write_it():
    assert [mini.appended(text, word) for text, word, _ in APPENDED] == [text for *_, text in APPENDED]
