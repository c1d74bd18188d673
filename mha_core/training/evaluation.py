"""How well a small model does on sentences it has never seen, which head shows it, and what heads do there.

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

from mha_core.attention.functional import attention_weights
from mha_core.training.data import Encoded, encode
from mha_core.training.language import EVERYDAY, Grammar, Phrases, Sentence
from mha_core.training.lexicon import HIDDEN, PAD, Lexicon, lexicon
from mha_core.training.model import SmallModel

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
    made = [s for name in names for _ in range(count) for s in grammar.pair(rng, name, split)]
    return encode(made, grammar.lexicon)


@torch.inference_mode()
def looked(model: SmallModel, made: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """What every head does at the pronouns, and which of the two nouns the model answers.

    (sentence, layer, head, 2) weights on the right and on the other noun; (sentence,) True where the
    right noun gets the higher score.
    """
    at = torch.arange(len(made.ids))
    length = int(made.lengths.max())
    ids = torch.from_numpy(made.ids[:, :length])
    pronoun, nouns = torch.from_numpy(made.pronoun), torch.from_numpy(made.nouns)
    padding = torch.arange(length) < torch.from_numpy(made.lengths)[:, None]
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


@torch.inference_mode()
def two_hops(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> dict:
    """How well the pronoun finds the right noun by two hops, ``A² A¹``, with the best pair of heads.

    The pair, `first` of the layer before the last and `second` of the last, both from 0, is chosen on
    validation pairs; `accuracy`, `right` and `wrong` are measured on test pairs as in `Scores`.
    """
    validation = _reached(model, pairs(language, "validation", count=count))
    value = (validation[..., 0] > validation[..., 1]).mean(0) + validation[..., 0].mean(0)
    first, second = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
    right, wrong = _reached(model, pairs(language, "test", count=count))[:, first, second].T
    return {
        "first": first,
        "second": second,
        "accuracy": float((right > wrong).mean()),
        "right": float(right.mean()),
        "wrong": float(wrong.mean()),
    }


def _reached(model: SmallModel, made: Encoded) -> np.ndarray:
    """What the pronoun reaches by two hops. (sentence, head of layer 1, head of layer 2, noun)"""
    length = int(made.lengths.max())
    ids, nouns = torch.from_numpy(made.ids[:, :length]), torch.from_numpy(made.nouns)
    padding = torch.arange(length) < torch.from_numpy(made.lengths)[:, None]
    _, flows = model(ids, rows=torch.from_numpy(made.pronoun)[:, None], padding=padding)
    before, last = flows[-2].weights(), flows[-1].weights()[:, :, 0]
    to_nouns = before.gather(3, nouns[:, None, None].expand(-1, *before.shape[1:3], -1))
    return torch.einsum("bjt,bitn->bijn", last, to_nouns).numpy()


def best_head(weights: np.ndarray) -> tuple[int, int]:
    """The head with the largest sum of how often it is right and of its mean weight on the right noun."""
    right, wrong = weights[..., 0], weights[..., 1]
    value = (right > wrong).mean(0) + right.mean(0)
    layer, head = np.unravel_index(value.argmax(), value.shape)
    return int(layer), int(head)


def scores(model: SmallModel, language: str = "en", *, count: int = PAIRS) -> Scores:
    """Held-out scores of a model, its head chosen on validation pairs and scored on test pairs.

    `count` pairs of each pattern are looked at.
    """
    layer, head = best_head(looked(model, pairs(language, "validation", count=count))[0])
    weights, answers = looked(model, pairs(language, "test", count=count))
    right, wrong = weights[:, layer, head].T
    correct = right > wrong
    last = weights[:, -1]
    agreement, _ = looked(model, pairs(language, "test", agreement=True, count=count))
    agreed = agreement[..., 0] > agreement[..., 1]
    famous_weights, famous_answers = looked(model, famous(language))
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
ROUNDS = 100  # sentences of each other pattern; those with a link that is still wanted are kept
MOST = 160  # links of a kind
SAME = 80  # of these at one distance, so that no fixed distance finds most of them
AT_ONCE = 128  # sentences, so that a layer's weights stay in the processor's cache
OF_PRONOUNS = (
    "pronoun to noun",
    "pronoun to cue",
    "cue to noun",
    "noun to cue",
    "agreement: pronoun to noun",
)
OF_WORDS = (
    "article to noun",
    "adjective to noun",
    "preposition to object",
    "verb to subject",
    "verb to object",
    "object to verb",
)
LINKS = (*OF_PRONOUNS, *OF_WORDS, *(f"hidden {name}" for name in OF_WORDS))
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


class Looks(NamedTuple):
    """What every head does with the material."""

    weight: np.ndarray  # (link, layer, head): on the right key
    right: np.ndarray  # (link, layer, head): True where no key gets more; of equals the first counts
    weights: list[np.ndarray]  # of whole sentences, each (layer, head, query, key), without padding


@cache
def material(language: str) -> Material:
    """The same sentences on every call. Raises `MhaError` for an unknown language."""
    words = lexicon(language)
    reference = pairs(language, "test", count=LINK_PAIRS)
    agreement = pairs(language, "test", agreement=True, count=4 * LINK_PAIRS)
    made, of_words = _sentences(words)
    at, noun = np.arange(len(reference.ids)), reference.nouns[:, 0]
    even = _even(reference.cue - reference.pronoun)
    found = [
        _links("pronoun to noun", at, reference.pronoun, noun),
        _links("pronoun to cue", even, reference.pronoun[even], reference.cue[even]),
        _links("cue to noun", at, reference.cue, noun),
        _links("noun to cue", at, noun, reference.cue),
    ]
    blocks, n = [reference.ids], len(reference.ids)
    at = n + np.arange(len(agreement.ids))
    found.append(_links("agreement: pronoun to noun", at, agreement.pronoun, agreement.nouns[:, 0]))
    blocks, n = [*blocks, agreement.ids, made.ids], n + len(agreement.ids)
    n_whole = n + len(made.ids)
    for name, links in of_words.items():
        sentence, query, key = np.array(links).T
        found.append(_links(name, n + sentence, query, key))
        copies, at = made.ids[sentence], np.arange(len(sentence))
        copies[at, query] = words.number[HIDDEN]
        found.append(_links(f"hidden {name}", sum(map(len, blocks)) + at, query, key))
        blocks.append(copies)
    links = np.concatenate(found)
    links = links[np.argsort(links[:, 1], kind="stable")]
    ids = np.concatenate(blocks)
    lengths = (ids != words.number[PAD]).sum(1)
    return Material(ids, lengths, n_whole, *links.T)


@torch.inference_mode()
def looks(model: SmallModel, made: Material) -> Looks:
    """Every link of the material through the model, many sentences at a time."""
    weight, right, whole = [], [], []
    place = model.bias.device
    for start in range(0, len(made.ids), AT_ONCE):
        stop = start + AT_ONCE
        lengths = made.lengths[start:stop]
        ids = torch.from_numpy(made.ids[start:stop, : lengths.max()]).to(place)
        present = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
        _, flows = model(ids, padding=present.to(place))
        # (sentence, layer, head, query, key)
        weights = torch.stack([flow.weights() for flow in flows], 1).cpu().numpy()
        chosen = slice(*np.searchsorted(made.sentence, (start, stop)))
        rows = weights[made.sentence[chosen] - start, :, :, made.query[chosen]]  # (link, layer, head, key)
        on_key = np.take_along_axis(rows, made.key[chosen, None, None, None], 3)[..., 0]
        weight.append(on_key)
        right.append(rows.argmax(3) == made.key[chosen, None, None])
        n_whole = max(0, made.n_whole - start)
        whole += [w[:, :, :n, :n] for w, n in zip(weights[:n_whole], lengths[:n_whole], strict=True)]
    return Looks(np.concatenate(weight), np.concatenate(right), whole)


def _links(name: str, sentence, query, key) -> np.ndarray:
    """(link, 4): kind, sentence, query, key."""
    return np.stack([np.full(len(query), LINKS.index(name)), sentence, query, key], 1)


def _even(distance: np.ndarray) -> np.ndarray:
    """The first `SAME` items at each distance, in order."""
    return np.sort(np.concatenate([np.flatnonzero(distance == d)[:SAME] for d in np.unique(distance)]))


def _sentences(words: Lexicon) -> tuple[Encoded, dict[str, list[tuple[int, int, int]]]]:
    """Sentences of the patterns in `links` of the language, and in which there is which link."""
    phrases, rng = Phrases(words, EVERYDAY), Random("links")
    made: list[Sentence] = []
    found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in OF_WORDS}
    distances = Counter()
    for template in words.grammar["links"] * ROUNDS:
        text, parts = phrases.written(rng, template)
        wanted = False
        for name, query, key in _found(words, text, parts):
            distance = name, key - query
            if len(found[name]) < MOST and distances[distance] < SAME:
                distances[distance] += 1
                found[name].append((len(made), query, key))
                wanted = True
        if wanted:
            made.append(Sentence(text))
    return encode(made, words), {name: links for name, links in found.items() if links}


def _found(words: Lexicon, text: tuple[str, ...], parts: list):
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
            yield from _in_phrase(words, text, at)
            if before in PREPOSITIONS:
                yield "preposition to object", at.start - 1, noun
            if verb is not None:
                yield "verb to object", verb, noun
                yield "object to verb", noun, verb
            verb = None
        elif slot == "adjective":
            yield "adjective to noun", at.start, subject
        before = part


def _in_phrase(words: Lexicon, text: tuple[str, ...], at: slice):
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
