"""Sentences in which it is known which word belongs to which, and what every head does with them.

"The kind doctor bought a lamp": *kind* belongs to *doctor*, *lamp* to *bought*. Words that a model was
trained on only when they were hidden are asked a second time, hidden.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from mha_core.training.data import Encoded, encode
from mha_core.training.grammar import Sentence
from mha_core.training.lexicon import HIDDEN, PAD, Lexicon, lexicon
from mha_core.training.measure import pairs
from mha_core.training.model import SmallModel
from mha_core.training.phrases import EVERYDAY, Phrases

PAIRS = 20  # of each pattern with a pronoun, and four times as many of agreement
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
    reference = pairs(language, "test", count=PAIRS)
    agreement = pairs(language, "test", agreement=True, count=4 * PAIRS)
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
