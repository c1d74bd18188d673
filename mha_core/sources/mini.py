"""Small trained models of the library, for some pairs of h and d_model, with a small vocabulary."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import regex
import torch

from mha_core import device as devices
from mha_core.attention import positions
from mha_core.attention.edits import Concatenation, Edit, Position, Site, by_layer, checked, edited
from mha_core.attention.latent import LatentSpec
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS, AttentionSpec
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, in_range, listed, one_of
from mha_core.sources import random_weights
from mha_core.traces.answers import most_probable
from mha_core.traces.facts import Facts, LatentProjection
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import EditedSource, MiniSource
from mha_core.traces.tokens import MAX_TOKENS, Tokens
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.fit import LIVE_WIDTHS, Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import HIDDEN, Lexicon, lexicon, normalized
from mha_core.training.model import ARCHITECTURES, SmallModel

MIN_LETTERS = 4  # of a word that others can be near
CHINESE = regex.compile(r"\p{Han}")


@dataclass(frozen=True)
class Unknown:
    """A word outside the vocabulary, its place in the text, and the known words that it may be a slip of."""

    word: str
    start: int
    end: int
    near: tuple[str, ...]


class UnknownWords(MhaError):
    """A text with words outside the small model's vocabulary; `unknown` names each.

    Where each of them has a near word, a text of `fixes` has all of them replaced; `instead` replaces one.
    """

    def __init__(self, text: str, unknown: tuple[Unknown, ...], words: Lexicon):
        self.text, self.unknown = text, unknown
        self._words = words
        names = listed([f"“{entry.word}”" for entry in unknown], "and")
        slips = [
            f"“{entry.word}” may be meant as {listed([f'“{word}”' for word in entry.near], 'or')}."
            for entry in unknown
            if entry.near
        ]
        sentences = (
            f"The small model knows {words.n_words:,} words, and not {names}.",
            *slips,
            "The source “random” takes any words.",
        )
        mended = ({"text": self._mended()},) if len(slips) == len(unknown) else ()
        super().__init__(" ".join(sentences), fixes=(*mended, {"source": "random"}))

    @property
    def known_words(self) -> tuple[str, ...]:
        """All words that can be typed, sorted."""
        return self._words.vocabulary[3:]

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

    def _mended(self) -> str:
        """The text with each unknown word replaced by the first that is near it."""
        text = self.text
        for entry in reversed(self.unknown):  # from the end, so that the places of the others stay
            text = self.instead(entry, entry.near[0], text)
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
    edits: Sequence[Edit] = (),
) -> AttentionTrace:
    """Trace a text through a small model that was trained on made-up sentences.

    Text with Chinese characters goes to the Chinese model, any other to the English one.
    ``trained=False`` takes the same model before its first training step.
    ``[MASK]`` hides a word. `answers` of the trace has the model's words for each pronoun and each
    hidden word; training gave other rows no meaning. `edits` change attention while it is computed, and the
    answers with it.

    Raises `MhaError` for a model that is not shipped, for edits that do not fit, for a text that is empty or
    longer than `limit` tokens, and `UnknownWords` for words outside the vocabulary.
    """
    if not isinstance(trained, bool):
        raise MhaError(f"trained is True or False; got {trained!r}.")
    plan = find(language(text), architecture, h, d_model)
    edits = checked(edits)
    return follow(model(plan, trained=trained, device=device), text, limit=limit, edits=edits)


def language(text: str) -> str:
    """The language of the small model that reads a text: "zh" with a Chinese character, else "en"."""
    return "zh" if CHINESE.search(text) else "en"


def stand_in(
    text: str,
    *,
    h: int,
    d_model: int,
    layers: int,
    language: str,
    name: str = MiniSource.name,
    limit: int = MAX_TOKENS,
) -> AttentionTrace:
    """Trace a text through random weights where a small model, called `name`, cannot read it.

    The tokens are those that the small model would read, [CLS] first, so that each has the same position in
    both. The numbers mean nothing, and the trace has no answers. Raises `MhaError` for a text that is empty
    or longer than `limit` tokens, and for sizes that do not fit together.
    """
    spec = AttentionSpec(d_model, h)
    tokens, _ = lexicon(language).cut(text, limit=limit)
    sizes = {"d_model": d_model, "h": h, "n_kv_heads": None, "d_k": None, "d_v": None, "bias": True}
    random_weights.check_cost(tokens, sizes, layers)
    trace = random_weights.follow(tokens, spec, layers=layers)
    return replace(trace, source=replace(trace.source, stand_in_for=name))


def model(plan: Plan, *, trained: bool = True, device: str | None = None) -> Trained:
    """A shipped model, read once, after its training or before."""
    return _loaded(plan, trained, devices.pick(device).name)


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
        f"The page Train trains others, with d_model up to {LIVE_WIDTHS[-1]} and any h that divides it.",
        fixes=tuple({"h": heads, "d_model": width} for heads, width in near),
    )


def follow(
    trained: Trained, text: str, *, limit: int = MAX_WORDS, edits: Sequence[Edit] = ()
) -> AttentionTrace:
    """Trace a text through a small model, on the model's device. Raises as `trace` does."""
    words = lexicon(trained.plan.language)
    tokens, numbers = words.cut(text, limit=min(limit, MAX_WORDS))
    place = trained.model.bias.device
    if None in numbers:
        raise UnknownWords(text, _unknown(words, tokens, numbers), words)
    model, rules = with_edits(trained, tokens, edits)
    with torch.no_grad():  # no inference mode, whose tensors nobody could follow
        hidden, flows = model(torch.tensor([numbers], device=place), rules=rules)
        probabilities = model.logits(hidden[0]).softmax(-1).cpu()
    layers = tuple(
        LayerTrace.of(
            flow.attended,
            x=flow.x,
            x_v=flow.values,
            projections=layer.attention.projections(),
            about=_facts(trained.plan.shape.spec),
        )
        for flow, layer in zip(flows, model.layers, strict=True)
    )
    answered = words.pronouns | {HIDDEN}
    answers = tuple(
        most_probable(row, words.vocabulary.__getitem__) if words.vocabulary[number] in answered else None
        for row, number in zip(probabilities, numbers, strict=True)
    )
    origin = source(trained)
    return AttentionTrace(tokens, layers, EditedSource(origin, tuple(edits)) if edits else origin, answers)


