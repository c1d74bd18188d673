"""Traces on disk: one safetensors file with a JSON header; no pickle, so no code is executed."""

import copyreg
import glob
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mha_core.attention.functional import attend
from mha_core.attention.module import Projections
from mha_core.attention.score_rule import NUMBERS, ScoreRule
from mha_core.device import memory_errors
from mha_core.errors import MhaError, Phrase, at_least_1, listed, text_from_json, text_to_json
from mha_core.traces import limits
from mha_core.traces.answers import MAX_QUESTIONS, MAX_WORDS, Answer
from mha_core.traces.facts import Facts
from mha_core.traces.layer import LayerTrace
from mha_core.traces.limits import MAX_HEADS, MAX_LAYERS, Size, check_count, check_finite
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.source import Source
from mha_core.traces.source import read as read_source
from mha_core.traces.tensors import shared
from mha_core.traces.tokens import MAX_TOKENS, Sides, Tokens

HEADER = "headscope_trace"
VERSION = 2

MIXER_TENSORS = ("v", "output", "gate", "bias", "mixing")
NUMBER_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"}
NUMBER_TYPES |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
MAX_MIXING = 1 << 26  # numbers in all mixing matrices of a file: 256 MB

# The hidden folders in which this machine writes files; other machines may share the disk.
HIDDEN = f".headscope-{platform.node()}-"

Answers = tuple[Answer | None, ...]
Parts = tuple[  # of `AttentionTrace`
    Tokens, tuple[LayerTrace, ...], Source, Answers, tuple[MixerTrace, ...], Mapping[str, Answers]
]


def write(path: str | PathLike, parts: Parts, *, matrices: bool) -> None:
    """Write the parts of a trace to `path`; an existing file is replaced in one step. See `packed`.

    Raises `MhaError` for a trace that `read` could not read.
    """
    check_folder(path)
    text, tensors = packed(parts, matrices=matrices)
    sizes = limits.sizes_of(tensors)
    try:
        header = limits.described(text)
        _check_counts(header, sizes, limit=max(len(part["pieces"]) for part in header["texts"]))
        _check_header(header, sizes)
        _check_numbers(header, tensors)
        _check_results(header, tensors, parts[1])
    except MhaError as error:
        raise MhaError(
            "{name} cannot be saved: {reason}", name=Path(path).name, reason=error.phrase
        ) from None
    write_file(path, tensors, {HEADER: text})


def packed(parts: Parts, *, matrices: bool = True) -> tuple[str, dict[str, Tensor]]:
    """The parts of a trace as a JSON header and tensors by name; `unpacked` is the inverse.

    Without `matrices` the layers' W and b are left out, and the trace does not have them after reading.
    """
    tokens, layers, source, answers, mixers, questions = parts
    texts = [tokens]  # the trace's own text first, each text once
    layers_header, tensors = _packed_layers(layers, texts, matrices=matrices)
    header = {"version": VERSION, "texts": [asdict(text) for text in texts], **layers_header}
    if mixers:
        mixers_header, mixer_tensors = _packed_mixers(mixers)
        header, tensors = header | {"mixers": mixers_header}, tensors | mixer_tensors
    facts = {"source": source.to_json(), "answers": answers, "questions": dict(questions)}
    return json.dumps(header | facts), tensors


