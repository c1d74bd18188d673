"""From X to Z for one head, step by step, with the sizes, the numbers and the formulas of one trace.

There are nine steps, and a tenth for layers that adjust Q, K or V. A new step is a function of a
`HeadContext` and one line each in `STEPS` and `FORMULAS`, and in `pytorch.STEPS`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mha_core.analysis import pytorch
from mha_core.analysis.frames import Crop, Picture, picture
from mha_core.traces.facts import Adjustments
from mha_core.traces.layer import LayerTrace
from mha_core.traces.matrices import MATRICES
from mha_core.traces.source import RandomSource
from mha_core.traces.tensors import array
from mha_core.traces.trace import AttentionTrace
from mha_core.traces.verify import product_difference, split_difference

# LaTeX. `X[L, d_model]` is a symbol with its shape below it, in numbers; `_i` is the chosen head, `_j` its
# key/value head. L queries look at M keys: the same tokens, or those of another text with vectors of d_y
# numbers.
FORMULAS = {
    "project": r"""\begin{gathered}
        X[L, d_model] \;\; W^Q[d_model, h·d_k] = Q[L, h·d_k] \\
        X[M, d_y] \;\; W^K[d_y, n_kv·d_k] = K[M, n_kv·d_k] \\
        X[M, d_y] \;\; W^V[d_y, n_kv·d_v] = V[M, n_kv·d_v]
        \end{gathered}""",
    "latent": r"""\begin{gathered}
        \rule{0pt}{1.2em} \text{RMSNorm}(X[L, d_model] \;\; W^{DKV}[d_model, rank]) = c^{KV}[L, rank] \\
        c^{KV} \;\; W^{UK}[rank, h·d_k] = K[L, h·d_k] \\
        c^{KV} \;\; W^{UV}[rank, h·d_v] = V[L, h·d_v] \\
        X \;\; W^Q[d_model, h·d_k] = Q[L, h·d_k]
        \end{gathered}""",
    "split": r"Q[L, h·d_k] \;\to\; Q_1 \; … \; Q_i[L, d_k] \; … \; Q_{h}",
    "scores": r"Q_i[L, d_k] \;\; K_j^{\top}[d_k, M] = S_i[L, M]",
    "scale": r"S_i[L, M] \cdot \tfrac{1}{\sqrt{d_k}} = S_i \cdot {scale}",
    "mask": r"s_{mn} \;\to\; s_{mn} + M_{mn} \qquad M_{mn} \in \{0, -\infty\}",
    "softmax": r"a_{mn} = \frac{e^{s_{mn}}}{e^{s_{m1}} + … + e^{s_{mL}}} \qquad A_i[L, M]",
    "mix": r"A_i[L, M] \;\; V_j[M, d_v] = \text{head}_i[L, d_v]",
    "concat": r"\text{head}_1 \,\Vert\, … \,\Vert\, \text{head}_{h} = \text{concat}[L, h·d_v]",
    "output": r"\text{concat}[L, h·d_v] \;\; W^O[h·d_v, d_model] = Z[L, d_model]",
}
SHAPED = re.compile(r"(?P<symbol>\S+)\[(?P<rows>[^],]+), (?P<columns>[^]]+)]")
WORDS = {
    "rotary": r"\text{{RoPE}}",
    "scale": r"\cdot\, {by:.4g}",
    "clip": r"\pm {at:.4g}",
    "norm": r"\text{{{kind}}}",
}


def formula(written: str, sizes: dict) -> str:
    """A formula, written as in `FORMULAS`, with the sizes filled in."""

    def shaped(match: re.Match) -> str:
        rows, columns = (
            re.sub(r"[A-Za-z_]+", lambda word: str(sizes[word[0]]), match[axis]).replace("·", r"{\cdot}")
            for axis in ("rows", "columns")
        )
        return rf"\underset{{{rows} \times {columns}}}{{{match['symbol']}}}"

    latex = SHAPED.sub(shaped, written)
    for word in ("h", "scale"):
        latex = latex.replace(f"{{{word}}}", f"{{{sizes[word]}}}")
    if sizes["M"] != sizes["L"]:
        latex = latex.replace("s_{mL}", "s_{mM}")
    return latex.replace("_i", f"_{{{sizes['i']}}}").replace("_j", f"_{{{sizes['kv']}}}")


def primed(latex: str, names: Sequence[str]) -> str:
    """The formula with a prime on each of Q, K and V that is adjusted later: Q'."""
    for name in names:
        latex = re.sub(rf"(?<![\w^]){name.upper()}(?=[}}_])", f"{name.upper()}'", latex)
    return latex


