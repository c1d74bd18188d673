"""Edits: changes of attention for an experiment, as frozen values.

An edit says where it acts (layer, kind of attention, heads, rows, keys; each of these is optional and means
all if it is left out) and what it changes there. It changes the score rule that is passed to `attend`, and
with it everything that follows: the head's output, later layers, the model's answer. The model itself is not
changed.

>>> import mha_core as mha
>>> trace = mha.trace("How are you?", h=4, d_model=64, edits=[mha.edits.Hide(rows="How", keys="you")])
>>> float(trace.layers[0].weights(head=2)[0, 2])
0.0

Layers, heads and positions count from 0, negative ones from the end; you can also name a token by its word,
as in `Tokens.index`. Edits of scores act first, in the order given, then patches of weights, then patches of
outputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import index as whole_number
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from mha_core.attention import masks
from mha_core.attention.positions import POSITIONS
from mha_core.attention.score_rule import COMPUTED, ScoreRule
from mha_core.errors import MhaError, Phrase, listed, named_type, one_of

if TYPE_CHECKING:
    from mha_core.attention.latent import LatentAttention
    from mha_core.attention.module import MultiHeadAttention

MAX_NUMBERS = 1 << 22  # in the values of an edit, or in its table for a layer: 16 MB
MAX_EDITS = 64
ROUNDING = 1e-3  # of the sum of a row of given weights
KINDS = ("self", "encoder", "decoder", "cross")

Heads = int | Sequence[int] | None
Positions = int | str | Sequence[int | str] | None


class Text(Protocol):
    """The part of `Tokens` that an edit uses."""

    def __len__(self) -> int: ...
    def index(self, token: str) -> int: ...


@dataclass(frozen=True)
class Site:
    """The attention that an edit acts on: its kind, its sizes, and the texts of its queries and keys."""

    kind: str
    n_heads: int
    d_v: int
    queries: Text
    keys: Text

    def positions(self, axis: str, edit: "Edit") -> list[int] | None:
        """The positions of the heads, rows or keys that an edit names, from 0; None for all of them.

        Raises `MhaError` for a number outside the axis.
        """
        picked: tuple[int | str, ...] | None = getattr(edit, axis, None)
        if picked is None:
            return None
        text = self.queries if axis == "rows" else self.keys
        count = self.n_heads if axis == "heads" else len(text)
        numbers = [text.index(one) if isinstance(one, str) else one for one in picked]
        for number in numbers:
            if not -count <= number < count:
                raise MhaError(
                    "“{edit}” names {axis} that are not there: there are {count}, counted from 1.",
                    edit=edit.describe(),
                    axis=axis,
                    count=count,
                )
        return [number % count for number in numbers]

    def cells(self, edit: "Edit") -> Tensor:
        """True in the heads, rows and keys that an edit names. (head or 1, query or 1, key or 1)"""
        masks = []
        for axis, count in (("heads", self.n_heads), ("rows", len(self.queries)), ("keys", len(self.keys))):
            at = self.positions(axis, edit)
            mask = torch.ones(1, dtype=torch.bool) if at is None else torch.zeros(count, dtype=torch.bool)
            if at is not None:
                mask[at] = True
            masks.append(mask)
        heads, rows, keys = masks
        return heads[:, None, None] & rows[:, None] & keys


@dataclass(frozen=True, kw_only=True)
class Edit(ABC):
    """A change of attention in one `layer` or all, of one `kind` (self, encoder, decoder, cross) or all.

    With a `kind`, `layer` counts only the layers of that kind.
    """

    name: ClassVar[str]
    stage: ClassVar[int] = 0  # edits act in this order: scores, weights, outputs
    layer: int | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.layer is not None:
            object.__setattr__(self, "layer", _whole("layer", self.layer))
        if self.kind is not None:
            one_of(Phrase("kind of attention"), self.kind, KINDS, parameter="kind")
        for axis in ("heads", "rows", "keys"):
            if getattr(self, axis, None) is not None:
                object.__setattr__(self, axis, _picked(axis, getattr(self, axis)))

    def cells(self, site: Site) -> Tensor:
        """True in the cells that the edit changes. (head or 1, query or 1, key or 1)"""
        return site.cells(self)

    @abstractmethod
    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        """The score rule with this edit. Raises `MhaError` where the edit does not fit the attention."""

    def describe(self) -> Phrase:
        """The edit in a few words for titles and captions, which count from 1."""
        places: list[str] = []
        places += [] if self.layer is None else [Phrase("layer {layer}", layer=_ordinal(self.layer))]
        places += [] if self.kind is None else [self.kind]
        for axis in ("heads", "rows", "keys"):
            picked = getattr(self, axis, None)
            if picked is not None:
                places.append(_place(axis, picked))
        change = self.what()
        return (
            Phrase("{change}: {places}", change=change, places=listed(places, "comma")) if places else change
        )

    @abstractmethod
    def what(self) -> Phrase:
        """The change, in a few words."""

    def to_json(self) -> dict[str, object]:
        """The edit as JSON values; `read` is the inverse."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"edit": self.name} | {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Hide(Edit):
    """Hide keys from queries, as a mask does: the scores of these cells become −∞.

    ``Hide(rows="it", keys="animal")`` blocks "it" from "animal" in all heads, ``Hide(keys="animal")`` hides a
    token from all others, and ``Hide(rows="it")`` hides all keys from a query, so that its outputs are 0.
    """

    name: ClassVar[str] = "hide"
    heads: Heads = None
    rows: Positions = None
    keys: Positions = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is self.keys is None:
            raise MhaError("Hide needs rows= or keys=; Output(0.0) switches whole heads off.")

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        return rule.hiding(~self.cells(site))

    def what(self) -> Phrase:
        return Phrase("hide")


