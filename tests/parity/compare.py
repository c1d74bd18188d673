"""Compares one family's own eager attention with what we show of it: every matrix and the output.

The tiny model is saved, and loaded from its folder with a tokenizer; parts of larger models are traced in
memory. The reference is the model's own code on what its tokenizer gives.
"""

import copy
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

import mha_core as mha
from mha_core import edits
from mha_core.attention.edits import Edit
from mha_core.errors import MhaError
from mha_core.sources.huggingface import forward_pass, trial
from mha_core.sources.huggingface import model as huggingface
from mha_core.sources.huggingface.forward_pass import are_weights
from mha_core.traces.layer import LayerTrace
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.trace import AttentionTrace
from tests.parity import by_hand, tiny
from tests.parity.table import EXACT, ORDER, LongRow, Row

KINDS = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
HALVES = {"bf16": "bfloat16", "fp16": "float16"}
MATRICES = {"Q": "w_q", "K": "w_k", "V": "w_v", "O": "w_o"}
FAR = 3.0  # times as far from float32 as the model's own run: then ours is wrong
DRAW = 0.9  # of the other's distance: closer than that neither is called nearer
# One family of each kind of attention.
LONG = {
    "bert": "learned positions",
    "big_bird": "blocks, some of them at random",
    "bloom": "ALiBi",
    "deberta-v2": "words and places apart",
    "deepseek_v3": "latent",
    "deepseek_v32": "latent, top-k of an index",
    "falcon_h1": "beside a state",
    "gemma2": "windows, soft cap",
    "gpt_neo": "windows, in its own code",
    "gpt_oss": "windows, sinks",
    "granite": "rotary positions, shared keys",
    "llama4_text": "chunks",
    "minimax_m3_vl_text": "top-k of blocks",
    "modernbert": "windows to both sides",
    "qwen3_next": "beside a delta rule",
    "t5": "buckets of distances, two texts",
}

# The reason for what the error of a model's own code does not tell.
_DRAFT = "it drafts for another model, to whose keys and values it attends; it reads no text alone"
REASONS = {
    "gemma4_assistant": _DRAFT,
    "gemma4_unified_assistant": _DRAFT,
    "mra": "its attention is a CUDA kernel; where that is missing, transformers returns zeros in its place",
}


def compare(family: str, lengths=tiny.LENGTHS, *, positions=tiny.POSITIONS, halves: bool = True) -> Row:
    """Show a family's tiny model as a person does, at several lengths and in half precision."""
    kind = tiny.families()[family]
    try:
        built = tiny.model(family, positions)
    except Exception as error:  # somebody else's model: whatever it is, it is the reason
        return Row(family, kind, "not built", missing=REASONS.get(family) or _short(error))
    with tempfile.TemporaryDirectory() as folder:
        try:
            door, model, refusal = entered(built, folder, inside=kind == "inside")
        except Exception as error:
            return Row(family, kind, _failed(error), missing=REASONS.get(family) or _short(error))
        own = door.reference(model, "float32")
        # The longest text first: whatever a model keeps of it would show in the next one.
        shown = {n: shown_of(model, own, n) for n in sorted(lengths, reverse=True)}
        row = _row(Row(family, kind, "", door.name), [shown[n] for n in lengths])
        for name, dtype in HALVES.items() if halves and row.long_weights is not None else ():  # with weights
            cell, note = half(door, dtype, lengths[-1], model.route.name)
            row = replace(row, **{name: cell}, missing="; ".join(filter(None, (row.missing, note))))
        if halves and row.verdict not in ("WRONG", "refused"):
            trace = shown[lengths[-1]].trace
            row = replace(
                row,
                edits=edited(model, own, lengths[0]),
                beside=beside_of(model, trace),
                ledger=ledger_of(built, lengths[0]),
            )
    return replace(row, missing="; ".join(filter(None, (refusal, row.missing))))


