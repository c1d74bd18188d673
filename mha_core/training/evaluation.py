"""Held-out scores of a small model, the head that shows them best, and what every head does there.

Pairs of sentences of which one word decides what a pronoun stands for; and sentences in which it is known
which word belongs to which: in "The kind doctor bought a lamp" *kind* belongs to *doctor*, *lamp* to
*bought*. Words that a model was trained on only when they were hidden are asked a second time, hidden.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from mha_core.attention.functional import attention_weights
from mha_core.attention.score_rule import ScoreRule
from mha_core.training.data import Encoded, encode, words_at
from mha_core.training.language import EVERYDAY, Grammar, Phrases, Sentence
from mha_core.training.lexicon import HIDDEN, PAD, Lexicon, lexicon
from mha_core.training.model import Flow, SmallModel

PAIRS = 40  # of each pattern
READABLE = 0.95, 0.5  # accuracy and weight from which a head can be read without a guide


@dataclass(frozen=True)
class Scores:
    """Held-out scores. Layer and head count from 0; the head was chosen on the validation pairs.

    `answer` is how often the model's own answer is the right one of the two nouns. `accuracy` is how
    often the best head gives the right noun more weight than the other, `both` how often in both
    sentences of a pair; `right` and `wrong` are its mean weights on the two nouns. `famous` is the weight
    of that head on the right noun in each of the famous sentences.
    """

    answer: float
    accuracy: float
    both: float
    right: float
    wrong: float
    layer: int
    head: int
    agreement: float
    resolving: int  # heads of the last layer that are right in at least 95 %
    famous: tuple[float, ...]
    famous_right: tuple[bool, ...]


@cache
def pairs(language: str, split: str, *, agreement: bool = False, count: int = PAIRS) -> Encoded:
    """Minimal pairs of a held-out set, one sentence after the other, `count` for each pattern."""
    grammar = Grammar(lexicon(language))
    rng = Random(f"pairs {split}")
    names = ("agreement",) if agreement else grammar.names
    sentences = [s for name in names for _ in range(count) for s in grammar.pair(rng, name, split)]
    return encode(sentences, grammar.lexicon)


@torch.inference_mode()
def noun_weights(model: SmallModel, sentences: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The weights of every head from the pronoun to both nouns, and whether the model answers right.

    (sentence, layer, head, 2) weights on the right and on the other noun; (sentence,) True where the
    right noun gets the higher score.
    """
    at = torch.arange(len(sentences.ids))
    ids, padding = sentences.batch()
    pronoun, nouns = torch.from_numpy(sentences.pronoun), torch.from_numpy(sentences.nouns)
    hidden, flows = model(ids, rows=pronoun[:, None], padding=padding)
    weights = []
    for flow in flows:
        q, k, _, rule = flow.attended[1:]
        q = q if q.shape[2] == 1 else q[at, :, pronoun][:, :, None]
        row = attention_weights(q, k, rule)[:, :, 0]  # (sentence, head, key)
        weights.append(row.gather(2, nouns[:, None].expand(-1, row.shape[1], -1)))
    logits = model.logits(hidden[:, 0])
    of_nouns = logits.gather(1, ids.gather(1, nouns))
    return torch.stack(weights, 1).numpy(), (of_nouns[:, 0] > of_nouns[:, 1]).numpy()


@dataclass(frozen=True)
class Cuts:
    """How often another word becomes the most probable one, of sentences that were answered right.

    `all_heads` and `best_head`: where no head of the last layer, or all but the best one, may look from the
    pronoun at the right noun; `patched`: where the pronoun's weights are those of the sentence's twin, in
    which the other noun is right.
    """

    all_heads: float
    best_head: float
    patched: float


