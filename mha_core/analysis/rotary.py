"""The rotary position code of one query or key: pairs of its numbers are rotated by an angle.

Pair i of the token at position m is rotated by ``m · θ_i``, so that q · k depends on positions only by the
distance of two tokens.
Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding".
"""

import numpy as np
import pandas as pd

from mha_core.errors import MhaError, one_of
from mha_core.traces.indices import LAYER, index
from mha_core.traces.layer import LayerTrace

RAW = {"q": "q_raw", "k": "k_raw"}


def rotated_pairs(layer: LayerTrace, token: int, *, head: int, name: str = "q") -> pd.DataFrame:
    """The pairs of a query (or key, `name` "k") before and after the rotation, one row for each pair.

    Columns: first and second, the indices of the two dimensions in the head, from 0; x and y before the
    rotation, x_after and y_after after it; theta, the angle of one position, and angle, that of this token,
    ``m · θ``, in radians. The angle is NaN where the code does not rotate by a multiple of θ.
    `head` is a query head; a key is that of its key/value head. Raises `MhaError` for a layer whose
    rotation is not known, and for a head or token that it does not have.
    """
    one_of("vector", name, RAW, parameter="name")
    rotary = layer.about.rotary
    if rotary is None or not all(layer.knows(key) for key in (RAW[name], "cos", "sin")):
        raise MhaError("The rotation of this layer is not known, or there is none.")
    vector_head = layer.head_index(head) if name == "q" else layer.kv_head(head)
    token = index("token", token, layer.n_query, of=LAYER)
    before = layer.tensors[RAW[name]][vector_head, token].float().numpy()
    rotated = f"{name}_turned" if layer.knows(f"{name}_turned") else name  # a norm may follow
    after = layer.tensor(rotated)[vector_head, token].astype(np.float32)
    cos, sin = (layer.tensors[key].float().numpy() for key in ("cos", "sin"))
    first, second = pairs(rotary.form, cos.shape[1])
    angles = np.arctan2(sin[:, first], cos[:, first])  # (token, pair), each within one turn
    first, second = first + rotary.start, second + rotary.start
    theta = angles[1] if len(angles) > 1 else np.full(len(first), np.nan)
    angle = token * theta if token else np.zeros(len(first))
    difference = np.angle(np.exp(1j * (angle - angles[token])))
    angle = np.where(np.abs(difference) < 1e-3 * max(1, token), angle, np.nan)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "x": before[first],
            "y": before[second],
            "x_after": after[first],
            "y_after": after[second],
            "theta": theta,
            "angle": angle,
        },
        index=pd.RangeIndex(1, len(first) + 1, name="pair"),
    )


def pairs(form: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The two dimensions of each pair: i and i + width/2 ("half"), or 2i and 2i + 1 ("pairs")."""
    number = np.arange(width // 2)
    return (number, number + width // 2) if form == "half" else (2 * number, 2 * number + 1)
