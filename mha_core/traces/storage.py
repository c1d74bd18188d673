"""Traces on disk: one safetensors file with a JSON header; no pickle, so no code is executed."""

import copyreg
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mha_core.attention.functional import attend
from mha_core.attention.module import Projections
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError
from mha_core.traces.facts import Facts
from mha_core.traces.layer import KINDS, LayerTrace
from mha_core.traces.mixer import MixerTrace
from mha_core.traces.source import Source
from mha_core.traces.source import read as read_source
from mha_core.traces.tokens import Sides, Tokens

HEADER = "headscope_trace"
VERSION = 2
# The tensors of a layer that have a row for each query, and for each key. The others are weights.
QUERY_TENSORS = {"q", "x", "q_linear", "q_raw", "q_turned", "q_short", "cos", "sin", "gate"}
QUERY_TENSORS |= {"output_cos", "output_sin", "index_scores", "index_choice", "dense_mask"}
KEY_TENSORS = {"k", "v", "x_v", "k_linear", "v_linear", "k_raw", "k_turned", "kv_short"}
TENSORS = QUERY_TENSORS | KEY_TENSORS | {"weights"}
RULE_NUMBERS = ("scale", "soft_cap", "temperature")  # the fields of a rule that are not tensors

MIXER_TENSORS = ("v", "output", "gate", "bias", "mixing")
MAX_MIXING = 1 << 26  # numbers in the matrices of all mixers of a file: 256 MB

Parts = tuple[Tokens, tuple[LayerTrace, ...], Source, tuple, tuple[MixerTrace, ...]]  # of `AttentionTrace`


def write(path: str | PathLike, parts: Parts, *, matrices: bool = True) -> None:
    """Write the parts of a trace to `path`; an existing file is replaced in one step. See `packed`."""
    check_folder(path)
    header, tensors = packed(parts, matrices=matrices)
    write_file(path, tensors, {HEADER: header})


def packed(parts: Parts, *, matrices: bool = True) -> tuple[str, dict[str, Tensor]]:
    """The parts of a trace as a JSON header and tensors by name; `unpacked` is the inverse.

    Without `matrices` the layers' W and b are left out, and the trace that is read does not have them.
    """
    tokens, layers, source, answers, mixers = parts
    texts = [tokens]  # the trace's own text first, each text once
    layers_header, tensors = _packed_layers(layers, texts, matrices=matrices)
    header = {"version": VERSION, "texts": [asdict(text) for text in texts], **layers_header}
    if mixers:
        mixers_header, mixer_tensors = _packed_mixers(mixers)
        header, tensors = header | {"mixers": mixers_header}, tensors | mixer_tensors
    return json.dumps(header | {"source": source.to_json(), "answers": answers}), tensors


def _packed_layers(
    layers: tuple[LayerTrace, ...], texts: list[Tokens], *, matrices: bool = True
) -> tuple[dict, dict[str, Tensor]]:
    """The layers' part of a header, and their tensors; new texts are appended to `texts`."""
    tensors, headers, keys = {}, [], {}
    transposed = set()  # keys of matrices that lie in memory column by column, as those of nn.Linear do
    for index, layer in enumerate(layers):
        layer_tensors = {
            **layer.tensors,
            **{f"rule.{name}": tensor for name, tensor in layer.rule.tensors().items()},
        }
        if matrices:
            layer_tensors |= {name: getattr(layer.projections, name) for name in layer.projections.known}
        names = {}
        for name, tensor in layer_tensors.items():
            # A tensor that layers share, such as a mask, is stored once.
            names[name] = key = keys.setdefault(_identity(tensor), f"{index}.{name}")
            if tensor.dim() == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous():
                transposed.add(key)
                tensor = tensor.mT
            tensors[key] = tensor.clone(memory_format=torch.contiguous_format)
        rule = {field: getattr(layer.rule, field) for field in RULE_NUMBERS}
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
        names = ", ".join(dict.fromkeys(mixer.rule for mixer in mixers))
        raise MhaError(
            f"The matrices of {len(mixers)} layers without softmax ({names}) have {size:,} numbers, a file "
            f"takes at most {MAX_MIXING:,}; save a shorter text, or leave these layers out with mixers=False."
        )
    headers, tensors = [], {}
    for number, mixer in enumerate(mixers):
        own = dict(mixer.tensors) | {"mixing": mixer.proven(range(mixer.n_heads))}
        names = {name: f"mixer{number}.{name}" for name in own}
        tensors |= {names[name]: tensor.contiguous() for name, tensor in own.items()}
        facts = {"rule": mixer.rule, "unit": mixer.unit, "name": mixer.name, "convolution": mixer.convolution}
        headers.append(facts | {"tensors": names})
    return headers, tensors


