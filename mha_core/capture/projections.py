"""Finds the matrices that made q, k and v, and the steps after their products.

The names of modules suggest a matrix; the numbers decide. A matrix counts as known only if its output, cut
into heads and taken through the known steps (norm, factor, rotation), equals the q, k or v that was used.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.capture.rotary import Codes, RotaryCode, candidates
from mha_core.traces.facts import Adjustment, Adjustments, Clip, Factor, Norm, OutputGate, Rotary
from mha_core.traces.projections import Part
from mha_core.traces.tensors import version

# Names of the matrices of q, k and v in libraries, and of norms behind them; a packed matrix has one name.
NAMES = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("project_q", "project_k", "project_v"),
    ("Wq", "Wk", "Wv"),
    ("c_attn",) * 3,
    ("query_key_value",) * 3,
    ("qkv_proj",) * 3,
    ("Wqkv",) * 3,
    ("q_norm", "k_norm", "v_norm"),
    ("q_layernorm", "k_layernorm", ""),
    ("query_layernorm", "key_layernorm", ""),
    ("qk_norm", "qk_norm", ""),
)
OUTPUTS = {"o_proj", "out_proj", "dense", "o", "c_proj", "out_lin", "Wo", "post_proj", "output", "linear"}
# Latent attention: the matrices of all queries, of the key that all heads share, and of the latent vectors.
LATENT_QUERIES, LATENT_KEYS = ("q_b_proj", "q_proj"), ("kv_a_proj_with_mqa", "k_rope_only_layernorm")
SHORT = {"q_a_layernorm": "q_short", "kv_a_layernorm": "kv_short"}
# A low-rank W^O: the matrix of each group of heads' outputs, and the matrix that joins the groups.
LOW_RANK = ("o_a_proj", "o_b_proj")
WATCHED = {*(name for names in NAMES for name in names if name), *OUTPUTS, *LOW_RANK}
WATCHED |= {*LATENT_QUERIES, *LATENT_KEYS, *SHORT}
# The matrices of a gate for the heads' outputs; in some models half of the query matrix is the gate.
GATES = ("gate_proj", "g_proj", "q_gate_proj", "q_proj")
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
    "silu": nn.functional.silu,
}

NORMS = ("RMSNorm", "LayerNorm")
MAX_EPSILON = 1e-2  # a larger number of a module is not the ε of its norm
EPSILONS = (1e-6, 1e-5, 1e-8)
ROUNDINGS = 16  # units in the last place by which two computations of a number may differ

Matrix = tuple[Tensor, Tensor | None]  # W (in, out) and b, where the model has them
Layout = Callable[[Tensor], Tensor]  # selects the columns of q, k or v from a matrix or its output


@dataclass(eq=False, slots=True)
class Proof:
    """The proven computation of a module. The matrix is valid as long as the weight has that address."""

    name: str  # the last part of the module's name
    matrix: Matrix | None = None
    norm: "Normed | None" = None
    code: int = 0  # the rotation of its output in a text of several tokens; 0 for none


class Normed(NamedTuple):
    """The computation of a norm: its kind, the ε below its root, and its gain.

    The gain is the weight plus `above`. Where `above` is None the gain is 1, whatever the weight.
    """

    kind: str
    epsilon: float
    above: float | None


class Use(NamedTuple):
    """One use of a module: its input x and its output y."""

    module: nn.Module
    x: Tensor
    y: Tensor
    versions: tuple[int, int]  # of x and y at that time: they change where a model writes into its tensors
    proof: Proof

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor, proof: Proof) -> "Use":
        return cls(module, x, y, (version(x), version(y)), proof)

    def unchanged(self) -> "Use | None":
        """The use with its original output, also where the model has clipped it in place; else None."""
        if self.versions == (version(self.x), version(self.y)):
            return self
        if version(self.x) != self.versions[0] or type(self.module).forward is not nn.Linear.forward:
            return None
        parameters = self.module._parameters
        weight, bias = parameters["weight"], parameters["bias"]
        assert weight is not None  # it is an nn.Linear
        product = nn.functional.linear(self.x, weight, bias)
        limit = self.y.abs().max().item()
        if not alike(product.clamp(-limit, limit), self.y):
            return None
        return Use.of(self.module, self.x, product, self.proof)


class Stage(NamedTuple):
    """A module on the way to q, k or v: its output by heads, changed and rotated, is `result`.

    The module is a matrix or a norm, or unknown where the numbers do not show what it computes.
    """

    use: Use
    layout: Layout | None  # None for all columns of its output
    heads: Tensor
    change: Factor | Clip | None
    code: RotaryCode | None
    result: Tensor
    matrix: Matrix | None
    norm: Norm | None


@dataclass(frozen=True, eq=False)
class Provenance:
    """The origin of q, k and v; empty where it is not known.

    `tensors` has views under their names in `LayerTrace`: x and x_v (token, width), others (head, token,
    width). `projections` has the matrices and biases under their names in `Projections`.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    projections: Mapping[str, Tensor | Part] = field(default_factory=dict)
    code: RotaryCode | None = None
    adjustments: Adjustments | None = None


