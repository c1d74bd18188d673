"""Loads a model, its configuration and its tokenizer from files."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from mha_core.errors import MhaError, Phrase
from mha_core.sources.huggingface import PreTrainedModel, forward_pass
from mha_core.sources.huggingface.files import Folder, library_missing

# Weights that may be missing from the files: heads for a task, and computed numbers.
OPTIONAL = re.compile(r"pooler|lm_head|classifier|final_logits_bias|position_ids|score\b")
UNUSED = re.compile(r"pooler|final_logits_bias|position_ids|classifier|score\b")  # by a language-model head
SOUNDS = Phrase("it reads codes of sounds and no text")
TOKENIZER = re.compile(
    r"\w*tokenizer\w*\.(json|model)|vocab.*|merges\.txt|.*\.(model|spm|spiece|tiktoken|bpe|codes)"
)

RECORDED = "with mha.record(model, tokens=…) as recorded: model(**inputs)"
WRITERS = {  # mappings of transformers, by the kind of answers
    "target": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "next": "MODEL_FOR_CAUSAL_LM_MAPPING",
}


def library() -> Any:
    """The library transformers. Raises `MhaError` where it is not installed."""
    try:
        import transformers
    except ImportError:
        raise library_missing() from None
    return transformers


def config(folder: Folder) -> Any:
    """The configuration. Raises `MhaError` for an architecture that is not part of transformers."""
    transformers, entries = library(), folder.config
    family = entries.get("model_type")
    if family not in transformers.CONFIG_MAPPING:
        reason = (
            Phrase("its own code would have to run, which is never done")
            if "auto_map" in entries
            else Phrase(
                "transformers {version} does not know that architecture", version=transformers.__version__
            )
        )
        raise MhaError(
            "{name} is of the type {family!r}: {reason}.", name=folder.name, family=family, reason=reason
        )
    try:
        return transformers.AutoConfig.from_pretrained(folder.path, local_files_only=True)
    except Exception as error:
        raise MhaError(
            "The config.json of {name} cannot be used: {reason}.", name=folder.name, reason=str(error)
        ) from error


def tokenizer(folder: Folder) -> Any:
    """The tokenizer. Raises `MhaError` for one that is missing or cannot be read."""
    reason: str = Phrase("there is no file of it")
    if any(TOKENIZER.fullmatch(file.name) for file in folder.path.iterdir()):
        try:
            loaded = library().AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
            if loaded.vocab_size > len(loaded.all_special_ids):  # transformers can build an empty tokenizer
                return loaded
            reason = Phrase("it has no words")
        except Exception as error:  # each kind of tokenizer has its own errors
            reason = first_line(error)
    raise MhaError(
        "The tokenizer of {name} is missing or cannot be read ({reason}); "
        "`tokenizer.save_pretrained(folder)` puts it beside the model.",
        name=folder.name,
        reason=reason,
    )


def module(
    folder: Folder, settings: Any, dtype: torch.dtype, *, writes: bool = False
) -> tuple[PreTrainedModel, str | None]:
    """The model, with its output head for an encoder–decoder or for answers, else without a head.

    Returns also the name of the output head's matrix if the files lack it: its numbers are then random.
    """
    transformers, own = library(), _own_class(folder, settings)
    if settings.is_encoder_decoder and type(settings) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        auto = transformers.AutoModelForSeq2SeqLM
    elif writes_sounds(settings):
        auto = transformers.AutoModelForTextToWaveform
    elif writes and (writing := writing_class(own, settings)) is not None:
        auto = writing
    elif type(settings) in transformers.MODEL_MAPPING:
        auto = transformers.AutoModel
    elif (auto := own) is None:
        raise MhaError(
            "{name} is of the type {type!r}, which is no model of texts.",
            name=folder.name,
            type=settings.model_type,
        )
    loaded, report = _loaded(auto, folder, settings, dtype)
    if auto is transformers.AutoModel and _misfits(report):
        loaded, report = _as_saved(folder, settings, dtype) or (loaded, report)
    if loaded.main_input_name != "input_ids":
        raise reads_no_text(folder.name, loaded.main_input_name)
    missing = report["missing_keys"]
    head = [key for key in missing if writes and not key.startswith(f"{loaded.base_model_prefix}.")]
    if wrong := _misfits(report | {"missing_keys": set(missing) - set(head)}):
        raise MhaError(
            "The weights of {name} do not fit its config.json: {n_wrong} are missing or of "
            "another size, such as {example}.",
            name=folder.name,
            n_wrong=len(wrong),
            example=wrong[0],
        )
    if writes_sounds(settings):
        return loaded, None
    lacking = sorted(key for key in head if not UNUSED.search(key))
    return loaded, next(iter(lacking), _untrained_head(loaded, folder, missing))


def reads_no_text(name: str, reads: str) -> MhaError:
    """The error for a model of pictures or sounds."""
    return MhaError(
        "{name} reads {input} and no text, so it cannot be traced. What it computes can be recorded: {code}.",
        name=name,
        input=reads,
        code=RECORDED,
    )


def _loaded(auto: Any, folder: Folder, settings: Any, dtype: torch.dtype) -> tuple[PreTrainedModel, dict]:
    """A model of a class, and the report on its weights. Raises `MhaError` with transformers' reason."""
    try:
        return auto.from_pretrained(
            folder.path,
            config=settings,
            local_files_only=True,
            use_safetensors=True,
            dtype=dtype,
            attn_implementation="eager",
            ignore_mismatched_sizes=True,  # they are reported, and the caller raises the error
            output_loading_info=True,
        )
    except Exception as error:
        raise MhaError(
            "{name} cannot be loaded: {reason}.", name=folder.name, reason=first_line(error)
        ) from error


