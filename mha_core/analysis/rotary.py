"""What a rotary position code does to one query or key: pairs of its numbers turn by an angle.

Pair i of the token at position m turns by ``m · θ_i``; so q · k depends on the distance of two tokens alone.
Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding".
"""

import numpy as np
import pandas as pd

from mha_core.errors import MhaError, one_of
from mha_core.traces.indices import index
from mha_core.traces.layer import LayerTrace

RAW = {"q": "q_raw", "k": "k_raw"}


def turned(layer: LayerTrace, token: int, *, head: int, name: str = "q") -> pd.DataFrame:
    """The pairs of a query (or key, `name` "k") before and after they are turned, a row for each pair.

    Columns: first and second, the numbers of its two dimensions of the head, from 0; x and y before,
    x_after and y_after; theta, the angle of one position, and angle, that of this one, ``m · θ``, in
    radians. The angle is NaN where the code turns the positions by something else than a multiple of θ.
    `head` counts the heads of queries; a key is that of the key/value head it uses. Raises `MhaError` for
    a layer whose rotation is not known, and for a head or token that it does not have.
    """
    one_of("vector", name, RAW, parameter="name")
    rotary = layer.about.rotary
    if rotary is None or not all(layer.knows(key) for key in (RAW[name], "cos", "sin")):
        raise MhaError("The rotation of this layer is not known, or there is none.")
    own = layer.head_index(head) if name == "q" else layer.kv_head(head)
    token = index("token", token, layer.n_query, of="This layer")
    before = layer.tensors[RAW[name]][own, token].float().numpy()
    turned_to = f"{name}_turned" if layer.knows(f"{name}_turned") else name  # a norm may come after
    after = layer.tensor(turned_to)[own, token].astype(np.float32)
    cos, sin = (layer.tensors[key].float().numpy() for key in ("cos", "sin"))
    first, second = pairs(rotary.form, cos.shape[1])
    angles = np.arctan2(sin[:, first], cos[:, first])  # (token, pair), each within one turn
    first, second = first + rotary.start, second + rotary.start
    theta = angles[1] if len(angles) > 1 else np.full(len(first), np.nan)
    whole = token * theta if token else np.zeros(len(first))
    apart = np.angle(np.exp(1j * (whole - angles[token])))
    whole = np.where(np.abs(apart) < 1e-3 * max(1, token), whole, np.nan)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "x": before[first],
            "y": before[second],
            "x_after": after[first],
            "y_after": after[second],
            "theta": theta,
            "angle": whole,
        },
        index=pd.RangeIndex(1, len(first) + 1, name="pair"),
    )


def pairs(form: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which two dimensions turn together: i and i + width/2 ("half"), or 2i and 2i + 1 ("pairs")."""
    number = np.arange(width // 2)
    return (number, number + width // 2) if form == "half" else (2 * number, 2 * number + 1)
