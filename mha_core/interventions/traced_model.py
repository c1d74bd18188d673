"""Finds the model of a trace, which the trace does not contain, and runs it once more.

Its numbers must be those of the trace.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.analysis.explanation import position
from mha_core.attention.module import AttentionSpec
from mha_core.capture.decomposition import Decomposition
from mha_core.errors import MhaError, listed, named_type
from mha_core.interventions.vocabulary import Vocabulary, of_answers, of_tokenizer
from mha_core.sources import mini, random_weights
from mha_core.sources.huggingface import forward_pass
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.tokenizer import INPUTS
from mha_core.traces.source import DRAWN, MiniSource, ModelSource, RandomSource, RunSource
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained
from mha_core.training.lexicon import lexicon

CLOSE = 1e-3  # largest difference of a text in two passes, or alone and in a batch
HALF_CLOSE = 5e-2


@dataclass(frozen=True, eq=False)
class Answered:
    """The `logits` of all words at a token, as the model computed them, and its vocabulary.

    `scores` are the same in single precision, −∞ for words that are no answer.
    """

    at: int
    logits: Tensor
    scores: Tensor
    vocabulary: Vocabulary


@dataclass(frozen=True, eq=False)
class Again:
    """The trace of a second run, what its tensors are made of, and its answer at one token if it was asked.

    `ids` are the tokens that a model of transformers has read. A small model has embeddings of words alone,
    so it has none.
    """

    trace: AttentionTrace
    decomposition: Decomposition
    ids: Sequence[Tensor] = ()
    answered: Answered | None = None


def run_again(
    trace: AttentionTrace,
    source: object,
    tokenizer: object,
    *,
    answer: bool = False,
    token: int | str | None = None,
    follow: bool = True,
) -> Again:
    """Run the model of a trace once more; `follow` keeps for each tensor the sum that makes it.

    With `answer` the run has the logits at a `token`, by default at the last one where the model answers.
    Raises `MhaError` for a trace whose numbers cannot be computed again, and for a model that computes other
    ones.
    """
    model, origin = model_of(trace, source, tokenizer, answers=answer), trace.source.origin
    if isinstance(model, Trained):
        sums = Decomposition(_names(model.model))
        with torch.inference_mode(False), torch.no_grad(), sums if follow else nullcontext():
            again = mini.follow(model, trace.tokens.text, edits=trace.edits)
            answered = _small_answer(model, again, token) if answer else None
        check_same(trace, again, CLOSE)
        return Again(again, sums, (), answered)
    if model is not None:
        return _of_transformers(trace, model, answer, token, follow)
    if isinstance(origin, RandomSource) and not answer:
        sums = Decomposition({})
        with torch.inference_mode(False), torch.no_grad(), sums:
            again = _drawn(trace, origin)
        check_same(trace, again, CLOSE)
        return Again(again, sums)
    raise MhaError(
        "Logits are of a model that answers, and the source of this trace ({source}) answers nothing."
        if answer
        else "A score is split by following its model, and the source of this trace ({source}) runs nothing.",
        source=trace.source.name,
    )


def _of_transformers(
    trace: AttentionTrace, model: huggingface.Model, answer: bool, token: int | str | None, follow: bool
) -> Again:
    text, target = text_of(trace), target_of(model, trace)
    if token is not None:
        token = position("token", token, trace.answered)
    inputs = huggingface.reading(model, text, target=target, edited=True).inputs
    ids = [tensor for name, tensor in inputs.items() if name in ("input_ids", "decoder_input_ids")]
    sums = Decomposition(_names(model.module), ids)
    asked = answers_at(model, token) if answer else False
    mode = sums if follow else nullcontext()
    with torch.inference_mode(False), torch.no_grad(), mode, forward_pass.keeping_result() as results:
        again = huggingface.follow(model, text, target=target, edits=trace.edits, answers=asked)
    check_same(trace, again, CLOSE if model.dtype == "float32" else HALF_CLOSE)
    if not answer:
        return Again(again, sums, ids)
    at, rows = answering_token(again, token, "token"), results[0].logits
    with torch.no_grad(), mode:
        logits = rows[0, at if rows.shape[1] == len(again.answered) else -1]
    vocabulary = of_tokenizer(model.tokenizer)
    return Again(again, sums, ids, Answered(at, logits, logits.detach().float(), vocabulary))


def _small_answer(trained: Trained, trace: AttentionTrace, token: int | str | None) -> Answered:
    token = token if token is None else position("token", token, trace.answered)
    at = answering_token(trace, token, "token")
    words, place = lexicon(trained.plan.language), trained.model.bias.device
    tokens, numbers = words.cut(trace.tokens.text, limit=len(trace.tokens))
    question, spelled = mini.asked(trained, tokens, numbers, at)
    model, rules = mini.with_edits(trained, trace.tokens, trace.edits)
    passed = model(torch.tensor([numbers], device=place), rules=rules)
    logits = model.answer_logits(passed, question, [at])[0, 0]
    scores = torch.full_like(logits.detach(), -torch.inf)
    scores[list(spelled)] = logits.detach()[list(spelled)]
    return Answered(at, logits, scores, of_answers(words, spelled))


def answers_at(model: huggingface.Model, token: int | str | None) -> bool | list[int | str]:
    """The tokens at which a model of transformers is asked: this one, or all hidden ones, or the last."""
    return [token] if token is not None else True if model.writes == "masked" else [-1]


def answering_token(trace: AttentionTrace, token: int | str | None, name: str) -> int:
    """The position of a token with an answer, by default the last of the most interesting ones.

    Raises `MhaError`, with the `name` of the argument, for another token.
    """
    answered = [place for place, answer in enumerate(trace.answers) if answer is not None]
    if not answered:
        raise MhaError("The model answers at no token of this text; hide a word of it.")
    if token is None:
        return max(mini.main_tokens(trace) or answered)
    n_tokens = len(trace.answered)
    place = trace.answered.index(token) if isinstance(token, str) else token
    if isinstance(place, int) and -n_tokens <= place < n_tokens and place % n_tokens in answered:
        return place % n_tokens
    raise MhaError(
        "{name} is a token at which the model answers: {answered}; got {token:.60}.",
        name=name,
        answered=listed(answered, "or"),
        token=repr(token),
        fixes=tuple({name: place} for place in answered[-3:]),
    )


def _names(module: nn.Module) -> dict[int, str]:
    """The names of a model's parameters and buffers, by their memory addresses."""
    named = (*module.named_buffers(), *module.named_parameters())
    return {tensor.untyped_storage().data_ptr(): name for name, tensor in named}


