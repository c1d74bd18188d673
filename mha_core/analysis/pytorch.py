"""PyTorch code for the reader: for a step from X to Z, for a position encoding, and for one number.

The code of a step and of a position encoding works on all heads at once. Its names are those of the formulas:
x (or y, the text that is looked at, or the separate input of V), w_q, b_q, q, k, v, scores, weights, heads,
concat, w_o, b_o, z; also allowed (True where a query may look at a key), bias, sinks, gate, cos and sin, and
the gains and shifts of norms. Where a trace does not hold what a line needs, a comment says so. The code of
one number contains its numbers and runs on its own.
"""

import re
import textwrap
from collections.abc import Sequence

import numpy as np

from mha_core.attention.latent import EPSILON
from mha_core.traces.facts import Adjustment, Clip, Factor, Norm
from mha_core.traces.layer import LayerTrace
from mha_core.traces.verify import projection_parts

LINE = 100  # characters in a line of numbers


# Lines that change a variable, common to all three


def scaled(name: str, by: float) -> str:
    return f"{name} = {name} * {by!r}"


def capped(name: str, cap: float) -> str:
    return f"{name} = {cap!r} * torch.tanh({name} / {cap!r})"


def added(name: str, bias: str) -> str:
    return f"{name} = {name} + {bias}"


def masked(name: str, allowed: str) -> str:
    return f"{name} = {name}.masked_fill(~{allowed}, -torch.inf)"


def clipped(name: str, at: float) -> str:
    return f"{name} = {name}.clamp(-{at!r}, {at!r})"


def rotated(name: str, form: str, width: int) -> str:
    """All dimensions of a vector times cos, plus the others of their pairs times sin."""
    if form == "half":
        others = f"torch.cat([-{name}[..., {width // 2}:], {name}[..., :{width // 2}]], dim=-1)"
    else:
        others = f"torch.stack([-{name}[..., 1::2], {name}[..., ::2]], dim=-1).flatten(-2)"
    return f"{name} = {name} * cos + {others} * sin"


# A step from X to Z


def of_step(name: str, layer: LayerTrace, *, rotates: bool = False) -> str:
    """The code of a step of `derivation.STEPS`; in place of a line that cannot be written, why it is missing.

    `rotates`: Q and K of random weights were rotated, which is not a step of its own there.
    """
    lines = STEPS[name](layer)
    if name == "split":
        if not (layer.knows("x") and layer.knows("w_q")):  # there is no step before
            lines = [*_without_products(layer), *lines]
        if rotates:
            lines.append(rotary(layer.n_query, layer.d_k))
    return "\n".join(lines)


def _missing(what: str, why: str) -> str:
    return f"# missing: {what}; {why}"


def _without_products(layer: LayerTrace) -> list[str]:
    why = "this trace does not hold x and its matrices"
    if layer.about.latent is not None:
        why = "latent attention computes them from latent vectors"
    return [_missing("the lines that compute q, k and v of all heads from x", why)]


def _project(layer: LayerTrace) -> list[str]:
    parts, lines = projection_parts(layer), []
    if not parts:
        return _without_products(layer)
    if layer.about.latent is not None:
        norm = f"torch.nn.functional.rms_norm(x @ w_dkv, ({layer.about.latent.kv_rank},), eps={EPSILON!r})"
        return [f"c_kv = {norm} * c_gain", "q, k, v = x @ w_q, c_kv @ w_uk, c_kv @ w_uv"]
    for name, (_, _, bias, _) in parts.items():
        of_x = name == "q" or (layer.sides.same and not (name == "v" and layer.knows("x_v")))
        source = "x" if of_x else "y"
        lines.append(f"{name} = {source} @ w_{name}" + ("" if bias is None else f" + b_{name}"))
    return lines


def _split(layer: LayerTrace) -> list[str]:
    sizes = {name: layer.tensors[layer.stages(name)[0]].shape for name in "qkv"}
    return [
        f"{name} = {name}.unflatten(-1, ({heads}, {width})).transpose(0, 1)"
        for name, (heads, _, width) in sizes.items()
    ]


def _adjust(layer: LayerTrace) -> list[str]:
    return [
        line
        for name, steps in layer.adjustments.items()
        for step in steps
        for line in _adjusted(name, step, layer)
    ]


def _adjusted(name: str, step: Adjustment, layer: LayerTrace) -> list[str]:
    width = layer.tensors[name].shape[-1]
    if isinstance(step, Factor):
        return [scaled(name, step.by)]
    if isinstance(step, Clip):
        return [clipped(name, step.at)]
    if isinstance(step, Norm):
        return _normed(name, step, layer, width)
    if (step.start, step.width) == (0, width):
        return [rotated(name, step.form, width)]
    stop = step.start + step.width
    return [
        f"part = {name}[..., {step.start}:{stop}]",
        rotated("part", step.form, step.width),
        f"{name} = torch.cat([{name}[..., :{step.start}], part, {name}[..., {stop}:]], dim=-1)",
    ]


