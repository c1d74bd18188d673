"""Hugging Face text models as a source: the model's own code runs, with our attention inside.

Only the files of this folder import transformers, and they do so inside functions. A model passes q, k and v
to an attention function that it looks up by name. Ours is registered under `trial.NAME`, with the
mask function of the eager implementation; with another one it would not get a mask.
"""

import gc
import inspect
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, Unpack
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mha_core import device as devices
from mha_core.attention.edits import Edit, Site, by_layer, checked
from mha_core.attention.functional import HALF
from mha_core.attention.masks import LONG
from mha_core.cache import Cache
from mha_core.capture import collector, rotary, special_layers
from mha_core.capture.special_layers import without_softmax
from mha_core.errors import MhaError, Phrase, listed, one_of
from mha_core.sources.huggingface import PreTrainedModel, files, forward_pass, loading, memory, trial
from mha_core.sources.huggingface.forward_pass import ModelPass, PassLayers
from mha_core.sources.huggingface.logits import (
    MAX_BYTES,
    Asked,
    asked,
    at_tokens,
    logits_of,
    question_of,
    reads_ahead,
)
from mha_core.sources.huggingface.targets import decoder_ids, written_target
from mha_core.sources.huggingface.tokenizer import (
    INPUTS,
    Ids,
    PerToken,
    check_ids,
    encoded,
    max_position,
    max_tokens,
    per_token,
    tokens_of,
)
from mha_core.sources.huggingface.twin import twin
from mha_core.traces.layer import LayerTrace, with_texts
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.source import EditedSource, ModelSource
from mha_core.traces.tokens import MAX_TOKENS, Tokens
from mha_core.traces.trace import AttentionTrace

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
MAX_MODELS = 2  # kept in memory by `trace`
MAX_WRAPPERS = 5  # around a model
ONE_SEGMENT = Phrase(
    "These ids have a separator between others, and no segments, so the model read them as one segment. For "
    "the segments of a pair, trace what the tokenizer returns, or give text_pair=."
)