def compare_long(family: str) -> LongRow:
    """The same at 2,100 tokens."""
    row = compare(family, (tiny.LONG,), positions=tiny.LONG_POSITIONS, halves=False)
    return LongRow(family, LONG[family], row.verdict, row.route, row.weights, row.output)


class Door:
    """How a user opens a model: by its folder, or in memory if no folder of it can be loaded.

    A part of a larger model is in memory with it: there are no folders of the part alone.
    """

    def __init__(self, built: nn.Module, folder: str, *, inside: bool):
        self.built, self.folder, self.name = built, folder, "larger model" if inside else "folder"
        self.tokenizer = tiny.tokenizer(built)
        if not inside:
            built.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def open_model(self, dtype: str) -> huggingface.Model:
        """The model ready to be traced. Raises `MhaError` as `load` and `adopt` do."""
        if self.name == "folder":
            return huggingface.load(self.folder, dtype=dtype, device="cpu")
        module = copy.deepcopy(self.built).to(huggingface.DTYPES[dtype])
        return huggingface.model_of(module, tokenizer=self.tokenizer)

    def reference(self, model: huggingface.Model, dtype: str) -> nn.Module:
        """The model's own code with the same weights: as they were built, in half precision as they load."""
        kind = type(model.module)
        if self.name != "folder":
            return copy.deepcopy(self.built).to(huggingface.DTYPES[dtype])
        same = [part for part in self.built.modules() if type(part) is kind]
        if same and dtype == "float32":
            return same[0]
        if same and type(same[0].config) is not type(self.built.config):  # there is no folder of it alone
            return copy.deepcopy(same[0]).to(huggingface.DTYPES[dtype])
        return kind.from_pretrained(
            self.folder, dtype=huggingface.DTYPES[dtype], attn_implementation="eager"
        ).eval()


def entered(built: nn.Module, folder: str, *, inside: bool) -> tuple[Door, huggingface.Model, str]:
    """How a model is opened, the model, and the reason if its folder is refused.

    Raises the reason why it cannot be opened.
    """
    door = Door(built, folder, inside=inside)
    try:
        model = door.open_model("float32")
        if model.tokenizer("w5 w17")["input_ids"] == [5, 17]:
            return door, model, ""
        refusal = MhaError("transformers reads every tokenizer of this family as one of its own.")
    except MhaError as error:
        refusal = error
    if inside:
        raise refusal
    door.name = "memory"
    try:
        return door, door.open_model("float32"), f"its folder: {_short(refusal)}"
    except MhaError:
        raise refusal from None


@dataclass(frozen=True)
class Shown:
    """The result for a text: the trace, or the reason why there is none, and its error."""

    verdict: str
    trace: AttentionTrace | None = None
    weights: float | None = None
    output: float | None = None
    mixing: float | None = None
    note: str = ""


def shown_of(model: huggingface.Model, own: nn.Module, length: tuple[int, int]) -> Shown:
    """Trace a text and compare it with the model's own run."""
    try:
        trace, output = traced(model, length)
    except Exception as error:
        return Shown(_failed(error), note=_short(error))
    inputs = tiny.inputs(model, trace, length)
    theirs, how = own_weights(own, inputs, trace)
    if theirs is None:
        return Shown("WRONG", trace, note=how)
    weights = max(map(gap, weights_of(trace, theirs), theirs), default=None)
    output = output_gap(output, ran(own, inputs))
    mixing = max(map(mixing_gap, trace.mixers), default=None)
    largest, limit = max(filter(None, (weights, output, mixing)), default=0.0), EXACT
    if largest > limit and theirs:
        rounding = _rounding(own, inputs, trace, theirs)
        limit = max(limit, rounding)
        how = "; ".join(filter(None, (how, f"its own weights are rounded by {rounding:.0e}")))
    if largest > limit:
        verdict = "WRONG"
    elif trace.layers and not any(layer.knows("q") for layer in trace.layers):
        verdict = "weights only"
    else:
        verdict = "part" if trace.source.skipped else "exact"
    return Shown(verdict, trace, weights, output, mixing, how)


