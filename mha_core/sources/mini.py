"""Small trained models of the library, for some pairs of h and d_model, with a small vocabulary."""

import difflib
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import regex
import torch

from mha_core import device as devices
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS
from mha_core.errors import MhaError, in_range, listed, one_of
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import MiniSource
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.fit import Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import HIDDEN, Lexicon, lexicon
from mha_core.training.model import ARCHITECTURES, SmallModel

ANSWERS = 5  # words, the most probable first
SUGGESTIONS = 3  # of each kind
CHINESE = regex.compile(r"\p{Han}")


@dataclass(frozen=True)
class Unknown:
    """A word outside the vocabulary, its place in the text, and words to put there instead."""

    word: str
    start: int
    end: int
    suggestions: tuple[str, ...]


class UnknownWords(MhaError):
    """A text with words outside the small model's vocabulary; `unknown` names each.

    Each text of `fixes` has all of them replaced; `instead` replaces one.
    """

    def __init__(self, text: str, unknown: tuple[Unknown, ...], words: Lexicon):
        self.text, self.unknown, self.n_words = text, unknown, len(words.vocabulary)
        self._words = words
        names = listed([f"“{entry.word}”" for entry in unknown], "and")
        first = unknown[0]
        super().__init__(
            f"The small model knows {self.n_words:,} words, and not {names}. In place of “{first.word}”: "
            f"{listed(first.suggestions, 'or')}. The source “random” takes any words.",
            fixes=(*({"text": self._replaced(rank)} for rank in range(SUGGESTIONS)), {"source": "random"}),
        )

    def instead(self, entry: Unknown, word: str, text: str | None = None) -> str:
        """The text with a word in place of an unknown one, spaced where it would grow onto its neighbours."""
        text = self.text if text is None else text
        before, after = text[: entry.start], text[entry.end :]
        joined = before + word + after
        tokens, _ = self._words.cut(joined, limit=len(joined) + 1)
        if (entry.start, entry.start + len(word)) in tokens.spans:
            return joined
        left = " " if before and not before[-1].isspace() else ""
        right = " " if after and not after[0].isspace() else ""
        return before + left + word + right + after

    def _replaced(self, rank: int) -> str:
        """The text with each unknown word replaced by its suggestion of that rank."""
        text = self.text
        for entry in reversed(self.unknown):  # from the end, so that the places of the others stay
            text = self.instead(entry, entry.suggestions[rank], text)
        return text


def trace(
    text: str,
    *,
    h: int = 4,
    d_model: int = 64,
    architecture: str = "glass-box",
    trained: bool = True,
    limit: int = MAX_WORDS,
    device: str | None = None,
) -> AttentionTrace:
    """Trace a text through a small model that was trained on made-up sentences.

    Text with Chinese characters goes to the Chinese model, any other to the English one.
    ``trained=False`` takes the same model before its first training step.
    ``[MASK]`` hides a word. `answers` of the trace has the model's words for each pronoun and each
    hidden word; training gave other rows no meaning.

    Raises `MhaError` for a model that is not shipped, for a text that is empty or longer than `limit`
    tokens, and `UnknownWords` for words outside the vocabulary.
    """
    language = "zh" if CHINESE.search(text) else "en"
    plan = find(language, architecture, h, d_model)
    return follow(model(plan, trained=trained, device=device), text, limit=limit)


def model(plan: Plan, *, trained: bool = True, device: str | None = None) -> Trained:
    """A shipped model, read once, after its training or before."""
    return _loaded(checkpoints.name(plan), trained, devices.pick(device).name)


def vectors(trained: Trained) -> tuple[tuple[str, ...], torch.Tensor]:
    """The vocabulary of a small model and its embeddings. (word, d_model)

    The padding of short sentences is left out: it is no word and is never trained.
    """
    return lexicon(trained.plan.language).vocabulary[1:], trained.model.embedding.detach()[1:].cpu()


