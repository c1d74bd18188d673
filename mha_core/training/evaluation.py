"""Held-out scores of a small model: how often its answers are right, and where its heads look for them.

Held out are pairs of nouns that never occurred together around a pronoun in training, and whole sentence
shapes. In every sentence the answer to each question is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from mha_core.attention.score_rule import ScoreRule
from mha_core.training.data import LINK_NAMES, NOT_ASKED, Encoded, encode, words_at
from mha_core.training.language import MAX_WORDS, NEUTRAL_SHAPE, Grammar, Sentence
from mha_core.training.lexicon import lexicon
from mha_core.training.model import Flow, Pass, SmallModel
from mha_core.training.questions import LINKS as QUESTION_OF
from mha_core.training.questions import QUESTIONS

PAIRS = 40  # of each pattern
STATEMENTS = 600  # sentences without a pronoun to resolve
READABLE = 0.95  # least accuracy of a head that resolves pronouns
BATCH = 128  # sentences, so that a layer's weights stay in the processor's cache
LONG = 33  # tokens of a text longer than most training texts


@dataclass(frozen=True)
class HeldOutScores:
    """Held-out scores. Layer and head count from 0; the head was chosen on the validation pairs.

    - `answer`: how often the model answers with the right one of the two nouns
    - `accuracy`: how often the best head gives the right noun more weight than the other
    - `both`: how often it does in both sentences of a pair
    - `right`, `wrong`: the mean weights of that head on the two nouns
    - `famous`: the weight of that head on the right noun in each of the famous sentences
    """

    answer: float
    accuracy: float
    both: float
    right: float
    wrong: float
    layer: int
    head: int
    agreement: float
    resolving: int  # heads of the last layer with an accuracy of at least `READABLE`
    famous: tuple[float, ...]
    famous_right: tuple[bool, ...]


@cache
def pairs(
    language: str, split: str, *, agreement: bool = False, count: int = PAIRS, shape: str = ""
) -> Encoded:
    """Minimal pairs of a held-out set, one sentence after the other, `count` for each pattern."""
    return encode(_pairs(language, split, agreement, count, shape), lexicon(language))


def _pairs(language: str, split: str, agreement: bool, count: int, shape: str = "") -> list[Sentence]:
    grammar = Grammar(lexicon(language))
    rng = Random(f"pairs {split} {shape}")
    names: Sequence[str] = ("agreement",) if agreement else tuple(grammar.schemas)
    if shape == NEUTRAL_SHAPE:  # in other patterns nobody could tell which noun is meant
        names = [name for name in names if grammar.schemas[name].get("neutral")]
    return [s for name in names for _ in range(count) for s in grammar.pair(rng, name, split, shape)]


@cache
def everyday(
    language: str,
    *,
    count: int = PAIRS // 2,
    statements: int = STATEMENTS,
    unknown: int = 0,
    long: bool = False,
) -> Encoded:
    """Held-out pairs and statements, with unknown words or after other sentences if asked for."""
    grammar, rng = Grammar(lexicon(language)), Random(f"everyday {unknown} {long}")
    sentences = _pairs(language, "test", False, count) + _pairs(language, "test", True, 4 * count)
    sentences += [grammar.statement(rng) for _ in range(statements)]
    if long:
        longer = [grammar.lengthened(rng, (one,))[0] for one in sentences]
        sentences = [one for one in longer if len(one.words) >= LONG]
    if unknown:
        sentences = [grammar.with_unknown(rng, sentence, unknown) for sentence in sentences]
    return encode([one for one in sentences if len(one.words) <= MAX_WORDS], grammar.lexicon)


@torch.inference_mode()
def answered(model: SmallModel, sentences: Encoded) -> np.ndarray:
    """Whether the answer to each question about each word is right, among all words of its sentence.

    (sentence, position, question); False where there is no question. Equal words count as the same answer.
    """
    right = np.zeros((len(sentences.ids), MAX_WORDS, len(QUESTIONS)), bool)
    for start, ids, padding in in_batches(model, sentences):
        passed = model(ids, padding=padding)
        at = slice(start, start + len(ids))
        for number, question in enumerate(QUESTIONS):
            if question not in model.questions:
                continue
            hidden = model.norm(model.read(passed, question))
            logits = hidden @ model.embedding[ids].mT + model.bias[ids][:, None]
            best = logits.masked_fill(~padding[:, None], -torch.inf).argmax(-1)
            answer = ids.gather(1, best).cpu().numpy()
            keys = sentences.keys[at, : ids.shape[1], number]
            wanted = np.take_along_axis(sentences.ids[at], np.maximum(keys, 0).astype(np.int64), 1)
            right[at, : ids.shape[1], number] = (keys != NOT_ASKED) & (answer == wanted)
    return right


def in_batches(
    model: SmallModel, sentences: Encoded | Material
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """The sentences in batches of `BATCH` on the model's device: the index of the first, ids, padding."""
    device = model.bias.device
    for start in range(0, len(sentences.ids), BATCH):
        lengths = sentences.lengths[start : start + BATCH]
        ids = torch.from_numpy(sentences.ids[start : start + BATCH, : lengths.max()])
        yield start, ids.to(device), torch.from_numpy(words_at(lengths, ids.shape[1])).to(device)