def provenance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    uses: Sequence[Use],
    codes: Sequence[RotaryCode] = (),
    *,
    outside: bool = False,
) -> Provenance:
    """The origin of the q (1, h, L, d_k), k (1, n_kv, S, d_k) and v (1, n_kv, S, d_v) of an attention call.

    `uses` are the uses of the attention's own modules in the order in which they ran, with their original
    outputs. `codes` are the possible rotations; `outside` means that K and V are made of another text.
    """
    sizes = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    of_q, of_k, of_v = ([u for u in uses if u.proof.name in names] for names in zip(*NAMES, strict=True))
    rotations = [None] if outside else [None, *codes]
    # The first token has the angle 0, so a single token does not show which code was used.
    known = of_q[-1].proof.code if of_q and q.shape[2] == 1 else 0
    to_q = _path(q, 0, sizes, of_q, [*rotations[known : known + 1], *rotations])
    code = _code(to_q)
    if to_q and q.shape[2] > 1:
        to_q[-1].use.proof.code = next(at for at, rotation in enumerate(rotations) if rotation is code)
    # Queries and keys have the same code; a model that rotates only one of them is not supported.
    to_k = _path(k, 1, sizes, of_k, [None] if code is None else [code, None]) if to_q else ()
    to_k = to_k if _code(to_k) is code else ()
    paths = {"q": to_q, "k": to_k, "v": _path(v, 2, sizes, of_v, [None])}
    first = {name: path[0] for name, path in paths.items() if path and path[0].matrix is not None}
    tensors = {}
    if (role := "q" if outside else "v") in first:
        tensors["x"] = _rows(first[role].use.x)
    if not (to_q and to_k):
        return Provenance(tensors)
    if code is not None:
        tensors |= _rotated(to_q, "q") | _rotated(to_k, "k")
    inputs = [stage.use.x.data_ptr() for stage in first.values()]
    if len(inputs) < 3 or inputs[1] != inputs[2] or not (outside or inputs[0] == inputs[2]):
        return Provenance(tensors, code=code)
    projections = _projections(first)
    if inputs[0] != inputs[2]:
        tensors["x_v"] = _rows(first["v"].use.x)
    adjustments = Adjustments(**{name: tuple(_adjustments(path)) for name, path in paths.items()})
    steps = adjustments.items()
    if all(isinstance(step, Rotary) for _, each in steps for step in each):
        return Provenance(tensors, projections, code)
    for name, each in steps:
        if each and not isinstance(each[0], Rotary):
            tensors[f"{name}_linear"] = first[name].heads[0]
        tensors |= _of_norm(paths[name], name)
    return Provenance(tensors, projections, code, adjustments)


def _projections(first: Mapping[str, Stage]) -> dict[str, Tensor | Part]:
    """The matrices and biases of the first stages of q, k and v, by the names of `Projections`."""
    projections: dict[str, Tensor | Part] = {}
    for name, stage in first.items():
        for kind, whole in zip("wb", stage.matrix or (), strict=False):
            if whole is not None:
                part = whole if stage.layout is None else Part(whole, stage.layout)
                projections[f"{kind}_{name}"] = part
    return projections


