"""Traces on disk: one safetensors file with a JSON header. No pickles, nothing is executed."""

import copyreg
import json
import os
from collections.abc import Mapping
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
from mha_core.traces.source import Source
from mha_core.traces.source import read as read_source
from mha_core.traces.tokens import Sides, Tokens

HEADER = "headscope_trace"
VERSION = 2
TENSORS = (
    *("q", "k", "v", "x", "x_v", "weights", "q_raw", "k_raw", "cos", "sin"),
    *("q_linear", "k_linear", "v_linear", "q_turned", "k_turned", "q_short", "kv_short"),
)
PLAIN = ("scale", "soft_cap", "temperature")  # the fields of a rule that are no tensors


Parts = tuple[Tokens, tuple[LayerTrace, ...], Source, tuple]  # as `AttentionTrace` takes them


def write(path: str | PathLike, parts: Parts, *, matrices: bool = True) -> None:
    """Write the parts of a trace to `path`, replacing an existing file in one step; see `packed`."""
    path = Path(path)
    if not path.parent.is_dir():
        raise MhaError(f"There is no folder {path.parent} to save {path.name} in.")
    header, tensors = packed(parts, matrices=matrices)
    write_file(path, tensors, {HEADER: header})


def packed(parts: Parts, *, matrices: bool = True) -> tuple[str, dict[str, Tensor]]:
    """The parts of a trace as a header in JSON and tensors by name, of which `unpacked` makes them again.

    Without `matrices` the layers' W and b are left out, and are not known where the trace is read.
    """
    tokens, layers, source, answers = parts
    texts = [tokens]  # the trace's own first; each once
    described, tensors = _described(layers, texts, matrices=matrices)
    header = {"version": VERSION, "texts": [asdict(text) for text in texts], **described}
    return json.dumps(header | {"source": source.plain(), "answers": answers}), tensors


def _described(
    layers: tuple[LayerTrace, ...], texts: list[Tokens], *, matrices: bool = True
) -> tuple[dict, dict[str, Tensor]]:
    """The layers' part of a header, and their tensors; `texts` that are new are appended."""
    tensors, described, stored = {}, [], {}
    turned = set()  # matrices that lie in memory column by column, as those of nn.Linear do
    for index, layer in enumerate(layers):
        held = {**layer.tensors, **{f"rule.{name}": tensor for name, tensor in layer.rule.tensors().items()}}
        if matrices:
            held |= {name: getattr(layer.projections, name) for name in layer.projections.known}
        names = {}
        for name, tensor in held.items():
            # Layers that share a tensor, a mask above all, share it in the file too.
            names[name] = key = stored.setdefault(_place(tensor), f"{index}.{name}")
            if tensor.dim() == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous():
                turned.add(key)
                tensor = tensor.mT
            tensors[key] = tensor.clone(memory_format=torch.contiguous_format)
        rule = {field: getattr(layer.rule, field) for field in PLAIN}
        sides = [_number(text, texts) for text in (layer.sides.queries, layer.sides.keys)]
        said = {"kind": layer.kind, "name": layer.name, "about": layer.about.plain(), "sides": sides}
        described.append({"tensors": names, "rule": rule} | said)
    return {"layers": described, "turned": sorted(turned)}, tensors


