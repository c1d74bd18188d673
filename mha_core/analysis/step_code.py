"""The code of each step from X to Z: the lines of torch that make what the step makes, for all heads at once.

Names are those of the formulas: x (or y, the text that is looked at, or the input that V has of its own),
w_q, b_q, q, k, v, scores, weights, heads, concat, w_o, b_o, z; besides allowed (True where a query may look
at a key), bias, sinks, gate, cos and sin. What is not known of a layer, such as the gain of a norm, leaves no
code.
"""

from mha_core.traces.facts import Adjustment, Clip, Rotary, Scale
from mha_core.traces.layer import LayerTrace
from mha_core.traces.verify import projection_parts


def code(name: str, layer: LayerTrace, *, rotary: bool = False) -> str:
    """The lines of a step of `derivation.STEPS`; "" where they are not known.

    `rotary` says that Q and K of random weights were rotated, which is no step of its own there.
    """
    return "\n".join(CODE[name](layer) + (_rotated_heads(layer) if rotary and name == "split" else []))


def _project(layer: LayerTrace) -> list[str]:
    lines = []
    for name, (_, _, bias, _) in projection_parts(layer).items():
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


def _rotated_heads(layer: LayerTrace) -> list[str]:
    return [line for name in "qk" for line in _rotated(name, Rotary("half", layer.d_k), layer.d_k)]


def _adjust(layer: LayerTrace) -> list[str]:
    lines = []
    for name, steps in layer.adjustments.items():
        for step in steps:
            made = _adjusted(name, step, layer.tensors[name].shape[-1])
            if not made:
                return []  # a part of the way would be another way
            lines += made
    return lines


def _adjusted(name: str, step: Adjustment, width: int) -> list[str]:
    if isinstance(step, Scale):
        return [f"{name} = {name} * {step.by!r}"]
    if isinstance(step, Clip):
        return [f"{name} = {name}.clamp(-{step.at!r}, {step.at!r})"]
    return _rotated(name, step, width) if isinstance(step, Rotary) else []


def _rotated(name: str, step: Rotary, width: int) -> list[str]:
    """A rotation of all dimensions; one of a part of them takes more than a line."""
    if (step.start, step.width) != (0, width):
        return []
    if step.form == "half":
        turned = f"torch.cat([-{name}[..., {width // 2}:], {name}[..., :{width // 2}]], dim=-1)"
    else:
        turned = f"torch.stack([-{name}[..., 1::2], {name}[..., ::2]], dim=-1).flatten(-2)"
    return [f"{name} = {name} * cos + {turned} * sin"]


def _for_each_head(name: str, layer: LayerTrace) -> str:
    """Keys or values for every query head: neighbours share one."""
    shared = layer.n_heads // layer.n_kv_heads
    return name if shared == 1 else f"{name}.repeat_interleave({shared}, dim=0)"


def _scores(layer: LayerTrace) -> list[str]:
    return [f"scores = q @ {_for_each_head('k', layer)}.mT"]


def _scale(layer: LayerTrace) -> list[str]:
    if abs(layer.scale * layer.d_k**0.5 - 1) < 1e-6:
        return [f"scores = scores / {layer.d_k}**0.5"]
    return [f"scores = scores * {layer.scale!r}"]


def _mask(layer: LayerTrace) -> list[str]:
    rule = layer.rule
    lines = []
    if rule.soft_cap is not None:
        lines.append(f"scores = {rule.soft_cap!r} * torch.tanh(scores / {rule.soft_cap!r})")
    if rule.bias is not None or rule.distance_bias is not None:
        lines.append("scores = scores + bias")
    return [*lines, "scores = scores.masked_fill(~allowed, -torch.inf)"]


def _softmax(layer: LayerTrace) -> list[str]:
    rule = layer.rule
    if rule.patched_weights is not None:
        return []
    scores, left = "scores", ""
    if rule.sinks is not None:
        scores, left = (
            f"torch.cat([scores, sinks[:, None, None].expand(-1, {layer.n_query}, 1)], dim=-1)",
            "[..., :-1]",
        )
    if rule.temperature != 1:
        scores = f"({scores} / {rule.temperature!r})"
    empty = rule.mask is not None and rule.sinks is None and not rule.mask.any(-1).all()
    return [f"weights = {scores}.softmax(dim=-1){left}{'.nan_to_num()' if empty else ''}"]


def _mix(layer: LayerTrace) -> list[str]:
    if layer.rule.patched_outputs is not None:
        return []
    return [f"heads = weights @ {_for_each_head('v', layer)}"]


def _concat(layer: LayerTrace) -> list[str]:
    if layer.about.output_rotary is not None:
        return []
    heads = "(heads * gate)" if layer.knows("gate") else "heads"
    return [f"concat = {heads}.transpose(0, 1).flatten(1)"]


def _output(layer: LayerTrace) -> list[str]:
    return ["z = concat @ w_o" + (" + b_o" if layer.projections.b_o is not None else "")]


CODE = {
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