def _misfits(report: Mapping) -> list[str]:
    """The names of the weights that the files lack, or have in another size.

    Missing weights are drawn at random: that is allowed in a head for a task, but not in the model itself.
    """
    lost = sorted(key for key in report["missing_keys"] if not OPTIONAL.search(key))
    return [*lost, *sorted(name for name, *_ in report["mismatched_keys"])]


def _as_saved(folder: Folder, settings: Any, dtype: torch.dtype) -> tuple[PreTrainedModel, dict] | None:
    """The model without its head, loaded as the class that wrote the folder; None if that is no better.

    Some families rename weights by rules that work only for the class with the head.
    """
    if (kind := _own_class(folder, settings)) is None:
        return None
    loaded, report = _loaded(kind, folder, settings, dtype)
    headless: Any = loaded.base_model
    return None if _misfits(report) else (headless, report)


def _own_class(folder: Folder, settings: Any) -> type | None:
    """The class that wrote the folder, if it is part of transformers: text encoders are in no mapping."""
    transformers, names = library(), folder.config.get("architectures")
    kind: Any = getattr(transformers, str(names[0]), None) if isinstance(names, list) and names else None
    fits = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    return kind if fits and kind.config_class is type(settings) else None


def kind_of(module: PreTrainedModel | type, config: Any) -> str | None:
    """The kind of a model's answers, a key of `WRITERS`; None without a language-model head."""
    name = (module if isinstance(module, type) else type(module)).__name__
    kinds = [kind for kind, mapping in WRITERS.items() if name in _classes(mapping)]
    if not isinstance(module, type) and "target" in kinds and not forward_pass.has_target(module):
        kinds.remove("target")
    if "next" in kinds and (getattr(config, "is_decoder", False) or getattr(config, "causal", False)):
        return "next"
    return next(iter(kinds), None)


def writing_class(own: type | None, config: Any) -> type | None:
    """The class with a language-model head for a configuration; `own` is the class that wrote the files."""
    if own is not None and kind_of(own, config) is not None:
        return own
    kinds = ["masked", "next"]
    if getattr(config, "is_decoder", False):
        kinds.reverse()
    mappings = (getattr(library(), WRITERS[kind]) for kind in kinds)
    return next((mapping[type(config)] for mapping in mappings if type(config) in mapping), None)


def _classes(mapping: str) -> set[str]:
    """The names of the classes in a mapping of transformers."""
    names: Mapping[str, str | tuple[str, ...]] = getattr(library(), mapping)._model_mapping
    return {one for name in names.values() for one in ((name,) if isinstance(name, str) else name)}


def writes_sounds(settings: object) -> bool:
    """Whether a model has a text encoder and a decoder of audio codes, as MusicGen has."""
    return hasattr(settings, "text_encoder") and hasattr(settings, "audio_encoder")


def _untrained_head(loaded: PreTrainedModel, folder: Folder, missing: set[str]) -> str | None:
    """The name of the output head's matrix if it does not come from the files.

    Some classes tie it to the embeddings even if config.json says that they are not tied.
    """
    head = loaded.get_output_embeddings() if loaded.can_generate() else None
    for name, part in loaded.named_modules():
        if head is not None and part is head:
            tied = head.weight is getattr(loaded.get_input_embeddings(), "weight", None)
            untied = folder.config.get("tie_word_embeddings") is False
            return f"{name}.weight" if f"{name}.weight" in missing or (tied and untied) else None
    return None


def first_line(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')[:200]}" if lines else type(error).__name__
