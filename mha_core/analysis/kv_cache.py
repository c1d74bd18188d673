"""The key/value cache: the number of values that a layer stores for each token while a text grows."""

import numpy as np

from mha_core.traces.layer import LayerTrace


def cache_sizes(layer: LayerTrace) -> dict[str, int] | None:
    """The number of values that a layer stores for one token: "own" of this layer, the others for comparison.

    With h heads, n_kv key/value heads and sizes d_k, d_v: "all" (multi-head) ``h·(d_k + d_v)``, "shared"
    (grouped query) ``n_kv·(d_k + d_v)``, "one" (multi-query) ``d_k + d_v``, and of a layer with latent
    attention "latent" ``kv_rank + rotary_width``. None where the keys are not known.
    Sources: Shazeer 2019 (multi-query), Ainslie et al. 2023 (grouped), DeepSeek-AI 2024 (latent).
    """
    if not layer.knows("k"):
        return None
    width = layer.d_k + layer.d_v
    sizes = {"all": layer.n_heads * width, "one": width}
    latent = layer.about.latent
    if latent is not None:
        sizes["latent"] = latent.kv_rank + (latent.rotary_width or 0)
        return {"own": sizes["latent"], **sizes}
    sizes["shared"] = layer.n_kv_heads * width
    return {"own": sizes["shared"], **sizes}


def short_vectors(layer: LayerTrace) -> dict[str, np.ndarray]:
    """The compressed vectors of a layer with latent attention, as far as they are known.

    "kv", that of keys and values, (key, kv_rank); "position", the rotated part of the key that all heads
    share, (key, rotary_width): together they are the cache of a token. "q", that of queries, (query, q_rank).
    Empty for any other layer. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    vectors = {}
    if layer.about.latent is None:
        return vectors
    if "kv_short" in layer.tensors:
        vectors["kv"] = layer.tensors["kv_short"].float().numpy()
    if (rotary := layer.about.rotary) is not None:
        vectors["position"] = layer.k[0, :, rotary.start : rotary.start + rotary.width]
    if "q_short" in layer.tensors:
        vectors["q"] = layer.tensors["q_short"].float().numpy()
    return vectors


def special_share(layer: LayerTrace, special: tuple[int, ...], *, rows: int = 64) -> float | None:
    """The mean share of a row's weight on special tokens; None where there are none.

    At most `rows` rows count, evenly spaced. None too where the numbers of queries and keys differ.
    """
    if not special or layer.n_query != layer.n_key:
        return None
    step = max(1, -(-layer.n_query // rows))
    return float(layer.weights(rows=slice(None, None, step))[..., list(special)].sum(-1).mean())
