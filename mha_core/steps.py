"""The steps from X to Z for one head, with the sizes and numbers of one trace: nine, and one that some have.

A new step is a function of a `HeadView` and a line each in `STEPS` and in `formulas.FORMULAS`.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mha_core.check import product_difference, split_difference
from mha_core.formulas import formula, from_embeddings, primed, way
from mha_core.layer import LayerTrace
from mha_core.trace import MATRICES, AttentionTrace
from mha_core.views import Picture, origin, picture

PRIMES = ("′", "″", "‴")  # what comes before Q, K and V, from the product on


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its formula in LaTeX, sizes filled in, and the matrices before and after.

    `notes` names the sentences that hold here, "why" above all; `facts` are the numbers in them.
    """

    name: str
    formula: str
    before: tuple[Picture, ...]
    after: tuple[Picture, ...]
    notes: tuple[str, ...]
    facts: dict
    in_a_row: int = 0  # matrices, where they do not all stand beside each other


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head of one layer of a trace; heads and layers count from 0."""

    trace: AttentionTrace
    layer: int
    head: int

    @property
    def recorded(self) -> LayerTrace:
        return self.trace.layers[self.layer]

    @property
    def sizes(self) -> dict:
        """The sizes under the names that formulas and sentences use; i and kv count from 1."""
        layer = self.recorded
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

    def step(self, name: str, before: str, *after: Picture, notes: dict | None = None, **facts) -> Step:
        """A step whose matrices before are named by the words of `before`.

        `notes` maps each sentence to whether it holds; without it "why" does.
        """
        pictures = tuple(self.picture(matrix) for matrix in before.split())
        holding = tuple(note for note, holds in (notes or {"why": True}).items() if holds)
        return Step(name, formula(name, self.sizes), pictures, after, holding, self.sizes | facts)

    @property
    def two_texts(self) -> bool:
        """Do the tokens of one text look at those of another?"""
        queries, keys = self.trace.sides(self.recorded)
        return queries is not keys

    def picture(self, name: str) -> Picture:
        drawn = picture(self.trace, name, layer=self.layer, head=self.head)
        # What K and V are made of is then the X of the other text.
        return replace(drawn, name="other", symbol="Y") if name == "x_v" and self.two_texts else drawn

    @property
    def between(self) -> dict[str, list[dict]]:
        """What the model does with the product X W before it is q, k or v, for each of them."""
        told = self.recorded.about.get("between")
        if told is None:
            turned = [{"step": "rotary"}] if self.recorded.knows("q_raw") else []
            told = {"q": turned, "k": turned, "v": []}
        return dict(told)

    def stages(self, name: str) -> list[str]:
        """The tensors from the product X W to q, k or v, by their names; of most models one."""
        known = (f"{name}_{stage}" for stage in ("linear", "raw", "turned"))
        return [*(stage for stage in known if self.recorded.knows(stage)), name]

    def stage(self, name: str, at: int) -> Picture:
        """The head's own part of one of the stages of q, k or v."""
        stages, drawn = self.stages(name), self.picture(name)
        if at == len(stages) - 1:
            return drawn
        own = self.head if name == "q" else self.recorded.kv_head(self.head)
        frame = pd.DataFrame(
            self.recorded.kept(stages[at])[own], index=drawn.frame.index, columns=drawn.frame.columns
        )
        letter, *rest = drawn.symbol
        return replace(drawn, frame=frame, symbol=f"{letter}{PRIMES[at]}{''.join(rest)}")

    def packed(self, name: str) -> Picture:
        """The product X W of all heads side by side, the chosen head's columns framed."""
        stages = self.stages(name)
        array = self.recorded.kept(stages[0])  # (head, token, d)
        n_heads, n_tokens, width = array.shape
        own = self.head if name == "q" else self.recorded.kv_head(self.head)
        queries, keys = self.trace.sides(self.recorded)
        frame = pd.DataFrame(
            array.transpose(1, 0, 2).reshape(n_tokens, n_heads * width),
            index=pd.Index((queries if name == "q" else keys).labels, name=MATRICES[name][0]),
            columns=pd.RangeIndex(1, n_heads * width + 1),
        )
        framed = (own * width, (own + 1) * width)
        where = origin(self.trace, layer=self.layer)
        symbol = name.upper() + (PRIMES[0] if len(stages) > 1 else "")
        return Picture(name, symbol, frame, "signed", framed=framed, origin=where)


def steps(trace: AttentionTrace, *, layer: int, head: int) -> list[Step]:
    """The steps of `STEPS` in order, but for the first where X and W^Q and the last where W^O is not known.

    Where a model does more with the product X W before queries meet keys, `adjust` follows the split.
    Raises `MhaError` for a head that is not there, and where only the weights of the layer are known.
    """
    recorded = trace.layers[layer]
    recorded.checked(head)
    # X alone does not say how Q came about: some models norm it, or turn it in a way of their own.
    unknown = {project} if recorded.x is None or recorded.projections.w_q is None else set()
    unknown |= {output} if recorded.projections.w_o is None else set()
    view = HeadView(trace, layer, head)
    found = [make(view) for make in STEPS if make not in unknown]
    if any(view.between.values()):
        found.insert([step.name for step in found].index("scores"), adjust(view))
    return found


