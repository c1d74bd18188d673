"""What heads were measured to do: a label under each, and the numbers behind it."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis import patterns
from mha_core.analysis import roles as measured_roles
from mha_core.analysis.frames import WHOLE, longest
from pages._kit import likeness, state, two_texts, work
from pages._kit.text import t


def labels(trace: AttentionTrace, scene: state.Scene, layer: int) -> list[str]:
    """For each head its measured role with the score, or nothing; only trained models have roles."""
    found = named(trace, scene) or {}
    return [label(found.get((layer, head))) for head in range(trace.layers[layer].n_heads)]


def named(trace: AttentionTrace, scene: state.Scene) -> dict[tuple[int, int], tuple[str, float]] | None:
    """What each head was measured to do, as `roles.labels` has it; None for weights without training."""
    measured = _roles(trace, scene)
    return None if measured is None else measured_roles.labels(measured)


def label(found: tuple[str, float] | None) -> str:
    """A role and its score in words; nothing for a head without one."""
    return "" if found is None else t("roles.label", role=_name(found[0]), score=f"{found[1]:.2f}")


def details(trace: AttentionTrace, scene: state.Scene, *, layer: int, head: int) -> None:
    """The measurements: roles of this head, patterns of all heads here, and how alike they are."""
    if longest(trace) > WHOLE:  # the overview has measured the rest
        if trace.layers[layer].n_heads > 1:
            with st.expander(t("roles.alike_title")):
                likeness.show(trace, scene, layer=layer)
        return
    with st.expander(t("roles.title")):
        measured = _roles(trace, scene)
        if measured is not None:
            st.markdown(
                t(
                    "roles.how",
                    share=measured_roles.LEAST_SHARE,
                    weight=measured_roles.LEAST_WEIGHT,
                    margin=measured_roles.MARGIN,
                )
            )
            own = measured[(measured["layer"] == layer) & (measured["head"] == head)]
            table = own.drop(columns=["layer", "head"]).sort_values("score", ascending=False)
            table["role"] = table["role"].map(_name)
            st.dataframe(
                table,
                hide_index=True,
                column_config={name: st.column_config.Column(t(f"roles.column.{name}")) for name in table}
                | {
                    name: st.column_config.NumberColumn(t(f"roles.column.{name}"), format="%.2f")
                    for name in ("score", "weight", "baseline", "control")
                },
                key="roles_table",
            )
        st.markdown(t("roles.two_texts") if two_texts.there(trace) else t("roles.patterns"))
        table = patterns.metrics(trace.layers[layer])
        table.index = pd.Index([t("heads.grid_name", head=h + 1) for h in table.index], name="head")
        table.columns = [t(f"roles.pattern.{name}") for name in table]
        st.dataframe(table.round(3), key="patterns_table")
        likeness.show(trace, scene, layer=layer)


def _name(role: str) -> str:
    return t(f"role.{role}")


def _roles(trace: AttentionTrace, scene: state.Scene) -> pd.DataFrame | None:
    """The roles of the scene's model, measured once on this server; None for weights without training."""
    if trace.source["name"] != "mini":
        return None
    try:
        trained = work.small_model(scene, trace.source["language"])
    except MhaError:
        return None
    name = " ".join(
        str(trace.source[key]) for key in ("architecture", "language", "h", "d_model", "seed", "step")
    )
    return _measured(f"{scene.source} {scene.run} {name}", trained)


@st.cache_resource(max_entries=32, show_spinner=False)
def _measured(name: str, _trained) -> pd.DataFrame:
    return measured_roles.roles(_trained)