def _packed_layers(
    layers: tuple[LayerTrace, ...], texts: list[Tokens], *, matrices: bool = True
) -> tuple[dict, dict[str, Tensor]]:
    """The layers' part of a header, and their tensors; new texts are appended to `texts`."""
    tensors: dict[str, Tensor] = {}
    headers: list[dict] = []
    keys: dict[tuple, str] = {}
    transposed: set[str] = set()  # keys of matrices stored column by column in memory, as in nn.Linear
    for index, layer in enumerate(layers):
        layer_tensors = {
            **shared(layer.tensors),
            **{f"rule.{name}": tensor for name, tensor in layer.rule.tensors().items()},
        }
        if matrices:
            layer_tensors |= {name: getattr(layer.projections, name) for name in layer.projections.known}
        names: dict[str, str] = {}
        for name, tensor in layer_tensors.items():
            # A tensor that layers share, such as a mask, is stored once.
            names[name] = key = keys.setdefault(_identity(tensor), f"{index}.{name}")
            if tensor.dim() == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous():
                transposed.add(key)
                tensor = tensor.mT
            tensors[key] = tensor.clone(memory_format=torch.contiguous_format)
        rule = {field: getattr(layer.rule, field) for field in NUMBERS}
        sides = [_text_index(text, texts) for text in (layer.sides.queries, layer.sides.keys)]
        facts = {"kind": layer.kind, "name": layer.name, "about": layer.about.to_json(), "sides": sides}
        headers.append({"tensors": names, "rule": rule} | facts)
    return {"layers": headers, "turned": sorted(transposed)}, tensors


def _packed_mixers(mixers: tuple[MixerTrace, ...]) -> tuple[list[dict], dict[str, Tensor]]:
    """The mixers' part of a header, and their tensors with the matrices of all heads.

    Raises `MhaError` where the matrices are larger than `MAX_MIXING` together.
    """
    size = sum(mixer.n_heads * mixer.n_tokens**2 for mixer in mixers)
    if size > MAX_MIXING:
        raise MhaError(
            "The matrices of {n_layers} layers without softmax ({names}) have {size:,} numbers, a file "
            "takes at most {limit:,}; save a shorter text, or leave these layers out with mixers=False.",
            n_layers=len(mixers),
            names=listed(dict.fromkeys(mixer.rule for mixer in mixers), "comma"),
            size=size,
            limit=MAX_MIXING,
        )
    headers: list[dict] = []
    tensors: dict[str, Tensor] = {}
    for number, mixer in enumerate(mixers):
        own = {**shared(mixer.tensors)} | {"mixing": mixer.proven(range(mixer.n_heads))}
        names = {name: f"mixer{number}.{name}" for name in own}
        tensors |= {names[name]: tensor.contiguous() for name, tensor in own.items()}
        facts = {"rule": text_to_json(mixer.rule), "unit": mixer.unit, "name": mixer.name}
        headers.append(facts | {"convolution": mixer.convolution, "tensors": names})
    return headers, tensors


def _mixer(part: dict, tensors: Mapping[str, Tensor]) -> MixerTrace:
    own = {name: tensors[key] for name, key in part["tensors"].items() if name in MIXER_TENSORS}
    facts = {name: part[name] for name in ("unit", "name", "convolution")}
    return MixerTrace(own, text_from_json(part["rule"]), **facts)