def adjustment_formula(adjustments: Adjustments, sizes: dict) -> str:
    """The steps from a head's Q', K' and V' to Q, K and V, one line for each that changes."""
    lines = []
    for name, steps in adjustments.items():
        letter, head = name.upper(), sizes["i" if name == "q" else "kv"]
        line = f"{letter}{chr(39)}_{{{head}}}"
        for number, step in enumerate(steps, start=1):
            word = WORDS[step.name].format(**vars(step))
            marks = "" if number == len(steps) else "'" * (number + 1)
            line += rf" \xrightarrow{{\;{word}\;}} {letter}{marks}_{{{head}}}"
        lines += [line] if steps else []
    return r"\begin{gathered}" + r" \\ ".join(lines) + r"\end{gathered}"


def from_other(latex: str, of_x: int) -> str:
    """The projections, the first `of_x` of them from X, the others from another input Y."""
    parts = latex.split("{X}")
    return "{X}".join(parts[: of_x + 1]) + "".join(f"{{Y}}{part}" for part in parts[of_x + 1 :])


WHOLE = Crop()
STACKED = 1e-5  # largest rounding difference between a layer's output and the next one's input
PRIMES = ("′", "″", "‴")  # the stages from the product X W to Q, K and V


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its formula in LaTeX, sizes filled in, and the matrices before and after.

    `wrong` is the result of a common mistake, for comparison. `notes` names the sentences to show, "why"
    first; `facts` are the numbers in them. `code` is the step in torch.
    """

    name: str
    formula: str
    before: tuple[Picture, ...]
    after: tuple[Picture, ...]
    notes: tuple[str, ...]
    facts: dict
    per_row: int = 0  # matrices side by side on the page; 0 for all
    wrong: tuple[Picture, ...] = ()
    code: str = ""


@dataclass(frozen=True, eq=False)
class HeadContext:
    """One head of one layer of a trace, or a part of it for a long text; heads and layers count from 0."""

    trace: AttentionTrace
    layer: int
    head: int
    part: Crop

    @property
    def layer_trace(self) -> LayerTrace:
        return self.trace.layers[self.layer]

    @property
    def sizes(self) -> dict:
        """The sizes under the names that formulas and sentences use; i and kv count from 1."""
        layer = self.layer_trace
        return {
            "i": self.head + 1,
            "kv": layer.kv_head(self.head) + 1,
            "L": layer.n_query,
            "M": layer.n_key,
            "d_model": layer.d_model or r"d_{\text{model}}",
            "d_y": layer.x_v.shape[1] if layer.x_v is not None else layer.d_model or r"d_{\text{model}}",
            "h": layer.n_heads,
            "n_kv": layer.n_kv_heads,
            "d_k": layer.d_k,
            "d_v": layer.d_v,
            "scale": f"{layer.scale:.4g}",
        }

    def step(
        self,
        name: str,
        before: str,
        *after: Picture,
        notes: Mapping[str, object] | None = None,
        **facts: object,
    ) -> Step:
        """A step; `before` names its input matrices, separated by spaces.

        `notes` maps the name of each sentence to whether it is shown; by default "why" is.
        """
        pictures = tuple(self.picture(matrix) for matrix in before.split())
        true_notes = tuple(note for note, holds in (notes or {"why": True}).items() if holds)
        return Step(
            name, formula(FORMULAS[name], self.sizes), pictures, after, true_notes, self.sizes | facts
        )

    def picture(self, name: str) -> Picture:
        return picture(self.trace, name, layer=self.layer, head=self.head, part=self.part)

    def of_tokens(self, values: np.ndarray, name: str, symbol: str) -> Picture:
        """A matrix with a row for each token, or for those of the part that is shown."""
        drawn = self.picture("x")
        columns = pd.RangeIndex(1, values.shape[1] + 1, name=drawn.frame.columns.name)
        frame = pd.DataFrame(values[self.rows("x")], drawn.frame.index, columns)
        return replace(drawn, name=name, symbol=symbol, frame=frame)

    def rows(self, name: str) -> slice:
        """The rows of x, q, k or v that are shown."""
        return self.part.of(MATRICES[name].axes[0]) or slice(None)

    def stage(self, name: str, at: int) -> Picture:
        """The head's part of one stage of q, k or v."""
        stages, drawn = self.layer_trace.stages(name), self.picture(name)
        if at == len(stages) - 1:
            return drawn
        head = self.head if name == "q" else self.layer_trace.kv_head(self.head)
        values = self.layer_trace.tensor(stages[at])[head][self.rows(name)]
        frame = pd.DataFrame(values, index=drawn.frame.index, columns=drawn.frame.columns)
        return replace(drawn, frame=frame, symbol=f"{drawn.symbol[0]}{PRIMES[at]}{drawn.symbol[1:]}")

    def packed(self, name: str) -> Picture:
        """The product X W of all heads side by side, the chosen head's columns framed."""
        stages = self.layer_trace.stages(name)
        array = self.layer_trace.tensor(stages[0])[:, self.rows(name)]  # (head, token, d)
        n_heads, n_tokens, width = array.shape
        head = self.head if name == "q" else self.layer_trace.kv_head(self.head)
        drawn = self.picture(name)
        frame = pd.DataFrame(
            array.transpose(1, 0, 2).reshape(n_tokens, n_heads * width),
            index=drawn.frame.index,
            columns=pd.RangeIndex(1, n_heads * width + 1),
        )
        return replace(
            drawn,
            symbol=name.upper() + (PRIMES[0] if len(stages) > 1 else ""),
            frame=frame,
            framed=(head * width, (head + 1) * width),
            origin=replace(drawn.origin, head=None),
        )