def matrix(use: Use) -> Matrix | None:
    """W (in, out) and b of a module that computes ``x W + b``; None for any other module."""
    parameters, proven = use.module._parameters, use.proof.matrix  # attribute access takes ten times as long
    weight: Tensor | None = parameters.get("weight")
    bias: Tensor | None = parameters.get("bias")
    if weight is None or weight.dim() != 2 or not weight.is_floating_point():
        return None
    if proven is not None and _same_memory(proven, weight, bias):
        return proven
    x, y = use.x.flatten(0, -2)[-2:], use.y.flatten(0, -2)[-2:]
    bias = None if bias is None else bias.detach()
    for w in (weight.detach().mT, weight.detach()):
        fits = w.shape == (x.shape[-1], y.shape[-1]) and w.dtype == x.dtype
        if fits and alike(x @ w if bias is None else x @ w + bias, y):
            use.proof.matrix = w, bias
            return use.proof.matrix
    return None


def grouped_matrix(use: Use) -> Tensor | None:
    """W (group, in, out) of a module that computes ``x_g W_g`` for each group of numbers, else None.

    x has the groups concatenated, y is (…, group, out).
    """
    weight, (groups, width) = use.module._parameters.get("weight"), use.y.shape[-2:]
    if weight is None or weight.dim() != 2 or weight.dtype != use.x.dtype:
        return None
    if weight.shape[0] != groups * width:
        return None
    matrices = weight.detach().unflatten(0, (groups, width)).mT
    x, y = (tensor.reshape(-1, groups, tensor.shape[-1])[-2:] for tensor in (use.x, use.y))
    fits = x.shape[-1] == matrices.shape[1] and alike(torch.einsum("tgi,gio->tgo", x, matrices), y)
    return matrices if fits else None


def output_rotation(joined: Tensor, rotated: Tensor, codes: Iterable[Codes]) -> RotaryCode | None:
    """The code that rotated the heads' outputs, (1, query, head, d_v), before W^O; None if none did."""
    heads, target = (x.reshape(joined.shape).transpose(1, 2) for x in (joined, rotated))
    for code in (code for each in codes for code in candidates(each, heads.shape)):
        for start in dict.fromkeys((heads.shape[3] - code.cos.shape[1], 0)):
            placed = code._replace(start=start)
            if _rotates_into(heads, target, placed):
                return placed
    return None


def output_gate(
    joined: Tensor, gated: Tensor, uses: Sequence[Use], biases: Sequence[Tensor] = ()
) -> tuple[OutputGate, Tensor] | None:
    """The gate between the heads' outputs `joined` (1, query, head, d_v) and `gated`, and its values.

    The values are (head, query, d_v), or (head, query, 1) for a gate with one number for each head. `biases`
    are vectors of the attention module; one may be a bias for each head. None if no output of a module, after
    a known activation, gives `gated` when multiplied with the heads' outputs.
    """
    of_heads = (bias.detach()[:, None] for bias in biases if bias.shape == joined.shape[2:3])
    shifts: list[Tensor | float] = [0.0, *of_heads]
    for use in reversed(uses):
        if use.proof.name not in GATES:
            continue
        for over, heads in _gates(use.y, joined.shape):
            for shift, (name, activation) in product(shifts, ACTIVATIONS.items()):
                gate = activation((heads + shift).float()).to(joined.dtype)
                if alike((joined * gate).reshape(-1), gated.reshape(-1)):
                    return OutputGate(name, over), gate[0].transpose(0, 1)
    return None


def _gates(y: Tensor, shape: torch.Size) -> Iterator[tuple[str, Tensor]]:
    """The ways in which an output can be a gate for (1, query, head, d_v): for each number or each head."""
    _, tokens, n_heads, width = shape
    if y.numel() == tokens * n_heads * width:
        yield "number", y.reshape(shape)
    if y.numel() == tokens * n_heads:
        yield "head", y.reshape(1, tokens, n_heads, 1)
    if y.numel() > tokens * n_heads * width and not y.numel() % (tokens * n_heads):
        # Each head has its query, then its gate.
        yield "number", y.reshape(1, tokens, n_heads, -1)[..., -width:]