def traced(
    model: huggingface.Model, length: tuple[int, int], edits: Sequence[Edit] = ()
) -> tuple[AttentionTrace, object]:
    """The trace of a text of that many tokens, and the output of the model while it was made."""
    text, target = tiny.texts(length)
    target = target if model.has_target else None
    with whole_outputs(model.module) as outputs:
        trace = huggingface.follow(model, text, target=target, edits=edits)
    return trace, outputs[-1]


@contextmanager
def whole_outputs(module: nn.Module) -> Iterator[list]:
    """Make a model return the scores of words at all tokens inside the block; a trace requests one."""
    outputs = []

    def ask_for_all(_, args: tuple, settings: dict) -> tuple[tuple, dict]:
        return args, {name: value for name, value in settings.items() if name != "logits_to_keep"}

    hooks = (
        module.register_forward_pre_hook(ask_for_all, with_kwargs=True),
        module.register_forward_hook(lambda _, __, output: outputs.append(output)),
    )
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def half(door: Door, dtype: str, length: tuple[int, int], route: str) -> tuple[str, str]:
    """How far ours is from the model's own run in half precision, and which of both lies nearer to float32.

    → the cell of the table, and the reason where there is no figure.
    """
    try:
        model = door.open_model(dtype)
        trace, _ = traced(model, length)
    except Exception as error:
        return _failed(error), f"{dtype}: {_short(error)}"
    inputs, own = tiny.inputs(model, trace, length), door.reference(model, dtype)
    theirs, note = own_weights(own, inputs, trace)
    truth, _ = own_weights(own.float(), inputs, trace)  # which is no longer needed as it was
    if theirs is None or truth is None:
        return "WRONG", f"{dtype}: {note}"
    ours = weights_of(trace, theirs)
    one, other = _distances(ours, truth), _distances(theirs, truth)
    if any(mine > FAR * max(its, EXACT) for mine, its in zip(one, other, strict=True)):
        return "WRONG", f"{dtype}: layers are {one} from float32, its own {other}"
    nearer = "ours" if sum(one) < DRAW * sum(other) else "own" if sum(other) < DRAW * sum(one) else "even"
    cell = f"{max(map(gap, ours, theirs)):.0e} {nearer}"
    return (cell, "") if model.route.name == route else (f"{cell} ({model.route.name})", "")


def edited(model: huggingface.Model, own: nn.Module, length: tuple[int, int]) -> str:
    """Whether edits without effect leave every bit, and how far others are from the same change in torch."""
    if model.route.name != "attend":
        return ""
    trace, plain = traced(model, length)
    at = next((at for at, layer in enumerate(trace.layers) if layer.n_query > by_hand.ROW), None)
    same = [edits.Temperature(temperature=1.0), edits.Bias(values=0.0), edits.Mask(mask="full")]
    same += [edits.Scale(layer=at, factor=layer.scale) for at, layer in enumerate(trace.layers)]
    for one in same:
        if gap(*map(first_tensor, (traced(model, length, [one])[1], plain))) > 0:
            return f"WRONG: {one.describe()}"
    largest = None if at is None else referee(model, own, trace, at, length)
    return (
        "same" if largest is None else f"same, {largest:.0e}" if largest <= EXACT else f"WRONG {largest:.0e}"
    )


def beside_of(model: huggingface.Model, trace: AttentionTrace | None) -> str:
    """Whether another token moves when one is changed while all that a trace shows is blocked.

    "nothing" where none does, and "named" where the trace names all that moves it.
    """
    if trace is None or not all(
        layer.knows("q") for layer in trace.layers
    ):  # weights alone say nothing of it
        return ""
    shown = {mixer.name for mixer in trace.mixers}
    named = {entry.partition(":")[0] for entry in trace.source.skipped}
    inputs = forward_pass.probe(model.module, len(trace.tokens))
    if not trial.mixing_beside(model.route, model.module, shown, inputs):
        return "nothing"
    missed = trial.mixing_beside(model.route, model.module, shown | named, inputs).keys() - named
    return f"WRONG: {', '.join(sorted(missed))}" if missed else "named"


