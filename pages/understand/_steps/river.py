"""The way from X to Z on the page Steps: a drawing of it with the step in focus, and its matrices."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.derivation import STEPS, Step, adjust
from mha_core.analysis.frames import Crop, Picture
from mha_core.focus import token_names
from mha_core.traces.tokens import subscript
from pages._kit import components, compute, heatmaps, state
from pages._kit.text import t, template
from pages.understand._steps import own

NAMES = ("tokens", *(builder.__name__ for builder in (*STEPS, adjust)), "add")
MAX_ACROSS = 5  # matrices in a row
HEIGHT = 95  # pixels of the drawing until it is there
TALL = 276  # pixels of a matrix, so that a step fits on a screen
ON_THE_PATH = ("scores", "scaled", "masked", "weights")  # matrices of pairs of tokens
STAGES = {"scores": "products", "scale": "scale", "mask": "mask", "softmax": "shares", "mix": "mixture"}

_river = components.component("river", "pictures/river.js", "pictures/river.css")


def draw(trace: AttentionTrace, steps: Sequence[Step], *, layer: int, head: int) -> str:
    """The drawing, with the step in focus that the link names; returns that step."""
    names = [step.name for step in steps]
    linked = st.query_params.get("operation")
    if linked not in (None, *NAMES):
        state.say_instead("operation", names[0])
    shown = linked if linked in names else names[0]
    st.html(f"<style>html .st-key-step-{shown} {{ display: flex; }}</style>")  # the container with that key
    data = {
        "steps": [{"name": step.name, "title": t(f"steps.{step.name}.title")} for step in steps],
        "nodes": [
            {"at": at, "row": row, "symbol": symbol}
            for at, symbols in enumerate(_nodes(trace, steps, layer=layer, head=head))
            for row, symbol in symbols.items()
        ],
        "texts": {name: template(f"steps.{name}") for name in ("before", "after", "here")},
    }
    _river(key="river", data=data, height=HEIGHT)
    return shown


def _nodes(trace: AttentionTrace, steps: Sequence[Step], *, layer: int, head: int) -> list[dict[int, str]]:
    """The symbols before each step and after the last, by row; "" where only a line passes."""
    of = trace.layers[layer]
    number, shared = head + 1, of.kv_head(head) + 1
    vectors = {0: f"Q{subscript(number)}", 1: f"K{subscript(shared)}", 2: f"V{subscript(shared)}"}
    inputs = {1: "X"}
    if of.knows("x_v"):
        inputs = {0: "X", 1: "X", 2: "Y"} if of.sides.same else {0: "X", 1: "Y", 2: "Y"}
    rows = {
        "tokens": {1: t("steps.text")},
        "project": inputs,
        "split": {0: "Q", 1: "K", 2: "V"},
        "adjust": vectors,
        "scores": vectors,
        "scale": {0: f"S{subscript(number)}", 2: ""},
        "mask": {0: "S/√d", 2: ""},
        "softmax": {0: "S+M", 2: ""},
        "mix": {0: f"A{subscript(number)}", 2: f"V{subscript(shared)}"},
        "concat": {1: f"head{subscript(number)}"},
        "output": {1: "concat"},
        "add": {1: "Z"},
    }
    end = {"output": "Z", "add": "x + Z"}.get(steps[-1].name, "concat")
    return [*(rows[step.name] for step in steps), {1: end}]


def pictures(
    trace: AttentionTrace, *, layer: int, head: int, query: int, part: Crop, limit: float, follow: bool
) -> None:
    """The matrices of all steps, each one once; a step shows those that it reads and computes.

    They `follow` the token in focus without the server.
    """
    place = {"layer": layer, "head": head, "part": part}
    drawn, steps = compute.once(trace, _pictures, query=query, limit=limit, **place)
    traces = dict.fromkeys((matrix.name for matrix in drawn), trace)
    names = token_names.names(trace.tokens) if follow else None
    heatmaps.draw(drawn, key="steps", tall=TALL, steps=steps, traces=traces, names=names)


def _pictures(
    trace: AttentionTrace, *, layer: int, head: int, query: int, part: Crop, limit: float
) -> tuple[list[heatmaps.Heatmap], dict[str, heatmaps.StepMatrices]]:
    unique: dict[str, heatmaps.Heatmap] = {}
    drawn: dict[str, heatmaps.StepMatrices] = {}
    for step in compute.once(trace, own.whole, layer=layer, head=head, part=part, query=query):
        every = step.before + step.after + step.wrong
        shown = {f"{picture.name} {picture.symbol}": picture for picture in every}
        names = list(shown)
        for name, picture in shown.items():
            unique.setdefault(name, _matrix(picture, name, limit=limit, query=query))
        count = len(names)
        across = step.per_row or (count if count <= MAX_ACROSS else -(-count // 2))
        results = names[len(step.before) : len(names) - len(step.wrong)] if step.before else []
        drawn[step.name] = heatmaps.StepMatrices(names, results, across)
    return list(unique.values()), drawn


def _matrix(picture: Picture, name: str, *, limit: float, query: int) -> heatmaps.Heatmap:
    """A matrix. A click on a cell of two tokens chooses both; their path says where its number comes from."""
    drawn = heatmaps.to_heatmap(picture, name, limit=limit, query=query)
    return replace(drawn, matrix=None, start=picture.start) if picture.name in ON_THE_PATH else drawn