def norm(use: Use, d_k: int) -> Norm | None:
    """The norm that a module computes, or None for a module that computes anything else.

    ``RMSNorm = g · x / √(mean(x²) + ε)``; LayerNorm first subtracts the mean. The gain g is the module's
    weight, the weight + 1 (Gemma), or 1 without a weight. A norm is over the numbers of one head or of all.
    """
    if use.proof.norm is None:
        use.proof.norm = _norm(use.module, use.x.float(), use.y)
    if (normed := use.proof.norm) is None:
        return None
    return Norm(normed.kind, "head" if use.x.shape[-1] == d_k else "all", normed.epsilon)


def _of_norm(path: Sequence[Stage], name: str) -> dict[str, Tensor]:
    """The gain and the shift of the LayerNorm on a path, with a row for each head where heads differ.

    The gain of an RMSNorm is not needed: it follows from a number before and after the norm.
    """
    stage = next((stage for stage in path if stage.norm is not None), None)
    if stage is None or (normed := stage.use.proof.norm) is None or normed.kind != "LayerNorm":
        return {}
    module, above = stage.use.module, normed.above
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    one = stage.use.x.new_ones(1, stage.use.x.shape[-1])
    gain = one if weight is None or above is None else weight.detach() + above
    shift = 0 * one if bias is None else bias.detach().clone()
    return {
        f"{name}_{what}": each.reshape(-1, one.shape[1]) for what, each in (("gain", gain), ("shift", shift))
    }


def _norm(module: nn.Module, x: Tensor, y: Tensor) -> Normed | None:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    epsilons = [
        value for value in vars(module).values() if isinstance(value, float) and 0 < value <= MAX_EPSILON
    ]
    gains: list[tuple[float | None, Tensor | float]] = [(None, 1.0)]
    if weight is not None:
        gains = [(0.0, weight.float()), (1.0, 1.0 + weight.float()), *gains]
    shift = 0.0 if bias is None else bias.float()
    gaps: dict[Normed, float] = {}
    for kind in NORMS:
        centred = x - x.mean(-1, keepdim=True) if kind == "LayerNorm" else x
        for epsilon in epsilons or EPSILONS:
            even = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + epsilon)
            for above, gain in gains:
                if _fits(gain, even) and _fits(shift, even):
                    gaps[Normed(kind, epsilon, above)] = difference(even * gain + shift, y)
    # In half precision both kinds can fit where the mean is small: the one with the smaller gap.
    nearest = min(gaps, key=lambda one: gaps[one], default=None)
    return nearest if nearest is not None and gaps[nearest] <= ROUNDINGS else None


def adjusted(heads: Tensor, target: Tensor) -> Factor | Clip | None:
    """The factor or the clip that turns `heads` into `target`."""
    if heads.shape != target.shape or not heads.numel():
        return None
    target = target.to(heads.dtype)  # a rotation may have been computed in a higher precision
    unit = torch.finfo(heads.dtype).eps
    at = heads.abs().argmax()
    largest, changed = heads.flatten()[at].item(), target.flatten()[at].item()
    by = changed / largest if largest else 0.0
    if by and math.isfinite(by) and alike(heads * by, target):
        root = heads.shape[-1] ** -0.5  # the factor of most models, exact; a ratio of rounded numbers is not
        return Factor(root if math.isclose(by, root, rel_tol=max(1e-5, unit)) else by)
    limit = target.abs().max().item()
    if abs(largest) > limit > 0 and alike(heads.clamp(-limit, limit), target):
        return Clip(float(f"{limit:.{max(2, math.floor(-math.log10(unit)))}g}"))
    return None


def short_vectors(uses: Sequence[Use]) -> dict[str, Tensor]:
    """The latent vectors (token, rank) of a latent attention, after their norms."""
    return {SHORT[use.proof.name]: use.y[0] for use in uses if use.proof.name in SHORT}


