"""Small trained models of the library, for some pairs of h and d_model. They read any words."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from math import log
from typing import Any, Literal, NamedTuple

import regex
import torch

from mha_core import device as devices
from mha_core.attention import positions
from mha_core.attention.edits import Edit, ModuleEdit, Position, Site, by_layer, checked, edited
from mha_core.attention.latent import LatentAttention
from mha_core.attention.module import MAX_D_MODEL, MAX_HEADS, MultiHeadAttention
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, Phrase, in_range, listed, one_of
from mha_core.traces.answers import NOTHING, Answer, most_probable
from mha_core.traces.facts import Facts, LatentProjection
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import DECODER, EditedSource, MiniSource, TrainedSource
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.fit import LIVE_WIDTHS, Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import HIDDEN, LANGUAGES, START, Lexicon, lexicon, normalized
from mha_core.training.links import STOPS
from mha_core.training.model import ARCHITECTURES, Pass, SmallModel
from mha_core.training.questions import HIDDEN_WORD, NEXT_WORD, questions_of

NEAREST = 3  # models that an error names in place of one that is not shipped
CHINESE, LATIN = regex.compile(r"\p{Han}"), regex.compile(r"\p{Latin}+")


def trace(
    text: str,
    *,
    source: Literal["mini"],
    h: int = 4,
    d_model: int = 64,
    architecture: str = "glass-box",
    trained: bool = True,
    limit: int = MAX_WORDS,
    device: str | None = None,
    edits: Sequence[Edit] = (),
) -> AttentionTrace:
    """Trace a text through a small model that was trained on made-up sentences.

    Text that is mostly Chinese goes to the Chinese model, any other text to the English one. The models
    read any word. Of a word outside the vocabulary they know only the form, and `trace.tokens.unknown` has
    its position. The arguments are explained in `mha_core.trace`.

    `questions` of the trace has the model's answer to each question at each token, in words of the text;
    "[CLS]" means that there is nothing to find. `answers` has the noun that a word stands for or belongs to,
    and for a hidden word, ``[MASK]``, the words that it could be. Edits change the answers, too.

    Raises `MhaError` for a model that is not shipped, and names the nearest that are; for edits that do not
    fit; and for a text that is empty or longer than `limit` tokens.
    """
    if not isinstance(trained, bool):
        raise MhaError("trained is True or False; got {trained}.", trained=repr(trained))
    if architecture not in ARCHITECTURES:
        reading = [name for name in ARCHITECTURES if HIDDEN not in text or not name.startswith(DECODER)]
        one_of("architecture", architecture, reading)
    plan = find(language(text), architecture, h, d_model)
    edits = checked(edits) if edits else ()
    return follow(model(plan, trained=trained, device=device), text, limit=limit, edits=edits)


def language(text: str) -> str:
    """The language of the small model that reads a text.

    "zh" with a Chinese character, unless there are more words in Latin letters than Chinese characters.
    """
    n_characters = len(CHINESE.findall(text))
    return "zh" if n_characters and n_characters >= len(LATIN.findall(text)) else "en"


def model(plan: Plan, *, trained: bool = True, device: str | None = None) -> Trained:
    """A shipped model, after its training or before; its file is read once."""
    return loaded_model(plan, trained, devices.pick(device))


def vectors(trained: Trained) -> tuple[tuple[str, ...], torch.Tensor]:
    """The words that a small model knows, with [CLS] and [MASK], and their embeddings. (word, d_model)"""
    words = lexicon(trained.plan.language)
    names = (START, HIDDEN, *words.known)
    return names, trained.model.embedding.detach()[[words.number[name] for name in names]].cpu()


def find(language: str, architecture: str, h: int, d_model: int) -> Plan:
    """The plan of a shipped model. For any other raises `MhaError`, with the nearest shipped models."""
    one_of("architecture", architecture, ARCHITECTURES)
    in_range("h", h, 1, MAX_HEADS)
    in_range("d_model", d_model, 1, MAX_D_MODEL)
    of_language = [plan for plan in checkpoints.PLANS if plan.language == language]
    plans = {(plan.h, plan.d_model): plan for plan in of_language if plan.architecture == architecture}
    if (h, d_model) in plans:
        return plans[h, d_model]

    def distance(plan: Plan) -> tuple[float, float]:
        width, heads = abs(log(plan.d_model / d_model)), abs(log(plan.h / h))
        return round(width + heads, 9), width

    near = sorted(plans.values() or of_language, key=distance)
    kind = (
        Phrase("{architecture} model for Chinese", architecture=architecture)
        if language == "zh"
        else Phrase("{architecture} model for English", architecture=architecture)
    )
    if not plans:
        others = listed(dict.fromkeys(plan.architecture for plan in of_language), "or")
        raise MhaError(
            "No {kind} comes with Headscope; {others} can be used.",
            kind=kind,
            others=others,
            fixes=({name: getattr(near[0], name) for name in ("architecture", "h", "d_model")},),
        )
    table = [
        Phrase(
            "d_model {d_model} with h {h}",
            d_model=width,
            h=listed(sorted(n for n, w in plans if w == width), "or"),
        )
        for width in sorted({width for _, width in plans})
    ]
    raise MhaError(
        "No {kind} with h {h} and d_model {d_model} comes with Headscope; there are {table}."
        if architecture.startswith(DECODER)
        else "No {kind} with h {h} and d_model {d_model} comes with Headscope; there are {table}. "
        "The page Train trains others, with d_model up to {largest} and any h that divides it.",
        kind=kind,
        h=h,
        d_model=d_model,
        table=listed(table, "semicolon"),
        largest=LIVE_WIDTHS[-1],
        fixes=tuple({"h": plan.h, "d_model": plan.d_model} for plan in near[:NEAREST]),
    )


def choices(tokens: Tokens, numbers: Sequence[int]) -> dict[int, str]:
    """The possible answers to a question about a text: its words by their ids, [CLS] first.

    Each different word is there once, spelled as in the text: in small letters if it occurs so, else as at
    its first place.
    """
    typed = sorted(zip(numbers, tokens.pieces, strict=True), key=lambda one: one[1] != one[1].lower())
    spelled = dict(reversed(typed))
    return {number: spelled[number] for number in numbers}


def guesses(words: Lexicon) -> dict[int, str]:
    """The possible words in place of a hidden word, by their ids."""
    return {words.number[word]: word for word in words.known}


def asked(trained: Trained, tokens: Tokens, numbers: Sequence[int], at: int) -> tuple[str, dict[int, str]]:
    """The question that a small model answers at a token, and the possible answers by their ids.

    A decoder is asked for the next word, a hidden word for itself, any other word for its noun.
    """
    words = lexicon(trained.plan.language)
    if trained.plan.is_decoder:
        return NEXT_WORD, guesses(words)
    if numbers[at] == words.number[HIDDEN]:
        return HIDDEN_WORD, guesses(words)
    return "noun", choices(tokens, numbers)


def appended(text: str, word: str) -> str:
    """A text and one of the words that a decoder can say next, written as people write it.

    English words have a space before them, and a capital letter if they are names, or begin a sentence.
    """
    code = language(text)
    if code == "zh" or not text:
        return text + word
    begins = text.rstrip("\"'”’)")[-1:] in (".", "!", "?", "…", "")
    if begins or word in lexicon(code).capitalized or word.partition("'")[0] == "i":
        word = word[:1].upper() + word[1:]
    return text + word if word in STOPS or text[-1:].isspace() else f"{text} {word}"


def follow(
    trained: Trained, text: str, *, limit: int = MAX_WORDS, edits: Sequence[Edit] = ()
) -> AttentionTrace:
    """Trace a text through a small model, on the model's device. Raises as `trace` does."""
    words = lexicon(trained.plan.language)
    tokens, numbers = words.cut(text, limit=min(limit, MAX_WORDS))
    model, rules = trained.model, trained.model.rules(len(numbers))
    if edits:
        model, rules = with_edits(trained, tokens, edits)
    found, is_decoder = choices(tokens, numbers), trained.plan.is_decoder
    hidden = [at for at, number in enumerate(numbers) if number == words.number[HIDDEN]]
    if is_decoder and hidden:
        raise MhaError(
            "A decoder names the next word and never read a hidden one; write a word instead of [MASK].",
            fixes=({"architecture": "glass-box"},),
        )
    with torch.no_grad():  # not inference mode: gradients could not pass its tensors
        passed = model(torch.tensor([numbers], device=model.bias.device), rules=rules)
        questions = {
            question: (None, *_answers(model, passed, question, slice(1, None), found))
            for question in model.questions  # [CLS] has no questions
            if question not in (HIDDEN_WORD, NEXT_WORD)
        }
        asked, places = (NEXT_WORD, [*range(len(numbers))]) if is_decoder else (HIDDEN_WORD, hidden)
        guessed = _answers(model, passed, asked, places, guesses(words))
    layers = tuple(
        LayerTrace.of(
            flow.attended,
            x=flow.x,
            projections=layer.attention.projections(),
            **_of_latent(layer.attention, flow.x),
        )
        for flow, layer in zip(passed.flows, model.layers, strict=True)
    )
    at_places = dict(zip(places, guessed, strict=True))
    nouns = questions.get("noun", (None,) * len(numbers))
    answers = tuple(at_places.get(at, answer) for at, answer in enumerate(nouns))
    own = source(trained)
    origin = EditedSource(own, tuple(edits)) if edits else own
    return AttentionTrace(tokens, layers, origin, answers, questions=questions)