def write_file(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file beside `path` and rename it: a reader sees the old file or the new."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        temporary.touch()
        permissions = temporary.stat().st_mode  # those of any new file; safetensors would narrow them
        save_file(tensors, temporary, metadata=metadata)
        temporary.chmod(permissions)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | PathLike) -> Parts:
    """The parts of a trace that `write` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            if header is None:
                raise MhaError(f"{path} is a safetensors file but no saved trace.")
            # Copied to memory of torch's own: products can round by where in memory numbers lie.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return unpacked(header, tensors, name=str(path))
    except FileNotFoundError:
        raise MhaError(f"There is no file {path}.") from None
    except MhaError:
        raise
    except (SafetensorError, OSError) as error:
        raise MhaError(f"{path} cannot be read as a saved trace: {error}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise MhaError(f"{path} is damaged: its header does not fit its content ({error!r}).") from None


def unpacked(header: str, tensors: Mapping[str, Tensor], *, name: str = "The trace") -> Parts:
    """The parts of a trace from what `packed` made of them; errors of many kinds where they do not fit."""
    header = json.loads(header)
    if header["version"] not in (1, VERSION):
        raise MhaError(f"{name} has format version {header['version']}; this release reads 1 to {VERSION}.")
    header = _second(header, name) if header["version"] == 1 else header
    texts = [_tokens(part) for part in header["texts"]]
    layers = _layers(header, tensors, texts)
    for layer in layers:
        _check(layer)
    answers = tuple(
        None if answer is None else tuple((str(word), float(p)) for word, p in answer)
        for answer in header.get("answers", ())
    )
    return texts[0], layers, read_source(header["source"]), answers


def _layers(header: dict, tensors: Mapping[str, Tensor], texts: list[Tokens]) -> tuple[LayerTrace, ...]:
    tensors = dict(tensors) | {name: tensors[name].mT for name in header["turned"]}
    return tuple(_layer(part, tensors, texts) for part in header["layers"])


def _layer(part: dict, tensors: dict, texts: list[Tokens]) -> LayerTrace:
    held = {name: tensors[key] for name, key in part["tensors"].items()}
    rule = {name.removeprefix("rule."): t for name, t in held.items() if name.startswith("rule.")}
    projections = {name: held[name] for name in Projections._fields if name in held}
    return LayerTrace(
        MappingProxyType({name: held[name] for name in TENSORS if name in held}),
        ScoreRule(**part["rule"], **rule),
        Projections(**projections),
        part.get("kind", "self"),
        part.get("name", ""),
        Facts.of(part.get("about", {})),
        Sides(*(texts[at] for at in part["sides"])),
    )


def _number(text: Tokens, texts: list[Tokens]) -> int:
    """Where a text stands among the texts, at their end if it is new: equal ones can be two."""
    for at, other in enumerate(texts):
        if other is text:
            return at
    texts.append(text)
    return len(texts) - 1


def _second(header: dict, path: str | PathLike) -> dict:
    """A header of version 1, which has one text and perhaps a target, as version 2 has it."""
    rules = [dict(part["rule"]) for part in header["layers"]]
    if any(rule.pop("softmax", "row") != "row" for rule in rules):
        raise MhaError(
            f"{path} has weights that were normalised over a whole matrix; here each row sums to 1, so it "
            f"cannot be read."
        )
    layers = [part | {"rule": rule} for part, rule in zip(header["layers"], rules, strict=True)]
    sides = [KINDS[part.get("kind", "self")] for part in layers]
    names = (
        ("target", "text") if sides and all(both == KINDS["cross"] for both in sides) else ("text", "target")
    )
    texts = {"text": header, "target": header.get("target")}
    layers = [
        part | {"sides": list(map(names.index, both))} for part, both in zip(layers, sides, strict=True)
    ]
    return header | {"texts": [texts[name] for name in names if texts[name]], "layers": layers}


def _tokens(part: dict) -> Tokens:
    """The tokens of a text; `ValueError` where the parts do not fit each other."""
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
    """Raise `ValueError` or `RuntimeError` unless all parts fit each other; the trace checks their number."""
    rows = {"q", "x", "q_raw", "q_linear", "q_turned", "cos", "sin", "q_short"}
    keys = {"k", "v", "x_v", "k_raw", "k_linear", "k_turned", "v_linear", "kv_short"}
    for names, count in ((rows, layer.n_query), (keys, layer.n_key)):
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


def _place(tensor: Tensor) -> tuple:
    """What two tensors have in common exactly when they are views of the same numbers."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


# A layer travels between processes as it lies in a file, in bytes: what it computed before stays behind, what
# several tensors share travels once, and no shared memory is held, of which a process has little.


def as_bytes(tensors: dict[str, Tensor]) -> bytes:
    return safetensors.torch.save(tensors)


def from_bytes(content: bytes) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}


def _pickled(layer: LayerTrace) -> tuple:
    texts: list[Tokens] = []
    header, tensors = _described((layer,), texts)
    return _unpickled, (header, [replace(text) for text in texts], as_bytes(tensors))  # without their caches


def _unpickled(header: dict, texts: list[Tokens], content: bytes) -> LayerTrace:
    [layer] = _layers(header, from_bytes(content), texts)
    return layer


copyreg.pickle(LayerTrace, _pickled)
