"""The steps of our own models before X and after Z: with them a way is whole.

A trace of one head does not hold what they need: embeddings and the residual stream. The caller takes it from
the model. Each function returns a step as those of `derivation`.
"""

import numpy as np

from mha_core.analysis import pytorch
from mha_core.analysis.derivation import HeadContext, Step, formula


def tokens(view: HeadContext, words: np.ndarray, positions: np.ndarray, **notes: bool) -> Step:
    """From the numbers of the words to X₀, the sum of their embeddings and their positions.

    `words` and `positions` are (token, d_model); `notes` are the sentences of the source, as in a step.
    """
    added = bool(positions.any())
    latex = rf"E_{{\text{{id}}}}[L, d_model]{' + P[L, d_model]' if added else ''} = X_0[L, d_model]"
    before = [view.of_tokens(words, "embedding", "E")]
    before += [view.of_tokens(positions, "position", "P")] if added else []
    after = view.of_tokens(words + positions, "embedded", "X₀")
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
    after = view.of_tokens(total, "residual", "x + Z"), view.of_tokens(normed, "normed", "LN(x + Z)")
    width = view.sizes["d_model"]
    code = f"x = x + z\ny = torch.nn.functional.layer_norm(x, ({width},), gain, shift)"
    read = view.of_tokens(before, "stream", "x"), view.picture("result")
    latex = formula(r"\text{LayerNorm} ( \; x[L, d_model] + Z[L, d_model] \; )", facts)
    return Step("add", latex, read, after, ("why", "norm"), facts, code=code)
