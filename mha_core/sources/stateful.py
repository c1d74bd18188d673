"""Layers that mix tokens by other means than attention: they have no weights that could be shown."""

import re

from torch import nn

NO_ATTENTION = re.compile(  # SSM in capitals alone: "ssm" is also in GptOssMLP
    r"SSM|(?i:mamba|rwkv|rglru|delta(?:net|attention)|linearattention|lightningattention|shortconv$|fnetfourier|xlstm|hyena)"
)
# What only holds or serves them.
AROUND = re.compile(r"model|block|layer$|norm|cache|conv1d|mlp$|feedforward$", re.IGNORECASE)
STATE = "A_log"  # the decay of a state-space layer, whatever its class is called


def without_attention(module: nn.Module) -> tuple[str, ...]:
    """The layers that mix tokens by a state that is carried along, or by a sum: they have no weights."""
    found = {}
    for name, part in module.named_modules():
        kind = type(part).__name__
        mixes = NO_ATTENTION.search(kind) and not AROUND.search(kind)
        inside = any(name.startswith(f"{other}.") for other in found)
        if (mixes or hasattr(part, STATE)) and name and not inside:
            found[name] = f"{name}: {kind} mixes tokens by other means than attention"
    return tuple(found.values())