def steps(trace: AttentionTrace, *, layer: int, head: int, part: Crop = WHOLE) -> list[Step]:
    """The steps of `STEPS` in order, without `project` if X or W^Q is unknown and without `output` if W^O is.

    If a model changes the product X W before the scores, `adjust` follows the split. For a long text, `part`
    limits the matrices and the facts to its tokens; each row still sums over all keys. Raises `MhaError` for
    a head that the layer does not have, and for a layer of which only the weights are known.
    """
    layer_trace, layer = trace.layer(layer), trace.layer_index(layer)
    head = layer_trace.head_index(head)
    # X alone does not determine Q: some models norm or rotate the product.
    unknown = {project} if not (layer_trace.knows("x") and layer_trace.knows("w_q")) else set()
    unknown |= set() if layer_trace.knows("w_o") else {output}
    view = HeadContext(trace, layer, head, part)
    shown = [step(view) for step in STEPS if step not in unknown]
    if view.layer_trace.adjustments:
        shown.insert([step.name for step in shown].index("scores"), adjust(view))
    rotates = _position(view) == "rotary"
    return [replace(step, code=pytorch.of_step(step.name, layer_trace, rotates=rotates)) for step in shown]


def project(view: HeadContext) -> Step:
    if view.layer_trace.knows("w_uk"):
        return _latent(view)
    one_text = view.layer_trace.sides.same
    own_values = view.layer_trace.knows("x_v") and one_text
    changed = [name for name, steps in view.layer_trace.adjustments.items() if steps]
    gap = _gap_to_output_before(view)
    stacked = gap is not None and gap <= STACKED
    notes = {"why": True, "paper": one_text and not own_values and not stacked, "stacked": stacked}
    notes["values"] = own_values
    notes |= {"cross": not one_text, "before": bool(changed)}
    before = " ".join(name for name in ("x", "x_v") if view.layer_trace.knows(name))
    difference = product_difference(view.layer_trace) if changed else None
    after = (view.packed(name) for name in "qkv")
    stacking = {"previous": view.layer, "gap": gap} if stacked else {}
    step = view.step("project", before, *after, notes=notes, difference=difference, **stacking)
    of_x = 1 if not one_text else 2 if own_values else 3  # of the projections Q, K and V, in this order
    return replace(step, formula=from_other(primed(step.formula, changed), of_x))


