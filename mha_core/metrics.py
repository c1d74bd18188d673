"""What heads do, in numbers: patterns and likeness for every trace, measured roles for small models.

Heads and layers count from 0. Sources: Clark et al. 2019, "What Does BERT Look At?" (patterns, entropy,
likeness, argmax accuracy of links against a fixed distance); Vig & Belinkov 2019, "Analyzing the Structure of
Attention in a Transformer Language Model" (mean distance).
"""

import numpy as np
import pandas as pd

from mha_core.blocks import DISTANCE, POSITIONS, Block, Patterns, blocks, same_tokens
from mha_core.errors import MhaError
from mha_core.layer import LayerTrace
from mha_core.training import links
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel

ROLES = (*POSITIONS, *links.LINKS)

# A head is named after what it mostly does. For a position that is half of its weight. For a link, 0.5 is
# what a head gets that always takes the same one of the two nouns, so it has to be clearly more.
LEAST_WEIGHT = 0.5
LEAST_SHARE = 0.6
# A share of 160 items has a standard error of up to 0.04, and a role is looked for in up to 32 heads: five
# standard errors are no accident.
MARGIN = 0.2

# Rank collapse: all rows as good as even, and the tokens as good as one. Ours.
EVEN, ALIKE, ROWS_LOOKED_AT = 0.99, 0.1, 64

AT_ONCE = 8  # numbers in memory for each cell while heads are compared, about


def patterns(layer: LayerTrace) -> pd.DataFrame:
    """Where each head looks by position and how widely: one row for each head, no linguistics.

    - "previous token", "next token", "same token": mean weight ``A[m, m−1]``, ``A[m, m+1]``, ``A[m, m]``;
    - "first token": mean ``A[m, 0]`` over m > 0, high where the first token serves as a sink;
    - "entropy": mean of ``−Σ p log p / log(visible keys)``, 0 for one key alone, 1 for all alike;
    - "distance": mean of ``Σ p |m − n|``, in positions,

    where p is row m of the weights A over its sum. A mean runs over the rows in which that key exists and
    is visible. Rows with fewer than two visible keys have no choice and are left out; NaN where none is left.
    Where one text looks at another, positions mean nothing: all but the entropy are NaN.

    Sources: Clark et al. 2019, for the distance Vig & Belinkov 2019, for sinks Xiao et al. 2023.
    """
    found = Patterns(layer)
    for block in blocks(layer):
        found.add(block)
    return found.table()


def similarity(layer: LayerTrace, *, most: int | None = None) -> np.ndarray:
    """How alike each two heads look, from 0 (never at the same key) to 1 (the same weights).

    ``1 − mean over rows of √JSD(p, q)`` with ``JSD(p, q) = H((p + q)/2) − (H(p) + H(q))/2`` in bits, p and q
    being the rows of the two heads over their sums. The root of the divergence is a metric, so heads
    that are both like a third one are like each other. (head, head)

    Rows are those of `patterns`, left out where either head has none; NaN where no row is left. Of a long
    text at most `most` rows can be compared, evenly spaced; memory never grows with tokens².
    Sources: Lin 1991 (bounds), Endres & Schindelin 2003 (the root), Clark et al. 2019 (between heads).
    """
    queries = None
    if most is not None and most < layer.n_query:
        queries = np.linspace(0, layer.n_query - 1, most).astype(int)
    apart, common = np.zeros((2, layer.n_heads, layer.n_heads))
    for block in blocks(layer, queries, each=AT_ONCE):
        p = _shares(block)
        entropy, counted = _entropy(p), p.any(2)
        for head in range(layer.n_heads - 1):
            others = slice(head + 1, None)
            mixed = _entropy((p[head] + p[others]) / 2)
            divergence = mixed - (entropy[head] + entropy[others]) / 2
            both = counted[head] & counted[others]
            apart[head, others] += np.where(both, np.sqrt(divergence.clip(0, 1)), 0.0).sum(1)
            common[head, others] += both.sum(1)
    apart, common = apart + apart.T, common + common.T
    alike = 1 - np.divide(apart, common, out=np.full(apart.shape, np.nan), where=common > 0)
    np.fill_diagonal(alike, 1.0)
    return alike


def collapse(layer: LayerTrace) -> float | None:
    """How far apart the tokens of a layer are whose heads all look evenly; None where a head still chooses.

    None too where X is not known and where the tokens look at those of another text.

    ``‖X − mean of X‖ / ‖X‖`` of the layer's input X, where that is at most `ALIKE` and the mean over rows
    of ``−Σ p log p / log(visible keys)`` at least `EVEN` in every head. At most `ROWS_LOOKED_AT` rows count.
    Source: Dong, Cordonnier & Loukas 2021, "Attention is not all you need: pure attention loses rank doubly
    exponentially with depth".
    """
    if not layer.knows("x") or not same_tokens(layer):
        return None
    length = np.linalg.norm(layer.x)
    apart = float(np.linalg.norm(layer.x - layer.x.mean(0)) / length) if length else 0.0
    if apart > ALIKE or len(layer.x) < 2:
        return None
    rows = np.linspace(0, layer.n_query - 1, min(layer.n_query, ROWS_LOOKED_AT)).astype(int)
    visible = layer.allowed(rows=rows).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        even = _entropy(layer.weights(rows=rows).astype(np.float64)) / np.log2(visible)
    found = _mean(np.nan_to_num(even), visible > 1)
    return apart if (found >= EVEN).all() else None