def latent(q: Tensor, k: Tensor, uses: Sequence[Use], codes: Codes, *, width: int) -> Provenance | None:
    """q and k of a latent attention before `width` dimensions of each head were rotated.

    In latent attention a few dimensions of each head carry the position. Each head has its own in the query;
    in the key all heads share one vector. None if no matrix made the rotated numbers.
    Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.3.
    """
    _, n_heads, tokens, d_k = q.shape
    outputs = [(use.proof.name, use.y) for use in reversed(uses) if use.y.shape[:-1].numel() == tokens]
    queries = [
        y.reshape(1, tokens, n_heads, d_k).transpose(1, 2)
        for name, y in outputs
        if name in LATENT_QUERIES and y.shape[-1] == n_heads * d_k
    ]
    keys = [
        y.reshape(1, 1, tokens, -1)[..., part]
        for name, y in outputs
        if name in LATENT_KEYS and y.shape[-1] >= width
        for part in (slice(-width, None), slice(0, width))
    ]
    # The dimensions in their order, or with the pairs split: all first ones, then all second ones.
    orders = slice(None), torch.arange(width // 2 * 2, device=q.device).view(-1, 2).mT.flatten()
    for start in dict.fromkeys((d_k - width, 0)):
        own_q, own_k = (x[..., start : start + width] for x in (q, k))
        raw_q = [heads[..., start : start + width] for heads in queries]
        for code in candidates(codes, own_q.shape):
            if code.cos.shape[-1] != width:
                continue
            for order in orders:
                before_q = _before(raw_q, order, code, own_q)
                before_k = None if before_q is None else _before(keys, order, code, own_k)
                if before_q is not None and before_k is not None:
                    tensors = {"q_raw": _with(q, start, before_q), "k_raw": _with(k, start, before_k)}
                    return Provenance(tensors, code=code._replace(start=start))
    return None


def _path(
    target: Tensor, role: int, sizes: tuple, uses: Sequence[Use], codes: Sequence[RotaryCode | None]
) -> tuple[Stage, ...]:
    """The modules that made the target, from the first to the last; empty if they are not known.

    A norm comes after the module that made its input; without such a module the norm is the first.
    """
    outputs = [(use, *cut) for use in reversed(uses) for cut in _cuts(use.y, role, sizes, target.shape)]
    if (last := _last(target, outputs, codes)) is None:
        return ()
    if last.norm is not None:
        before = uses[: next(at for at, use in enumerate(uses) if use is last.use)]
        for _, cut in _cuts(last.use.x, role, sizes, target.shape):
            path = _path(cut, role, sizes, before, codes if last.code is None else [None])
            if path and path[0].matrix is not None:
                return (*path, last)
    return (last,)


def _last(
    target: Tensor, outputs: Sequence[tuple[Use, Layout | None, Tensor]], codes: Sequence[RotaryCode | None]
) -> Stage | None:
    """The stage whose output, cut into heads, became the target; None if there is none.

    It looks first for the same memory, which needs no comparison, then for rotated numbers, and last for
    numbers with one common change.
    """

    def stage(output: tuple, change: Factor | Clip | None = None, code: RotaryCode | None = None) -> Stage:
        use, layout, heads = output
        product = matrix(use)
        own = norm(use, target.shape[3]) if product is None else None
        return Stage(use, layout, heads, change, code, target, product, own)

    for output in outputs if None in codes else ():
        if _is_the_same(output[2], target):
            return stage(output)
    for output in outputs:
        for code in codes:
            if _rotates_into(output[2], target, code):
                return stage(output, code=code)
    for output in outputs:
        for code in codes:
            before = target if code is None else code.unrotate(target)
            if (change := adjusted(output[2], before)) is not None:
                return stage(output, change, code)
    return None


def _is_the_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same view of the same memory."""
    if one.data_ptr() != other.data_ptr() or one.dtype != other.dtype or one.shape != other.shape:
        return False
    steps = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(size == 1 or step == other_step for size, step, other_step in steps)


def _rotates_into(heads: Tensor, target: Tensor, code: RotaryCode | None) -> bool:
    """Whether the rotated heads equal the target. The last token comes first: its angles are largest."""
    if code is None:
        return alike(heads[:, :, -1:], target[:, :, -1:]) and alike(heads, target)
    return alike(code.last.rotate(heads[:, :, -1:]), target[:, :, -1:]) and alike(code.rotate(heads), target)


def _cuts(y: Tensor, role: int, sizes: tuple, shape: torch.Size) -> Iterator[tuple[Layout | None, Tensor]]:
    """The ways to cut an output into the heads of q (role 0), k (1) or v (2), (1, head, token, width)."""
    _, heads, tokens, width = shape
    if y.dim() == 4:  # already by heads, as after a norm over each head
        yield from ((None, cut) for cut in (y, y.transpose(1, 2)) if cut.shape == shape)
        return
    columns = y.shape[-1]
    if columns < heads * width or y.shape[:-1].numel() != tokens:
        return
    rows = y.reshape(tokens, columns)
    layouts = [None] if columns == heads * width else _layouts(columns, role, *sizes)
    for layout in layouts:
        cut = rows if layout is None else layout(rows)
        yield layout, cut.view(1, tokens, heads, width).transpose(1, 2)


def _layouts(columns: int, role: int, n_heads: int, n_kv: int, d_k: int, d_v: int) -> Iterator[Layout]:
    """The possible orders of the columns of q, k and v in a packed matrix."""
    blocks = (n_heads * d_k, n_kv * d_k, n_kv * d_v)
    group = n_heads // n_kv
    if columns == sum(blocks):  # all of q, all of k, all of v
        yield lambda rows: rows.split(blocks, dim=1)[role]
    if role and columns == sum(blocks[1:]):  # all of k, all of v
        yield lambda rows: rows.split(blocks[1:], dim=1)[role - 1]
    if columns == n_kv * (group + 2) * d_k and d_k == d_v:  # q, k and v of each key/value head
        own = (slice(0, group), slice(group, group + 1), slice(group + 1, group + 2))[role]
        yield lambda rows: rows.unflatten(1, (n_kv, group + 2, d_k))[:, :, own].flatten(1)
    if not role and columns == 2 * n_heads * d_k:  # each head has its q, then a gate for its output
        yield lambda rows: rows.unflatten(1, (n_heads, 2, d_k))[:, :, 0].flatten(1)


def _adjustments(path: Sequence[Stage]) -> Iterator[Adjustment]:
    for stage in path:
        yield from (step for step in (stage.norm, stage.change) if step is not None)
        if stage.code is not None:
            yield stage.code.fact


def _code(path: Sequence[Stage]) -> RotaryCode | None:
    return next((stage.code for stage in path if stage.code is not None), None)


def _rotated(path: Sequence[Stage], name: str) -> dict[str, Tensor]:
    """The tensor before its rotation, and after the rotation where further steps follow."""
    rotation = next(stage for stage in path if stage.code is not None)
    raw, change = rotation.heads[0], rotation.change
    if change is not None:
        raw = raw * change.by if isinstance(change, Factor) else raw.clamp(-change.at, change.at)
    rotated = {} if rotation is path[-1] else {f"{name}_turned": rotation.result[0]}
    return {f"{name}_raw": raw} | rotated


def _before(raws: Sequence[Tensor], order: slice | Tensor, code: RotaryCode, target: Tensor) -> Tensor | None:
    """The tensor whose rotation equals the target, with its dimensions in the given order."""
    for raw in raws:
        if _rotates_into(raw[..., order].expand_as(target), target, code):
            return raw[..., order]
    return None


def _with(x: Tensor, start: int, part: Tensor) -> Tensor:
    """x (1, head, token, width) with a part of each head before its rotation, without the batch axis."""
    x = x[0].clone()
    x[..., start : start + part.shape[-1]] = part[0]
    return x


def _rows(x: Tensor) -> Tensor:
    """The input of a matrix as (token, width), without a batch axis."""
    return x[0] if x.dim() == 3 and x.shape[0] == 1 else x.reshape(-1, x.shape[-1])


def _same_memory(proven: Matrix, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether a weight and a bias are in the memory of the proven matrix."""
    proven_weight, proven_bias = proven
    if bias is None or proven_bias is None:
        return proven_weight.data_ptr() == weight.data_ptr() and bias is proven_bias
    return (proven_weight.data_ptr(), proven_bias.data_ptr()) == (weight.data_ptr(), bias.data_ptr())


def _fits(gain: Tensor | float, even: Tensor) -> bool:
    """Whether it can be multiplied with the last axes of these numbers."""
    return isinstance(gain, float) or gain.shape == even.shape[even.dim() - gain.dim() :]


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    return one.shape == other.shape and difference(one, other) <= ROUNDINGS


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors of one shape, in units in the last place of their maximum."""
    unit = torch.finfo(other.dtype).eps * max(1.0, other.abs().max().item())
    return (one.float() - other.float()).abs().max().item() / unit