def ledger_of(built: nn.Module, length: tuple[int, int]) -> str:
    """How far a ledger's sum is from the logit of a model's own run, in units of the sizes of its shares.

    Then what its norms are; the reason where there is no ledger; "" for a model that writes no words.
    """
    tokenizer = tiny.tokenizer(built)
    tokenizer.mask_token = tiny.WORDS[-1]
    text, target = tiny.texts(length)
    try:
        model = huggingface.model_of(copy.deepcopy(built), tokenizer=tokenizer)
        if model.writes is None:
            return ""
        if model.writes == "masked":
            text = " ".join([*text.split()[:-2], tiny.WORDS[-1], text.split()[-1]])
        trace = huggingface.follow(model, text, target=target if model.has_target else None)
        found = mha.ledger(trace, source=model)
    except MhaError as error:
        return str(error).rpartition(": ")[2][:60].strip(" .")
    logits = ran(built, tiny.inputs(model, trace, length)).logits[0, found.token]
    gap = abs(found.shares.sum() - float(logits.max())) / np.abs(found.shares).sum()
    sum_ = f"{gap:.0e}" if gap <= EXACT else f"WRONG {gap:.0e}"
    return ", ".join(filter(None, (sum_, norms_of(trace, found))))


def norms_of(trace: AttentionTrace, found: mha.Ledger) -> str:
    """How long the vectors of heads in the stream are beside those that W^O makes.

    "same" where both are equal, "scaled" where the heads of a layer have one factor, else "normed"; "" where
    no W^O is known.
    """
    ratios: dict[int, list[float]] = {}
    for writer, norm in zip(found.writers, found.norms, strict=True):
        if writer.kind == "head" and trace.layers[writer.layer].knows("w_o"):
            made = trace.layers[writer.layer].contribution(writer.head)
            if len(made) > found.token:  # not of an encoder whose text is shorter than the target
                ratios.setdefault(writer.layer, []).append(norm / np.linalg.norm(made[found.token]))
    if not ratios:
        return ""
    if any(max(of_layer) - min(of_layer) > EXACT * max(of_layer) for of_layer in ratios.values()):
        return "normed"
    return (
        "same"
        if all(abs(ratio - 1) <= EXACT for of_layer in ratios.values() for ratio in of_layer)
        else "scaled"
    )


def referee(
    model: huggingface.Model, own: nn.Module, trace: AttentionTrace, at: int, length: tuple[int, int]
) -> float | None:
    """The largest difference of outputs over all kinds of edits; None where torch's kernel is not used."""
    inputs, layer = tiny.inputs(model, trace, length), trace.layers[at]
    own = copy.deepcopy(own)
    plain = first_tensor(traced(model, length)[1])
    try:
        expected, calls = by_hand.by_hand(own, inputs)
    except Exception:  # somebody else's model, which knows no such kernel
        return None
    if len(calls) != len(trace.layers) or relative_gap(plain, expected) > EXACT:
        return None
    largest = 0.0
    visible, weights = layer.allowed()[:, by_hand.ROW], layer.weights(rows=[by_hand.ROW])[:, 0]
    for name, change in by_hand.CHANGES.items():
        if name != "off" and not weights[by_hand.HEAD, by_hand.KEY]:
            continue  # it may be hidden
        if name == "weights" and not visible[by_hand.HEAD, 0]:
            continue  # nor may it be set
        if name == "uniform" and not weights[visible].all():
            continue  # by hand a weight that is too small for fp32 is taken for a hidden one
        ours = first_tensor(traced(model, length, [change.edit(at, layer.n_key)])[1])
        try:
            expected, _ = by_hand.by_hand(own, inputs, at, change)
        except NotImplementedError:
            return None
        largest = max(largest, relative_gap(ours, expected))
    return largest