class Stream(NamedTuple):
    """The residual stream of a small model, and its norms; None in a layer that has none."""

    words: torch.Tensor  # embeddings, (token, d_model)
    positions: torch.Tensor  # (token, d_model)
    before: list[torch.Tensor]  # the residual stream before each layer
    normed: list[torch.Tensor | None]  # the norm after the heads of a block, which its MLP reads


def stream(trained: Trained, trace: AttentionTrace) -> Stream:
    """The residual stream of a text through a small model, recomputed from its trace."""
    model, place = trained.model, trained.model.bias.device
    _, ids = lexicon(trained.plan.language).cut(trace.tokens.text, limit=MAX_WORDS)
    words, positions = model.embedding.detach()[ids], model.position.detach()[: len(ids)]
    x, found = words + positions, Stream(words.cpu(), positions.cpu(), [], [])
    with torch.no_grad():
        for layer, traced in zip(model.layers, trace.layers, strict=True):
            z = torch.tensor(traced.result(), device=place)
            found.before.append(x.cpu())
            found.normed.append(layer.mlp_norm(x + z).cpu() if layer.kind == "block" else None)
            x = layer.result(x, z)
    return found


def _answers(
    model: SmallModel, passed: Pass, question: str, at: slice | list[int], spelled: dict[int, str]
) -> list[Answer]:
    """The most probable of these words as answers to a question, at each of the positions `at`."""
    names = list(spelled.values())
    words = torch.tensor(list(spelled), device=passed.x.device)
    chances = model.answer_logits(passed, question, at, words)[0].softmax(-1).cpu()
    return most_probable(chances, names.__getitem__)