def write_file(path: str | PathLike, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file; an existing one is replaced in one step.

    Raises as `replacing` does, and `OSError` if the file cannot be written, as on a full disk.
    """
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            if (number := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


@contextmanager
def replacing(path: str | PathLike) -> Iterator[Path]:
    """A new file, renamed to `path` at the end of the block, so that no reader sees half a file.

    It is in a `hidden_folder` beside `path`. Raises `MhaError` if the folder of `path` does not exist.
    """
    check_folder(path)
    path = Path(path)
    with hidden_folder(path.parent) as hidden:
        temporary = hidden / path.name
        temporary.touch()
        permissions = temporary.stat().st_mode  # as of any new file; safetensors would restrict them
        yield temporary
        temporary.chmod(permissions)
        os.replace(temporary, path)


@contextmanager
def hidden_folder(folder: Path) -> Iterator[Path]:
    """A new folder inside `folder`, deleted with its content at the end of the block, also if that fails.

    If the process is killed, the next process that writes there deletes it.
    """
    _remove_interrupted(folder)
    hidden = folder / f"{HIDDEN}{os.getpid()}-{uuid4().hex}"
    try:
        hidden.mkdir()
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _remove_interrupted(folder: Path) -> None:
    """Delete the hidden folders of processes on this machine that were killed while writing."""
    for hidden in folder.glob(f"{glob.escape(HIDDEN)}*"):
        process = hidden.name.removeprefix(HIDDEN).split("-")[0]
        if process.isdecimal() and not _runs(int(process)):
            shutil.rmtree(hidden, ignore_errors=True)


def _runs(process: int) -> bool:
    """Whether a process with this number is running; True if that cannot be known."""
    if os.name != "posix":
        return True  # on Windows this check would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # a process of another user, which may not be signalled
    return True


def check_path(path: str | PathLike) -> None:
    """Raise `MhaError` for a value that is not a path of a file."""
    try:
        named = isinstance(path, str | PathLike) and Path(path).name and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # a lone surrogate, which no file system accepts
        named = False
    if not named:
        raise MhaError("A file is named by its path, as in 'trace.safetensors'; got {path}.", path=repr(path))


def check_folder(path: str | PathLike) -> None:
    """Raise `MhaError` for a value that is not a path, and if no file can be written there.

    A folder or a device with that name is not replaced: root could replace even /dev/null.
    """
    check_path(path)
    path = Path(path)
    if path.exists() and not path.is_file():
        raise MhaError("{path} is no file, so none is saved in its place.", path=path)
    if not path.parent.is_dir():
        raise MhaError("There is no folder {folder} to save {name} in.", folder=path.parent, name=path.name)


def read(path: str | PathLike, limit: int, max_bytes: int | None, max_flops: int | None) -> Parts:
    """The parts of a trace that `write` wrote, within the limits of `mha.load`.

    Raises `MhaError` as `open_file` does, for another format version, and for a limit that is not a number.
    The header is checked before any tensor is read, their numbers before anything is computed from them.
    """
    at_least_1("limit", limit, Phrase("tokens"))
    if max_bytes is not None:  # NaN would not limit anything
        at_least_1("max_bytes", max_bytes, Phrase("bytes"))
    if max_flops is not None:
        at_least_1("max_flops", max_flops, Phrase("operations"))
    with open_file(path, HEADER, kind=Phrase("a saved trace")) as (text, file):
        header = limits.described(text)
        if header["version"] != VERSION:
            raise MhaError(
                "it has format version {version}; this release reads {known}.",
                version=header["version"],
                known=VERSION,
            )
        sizes = file_sizes(file)
        try:
            _check_counts(header, sizes, limit)
        except MhaError as error:
            if max_bytes is not None:  # a server, whose limit it is
                raise
            longest = max(len(text["pieces"]) for text in header["texts"])
            _check_counts(header, sizes, longest)  # too many layers or heads stay too many
            raise MhaError(
                "{reason} mha.load(…, limit={count}) reads it.", reason=error.phrase, count=longest
            ) from None
        _check_header(header, sizes)
        limits.check_cost(header, sizes, max_bytes=max_bytes, max_flops=max_flops)
        # Copied to torch's own memory: the rounding of products can depend on alignment.
        tensors = {name: file.get_tensor(name).clone() for name in sizes}
        _check_numbers(header, tensors)
        parts = unpacked(header, tensors)
        _check_results(header, tensors, parts[1])
        return parts


def file_sizes(file: safe_open) -> dict[str, Size]:
    """The shapes and dtypes of a file's tensors, without reading their numbers."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    return {
        name: Size(tuple(part.get_shape()), NUMBER_TYPES.get(part.get_dtype(), part.get_dtype()))
        for name, part in slices.items()
    }


def _check_counts(header: dict, sizes: Mapping[str, Size], limit: int) -> None:
    """Raise `MhaError` for too many layers, tokens or heads."""
    check_count(Phrase("layers"), len(header["layers"]), MAX_LAYERS)
    check_count(Phrase("layers without softmax"), len(header.get("mixers", ())), MAX_LAYERS)
    for text in header["texts"]:
        check_count(Phrase("tokens"), len(text["pieces"]), limit)
    for part in header["layers"]:
        for key in part["tensors"].values():
            shape = sizes[key].shape
            check_count(Phrase("heads"), shape[0] if len(shape) > 2 else 1, MAX_HEADS)