def with_edits(trained: Trained, tokens: Tokens, edits: Sequence[Edit]) -> tuple[SmallModel, list[ScoreRule]]:
    """The model, with the edits of what stands around attention, and each layer's score rule with the others.

    The trained model itself stays as it is. Raises `MhaError` for edits that do not fit.
    """
    model, spec = trained.model, trained.plan.shape.spec
    site = Site("self", spec.n_heads, spec.d_v, tokens, tokens)
    by_place = by_layer(edits, [site] * len(model.layers), modules=True)
    rule = ScoreRule()
    if any(edit.of_module for edit in edits):
        model = deepcopy(model)
    for layer, of_layer in zip(model.layers, by_place, strict=True):
        for edit in of_layer:
            if isinstance(edit, Concatenation):
                edit.on_output(layer.attention.o, spec.n_heads)
    for edit in edits:
        if isinstance(edit, Position):
            model.set_position(edit.code)
            alibi = positions.alibi(spec.n_heads, len(tokens), len(tokens)) if edit.code == "alibi" else None
            rule = replace(rule, distance_bias=alibi)
    return model, [edited(rule, of_layer, site, model.bias.device) for of_layer in by_place]


def _facts(spec: AttentionSpec | LatentSpec) -> Facts:
    """What is known of a layer besides its tensors: the short vector that its keys and values are made of."""
    if not isinstance(spec, LatentSpec):
        return Facts()
    return Facts(latent=LatentProjection(spec.kv_rank, plain_width=spec.d_k, value_width=spec.d_v))


def source(trained: Trained) -> MiniSource:
    """The source of a small model's numbers: the plan of its training and how far it was followed."""
    plan = trained.plan
    return MiniSource(
        architecture=plan.architecture,
        language=plan.language,
        h=plan.h,
        d_model=plan.d_model,
        seed=plan.seed,
        step=trained.step,
        steps=plan.steps,
        device=trained.model.bias.device.type,
        torch=str(torch.__version__),
    )


@lru_cache(maxsize=64)  # all that are shipped, as they are and before their training: 160 MB
def _loaded(plan: Plan, trained: bool, place: str) -> Trained:
    loaded = checkpoints.load_model(checkpoints.path(plan)) if trained else checkpoints.untrained(plan)
    return replace(loaded, model=loaded.model.to(place))


def _unknown(words: Lexicon, tokens: Tokens, numbers: list) -> tuple[Unknown, ...]:
    return tuple(
        Unknown(piece, start, end, _near(piece, words))
        for piece, number, (start, end) in zip(tokens.pieces, numbers, tokens.spans, strict=True)
        if number is None
    )


def _near(piece: str, words: Lexicon) -> tuple[str, ...]:
    """The known words that are one slip away; of a short word none, since many words are near it."""
    word = normalized(piece)
    return tuple(filter(partial(_is_slip, word), words.vocabulary[3:])) if len(word) >= MIN_LETTERS else ()


def _is_slip(word: str, known: str) -> bool:
    """Are two words one slip apart: a letter more, one fewer, another one, or two neighbours swapped?"""
    same = 0
    while word[same : same + 1] == known[same : same + 1] != "":
        same += 1
    rest, of_known = word[same:], known[same:]
    swapped = rest[1::-1] + rest[2:]
    return of_known in (rest[1:], swapped) or of_known[1:] in (rest, rest[1:])