@torch.inference_mode()
def cuts(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> Cuts:
    """What decides an answer: the edge from pronoun to noun in all heads, in the best one, its whole row.

    The best head of the last layer is chosen on validation pairs; `count` pairs of each pattern are measured.
    """
    before, _ = noun_weights(model, pairs(language, "validation", count=count))
    best = best_head(before[:, -1:])[1]
    sentences = pairs(language, "test", count=count)
    ids, padding = sentences.batch()
    rows, nouns = torch.from_numpy(sentences.pronoun)[:, None], torch.from_numpy(sentences.nouns)
    edge = nn.functional.one_hot(nouns[:, 0], ids.shape[1]).bool()[:, None, None]  # (sentence, 1, 1, key)
    in_best = edge & (torch.arange(model.shape.h) == best)[:, None, None]

    def answered(rule: ScoreRule = ScoreRule()) -> tuple[torch.Tensor, Flow]:
        rules = [ScoreRule()] * (len(model.layers) - 1) + [rule]
        hidden, flows = model(ids, rows=rows, padding=padding, rules=rules)
        return model.logits(hidden[:, 0]).argmax(-1), flows[-1]

    plain, last = answered()
    right = plain == ids.gather(1, nouns)[:, 0]
    twins = torch.arange(len(ids)) ^ 1
    rules = [
        ScoreRule(mask=~edge),
        ScoreRule(mask=~in_best),
        ScoreRule(patched_weights=last.weights()[twins]),
    ]
    return Cuts(*(float((answered(rule)[0] != plain)[right].float().mean()) for rule in rules))


@torch.inference_mode()
def two_hops(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> dict:
    """How well the pronoun finds the right noun by two hops, ``A² A¹``, with the best pair of heads.

    The pair, `first` of the layer before the last and `second` of the last, both from 0, is chosen on
    validation pairs; `accuracy`, `right` and `wrong` are measured on test pairs as in `Scores`.
    """
    first, second = best_head(_two_hop_weights(model, pairs(language, "validation", count=count)))
    right, wrong = _two_hop_weights(model, pairs(language, "test", count=count))[:, first, second].T
    return {
        "first": first,
        "second": second,
        "accuracy": float((right > wrong).mean()),
        "right": float(right.mean()),
        "wrong": float(wrong.mean()),
    }


def _two_hop_weights(model: SmallModel, sentences: Encoded) -> np.ndarray:
    """``A² A¹`` from the pronoun to both nouns. (sentence, head of layer 1, head of layer 2, noun)"""
    (ids, padding), nouns = sentences.batch(), torch.from_numpy(sentences.nouns)
    _, flows = model(ids, rows=torch.from_numpy(sentences.pronoun)[:, None], padding=padding)
    before, last = flows[-2].weights(), flows[-1].weights()[:, :, 0]
    to_nouns = before.gather(3, nouns[:, None, None].expand(-1, *before.shape[1:3], -1))
    return torch.einsum("bjt,bitn->bijn", last, to_nouns).numpy()


def best_head(weights: np.ndarray) -> tuple[int, int]:
    """The head with the largest sum of how often it is right and of its mean weight on the right noun.

    (sentence, layer, head, 2) → layer and head; of two hops, (sentence, head, head, 2) → the pair of heads.
    """
    right, wrong = weights[..., 0], weights[..., 1]
    value = (right > wrong).mean(0) + right.mean(0)
    row, column = np.unravel_index(value.argmax(), value.shape)
    return int(row), int(column)


def scores(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> Scores:
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
    return Scores(
        answer=float(answers.mean()),
        accuracy=float(correct.mean()),
        both=float(correct.reshape(-1, 2).all(1).mean()),
        right=float(right.mean()),
        wrong=float(wrong.mean()),
        layer=layer,
        head=head,
        agreement=float(agreed.mean(0).max()),
        resolving=int(((last[..., 0] > last[..., 1]).mean(0) >= READABLE[0]).sum()),
        famous=tuple(float(w) for w in famous_weights[:, layer, head, 0]),
        famous_right=tuple(bool(a) for a in famous_answers),
    )


@cache
def famous(language: str) -> Encoded:
    """The pair that everybody knows, in the words of the language; never trained on."""
    return encode(Grammar(lexicon(language)).famous(), lexicon(language))


LINK_PAIRS = 20  # of each pattern with a pronoun, and four times as many of agreement
ROUNDS = 100  # sentences of each other pattern; those with a link of a kind that is not full yet are used
MAX_LINKS = 160  # of a kind
MAX_AT_DISTANCE = 80  # of these, so that no fixed distance finds most of them
BATCH = 128  # sentences, so that a layer's weights stay in the processor's cache
PRONOUN_LINKS = (
    "pronoun to noun",
    "pronoun to cue",
    "cue to noun",
    "noun to cue",
    "agreement: pronoun to noun",
)
WORD_LINKS = (
    "article to noun",
    "adjective to noun",
    "preposition to object",
    "verb to subject",
    "verb to object",
    "object to verb",
)
LINKS = (*PRONOUN_LINKS, *WORD_LINKS, *(f"hidden {name}" for name in WORD_LINKS))
PREPOSITIONS = ("{preposition}", "在")


@dataclass(frozen=True, eq=False)
class Material:
    """Held-out sentences and the links in them; in the first `n_whole` no word is hidden.

    The nouns around a pronoun never met in training. All other sentences are newly drawn.
    """

    ids: np.ndarray  # (sentence, longest)
    lengths: np.ndarray  # (sentence,)
    n_whole: int
    kind: np.ndarray  # (link,): a number in LINKS
    sentence: np.ndarray  # (link,), rising
    query: np.ndarray  # (link,): position of the word that should look
    key: np.ndarray  # (link,): position of the word that it should look at


class LinkWeights(NamedTuple):
    """The weights of every head on the links of the material."""

    weight: np.ndarray  # (link, layer, head): on the right key
    right: np.ndarray  # (link, layer, head): True where no key gets more; of equals the first counts
    weights: list[np.ndarray]  # of whole sentences, each (layer, head, query, key), without padding


@cache
def material(language: str) -> Material:
    """The same sentences on every call. Raises `MhaError` for an unknown language."""
    words = lexicon(language)
    reference = pairs(language, "test", count=LINK_PAIRS)
    agreement = pairs(language, "test", agreement=True, count=4 * LINK_PAIRS)
    everyday, word_links = _sentences(words)
    at, noun = np.arange(len(reference.ids)), reference.nouns[:, 0]
    balanced = _balanced(reference.cue - reference.pronoun)
    parts = [
        _links("pronoun to noun", at, reference.pronoun, noun),
        _links("pronoun to cue", balanced, reference.pronoun[balanced], reference.cue[balanced]),
        _links("cue to noun", at, reference.cue, noun),
        _links("noun to cue", at, noun, reference.cue),
    ]
    blocks, n = [reference.ids], len(reference.ids)
    at = n + np.arange(len(agreement.ids))
    parts.append(_links("agreement: pronoun to noun", at, agreement.pronoun, agreement.nouns[:, 0]))
    blocks, n = [*blocks, agreement.ids, everyday.ids], n + len(agreement.ids)
    n_whole = n + len(everyday.ids)
    for name, links in word_links.items():
        sentence, query, key = np.array(links).T
        parts.append(_links(name, n + sentence, query, key))
        copies, at = everyday.ids[sentence], np.arange(len(sentence))
        copies[at, query] = words.number[HIDDEN]
        parts.append(_links(f"hidden {name}", sum(map(len, blocks)) + at, query, key))
        blocks.append(copies)
    links = np.concatenate(parts)
    links = links[np.argsort(links[:, 1], kind="stable")]
    ids = np.concatenate(blocks)
    lengths = (ids != words.number[PAD]).sum(1)
    return Material(ids, lengths, n_whole, *links.T)


@torch.inference_mode()
def link_weights(model: SmallModel, material: Material) -> LinkWeights:
    """What the heads of a model do at every link of the material."""
    weight, right, whole = [], [], []
    device = model.bias.device
    for start in range(0, len(material.ids), BATCH):
        stop = start + BATCH
        lengths = material.lengths[start:stop]
        ids = torch.from_numpy(material.ids[start:stop, : lengths.max()])
        padding = torch.from_numpy(words_at(lengths, ids.shape[1]))
        _, flows = model(ids.to(device), padding=padding.to(device))
        # (sentence, layer, head, query, key)
        weights = torch.stack([flow.weights() for flow in flows], 1).cpu().numpy()
        chosen = slice(*np.searchsorted(material.sentence, (start, stop)))
        rows = weights[
            material.sentence[chosen] - start, :, :, material.query[chosen]
        ]  # (link, layer, head, key)
        on_key = np.take_along_axis(rows, material.key[chosen, None, None, None], 3)[..., 0]
        weight.append(on_key)
        right.append(rows.argmax(3) == material.key[chosen, None, None])
        n_whole = max(0, material.n_whole - start)
        whole += [w[:, :, :n, :n] for w, n in zip(weights[:n_whole], lengths[:n_whole], strict=True)]
    return LinkWeights(np.concatenate(weight), np.concatenate(right), whole)


def _links(name: str, sentence, query, key) -> np.ndarray:
    """(link, 4): kind, sentence, query, key."""
    return np.stack([np.full(len(query), LINKS.index(name)), sentence, query, key], 1)


def _balanced(distance: np.ndarray) -> np.ndarray:
    """The first `MAX_AT_DISTANCE` items at each distance, in order."""
    return np.sort(
        np.concatenate([np.flatnonzero(distance == d)[:MAX_AT_DISTANCE] for d in np.unique(distance)])
    )


def _sentences(words: Lexicon) -> tuple[Encoded, dict[str, list[tuple[int, int, int]]]]:
    """Sentences of the patterns in `links` of the language, and in which there is which link."""
    phrases, rng = Phrases(words, EVERYDAY), Random("links")
    sentences: list[Sentence] = []
    links: dict[str, list[tuple[int, int, int]]] = {name: [] for name in WORD_LINKS}
    distances = Counter()
    for template in words.grammar["links"] * ROUNDS:
        text, parts = phrases.written(rng, template)
        has_link = False
        for name, query, key in _links_in(words, text, parts):
            distance = name, key - query
            if len(links[name]) < MAX_LINKS and distances[distance] < MAX_AT_DISTANCE:
                distances[distance] += 1
                links[name].append((len(sentences), query, key))
                has_link = True
        if has_link:
            sentences.append(Sentence(text))
    return encode(sentences, words), {name: of_kind for name, of_kind in links.items() if of_kind}


def _links_in(words: Lexicon, text: tuple[str, ...], parts: list):
    """Each link of a sentence: its name, the position of the query, the position of the key."""
    groups = {noun.group for noun in words.nouns}
    subject = verb = before = None
    for part, at in parts:
        slot = part[1:-1].partition(".")[0] if isinstance(part, str) else ""
        if slot in words.verbs:
            yield "verb to subject", at.start, subject
            verb = at.start if slot == "transitive" else None
        elif slot in groups:
            noun = at.stop - 1
            subject = noun if subject is None else subject
            yield from _phrase_links(words, text, at)
            if before in PREPOSITIONS:
                yield "preposition to object", at.start - 1, noun
            if verb is not None:
                yield "verb to object", verb, noun
                yield "object to verb", noun, verb
            verb = None
        elif slot == "adjective":
            yield "adjective to noun", at.start, subject
        before = part


def _phrase_links(words: Lexicon, text: tuple[str, ...], at: slice):
    """The links inside a noun phrase: article, adjective, noun, where only the noun is always there."""
    noun = at.stop - 1
    adjective = noun - 1 - len(words.grammar.get("adjective_link", "").split())
    has_adjective = adjective >= at.start and text[adjective] in words.words["adjective"]
    after = adjective if has_adjective else noun
    if after > at.start:
        yield "article to noun", after - 1, noun  # of two words, as in Chinese, the one nearer to the noun
    if has_adjective:
        yield "adjective to noun", adjective, noun


@torch.inference_mode()
def sentence_weights(model: SmallModel, ids: Sequence[int]) -> list[np.ndarray]:
    """The weights of every head over one sentence: for each layer (head, query, key), as copies."""
    _, flows = model(torch.tensor([list(ids)], device=model.bias.device))
    return [flow.weights()[0].cpu().numpy() for flow in flows]