def _normed(name: str, step: Norm, layer: LayerTrace, width: int) -> list[str]:
    if step.over == "all":
        return [_missing(f"the {step.kind} of {name} over all heads", "this trace does not hold its gain")]
    if step.kind == "RMSNorm":
        about = f"# {name}_gain: the gain of this norm, which is not in the trace ({width} numbers)"
        normed = f"torch.nn.functional.rms_norm({name}, ({width},), eps={step.epsilon!r})"
        return [about, f"{name} = {normed} * {name}_gain"]
    if not (layer.knows(f"{name}_gain") and layer.knows(f"{name}_shift")):
        return [_missing(f"the {step.kind} of {name}", "this trace does not hold its gain and shift")]
    normed = f"torch.nn.functional.layer_norm({name}, ({width},), eps={step.epsilon!r})"
    return [f"{name} = {normed} * {name}_gain[:, None] + {name}_shift[:, None]"]


def _for_each_head(name: str, layer: LayerTrace) -> str:
    """Keys or values repeated for the query heads that share them."""
    shared = layer.n_heads // layer.n_kv_heads
    return name if shared == 1 else f"{name}.repeat_interleave({shared}, dim=0)"


def _scores(layer: LayerTrace) -> list[str]:
    return [f"scores = q @ {_for_each_head('k', layer)}.mT"]


def _scale(layer: LayerTrace) -> list[str]:
    if abs(layer.scale * layer.d_k**0.5 - 1) < 1e-6:
        return [f"scores = scores / {layer.d_k}**0.5"]
    return [scaled("scores", layer.scale)]


def _mask(layer: LayerTrace) -> list[str]:
    rule = layer.rule
    lines = []
    if rule.soft_cap is not None:
        lines.append(capped("scores", rule.soft_cap))
    if rule.bias is not None or rule.distance_bias is not None:
        lines.append(added("scores", "bias"))
    return [*lines, masked("scores", "allowed")]


def _softmax(layer: LayerTrace) -> list[str]:
    rule = layer.rule
    if rule.patched_weights is not None:
        return [_missing("weights", "a change has put others in their place")]
    scores, left = "scores", ""
    if rule.sinks is not None:
        scores = f"torch.cat([scores, sinks[:, None, None].expand(-1, {layer.n_query}, 1)], dim=-1)"
        left = "[..., :-1]"
    if rule.temperature != 1:
        scores = f"({scores} / {rule.temperature!r})"
    empty = rule.mask is not None and rule.sinks is None and not rule.mask.any(-1).all()
    return [f"weights = {scores}.softmax(dim=-1){left}{'.nan_to_num()' if empty else ''}"]


def _mix(layer: LayerTrace) -> list[str]:
    if layer.rule.patched_outputs is not None:
        return [_missing("heads", "a change has put others in their place")]
    return [f"heads = weights @ {_for_each_head('v', layer)}"]


def _concat(layer: LayerTrace) -> list[str]:
    if layer.about.output_rotary is not None:
        return [_missing("concat", "this model rotates the outputs of its heads back first")]
    heads = "(heads * gate)" if layer.knows("gate") else "heads"
    return [f"concat = {heads}.transpose(0, 1).flatten(1)"]


def _output(layer: LayerTrace) -> list[str]:
    return ["z = concat @ w_o" + (" + b_o" if layer.projections.b_o is not None else "")]


STEPS = {
    "project": _project,
    "split": _split,
    "adjust": _adjust,
    "scores": _scores,
    "scale": _scale,
    "mask": _mask,
    "softmax": _softmax,
    "mix": _mix,
    "concat": _concat,
    "output": _output,
}


# All steps of a layer


def of_layer(codes: Sequence[str], layer: LayerTrace, at: int) -> str:
    """The steps of a layer as one program about `trace`: its first lines take from it what the steps use.

    A norm's gain that the trace does not hold, and a missing line, stay comments.
    """
    code = "\n".join(codes)
    made, taken = {"layer"}, []
    for line in code.splitlines():
        names, _, value = line.partition("#")[0].partition(" = ")
        for name in re.findall(r"(?<![.\w])[a-z]\w*(?!\w*=)", value):
            if name not in made and (source := _source(name, layer)):
                taken.append(f"{name} = {source}")
                made.add(name)
        made |= set(names.split(", "))
    return "\n".join(["import torch", "", f"layer = trace.layers[{at}]", *taken, "", code])


