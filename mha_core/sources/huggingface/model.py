"""Any Hugging Face text model as a source: its own code runs, with our attention inside.

This is the one file that imports transformers, and only inside functions. Their models hand q, k and v
to an attention function that is looked up by name; ours is registered under `NAME`, with the mask
function of the eager implementation: with any other a plain function would be handed no mask at all.
"""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn

from mha_core import device as devices
from mha_core.capture import collector, learned
from mha_core.errors import MhaError, one_of
from mha_core.sources.huggingface import files, loading, trial
from mha_core.sources.huggingface import tokenizer as reading
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import MAX_TOKENS
from mha_core.traces.trace import AttentionTrace

NAME = "headscope"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SETTINGS = {"revision", "target", "device", "dtype", "limit"}  # those of `trace`
AT_HAND = 2  # models that `trace` keeps


_registering = threading.Lock()
_loading = threading.Lock()
_kept: OrderedDict[tuple, "Model"] = OrderedDict()  # the one that was used last stands last


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model, prepared to be traced by many threads at once; nothing in it changes any more."""

    name: str
    module: nn.Module = field(repr=False)
    tokenizer: object = field(repr=False)
    revision: str | None
    device: str
    dtype: str
    route: trial.Route
    names: Mapping[int, str] = field(repr=False)  # of each module, by its id
    unattended: tuple[str, ...] = ()  # layers that mix tokens by other means

    @property
    def architecture(self) -> str:
        return type(self.module).__name__

    @property
    def has_target(self) -> bool:
        """Does it read one text and write another?"""
        return bool(self.module.config.is_encoder_decoder)

    @property
    def limit(self) -> int:
        """The most tokens that it takes."""
        return reading.limit(self.module.config, self.tokenizer)


def load(
    name: str,
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: files.Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    endpoint: str | None = None,
) -> Model:
    """Load a model from a folder or from the Hugging Face hub: safetensors only, and never its own code.

    `dtype` is float32 on a CPU and bfloat16 on a GPU unless asked for. `progress` is told
    (stage, done, total) for the stages download (bytes), load and check; when `cancelled` says so,
    loading stops at the next step. Raises `MhaError` for everything that cannot be loaded, with the reason.
    """
    transformers = _library()
    place = devices.pick(device).name
    kind = one_of("dtype", dtype or devices.usual_dtype(place), DTYPES)
    tell = progress or (lambda *_: None)
    folder = files.find(name, revision=revision, progress=progress, cancelled=cancelled, endpoint=endpoint)
    config = loading.config(transformers, folder)
    tokenizer = loading.tokenizer(transformers, folder)
    files.check_memory(name, files.memory_needed(folder.weights, DTYPES[kind], name=name), place)
    files.check_stopped(cancelled)
    tell("load", 0, 1)
    module = loading.module(transformers, folder, config, DTYPES[kind]).to(place)
    tell("load", 1, 1)
    files.check_stopped(cancelled)
    tell("check", 0, 1)
    model = adopt(module, tokenizer, name=name, revision=folder.revision)
    tell("check", 1, 1)
    return model


def adopt(module: nn.Module, tokenizer=None, *, name: str = "", revision: str | None = None) -> Model:
    """Prepare a transformers model that is in memory already; it is ours from then on.

    It runs a few tokens with its own attention and with ours: only if weights and output are the same is
    it traced that way, else `trial` has the next best one. Raises `MhaError` if there is none.
    """
    register()
    module = module.requires_grad_(False).eval()
    for config in {id(part): part for part in (module.config, module.config.get_text_config())}.values():
        config.use_cache = False  # keys are wanted of all tokens at once; nothing is read again
    route, names = trial.choose(module, NAME)
    learned.unhook(module)
    weight = next(module.parameters())
    kind = str(weight.dtype).removeprefix("torch.")
    unattended = trial.without_attention(module)
    names = MappingProxyType(names)
    return Model(name, module, tokenizer, revision, weight.device.type, kind, route, names, unattended)


def register() -> None:
    """Make our attention function known to transformers, with the mask that goes with it."""
    transformers = _library()
    from transformers.masking_utils import eager_mask

    with _registering:
        transformers.AttentionInterface.register(NAME, collector.attention)
        transformers.AttentionMaskInterface.register(NAME, eager_mask)


def follow(model: Model, text: str, *, target: str | None = None, limit: int = MAX_TOKENS) -> AttentionTrace:
    """Trace a text through a model; of one that writes a text too, `target` or what it writes itself.

    Raises `MhaError` for text that is empty or too long, for a target where there is none, and for a
    layer whose attention cannot be shown if there is no other.
    """
    if target is not None and not model.has_target:
        raise MhaError(f"{model.name} reads one text and writes no other; leave the target out.")
    if model.tokenizer is None:
        raise MhaError(f"{model.name or model.architecture} has no tokenizer, so it cannot read a text.")
    limit = min(limit, model.limit)
    tokens, ids = reading.encoded(model.tokenizer, text, limit=limit, name=model.name)
    inputs = {name: torch.tensor([row], device=model.device) for name, row in ids.items()}
    reading.check_ids(model.module, ids["input_ids"], name=model.name)
    side = None
    if model.has_target:
        if target is None:
            written = reading.written_target(model.module, inputs, name=model.name)
        else:
            config = model.module.config
            start = config.decoder_start_token_id
            start = config.bos_token_id if start is None else start
            written = reading.encoded_target(
                model.tokenizer, target, start=start, limit=limit, name=model.name
            )
        reading.check_ids(model.module, written, name=model.name)
        inputs["decoder_input_ids"] = torch.tensor([written], device=model.device)
        side = reading.target_tokens(model.tokenizer, written, target)
    layers, skipped = flow(model, inputs)
    return AttentionTrace(tokens, layers, MappingProxyType(described(model, layers, skipped)), (), side)


def flow(model: Model, inputs: Mapping[str, Tensor]) -> tuple[tuple[LayerTrace, ...], tuple[str, ...]]:
    """The layers of one forward pass, and what could not be shown, each with its reason.

    Raises `MhaError` if nothing can be shown.
    """
    layers, skipped = trial.run(model.route, model.module, model.names, inputs)
    shown = {f"{layer.name}:" for layer in layers}  # KimiLinearAttention is the name of an attention
    skipped = (*skipped, *(entry for entry in model.unattended if entry.split(" ")[0] not in shown))
    if not layers:
        raise MhaError(
            f"Nothing of {model.name or model.architecture} can be shown: "
            f"{'; '.join(skipped) or 'it has no attention layer that could be seen'}."
        )
    return layers, skipped


def described(model: Model, layers: Iterable[LayerTrace], skipped: Iterable[str] = ()) -> dict[str, object]:
    """Where a trace of this model comes from, in plain values."""
    route = model.route.name if any(layer.knows("q") for layer in layers) else "weights"
    return {
        "name": model.name,
        "revision": model.revision,
        "architecture": model.architecture,
        "family": model.module.config.model_type,
        "route": route,
        "difference": model.route.difference,
        "skipped": list(skipped),
        "notes": list(model.route.notes),
        "dtype": model.dtype,
        "device": model.device,
        "torch": torch.__version__,
        "transformers": _library().__version__,
    }


def trace(
    text: str,
    *,
    source: str,
    revision: str | None = None,
    target: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    limit: int = MAX_TOKENS,
) -> AttentionTrace:
    """Load a model, unless it is one of the last few that were, and trace a text through it.

    Raises as `load` and `follow` do.
    """
    key = (source, revision, device, dtype)
    with _loading:
        model = _kept.pop(key, None)
        if model is None:
            while len(_kept) >= AT_HAND:  # before the new one comes: both might not fit
                _kept.popitem(last=False)
                free()
            model = load(source, revision=revision, device=device, dtype=dtype)
        _kept[key] = model
    return follow(model, text, target=target, limit=limit)


def forget() -> None:
    """Let go of the models that `trace` keeps."""
    with _loading:
        _kept.clear()
    free()


def free() -> None:
    """Give the memory of models back that nobody holds any more."""
    gc.collect()  # modules and their configurations refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _library():
    try:
        import transformers
    except ImportError:
        raise files.missing() from None
    return transformers
