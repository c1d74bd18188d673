"""Heads described in papers: the findings, our sentences, and measures on traces with a known result."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core import resources
from mha_core.analysis import literature
from mha_core.analysis.literature import LINK, WORD, Finding, between_words, findings, measure
from mha_core.traces.layer import LayerTrace

CATALOGUE = json.loads(resources.path("assets", "published_heads.json").read_text(encoding="utf-8"))
SENTENCES = CATALOGUE["sentences"]
RELATIONS = sorted({relation for sentence in SENTENCES for relation in sentence["links"]})


def place(text: str, spans: list[tuple[int, int]], word: str) -> int:
    """Which of the words it is: "the:2" is the second "the"."""
    name, _, nth = word.partition(":")
    return [at for at, (start, end) in enumerate(spans) if text[start:end] == name][int(nth or 1) - 1]


def looking(at):
    """A model of one layer and two heads: head 1 looks from m only at ``at(tokens, m)``, head 0 evenly."""

    def trace(text: str) -> mha.AttentionTrace:
        tokens = mha.words(text)
        n = len(tokens)
        weights = torch.zeros(2, n, n)
        weights[0] = 1 / n
        for m in range(n):
            weights[1, m, at(tokens, m)] = 1.0
        return mha.AttentionTrace(tokens, (LayerTrace({"weights": weights}),), {"name": "by hand"})

    return trace


def finding(measure: str, head: int = 1) -> Finding:
    return Finding("any", 0, head, measure, None, "a test", "0.1")


# What is on file


def test_every_finding_names_an_existing_measure():
    known = {*literature.MEASURES, *(LINK + relation for relation in RELATIONS)} - {"link"}
    for model in CATALOGUE["models"]:
        assert findings(model)
        assert {found.measure for found in findings(model)} <= known


def test_all_layers_and_heads_count_from_0_whatever_the_paper_does():
    for found in findings("bert-base-uncased"):
        assert found.printed == f"{found.layer + 1}-{found.head + 1}"
    for found in findings("gpt2"):
        assert found.printed == f"{found.layer}.{found.head}"


def test_an_unpublished_model_has_no_findings():
    assert findings("someone/their-own-bert") == ()


def test_every_link_names_two_words_of_its_sentence():
    for sentence in SENTENCES:
        spans = [word.span() for word in WORD.finditer(sentence["text"])]
        for links in sentence["links"].values():
            for link in links:
                one, other = (place(sentence["text"], spans, word) for word in link.split())
                assert one != other


def test_no_word_is_the_same_part_of_two_words_and_every_relation_has_items():
    count = Counter()
    for sentence in SENTENCES:
        for relation, links in sentence["links"].items():
            dependents = [link.split()[0] for link in links]
            assert len(set(dependents)) == len(dependents), (sentence["text"], relation)
            count[relation] += len(links)
    assert min(count.values()) >= 6


def test_determiners_and_adjectives_stand_before_their_noun():
    for sentence in SENTENCES:
        spans = [word.span() for word in WORD.finditer(sentence["text"])]
        for relation in ("determiner", "adjective", "possessive"):
            for link in sentence["links"].get(relation, []):
                one, other = (place(sentence["text"], spans, word) for word in link.split())
                assert one < other <= one + 3, link


# What is measured


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_perfect_head_scores_1_and_a_uniform_one_almost_0(relation):
    def at(tokens, m):
        for sentence in SENTENCES:
            if sentence["text"] == tokens.text:
                for link in sentence["links"].get(relation, []):
                    one, other = (place(tokens.text, list(tokens.spans), w) for w in link.split())
                    if one == m:
                        return other
        return 0

    right = measure(finding(LINK + relation), looking(at))
    even = measure(finding(LINK + relation, head=0), looking(at))
    n = sum(len(sentence["links"].get(relation, [])) for sentence in SENTENCES)
    assert (right.score, right.n, even.n) == (1.0, n, n)
    assert even.score < 0.8  # of equals the first word counts, which is the head of some


def test_the_weight_of_a_word_on_itself_does_not_count():
    """Each word looks mostly at itself, and with the rest at the word before it."""

    def trace(text: str) -> mha.AttentionTrace:
        tokens = mha.words(text)
        itself = torch.eye(len(tokens))
        weights = 0.9 * itself + 0.1 * itself.roll(-1, 1)
        return mha.AttentionTrace(tokens, (LayerTrace({"weights": weights[None]}),), {"name": "by hand"})

    found = measure(finding(LINK + "particle", head=0), trace)
    assert (found.score, found.n) == (1.0, 6)  # "gave up", "picked up": each stands behind its verb


@pytest.mark.parametrize(("name", "step"), [("previous token", -1), ("next token", 1), ("first token", None)])
def test_measures_of_positions_by_hand(name, step):
    def at(tokens, m):
        return 0 if step is None else min(max(m + step, 0), len(tokens) - 1)

    assert measure(finding(name), looking(at)).score == 1.0
    even = measure(finding(name, head=0), looking(at)).score
    assert 0.05 < even < 0.13  # one of eight to fourteen tokens


def earlier(tokens, m, beyond: int) -> int:
    same = [n for n in range(m) if tokens.pieces[n] == tokens.pieces[m]]
    return same[-1] + beyond if same else m


@pytest.mark.parametrize(("name", "beyond"), [("duplicate", 0), ("induction", 1)])
def test_measures_of_repetition_by_hand(name, beyond):
    right = measure(finding(name), looking(lambda tokens, m: earlier(tokens, m, beyond)))
    wrong = measure(finding(name), looking(lambda tokens, m: earlier(tokens, m, 1 - beyond)))
    assert (right.score, right.n, wrong.score) == (1.0, 40, 0.0)


@pytest.mark.parametrize(("name", "which"), [("name mover", 0), ("second subject", 1)])
def test_measures_of_names_by_hand(name, which):
    """In "When Mary and John went …, John gave a drink to" Mary occurs once and John twice."""
    people = {person for pair in CATALOGUE["names"] for person in pair}

    def at(tokens, m):
        if m < len(tokens) - 1:
            return m
        said = [n for n, piece in enumerate(tokens.pieces) if piece in people]
        count = Counter(tokens.pieces[n] for n in said)
        once = next(n for n in said if count[tokens.pieces[n]] == 1)
        return (once, said[-1])[which]

    found = measure(finding(name), looking(at))
    assert (found.score, found.n) == (1.0, 2 * len(CATALOGUE["names"]) * 4)
    other = {"name mover": "second subject", "second subject": "name mover"}[name]
    assert measure(finding(other), looking(at)).score == 0.0


def test_pieces_of_a_word_are_summed_where_looked_at_and_averaged_where_looking():
    tokens = mha.Tokens("unkind dogs", ("un", "kind", " dogs"), ((0, 2), (2, 6), (6, 11)))
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [0.5, 0.25, 0.25]])
    found = between_words(weights, tokens, [(0, 6), (7, 11)])
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.75, 0.25]])


def test_a_model_without_that_layer_or_head_is_refused(refused):
    model = looking(lambda tokens, m: m)
    assert "1 layers; the paper speaks of 0.1" in str(
        refused(measure, Finding("any", 3, 0, "previous token", None, "", "0.1"), model)
    )
    refused(measure, finding("previous token", head=2), model)


def test_a_word_without_a_piece_is_refused(refused):
    tokens = mha.Tokens("two words", ("two",), ((0, 3),))
    assert "“words”" in str(refused(between_words, np.ones((1, 1)), tokens, [(0, 3), (4, 9)]))
