"""The other scene on the page Compare, named in the link as in ``against=h:1``: its choice and its trace."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.attention.masks import MASKS
from mha_core.attention.module import AttentionSpec
from mha_core.attention.positions import POSITIONS
from mha_core.scene.link import FILE, HEAD, MODEL, TWIN, UNTRAINED, WITH_CLS, Other
from mha_core.scene.places import indices
from mha_core.scene.scene import Scene
from mha_core.sources.huggingface import files
from mha_core.traces.source import TrainedSource
from mha_core.training.checkpoints import PLANS
from mha_core.training.model import ARCHITECTURES
from pages._kit import choice, compute, model_source, state, uploads
from pages._kit.pair import PairSide
from pages._kit.scene import second_trace
from pages._kit.text import isolated, literal, said, t

HEADS = (1, 2, 4, 8, 16, 32)  # numbers of heads that are offered for random weights, where they fit


def options(scene: Scene, trace: AttentionTrace) -> dict[str, Sequence[str]]:
    """The settings that can differ for this scene, each with its values; the first is the default."""
    layer, head, _ = indices(trace, scene.focus)
    values = {
        UNTRAINED: [""] if scene.source in WITH_CLS else [],
        HEAD: [str(other + 1) for other in range(trace.layers[layer].n_heads) if other != head],
        **sizes(scene, trace),
        TWIN: [""] if scene.source != "file" else [],
        FILE: [""] if scene.source == "file" else [],
        MODEL: [name for name in models(scene) if (scene.source, scene.model) != ("model", name)],
    }
    return {kind: of_kind for kind, of_kind in values.items() if of_kind}


def sizes(scene: Scene, trace: AttentionTrace) -> dict[str, Sequence[str]]:
    """Other settings of random weights, and the other small models of this width and language."""
    if scene.source == "random":
        heads = [str(h) for h in HEADS if h != scene.h and _fits(replace(scene, h=h))]
        masks = [name for name in MASKS if name != scene.mask]
        return {"h": heads, "mask": masks, "position": [name for name in POSITIONS if name != scene.position]}
    if scene.source != "mini":
        return {}
    origin = trace.source.origin
    assert isinstance(origin, TrainedSource)
    size, own = (origin.language, scene.d_model), scene.architecture
    known = {(plan.architecture, plan.h) for plan in PLANS if (plan.language, plan.d_model) == size}
    return {
        "h": [str(h) for name, h in sorted(known) if name == own and h != scene.h],
        "architecture": [name for name in ARCHITECTURES if name != own and (name, scene.h) in known],
    }


def _fits(scene: Scene) -> bool:
    try:
        AttentionSpec(scene.d_model, scene.h, scene.n_kv_heads, scene.d_k, scene.d_v, scene.bias)
    except MhaError:
        return False
    return True


def models(scene: Scene) -> Sequence[str]:
    """The models on this machine, if there is a library to read them."""
    return list(model_source.local_models()) if scene.source != "file" and files.library() else []


def choose(scene: Scene, trace: AttentionTrace) -> Other | None:
    """The other side, as chosen here or by the link; None before the first choice."""
    offered = options(scene, trace)
    other, wrong = Other.of_link(scene.against, offered)
    if wrong:
        state.say_instead("against", other and other.link())
    st.session_state["against_kind"] = other and other.kind
    st.session_state["against_value"] = other and other.value
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            t("compare.with"), list(offered), format_func=_kind, key="against_kind", on_change=_set, width=280
        )
        if other and other.value:
            values = offered[other.kind]
            st.selectbox(
                _kind(other.kind),
                values,
                format_func=lambda value: _value(other.kind, value),
                key="against_value",
                on_change=_set,
                args=(True,),
                width=280,
            )
    return other


def _set(whole: bool = False) -> None:
    kind, value = st.session_state["against_kind"], st.session_state["against_value"]
    state.go(against=Other(kind, value if whole else "").link())


def _kind(kind: str) -> str:
    return t(f"compare.{kind}")


def _value(kind: str, value: str) -> str:
    if kind == MODEL:
        return isolated(value)
    return choice.word(kind, value) if kind in choice.WORDED else value


def sides(scene: Scene, trace: AttentionTrace, other: Other) -> tuple[PairSide, PairSide] | None:
    """Both sides, the untrained one first; None, after a note, if the other has no trace."""
    layer, head, query = here = indices(trace, scene.focus)
    if other.kind == HEAD:
        one, two = (
            PairSide(t("compare.one_head", head=at + 1), trace, layer, at, query)
            for at in (head, int(other.value) - 1)
        )
        return one, two
    if other.kind == UNTRAINED:

        def trained(name: str, side: AttentionTrace) -> PairSide:
            assert isinstance(side.source, TrainedSource)
            return PairSide(t(f"compare.{name}", step=f"{side.source.step:,}"), side, *here)

        return trained("before", compute.trace(scene, trained=False)), trained("after", trace)
    there, second = _other(scene, other)
    if second is None:
        return None
    if other.kind == TWIN:
        headings = [t("compare.first"), t("compare.second")]
    elif other.kind in (MODEL, FILE):
        headings = [trace.source.name, other.value or second.source.name]
    else:
        values = getattr(scene, other.kind), other.value
        headings = [t(f"compare.is_{other.kind}", value=_value(other.kind, str(value))) for value in values]
    own, others = headings
    return PairSide(own, trace, *here), PairSide(others, second, *indices(second, there.focus))


def _other(scene: Scene, other: Other) -> tuple[Scene, AttentionTrace | None]:
    """The other scene and its trace; None, after a note, if there is none."""
    if other.kind == TWIN:
        if not scene.twin.strip():
            st.info(t("compare.no_twin"), icon=":material/edit:")
        return scene, second_trace(scene)
    if other.kind == MODEL:
        there = replace(scene, source="model", model=other.value, revision=None, dtype=None, kind=None)
        model_source.load(there, st.empty(), button="stop_other_model")
    elif other.kind == FILE:
        there = scene
    else:
        changed: dict[str, Any] = {other.kind: int(other.value) if other.kind == "h" else other.value}
        there = replace(scene, **changed)
    try:
        if other.kind == FILE:
            return there, uploads.beside(scene, t("compare.open"))
        return there, compute.trace(there)
    except MhaError as error:
        st.info(literal(said(error)), icon=":material/straighten:")
        return there, None