def continued(text: str, word: str) -> str | None:
    """The text with a word `appended`; None if it would not be read as the same words and this one."""
    words, longer = lexicon(language(text)), appended(text, word)
    (_, before), (_, after) = (words.cut(one, limit=MAX_WORDS + 1) for one in (text, longer))
    return longer if after == [*before, words.number.get(word)] else None


def embedded(trained: Trained, text: str) -> torch.Tensor:
    """The input of a small model: the vectors of the words, with their positions. (word, d_model)"""
    _, numbers = lexicon(trained.plan.language).cut(text, limit=MAX_WORDS)
    small = trained.model
    return small.embedding.detach()[numbers] + small.position.detach()[: len(numbers)]


def next_scores(trained: Trained, hidden: torch.Tensor) -> torch.Tensor:
    """A decoder's scores for the words that can come next. (…, d_model) of its last layer → (…, word)"""
    words = torch.tensor(list(guesses(lexicon(trained.plan.language))), device=hidden.device)
    return trained.model.logits(hidden, words).detach() / trained.model.temperatures.get(NEXT_WORD, 1.0)


def full_scores(trained: Trained, trace: AttentionTrace) -> torch.Tensor:
    """The same of one full run at each word of a trace, with its edits of attention. (word, next word)"""
    _, numbers = lexicon(trained.plan.language).cut(trace.tokens.text, limit=MAX_WORDS)
    small, device = trained.model, trained.model.bias.device
    rules = [layer.rule.mapped(lambda table: table.to(device)) for layer in trace.layers]
    with torch.no_grad():
        passed = small(torch.tensor([numbers], device=device), rules=rules)
        return next_scores(trained, small.read(passed, NEXT_WORD)[0]).cpu()