def project(view: HeadView) -> Step:
    own_values = view.recorded.knows("x_v") and not view.two_texts
    changed = [name for name, steps in view.between.items() if steps]
    notes = {"why": True, "values": own_values, "cross": view.two_texts, "before": changed}
    before = " ".join(name for name in ("x", "x_v") if view.recorded.knows(name))
    difference = product_difference(view.recorded) if changed else None
    after = (view.packed(name) for name in "qkv")
    step = view.step("project", before, *after, notes=notes, difference=difference)
    step = replace(step, formula=primed(step.formula, changed))
    if view.two_texts:
        own, *others = step.formula.split("{X}")
        return replace(step, formula=f"{own}{{X}}{'{Y}'.join(others)}")
    return replace(step, formula=from_embeddings(step.formula)) if own_values else step


def split(view: HeadView) -> Step:
    difference = split_difference(view.recorded)
    notes = {
        "why": True,
        "same": difference is not None,
        "shared": view.recorded.n_kv_heads < view.recorded.n_heads,
        "rotary": view.trace.source.get("position") == "rotary",
    }
    after = (view.stage(name, 0) for name in "qkv")
    step = view.step("split", "", *after, notes=notes, difference=difference)
    return replace(step, formula=primed(step.formula, [name for name in "q" if view.between[name]]))


def adjust(view: HeadView) -> Step:
    """What some models do with the products before queries meet keys: norm, scale, limit, rotation."""
    told = {step["step"]: step for steps in view.between.values() for step in steps}
    changed = [name for name, steps in view.between.items() if steps]
    shown = tuple(view.stage(name, at) for name in changed for at in range(len(view.stages(name))))
    notes = ("why", *told)
    named = {"by": "scale", "at": "clip", "kind": "norm"}
    facts = {fact: told[step][fact] for fact, step in named.items() if step in told}
    most = max(len(view.stages(name)) for name in changed)
    return Step("adjust", way(view.between, view.sizes), (), shown, notes, view.sizes | facts, most)


def scores(view: HeadView) -> Step:
    made = view.picture("scores")
    largest = made.frame.stack().idxmax()
    facts = {"query": largest[0], "key": largest[1], "score": made.frame.loc[largest]}
    return view.step("scores", "q k", made, **facts)


def scale(view: HeadView) -> Step:
    before, after = view.picture("scores").frame, view.picture("scaled")
    spread = {"spread_before": before.to_numpy().std(), "spread_after": after.frame.to_numpy().std()}
    # Some models multiply with a number of their own; then what is said of √d_k does not hold.
    own = not np.isclose(view.recorded.scale, view.recorded.d_k**-0.5)
    step = view.step("scale", "scores", after, notes={"why": not own, "own": own}, **spread)
    return replace(step, formula=rf"S_{{{view.head + 1}}} \cdot {view.sizes['scale']}") if own else step


def mask(view: HeadView) -> Step:
    after = view.picture("masked")
    hidden = 0 if after.hidden is None else int(after.hidden.sum())
    rule = view.recorded.rule
    alibi = view.trace.source.get("position") == "alibi" and rule.distance_bias is not None
    added = (rule.bias is not None or rule.distance_bias is not None) and not alibi
    by_words = added and "bias" in view.recorded.about
    notes = {"why": hidden, "none": not hidden, "biased": alibi, "added": added and not by_words}
    notes["by_words"] = by_words
    notes["capped"] = rule.soft_cap is not None
    return view.step("mask", "scaled", after, notes=notes, hidden=hidden, cells=after.frame.size)


def softmax(view: HeadView) -> Step:
    after = view.picture("weights")
    sums = after.frame.to_numpy().sum(axis=1)
    off = np.abs(sums[sums > 0] - 1).max(initial=0.0)
    empty = int((sums == 0).sum())
    sinks = view.recorded.rule.sinks is not None
    notes = {"why": not sinks, "sinks": sinks, "empty": empty}
    return view.step(
        "softmax", "masked", after, notes=notes, empty=empty, off=off, least=sums.min(), most=sums.max()
    )


def mix(view: HeadView) -> Step:
    return view.step("mix", "weights v", view.picture("output"))


def concat(view: HeadView) -> Step:
    d_v = view.recorded.d_v
    framed = (view.head * d_v, (view.head + 1) * d_v)
    return view.step("concat", "output", replace(view.picture("concat"), framed=framed))


def output(view: HeadView) -> Step:
    layer = view.recorded
    bias = 0.0 if layer.projections.b_o is None else layer.projections.b_o.numpy()
    gap = np.abs(layer.contribution().sum(axis=0) + bias - layer.result()).max()
    after = (view.picture("contribution"), view.picture("result"))
    return view.step("output", "concat", *after, difference=gap)


STEPS = (project, split, scores, scale, mask, softmax, mix, concat, output)