def roles(model: SmallModel, language: str, *, seed: int = 0) -> pd.DataFrame:
    """What each head of a small model does, measured on held-out sentences: a row for each head and role.

    Columns: layer, head, role (one of `ROLES`), and

    - score: for "A to B" the share of items in which B gets the largest weight of A's row; for a position
      the mean weight on it;
    - weight: the mean weight on the right key;
    - baseline: for a link the share that the best fixed distance finds, for a position uniform ``1/L``;
    - control: the score of the same head before training, drawn from `seed`;
    - n: the number of items.

    In "hidden A to B" the word A is [MASK], as it mostly was when the model was asked for it. The cue is the
    word that decides what the pronoun stands for. The sentences are the same on every call.

    Raises `MhaError` for an unknown language and for a model with another vocabulary.
    Source: Clark et al. 2019.
    """
    n_words = len(lexicon(language).vocabulary)
    if len(model.embedding) != n_words:
        raise MhaError(
            f"The model has {len(model.embedding):,} words, the small language {language!r} has {n_words:,}: "
            f"this model belongs to another language."
        )
    made = links.material(language)
    trained = _measured(links.looks(model, made), made)
    control = _measured(links.looks(SmallModel(model.shape, n_words, seed=seed), made), made)
    keys = ["layer", "head", "role"]
    control = control[[*keys, "score"]].rename(columns={"score": "control"})
    table = trained.merge(control, on=keys, validate="one_to_one")
    table = table.sort_values(["layer", "head"], kind="stable", ignore_index=True)
    return table[[*keys, "score", "weight", "baseline", "control", "n"]]


def labels(roles: pd.DataFrame) -> dict[tuple[int, int], tuple[str, float]]:
    """The one role that a head can be called after, and its score: (layer, head) → (role, score).

    The role with the highest score among those in which the score is at least `LEAST_SHARE` (for a
    position `LEAST_WEIGHT`), and at least `MARGIN` above the baseline and above the control of *every*
    head. A head without such a role has no label.
    """
    # The best of many heads is compared, so the best of the untrained ones is what it has to beat.
    beaten = np.maximum(roles["baseline"], roles.groupby("role")["control"].transform("max"))
    least = np.where(roles["role"].isin(POSITIONS), LEAST_WEIGHT, LEAST_SHARE)
    fit = roles[(roles["score"] >= least) & (roles["score"] >= beaten + MARGIN)]
    best = fit.sort_values("score", ascending=False, kind="stable").drop_duplicates(["layer", "head"])
    best = best.sort_values(["layer", "head"])
    heads = zip(best["layer"].tolist(), best["head"].tolist(), strict=True)
    return dict(zip(heads, zip(best["role"], best["score"].tolist(), strict=True), strict=True))


def _measured(looks: links.Looks, made: links.Material) -> pd.DataFrame:
    """Score, weight, baseline and n of every head and role."""
    n_layers, n_heads = looks.weight.shape[1:]
    parts = []
    for name in POSITIONS:
        found = [_along(weights, name) for weights in looks.weights]  # (layer, head, row) each
        n = sum(rows.shape[2] for rows in found)
        score = sum(rows.sum(2, dtype=float) for rows in found) / n
        uniform = sum(
            rows.shape[2] / weights.shape[3] for rows, weights in zip(found, looks.weights, strict=True)
        )
        parts.append((name, score, score, uniform / n, n))
    for kind, name in enumerate(links.LINKS):
        chosen = made.kind == kind
        if n := int(chosen.sum()):
            _, frequent = np.unique((made.key - made.query)[chosen], return_counts=True)
            score, weight = looks.right[chosen].mean(0), looks.weight[chosen].mean(0, dtype=float)
            parts.append((name, score, weight, frequent.max() / n, n))
    layer, head = (axis.ravel() for axis in np.indices((n_layers, n_heads)))
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "layer": layer,
                    "head": head,
                    "role": name,
                    "score": score.ravel(),
                    "weight": weight.ravel(),
                    "baseline": baseline,
                    "n": n,
                }
            )
            for name, score, weight, baseline, n in parts
        ],
        ignore_index=True,
    )


def _shares(block: Block) -> np.ndarray:
    """Weights whose rows sum to 1; zero in rows without a choice. (head, row, key)"""
    weights, choice = block.weights.astype(np.float64), block.weights.shape[2] >= 2
    if block.allowed is not None:
        choice = (block.allowed.sum(2) >= 2)[..., None]
    total = weights.sum(2, keepdims=True)  # less than 1 with sinks; hidden cells are 0
    return np.divide(weights, total, out=np.zeros_like(weights), where=choice & (total > 0))


def _along(matrices: np.ndarray, name: str) -> np.ndarray:
    """The cells that a pattern is about, of the rows that have one. (…, query, key) → (…, row)"""
    if name == "first token":
        return matrices[..., 1:, 0]
    return np.diagonal(matrices, DISTANCE[name], -2, -1)


def _mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what counts, NaN where nothing does."""
    n = counted.sum(-1)
    total = np.where(counted, values, 0.0).sum(-1)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)


def _entropy(p: np.ndarray) -> np.ndarray:
    """``−Σ p log₂ p`` over the last axis, in bits."""
    return -(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(-1)