def _mixer(part: dict, tensors: Mapping[str, Tensor]) -> MixerTrace:
    """A mixer of a file; `ValueError` where its tensors do not match."""
    own = {name: tensors[key] for name, key in part["tensors"].items() if name in MIXER_TENSORS}
    heads, n_tokens, _ = own["v"].shape
    if own["output"].shape != own["v"].shape or own["mixing"].shape != (heads, n_tokens, n_tokens):
        raise ValueError("the tensors of a layer without softmax do not fit each other")
    facts = {name: part[name] for name in ("rule", "unit", "name", "convolution")}
    return MixerTrace(MappingProxyType(own), **facts)


def write_file(path: str | PathLike, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file; an existing one is replaced in one step. Raises as `replacing` does."""
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)


@contextmanager
def replacing(path: str | PathLike) -> Iterator[Path]:
    """A new file beside `path`, renamed to it at the end of the block, so that no reader sees half a file.

    It is deleted where the block fails. Raises `MhaError` where the folder of `path` does not exist.
    """
    check_folder(path)
    path = Path(path)
    temporary = path.with_name(f".{uuid4().hex}{path.suffix}")
    try:
        temporary.touch()
        permissions = temporary.stat().st_mode  # those of any new file; safetensors would restrict them
        yield temporary
        temporary.chmod(permissions)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(path: str | PathLike) -> None:
    """Raise `MhaError` where the folder of a file that is to be written does not exist."""
    path = Path(path)
    if not path.parent.is_dir():
        raise MhaError(f"There is no folder {path.parent} to save {path.name} in.")


def read(path: str | PathLike) -> Parts:
    """The parts of a trace that `write` wrote."""
    with open_file(path, HEADER, kind="a saved trace") as (header, file):
        # Copied to memory that torch allocates: rounding of products can depend on the alignment.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return unpacked(header, tensors, name=str(path))


@contextmanager
def open_file(path: str | PathLike, key: str, *, kind: str) -> Iterator[tuple[str, safe_open]]:
    """A safetensors file, open, and its header: the metadata under a key.

    Raises `MhaError` for a file that is missing or cannot be read, for one without that header, which is not
    of that kind, and for an error of the block inside: there header and tensors do not fit.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(key)
            if header is None:
                raise MhaError(f"{path} is a safetensors file but not {kind}.")
            yield header, file
    except FileNotFoundError:
        raise MhaError(f"There is no file {path}.") from None
    except MhaError:
        raise
    except (SafetensorError, OSError) as error:
        raise MhaError(f"{path} cannot be read as {kind}: {error}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise MhaError(f"{path} is damaged: its header does not fit its content ({error!r}).") from None


def unpacked(header: str, tensors: Mapping[str, Tensor], *, name: str = "The trace") -> Parts:
    """The parts of a trace from the header and the tensors that `packed` returned.

    Raises `MhaError` for another format version; parts that do not fit raise one of several errors, which
    `read` reports as a damaged file.
    """
    header = json.loads(header)
    if header["version"] not in (1, VERSION):
        raise MhaError(f"{name} has format version {header['version']}; this release reads 1 to {VERSION}.")
    header = _from_version_1(header, name) if header["version"] == 1 else header
    texts = [_tokens(part) for part in header["texts"]]
    layers = _layers(header, tensors, texts)
    for layer in layers:
        try:
            _check(layer)
        except MhaError as error:  # about the shapes; the file is to be named
            raise ValueError(str(error)) from None
    answers = tuple(
        None if answer is None else tuple((str(word), float(p)) for word, p in answer)
        for answer in header.get("answers", ())
    )
    mixers = tuple(_mixer(part, tensors) for part in header.get("mixers", ()))
    return texts[0], layers, read_source(header["source"]), answers, mixers


def _layers(header: dict, tensors: Mapping[str, Tensor], texts: list[Tokens]) -> tuple[LayerTrace, ...]:
    tensors = dict(tensors) | {name: tensors[name].mT for name in header["turned"]}
    return tuple(_layer(part, tensors, texts) for part in header["layers"])


def _layer(part: dict, tensors: dict, texts: list[Tokens]) -> LayerTrace:
    by_name = {name: tensors[key] for name, key in part["tensors"].items()}
    rule = {name.removeprefix("rule."): t for name, t in by_name.items() if name.startswith("rule.")}
    projections = {name: by_name[name] for name in Projections._fields if name in by_name}
    return LayerTrace(
        MappingProxyType({name: tensor for name, tensor in by_name.items() if name in TENSORS}),
        ScoreRule(**part["rule"], **rule),
        Projections(**projections),
        part.get("kind", "self"),
        part.get("name", ""),
        Facts.of(part.get("about", {})),
        Sides(*(texts[at] for at in part["sides"])),
    )


def _text_index(text: Tokens, texts: list[Tokens]) -> int:
    """The index of a text in `texts`, which grows by a new text; two equal texts stay two."""
    for at, other in enumerate(texts):
        if other is text:
            return at
    texts.append(text)
    return len(texts) - 1


def _from_version_1(header: dict, path: str | PathLike) -> dict:
    """A header of version 1, which has a text and an optional target, in the form of version 2."""
    rules = [dict(part["rule"]) for part in header["layers"]]
    if any(rule.pop("softmax", "row") != "row" for rule in rules):
        raise MhaError(
            f"{path} has weights that were normalised over a whole matrix; here each row sums to 1, so it "
            f"cannot be read."
        )
    layers = [part | {"rule": rule} for part, rule in zip(header["layers"], rules, strict=True)]
    sides = [KINDS[part.get("kind", "self")] for part in layers]
    only_cross = bool(sides) and all(pair == KINDS["cross"] for pair in sides)
    names = ("target", "text") if only_cross else ("text", "target")
    texts = {"text": header, "target": header.get("target")}
    layers = [
        part | {"sides": list(map(names.index, pair))} for part, pair in zip(layers, sides, strict=True)
    ]
    return header | {"texts": [texts[name] for name in names if texts[name]], "layers": layers}


def _tokens(part: dict) -> Tokens:
    """The tokens of a text; `ValueError` where their parts do not match."""
    tokens = Tokens(
        part["text"],
        tuple(part["pieces"]),
        tuple((start, end) for start, end in part["spans"]),
        tuple(part.get("words", ())),
        tuple(part.get("special", ())),
    )
    counts = {len(tokens), len(tokens.spans), len(tokens.words) or len(tokens)}
    texts = all(isinstance(text, str) for text in (tokens.text, *tokens.pieces))
    if not texts or len(counts) > 1 or not set(tokens.special) <= set(range(len(tokens))):
        raise ValueError("the tokens do not fit their text")
    return tokens


def _check(layer: LayerTrace) -> None:
    """Raise `ValueError` or `RuntimeError` unless all shapes match each other."""
    for names, count in ((QUERY_TENSORS, layer.n_query), (KEY_TENSORS, layer.n_key)):
        for name in names & set(layer.tensors):
            if layer.tensors[name].shape[-2] != count:
                raise ValueError(f"{name} has shape {tuple(layer.tensors[name].shape)}, but {count} tokens")
    if not layer.knows("q"):
        weights = layer.weights()
        if weights.ndim != 3 or not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"weights of shape {weights.shape} are not all finite and at least 0")
        return
    attend(layer.tensors["q"][:, :1], layer.tensors["k"], layer.tensors["v"])
    if not layer.knows("w_o"):
        layer.output(rows=[0])
    else:
        layer.contribution(rows=[0])


def _identity(tensor: Tensor) -> tuple:
    """A key that is equal for two tensors exactly when they are the same view of the same memory."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


# A layer is pickled as the bytes of its file: without cached results, with each shared tensor once, and
# without shared memory, of which a process has little.


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