def _source(name: str, layer: LayerTrace) -> str | None:
    """Where a trace holds one of the names of the formulas."""
    if name in ("q", "k", "v"):  # all heads side by side, before the first step that is known
        found = f'layer.tensors["{layer.stages(name)[0]}"].transpose(0, 1).flatten(1)'
    elif name == "allowed":
        return "torch.tensor(layer.allowed())"
    elif name == "bias":
        whole = f"n_query={layer.n_query}, n_key={layer.n_key}"
        found = f"layer.rule.at(slice(None), slice(None), {whole}).bias"
    elif name == "sinks":
        found = "layer.rule.sinks"
    elif layer.projections._asdict().get(name) is not None:
        found = f"layer.projections.{name}"
    elif (tensor := "x_v" if name == "y" else name) in layer.tensors:
        found = f'layer.tensors["{tensor}"]'
    else:
        return None
    return found if layer.tensors["v"].element_size() > 2 else f"{found}.float()"


# Position encodings


def sinusoidal(n_positions: int, width: int) -> str:
    """Code that adds the encoding to x, (token, d_model)."""
    cut = f"[:, :{width}]" if width % 2 else ""
    lines = [
        *_angles(n_positions, width),
        f"pe = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1){cut}",
        added("x", "pe.float()"),
    ]
    return "\n".join(lines)


def learned() -> str:
    """Code that adds learned position vectors to word embeddings."""
    return "x = embedding[words] + position[: len(words)]"


def rotary(n_positions: int, width: int) -> str:
    """Code that rotates q and k, (head, token, d_k)."""
    lines = [
        *_angles(n_positions, width),
        "cos = angle.cos().repeat(1, 2).float()",
        "sin = angle.sin().repeat(1, 2).float()",
        *(rotated(name, "half", width) for name in "qk"),
    ]
    return "\n".join(lines)


def _angles(n_positions: int, width: int) -> list[str]:
    return [
        f"p = torch.arange({n_positions}).double()[:, None]",
        f"i = torch.arange(0, {width}, 2).double()",
        f"angle = p / 10000 ** (i / {width})",
    ]


def alibi(n_positions: int, n_heads: int) -> str:
    """Code that adds the bias to the scores, (head, query, key)."""
    power = 1 << n_heads.bit_length() - 1
    lines = [f"rates = 2.0 ** (-8 / {power} * torch.arange(1, {power + 1}))"]
    if left := n_heads - power:
        lines += [f"more = 2.0 ** (-4 / {power} * torch.arange(1, {2 * left}, 2))"]
        lines += ["rates = torch.cat([rates, more])"]
    lines += [
        f"p = torch.arange({n_positions})",
        "scores = scores - rates[:, None, None] * (p[:, None] - p).abs()",
    ]
    return "\n".join(lines)


# One number, `value`; the scores of a whole row are `s`


def program(about: Sequence[str], lines: Sequence[str]) -> str:
    """Code that runs on its own and prints the value, with comments about it at the top."""
    return "\n".join([*(f"# {one}" for one in about), "import torch", "", *lines, "print(value.item())", ""])


def products(value: str, bias: float | None = None, **factors: tuple[np.ndarray, str]) -> str:
    """The factors of a sum of products, each with a comment, and the line that sums them."""
    lines = [f"{name} = {tensor(numbers)}  # {what}" for name, (numbers, what) in factors.items()]
    return "\n".join([*lines, value if bias is None else f"{value} + {bias!r}  # bias"])


def given(value: float, why: str) -> str:
    return f"value = torch.tensor({number(value)})  # {why}"


def rms_norm(numbers: np.ndarray, gain: float) -> str:
    return (
        f"row = {tensor(numbers)}  # what the norm is taken over\n"
        f"value = value / row.square().mean().sqrt() * {gain!r}  # RMSNorm and its gain"
    )


def layer_norm(numbers: np.ndarray, epsilon: float, gain: float, shift: float) -> str:
    return (
        f"row = {tensor(numbers)}  # what the norm is taken over\n"
        f"value = (value - row.mean()) / (row.var(correction=0) + {epsilon!r}).sqrt()\n"
        f"value = value * {gain!r} + {shift!r}  # LayerNorm with its gain and shift"
    )


def tensor(values: np.ndarray) -> str:
    """Numbers as code that reads back exactly."""
    numbers = ", ".join(map(str, values.tolist())) if values.dtype == bool else _listed(values)
    dtype = ", dtype=torch.float64" if values.dtype == np.float64 else ""
    lines = textwrap.fill(f"torch.tensor([{numbers}]{dtype})", LINE, break_long_words=False)
    return lines.replace("\n", "\n    ")


def _listed(values: np.ndarray) -> str:
    """Numbers of one or two axes, separated by commas, with the fewest digits that read back exactly."""
    if values.ndim > 1:
        return ", ".join(f"[{_listed(row)}]" for row in values)
    return ", ".join(map(number, values))


def number(value: float) -> str:
    """A number as code that reads back exactly."""
    return str(value) if np.isfinite(value) else f'float("{value}")'
