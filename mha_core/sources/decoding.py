"""One token at a time: decoders that write with a cache, and their cached run compared with the full one.

At step t there is one new query. It looks at the keys and values that earlier steps have kept and at its own,
which are kept, too: nothing about an earlier token is computed again. The full run reads all tokens at once
under a causal mask; its row t has the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.edits import Edit, ModuleEdit, checked
from mha_core.attention.functional import attend, attention_weights
from mha_core.attention.latent import LatentAttention
from mha_core.attention.module import AttentionSpec
from mha_core.attention.positions import rotate
from mha_core.capture import gap
from mha_core.capture.call import Call
from mha_core.capture.collector import Collector
from mha_core.errors import MhaError, Phrase, in_range
from mha_core.sources import mini, random_weights
from mha_core.sources.huggingface import forward_pass, model
from mha_core.sources.huggingface.loading import first_line
from mha_core.sources.huggingface.logits import MAX_BYTES, asked, logits_of, question_of, word_of
from mha_core.sources.huggingface.tokenizer import Ids, using_tokenizer
from mha_core.traces.answers import ANSWERS
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import DECODER, RandomSource
from mha_core.traces.trace import AttentionTrace
from mha_core.training.checkpoints import Trained

MAX_STEPS = 1024
# The largest difference that rounding explains.
CLOSE = gap.CLOSE | {torch.float32: 1e-5, torch.float64: 1e-5}
MAX_ONE_BY_ONE = 256  # tokens of a text that our own layers read
ALONE = 16  # the last tokens that a model reads one by one to be compared; it reads those before at once
EDITED = Phrase("with changes, the model's own cache is not compared")
FIXES: dict[str, tuple[dict, ...]] = {"random": ({"mask": "causal"},), "mini": ({"architecture": DECODER},)}


@dataclass(frozen=True)
class CacheCheck:
    """The largest differences between a cached run and the full one, and how many numbers the cache holds.

    `scores` is that of the scores for the next word, divided by the largest one if that is above 1. Rounding
    explains differences up to `close`. What is not known is None; the `reason` says why nothing is.
    """

    weights: float | None = None
    scores: float | None = None
    numbers: int | None = None
    reason: str = ""
    close: float = CLOSE[torch.float32]

    @property
    def passed(self) -> bool:
        """Whether something was compared, and all of it is equal up to rounding."""
        compared = [one for one in (self.weights, self.scores) if one is not None]
        return bool(compared) and max(compared) <= self.close


class Decoding(NamedTuple):
    """The full run over a text and the `words` written after it, and the `check` of the cached run."""

    trace: AttentionTrace
    words: tuple[str, ...]
    check: CacheCheck


class NextWord(NamedTuple):
    """A token that can come next, its probability, and the text with it; None if it is not read as it."""

    word: str
    share: float
    text: str | None


def decode(
    text: str | Ids,
    *,
    source: str | PathLike[str] | nn.Module = "mini",
    steps: int = 1,
    edits: Sequence[Edit] = (),
    **settings: Any,
) -> Decoding:
    """Write `steps` tokens after a text, the most probable one each time, and trace all of it.

    A model of transformers writes with its own cache. Then all is read once more at once: the trace has the
    full run, and `check` the largest difference between the two. `edits` act in the full run, and at each
    step before the next token is chosen; the edits of a cache are `mha.edits.Evict`, `mha.edits.Exchange`,
    and the masks "window:n" and "streaming:n". `source` and `settings` are those of `mha.trace`; the small
    model is a decoder unless you name another `architecture`.

    >>> trace, words, check = mha.decode("The dog", steps=3)
    >>> len(words), check.passed
    (3, True)

    Raises `MhaError` for a source whose tokens look ahead, which can have no cache; for random weights, which
    write no words, unless ``steps=0``; and as `mha.trace` does. Source: Pope et al. 2022, section 2.1.
    """
    in_range("steps", steps, 0, MAX_STEPS)
    if source == "random":
        if steps:
            rule = Phrase("Random weights know no words, so they write none; steps=0 reads your text alone.")
            raise MhaError(rule, fixes=({"steps": 0},))
        traced = random_weights.trace(text, **{"mask": "causal"} | settings, edits=edits)  # type: ignore[arg-type]
        check_causal(traced)
        return Decoding(traced, (), cached(traced).check(traced))
    if source == "mini":
        return _written_by_small(text, steps, edits, **settings)  # type: ignore[arg-type]
    return _written_by_model(text, source, steps, edits, **settings)


def check_causal(trace: AttentionTrace) -> None:
    """Raise `MhaError` unless every token of a trace looks at itself and at earlier ones alone."""
    looks_ahead = (layer.kind != "self" or layer.allowed(0, rows=[0])[0, 1:].any() for layer in trace.layers)
    if not any(looks_ahead):
        return
    raise MhaError(
        "Here a token looks at later ones, or at another text, so that each new token would change what all "
        "earlier ones are: there is nothing that a cache could keep. Choose a decoder, or a causal mask.",
        fixes=FIXES.get(trace.source.origin.kind, ({"source": "mini"}, {"source": "random"})),
    )


class CachedRun:
    """A text read one token at a time.

    `rows` has the position of each token that was read alone, and for each layer the weights of its query,
    (head, key). `scores` are those for the next word, (word,); the cache holds so many `numbers`.
    """

    def __init__(self, reason: str = "") -> None:
        self.rows: list[tuple[int, list[Tensor]]] = []
        self.scores: Tensor | None = None
        self.numbers = 0
        self.reason, self.dtype = reason, torch.float32

    def check(self, trace: AttentionTrace, scores: Tensor | None = None) -> CacheCheck:
        """The differences to a full run; `scores` are its scores for the next word after the same token."""
        if self.reason:
            return CacheCheck(reason=self.reason)
        known = [(at, rows) for at, rows in self.rows if len(rows) == len(trace.layers)]
        differences = [
            _difference(*one, at) for at, rows in known for one in zip(rows, trace.layers, strict=True)
        ]
        of_scores = None if scores is None or self.scores is None else gap.gap(self.scores, scores)
        reason = "" if differences or of_scores is not None else Phrase("nothing of the cached run is known")
        return CacheCheck(max(differences, default=None), of_scores, self.numbers, reason, CLOSE[self.dtype])


def _difference(row: Tensor, layer: LayerTrace, at: int) -> float:
    """The largest difference of a cached row, (head, key), to the full run; keys that it lacks weigh 0."""
    full = torch.from_numpy(layer.weights(rows=[at])[:, 0, : at + 1].copy())
    return float((full - nn.functional.pad(row.float(), (at + 1 - row.shape[-1], 0))).abs().max())


def cached(
    trace: AttentionTrace, source: Trained | model.Model | None = None, *, last: int | None = None
) -> CachedRun:
    """The cached run over the tokens of a trace, up to the `last`; random weights have no `source`.

    Random weights and small models run with the edits of the trace, a model of transformers without any.
    """
    count, origin = len(trace.tokens) if last is None else last + 1, trace.source.origin
    if isinstance(source, model.Model):
        run = _ModelRun(source, EDITED if trace.edits else "")
        run.read(getattr(origin, "input_ids", ())[:count])
        return run
    if any(isinstance(edit, ModuleEdit) or edit.stage for edit in trace.edits):
        return CachedRun(Phrase("a change of weights or outputs, or around attention, is in effect"))
    if count > MAX_ONE_BY_ONE:
        return CachedRun(Phrase("more than {limit} tokens are not read one by one", limit=MAX_ONE_BY_ONE))
    return _own_run(trace, source, count)


@torch.no_grad()
def _own_run(trace: AttentionTrace, trained: Trained | None, count: int) -> CachedRun:
    """A cached run of random weights or a small model: a layer keeps keys and values, or latent vectors."""
    run, first, n_tokens, is_rotary = CachedRun(), trace.layers[0], len(trace.tokens), False
    parts: list[tuple[Any, Any, Any]]  # of each layer the norm, the attention, and the way from its output on
    if trained is None:
        origin = trace.source.origin
        assert isinstance(origin, RandomSource)  # the only source without a model
        assert first.d_model is not None  # our own layers know their input
        sizes = (first.d_model, first.n_heads, first.n_kv_heads, first.d_k, first.d_v, first.knows("b_q"))
        spec, seed, is_rotary = AttentionSpec(*sizes), origin.seed, origin.position == "rotary"
        x = random_weights.embedded(trace.tokens.pieces, spec.d_model, origin.position, seed=seed)
        drawn = [random_weights.drawn(spec, seed=seed, layer=at) for at in range(len(trace.layers))]
        parts = [(lambda x: x, attention, lambda _x, output: output) for attention in drawn]
    else:
        x = mini.embedded(trained, trace.tokens.text)
        parts = [(layer.norm, layer.attention, layer.result) for layer in trained.model.layers]
    kept: list[list[Tensor]] = [[] for _ in parts]
    for at in range(count):
        row, weights = x[None, at : at + 1], []
        for (norm, attention, result), layer, held in zip(parts, trace.layers, kept, strict=True):
            normed = norm(row)
            is_latent = isinstance(attention, LatentAttention)
            if is_latent:
                q, new = attention.queries(normed, first=at), attention.cached(normed, first=at)
            else:
                q, *new = attention.project(normed)
                if is_rotary:
                    q, new[0] = rotate(q, first=at), rotate(new[0], first=at)
            held[:] = [torch.cat(pair, dim=-2) for pair in zip(held, new, strict=True)] if held else new
            k, v = attention.expanded(*held) if is_latent else held
            rule = layer.rule.at(slice(None), [at], n_query=n_tokens, n_key=n_tokens)
            rule = rule.mapped(partial(_up_to, end=at + 1, device=x.device))
            weights.append(attention_weights(q, k, rule)[0, :, 0].cpu())
            row = result(row, attention.join(attend(q, k, v, rule)))
        run.rows.append((at, weights))
    run.numbers = sum(tensor.numel() for held in kept for tensor in held)
    run.scores = None if trained is None else mini.next_scores(trained, row)[0, -1].cpu()
    return run


def _up_to(table: Tensor, *, end: int, device: torch.device) -> Tensor:
    return table[..., :end].to(device)


class _ModelRun(CachedRun):
    """A cached run of a model of transformers, whose own code keeps the cache."""

    def __init__(self, source: model.Model, reason: str = ""):
        super().__init__(reason)
        self.source, self.cache, self.count = source, None, 0
        self.dtype = next(source.module.parameters()).dtype

    def read(self, ids: Sequence[int]) -> None:
        """Read further tokens, the last ones one by one."""
        behind = max(0, len(ids) - ALONE) if not self.count else 0
        for part in [ids[:behind], *([number] for number in ids[behind:])]:
            if part and not self.reason:
                self._read(part)

    def _read(self, ids: Sequence[int]) -> None:
        route = self.source.route
        returns = route.name not in ("attend", "mixing")
        more: dict[str, Any] = {"past_key_values": self.cache, "use_cache": True}
        more |= {"output_attentions": True} if returns else {}
        inputs = {"input_ids": torch.tensor([ids], device=self.source.device)}
        try:
            with Collector({}, route.by) as collector:
                result: Any = forward_pass.forward(self.source.module, inputs, **more)
        except Exception as error:  # any library's any error
            why = first_line(error)
            self.reason = Phrase("with its cache the model raises an error ({reason})", reason=why)
            return
        self.cache, self.count = getattr(result, "past_key_values", None), self.count + len(ids)
        if self.cache is None:
            self.reason = Phrase("the model keeps no cache")
            return
        layers = getattr(self.cache, "layers", ())
        held = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        self.numbers = sum(tensor.numel() for tensor in held if isinstance(tensor, Tensor))
        logits = getattr(result, "logits", None)
        self.scores = None if logits is None else logits[0, -1].float().cpu()
        if returns:
            rows = [matrix[0, :, 0] for _, matrix in forward_pass.returned(self.source.module, result)]
        else:
            rows = [_last_row(call) for call in collector.calls]
        if len(ids) == 1:
            self.rows.append((self.count - 1, [row.cpu() for row in rows]))


def _last_row(call: Call) -> Tensor:
    """The weights of the last query of a call of attention. (head, key)"""
    n_query, n_key = call.q.shape[2], call.k.shape[2]
    rule = call.rule.item(0).at(slice(None), [n_query - 1], n_query=n_query, n_key=n_key)
    return attention_weights(call.q[0, :, -1:], call.k[0], rule)[:, 0]


def full_scores(source: model.Model, ids: Sequence[int], edits: Sequence[Edit] = ()) -> Tensor:
    """A model's scores for the token after these, from one full run with the edits. (word,)

    Raises `MhaError` as `model.follow` does for answers.
    """
    texts = model.reading(source, list(ids))
    at = question_of(source, texts.inputs, texts.tokens, [-1], max_bytes=MAX_BYTES)
    calls = model.edits_by_call(checked(edits), model.sites(source, texts)) if edits else {}
    with forward_pass.keeping_result() as results:
        model.flow(source, texts.inputs | asked(source.module, at), calls)
    return logits_of(results[0], at, n_tokens=len(ids), name=source.name)[0, 0].cpu()


def next_words(source: model.Model, ids: Sequence[int], scores: Tensor, text: str) -> list[NextWord]:
    """The most probable tokens after these ids; `text` is what the ids were read from."""
    top = scores.softmax(-1).topk(min(ANSWERS, len(scores)))
    return [
        NextWord(word_of(source.tokenizer, number), share, _longer(source, ids, number, text))
        for number, share in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def _longer(source: model.Model, ids: Sequence[int], number: int, text: str) -> str | None:
    """The text with a further token, if it is read as the same tokens and this one."""
    tokenizer = source.tokenizer
    if tokenizer is None or number in tokenizer.all_special_ids:
        return None
    with using_tokenizer(source.name):
        before, after = (
            tokenizer.decode(part, clean_up_tokenization_spaces=False) for part in (ids, [*ids, number])
        )
        longer = text + after[len(before) :] if after.startswith(before) else text
        return longer if list(tokenizer(longer)["input_ids"]) == [*ids, number] else None


def _written_by_model(
    text: str | Ids, source: Any, steps: int, edits: Sequence[Edit], **settings: Any
) -> Decoding:
    loading = {name: settings.pop(name, None) for name in ("tokenizer", "revision", "device", "dtype")}
    loaded, edits = model.model_of(source, answers=True, **loading), checked(edits)
    trace = model.follow(loaded, text, edits=edits, **settings)
    check_causal(trace)
    ids, run = [*getattr(trace.source.origin, "input_ids", ())], _ModelRun(loaded, EDITED if edits else "")
    before = len(ids)
    run.read(ids)
    for _ in range(steps):
        is_read = not run.reason and loaded.untrained_head is None
        scores = run.scores if is_read else None
        ids.append(int((full_scores(loaded, ids, edits) if scores is None else scores).argmax()))
        run.read(ids[-1:])
    if steps:
        trace = model.follow(loaded, ids, edits=edits, **settings)
    scores = full_scores(loaded, ids, edits) if loaded.writes else None
    return Decoding(trace, trace.tokens.labels[before:], run.check(trace, scores))


def _written_by_small(
    text: str, steps: int, edits: Sequence[Edit], *, trained: bool = True, **settings: Any
) -> Decoding:
    sizes: dict[str, Any] = {"architecture": DECODER, "h": 4, "d_model": 64} | settings
    place = sizes.pop("device", None)
    loaded = mini.model(mini.find(mini.language(text), **sizes), trained=trained, device=place)
    trace = mini.follow(loaded, text, edits=checked(edits))
    check_causal(trace)
    before = len(trace.tokens)
    for _ in range(steps):
        answer = trace.answers[-1]
        assert answer is not None  # a decoder answers at every word
        longer = next(filter(None, (mini.continued(text, word) for word, _ in answer)), None)
        if longer is None:
            raise MhaError("None of the most probable words is read as a word of its own behind this text.")
        text, trace = longer, mini.follow(loaded, longer, edits=edits)
    scores = mini.full_scores(loaded, trace)[-1]
    return Decoding(trace, trace.tokens.labels[before:], cached(trace, loaded).check(trace, scores))