@dataclass(frozen=True, kw_only=True)
class Mask(Edit):
    """Hide further cells by the name of a mask: ``Mask(mask="causal")``, ``Mask(mask="window:3")``.

    The names are those of `mha_core.attention.masks.MASKS`.
    """

    name: ClassVar[str] = "mask"
    mask: str
    heads: Heads = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.mask, str):
            raise MhaError("mask of Mask is a name, as 'causal'; got {type}.", type=named_type(self.mask))
        masks.build(self.mask, 1, 1)  # raises an error with the known names

    def cells(self, site: Site) -> Tensor:
        visible = masks.build(self.mask, len(site.queries), len(site.keys))
        return site.cells(self) & (torch.zeros(1, 1, dtype=torch.bool) if visible is None else ~visible)

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        hidden = self.cells(site)
        return rule.hiding(~hidden) if hidden.any() else rule

    def what(self) -> Phrase:
        return Phrase("mask {mask}", mask=self.mask)


@dataclass(frozen=True, kw_only=True)
class Evict(Edit):
    """Drop rows of a cache: from the query `since` on, no query looks at these keys any more.

    Queries before it have looked at them, and what they computed of them stays. Raises `MhaError` as `Hide`.
    """

    name: ClassVar[str] = "evict"
    keys: Positions
    since: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "since", _whole("since", self.since))

    def cells(self, site: Site) -> Tensor:
        later = torch.arange(len(site.queries)) >= self.since
        return site.cells(self) & later[:, None]

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        return rule.hiding(~self.cells(site))

    def what(self) -> Phrase:
        return Phrase("evict from the cache in row {since}", since=self.since + 1)


@dataclass(frozen=True, kw_only=True)
class Exchange(Edit):
    """Exchange two rows of a cache, key and value together, for the queries from `since` on.

    A weight goes with its row, so nothing changes but what depends on the place in the cache: a mask, a bias,
    the table of ALiBi. A rotary or an added position code is inside the key and goes with it.
    """

    name: ClassVar[str] = "exchange"
    one: int
    other: int
    since: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("one", "other", "since"):
            object.__setattr__(self, field, _whole(field, getattr(self, field)))
        if not 0 <= min(self.one, self.other) <= max(self.one, self.other) < self.since:
            raise MhaError(
                "Rows {one} and {other} of a cache can change places once both are there, in row {after}.",
                one=self.one + 1,
                other=self.other + 1,
                after=max(self.one, self.other) + 2,
            )

    def order(self, n_key: int) -> list[int]:
        """The row of each place in a cache of so many rows."""
        order = [*range(n_key)]
        order[self.one], order[self.other] = self.other, self.one
        return order

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        n_query, n_key = len(site.queries), len(site.keys)
        if self.since >= n_query:
            return rule
        laid_out = rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key)
        later, order = (torch.arange(n_query) >= self.since)[:, None], self.order(n_key)
        tables: dict[str, Any] = {"bias": laid_out.bias, "mask": laid_out.mask}
        for name, table in tables.items():
            if table is not None and table.shape[-1] > 1:
                tables[name] = torch.where(later, table[..., order], table)
        return replace(laid_out, **tables)

    def what(self) -> Phrase:
        one, other, at = self.one + 1, self.other + 1, self.since + 1
        return Phrase("exchange rows {one}, {other} of the cache in row {at}", one=one, other=other, at=at)