def first_tensor(result: object) -> Tensor:
    return next(part for part in result.values() if torch.is_tensor(part))


def relative_gap(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / max(1.0, float(theirs.abs().max())))


def ran(own: nn.Module, inputs: dict[str, Tensor]) -> object:
    """A model's own run, of a copy: BigBird changes itself when it reads."""
    own = copy.deepcopy(own)
    with torch.no_grad():
        own(**inputs, use_cache=False)  # and returns no weights while it does
        return own(**inputs, output_attentions=True, use_cache=False, return_dict=True)


def mixing_gap(mixer: MixerTrace) -> float:
    """How far a layer without softmax is from its matrix by its values, in units of its largest above 1."""
    parts = {name: tensor.numpy() for name, tensor in mixer.tensors.items()}
    output = parts.get("gate", 1.0) * (mixer.mixing() @ mixer.v) + parts.get("bias", 0.0)
    return float(np.abs(output - mixer.output()).max() / max(1.0, np.abs(mixer.output()).max()))


def own_weights(own: nn.Module, inputs: dict, trace: AttentionTrace) -> tuple[list[Tensor] | None, str]:
    """A model's own weights of each layer of a trace, and how they are known if it does not return them."""
    block = getattr(own.config, "block_size", getattr(own.config, "lsh_attn_chunk_length", 1))
    layers, n_skipped = trace.layers, len(trace.source.skipped)
    with watching(own) as seen:
        output = ran(own, inputs)
    for name, kind in KINDS.items():
        n_returned = sum(weights is not None for weights in getattr(output, name, None) or ())
        n_shown = sum(layer.kind == kind for layer in layers)
        if n_returned > n_shown + n_skipped + len(trace.mixers):  # MiniMax returns those of both
            return None, f"it returns {n_returned} {kind} layers; {n_shown} are shown, {n_skipped} named"
    returned = by_kind(output, trace, block, bands=hasattr(own.config, "attention_window"))
    kinds = {layer.kind: layer for layer in layers}.values()
    seen = seen[len(seen) // 2 :]  # of the second run
    squares = [[w for layer in kinds for w in _whole([weights], layer, block)] for weights in seen]
    seen = [each[0] for each in squares if each]
    mine = {kind: sum(layer.kind == kind for layer in layers) for kind in returned}
    n_returned = sum(map(len, returned.values()))
    if n_returned == len(layers) and all(mine[kind] == len(returned[kind]) for kind in mine):
        remaining = {kind: iter(weights) for kind, weights in returned.items()}
        return [next(remaining[layer.kind])[0] for layer in layers], ""
    if len(seen) == len(layers) and all(len(returned[kind]) <= mine[kind] + n_skipped for kind in mine):
        how = f"it returns the weights of {n_returned} layers, so its attention function was watched"
        return [weights[0] for weights in seen], how
    return None, f"{len(layers)} layers are shown; its own weights were seen of {max(len(seen), n_returned)}"


@contextmanager
def watching(model: nn.Module) -> Iterator[list[Tensor]]:
    """The weights of each call of a model's own attention function, also of those it does not return."""
    seen, name = [], "eager_attention_forward"
    files = {sys.modules[type(part).__module__] for part in model.modules()}
    before = {file: getattr(file, name) for file in files if hasattr(file, name)}

    def watched(function):
        def call(*args, **more):
            output, weights = function(*args, **more)
            seen.append(weights)
            return output, weights

        return call

    for file, function in before.items():
        setattr(file, name, watched(function))
    for part in model.modules():
        if type(part).__name__ in ("LSHSelfAttention", "LocalSelfAttention"):
            part.register_forward_hook(lambda *call: seen.append(from_chunks(*call)))
    try:
        yield seen
    finally:
        for file, function in before.items():
            setattr(file, name, function)


def by_kind(output, trace: AttentionTrace, block: int, *, bands: bool) -> dict[str, list[Tensor]]:
    """The weights (1, head, query, key) that a model returned, by the kind of attention."""
    layers, weights = {layer.kind: layer for layer in trace.layers}, {}
    for name, kind in KINDS.items():
        seen = getattr(output, name, None) or ()
        seen = map(from_bands, seen) if bands and kind in ("encoder", "self") else seen
        weights[kind] = _whole(seen, layers.get(kind), block)
    return weights


def from_chunks(part: nn.Module, _args: tuple, output: tuple) -> Tensor:
    """Reformer's weights (1, head, chunk, query, key) at the places where the sorted tokens were.

    Nothing in a run that returns none, and of a text that fits into one chunk.
    """
    probabilities = output.attention_probs
    if probabilities == () or probabilities.dim() == 4:
        return torch.empty(0)
    n = output.hidden_states.shape[1]
    if hasattr(output, "buckets"):
        buckets = output.buckets.flatten(2)
        places = part._get_sorted_bucket_idx_and_undo_sorted_bucket_idx(n, buckets, part.num_hashes)[0] % n
    else:
        places = torch.arange(n).expand(1, part.num_attention_heads, n)
    queries = part._split_seq_length_dim_to(places, -1, part.chunk_length, part.num_attention_heads)
    keys = part._look_adjacent(queries, part.num_chunks_before, part.num_chunks_after)
    square = probabilities.new_zeros(1, part.num_attention_heads, n * n)
    cells = queries[..., :, None] * n + keys[..., None, :]
    return square.scatter_add(2, cells.flatten(2), probabilities.flatten(2)).unflatten(2, (n, n))


def from_bands(weights: Tensor) -> Tensor:
    """Longformer's weights of neighbours, (1, head, query, 2w + 1), one diagonal after the other."""
    n, reach = weights.shape[2], weights.shape[3] // 2
    square = weights.new_zeros(*weights.shape[:3], n)
    for offset in range(max(-reach, 1 - n), min(reach, n - 1) + 1):
        inside = slice(max(0, -offset), n - max(0, offset))
        square.diagonal(offset, 2, 3).copy_(weights[:, :, inside, reach + offset])
    return square


def _whole(returned: Iterable[object], layer: LayerTrace | None, block: int) -> list[Tensor]:
    """The weights that cover every token of a layer's texts.

    BigBird's also cover the padding to whole blocks, which is cut off.
    """
    found = []
    for weights in returned if layer is not None else ():
        if isinstance(weights, Tensor) and weights.dim() == 4:
            n_query, n_key = layer.n_query, layer.n_key
            more, filled = weights.shape[2] - n_query, weights[:, :, :n_query, n_key:]
            if weights.shape[3] - n_key == more and more in range(block) and not filled.any():
                found.append(weights[:, :, :n_query, :n_key])
    return found


def output_gap(ours, theirs) -> float:
    """The largest difference of logits and hidden states that both have, in units of the largest above 1."""
    names = ("logits", "last_hidden_state", "encoder_last_hidden_state", "prediction_logits", "start_logits")
    both = [(getattr(ours, name, None), getattr(theirs, name, None)) for name in names]
    pairs = [(a, b) for a, b in both if isinstance(a, Tensor) and isinstance(b, Tensor)]
    pairs = pairs or [tuple(next(v for v in o.values() if isinstance(v, Tensor)) for o in (ours, theirs))]
    return max(gap(a, b) / max(1.0, b.abs().max().item()) for a, b in pairs)


def weights_of(trace: AttentionTrace, theirs: list[Tensor]) -> list[Tensor]:
    """Our weights of each layer, as the model returns its own: some before a sink gets its share.

    ProphetNet and SqueezeBERT return scores under the name of weights: their softmax is taken, in place.
    """
    found = []
    for at, layer in enumerate(trace.layers):
        if not are_weights(theirs[at]) and layer.knows("q"):
            theirs[at] = theirs[at].softmax(-1)
        ours = torch.from_numpy(layer.weights().copy())
        before_sinks = layer.rule.sinks is not None and (theirs[at].float().sum(-1) - 1).abs().max() < 1e-2
        found.append(ours / ours.sum(-1, keepdim=True) if before_sinks else ours)
    return found


def _rounding(own: nn.Module, inputs: dict, trace: AttentionTrace, theirs: list[Tensor]) -> float:
    """How far a model's own weights move when each of its parameters changes by its last digit."""
    moved = copy.deepcopy(own)
    with torch.no_grad():
        for weight in moved.parameters():
            weight.copy_(torch.nextafter(weight, torch.full_like(weight, float("inf"))))
    others, _ = own_weights(moved, inputs, trace)
    weights_of(trace, others)
    return max(map(gap, others, theirs))


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference; infinite where shapes differ or only one of two is a number."""
    if ours.shape != theirs.shape:
        return float("inf")
    apart = (ours.float() - theirs.float()).abs()
    apart[ours.isnan() & theirs.isnan()] = 0.0
    return apart.nan_to_num(nan=float("inf")).max().item()


def _distances(ours: list[Tensor], theirs: list[Tensor]) -> list[float]:
    """For each layer the median over heads and queries of the largest difference in a row.

    If rounding gives a token another expert, only its row differs much, in ours or in the model's own.
    """
    rows = ((a.float() - b.float()).abs().nan_to_num(0.0).amax(-1) for a, b in zip(ours, theirs, strict=True))
    return [row.median().item() for row in rows]


def _row(row: Row, shown: list[Shown]) -> Row:
    """A family's row from a shorter and a longer text, with the worse verdict."""
    short, long = shown[0], shown[-1]
    worst = max(shown, key=lambda each: ORDER.index(each.verdict))
    best = min(shown, key=lambda each: ORDER.index(each.verdict))
    row = replace(row, verdict=worst.verdict)
    notes = dict.fromkeys([*(each.note for each in shown), *_missing(best.trace)])
    if long.verdict != short.verdict:
        notes = dict.fromkeys([f"the longer text: {long.verdict}", *notes])
    row = replace(row, missing="; ".join(filter(None, notes)))
    if best.trace is None:
        return row
    return replace(
        row,
        layers=layers_of(best.trace),
        route=best.trace.source.route,
        known=known(best.trace),
        weights=short.weights,
        output=short.output,
        long_weights=long.weights,
        long_output=long.output,
        mixing=long.mixing,
    )


def layers_of(trace: AttentionTrace) -> str:
    """The number of layers of each kind; for those without softmax, the rule by which they mix tokens."""
    kinds = Counter([*(layer.kind for layer in trace.layers), *(mixer.rule for mixer in trace.mixers)])
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items())


def known(trace: AttentionTrace) -> str:
    """The known ones of the four matrices."""
    if not trace.layers:
        return ""
    return "".join(_letter(letter, name, trace.layers) for letter, name in MATRICES.items())


def _letter(letter: str, name: str, layers: tuple[LayerTrace, ...]) -> str:
    """A capital letter for a matrix known in all layers, a small one if known in some, else a dash."""
    known = [name in layer.projections.known for layer in layers]
    return letter if all(known) else letter.lower() if any(known) else "–"


def _missing(trace: AttentionTrace | None) -> list[str]:
    """The reasons for missing parts of a trace, each once, with its count."""
    if trace is None:
        return []
    reasons = Counter(entry.split(": ", 1)[-1] for entry in trace.source.skipped)
    return [f"{n} × {reason}" for reason, n in reasons.items()]


def _failed(error: Exception) -> str:
    """A refusal is a sentence for a person; any other error is a bug of ours."""
    return "refused" if isinstance(error, MhaError) else "WRONG"


def _short(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/\w+", "this model", text)
    text = re.sub(r"'[^']*site-packages.", "'", text)  # where a library lies is nobody's business
    return text.removeprefix("MhaError: ")[:300].strip()
