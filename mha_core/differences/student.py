"""A module in the reader's own file: its class, its arguments, and the ways in which it may be called."""

import inspect
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.module import AttentionSpec
from mha_core.errors import MhaError, Phrase, at_least_1, listed

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")  # of a name such as d_model or numHeads
MODULE = "headscope_checked"  # the name under which the file is run
BATCH = 2
LENGTHS = (7, 11, 5, 13, 17)  # of queries and keys: the first two that are no other size
HEADS, WIDTH = 3, 10  # by default: h and d_k
SHARED = 4, 3  # key/value heads, and query heads of each
LONGEST = 64  # tokens that a module is made for where it asks
# Names of arguments of a constructor, in lower case and without underscores; * is any part. The first fits.
ARGUMENTS = {
    "n_kv_heads": "*kvheads *keyvalueheads nkv nkvhead",
    "h": "h *heads nhead",
    "d_k": "dk dv dhead dimhead *headdim *headsize",
    "d_model": "d din dout dmodel modeldim dim width emb* dembed nembd hid*dim hiddensize numhiddens "
    "inputdim outputdim contextdim querydim querysize keysize valuesize kdim vdim",
    "dropout": "*drop*",
    "length": "blocksize context* max*len* max*position* nctx npositions seqlen",
    "causal": "*causal masked",
    "bias": "*bias",
    "device": "device",
}
ALWAYS = {"h", "d_model", "n_kv_heads", "causal", "dropout"}  # given where they have a default, too
# Names of inputs of `forward`: of queries, keys and values.
INPUTS = (
    "q query queries x input inputs hiddenstates tokens embeddings xq hidden h src embedded",
    "k key keys xk context memory encoderoutput kv xkv encoderhiddenstates keyvaluestates y",
    "v value values xv",
)
PLACES = {name: place for place, names in enumerate(INPUTS) for name in names.split()}


@dataclass(frozen=True)
class Signature:
    """The arguments of `forward`: inputs as q, k, v; masks, by whether they are needed; a causal switch."""

    inputs: tuple[str, ...]
    masks: Mapping[str, bool]
    causal: str | None


@dataclass(frozen=True)
class Case:
    """The inputs of one run, what a query may look at, and which keys are no padding."""

    inputs: tuple[Tensor, ...]
    mask: Tensor | None = None  # (batch or 1, 1, query, key)
    padding: Tensor | None = None  # (batch, 1, 1, key)

    @property
    def visible(self) -> Tensor:
        """True where a query may look, by the mask and the padding. (batch, 1, query or 1, key)"""
        given = [one for one in (self.mask, self.padding) if one is not None]
        return torch.stack(torch.broadcast_tensors(*given)).all(0).expand(BATCH, -1, -1, -1)

    def causal(self) -> "Case":
        """The same for a module that also hides later keys by itself."""
        lower = torch.ones(1, 1, self.inputs[0].shape[1], self.inputs[-1].shape[1], dtype=torch.bool).tril()
        return replace(self, mask=lower if self.mask is None else self.mask & lower)


def attention_class(file: Path, name: str | None = None) -> type[nn.Module]:
    """The class of that name in a Python file, or its only one for attention. The file is run.

    Raises `MhaError` for a file that cannot be run, and where no class or several could be meant.
    """
    if not file.is_file():
        raise MhaError("There is no Python file {file}.", file=str(file))
    sys.path.insert(0, str(file.parent))
    try:
        values = runpy.run_path(str(file), run_name=MODULE)
    except Exception as error:
        raise MhaError("{file} cannot be run: {error}.", file=file.name, error=said(error)) from error
    classes = {
        value.__name__: value
        for value in values.values()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == MODULE
    }
    if name is not None and name not in classes:
        raise MhaError(
            "{file} has no module {name}; its modules are {names}.",
            file=file.name,
            name=name,
            names=listed(classes, "and") if classes else "none",
        )
    names = list(classes) if name is None else [name]
    for word in ("multihead", "mha", "attention", "attn"):
        names = [one for one in names if word in one.lower()] or names
    if len(names) != 1:
        raise MhaError(
            "{file} has {count} classes that could be meant: {names}. Name one with --class.",
            file=file.name,
            count=len(names),
            names=listed(names, "or") if names else "none",
        )
    return classes[names[0]]