@dataclass(frozen=True, kw_only=True)
class Scale(Edit):
    """Multiply raw scores by another factor than ``1/√d_k``; ``Scale(factor=1.0)`` does not scale them."""

    name: ClassVar[str] = "scale"
    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factor", _number("factor", self.factor))
        ScoreRule(scale=self.factor)

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        return replace(rule, scale=self.factor)

    def what(self) -> Phrase:
        return Phrase("scale {factor:.4g}", factor=self.factor)


@dataclass(frozen=True, kw_only=True)
class Temperature(Edit):
    """Divide scores, before the softmax, by a temperature: above 1 rows become flatter, below 1 sharper."""

    name: ClassVar[str] = "temperature"
    temperature: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "temperature", _number("temperature", self.temperature))
        ScoreRule(temperature=self.temperature)  # raises an error with the allowed range

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        return replace(rule, temperature=rule.temperature * self.temperature)

    def what(self) -> Phrase:
        return Phrase("temperature {temperature:.4g}", temperature=self.temperature)


@dataclass(frozen=True, kw_only=True)
class Bias(Edit):
    """Add numbers to the scaled scores of some cells, as in ``Bias(values=2.0, rows="it", keys="animal")``.

    `values` is one number, or a table (…, row, key) for the selected `rows` and `keys`.
    """

    name: ClassVar[str] = "bias"
    values: object
    heads: Heads = None
    rows: Positions = None
    keys: Positions = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "values", _numbers("values of Bias", self.values))

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        bias = _laid_out(self, site, len(site.keys), 0.0)
        if not bias.any():
            return rule  # a bias of 0 would select a kernel that rounds differently
        return replace(rule, bias=bias if rule.bias is None else rule.bias + bias.to(rule.bias))

    def what(self) -> Phrase:
        is_number = isinstance(self.values, float)
        return Phrase("bias {number:+.4g}", number=self.values) if is_number else Phrase("bias")


@dataclass(frozen=True, kw_only=True)
class Weights(Edit):
    """Replace the computed weights of whole rows.

    `values` is (key,), (row, key) or (head, row, key) for the selected rows and heads. None makes the weights
    uniform over the keys that a row may look at. To patch a row from another trace (Vig et al. 2020,
    "Investigating gender bias in language models using causal mediation analysis"), use
    ``Weights(values=other.layers[1].weights(rows=[8]), rows=8, layer=1)``. Numbers are float32.
    Raises `MhaError` for numbers that are not weights, and, on an attention, for weight on a hidden cell.
    """

    name: ClassVar[str] = "weights"
    stage: ClassVar[int] = 1
    values: object = None
    heads: Heads = None
    rows: Positions = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is None:
            return
        values = _numbers("values of Weights", self.values)
        object.__setattr__(self, "values", values)
        table = torch.tensor(values, dtype=torch.float64)
        if not table.dim() or table.min() < 0 or table.sum(-1).max() > 1 + ROUNDING:
            raise MhaError(
                "values of Weights are rows of weights: at least 0, and a row sums to 1 or less; "
                "Weights() without values makes rows uniform."
            )

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        n_query, n_key = len(site.queries), len(site.keys)
        mask = rule.at(slice(None), slice(None), n_query=n_query, n_key=n_key).mask
        mask = torch.ones(1, 1, 1, dtype=torch.bool) if mask is None else mask
        visible = mask.reshape(-1, *mask.shape[-2:]).expand(-1, n_query, n_key)
        if self.values is None:
            cells = site.cells(self)
            _check_count(self, torch.broadcast_shapes(cells.shape, visible.shape))
            table = visible / visible.sum(-1, keepdim=True).clamp_min(1)
            patches = torch.where(cells, table, COMPUTED)
        else:
            patches = _laid_out(self, site, n_key, COMPUTED)
            if ((patches != COMPUTED) & (patches > 0) & ~visible).any():
                raise MhaError(
                    "An edit puts weight on a cell that is hidden from its query; lift the mask, or take 0."
                )
        return replace(rule, patched_weights=_over(patches, rule.patched_weights))

    def what(self) -> Phrase:
        return Phrase("uniform weights" if self.values is None else "patched weights")


