"""The steps of our own models before X and after Z: with them a way is whole.

A trace of one head does not hold what they need: embeddings and the residual stream. The caller takes it from
the model. Each function returns a step as those of `derivation`.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from mha_core.analysis import pytorch
from mha_core.analysis.derivation import HeadContext, Step, formula
from mha_core.analysis.frames import Picture

FORMULAS = {
    "tokens": r"E_{\text{id}}[L, d_model] + P[L, d_model] = X_0[L, d_model]",
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