def _latent(view: HeadContext) -> Step:
    """The projections of latent attention: K and V come from one vector per token.

    ``c^KV = RMSNorm(X W^DKV)``, ``K = c^KV W^UK``, ``V = c^KV W^UV``, for a layer whose queries have no
    latent vector and whose keys no position. Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
    """
    layer = view.layer_trace
    values = layer.tensor("kv_short")
    facts = view.sizes | {"rank": values.shape[1], "uncompressed": layer.n_heads * (layer.d_k + layer.d_v)}
    pictures = view.of_tokens(values, "latent", "cᴷⱽ"), *map(view.packed, "qkv")
    latex = formula(FORMULAS["latent"], facts)
    return Step("project", latex, (view.picture("x"),), pictures, ("latent",), facts)


def _gap_to_output_before(view: HeadContext) -> float | None:
    """The largest difference between X and the output Z of the layer before; None if that is not known."""
    before, x = view.trace.layers[max(0, view.layer - 1)], view.layer_trace.x
    if view.layer == 0 or not before.knows("w_o") or x is None or (before.n_query, before.d_model) != x.shape:
        return None
    rows = view.rows("q")
    return float(np.abs(before.result(rows=rows) - x[rows]).max())


def _position(view: HeadContext) -> str | None:
    """The position encoding of random weights; None for other models, whose layers apply their own."""
    origin = view.trace.source.origin
    return origin.position if isinstance(origin, RandomSource) else None


def split(view: HeadContext) -> Step:
    difference = split_difference(view.layer_trace)
    notes = {
        "why": True,
        "same": difference is not None and view.layer_trace.about.latent is None,
        "shared": view.layer_trace.n_kv_heads < view.layer_trace.n_heads,
        "rotary": _position(view) == "rotary",
    }
    after = (view.stage(name, 0) for name in "qkv")
    step = view.step("split", "", *after, notes=notes, difference=difference)
    return replace(step, formula=primed(step.formula, ["q"] if view.layer_trace.adjustments.q else []))


def adjust(view: HeadContext) -> Step:
    """Changes that some models make to the products before the scores: norm, scale, limit, rotation."""
    changes = {step.name: step for _, steps in view.layer_trace.adjustments.items() for step in steps}
    changed = [name for name, steps in view.layer_trace.adjustments.items() if steps]
    stages = tuple(
        view.stage(name, at) for name in changed for at in range(len(view.layer_trace.stages(name)))
    )
    notes = ("why", *changes)
    owners = {"by": "scale", "at": "clip", "kind": "norm"}
    facts = {fact: getattr(changes[step], fact) for fact, step in owners.items() if step in changes}
    per_row = max(len(view.layer_trace.stages(name)) for name in changed)
    return Step(
        "adjust",
        adjustment_formula(view.layer_trace.adjustments, view.sizes),
        (),
        stages,
        notes,
        view.sizes | facts,
        per_row,
    )


def scores(view: HeadContext) -> Step:
    picture = view.picture("scores")
    largest = picture.frame.stack().idxmax()
    facts = {"query": largest[0], "key": largest[1], "score": picture.frame.loc[largest]}
    return view.step("scores", "q k", picture, **facts)


def scale(view: HeadContext) -> Step:
    before, after = view.picture("scores").frame, view.picture("scaled")
    spread = {"spread_before": before.to_numpy().std(), "spread_after": after.frame.to_numpy().std()}
    # Some models have a scale other than 1/√d_k; the sentence about √d_k is then wrong.
    other_scale = not np.isclose(view.layer_trace.scale, view.layer_trace.d_k**-0.5)
    step = view.step("scale", "scores", after, notes={"why": not other_scale, "own": other_scale}, **spread)
    return (
        replace(step, formula=rf"S_{{{view.head + 1}}} \cdot {view.sizes['scale']}") if other_scale else step
    )


