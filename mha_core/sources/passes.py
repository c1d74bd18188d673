"""One forward pass of somebody else's model: with what, whose attention it is, and what it returns."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mha_core.capture.call import Call

PROBE = 7  # tokens of a trial
# In which order a model returns the weights of its attention, and whose they are.
RETURNED = {
    "encoder_attentions": "encoder",
    "attentions": "self",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


def forward(module: nn.Module, inputs: Mapping[str, Tensor], **more: object) -> object:
    # No inference mode, not even the caller's: its tensors do not tell when they are changed in place.
    with torch.inference_mode(False), torch.no_grad():
        return module(**inputs, **more, return_dict=True)


def probe(module: nn.Module) -> dict[str, Tensor]:
    """A few tokens, other ones on each side, and no two alike if the vocabulary allows."""
    config, device = module.config.get_text_config(), next(module.parameters()).device
    most = getattr(config, "vocab_size", None) or 8
    special = set()
    for name in ("pad", "bos", "eos"):
        number = getattr(config, f"{name}_token_id", None)  # one, or a list of them
        special |= set(number) if isinstance(number, list | tuple) else {number}
    # From the middle of the vocabulary: at its ends stand tokens for pictures and the like.
    around = [*range(most // 2, most), *range(most // 2 - 1, -1, -1)]
    ids = [number for number in around[: PROBE + 9] if number not in special] or [0]
    inputs = {"input_ids": torch.tensor([ids[:PROBE]], device=device)}
    if module.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([ids[:-PROBE:-1] or ids[:1]], device=device)
    return inputs


def sizes(inputs: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """How many tokens look at how many in layers of each kind; none at none where there is no such kind."""
    n_text = inputs["input_ids"].shape[1]
    n_target = inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in inputs else 0
    own = {"encoder": (n_text, n_text), "self": (n_text, n_text)}
    return {**own, "decoder": (n_target, n_target), "cross": (n_target, n_text)}


def kind(call: Call, module: nn.Module, names: Mapping[int, str], inputs: Mapping) -> str | None:
    """Whose tokens look at whose, or None if the sizes say that it is neither."""
    n_text = inputs["input_ids"].shape[1]
    if call.q.shape[0] != 1:
        return None
    sizes = (call.q.shape[2], call.k.shape[2])
    if "decoder_input_ids" not in inputs:
        return "self" if sizes == (n_text, n_text) else None
    n_target = inputs["decoder_input_ids"].shape[1]
    encoder = names.get(id(module.get_encoder()))
    if encoder and call.name.startswith(f"{encoder}."):
        return "encoder" if sizes == (n_text, n_text) else None
    if call.looks_outside:
        return "cross" if sizes == (n_target, n_text) else None
    return "decoder" if sizes == (n_target, n_target) else None


def output(output: object) -> Tensor:
    """The first tensor of floating numbers of an output: hidden states or logits."""
    values = output.values() if hasattr(output, "values") else output
    return next(v for v in values if isinstance(v, Tensor) and v.is_floating_point())


def returned(output: object) -> list[tuple[str, Tensor]]:
    """Kind and weights of each layer, as the model itself returns them.

    (1, head, query, key), or more axes where a text is looked at in parts.
    """
    found = []
    for name, kind in RETURNED.items():
        for weights in getattr(output, name, None) or ():
            if isinstance(weights, Tensor) and weights.dim() >= 4:
                found.append((kind, weights))
    return found


def are_weights(matrix: Tensor) -> bool:
    """Could each row be weights? ProphetNet returns its scores by that name."""
    return bool(matrix.min() >= 0) and bool(matrix.float().sum(-1).max() <= 1.1)


def gap(given: Tensor, asked: Tensor) -> float:
    """The largest difference, in units of the largest number if that is above 1; NaN counts as infinite."""
    if given.shape != asked.shape:
        return float("inf")
    given, asked = given.float(), asked.float()
    same = (given == asked) | (given.isnan() & asked.isnan())
    gap = (given - asked).abs().masked_fill(same, 0.0)
    return gap.nan_to_num(nan=float("inf")).max().item() / max(1.0, asked.abs().nan_to_num().max().item())
