"""Finds the scene that a trace shows: its text and the settings of its source."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mha_core.errors import MhaError
from mha_core.focus.focus import Focus
from mha_core.scene import changes
from mha_core.scene.page import HOME, Page
from mha_core.scene.scene import Scene
from mha_core.traces.layer import LayerTrace
from mha_core.traces.source import DRAWN, EditedSource, MiniSource, RandomSource, Source
from mha_core.traces.trace import AttentionTrace

TOLERANCE = 1e-4  # difference between devices


def scene_of(traces: Sequence[AttentionTrace], focus: Focus) -> Scene:
    """The scene of a trace, or of two traces of one source with two sentences, looking at `focus`.

    The scene is computed again and compared with the trace. Raises `MhaError` if the numbers differ, and for
    a trace that no link can reproduce: of a model, of arrays, of a model before its training, with a mask
    given as a tensor, or with an edit that What if does not have.
    """
    first, *others = (_scene(trace, focus) for trace in traces)
    if any(replace(other, text=first.text) != first for other in others):
        raise MhaError("No link can be read off two traces with different sources or edits.")
    for trace, scene in zip(traces, (first, *others), strict=True):
        if not _are_same(trace, scene.trace()):
            raise MhaError(
                "No link opens this trace of {source!r}: the same settings give other numbers "
                "now, since its weights have been trained anew or it was computed elsewhere.",
                source=trace.source.name,
            )
    return replace(first, twin=others[0].text if others else "")


def _are_same(one: AttentionTrace, other: AttentionTrace) -> bool:
    return one.tokens == other.tokens and all(
        np.allclose(getattr(a, name), getattr(b, name), atol=TOLERANCE)
        for a, b in zip(one.layers, other.layers, strict=True)
        for name in ("q", "k", "v")
    )


def _scene(trace: AttentionTrace, focus: Focus) -> Scene:
    source = trace.source.unedited if isinstance(trace.source, EditedSource) else trace.source
    settings, edits = _settings(source, trace.layers), _edits(trace)
    page = Page("what-if" if edits else HOME)
    return Scene(text=trace.tokens.text, twin="", **settings, edits=edits, focus=focus, page=page)


def _settings(source: Source, layers: tuple[LayerTrace, ...]) -> dict[str, Any]:
    if isinstance(source, MiniSource) and source.step == source.steps:
        names = ("h", "d_model", "architecture")
        return {"source": "mini", **{name: getattr(source, name) for name in names}}
    if isinstance(source, RandomSource) and source.mask != DRAWN:
        layer = layers[0]
        return {
            "source": "random",
            "h": layer.n_heads,
            "d_model": layer.d_model,
            "seed": source.seed,
            "layers": len(layers),
            # None where a size follows from the others.
            "n_kv_heads": None if layer.n_kv_heads == layer.n_heads else layer.n_kv_heads,
            "d_k": None if layer.d_k * layer.n_heads == layer.d_model else layer.d_k,
            "d_v": None if layer.d_v == layer.d_k else layer.d_v,
            "position": source.position,
            "mask": source.mask,
            "bias": layer.projections.b_q is not None,
        }
    raise MhaError(
        "No link can be read off this trace of {source!r}: it has the numbers, but not everything that "
        "they were made from. mha.Scene(…).view() shows a scene with its link, also one of a model.",
        source=source.name,
    )


def _edits(trace: AttentionTrace) -> str:
    """The edits as written in a link, with words as positions."""
    written = []
    for edit in trace.source.edits:
        words: dict[str, Any] = {
            axis: [side.index(one) if isinstance(one, str) else one % len(side) for one in picked]
            for axis, side in (("rows", trace.sides.queries), ("keys", trace.sides.keys))
            if (picked := getattr(edit, axis, None)) is not None
        }
        numbered = replace(edit, **words)
        if not changes.has_link(numbered):
            raise MhaError("No link can say {edit!r}: What if has no such change.", edit=edit.describe())
        written.append(numbered)
    return changes.write(written)