@dataclass(frozen=True, kw_only=True)
class Output(Edit):
    """Replace the outputs of heads: ``Output(values=0.0, heads=3)`` switches head 3 off.

    `values` is one number, or (d_v,), (row, d_v) or (head, row, d_v) for the selected rows and heads, such as
    the mean over many sentences (mean ablation: Wang et al. 2022) or the output in another trace (patching).
    """

    name: ClassVar[str] = "output"
    stage: ClassVar[int] = 2
    values: object = 0.0
    heads: Heads = None
    rows: Positions = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "values", _numbers("values of Output", self.values))

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        width = 1 if isinstance(self.values, float) else site.d_v
        return replace(
            rule,
            patched_outputs=_over(_laid_out(self, site, width, COMPUTED), rule.patched_outputs),
        )

    def what(self) -> Phrase:
        return Phrase("off" if self.values == 0.0 else "patched output")


@dataclass(frozen=True, kw_only=True)
class ModuleEdit(Edit):
    """A change of the module around attention, for our own modules; the score rule stays."""

    def on(self, rule: ScoreRule, site: Site) -> ScoreRule:
        return rule

    def on_module(self, attention: "MultiHeadAttention | LatentAttention") -> None:
        """Change the attention of one layer, in place."""


@dataclass(frozen=True, kw_only=True)
class Concatenation(ModuleEdit):
    """Concatenate the heads' outputs without W^O: it becomes the identity, without a bias.

    With one head this is single-head self-attention. It works for random weights and small models with
    ``h · d_v = d_model``.
    """

    name: ClassVar[str] = "concatenation"

    def on_module(self, attention: "MultiHeadAttention | LatentAttention") -> None:
        """Make W^O the identity, in place. Raises `MhaError` unless ``h · d_v = d_model``."""
        w_o, n_heads = attention.o, attention.spec.n_heads
        width, d_model = w_o.in_features, w_o.out_features
        if width != d_model:
            raise MhaError(
                "W^O can be the identity where h · d_v = d_model; here they are {width} and {d_model}.",
                width=width,
                d_model=d_model,
                fixes=({"d_v": None},) if d_model % n_heads == 0 else (),
            )
        identity = torch.eye(width, device=w_o.weight.device, dtype=w_o.weight.dtype)
        w_o.weight = nn.Parameter(identity, requires_grad=False)
        w_o.register_parameter("bias", None)

    def what(self) -> Phrase:
        return Phrase("W^O = I")


@dataclass(frozen=True, kw_only=True)
class SameHeads(ModuleEdit):
    """Give all heads the W^Q, W^K and W^V of the first one: they compute the same, as one head does.

    W^O stays. It works for random weights and small models.
    """

    name: ClassVar[str] = "same heads"

    def on_module(self, attention: "MultiHeadAttention | LatentAttention") -> None:
        with torch.no_grad():
            for part, n_heads in attention.parts():
                rows = part.unflatten(0, (n_heads, -1))
                rows.copy_(rows[:1].clone().expand_as(rows))

    def what(self) -> Phrase:
        return Phrase("the same W in all heads")


@dataclass(frozen=True, kw_only=True)
class Position(ModuleEdit):
    """Use another position encoding, by its name in `positions.POSITIONS`; "none" uses no positions.

    It works for random weights and small models, and acts on all layers.
    """

    name: ClassVar[str] = "position"
    code: str

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("position", self.code, POSITIONS, parameter="code")
        if self.layer is not None or self.kind is not None:
            raise MhaError("A position encoding applies to all layers; leave layer and kind out.")

    def what(self) -> Phrase:
        return Phrase("position {code}", code=self.code)