def main_tokens(trace: AttentionTrace) -> list[int]:
    """The most interesting tokens of a small model's text: its pronouns and hidden words, or a decoder's end.

    Without any, the tokens for which the model finds a noun. Empty for a trace of another source.
    """
    origin = trace.source.origin
    if not isinstance(origin, TrainedSource) or origin.language not in LANGUAGES:  # as may be in a file
        return []
    if origin.is_decoder:
        return [len(trace.answered) - 1]
    asked = lexicon(origin.language).pronouns | {HIDDEN}
    answered = {at: answer for at, answer in enumerate(trace.answers) if answer is not None}
    first = [at for at in answered if normalized(trace.answered.pieces[at]) in asked]
    return first or [at for at, answer in answered.items() if answer[0][0] != NOTHING]


def with_edits(trained: Trained, tokens: Tokens, edits: Sequence[Edit]) -> tuple[SmallModel, list[ScoreRule]]:
    """The model with the edits around attention, and the score rule of each layer with all other edits.

    The trained model itself is not changed. Raises `MhaError` for edits that do not fit.
    """
    model, spec = trained.model, trained.plan.spec
    site = Site("self", spec.n_heads, spec.d_v, tokens, tokens)
    by_place = by_layer(edits, [site] * len(model.layers), modules=True)
    rule, *_ = model.rules(len(tokens))
    if any(isinstance(edit, ModuleEdit) for edit in edits):
        model = deepcopy(model)
    for layer, of_layer in zip(model.layers, by_place, strict=True):
        for edit in of_layer:
            if isinstance(edit, ModuleEdit):
                edit.on_module(layer.attention)
    for edit in edits:
        if isinstance(edit, Position):
            model.set_position(edit.code)
            alibi = positions.alibi(spec.n_heads, len(tokens), len(tokens)) if edit.code == "alibi" else None
            rule = replace(rule, distance_bias=alibi)
    return model, [edited(rule, of_layer, site, model.bias.device) for of_layer in by_place]


def _of_latent(attention: MultiHeadAttention | LatentAttention, x: torch.Tensor) -> dict[str, Any]:
    """The latent vectors behind keys and values, (batch, token, rank), and their sizes, if there are any."""
    if not isinstance(attention, LatentAttention):
        return {}
    spec = attention.spec
    latent = LatentProjection(spec.kv_rank, plain_width=spec.d_k, value_width=spec.d_v)
    with torch.no_grad():
        return {"kv_short": attention.cached(x)[0], "about": Facts(latent=latent)}


def source(trained: Trained) -> MiniSource:
    """The source of a small model's numbers: the plan of its training and the last step."""
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
        questions=() if plan.is_decoder else tuple(map(" ".join, questions_of(plan.h))),
    )


@lru_cache(maxsize=64)  # all shipped models, trained and before training: 160 MB
def loaded_model(plan: Plan, trained: bool, place: str) -> Trained:
    loaded = checkpoints.load_model(checkpoints.path(plan)) if trained else checkpoints.untrained(plan)
    return replace(loaded, model=loaded.model.to(place))