def _drawn(trace: AttentionTrace, origin: RandomSource) -> AttentionTrace:
    """The same random weights again, with the sizes of the trace."""
    first = trace.layer(0)
    assert first.d_model is not None  # a layer of random weights has its X
    sizes = first.d_model, first.n_heads, first.n_kv_heads, first.d_k, first.d_v, first.knows("b_q")
    return random_weights.follow(
        trace.tokens,
        AttentionSpec(*sizes),
        seed=origin.seed,
        layers=len(trace.layers),
        position=origin.position,
        mask=first.rule.mask if origin.mask == DRAWN else origin.mask,
        device=origin.device,
        edits=trace.edits,
    )


def model_of(
    trace: AttentionTrace, source: Any, tokenizer: object, *, answers: bool
) -> Trained | huggingface.Model | None:
    """The model of a trace: `source`, which is a model in memory or its place, or else the one it names.

    None for a trace that comes from no model with words. Raises `MhaError` for a model that cannot be had.
    """
    origin = trace.source.origin
    if isinstance(source, Trained | huggingface.Model):
        return source
    if source is not None:
        return huggingface.model_of(source, tokenizer=tokenizer, answers=answers)
    if isinstance(origin, ModelSource):
        return huggingface.model_of(
            origin.name, revision=origin.revision, device=origin.device, dtype=origin.dtype, answers=answers
        )
    if isinstance(origin, MiniSource):
        plan = mini.find(origin.language, origin.architecture, origin.h, origin.d_model)
        return mini.model(plan, trained=origin.step > 0)
    if isinstance(origin, RunSource):
        raise MhaError(
            "The model of the training {training!r} has to be at hand: source=….", training=origin.name
        )
    return None


def text_of(trace: AttentionTrace) -> str | dict[str, list[int]]:
    """The inputs that the model of a trace has read, or the text if the trace does not have them."""
    origin = trace.source.origin
    if not isinstance(origin, ModelSource):
        return trace.tokens.text
    given = {name: list(getattr(origin, name)) for name in INPUTS}
    return {name: numbers for name, numbers in given.items() if numbers} or trace.tokens.text


def target_of(model: huggingface.Model, trace: AttentionTrace) -> str | list[int] | None:
    """The target of a trace, for an encoder–decoder to read again; None for a model that reads one text.

    It is a text; or ids, if the model generated other pieces than its tokenizer makes of the text.
    """
    if not model.has_target:
        return None
    text, given = trace.answered.text, text_of(trace)
    if trace.edits:
        return text
    target = huggingface.reading(model, given, target=text).target if text.strip() else None
    if target is not None and target.pieces == trace.answered.pieces:
        return text
    return huggingface.reading(model, given, target=None).inputs["decoder_input_ids"][0].tolist()


def check_trace(trace: object) -> None:
    """Raise `MhaError` for anything but a whole trace."""
    if not isinstance(trace, AttentionTrace):
        raise MhaError(
            "A trace is needed, as mha.trace(text) returns it; got {type}.", type=named_type(trace)
        )


def check_same(trace: AttentionTrace, again: AttentionTrace, close: float) -> None:
    """Raise `MhaError` unless the model now computes the same numbers as in the trace."""
    texts = [(one.tokens.pieces, one.answered.pieces) for one in (trace, again)]
    if texts[0] != texts[1]:
        raise MhaError(
            "The model reads other tokens in this text than the trace has. Give the model of the trace, with "
            "its tokenizer=, and of an encoder–decoder the whole trace, not a part of it."
        )
    queries = [
        [layer.tensors["q"].float() for layer in one.layers if layer.knows("q")] for one in (trace, again)
    ]
    pairs = zip(*queries, strict=False)
    if len(queries[0]) != len(queries[1]) or any(
        one.shape != other.shape or (one - other).abs().max() > close * other.abs().max().clamp_min(1.0)
        for one, other in pairs
    ):
        raise MhaError(
            "The model {name} computes other numbers than the trace has; the one that was "
            "traced has to be at hand: source=model.",
            name=again.source.name,
        )
    masks = ((one.rule.mask, other.rule.mask) for one, other in zip(trace.layers, again.layers, strict=False))
    if any(
        one is not other and (one is None or other is None or not torch.equal(one, other))
        for one, other in masks
    ):
        raise MhaError(
            "The trace has another mask than the model makes for this text; trace it again with mha.trace, "
            "which remembers the mask and the positions that it was given."
        )