OF_MODULES = (Concatenation, SameHeads, Position)
TYPES: Mapping[str, type[Edit]] = {
    kind.name: kind
    for kind in (Hide, Mask, Evict, Exchange, Scale, Temperature, Bias, Weights, Output, *OF_MODULES)
}


def edited(
    rule: ScoreRule, edits: Sequence[Edit], site: Site, device: torch.device | str = "cpu"
) -> ScoreRule:
    """A score rule with the edits of one attention; all its tensors are on `device`."""
    for edit in sorted(edits, key=lambda edit: edit.stage):
        rule = edit.on(rule.mapped(Tensor.cpu), site)
    return rule.mapped(lambda tensor: tensor.to(device)) if edits else rule


def by_layer(
    edits: Sequence[Edit], sites: Sequence[Site], *, modules: bool = False
) -> list[tuple[Edit, ...]]:
    """The edits of each layer.

    Raises `MhaError` for an edit that acts on no layer and, without `modules`, for one of the module around
    attention.
    """
    chosen: list[list[Edit]] = [[] for _ in sites]
    for edit in edits:
        if isinstance(edit, ModuleEdit) and not modules:
            raise MhaError(
                "The edit “{edit}” changes what stands around attention; that can be done with "
                "random weights and the small models alone (source='random' or 'mini').",
                edit=edit.describe(),
            )
        layers = [layer for layer, site in enumerate(sites) if edit.kind in (None, site.kind)]
        if not layers:
            kinds = dict.fromkeys(site.kind for site in sites)
            raise MhaError(
                "The edit “{edit}” acts on no layer: these are of the kind {kinds}.",
                edit=edit.describe(),
                kinds=listed(kinds, "or"),
            )
        if edit.layer is not None:
            if not -len(layers) <= edit.layer < len(layers):
                raise MhaError(
                    "“{edit}” names a layer that is not there: there are {count}, counted from 1.",
                    edit=edit.describe(),
                    count=len(layers),
                    fixes=({"layer": 0 if edit.layer < 0 else len(layers) - 1},),
                )
            layers = [layers[edit.layer]]
        for layer in layers:
            chosen[layer].append(edit)
    return [tuple(edits_of_layer) for edits_of_layer in chosen]