def mask(view: HeadContext) -> Step:
    after = view.picture("masked")
    hidden = 0 if after.hidden is None else int(after.hidden.sum())
    rule = view.layer_trace.rule
    alibi = _position(view) == "alibi" and rule.distance_bias is not None
    biased = (rule.bias is not None or rule.distance_bias is not None) and not alibi
    by_words = biased and bool(view.layer_trace.about.bias)
    notes = {"why": hidden, "none": not hidden, "biased": alibi, "added": biased and not by_words}
    notes["by_words"] = by_words
    notes["capped"] = rule.soft_cap is not None
    return view.step("mask", "scaled", after, notes=notes, hidden=hidden, cells=after.frame.size)


def softmax(view: HeadContext) -> Step:
    after = view.picture("weights")
    sums = view.layer_trace.weights(view.head, rows=view.part.queries).sum(axis=1)
    deviation = np.abs(sums[sums > 0] - 1).max(initial=0.0)
    empty = int((sums == 0).sum())
    sinks = view.layer_trace.rule.sinks is not None
    wrong = _over_the_whole_matrix(view)
    notes = {"why": not sinks, "sinks": sinks, "empty": empty, "whole": wrong is not None}
    facts = {"minimum": sums.min(), "maximum": sums.max()}
    if wrong is not None:
        shares = wrong.frame.to_numpy().sum(axis=1)
        facts |= {"least": shares.min(), "most": shares.max()}
    step = view.step("softmax", "masked", after, notes=notes, empty=empty, deviation=deviation, **facts)
    return step if wrong is None else replace(step, wrong=(wrong,))


def _over_the_whole_matrix(view: HeadContext) -> Picture | None:
    """The softmax over all cells at once, a common mistake: the whole matrix sums to 1, not each row.

    None for a part of a long text, and if the weights depend on more than scores (a sink, a patch).
    """
    rule = view.layer_trace.rule
    if view.part != WHOLE or rule.sinks is not None or rule.patched_weights is not None:
        return None
    scores = view.layer_trace.masked(view.head).astype(np.float64) / rule.temperature
    powers = np.exp(scores - scores.max(initial=0.0, where=np.isfinite(scores)))
    drawn = view.picture("weights")
    shares = np.float32(powers / max(powers.sum(), np.finfo(float).tiny))
    frame = pd.DataFrame(shares, drawn.frame.index, drawn.frame.columns)
    return replace(drawn, name="whole_softmax", symbol=f"✗ {drawn.symbol}", frame=frame)


def mix(view: HeadContext) -> Step:
    return view.step("mix", "weights v", view.picture("output"))


def concat(view: HeadContext) -> Step:
    d_v = view.layer_trace.d_v
    framed = (view.head * d_v, (view.head + 1) * d_v)
    gate = view.layer_trace.about.gate
    notes = {"why": True, "gate": gate is not None}
    notes["rotated"] = view.layer_trace.about.output_rotary is not None
    activation = None if gate is None else gate.activation
    after = replace(view.picture("concat"), framed=framed)
    return view.step("concat", "output", after, notes=notes, activation=activation)


def output(view: HeadContext) -> Step:
    layer = view.layer_trace
    bias = 0.0 if layer.projections.b_o is None else array(layer.projections.b_o)
    after = (view.picture("contribution"), view.picture("result"))
    contributions = layer.contribution(rows=view.part.queries)
    difference = np.abs(contributions.sum(axis=0) + bias - after[1].frame.to_numpy()).max()
    notes = {"why": True, "low_rank": layer.knows("w_o_a")}
    factor = layer.projections.w_o_a
    rank = None if factor is None else factor.shape[2]
    return view.step("output", "concat", *after, notes=notes, difference=difference, rank=rank)


STEPS = (project, split, scores, scale, mask, softmax, mix, concat, output)