def _check_header(header: dict, sizes: Mapping[str, Size]) -> None:
    """Raise one of several errors unless the shapes of all tensors match each other and the texts."""
    texts = [_tokens(part) for part in header["texts"]]
    transposed = {name: Size(sizes[name].shape[::-1], sizes[name].dtype) for name in header["turned"]}
    sizes = {**sizes, **transposed}
    _answers(header)
    for number, part in enumerate(header["layers"]):
        named = {name: sizes[key] for name, key in part["tensors"].items()}
        where = Phrase("layer {number}", number=number)
        limits.check_sizes(where, named, _sides(part, texts))
        _check_values(where, part)
    for part in header.get("mixers", ()):
        own = {name: sizes[key] for name, key in part["tensors"].items() if name in MIXER_TENSORS}
        heads, n_tokens, d_v = own["v"].shape
        shapes = dict.fromkeys(("v", "output", "gate"), (heads, n_tokens, d_v))
        shapes |= {"bias": (heads, 1, d_v), "mixing": (heads, n_tokens, n_tokens)}
        for name, (shape, dtype) in own.items():
            if shape != shapes[name] or dtype not in limits.FLOATS:
                raise ValueError(f"{name} of a layer without softmax is {dtype} of shape {shape}")


def _check_values(where: str, part: dict) -> None:
    """Raise `MhaError` if the name is not text, or a value of the rule is not a number; true is not one.

    A scale of 0 is allowed: an edit can set it, and then all scores are 0.
    """
    if not isinstance(part["name"], str):
        raise MhaError(
            "the name of {where} is {name!r:.80}; it has to be text.", where=where, name=part["name"]
        )
    for field in NUMBERS:
        value = part["rule"].get(field, getattr(ScoreRule, field))
        optional = getattr(ScoreRule, field) is None
        if (value is None and optional) or (isinstance(value, int | float) and not isinstance(value, bool)):
            continue
        allowed = Phrase("a number or null") if optional else Phrase("a number")
        raise MhaError(
            "{field} of {where} is {value!r:.80}; it has to be {allowed}.",
            field=field,
            where=where,
            value=value,
            allowed=allowed,
        )


def _check_numbers(header: dict, tensors: Mapping[str, Tensor]) -> None:
    """Raise `MhaError` for NaN, for infinities without meaning, and for weights that no softmax gives."""
    names: dict[str, tuple[str, Phrase]] = {}
    for number, part in enumerate(header["layers"]):
        where = Phrase("layer {number}", number=number)
        for name, key in part["tensors"].items():
            names.setdefault(key, (name, where))  # a shared tensor is checked once
    for part in header.get("mixers", ()):
        names |= {key: (name, Phrase("a layer without softmax")) for name, key in part["tensors"].items()}
    for key, (name, where) in names.items():
        check_finite(
            Phrase("{name} of {where}", name=name, where=where),
            tensors[key],
            infinite=name in limits.INFINITE,
        )
        if name == "weights":
            limits.check_weights(where, tensors[key])


def _check_results(header: dict, tensors: Mapping[str, Tensor], layers: tuple[LayerTrace, ...]) -> None:
    """Raise an error if parts of a layer do not fit, or if computing with them could overflow."""
    norms = {key: limits.norm(tensor) for key, tensor in tensors.items() if tensor.is_floating_point()}
    for number, (layer, part) in enumerate(zip(layers, header["layers"], strict=True)):
        if layer.knows("q"):
            held = {name: norms[key] for name, key in part["tensors"].items() if key in norms}
            limits.check_results(Phrase("layer {number}", number=number), layer, held)
            # The first row can be computed, with W^O if it is known.
            attend(layer.tensors["q"][:, :1], layer.tensors["k"], layer.tensors["v"])
            if layer.knows("w_o"):
                layer.contribution(rows=[0])
            else:
                layer.output(rows=[0])
            _check_facts(layer)