def find(language: str, architecture: str, h: int, d_model: int) -> Plan:
    """The plan of a shipped model. Raises `MhaError` with the models that there are."""
    one_of("architecture", architecture, ARCHITECTURES)
    in_range("h", h, 1, MAX_HEADS)
    in_range("d_model", d_model, 1, MAX_D_MODEL)
    plans = {
        (plan.h, plan.d_model): plan
        for plan in checkpoints.PLANS
        if (plan.language, plan.architecture) == (language, architecture)
    }
    if (h, d_model) in plans:
        return plans[h, d_model]
    kind = f"{architecture} model for {'Chinese' if language == 'zh' else 'English'}"
    if not plans:
        others = [plan for plan in checkpoints.PLANS if plan.language == language]
        nearest = min(others, key=lambda plan: (abs(plan.d_model - d_model), abs(plan.h - h)))
        raise MhaError(
            f"No {kind} comes with Headscope; {listed(dict.fromkeys(p.architecture for p in others), 'or')} "
            f"can be used.",
            fixes=({"architecture": nearest.architecture, "h": nearest.h, "d_model": nearest.d_model},),
        )
    widths = sorted({width for _, width in plans})
    table = "; ".join(
        f"d_model {width} with h {listed(sorted(n for n, w in plans if w == width), 'or')}"
        for width in widths
    )
    near = sorted(plans, key=lambda pair: (abs(pair[1] - d_model), abs(pair[0] - h)))[:3]
    raise MhaError(
        f"No {kind} with h {h} and d_model {d_model} comes with Headscope; there are {table}. "
        f"On the page Train such a model can be trained.",
        fixes=tuple({"h": heads, "d_model": width} for heads, width in near),
    )


def follow(trained: Trained, text: str, *, limit: int = MAX_WORDS) -> AttentionTrace:
    """Trace a text through a small model, on the model's device. Raises as `trace` does."""
    words = lexicon(trained.plan.language)
    tokens, numbers = words.cut(text, limit=min(limit, MAX_WORDS))
    model, place = trained.model, trained.model.bias.device
    if None in numbers:
        raise UnknownWords(text, _unknown(model, words, tokens, numbers), words)
    with torch.inference_mode():
        hidden, flows = model(torch.tensor([numbers], device=place))
        probabilities = model.logits(hidden[0]).softmax(-1).cpu()
    layers = tuple(
        LayerTrace.of(
            flow.attended,
            x=flow.x,
            x_v=flow.values,
            projections=layer.attention.projections(),
        )
        for flow, layer in zip(flows, model.layers, strict=True)
    )
    plan = trained.plan
    source = MiniSource(
        architecture=plan.architecture,
        language=plan.language,
        h=plan.h,
        d_model=plan.d_model,
        seed=plan.seed,
        step=trained.step,
        steps=plan.steps,
        device=place.type,
        torch=str(torch.__version__),
    )
    answered = words.pronouns | {HIDDEN}
    answers = tuple(
        _most_probable(row, words) if words.vocabulary[number] in answered else None
        for row, number in zip(probabilities, numbers, strict=True)
    )
    return AttentionTrace(tokens, layers, source, answers)


@lru_cache(maxsize=64)
def _loaded(name: str, trained: bool, place: str) -> Trained:
    plan = _plans()[name]
    loaded = checkpoints.load_model(checkpoints.path(plan)) if trained else checkpoints.untrained(plan)
    return replace(loaded, model=loaded.model.to(place))


def _plans() -> dict[str, Plan]:
    return {checkpoints.name(plan): plan for plan in checkpoints.PLANS}


def _most_probable(row: torch.Tensor, words: Lexicon) -> tuple[tuple[str, float], ...]:
    top = row.topk(ANSWERS)
    return tuple(
        (words.vocabulary[i], p) for p, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
    )


def _unknown(model: SmallModel, words: Lexicon, tokens: Tokens, numbers: list) -> tuple[Unknown, ...]:
    """Each unknown word with words of like spelling, and words that the model itself expects there."""
    hidden_number = words.number[HIDDEN]
    ids = torch.tensor([[hidden_number if n is None else n for n in numbers]])
    with torch.inference_mode():
        hidden, _ = model(ids.to(model.bias.device))
        expected = model.logits(hidden[0]).cpu()
    unknown = []
    for at, (number, (start, end)) in enumerate(zip(numbers, tokens.spans, strict=True)):
        if number is None:
            similar = difflib.get_close_matches(
                tokens.pieces[at].casefold(), words.vocabulary[3:], SUGGESTIONS, 0.7
            )
            ranked = (words.vocabulary[i] for i in expected[at].argsort(descending=True).tolist())
            likely = islice((word for word in ranked if word.isalpha()), SUGGESTIONS)
            suggestions = dict.fromkeys([*similar, *likely])
            unknown.append(Unknown(tokens.pieces[at], start, end, tuple(suggestions)))
    return tuple(unknown)