def made(
    kind: type[nn.Module],
    h: int | None,
    d_model: int | None,
    given: Mapping[str, Any],
    *,
    is_shared: bool = False,
) -> tuple[nn.Module, AttentionSpec, dict[str, Any]]:
    """A module, in double precision, its sizes, by which all axes differ, and the arguments it was made with.

    All its weights are random, its biases, too: one that is 0 could be missing unnoticed. Raises `MhaError`
    for sizes that do not fit together, and for arguments that the class does not have or whose meaning is
    not known.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    if unknown := sorted(set(given) - set(parameters)):
        raise MhaError(
            "{kind} has no argument {name}; its arguments are {names}.",
            kind=kind.__name__,
            name=unknown[0],
            names=listed(parameters, "and") if parameters else "none",
        )
    asked = {meaning(name): value for name, value in given.items()}
    is_shared |= "n_kv_heads" in map(meaning, parameters)
    wanted = h, d_model
    if h is None:
        h = asked.get("h", SHARED[0] * SHARED[1] if is_shared else HEADS)
    at_least_1("h", h, Phrase("heads"))
    if d_model is None:
        d_model = asked.get("d_model", WIDTH * h)
    n_kv = asked.get("n_kv_heads", next(n for n in (SHARED[0], 2, 1) if h % n == 0) if is_shared else h)
    spec = AttentionSpec(d_model, h, n_kv)
    values: dict[str, Any] = {"h": h, "d_model": d_model, "n_kv_heads": n_kv, "d_k": spec.d_k}
    values |= {"dropout": 0.1, "length": LONGEST, "causal": True, "bias": True, "device": "cpu"}
    arguments: dict[str, Any] = {}
    settings = _Settings(values)
    for name, parameter in parameters.items():
        needed = parameter.default is inspect.Parameter.empty
        meant = meaning(name)
        if name in given:
            arguments[name] = given[name]
        elif meant in values and (needed or meant in ALWAYS):
            arguments[name] = values[meant]
        elif needed and _plain(name) in ("config", "cfg", "args", "conf", "c"):
            arguments[name] = settings
        elif needed:
            raise MhaError(
                "{kind} needs the argument {name}, whose meaning is not known. Give it a value, as in "
                "--argument {name}=8.",
                kind=kind.__name__,
                name=name,
            )
    torch.manual_seed(0)
    try:
        module = kind(**arguments)
    except MhaError:
        raise
    except Exception as error:
        raise MhaError(
            "{kind}({arguments}) cannot be made: {error}.",
            kind=kind.__name__,
            arguments=", ".join(f"{name}={value}" for name, value in arguments.items()),
            error=said(error),
        ) from error
    if "n_kv_heads" in settings.asked and not is_shared:
        return made(kind, *wanted, given, is_shared=True)
    with torch.no_grad():
        for weight in module.parameters():
            width = d_model if weight.dim() > 1 else 4
            weight.copy_(1.5 * width**-0.5 * torch.randn(weight.shape))
    return module.double().eval(), spec, arguments


class _Settings:
    """The settings of a class that takes them all in one argument, as attributes or by name."""

    def __init__(self, values: Mapping[str, Any]):
        self.values_by_meaning = values
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if (meant := meaning(name)) is None:
            raise AttributeError(f"a setting {name} whose meaning is not known")
        self.asked.add(meant)
        return self.values_by_meaning[meant]

    __getitem__ = __getattr__

    def get(self, name: str, default: Any = None) -> Any:
        return default if meaning(name) is None else self[name]

    def __repr__(self) -> str:
        return "the sizes"


def signature(module: nn.Module) -> Signature:
    """The inputs and masks of `forward`, by their names and their order.

    Raises `MhaError` for a needed argument whose meaning is not known.
    """
    inputs: list[str] = []
    masks: dict[str, bool] = {}
    causal = None
    for name, parameter in inspect.signature(module.forward).parameters.items():
        plain = _plain(name)
        needed = parameter.default is inspect.Parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if "causal" in plain:
            causal = name
        elif "mask" in plain or plain in ("padding", "validlens"):
            masks[name] = needed
        elif needed or (inputs and plain in PLACES):
            inputs.append(name)
    if not 1 <= len(inputs) <= 3:
        raise MhaError(
            "forward takes {n} inputs ({names}); one, two or three can be given: x, or q, k and v.",
            n=len(inputs),
            names=listed(inputs, "and") if inputs else "none",
        )
    places = {PLACES.get(_plain(name), -1): name for name in inputs}
    if len(places) == len(inputs) and -1 not in places:  # as in forward(value, key, query)
        inputs = [places[place] for place in sorted(places)]
    return Signature(tuple(inputs), masks, causal)


def cases(of: AttentionSpec, n_inputs: int, *, masked: bool, one_length: bool = False) -> list[Case]:
    """Runs that tell the mistakes apart: no two axes are of one length.

    Four have a mask and no padding, one of them a query that may look at no key; three have padding.
    """
    taken = {BATCH, of.n_heads, of.n_kv_heads, of.n_heads // of.n_kv_heads, of.d_k, 3}
    length, other = [n for n in LENGTHS if n not in taken][:2]
    generator = torch.Generator().manual_seed(1)

    def case(n_key: int, mask: Tensor | None = None, hidden: int = 0) -> Case:
        sizes = [(BATCH, n, of.d_model) for n in (length, n_key, n_key)[:n_inputs]]
        inputs = tuple(torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
        padding = torch.ones(BATCH, 1, 1, n_key, dtype=torch.bool)
        padding[hidden % BATCH, ..., n_key - hidden :] = False
        return Case(inputs, mask, padding if hidden else None)

    across = length if n_inputs == 1 or one_length else other
    if not masked:
        return [case(across), case(length), case(length)]

    def scattered(n_key: int) -> Tensor:
        mask = torch.rand(1, 1, length, n_key, generator=generator) > 0.4
        mask[..., 0] = True
        return mask

    lower = case(length).causal().mask
    blind = scattered(length)
    blind[..., 1, :] = False
    return [
        case(across, scattered(across)),
        case(length, blind),
        case(length, lower),
        case(length, scattered(length)),
        case(length, lower, 2),
        case(across, scattered(across), 3),
        case(length, None, 1),
    ]


class Form(NamedTuple):
    """One way to call a module: what True in its mask means, and the runs with their masks in that form.

    Without a mask the meaning is "causal" for a module that makes one itself, and "" for one that makes none.
    """

    meaning: str
    runs: Sequence[tuple[Case, Tensor | None]]


# A mask that is True where a query may look, as people write masks; the first word is what True means.
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "keep": lambda visible: visible,
    "hide": lambda visible: ~visible,
    "keep number": lambda visible: visible.double(),
    "hide number": lambda visible: (~visible).double(),
    "added": lambda visible: torch.zeros(visible.shape).double().masked_fill(~visible, -torch.inf),
}


def forms(runs: Sequence[Case], meaning: str | None = None) -> Iterator[Form]:
    """The ways in which people write masks: by shape, by what True means ("keep" or "hide"), and by type."""
    masked = [case for case in runs if case.mask is not None]
    same = [case for case in masked if case.padding is None]  # for all texts
    padded = [replace(case, mask=None) for case in runs if case.padding is not None]
    texts = slice(None)
    shapes = (masked, ()), (masked, (texts, 0)), (same, (0, 0)), (padded, ()), (padded, (texts, 0, 0))
    for (cases, part), (kind, written) in product(shapes, KINDS.items()):
        if meaning in (None, says := kind.split()[0]):
            yield Form(says, [(case, written(case.visible[part])) for case in cases])
    if meaning in (None, "keep"):
        yield Form("keep", [(case, case.visible.sum(-1).flatten()) for case in padded])  # lengths


def meaning(name: str) -> str | None:
    plain = _plain(name)
    fitting = (meant for meant, names in ARGUMENTS.items() for n in names.split() if fnmatchcase(plain, n))
    return next(fitting, None)


def _plain(name: str) -> str:
    return "".join(WORD.findall(name)).lower()


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": .")
