"""The steps of our own models before X, between X and the heads, and after Z: with them a way is whole.

A trace of one head does not hold what they need: embeddings, latent vectors, the residual stream. The caller
takes it from the model. Each function returns a step as those of `derivation`.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from mha_core.analysis import pytorch
from mha_core.analysis.derivation import HeadContext, Step, formula
from mha_core.analysis.frames import Picture
from mha_core.attention.latent import EPSILON

FORMULAS = {
    "tokens": r"E_{\text{id}}[L, d_model] + P[L, d_model] = X_0[L, d_model]",
    "latent": r"""\begin{gathered}
        \rule{0pt}{1.2em} \text{RMSNorm}(X[L, d_model] \;\; W^{DKV}[d_model, rank]) = c^{KV}[L, rank] \\
        c^{KV} \;\; W^{UK}[rank, h·d_k] = K[L, h·d_k] \\
        c^{KV} \;\; W^{UV}[rank, h·d_v] = V[L, h·d_v] \\
        X \;\; W^Q[d_model, h·d_k] = Q[L, h·d_k]
        \end{gathered}""",
    "add": r"\text{LayerNorm} ( \; x[L, d_model] + Z[L, d_model] \; )",
}


def tokens(view: HeadContext, words: np.ndarray, positions: np.ndarray, **notes: bool) -> Step:
    """From the numbers of the words to X₀, the sum of their embeddings and their positions.

    `words` and `positions` are (token, d_model); `notes` are the sentences of the source, as in a step.
    """
    added = bool(positions.any())
    latex = FORMULAS["tokens"] if added else r"E_{\text{id}}[L, d_model] = X_0[L, d_model]"
    before = [_of_tokens(view, words, "embedding", "E")]
    before += [_of_tokens(view, positions, "position", "P")] if added else []
    after = _of_tokens(view, words + positions, "embedded", "X₀")
    code = pytorch.learned() if added else "x = embedding[words]"
    shown = tuple(note for note, holds in notes.items() if holds)
    return Step("tokens", formula(latex, view.sizes), tuple(before), (after,), shown, view.sizes, code=code)


def latent(view: HeadContext, short: np.ndarray) -> tuple[Step, list[str]]:
    """The projections of latent attention, and the code of the split: K and V come from one vector per token.

    ``c^KV = RMSNorm(X W^DKV)``, ``K = c^KV W^UK``, ``V = c^KV W^UV``, for a layer whose queries have no
    latent vector and whose keys no position. `short` is c^KV, (token, rank).
    Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    layer, rank = view.layer_trace, short.shape[1]
    facts = view.sizes | {"rank": rank, "uncompressed": layer.n_heads * (layer.d_k + layer.d_v)}
    pictures = _of_tokens(view, short, "latent", "cᴷⱽ"), *(view.packed(name) for name in "qkv")
    code = [
        f"c_kv = torch.nn.functional.rms_norm(x @ w_dkv, ({rank},), eps={EPSILON!r}) * c_gain",
        "q, k, v = x @ w_q, c_kv @ w_uk, c_kv @ w_uv",
    ]
    written = formula(FORMULAS["latent"], facts)
    step = Step("project", written, (view.picture("x"),), pictures, ("latent",), facts, code="\n".join(code))
    return step, pytorch.STEPS["split"](layer)


def add(view: HeadContext, before: np.ndarray, normed: np.ndarray, query: int) -> Step:
    """The residual connection after Z, and the norm of what follows: ``LayerNorm(x + Z)``.

    `before` is the residual stream x and `normed` that norm, (token, d_model). The fact `cosine` is that of
    the token `query` before and after. Sources: He et al. 2016 (residual), Ba et al. 2016 (norm).
    """
    total = before + view.layer_trace.result()
    lengths = np.linalg.norm(before[query]) * np.linalg.norm(total[query])
    facts = view.sizes | {"cosine": float(before[query] @ total[query] / lengths)}
    facts["query"] = view.trace.tokens.labels[query]
    after = _of_tokens(view, total, "residual", "x + Z"), _of_tokens(view, normed, "normed", "LN(x + Z)")
    width = view.sizes["d_model"]
    code = f"x = x + z\ny = torch.nn.functional.layer_norm(x, ({width},), gain, shift)"
    read = _of_tokens(view, before, "stream", "x"), view.picture("result")
    return Step("add", formula(FORMULAS["add"], facts), read, after, ("why", "norm"), facts, code=code)


def _of_tokens(view: HeadContext, values: np.ndarray, name: str, symbol: str) -> Picture:
    """A matrix with a row for each token, or for those of the part that is shown."""
    drawn, rows = view.picture("x"), view.rows("x")
    frame = pd.DataFrame(
        values[rows], drawn.frame.index, pd.RangeIndex(1, values.shape[1] + 1, name=drawn.frame.columns.name)
    )
    return replace(drawn, name=name, symbol=symbol, frame=frame)
