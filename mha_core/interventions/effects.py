"""The effect of each head on an answer: with each head switched off in turn, or estimated by one gradient.

>>> trace = mha.trace("The animal didn't cross the street because it was too tired.", source="mini")
>>> mha.effects(trace).columns.tolist()
['layer', 'head', 'effect']
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mha_core import device as devices
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, Phrase, named_type, one_of
from mha_core.interventions.traced_model import (
    CLOSE,
    HALF_CLOSE,
    answering_token,
    answers_at,
    check_same,
    check_trace,
    model_of,
    target_of,
    text_of,
)
from mha_core.interventions.vocabulary import Vocabulary, of_answers, of_tokenizer
from mha_core.sources import mini
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface import switches
from mha_core.sources.huggingface.batches import numbered, outcomes
from mha_core.sources.huggingface.twin import twin
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained
from mha_core.training.lexicon import lexicon

METHODS = ("ablation", "gradient", "both")
MAX_TOKENS = 2048  # in all texts of one pass
MAX_SCORES = 1 << 26  # logits in one pass, 256 MB
AT_ONCE = 16  # texts of a baseline

Progress = Callable[[int, int], None]


class MeasurementStopped(MhaError):
    """The caller has stopped the measurement."""


@dataclass(frozen=True, eq=False)
class Switched(ScoreRule):
    """A score rule that interpolates heads' outputs: unchanged at a factor of 1, `means` at a factor of 0.

    `factors` are (text, head, 1, 1), `means` are (head, 1, d_v).
    """

    factors: Tensor | None = None
    means: Tensor | None = None

    def outputs(self, mixed: Tensor) -> Tensor:
        mixed = super().outputs(mixed)
        return mixed if self.factors is None else switches.interpolated(self.means, mixed, self.factors)


@dataclass(frozen=True, eq=False)
class Experiment:
    """An answer of a model at a token, as a function of factors on its heads' outputs, from 0 (off) to 1.

    `logits` takes one tensor of factors (text, head) for each layer, and returns the logits (text, word).
    """

    logits: Callable[[Sequence[Tensor]], Tensor]
    n_heads: tuple[int, ...]  # of each layer
    max_texts: int
    device: str
    close: float
    vocabulary: Vocabulary
    at: int

    def ones(self, n_texts: int = 1) -> list[Tensor]:
        return [torch.ones(n_texts, n, device=self.device) for n in self.n_heads]


def effects(
    trace: AttentionTrace,
    *,
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
    method: str = "ablation",
    baseline: Sequence[str] | None = None,
    source: str | PathLike[str] | nn.Module | Trained | huggingface.Model | None = None,
    tokenizer: object = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> pd.DataFrame:
    """The effect of each head on an answer of the model, the largest first: layer, head, effect.

    The effect is the change of ``log p(answer)`` when the head's output is 0 and everything else is
    unchanged; with `against` it is the change of the margin ``log p(answer) − log p(against)``. A negative
    effect means that the head helps the answer. With `baseline`, a list of texts, the output is replaced by
    its mean over all their tokens: the part of the output that does not depend on the text stays, and no
    layer gets an output that it has never seen.

    `answer` and `against` are words of the model's vocabulary, or their ids; the default answer is the most
    probable word. A small model is asked which noun a word stands for or belongs to, and answers with a word
    of the text; at a hidden word it is asked which word is hidden. `at` is the token at which the model
    answers, by default the last one, for a small model the last pronoun or hidden word. Effects are measured
    with the edits of the trace in place. The trace does not contain its model: by default the model is loaded
    by its name; `source` is a model in memory, with its `tokenizer`, or another place of it. `progress` is
    called with the number of heads done and of all heads. When `cancelled` returns True, `MeasurementStopped`
    is raised.

    `method` is "ablation", one pass for each head, several at once if the model reads several texts
    independently; "gradient", which estimates all effects by one backward pass, ``−∂ log p / ∂ factor`` (the
    gradient at a head's output times the change by ablation); or "both", with the columns effect and
    estimate, and Spearman's correlation of the two in ``frame.attrs["rank_correlation"]``. ``frame.attrs``
    also has the answer and its value without a change. With several kinds of attention a column has the kind
    of the layer.

    Raises `MhaError` for a trace whose numbers cannot be computed again, for a model without answers, with
    attention in its own code, or that now computes other numbers, and for a word or token that does not
    exist. Sources: Michel et al. 2019, "Are Sixteen Heads Really Better than One?" (both methods, equation
    2); means as Wang et al. 2022, "Interpretability in the Wild".
    """
    check_trace(trace)
    one_of("method", method, METHODS)
    with devices.memory_errors(Phrase("This experiment")):
        experiment = _experiment(trace, at, source, tokenizer, _texts(baseline))
        with torch.no_grad():
            scores = experiment.logits(experiment.ones())[0]
        number = experiment.vocabulary.number
        words = [number(answer, scores, "answer")]
        words += [] if against is None else [number(against, scores, "against")]
        value = float(_value(scores, words))
        frame = _places(trace)
        if method != "gradient":
            frame["effect"] = _by_ablation(experiment, words, value, progress, cancelled)
        if method != "ablation":
            frame["effect" if method == "gradient" else "estimate"] = _by_gradient(experiment, words)
    order = frame["effect"].abs().sort_values(ascending=False, kind="stable").index
    about = {"at": experiment.at, "answer": experiment.vocabulary.word(words[0]), "value": value}
    if against is not None:
        about["against"] = experiment.vocabulary.word(words[1])
    if method == "both":
        about["rank_correlation"] = float(frame[["effect", "estimate"]].rank().corr().iat[0, 1])
    frame = frame.loc[order].reset_index(drop=True)
    frame.attrs = about
    return frame


def _value(scores: Tensor, words: Sequence[int]) -> Tensor:
    """``log p`` of the first word, minus that of the second if there is one. (…, word) → (…)"""
    chances = scores.log_softmax(-1)
    return chances[..., words[0]] - (chances[..., words[1]] if len(words) > 1 else 0.0)


def _places(trace: AttentionTrace) -> pd.DataFrame:
    rows = [(at, head, layer.kind) for at, layer in enumerate(trace.layers) for head in range(layer.n_heads)]
    frame = pd.DataFrame(rows, columns=["layer", "head", "kind"])
    return frame if len(trace.kinds) > 1 else frame.drop(columns="kind")


def _by_ablation(
    experiment: Experiment,
    words: Sequence[int],
    value: float,
    progress: Progress | None,
    cancelled: Callable[[], bool] | None,
) -> list[float]:
    heads = [(layer, head) for layer, n in enumerate(experiment.n_heads) for head in range(n)]
    effects: list[float] = []
    n_texts = experiment.max_texts if _texts_are_independent(experiment, words, value) else 1
    for start in range(0, len(heads), n_texts):
        if cancelled is not None and cancelled():
            raise MeasurementStopped(
                "Stopped after {n_measured} of {n_heads} heads.", n_measured=len(effects), n_heads=len(heads)
            )
        some = heads[start : start + n_texts]
        factors = experiment.ones(len(some))
        for text, (layer, head) in enumerate(some):
            factors[layer][text, head] = 0.0
        with torch.no_grad():
            effects += (_value(experiment.logits(factors), words) - value).tolist()
        if progress is not None:
            progress(len(effects), len(heads))
    return effects


def _texts_are_independent(experiment: Experiment, words: Sequence[int], value: float) -> bool:
    """Whether a text has the same answer alone, and beside a text without the first layer's heads."""
    if experiment.max_texts < 2:
        return False
    factors = experiment.ones(2)
    factors[0][0] = 0.0
    try:
        with torch.no_grad():
            beside = float(_value(experiment.logits(factors), words)[1])
    except MhaError:
        raise
    except Exception:  # a model that reads one text at a time may raise any error
        return False
    return abs(beside - value) <= experiment.close * max(1.0, abs(value))


def _by_gradient(experiment: Experiment, words: Sequence[int]) -> list[float]:
    factors = [one.requires_grad_() for one in experiment.ones()]
    with torch.inference_mode(False), torch.enable_grad():
        value = _value(experiment.logits(factors)[0], words)
        gradients = torch.autograd.grad(value, factors, materialize_grads=True)
    return (0.0 - torch.cat(gradients, dim=1)[0]).tolist()


def _texts(baseline: Sequence[str] | None) -> Sequence[str]:
    """The texts of the baseline, empty for "zero". Raises `MhaError` for anything else."""
    if baseline is None:
        return ()
    texts = baseline if isinstance(baseline, list | tuple) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise MhaError(
            "baseline is a list of texts over which outputs are averaged; got {baseline:.60}.",
            baseline=repr(baseline),
        )
    return texts


def mean_outputs(traces: Iterable[AttentionTrace]) -> list[np.ndarray]:
    """For each layer the heads' outputs, averaged over all tokens of all traces. (head, d_v)

    They replace a head's output by its average over texts (mean ablation: Wang et al. 2022):
    ``edits.Output(layer=1, heads=3, values=mha.mean_outputs(traces)[1][3])``.
    Raises `MhaError` without a trace, for other values, for traces with different layers, and where outputs
    are not known.
    """
    sums: list[np.ndarray] = []
    counts: list[int] = []
    if not isinstance(traces, Iterable):
        raise MhaError(
            "mean_outputs takes several traces, as in a list; got {type}.", type=named_type(traces)
        )
    for trace in traces:
        check_trace(trace)
        outputs = [layer.output().astype(np.float64) for layer in trace.layers]
        shapes = [output.shape[::2] for output in outputs]
        sums = sums or [np.zeros(shape) for shape in shapes]
        counts = counts or [0] * len(outputs)
        if shapes != [total.shape for total in sums]:
            raise MhaError("Outputs are averaged over texts in one model; these have different layers.")
        for at, output in enumerate(outputs):
            sums[at] += output.sum(1)
            counts[at] += output.shape[1]
    if not sums:
        raise MhaError("There is no trace with a layer to average over; give one, as [mha.trace(text)].")
    return [(total / count).astype(np.float32) for total, count in zip(sums, counts, strict=True)]


def _means(traces: Iterable[AttentionTrace], place: str) -> list[Tensor]:
    """`mean_outputs` as tensors that broadcast over the outputs of any text. (head, 1, d_v)"""
    return [torch.tensor(mean[:, None], device=place) for mean in mean_outputs(traces)]


def _experiment(
    trace: AttentionTrace, at: int | str | None, source: object, tokenizer: object, baseline: Sequence[str]
) -> Experiment:
    model = model_of(trace, source, tokenizer, answers=True)
    if isinstance(model, Trained):
        return _of_small_model(trace, answering_token(trace, at, "at"), model, baseline)
    if model is not None:
        return _of_transformers(trace, at, model, baseline)
    raise MhaError(
        "An effect is of a model that answers, and the source of this trace ({source}) answers nothing."
        if trace.source.origin.kind == "random"
        else "An effect is of a model that answers, and the source of this trace ({source}) runs nothing.",
        source=trace.source.name,
    )


def _of_small_model(trace: AttentionTrace, at: int, trained: Trained, baseline: Sequence[str]) -> Experiment:
    again = mini.follow(trained, trace.tokens.text, edits=trace.edits)
    check_same(trace, again, CLOSE)
    words, place = lexicon(trained.plan.language), trained.model.bias.device
    tokens, numbers = words.cut(trace.tokens.text, limit=len(trace.tokens))
    question, spelled = mini.asked(trained, tokens, numbers, at)
    others = torch.ones(len(words.vocabulary), dtype=torch.bool, device=place)  # no answers here
    others[list(spelled)] = False
    ids = torch.tensor([numbers], device=place)
    model, rules = mini.with_edits(trained, trace.tokens, trace.edits)
    averaged = _means((mini.follow(trained, text) for text in baseline), str(place)) if baseline else ()
    means: Sequence[Tensor | None] = averaged or [None] * len(rules)

    def logits(factors: Sequence[Tensor]) -> Tensor:
        switched = [
            Switched(**vars(rule), factors=one[:, :, None, None], means=mean)
            for rule, one, mean in zip(rules, factors, means, strict=True)
        ]
        passed = model(ids.expand(len(factors[0]), -1), rules=switched)
        return model.answer_logits(passed, question, at).masked_fill(others, -torch.inf)

    return Experiment(
        logits,
        tuple(layer.n_heads for layer in trace.layers),
        max(1, MAX_TOKENS // len(trace.tokens)),
        str(place),
        CLOSE,
        of_answers(words, spelled),
        at,
    )


def _of_transformers(
    trace: AttentionTrace, at: int | str | None, model: huggingface.Model, baseline: Sequence[str]
) -> Experiment:
    text, target = text_of(trace), target_of(model, trace)
    again = huggingface.follow(model, text, target=target, edits=trace.edits, answers=answers_at(model, at))
    close = CLOSE if model.dtype == "float32" else HALF_CLOSE
    check_same(trace, again, close)
    position = answering_token(again, at, "at")
    if baseline and model.has_target:
        raise MhaError("A baseline is of models that read one text; leave it out for one with a target.")
    averaged = _means(numbered(outcomes(model, baseline, batch=AT_ONCE)), model.device) if baseline else ()
    texts = huggingface.reading(model, text, target=target, edited=True)
    sites = huggingface.sites(model, texts)
    edits = huggingface.edits_by_call(trace.edits, sites)
    means = dict(zip(sites, averaged, strict=True)) if baseline else {}
    n_tokens = len(again.answered)

    def logits_by(module: Any) -> Callable[[Sequence[Tensor]], Tensor]:
        def logits(factors: Sequence[Tensor]) -> Tensor:
            by_call = dict(zip(sites, factors, strict=True))
            return switches.logits(model, module, texts.inputs, position, by_call, means, edits)

        return logits

    n_all = len(trace.tokens) + (n_tokens if model.has_target else 0)
    n_words = getattr(model.module.config.get_text_config(decoder=True), "vocab_size", None) or 1
    experiment = Experiment(
        logits_by(switches.for_one_row(model.module, position, n_tokens)),
        tuple(layer.n_heads for layer in trace.layers),
        1 if trace.edits else max(1, min(MAX_TOKENS // n_all, MAX_SCORES // n_words)),
        model.device,
        close,
        of_tokenizer(model.tokenizer),
        position,
    )
    answer = again.answers[position]
    if answer is None or not _answers(experiment, answer[0][1]):  # its output head needs all rows
        module = twin(model.module)
        max_texts = min(experiment.max_texts, MAX_SCORES // (n_tokens * n_words))
        experiment = replace(experiment, logits=logits_by(module), max_texts=max(1, max_texts))
    return experiment


def _answers(experiment: Experiment, share: float) -> bool:
    """Whether the most probable word of the unchanged experiment has this probability."""
    try:
        with torch.no_grad():
            scores = experiment.logits(experiment.ones())[0]
    except MhaError:
        raise
    except Exception:  # the code after the output head may need all rows
        return False
    return abs(float(scores.softmax(-1).max()) - share) <= experiment.close