def checked(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """The edits as a tuple. Raises `MhaError` for anything that is not an edit, and for too many."""
    if isinstance(edits, Edit):
        edits = (edits,)
    if not isinstance(edits, list | tuple) or not all(isinstance(edit, Edit) for edit in edits):
        kinds = ", ".join(f"mha.edits.{kind.__name__}" for kind in TYPES.values())
        raise MhaError(
            "edits is a list of edits, each one of {kinds}; got {edits:.100}.", kinds=kinds, edits=repr(edits)
        )
    if len(edits) > MAX_EDITS:
        raise MhaError("{n_edits} edits are more than {limit}.", n_edits=len(edits), limit=MAX_EDITS)
    return tuple(edits)


def read(values: Mapping[str, object]) -> Edit:
    """The edit that `Edit.to_json` wrote. Raises `MhaError`, `TypeError` or `KeyError` for other values."""
    arguments: dict[str, Any] = dict(values)
    return TYPES[arguments.pop("edit")](**arguments)


def _laid_out(edit: Bias | Weights | Output, site: Site, width: int, elsewhere: float) -> Tensor:
    """A table with the values of an edit in its cells, and the number `elsewhere` in all others.

    (head or 1, query or 1, width), where width is the length of the last axis.
    """
    cells = site.cells(edit)
    shape = torch.broadcast_shapes(cells.shape, (1, 1, width))
    heads, rows, keys = (site.positions(axis, edit) for axis in ("heads", "rows", "keys"))
    values = torch.tensor(edit.values, dtype=torch.float32)
    if values.dim() > 1 and rows is None:
        shape = (shape[0], len(site.queries), width)
    if values.dim() > 2 and heads is None:
        shape = (site.n_heads, *shape[1:])
    _check_count(edit, shape)
    counts = [
        length if picked is None else len(picked)
        for length, picked in zip(shape, (heads, rows, keys), strict=True)
    ]
    pairs = zip(reversed(values.shape), reversed(counts), strict=False)
    fits = all(length in (1, count) for length, count in pairs)
    if edit.stage and values.dim():  # a single number is not a row of weights
        fits = fits and values.shape[-1] == counts[-1]
    if not fits:
        raise MhaError(
            "The values of the edit “{edit}” have shape {shape}; they have to fit "
            "{expected}: heads, rows, and the last axis.",
            edit=edit.describe(),
            shape=tuple(values.shape),
            expected=tuple(counts),
        )
    table = torch.full(shape, elsewhere)
    at = [
        torch.arange(length) if picked is None else torch.tensor(picked)
        for length, picked in zip(shape, (heads, rows, keys), strict=True)
    ]
    table[at[0][:, None, None], at[1][:, None], at[2]] = values.expand(counts)
    return table


def _over(patches: Tensor, before: Tensor | None) -> Tensor:
    """The patches, and in all other cells those of an earlier edit."""
    return patches if before is None else torch.where(patches == COMPUTED, before.to(patches), patches)


def _check_count(edit: Edit, shape: Sequence[int]) -> None:
    if math.prod(shape) > MAX_NUMBERS:
        raise MhaError(
            "The edit “{edit}” needs {size:,} numbers in a layer; the limit is "
            "{limit:,}. Name fewer heads, or take a shorter text.",
            edit=edit.describe(),
            size=math.prod(shape),
            limit=MAX_NUMBERS,
        )


def _picked(axis: str, picked: object) -> tuple[int | str, ...]:
    """Heads, rows or keys as a tuple of numbers; rows and keys may also be words."""
    try:
        entries = [picked] if isinstance(picked, str) or not isinstance(picked, Iterable) else list(picked)
    except TypeError:  # a single one, or an array without an axis
        entries = [picked]
    if not entries:
        raise MhaError("{axis} of an edit is empty; leave it out for all of them.", axis=axis)
    words = axis != "heads"
    return tuple(one if words and isinstance(one, str) else _whole(axis[:-1], one) for one in entries)


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return whole_number(value)
    except TypeError:
        raise MhaError(
            "{name} of an edit is a whole number; got {value:.60}.", name=name, value=repr(value)
        ) from None


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass  # a whole number that is too large for a float gives the same error as other values
    raise MhaError("{name} of an edit is a number; got {value:.60}.", name=name, value=repr(value))


def _numbers(name: str, value: object) -> object:
    """A number, or a table of up to three axes as nested tuples, so that edits can be compared."""
    try:
        table = value.detach().cpu() if isinstance(value, Tensor) else torch.tensor(value)
        table = table.to(torch.float32)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise MhaError(
            "{name} are a number or a table of numbers; got {value:.60}.", name=name, value=repr(value)
        ) from None
    if not table.isfinite().all() or table.dim() > 3 or not table.numel():
        raise MhaError(
            "{name} are finite numbers in a table of up to three axes, none of them of length 0.", name=name
        )
    if table.numel() > MAX_NUMBERS:
        raise MhaError(
            "{name} are {size:,} numbers; the limit is {limit:,}.",
            name=name,
            size=table.numel(),
            limit=MAX_NUMBERS,
        )
    return _tuples(table.tolist())


def _tuples(values: object) -> object:
    return tuple(map(_tuples, values)) if isinstance(values, list) else values


def _place(axis: str, picked: tuple[int | str, ...]) -> Phrase:
    """The heads, rows or keys of an edit, for readers."""
    named = listed((one if isinstance(one, str) else _ordinal(one) for one in picked), "comma")
    match axis:
        case "heads":
            return Phrase("heads {places}" if len(picked) > 1 else "head {places}", places=named)
        case "rows":
            return Phrase("rows {places}" if len(picked) > 1 else "row {places}", places=named)
        case _:
            return Phrase("keys {places}" if len(picked) > 1 else "key {places}", places=named)


def _ordinal(number: int) -> str:
    """An index from 0 as a count for readers: 1 for 0, "last" for −1."""
    if number < -1:
        return Phrase("{n}. from the end", n=-number)
    return str(number + 1) if number >= 0 else Phrase("last")
