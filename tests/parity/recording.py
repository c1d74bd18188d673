"""`python -m tests.parity.recording [library …]`: compares what `mha.record` shows with what flowed.

Small random models of libraries, those that are installed, run on three texts at once, of which the second
one is recorded, and on that one alone. What flowed is seen below everything of ours, in `flow.py`:

exact        every layer flowed as it is shown, from token to token, and nothing else mixes tokens
named        every layer that is shown did; what else there is, the trace names, or the refusal
not checked  the same, but what else mixes tokens is only named with check="mixing"; without it the trace says
             that nobody looked
WRONG        a layer that is shown did not flow so, or something mixes tokens without a word
"""

import argparse
import json
import re
import warnings
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

import mha_core as mha
from tests.parity import flow
from tests.parity.libraries import LIBRARIES, Model

BATCH, ITEM = 3, 1
VERDICTS = ("exact", "named", "not checked", "WRONG")


class Verdict(NamedTuple):
    """The verdict on a recording, and why it is not exact."""

    word: str
    reason: str = ""


class Truth:
    """What flowed in a model for one text, its tokens, and what else mixed them."""

    def __init__(self, model: nn.Module, inputs: tuple, n_tokens: int | None):
        forward = lambda: model(*inputs)  # noqa: E731
        self.run = flow.run(model, forward, n_tokens or 1)
        sizes = [f.rows.shape[-1] for f in self.run.factors.values() if f.rows.shape[-1] == f.rows.shape[-2]]
        self.n_tokens = n_tokens or max(sizes, key=lambda n: (Counter(sizes)[n], n), default=0)
        self.mixers: list[str] = []
        self.mistaken: list[flow.Factor] = []
        if self.n_tokens:
            self.run = flow.run(model, forward, self.n_tokens)
            self.mixers, self.mistaken = flow.mixers(model, forward, self.n_tokens, self.run)


def verdict(model: nn.Module, inputs: tuple, item: int, truth: Truth) -> Verdict:
    """The recording of one text of a batch, compared with what flowed."""
    plain = shown_layers(model, inputs, item, truth, check=None)
    if plain.word == "WRONG" or not truth.mixers:
        return plain
    checked = shown_layers(model, inputs, item, truth, check="mixing")
    if checked.word == "WRONG":
        return checked
    if checked.word == "exact":
        return Verdict("WRONG", f"{truth.mixers[0] or 'the model'} mixes tokens, and check= does not say so")
    return plain if plain.word == "named" else Verdict("not checked", f"{truth.mixers[0]} mixes tokens")


def shown_layers(model: nn.Module, inputs: tuple, item: int, truth: Truth, check: str | None) -> Verdict:
    tokens = [f"t{at}" for at in range(truth.n_tokens)]
    try:
        with torch.no_grad(), mha.record(model, tokens=tokens, item=item, check=check) as recorder:
            model(*inputs)
        trace = recorder.trace
    except mha.MhaError as refusal:
        return Verdict("named", str(refusal))
    said = " ".join(trace.source.skipped)
    left = list(truth.run.factors.values())
    for layer in trace.layers:
        weights = torch.tensor(layer.weights())
        at = next((n for n, factor in enumerate(left) if flowed(weights, factor)), None)
        if at is None:
            return Verdict("WRONG", f"{layer.name}: its weights did not flow")
        factor = left.pop(at)
        if factor in truth.mistaken and not is_said(factor, said):
            return Verdict("WRONG", f"{layer.name}: its weights are not of these tokens")
        if factor.rows.numel() > weights.numel() and not is_said(factor, said):
            return Verdict("WRONG", f"{layer.name}: only a part of it is shown")
    for factor in left:
        if factor.are_whole and not factor.are_inside(truth.n_tokens) and not is_said(factor, said):
            sizes = " × ".join(map(str, factor.rows.shape))
            return Verdict("WRONG", f"{factor.modules[0]}: {sizes} weights are neither shown nor named")
    return Verdict("named", trace.source.skipped[0]) if said else Verdict("exact")


def flowed(weights: Tensor, factor: flow.Factor) -> bool:
    """Are these weights (head, query, key) among those that were multiplied?"""
    return any(
        all(bool(((heads - one).abs().amax((1, 2)) < flow.CLOSE).any()) for one in weights)
        for heads in factor.heads(*weights.shape[1:])
    )


def is_said(factor: flow.Factor, said: str) -> bool:
    """Is a module in which it ran named?"""
    names = map(re.escape, filter(None, factor.modules))
    return any(re.search(rf"(^|[ ,]){name}[ ,:]", said) for name in names)


def compared(model: Model) -> tuple[Verdict, Verdict]:
    """The verdicts of one text of a batch, and of the same text alone."""
    torch.manual_seed(0)
    module = model.build().eval().requires_grad_(False)
    inputs = model.inputs(BATCH)
    alone = tuple(part[ITEM : ITEM + 1] for part in inputs)
    truth = Truth(module, alone, model.tokens)
    return verdict(module, inputs, ITEM, truth), verdict(module, alone, 0, truth)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity.recording", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="library", help=", ".join(LIBRARIES))
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")  # those of other people's models
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    others = [name for name in LIBRARIES if name != "transformers"]  # which has hundreds of families
    for name in asked.names or others:
        try:
            models = list(LIBRARIES[name]())
        except Exception as error:  # somebody else's package: it is not there, or does not fit to this torch
            print(f"{name}: left out, {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        for model in models:
            try:
                several, one = compared(model)
            except Exception as error:  # a family that cannot be built, or has no such attention
                print(f"{name:20}  {model.name:34}  does not run: {type(error).__name__}", flush=True)
                continue
            counts.update((several.word, one.word))
            reason = one.reason or several.reason
            print(f"{name:20}  {model.name:34}  {several.word:11}  {one.word:11}  {reason}", flush=True)
    for word in VERDICTS:
        target = 0 if word == "WRONG" else None
        print(json.dumps({"name": f"recordings that are {word}", "value": counts[word], "target": target}))


if __name__ == "__main__":
    main()
