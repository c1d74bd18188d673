"""What a layer keeps of each token while a text grows, and where its heads rest."""

import numpy as np

from mha_core.traces.layer import LayerTrace


def kept(layer: LayerTrace) -> dict[str, int] | None:
    """Numbers kept of one token in one layer: "own" is what this one keeps, the others for comparison.

    With h heads, n_kv key/value heads and sizes d_k, d_v: "all" (multi-head) ``h·(d_k + d_v)``, "shared"
    (grouped query) ``n_kv·(d_k + d_v)``, "one" (multi-query) ``d_k + d_v``, and of a layer with latent
    attention "latent" ``kv_rank + rotary_width``. None where keys are not known.
    Sources: Shazeer 2019 (multi-query), Ainslie et al. 2023 (grouped), DeepSeek-AI 2024 (latent).
    """
    if not layer.knows("k"):
        return None
    width = layer.d_k + layer.d_v
    found = {"all": layer.n_heads * width, "one": width}
    latent = layer.about.latent
    if latent is not None:
        found["latent"] = latent.kv_rank + (latent.rotary_width or 0)
        return {"own": found["latent"], **found}
    found["shared"] = layer.n_kv_heads * width
    return {"own": found["shared"], **found}


def short_vectors(layer: LayerTrace) -> dict[str, np.ndarray]:
    """The vectors that a layer with latent attention makes the others of, as far as they are known.

    "kv", that of keys and values, (key, kv_rank); "position", the turned part of the key that all heads
    share, (key, rotary_width): together all that is kept of a token. "q", that of queries, (query, q_rank).
    Empty for any other layer. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    found = {}
    if layer.about.latent is None:
        return found
    if "kv_short" in layer.tensors:
        found["kv"] = layer.tensors["kv_short"].float().numpy()
    if (rotary := layer.about.rotary) is not None:
        found["position"] = layer.k[0, :, rotary.start : rotary.start + rotary.width]
    if "q_short" in layer.tensors:
        found["q"] = layer.tensors["q_short"].float().numpy()
    return found


def special_share(layer: LayerTrace, special: tuple[int, ...], *, rows: int = 64) -> float | None:
    """The mean share of a row's weight that rests on special tokens; None where there is none of them.

    At most `rows` rows count, evenly spread.
    """
    if not special or layer.n_query != layer.n_key:
        return None
    step = max(1, -(-layer.n_query // rows))
    return float(layer.weights(rows=slice(None, None, step))[..., list(special)].sum(-1).mean())