@contextmanager
def open_file(path: str | PathLike, key: str, *, kind: str) -> Iterator[tuple[str, safe_open]]:
    """A safetensors file, open, and its header: the metadata under a key.

    Raises `MhaError` for a file that is missing or cannot be read, for a file without that header, which is
    of another kind, and for an error inside the block: header and tensors do not fit then.
    """
    check_path(path)
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise MhaError("{path} cannot be read as {kind}: it is no file.", path=str(path), kind=kind)
    try:
        Path(path).open("rb").close()  # safetensors reports every file that it may not open as missing
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(key)
            if header is not None:
                with memory_errors(Phrase("It")):
                    yield header, file
                return
    except FileNotFoundError:
        raise MhaError("There is no file {path}.", path=str(path)) from None
    except MhaError as error:
        raise MhaError("{path} cannot be opened: {reason}", path=str(path), reason=error.phrase) from None
    except SafetensorError:
        raise MhaError(
            "{path} cannot be read as {kind}: it is broken, or not a safetensors file.",
            path=str(path),
            kind=kind,
        ) from None
    except OSError as error:
        raise MhaError(
            "{path} cannot be read as {kind}: {reason}.", path=str(path), kind=kind, reason=str(error)
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise MhaError(
            "{path} is damaged: its header does not fit its content ({reason}).",
            path=str(path),
            reason=repr(error),
        ) from None
    raise MhaError("{path} is a safetensors file but not {kind}.", path=str(path), kind=kind)


@contextmanager
def named(path: str | PathLike, name: str) -> Iterator[None]:
    """In this block errors about a file have its name for visitors in place of its path on the server."""
    try:
        yield
    except MhaError as error:
        phrase = error.phrase
        if not isinstance(phrase, Phrase):
            raise
        fields: dict[str, Any] = {
            field: value.replace(str(path), name) if type(value) is str else value
            for field, value in phrase.fields.items()
        }
        raise MhaError(phrase.template, **fields) from None


def unpacked(header: dict, tensors: Mapping[str, Tensor]) -> Parts:
    """The parts of a trace from the header, parsed, and the tensors that `packed` returned."""
    texts = [_tokens(part) for part in header["texts"]]
    layers = _layers(header, tensors, texts)
    answers, questions = _answers(header)
    mixers = tuple(_mixer(part, tensors) for part in header.get("mixers", ()))
    return texts[0], layers, read_source(header["source"]), answers, mixers, questions


def _answers(header: dict) -> tuple[Answers, dict[str, Answers]]:
    """The answers of a header, and those to each question.

    Raises `MhaError` for anything else, and for too many questions or words at a token.
    """
    check_count(Phrase("questions"), len(header["questions"]), MAX_QUESTIONS)
    questions = {name: tuple(map(_answer, answers)) for name, answers in header["questions"].items()}
    return tuple(map(_answer, header["answers"])), questions


def _answer(answer: list | None) -> Answer | None:
    if answer is None:
        return None
    check_count(Phrase("words in an answer"), len(answer), MAX_WORDS)
    if not answer:
        raise MhaError("an answer has no word; where a model gives none it has to be null.")
    for word, p in answer:
        is_share = isinstance(p, int | float) and not isinstance(p, bool) and 0 <= p <= 1 + 1e-3
        if not isinstance(word, str) or not is_share:
            raise MhaError(
                "an answer is {word!r:.80} with probability {probability!r:.80}; it has to be text and a "
                "share.",
                word=word,
                probability=p,
            )
    return tuple((word, float(p)) for word, p in answer)


def _layers(header: dict, tensors: Mapping[str, Tensor], texts: list[Tokens]) -> tuple[LayerTrace, ...]:
    tensors = dict(tensors) | {name: tensors[name].mT for name in header["turned"]}
    return tuple(_layer(part, tensors, texts) for part in header["layers"])


def _layer(part: dict, tensors: dict, texts: list[Tokens]) -> LayerTrace:
    by_name = {name: tensors[key] for name, key in part["tensors"].items()}
    rule = {name.removeprefix("rule."): t for name, t in by_name.items() if name.startswith("rule.")}
    projections = {name: by_name[name] for name in Projections._fields if name in by_name}
    return LayerTrace(
        {name: tensor for name, tensor in by_name.items() if name in limits.TENSORS},
        ScoreRule(**part["rule"], **rule),
        Projections(**projections),
        part["kind"],
        part["name"],
        Facts.of(part["about"]),
        _sides(part, texts),
    )


def _sides(part: dict, texts: list[Tokens]) -> Sides:
    """The texts of a layer's queries and keys. Raises `ValueError` if there are no such texts."""
    queries, keys = part["sides"]
    if not {type(queries), type(keys)} == {int} or not min(queries, keys) >= 0:
        raise ValueError(f"the sides of a layer are {part['sides']!r}")
    return Sides(texts[queries], texts[keys])


def _text_index(text: Tokens, texts: list[Tokens]) -> int:
    """The index of a text in `texts`; a new text is appended. Two equal texts remain two."""
    for at, other in enumerate(texts):
        if other is text:
            return at
    texts.append(text)
    return len(texts) - 1


def _tokens(part: dict) -> Tokens:
    """The tokens of a text. Raises `ValueError` if their parts do not match."""
    tokens = Tokens(
        part["text"],
        tuple(part["pieces"]),
        tuple((start, end) for start, end in part["spans"]),
        tuple(part["words"]),
        tuple(part["special"]),
        tuple(part["unknown"]),
    )
    counts = {len(tokens), len(tokens.spans), len(tokens.words) or len(tokens)}
    texts = all(isinstance(text, str) for text in (tokens.text, *tokens.pieces))
    numbers = (*tokens.words, *tokens.special, *tokens.unknown, *chain(*tokens.spans))
    places = {type(number) for number in numbers} <= {int}
    if not (texts and places) or len(counts) > 1 or not tokens.pieces:
        raise ValueError("the tokens do not fit their text")
    if not {*tokens.special, *tokens.unknown} <= set(range(len(tokens))) or not all(
        0 <= start <= end <= len(tokens.text) for start, end in tokens.spans
    ):
        raise ValueError("the places of tokens do not fit their text")
    return tokens


def _check_facts(layer: LayerTrace) -> None:
    """Raise `ValueError` if the layer does not have the rotated dimensions or the chosen blocks of keys."""
    for code, width in ((layer.about.rotary, layer.d_k), (layer.about.output_rotary, layer.d_v)):
        if code and (code.form not in ("half", "pairs") or code.start + code.width > width):
            raise ValueError(f"a rotary code of {code} cannot rotate {width} dimensions")
    if "index_choice" in layer.tensors:
        block = layer.about.index_block or 1
        if block > MAX_TOKENS or layer.tensors["index_choice"].max() >= -(-layer.n_key // block):
            raise ValueError(
                f"the index chose blocks of {block} keys beyond the {layer.n_key} that there are"
            )


def _identity(tensor: Tensor) -> tuple:
    """A key that is equal for two tensors if and only if they are the same view of the same memory."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


# A layer is pickled as the bytes of a file: without cached results, with each shared tensor once, and
# without shared memory, which is limited.


def as_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Tensors by name as the bytes of a safetensors file."""
    return safetensors.torch.save(tensors)


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """The inverse of `as_bytes`."""
    return {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}


def _pickled(layer: LayerTrace) -> tuple:
    texts: list[Tokens] = []
    header, tensors = _packed_layers((layer,), texts)
    return _unpickled, (header, [replace(text) for text in texts], as_bytes(tensors))  # without cached labels


def _unpickled(header: dict, texts: list[Tokens], content: bytes) -> LayerTrace:
    [layer] = _layers(header, from_bytes(content), texts)
    return layer


copyreg.pickle(LayerTrace, _pickled)
