"""Where one number of a trace comes from: the steps to it, down to the last product, with their numbers.

The terms of each step are numbers of the trace, and their result is compared with the number in the trace.
A new matrix is a function of a `Cell` and a line in `EXPLAINED`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mha_core.analysis import pytorch
from mha_core.attention import functional
from mha_core.attention.edits import Position
from mha_core.attention.module import project_packed
from mha_core.attention.positions import rotary_angles
from mha_core.attention.score_rule import COMPUTED, ScoreRule
from mha_core.errors import MhaError, Phrase, listed, named_type, one_of
from mha_core.traces.facts import Adjustment, Clip, Factor, Norm, Rotary
from mha_core.traces.indices import LAYER, index
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tensors import array
from mha_core.traces.tokens import Tokens
from mha_core.traces.trace import AttentionTrace
from mha_core.traces.verify import projection_parts

TOLERANCE = 1e-6  # of a sum in fp32, relative to the sum of the terms' absolute values
HALF = dict(zip(functional.HALF, (2**-10, 2**-7), strict=True))  # and the unit in the last place of 1
SMALLEST_NORMAL = 2**-14  # of float16; the unit does not shrink further below it
HALF_UNITS = 2  # in the last place, for each rounding to half precision
MAX_KEY_NUMBERS = 4096  # most numbers of a row's keys in a snippet
TERMS_IN_FORMULA = 6
MAX_SYMBOLS = 6  # tokens on each side for which a matrix of symbols fits on a page
ESCAPED = str.maketrans(
    {letter: rf"\{letter}" for letter in "{}_#$%&"} | {"\\": "∖", "^": "＾", "~": "∼", "\n": "⏎"}
)


@dataclass(frozen=True, eq=False)
class Equation:
    """One step towards a number, with its `value` in the trace, its formula in LaTeX and its code in torch.

    `name` is the operation. Sums of `terms` are "score" (q · k), "projection" (x · W + b), "latent" (a latent
    vector · W^UK or W^UV), "mixture" (of values), "columns" (a head's output times a column of W^O), "heads"
    (what each adds) and "rotary".
    "softmax" divides the exponential of one score by the sum of all; its terms are these shares. Others
    change one number: scale, cap, bias, mask, temperature, norm, clip, gate, patch (an edit) and rounding (to
    half precision). `labels` name the terms: tokens, heads, dimensions from 1. `factors` are the numbers
    multiplied in each term. `size` is the sum of the absolute values of all products behind the value;
    rounding is relative to it.
    """

    name: str
    value: float
    latex: str
    code: str
    terms: np.ndarray
    size: float
    labels: tuple[str, ...] = ()
    factors: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where one number comes from: the last of `steps` ends with `value`, the number in the trace.

    `name` is its matrix; `layer`, `head`, `query`, `key` and `dimension` are its place, from 0, None on axes
    that the matrix does not have; `labels` are the tokens of query and key. `edits` describes the edits in
    force.
    """

    name: str
    layer: int
    head: int | None
    query: int | None
    key: int | None
    dimension: int | None
    labels: tuple[str | None, str | None]
    edits: tuple[str, ...]
    steps: tuple[Equation, ...]

    @property
    def value(self) -> float:
        """The number in the trace."""
        return self.steps[-1].value

    @property
    def size(self) -> float:
        """The sum of the absolute values of the products behind the value."""
        return max(step.size for step in self.steps)

    @property
    def latex(self) -> str:
        """The steps with their numbers, one line each."""
        return r"\begin{gathered}" + r" \\ ".join(step.latex for step in self.steps) + r"\end{gathered}"

    def __repr__(self) -> str:
        lines = [
            f"<Explanation of {self._place('=', 0)}: {self.value:.6g}",
            *(f"edited: {one}" for one in self.edits),
        ]
        for step in self.steps:
            terms = f"  {len(step.terms)} terms" if len(step.terms) > 1 else ""
            lines.append(f"{step.name:<12}{step.value:>13.6g}{terms}")
        return "\n  ".join(lines) + ">"

    def _repr_latex_(self) -> str:
        """The steps as a notebook shows them."""
        return f"$${self.latex}$$"

    def _place(self, joint: str, first: int) -> str:
        """Where the number is: ``layer=1``, from 0 as in Python, or ``layer 2``, from 1 as on screen."""
        place = [f"layer{joint}{self.layer + first}"]
        place += [] if self.head is None else [f"head{joint}{self.head + first}"]
        place += [_quoted(label) for label in self.labels if label is not None]
        place += [] if self.dimension is None else [f"dimension{joint}{self.dimension + first}"]
        return f"{self.name}: {', '.join(place)}"

    def pytorch(self) -> str:
        """Code that runs on its own, with torch, and prints the number."""
        about = [self._place(" ", 1), *(f"edited: {_quoted(edit)}" for edit in self.edits)]
        return pytorch.program(about, [step.code for step in self.steps if step.code])


@dataclass(frozen=True, eq=False)
class Cell:
    """The place of a number in a layer, from 0 on each axis of its matrix; the other axes are not read."""

    layer: LayerTrace
    name: str
    head: int = 0
    query: int = 0
    key: int = 0
    dimension: int = 0

    @cached_property
    def rule(self) -> ScoreRule:
        """The layer's score rule for this head and query."""
        heads, layer = slice(self.head, self.head + 1), self.layer
        return layer.rule.at(heads, [self.query], n_query=layer.n_query, n_key=layer.n_key)

    @property
    def kv_head(self) -> int:
        return self.layer.kv_head(self.head)

    @property
    def whole_row(self) -> bool:
        """Whether the code computes the scores of a whole row, `s`, or only the one of this cell."""
        return self.name == "weights" and self.layer.n_key * self.layer.d_k <= MAX_KEY_NUMBERS

    @property
    def variable(self) -> str:
        return "s" if self.whole_row else "value"

    def number(self, name: str) -> float:
        """The trace's number in a matrix of scores or weights."""
        values = getattr(self.layer, name)(self.head, rows=[self.query], keys=[self.key])
        return float(values[0, 0])

    def ending(self, steps: Sequence[Equation], recorded: float, dtype: object = None) -> list[Equation]:
        """The steps, checked against the number in the trace, with which the last one ends.

        In half precision, rounding is a further step. Raises `MhaError` if the steps do not give the trace's
        number.
        """
        *others, last = steps
        limit = TOLERANCE * max(last.size, abs(recorded))
        if dtype in HALF:
            bias = last.terms[-1:] if last.labels[-1:] == ("b",) else ()
            summed = {"rotary": last.terms, "projection": bias}
            parts = max(abs(recorded), np.abs(summed.get(last.name, ())).max(initial=0.0))  # rounded, too
            limit += HALF_UNITS * HALF[dtype] * max(parts, SMALLEST_NORMAL)
        computed = last.value
        if computed != recorded and not abs(computed - recorded) <= limit:  # NaN is not at most the limit
            raise MhaError(
                "What is known of this number of {name} makes {computed:.7g}, and the trace has "
                "{recorded:.7g}: its model computes something that the trace does not have.",
                name=self.name,
                computed=computed,
                recorded=recorded,
            )
        if dtype not in HALF:
            return [*others, replace(last, value=recorded)]
        latex = rf"{_number(computed)} \approx {_number(recorded)} \quad \text{{({str(dtype)[6:]})}}"
        terms = np.array([computed, recorded - computed])
        code = f"value = value.to({dtype})"
        return [*others, last, Equation("rounding", recorded, latex, code, terms, last.size)]


def explain(
    trace: AttentionTrace,
    name: str = "weights",
    *,
    layer: int = 0,
    head: int | None = None,
    query: int | str | None = None,
    key: int | str | None = None,
    dimension: int | None = None,
) -> Explanation:
    """Where one number of a trace comes from, step by step, down to products of the trace's own numbers.

    `name` is a matrix, as in `AttentionTrace.frame`. The place of a number is its `query` and `key` in
    scores, scaled, masked and weights; its `query` and `dimension` in q, output, concat, contribution and
    result; its `key` and `dimension` in k and v; and its `head`, except in concat and result. All count from
    0; tokens may also be words, as in `Tokens.index`.

    ``mha.explain(trace, layer=1, head=3, query="it", key="animal")`` explains a weight; the ``terms`` of its
    first step are the products ``q_d · k_d``, and ``.pytorch()`` is code that computes it again. A sum of
    terms equals the number in the trace to 1e-6 of the sum of their absolute values; in half precision,
    rounding is a step of its own.

    Raises `MhaError` if parts of the number are not known, such as scores of a layer with weights only, and
    for a place that is incomplete or does not exist.
    """
    if not isinstance(trace, AttentionTrace):
        raise MhaError("A number of a trace is explained; got {type}.", type=named_type(trace))
    one_of(Phrase("matrix with explained numbers"), name, EXPLAINED, parameter="name")
    axes, steps_to = EXPLAINED[name]
    picked = {"head": head, "query": query, "key": key, "dimension": dimension}
    if [axis for axis, at in picked.items() if at is not None] != list(axes):
        places = listed((f"{axis}=" for axis in axes), "comma")
        raise MhaError(
            "A number of {name} has its place by layer=, {places}, and by nothing else.",
            name=name,
            places=places,
        )
    layer, one_layer = trace.layer_index(layer), trace.layer(layer)
    code = getattr(trace.source.origin, "position", None)  # that of random weights, unless it was edited
    code = next((edit.code for edit in reversed(trace.edits) if isinstance(edit, Position)), code)
    if name in ("q", "k") and code == "rotary":
        one_layer = _with_rotation(one_layer)
    texts = {"query": one_layer.sides.queries, "key": one_layer.sides.keys}
    place = {
        axis: position(axis, at, text)
        for axis, text in texts.items()
        if (at := query if axis == "query" else key) is not None
    }
    if head is not None:
        place["head"] = one_layer.head_index(head)
    if dimension is not None:
        place["dimension"] = index("dimension", dimension, _width(one_layer, name), of=LAYER)
    of_query, of_key = (text.labels[place[axis]] if axis in place else None for axis, text in texts.items())
    edits = tuple(edit.describe() for edit in trace.edits)
    steps = tuple(steps_to(Cell(one_layer, name, **place)))
    at_axes = (place.get("head"), place.get("query"), place.get("key"), place.get("dimension"))
    return Explanation(name, layer, *at_axes, (of_query, of_key), edits, steps)


def position(axis: str, at: int | str, text: Tokens) -> int:
    """The position of a token, given as a word or an index."""
    return text.index(at) if isinstance(at, str) else index(axis, at, len(text), of=LAYER)


def _width(layer: LayerTrace, name: str) -> int:
    """The number of columns of a matrix whose columns are dimensions."""
    if name in ("q", "k"):
        return layer.d_k
    if name in ("v", "output"):
        return layer.d_v
    if name == "concat":
        return layer.n_heads * layer.d_v
    return layer.contribution(0, rows=[0]).shape[1]  # raises if W^O is not known


def symbolic_scores(layer: LayerTrace) -> str:
    """The matrix of scores in LaTeX, each as the product of two vectors with their tokens' names."""
    keys = layer.sides.keys.labels
    rows = [" & ".join(_score_symbol(query, key) for key in keys) for query in layer.sides.queries.labels]
    return r"\left(\begin{smallmatrix}" + r" \\ ".join(rows) + r"\end{smallmatrix}\right)"


def _score_symbol(query: str, key: str) -> str:
    query, key = query.translate(ESCAPED), key.translate(ESCAPED)
    return rf"q_{{\text{{{query}}}}} \cdot k_{{\text{{{key}}}}}"


# Scores and weights


def _of_scores(cell: Cell) -> list[Equation]:
    """The steps to a score, raw, scaled, masked or as a weight."""
    layer = cell.layer
    if not layer.knows("q"):
        reason = layer.about.missing or Phrase("only its weights are known, not what they were made of")
        raise MhaError("{name} of this layer cannot be explained: {reason}.", name=cell.name, reason=reason)
    steps = [_score(cell)]
    if cell.name != "scores":
        steps.append(_scaled(cell))
    if cell.name in ("masked", "weights"):
        steps += _masked(cell)
    if cell.name == "weights":
        steps += _weight(cell)
    return steps


def _row(cell: Cell, name: str) -> np.ndarray:
    """The row of a table of the cell's rule by its name: bias, mask or patched_weights. (key,)"""
    table = array(getattr(cell.rule, name))
    return np.broadcast_to(table.reshape(-1, table.shape[-1])[0], (cell.layer.n_key,))


def _score(cell: Cell) -> Equation:
    layer = cell.layer
    q, keys = layer.q[cell.head, cell.query], layer.k[cell.kv_head]
    k = (keys, "the keys of all tokens") if cell.whole_row else (keys[cell.key], "the key")
    code = pytorch.products(f"{cell.variable} = k @ q", q=(q, "the query"), k=k)
    queries, keys_of = layer.sides.queries.labels, layer.sides.keys.labels
    symbol = _score_symbol(queries[cell.query], keys_of[cell.key])
    step = _products("score", symbol, q, keys[cell.key], code)
    return cell.ending([step], cell.number("scores"))[0]


def _scaled(cell: Cell) -> Equation:
    by, score = cell.layer.scale, cell.number("scores")
    value = score * by
    root = cell.layer.d_k**-0.5
    factor = rf"\frac{{1}}{{\sqrt{{{cell.layer.d_k}}}}}" if np.isclose(by, root) else _number(by)
    latex = rf"s = {_number(score)} \cdot {factor} = {_number(value)}"
    code = f"{pytorch.scaled(cell.variable, by)}  # scaled"
    step = _change("scale", value, latex, code, (score, by))
    return cell.ending([step], cell.number("scaled"))[0]


def _masked(cell: Cell) -> list[Equation]:
    """Soft cap, bias and mask, as far as the rule has them."""
    rule, name, steps = cell.rule, cell.variable, []
    value = cell.number("scaled")
    if (cap := rule.soft_cap) is not None:
        before, value = value, cap * float(np.tanh(value / cap))
        latex = rf"{_number(cap)} \tanh({_number(before)} / {_number(cap)}) = {_number(value)}"
        code = f"{pytorch.capped(name, cap)}  # soft cap"
        steps.append(_change("cap", value, latex, code, (before, cap)))
    if rule.bias is not None:
        row = _row(cell, "bias")
        added = row[cell.key].item()
        terms, value = np.array([value, added]), value + added
        latex = rf"{_number(terms[0])} {_signed(added)} = {_number(value)}"
        numbers = pytorch.tensor(row) if cell.whole_row else pytorch.number(added)
        code = f"{pytorch.added(name, numbers)}  # bias"
        steps.append(_change("bias", value, latex, code, (terms[0], added), terms=terms))
    if rule.mask is not None:
        row = _row(cell, "mask")
        visible = bool(row[cell.key])
        value = value if visible else -np.inf
        latex = rf"{_number(value)} \quad \text{{({'visible' if visible else 'hidden'})}}"
        if cell.whole_row:
            code = f"{pytorch.masked(name, pytorch.tensor(row))}  # mask"
        else:
            code = "" if visible else pytorch.given(-np.inf, "mask")
        steps.append(_change("mask", value, latex, code))
    return cell.ending(steps, cell.number("masked")) if steps else []


def _weight(cell: Cell) -> list[Equation]:
    """Temperature, softmax, and the patch of an edit where there is one."""
    rule, layer = cell.rule, cell.layer
    masked = layer.masked(cell.head, rows=[cell.query])[0]
    sinks = masked[:0] if rule.sinks is None else array(rule.sinks).astype(masked.dtype)
    scores, name, steps = np.concatenate([masked, sinks]) / rule.temperature, cell.variable, []
    if rule.temperature != 1.0:
        before, value = masked[cell.key].item(), scores[cell.key].item()
        latex = rf"{_number(before)} / {_number(rule.temperature)} = {_number(value)}"
        code = f"{name} = {name} / {rule.temperature!r}  # temperature"
        steps.append(_change("temperature", value, latex, code, (before, rule.temperature)))
    steps.append(_softmax(cell, scores.astype(np.float64), n_sinks=len(sinks)))
    recorded = cell.number("weights")
    if rule.patched_weights is not None:
        patched = _row(cell, "patched_weights")[cell.key].item()
        if patched != COMPUTED:
            latex = rf"a = {_number(patched)}"
            code = pytorch.given(patched, "an edit puts it in place of the computed weight")
            steps.append(_change("patch", patched, latex, code, (steps[-1].value, patched)))
    return cell.ending(steps, recorded, layer.tensors["v"].dtype)


def _softmax(cell: Cell, scores: np.ndarray, *, n_sinks: int) -> Equation:
    """The weight of the cell among the scores of its row, the last of which may be a sink."""
    largest = float(scores.max())
    empty = largest == -np.inf
    exponentials = np.zeros(len(scores)) if empty else np.exp(scores - largest)
    total = float(exponentials.sum())
    shares = exponentials if empty else exponentials / total
    value = float(shares[cell.key])
    if empty:
        latex = r"a = 0 \quad \text{(every key is hidden)}"
        code = pytorch.given(0.0, "every key is hidden from this query")
    else:
        powers = [f"e^{{{_number(score - largest)}}}" for score in scores[:TERMS_IN_FORMULA]]
        powers += [r"\cdots"] if len(scores) > TERMS_IN_FORMULA else []
        power = f"e^{{{_number(scores[cell.key] - largest)}}}"  # less the largest, as it is computed
        latex = rf"a = \frac{{{power}}}{{{' + '.join(powers)}}}"
        latex += rf" = \frac{{{_number(exponentials[cell.key])}}}{{{_number(total)}}} = {_number(value)}"
        if cell.whole_row:
            sink = scores[len(scores) - n_sinks :].astype(np.float32)
            row = f"torch.cat([s, {pytorch.tensor(sink)}])" if n_sinks else "s"
            code = f"value = torch.softmax({row}, 0)[{cell.key}]"
        else:
            log_sum_exp = float(largest + np.log(total))
            code = f"value = torch.exp(value - {log_sum_exp!r})  # less the log-sum-exp of the row"
    labels = (*cell.layer.sides.keys.labels, *[Phrase("sink")] * n_sinks)
    return Equation("softmax", value, latex, code, shares, 1.0, labels, (scores, exponentials))


# Outputs


def _of_output(cell: Cell) -> list[Equation]:
    """The steps to a number of a head's output: a mixture of the values, or the value that an edit sets."""
    layer = cell.layer
    if not layer.knows("v"):
        raise MhaError("The values of this layer are not known, so its outputs cannot be explained.")
    weights = layer.weights(cell.head, rows=[cell.query])[0]
    values = layer.v[cell.kv_head, :, cell.dimension]
    recorded = float(layer.output(cell.head, rows=[cell.query])[0, cell.dimension])
    v = values, "this dimension of the values"
    code = pytorch.products("value = a @ v", a=(weights, "the weights of the row"), v=v)
    patches = cell.rule.patched_outputs
    patched = COMPUTED
    if patches is not None:
        row = array(patches).reshape(-1, patches.shape[-1])[0]
        patched = row[cell.dimension if len(row) > 1 else 0].item()
    steps = [_products("mixture", r"\sum_n a_n v_n", weights, values, code, layer.sides.keys.labels)]
    if patched != COMPUTED:
        code = pytorch.given(patched, "an edit puts it in place of the computed output")
        steps.append(_change("patch", patched, _number(patched), code, (steps[-1].value, patched)))
    return cell.ending(steps, recorded, layer.tensors["v"].dtype)


def _of_concat(cell: Cell) -> list[Equation]:
    """The steps to a number of the heads' outputs side by side, after a gate and a rotation."""
    layer = cell.layer
    head, dimension = divmod(cell.dimension, layer.d_v)
    steps = _of_output(replace(cell, head=head, dimension=dimension))
    recorded = float(layer.concat(rows=[cell.query])[0, cell.dimension])
    value = steps[-1].value
    gate = layer.tensor("gate")[head, cell.query] if layer.knows("gate") else None
    if gate is not None:
        by = float(gate[dimension % len(gate)])
        before, value = value, value * by
        latex = rf"{_number(before)} \cdot {_number(by)} = {_number(value)}"
        steps.append(_change("gate", value, latex, f"{pytorch.scaled('value', by)}  # gate", (before, by)))
    if (code := layer.about.output_rotary) is not None:
        outputs = layer.output(head, rows=[cell.query])[0] * (1.0 if gate is None else gate)
        angles = [layer.tensor(f"output_{name}")[cell.query] for name in ("cos", "sin")]
        steps += _rotation(code, outputs, dimension, *angles)
    return cell.ending(steps, recorded, layer.tensors["v"].dtype)


def _of_contribution(cell: Cell) -> list[Equation]:
    """A head's term of the layer's output: its output times its rows of W^O."""
    layer, columns = cell.layer, slice(cell.head * cell.layer.d_v, (cell.head + 1) * cell.layer.d_v)
    recorded = float(layer.contribution(cell.head, rows=[cell.query])[0, cell.dimension])
    outputs, w_o = layer.concat(rows=[cell.query])[0, columns], layer.projections.w_o
    assert w_o is not None  # else the contribution has raised an error
    matrix = array(w_o[columns, cell.dimension])
    w = matrix, f"column {cell.dimension + 1} of its rows of W^O"
    code = pytorch.products("value = z @ w", z=(outputs, "the head's output"), w=w)
    step = _products("columns", r"\sum_c z_c W^O_c", outputs, matrix, code)
    return cell.ending([step], recorded, layer.tensors["v"].dtype)


def _of_result(cell: Cell) -> list[Equation]:
    """A number of the layer's output: what each head adds, and the bias of W^O."""
    layer, at = cell.layer, cell.dimension
    recorded, w_o = float(layer.result(rows=[cell.query])[0, at]), layer.projections.w_o
    assert w_o is not None  # else the result has raised an error
    outputs, matrix = layer.concat(rows=[cell.query])[0], array(w_o[:, at])
    products = outputs.astype(np.float64) * matrix
    terms = products.reshape(layer.n_heads, layer.d_v).sum(1)
    labels: tuple[str, ...] = tuple(Phrase("head {head}", head=head + 1) for head in range(layer.n_heads))
    bias = None if layer.projections.b_o is None else float(layer.projections.b_o[at])
    z, w = (outputs, "the outputs of all heads"), (matrix, f"column {at + 1} of W^O")
    code = pytorch.products("value = z @ w", bias, z=z, w=w)
    if bias is not None:
        terms, labels = np.append(terms, bias), (*labels, "bᴼ")
    size = float(np.abs(products).sum() + np.abs(terms[layer.n_heads :]).sum())
    step = _sum("heads", r"\sum_i \text{head}_i W^O_i", terms, code, labels, size=size)
    return cell.ending([step], recorded, layer.tensors["v"].dtype)


# Queries, keys and values


def _of_projection(cell: Cell) -> list[Equation]:
    """The steps from X and a column of W to a number of q, k or v."""
    layer, name = cell.layer, cell.name
    parts = projection_parts(layer)
    if name not in parts:
        latent = layer.about.latent
        raise MhaError(
            "X or the matrix W^{letter} of this layer is not known; they come from short vectors of {width} "
            "numbers."
            if latent
            else "X or the matrix W^{letter} of this layer is not known.",
            letter=name.upper(),
            width=latent and latent.kv_rank,
        )
    x, matrix, bias, _ = parts[name]
    token, head = (cell.query, cell.head) if name == "q" else (cell.key, cell.kv_head)
    tensors = [layer.tensors[stage] for stage in layer.stages(name)]
    stages = [array(tensor[head, token]) for tensor in tensors]
    # A product of half-precision numbers is in half precision, even if the model goes on in float32.
    dtypes = [tensor.dtype if tensor.dtype in HALF else x.dtype for tensor in tensors]
    column = head * len(stages[0]) + cell.dimension
    shift = None if bias is None else float(bias[column])
    numbers, weights = array(x[0, token]), array(matrix[:, column])
    recorded = float(stages[0][cell.dimension])
    if name != "q" and layer.knows("w_uk"):
        w = weights, f"column {column + 1} of W^U{name.upper()}"
        code = pytorch.products("value = c @ w", c=(numbers, "the token's latent vector"), w=w)
        step = _products("latent", rf"c^{{KV}} \cdot W^{{U{name.upper()}}}", numbers, weights, code)
    else:
        w = weights, f"column {column + 1} of W^{name.upper()}"
        code = pytorch.products("value = x @ w", shift, x=(numbers, "the token's vector"), w=w)
        step = _products("projection", rf"x \cdot W^{name.upper()}", numbers, weights, code, bias=shift)
    steps = cell.ending([step], recorded, dtypes[0])
    whole = array(tensors[0][:, token])
    segments = _segments(getattr(layer.adjustments, name))
    if len(segments) != len(stages) - 1:
        raise MhaError(
            "The steps between X W^{letter} and {name} of this layer are not known.",
            letter=name.upper(),
            name=name,
        )
    for at, segment in enumerate(segments):
        before, after = stages[at : at + 2]
        adjusted = _adjusted(cell, segment, before, after, None if at else whole)
        if adjusted:
            steps += cell.ending(adjusted, float(after[cell.dimension]), dtypes[at + 1])
    return steps


def _with_rotation(layer: LayerTrace) -> LayerTrace:
    """A layer of random weights with its queries and keys before their rotation, which traces do not hold."""
    raw = {f"{name}_raw": project_packed(*part)[0] for name, part in projection_parts(layer).items()}
    angles = (table.float() for table in rotary_angles(layer.n_query, layer.d_k))
    tensors = {**layer.tensors, **raw, **dict(zip(("cos", "sin"), angles, strict=True))}
    return replace(layer, tensors=tensors, about=replace(layer.about, rotary=Rotary("half", layer.d_k)))


def _segments(adjustments: Sequence[Adjustment]) -> list[tuple[Adjustment, ...]]:
    """The steps before a rotation, the rotation, and the steps after it; no segment is empty."""
    at = next((at for at, step in enumerate(adjustments) if isinstance(step, Rotary)), len(adjustments))
    parts = adjustments[:at], adjustments[at : at + 1], adjustments[at + 1 :]
    return [tuple(part) for part in parts if part]


def _adjusted(
    cell: Cell,
    segment: Sequence[Adjustment],
    before: np.ndarray,
    after: np.ndarray,
    all_heads: np.ndarray | None,
) -> list[Equation]:
    """The steps of a segment from the vector `before` to the vector `after` of one head and token.

    `all_heads` are the vectors of all heads before the first segment.
    """
    at, layer = cell.dimension, cell.layer
    if isinstance(segment[0], Rotary):
        token = cell.query if cell.name == "q" else cell.key
        cos, sin = (layer.tensor(name)[token] for name in ("cos", "sin"))
        return _rotation(segment[0], before, at, cos, sin)
    steps, value, row = [], float(before[at]), before
    for nth, step in enumerate(segment):
        previous = value
        if isinstance(step, Factor):
            value, row = value * step.by, row * step.by
            latex = rf"{_number(previous)} \cdot {_number(step.by)} = {_number(value)}"
            code = pytorch.scaled("value", step.by)
            steps.append(_change("scale", value, latex, code, (previous, step.by)))
        elif isinstance(step, Clip):
            value, row = min(max(value, -step.at), step.at), row.clip(-step.at, step.at)
            latex = rf"{_number(previous)} \;\to\; {_number(value)} \quad (\pm {_number(step.at)})"
            code = pytorch.clipped("value", step.at)
            steps.append(_change("clip", value, latex, code, (previous, step.at)))
        elif isinstance(step, Norm):
            normed = row if step.over == "head" else all_heads
            if normed is None:
                raise MhaError(
                    "A {kind} over all heads of {name} stands behind another step there.",
                    kind=step.kind,
                    name=cell.name,
                )
            if step.kind == "LayerNorm":
                steps.append(_layer_norm(cell, step, previous, normed))
                value = steps[-1].value
                continue
            if step.kind != "RMSNorm":
                raise MhaError(
                    "Between X W^{letter} and {name} lies a {kind} whose gain and "
                    "shift this trace does not have; its scores and weights can be explained.",
                    letter=cell.name.upper(),
                    name=cell.name,
                    kind=step.kind,
                )
            others = segment[nth + 1 :]
            numbers = normed.ravel()
            root = float(np.sqrt(np.square(numbers, dtype=np.float64).mean()))
            value = _before(others, float(after[at]))
            gain = value * root / previous if previous else 0.0
            latex = rf"{_number(previous)} / {_number(root)} \cdot {_number(gain)} = {_number(value)}"
            code = pytorch.rms_norm(numbers, gain)
            steps.append(_change("norm", value, latex, code, (previous, 1 / root if root else 0.0, gain)))
    return steps


def _layer_norm(cell: Cell, norm: Norm, value: float, numbers: np.ndarray) -> Equation:
    """The step of a number through a LayerNorm over these numbers, with its gain and shift."""
    layer, name = cell.layer, cell.name
    head = cell.head if name == "q" else cell.kv_head
    at = cell.dimension if norm.over == "head" else head * numbers.shape[1] + cell.dimension
    tables = [layer.tensor(f"{name}_{what}") for what in ("gain", "shift") if layer.knows(f"{name}_{what}")]
    width = numbers.shape[-1] if norm.over == "head" else numbers.size
    if [table.shape[1] for table in tables] != [width, width]:
        raise MhaError(
            "Between X W^{letter} and {name} lies a LayerNorm whose gain and shift this trace does "
            "not have; its scores and weights can be explained.",
            letter=name.upper(),
            name=name,
        )
    gain, shift = (float(table[min(head, len(table) - 1), at]) for table in tables)  # one row: all heads
    numbers = numbers.ravel()
    mean = float(numbers.mean(dtype=np.float64))
    root = float(np.sqrt(numbers.var(dtype=np.float64) + norm.epsilon))
    factors = np.array([value, -mean, shift]), np.array([gain / root, gain / root, 1.0])
    terms = factors[0] * factors[1]
    after = float(terms.sum())
    latex = (
        rf"({_number(value)} {_signed(-mean)}) / {_number(root)} \cdot {_number(gain)} {_signed(shift)} "
        rf"= {_number(after)}"
    )
    code = pytorch.layer_norm(numbers, norm.epsilon, gain, shift)
    return Equation("norm", after, latex, code, terms, float(np.abs(terms).sum()), ("x", "−μ", "b"), factors)


def _before(steps: Sequence[Adjustment], value: float) -> float:
    """The number that these steps turned into `value`. Raises `MhaError` if several numbers are possible."""
    for step in reversed(steps):
        if not isinstance(step, Factor) or not step.by:
            raise MhaError(
                "A {name} follows a norm there, so that the norm's gain is not known.", name=step.name
            )
        value /= step.by
    return value


def _rotation(turn: Rotary, vector: np.ndarray, at: int, cos: np.ndarray, sin: np.ndarray) -> list[Equation]:
    """The rotation of one number of a vector with the other one of its pair; empty if it is not rotated."""
    place = at - turn.start
    if not 0 <= place < len(cos):
        return []
    # A pair is i and i + width/2 ("half"), or 2i and 2i + 1 ("pairs").
    apart = len(cos) // 2 if turn.form == "half" else 1
    is_first = place // apart % 2 == 0
    other = at + apart if is_first else at - apart
    across = -float(vector[other]) if is_first else float(vector[other])
    factors = np.array([float(vector[at]), across]), np.array([float(cos[place]), float(sin[place])])
    terms = factors[0] * factors[1]
    value = float(terms.sum())
    latex = rf"{_number(factors[0][0])} \cos\theta {_signed(across)} \sin\theta = {_number(value)}"
    code = f"value = value * {float(cos[place])!r} + {across!r} * {float(sin[place])!r}  # rotary code"
    labels = (f"{at + 1} · cos", f"{other + 1} · sin")
    return [Equation("rotary", value, latex, code, terms, float(np.abs(terms).sum()), labels, factors)]


# Steps


def _products(
    name: str,
    symbol: str,
    one: np.ndarray,
    other: np.ndarray,
    code: str,
    labels: Sequence[str] = (),
    *,
    bias: float | None = None,
) -> Equation:
    """A sum of products, one term each, and of a bias."""
    factors = one.astype(np.float64), other.astype(np.float64)
    terms = factors[0] * factors[1]
    labels = tuple(labels) or tuple(str(at) for at in range(1, len(terms) + 1))
    few = zip(*(factor[:TERMS_IN_FORMULA] for factor in factors), strict=True)
    written = [f"({_number(a)})({_number(b)})" for a, b in few]
    if bias is not None:
        terms, labels = np.append(terms, bias), (*labels, "b")
        factors = np.append(factors[0], bias), np.append(factors[1], 1.0)
    return replace(_sum(name, symbol, terms, code, labels, written), factors=factors)


def _sum(
    name: str,
    symbol: str,
    terms: np.ndarray,
    code: str,
    labels: Sequence[str],
    written: Sequence[str] = (),
    *,
    size: float | None = None,
) -> Equation:
    """A sum of terms; the formula shows the first ones as `written`."""
    value = float(terms.sum())
    size = float(np.abs(terms).sum()) if size is None else size
    few = list(written) or [_number(term) for term in terms[:TERMS_IN_FORMULA]]
    few += [_number(term) for term in terms[len(few) : TERMS_IN_FORMULA]]
    few += [r"\cdots"] if len(terms) > TERMS_IN_FORMULA else []
    latex = f"{symbol} = {' + '.join(few).replace('+ -', '- ')} = {_number(value)}"
    return Equation(name, value, latex, code, terms, size, tuple(labels))


def _change(
    name: str,
    value: float,
    latex: str,
    code: str,
    factors: Sequence[float] = (),
    *,
    terms: Sequence[float] | np.ndarray | None = None,
) -> Equation:
    """A step that changes one number; `factors` are its inputs, `terms` the numbers it adds."""
    numbers = np.array([value] if terms is None else terms)
    size = float(np.abs(numbers[np.isfinite(numbers)]).sum())
    return Equation(name, value, latex, code, numbers, size, (), tuple(np.array([one]) for one in factors))


# Text


def _number(value: float) -> str:
    """Four digits in LaTeX."""
    if not np.isfinite(value):
        return r"-\infty" if value < 0 else r"\infty"
    digits, _, power = f"{value:.4g}".partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else digits


def _signed(value: float) -> str:
    return f"- {_number(-value)}" if value < 0 else f"+ {_number(value)}"


def _quoted(text: str) -> str:
    """A text in one line, in quotation marks."""
    return json.dumps(text, ensure_ascii=False)


EXPLAINED: dict[str, tuple[tuple[str, ...], Callable[[Cell], list[Equation]]]] = {
    **dict.fromkeys(("scores", "scaled", "masked", "weights"), (("head", "query", "key"), _of_scores)),
    "q": (("head", "query", "dimension"), _of_projection),
    "k": (("head", "key", "dimension"), _of_projection),
    "v": (("head", "key", "dimension"), _of_projection),
    "output": (("head", "query", "dimension"), _of_output),
    "concat": (("query", "dimension"), _of_concat),
    "contribution": (("head", "query", "dimension"), _of_contribution),
    "result": (("query", "dimension"), _of_result),
}