def by_link(model: SmallModel, sentences: Encoded) -> dict[str, float]:
    """How often the answer is right, for each kind of link that the model has a question for."""
    right = answered(model, sentences)
    shares = {}
    for number, name in enumerate(LINK_NAMES):
        places = sentences.links == number
        places[..., [question not in model.questions for question in QUESTIONS]] = False
        if places.any():
            shares[name] = float(right[places].mean())
    return shares


@torch.inference_mode()
def noun_weights(model: SmallModel, sentences: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The weights of every head from the pronoun to both nouns, and whether the model's answer is right.

    (sentence, layer, head, 2) weights on the right and on the other noun; (sentence,) True if the right noun
    gets the higher score.
    """
    weights, right = [], []
    for start, ids, padding in in_batches(model, sentences):
        at = torch.arange(len(ids), device=ids.device)
        of_batch = slice(start, start + len(ids))
        pronoun = torch.from_numpy(sentences.pronoun[of_batch]).to(ids.device)
        nouns = torch.from_numpy(sentences.nouns[of_batch]).to(ids.device)
        passed = model(ids, padding=padding)
        rows = [flow.weights()[at, :, pronoun] for flow in passed.flows]  # (sentence, head, key)
        of_nouns = [row.gather(2, nouns[:, None].expand(-1, row.shape[1], -1)) for row in rows]
        weights.append(torch.stack(of_nouns, 1).cpu().numpy())
        logits = _noun_logits(model, passed, pronoun).gather(1, ids.gather(1, nouns))
        right.append((logits[:, 0] > logits[:, 1]).cpu().numpy())
    return np.concatenate(weights), np.concatenate(right)


def _noun_logits(model: SmallModel, passed: Pass, pronoun: torch.Tensor) -> torch.Tensor:
    """The scores of all words for the noun that the pronoun refers to. (sentence, word)"""
    at = torch.arange(len(pronoun), device=pronoun.device)
    return model.logits(model.read_rows(passed, at, pronoun, model.gates(("noun",))))


@torch.inference_mode()
def blocking_effects(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> dict[str, float]:
    """How often an edit changes the answer, among sentences with a right answer.

    The pronoun is blocked from the right noun, in "all_heads" of the last layer or in the "best_head", chosen
    on validation pairs; or it is "patched": its weights are those of the sentence's twin, in which the other
    noun is right. `count` pairs of each pattern are measured.
    """
    before, _ = noun_weights(model, pairs(language, "validation", count=count))
    best = best_head(before[:, -1:])[1]
    sentences = pairs(language, "test", count=count)
    ids, padding = sentences.batch()
    pronoun, nouns = torch.from_numpy(sentences.pronoun), torch.from_numpy(sentences.nouns)
    edge = nn.functional.one_hot(nouns[:, 0], ids.shape[1]).bool()[:, None, None]  # (sentence, 1, 1, key)
    in_best = edge & (torch.arange(model.shape.h) == best)[:, None, None]

    def answered(rule: ScoreRule = ScoreRule()) -> tuple[torch.Tensor, Flow]:
        rules = [ScoreRule()] * (len(model.layers) - 1) + [rule]
        passed = model(ids, padding=padding, rules=rules)
        logits = _noun_logits(model, passed, pronoun).gather(1, ids).masked_fill(~padding, -torch.inf)
        return ids.gather(1, logits.argmax(-1)[:, None])[:, 0], passed.flows[-1]

    plain, last = answered()
    right = plain == ids.gather(1, nouns)[:, 0]
    twins = torch.arange(len(ids)) ^ 1
    rules = {
        "all_heads": ScoreRule(mask=~edge),
        "best_head": ScoreRule(mask=~in_best),
        "patched": ScoreRule(patched_weights=last.weights()[twins]),
    }
    return {name: float((answered(rule)[0] != plain)[right].float().mean()) for name, rule in rules.items()}


def best_head(weights: np.ndarray) -> tuple[int, int]:
    """The head with the largest sum of accuracy and mean weight on the right noun.

    (sentence, layer, head, 2) → layer and head; for two hops, (sentence, head, head, 2) → the pair of heads.
    """
    right, wrong = weights[..., 0], weights[..., 1]
    value = (right > wrong).mean(0) + right.mean(0)
    row, column = np.unravel_index(value.argmax(), value.shape)
    return int(row), int(column)


def scores(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> HeldOutScores:
    """Held-out scores of a model, its head chosen on validation pairs and scored on test pairs.

    `count` pairs of each pattern are measured.
    """
    layer, head = best_head(noun_weights(model, pairs(language, "validation", count=count))[0])
    weights, answers = noun_weights(model, pairs(language, "test", count=count))
    right, wrong = weights[:, layer, head].T
    correct = right > wrong
    last = weights[:, -1]
    agreement, _ = noun_weights(model, pairs(language, "test", agreement=True, count=count))
    agreed = agreement[..., 0] > agreement[..., 1]
    famous_weights, famous_answers = noun_weights(model, famous(language))
    return HeldOutScores(
        answer=float(answers.mean()),
        accuracy=float(correct.mean()),
        both=float(correct.reshape(-1, 2).all(1).mean()),
        right=float(right.mean()),
        wrong=float(wrong.mean()),
        layer=layer,
        head=head,
        agreement=float(agreed.mean(0).max()),
        resolving=int(((last[..., 0] > last[..., 1]).mean(0) >= READABLE).sum()),
        famous=tuple(float(w) for w in famous_weights[:, layer, head, 0]),
        famous_right=tuple(bool(a) for a in famous_answers),
    )


# Abilities in the order in which a training learns them, each with some of its links.
STAGES = {
    "neighbours": ("word before", "word after"),
    "grammar": ("article to noun", "preposition to object", "verb to subject", "verb to object"),
    "pronouns": ("pronoun to noun",),
}


def stages(model: SmallModel, language: str) -> dict[str, float]:
    """The progress of a training: how often a few held-out answers are right, by `STAGES`."""
    right = by_link(model, everyday(language, count=2, statements=80))
    return {
        stage: float(np.mean([right[link] for link in links if link in right]))
        for stage, links in STAGES.items()
    }


@cache
def famous(language: str) -> Encoded:
    """The famous pair of sentences in this language; training never had it."""
    return encode(Grammar(lexicon(language)).famous(), lexicon(language))


MAX_LINKS = 160  # of each kind
MAX_AT_DISTANCE = 80  # of these, so that no fixed distance finds most of them
LINKS = tuple(name for name in QUESTION_OF if name not in ("word before", "word after"))


@dataclass(frozen=True, eq=False)
class Material:
    """Held-out sentences and some of the links in them, about as many of each kind.

    The two nouns of a pronoun never occurred together in training. All other sentences are newly generated.
    """

    ids: np.ndarray  # (sentence, longest)
    lengths: np.ndarray  # (sentence,)
    kind: np.ndarray  # (link,): an index of LINK_NAMES
    sentence: np.ndarray  # (link,), rising
    query: np.ndarray  # (link,): position of the word in question
    key: np.ndarray  # (link,): position of the word that answers


class LinkWeights(NamedTuple):
    """The weights of every head on the links of the material."""

    weight: np.ndarray  # (link, layer, head): on the right key
    right: np.ndarray  # (link, layer, head): True if no key gets more; the first of equal keys counts
    weights: list[np.ndarray]  # of all sentences, each (layer, head, query, key), without padding


@cache
def material(language: str) -> Material:
    """The same sentences on every call. Raises `MhaError` for an unknown language."""
    sentences = everyday(language)
    kept = []
    for number in range(len(QUESTION_OF)):
        sentence, query, question = np.nonzero(sentences.links == number)
        key = sentences.keys[sentence, query, question].astype(np.int64)
        chosen = np.random.default_rng(number).permutation(len(sentence))
        distances: Counter[int] = Counter()
        for at in chosen:
            distance = key[at] - query[at]
            if distances.total() < MAX_LINKS and (
                distances[distance] < MAX_AT_DISTANCE or LINK_NAMES[number] not in LINKS
            ):
                distances[distance] += 1
                kept.append((number, sentence[at], query[at], key[at]))
    links = np.array(kept)
    links = links[np.argsort(links[:, 1], kind="stable")]
    length = sentences.lengths.max()
    return Material(sentences.ids[:, :length], sentences.lengths, *links.T)


@torch.inference_mode()
def link_weights(model: SmallModel, material: Material) -> LinkWeights:
    """The weights of a model's heads at every link of the material."""
    weight, right, whole = [], [], []
    for start, ids, padding in in_batches(model, material):
        lengths = material.lengths[start : start + len(ids)]
        flows = model(ids, padding=padding).flows
        # (sentence, layer, head, query, key)
        weights = torch.stack([flow.weights() for flow in flows], 1).cpu().numpy()
        chosen = slice(*np.searchsorted(material.sentence, (start, start + len(ids))))
        rows = weights[
            material.sentence[chosen] - start, :, :, material.query[chosen]
        ]  # (link, layer, head, key)
        on_key = np.take_along_axis(rows, material.key[chosen, None, None, None], 3)[..., 0]
        weight.append(on_key)
        right.append(rows.argmax(3) == material.key[chosen, None, None])
        whole += [w[:, :, :n, :n] for w, n in zip(weights, lengths, strict=True)]
    return LinkWeights(np.concatenate(weight), np.concatenate(right), whole)


@torch.inference_mode()
def sentence_weights(model: SmallModel, ids: Sequence[int]) -> list[np.ndarray]:
    """The weights of every head over one sentence: for each layer (head, query, key), as copies."""
    flows = model(torch.tensor([list(ids)], device=model.bias.device)).flows
    return [flow.weights()[0].cpu().numpy() for flow in flows]