_registering = threading.Lock()
_loading = threading.Lock()
# Models from files, with the fingerprint of their folder.
_loaded: Cache[tuple[tuple | None, "Model"]] = Cache(math.inf, lambda _: 0, max_count=MAX_MODELS)
# Models in memory, with their state and their twin, which shares their tensors.
_twins: WeakKeyDictionary[nn.Module, tuple[tuple, "Model"]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Model:
    """A model ready to be traced, by several threads at once; it does not change."""

    name: str
    module: PreTrainedModel = field(repr=False)
    tokenizer: Any = field(repr=False)
    revision: str | None
    device: str
    dtype: str
    route: trial.Route
    names: Mapping[int, str] = field(repr=False)  # of each module, by its id
    not_shown: tuple[str, ...]  # sentences about layers that mix tokens by other means
    mixers: Mapping[str, int] = field(repr=False)  # layers without softmax that have a proven matrix
    untrained_head: str | None  # the matrix of its output head, where the files lack it
    # The model as you run it, and the attention functions of your own that it calls. If there is one, each
    # text is compared with the result of this model.
    as_run: PreTrainedModel = field(repr=False)
    foreign: tuple[str, ...]

    @property
    def architecture(self) -> str:
        return type(self.module).__name__

    def pass_of(self, inputs: Mapping[str, Tensor]) -> ModelPass:
        return ModelPass(self.module, self.names, inputs)

    @property
    def has_target(self) -> bool:
        """Whether it is an encoder–decoder."""
        return forward_pass.has_target(self.module)

    @cached_property
    def writes(self) -> str | None:
        """The kind of its answers: "masked", "next" or "target"; None without a language-model head."""
        return loading.kind_of(self.module, self.module.config)

    @cached_property
    def reads_ahead(self) -> bool:
        """Whether its scores for the next word depend on later words."""
        with _errors_of(self):
            return reads_ahead(twin(self.module) if self.route.changes else self.module)

    @cached_property
    def limit(self) -> int:
        """The largest number of tokens of a text."""
        return max_tokens(self.module, self.tokenizer)


def load(
    name: str,
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    answers: bool = False,
    progress: files.Progress = lambda *_: None,
) -> Model:
    """Load a model from a folder or from the Hugging Face hub: from safetensors, without code of its own.

    `dtype` is float32 on a CPU and bfloat16 on a GPU by default. With `answers` the model has its
    language-model head, if its architecture has one. `progress` is called with (stage, done, total) in the
    stages "download" (in bytes), "load" and "check"; an `MhaError` that it raises ends the loading. Raises
    `MhaError`, with the reason, for a model that cannot be loaded.
    """
    loading.library()  # raises if it is missing, before the search for files
    place = devices.pick(device)
    kind = one_of("dtype", dtype or devices.usual_dtype(place), DTYPES)
    folder = files.find(name, revision=revision, progress=progress)
    config = loading.config(folder)
    tokenizer = loading.tokenizer(folder)
    needed = files.memory_needed(folder.weights, DTYPES[kind], name=name)
    memory.check_memory(name, needed, place, dtype=kind)
    progress("load", 0, 1)
    module, untrained_head = loading.module(folder, config, DTYPES[kind], writes=answers)
    if module._supports_sdpa and not module._can_set_attn_implementation():
        module.config._attn_implementation = "sdpa"  # as transformers loads it
    module = module.to(place).requires_grad_(False)  # type: ignore[arg-type]  # its decorator hides its type
    progress("check", 0, 1)
    return _prepared(module, tokenizer, name, folder.revision, untrained_head)


def adopt(module: nn.Module) -> Model:
    """Prepare a transformers model that is already in memory; it and its config do not change.

    The prepared model is a twin: new modules and configs around the same parameters and buffers. You can go
    on using the model at the same time, also in another thread, in training, or through another model with
    the same config. Wrappers of PEFT, `torch.compile` and data parallelism are removed. Raises `MhaError`
    for an object that is not a transformers model and for a model that cannot be traced.
    """
    module = unwrapped(module)
    return _prepared(twin(module), None, module.name_or_path or type(module).__name__)


def unwrapped(module: Any) -> PreTrainedModel:
    """The transformers model inside its wrappers; the weights of an adapter are part of its layers.

    Raises `MhaError` for an object without one, and for an adapter that puts vectors in front of the text.
    """
    transformers, inner = loading.library(), module
    for _ in range(MAX_WRAPPERS):
        if isinstance(inner, transformers.PreTrainedModel):
            return _traceable(inner)
        adapters = getattr(inner, "peft_config", None)
        configs = adapters.values() if isinstance(adapters, dict) else ()
        if any(getattr(config, "is_prompt_learning", False) for config in configs):
            raise MhaError(
                "{model} puts vectors of its own before the text (prompt learning), "
                "which are no tokens, so it cannot be traced. LoRA and other adapters inside the layers can.",
                model=type(inner).__name__,
            )
        if isinstance(inner, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = inner.module
        elif isinstance(compiled := getattr(inner, "_orig_mod", None), nn.Module):
            inner = compiled
        elif callable(base := getattr(inner, "get_base_model", None)):
            inner = base()
        else:
            break
    raise MhaError(
        "source is of the type {model}, which is no transformers model. A name, a folder "
        "and a PreTrainedModel can be traced; any other torch code is recorded while it runs: "
        "with mha.record(tokens=…) as recorded: model(x).",
        model=type(module).__name__,
    )


def _traceable(module: PreTrainedModel) -> PreTrainedModel:
    """The model itself. Raises `MhaError` if it does not read text or its weights are not in memory."""
    # The text part of a vision model has the main input name of the whole model.
    _, first, *_ = inspect.signature(type(module).forward).parameters
    if "input_ids" not in (module.main_input_name, first):
        raise loading.reads_no_text(type(module).__name__, module.main_input_name)
    if any(weight.is_meta for weight in module.parameters()):
        raise MhaError(
            "Some weights of {model} are not in memory (device “meta”); load it whole.",
            model=type(module).__name__,
        )
    return module


def _prepared(
    as_run: PreTrainedModel,
    tokenizer: Any,
    name: str,
    revision: str | None = None,
    untrained_head: str | None = None,
) -> Model:
    """The twin of a model, set to the best route that its trial has proven.

    Raises `MhaError` if there is no such route.
    """
    register()
    module = twin(as_run)
    writes_sounds = loading.writes_sounds(module.config)
    unread = (forward_pass.left_out("decoder", loading.SOUNDS),) if writes_sounds else ()
    reads: Any = module.text_encoder if unread else module
    module = reads.eval()
    for config in {id(part): part for part in (module.config, module.config.get_text_config())}.values():
        config.use_cache = False  # each pass needs the keys of all tokens
        if not trial.keeps_sdpa(module):
            config._attn_implementation = "eager"
    rotary.recompute_codes(module)
    watched = special_layers.watch(module)
    route, names = trial.choose(module)
    weight = next(module.parameters())
    if weight.dtype in HALF:
        free()  # the copy of the trial
    run = twin(module) if route.changes else module
    wide = special_layers.convolutions(run, lambda: forward_pass.forward(run, forward_pass.probe(run)))
    not_shown = (*special_layers.without_attention(module).values(), *wide.values(), *unread)
    mixers: Mapping[str, int] = {}
    if watched:  # of these layers without softmax, those whose matrices give their output for a few tokens
        with without_softmax.KernelRecorder() as recorder:
            forward_pass.forward(module, forward_pass.probe(module))
        proven = without_softmax.provable(recorder.layers(watched))
        mixers = MappingProxyType({name: width for name, width in watched.items() if name in proven})
    route = trial.checked(route, module, {*(entry.partition(":")[0] for entry in not_shown), *mixers})
    model = Model(
        name,
        module,
        tokenizer,
        revision,
        weight.device.type,
        str(weight.dtype).removeprefix("torch."),
        route,
        MappingProxyType(names),
        not_shown,
        mixers,
        untrained_head,
        as_run,
        trial.foreign_functions(as_run),
    )
    if route.name == "mixing" and not model.mixers:
        raise forward_pass.nothing_shown(model.name, model.not_shown)
    return model


def register() -> None:
    """Register our attention function with transformers, together with its mask function."""
    transformers = loading.library()
    from transformers.masking_utils import eager_mask

    with _registering:
        transformers.AttentionInterface.register(trial.NAME, collector.attention)
        transformers.AttentionMaskInterface.register(trial.NAME, eager_mask)


class Reading(TypedDict, total=False):
    """How a model reads a text: the arguments of `follow`."""

    text_pair: str | None
    target: str | Ids | None
    attention_mask: PerToken | None
    position_ids: PerToken | None
    limit: int
    edits: Sequence[Edit]
    answers: bool | Sequence[int | str]
    max_bytes: int


def follow(
    model: Model,
    text: str | Ids,
    *,
    text_pair: str | None = None,
    target: str | Ids | None = None,
    attention_mask: PerToken | None = None,
    position_ids: PerToken | None = None,
    limit: int = MAX_TOKENS,
    edits: Sequence[Edit] = (),
    answers: Asked = False,
    max_bytes: int = MAX_BYTES,
) -> AttentionTrace:
    """Trace a text through a model, for an encoder–decoder also its target, by default the generated one.

    Instead of a text, `text` and `target` may be the ids of tokens, and `text` all that a tokenizer returns.
    `attention_mask` and `position_ids` have a number for each token of the text. Raises `MhaError`
    - for a text that is empty, too long, or without a tokenizer,
    - for a mask or positions that do not fit the text, or that the model does not accept,
    - for a target of a model without a decoder, and without a target for a model that cannot generate one,
    - if no attention of the model can be shown, and for an error inside the model,
    - for `edits` that do not fit, or of a model that computes attention in its own code,
    - for `answers` at tokens where the model gives none, or whose scores need more than `max_bytes`.
    """
    edits = checked(edits)
    given = {"attention_mask": attention_mask, "position_ids": position_ids}
    texts = reading(model, text, text_pair=text_pair, target=target, limit=limit, edited=bool(edits), **given)
    tokens, target_tokens, inputs = texts
    question = None
    if answers is not False:
        question = question_of(model, inputs, target_tokens or tokens, answers, max_bytes=max_bytes)
    # Without answers one row of logits is enough: all of them can take gigabytes.
    inputs |= asked(model.module, [0] if question is None else question)
    calls = edits_by_call(edits, sites(model, texts)) if edits else {}
    with forward_pass.keeping_result() as results:
        flowed = flow(model, inputs, calls)
    trace = trace_of(model, tokens, inputs, *flowed, target=target_tokens)
    if "position_ids" in inputs or not inputs.get("attention_mask", inputs["input_ids"].new_ones(1)).all():
        _check_empty_rows(model, trace, inputs)
    if question is not None:
        n_tokens = len(target_tokens or tokens)
        logits = logits_of(results[0], question, n_tokens=n_tokens, name=model.name)[0]
        trace = replace(trace, answers=at_tokens(logits, question, n_tokens, model.tokenizer))
    return replace(trace, source=EditedSource(trace.source, edits)) if edits else trace


class Texts(NamedTuple):
    """The input of a model: the tokens of the text and of the target, and both as tensors."""

    tokens: Tokens
    target: Tokens | None
    inputs: dict[str, Tensor]


def reading(
    model: Model,
    text: str | Ids,
    *,
    text_pair: str | None = None,
    target: str | Ids | None = None,
    limit: int = MAX_TOKENS,
    edited: bool = False,
    **given: PerToken | None,
) -> Texts:
    """The tokens and inputs of a text, for an encoder–decoder also of its target. Raises as `follow` does.

    `given` has further inputs of the caller, with a number for each token, or None.
    """
    if target is not None and not model.has_target:
        raise MhaError("{name} reads one text and writes no other; leave the target out.", name=model.name)
    more = {name: numbers for name, numbers in given.items() if numbers is not None}
    tokens, ids = read(model, text, limit, text_pair, **more)
    if len(tokens) > LONG:
        memory.check_masks(model.name, len(tokens), str(model.device))
    with _errors_of(model):
        inputs = inputs_of(model, ids)
    if not model.has_target:
        return Texts(tokens, None, inputs)
    target_ids = _decoder_ids(model, inputs, target, limit, edited=edited)
    inputs["decoder_input_ids"] = torch.tensor([target_ids], device=model.device)
    target_text = target if isinstance(target, str) else None
    return Texts(tokens, tokens_of(model.tokenizer, target_ids, target_text, start=True), inputs)


def _given(model: Model, n_tokens: int, given: Mapping[str, PerToken]) -> dict[str, list[int]]:
    """The further inputs of the caller as tensors. Raises `MhaError` as `follow` does."""
    arguments = inspect.signature(type(model.module).forward).parameters
    if unknown := given.keys() - arguments.keys():
        taken = [name for name in ("attention_mask", "position_ids") if name in arguments]
        raise MhaError(
            "{model} takes no {names}; it takes {taken}."
            if taken
            else "{model} takes no {names}, nor any other number for each token.",
            model=model.architecture,
            names=listed(sorted(unknown), "or"),
            taken=taken[0] if taken else None,
        )
    largest = {"attention_mask": 1, "position_ids": max_position(model.module)}
    return {
        name: per_token(name, numbers, n_tokens, largest=largest[name]) for name, numbers in given.items()
    }


def _packs(model: Model) -> bool:
    """Whether positions that begin again are packed texts in a call of the model as it is.

    Transformers takes them for packed texts only where there is neither a mask nor a cache. Our passes have
    no cache; a mask of ones then keeps it from doing so.
    """
    takes_mask = "attention_mask" in inspect.signature(type(model.module).forward).parameters
    return not takes_mask or getattr(model.as_run.config.get_text_config(), "use_cache", None) is False


def _check_empty_rows(model: Model, trace: AttentionTrace, inputs: Mapping[str, Tensor]) -> None:
    """Raise `MhaError` where other tokens depend on the output of a token that may look at nothing.

    This output is 0 in torch's kernel and in ours, and the mean of all values in eager attention.
    """
    masks = [layer.rule.mask for layer in trace.layers if layer.rule.mask is not None]
    if all(mask.any(-1).all() for mask in masks) or trial.same_result(model.as_run, model.module, inputs):
        return
    raise MhaError(
        "With this mask or these positions some tokens may look at nothing, and what {name} computes "
        "of the others depends on what these take: nothing, as here, or the mean of all, as in the model "
        "itself. Padding behind the text leaves none without a token to look at. What the model computes "
        "can be recorded: {code}.",
        name=model.name,
        code=loading.RECORDED,
    )


def sites(model: Model, texts: Texts) -> dict[int, Site]:
    """The sites of edits: the attention of each layer, by the number of its call, from a pass without edits.

    Raises `MhaError` for a model that computes attention in its own code.
    """
    with _errors_of(model):
        sides = {"text": texts.tokens, "target": texts.target}
        return trial.sites(model.route, model.pass_of(texts.inputs), sides)


def edits_by_call(edits: tuple[Edit, ...], sites: Mapping[int, Site]) -> trial.Edits:
    """The edits of each attention call in a pass, each with its site."""
    calls = zip(sites.items(), by_layer(edits, list(sites.values())), strict=True)
    return {number: (site, edits_of_layer) for (number, site), edits_of_layer in calls if edits_of_layer}


def _decoder_ids(
    model: Model, inputs: dict[str, Tensor], target: str | Ids | None, limit: int, *, edited: bool
) -> list[int]:
    """The ids that the decoder reads: the given target, or the one that the model generates."""
    module, name = model.module, model.name
    if target is not None:
        most = max_tokens(module, model.tokenizer, side="decoder")
        ids = decoder_ids(module, model.tokenizer, target, limit=limit, most=most, name=name)
    elif edited:
        raise MhaError(
            "With edits {name} needs a target, so that both ways are of one text; type one.", name=name
        )
    elif model.untrained_head is not None:
        raise MhaError(
            "{name} has no trained weights to write a target with ({part} is missing from "
            "its files); type one.",
            name=name,
            part=model.untrained_head,
        )
    else:
        with _errors_of(model):
            ids = written_target(module, inputs, name=name)
    check_ids(module, ids, name=name)
    return ids


@contextmanager
def _errors_of(model: Model) -> Iterator[None]:
    """Turns an error inside a model into an `MhaError` with the model's name; the error is its cause."""
    try:
        yield
    except MhaError:
        raise
    except Exception as error:  # any library's any error
        raise MhaError(
            "{name} cannot be traced on this text: inside it an error was raised ({reason}).",
            name=model.name,
            reason=loading.first_line(error),
        ) from error


def read(
    model: Model, text: str | Ids, limit: int, pair: str | None = None, **given: PerToken
) -> tuple[Tokens, dict[str, list[int]]]:
    """The tokens of a text and the inputs that the model accepts. Raises `MhaError` as `follow` does."""
    tokens, ids = encoded(model.tokenizer, text, pair, limit=limit, most=model.limit, name=model.name)
    check_ids(model.module, ids["input_ids"], name=model.name)
    arguments = inspect.signature(type(model.module).forward).parameters
    if isinstance(text, Mapping):
        unread = [name for name in text if name in arguments and name not in ids]
        if unread:
            raise MhaError(
                "Beside ids this model would also read {names}, which cannot be traced; of what a tokenizer "
                "returns, {inputs} can.",
                names=listed(unread, "and"),
                inputs=listed(INPUTS, "and"),
            )
    ids = {name: row for name, row in ids.items() if name in ("input_ids", *arguments)}
    ids |= _given(model, len(tokens), given)
    if "attention_mask" in ids and not any(ids["attention_mask"]):
        raise MhaError("attention_mask hides every token; at least one has a 1.")
    if "position_ids" in ids and "attention_mask" not in ids and not _packs(model):
        ids["attention_mask"] = [1] * len(tokens)
    return tokens, ids


def trace_of(
    model: Model,
    tokens: Tokens,
    inputs: Mapping[str, Tensor],
    layers: tuple[LayerTrace, ...],
    skipped: tuple[str, ...],
    mixers: tuple[MixerTrace, ...] = (),
    *,
    target: Tokens | None = None,
) -> AttentionTrace:
    """The trace of a pass: its layers with their texts, and its source.

    The source has a note on ids of several texts without segments.
    """
    given: dict[str, Any] = {name: tuple(inputs[name][0].tolist()) for name in INPUTS if name in inputs}
    config = model.module.config.get_text_config()
    takes_segments = "token_type_ids" in inspect.signature(type(model.module).forward).parameters
    one_segment = (
        takes_segments
        and (getattr(config, "type_vocab_size", None) or 0) > 1
        and "token_type_ids" not in given
        and getattr(model.tokenizer or config, "sep_token_id", None) in given["input_ids"][:-1]
    )
    source = ModelSource(
        name=model.name,
        revision=model.revision,
        architecture=model.architecture,
        family=model.module.config.model_type,
        route=model.route.name if not layers or any(layer.knows("q") for layer in layers) else "weights",
        difference=model.route.difference,
        dtype=model.dtype,
        device=model.device,
        torch=str(torch.__version__),
        transformers=loading.library().__version__,
        skipped=skipped,
        notes=(*model.route.notes, *([ONE_SEGMENT] if one_segment else [])),
        **given,
    )
    return AttentionTrace(tokens, with_texts(tokens, target, layers), source, mixers=mixers)


def flow(
    model: Model, inputs: Mapping[str, Tensor], edits: trial.Edits = MappingProxyType({})
) -> tuple[tuple[LayerTrace, ...], tuple[str, ...], tuple[MixerTrace, ...]]:
    """The attention layers of one forward pass, sentences about what is left out, and the mixers.

    Raises `MhaError` if nothing can be shown, and if an attention function of the user's own gives another
    result for the text.
    """
    if model.foreign and not trial.same_result(model.as_run, model.module, inputs):
        raise MhaError(
            "{architecture} attends by {function!r}, a function of your own. For this text it "
            "does not compute what the model's own attention computes. What it does compute can be "
            "recorded: {code}.",
            architecture=model.architecture,
            function=model.foreign[0],
            code=loading.RECORDED,
        )
    recording = without_softmax.KernelRecorder() if model.mixers else nullcontext()
    with recording as recorder, _errors_of(model):
        flowed = trial.run(model.route, model.pass_of(inputs), edits)
    mixers = () if recorder is None else recorder.layers(model.mixers)
    return *complete(model, *flowed, mixers), mixers


def complete(
    model: Model,
    layers: tuple[LayerTrace, ...],
    skipped: tuple[str, ...],
    mixers: tuple[MixerTrace, ...] = (),
) -> PassLayers:
    """The layers of a pass, and sentences about what is left out, with layers that mix tokens by other means.

    Raises `MhaError` if there is nothing to show.
    """
    # KimiLinearAttention is a class with a softmax
    shown = {f"{name}:" for name in (*(layer.name for layer in layers), *(mixer.name for mixer in mixers))}
    skipped = (*skipped, *(entry for entry in model.not_shown if entry.split(" ")[0] not in shown))
    if not layers and not mixers:
        nothing = Phrase("it has no attention layer that could be seen")
        raise forward_pass.nothing_shown(model.name, skipped or [nothing])
    return layers, skipped


def inputs_of(model: Model, ids: dict[str, list[int]]) -> dict[str, Tensor]:
    """The inputs of a single text as tensors. (1, token)"""
    return {name: torch.tensor([row], device=model.device) for name, row in ids.items()}


def trace(
    text: str | Ids,
    *,
    source: str | PathLike[str] | nn.Module,
    tokenizer: Any = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    **reading: Unpack[Reading],
) -> AttentionTrace:
    """Trace a text, or the ids of its tokens, through a model of transformers.

    A model in memory may be wrapped by PEFT, in half precision, in training or on a GPU; it and its config do
    not change. The trace is without dropout. Without a tokenizer the labels of tokens are their ids. The
    arguments are explained in `mha_core.trace`. Raises `MhaError` as `load`, `adopt` and `follow` do.
    """
    loading: dict[str, Any] = {"tokenizer": tokenizer, "revision": revision, "device": device, "dtype": dtype}
    answers = reading.get("answers", False) is not False
    return follow(model_of(source, answers=answers, **loading), text, **reading)


def model_of(
    source: str | PathLike[str] | nn.Module,
    *,
    tokenizer: Any = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    answers: bool = False,
) -> Model:
    """A model ready to be traced: one of the last `MAX_MODELS` if it is unchanged, else loaded or adopted.

    A model has changed if its files have changed, or if it calls another attention function.
    """
    if not isinstance(source, str | PathLike):
        if (revision, device, dtype) != (None, None, None):
            raise MhaError("A model in memory is traced as it is; leave revision, device and dtype out.")
        return _adopted(source, tokenizer)
    if tokenizer is not None:
        raise MhaError(
            "{source} has its own tokenizer; leave tokenizer= out, or give a model in memory.", source=source
        )
    key = (str(source), revision, device, dtype, answers)
    with _loading:
        # Before loading: the folder may be saved again at the same time.
        fingerprint = files.fingerprint(str(source))
        previous, known = _loaded.find(key) or (None, None)
        is_same = known is not None and trial.foreign_functions(known.as_run) == known.foreign
        if not is_same or previous != fingerprint:
            _loaded.drop(key)

        def compute(_key: tuple) -> tuple[tuple | None, Model]:
            _loaded.make_room(0)
            free()
            loaded = load(str(source), revision=revision, device=device, dtype=dtype, answers=answers)
            return fingerprint, loaded

        _, model = _loaded.get(key, compute)
    return model


def _adopted(source: object, tokenizer: Any) -> Model:
    """The twin of a model in memory: the previous one if the model has not changed, else a new one."""
    module = unwrapped(source)
    with _loading:
        state = _state(module)
        known = _twins.get(module)
        model = known[1] if known is not None and known[0] == state else adopt(module)
        _twins[module] = state, model
    return replace(model, tokenizer=tokenizer)


def _state(module: PreTrainedModel) -> tuple:
    """The state of a model that its twin copies; tensors are left out, since the two share them."""
    parts = [
        (id(part), type(part), _comparable({k: v for k, v in vars(part).items() if k != "training"}))
        for part in module.modules()
    ]
    settings = (module.config, getattr(module, "generation_config", None))
    own = trial.implementations(module), trial.foreign_functions(module)
    return parts, own, [each and each.to_dict() for each in settings]


def _comparable(value: object) -> object:
    """A value to compare: numbers, strings and collections by value, any other object by identity."""
    if isinstance(value, str | int | float | None | torch.dtype | torch.device):
        return value
    if isinstance(value, Mapping):
        return type(value), [(_comparable(key), _comparable(entry)) for key, entry in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), [_comparable(entry) for entry in value]
    return id(value)


def free() -> None:
    """Free the memory of models without a reference."""
    gc.collect()  # modules and their configurations refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
