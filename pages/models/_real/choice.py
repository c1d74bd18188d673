"""The page Real model: the trace it is about, the way to other pages, and which models there are."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.sources.huggingface.files import PACKAGE, curated
from pages._kit import compute, model_source, refusals, state
from pages._kit.text import PAGES, literal, t

# Pixels. Streamlit breaks lines in rows above 64, and what is to be noticed is long.
ROW, HEAD, NOTICE = 65, 37, 300
TO_HEADS = "to_heads"  # key of the link to the page Heads


def shown(scene: state.Scene) -> AttentionTrace | None:
    """The trace of the scene's model; where there is none, what to do is said instead."""
    if scene.source != "model":
        st.info(t("real.other"), icon=":material/deployed_code:")
        names = list(model_source.here())
        kwargs = {"source": "model"} | ({"model": names[0]} if names else {})
        label = t("real.take", name=literal(names[0])) if names else t("real.choose")
        st.button(label, key="take_model", type="primary", on_click=state.go, kwargs=kwargs)
        return None
    if not model_source.ready(scene):
        refusals.no_model(scene)
        return None
    try:
        return compute.trace(scene)
    except MhaError as error:
        refusals.show(error, own=True)
        refusals.offer_models(scene)
        return None


def links(*, layer: int, head: int) -> None:
    """The pages on which the head that was chosen above is shown in full."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(t("real.look", layer=layer + 1, head=head + 1), width="content")
        with st.container(key=TO_HEADS, width="content"):
            st.page_link(PAGES / "see/heads.py", label=t("heads.title"), icon=":material/arrow_forward:")
        for page, label in (
            ("see/token.py", t("one.title")),
            ("understand/steps.py", t("steps.title")),
        ):
            st.page_link(PAGES / page, label=label, icon=":material/arrow_forward:")


def offered(scene: state.Scene) -> None:
    """What is on this machine, and what is well known; a click on a row takes that model."""
    table = models(scene)
    if table.empty:
        st.markdown(t("real.none_hosted") if model_source.hosted() else t("real.none"))
    else:
        st.caption(t("real.pick_hosted") if model_source.hosted() else t("real.pick"))
        names = list(table.pop("name"))
        st.dataframe(
            table,
            hide_index=True,
            height=ROW * len(table) + HEAD,  # "content" is known only once the table's script has come
            row_height=ROW,
            key="models_table",
            on_select=lambda: _picked(names),
            selection_mode="single-row",
            column_config={t("real.column_notice"): st.column_config.TextColumn(width=NOTICE)},
        )
    if not model_source.hosted():
        st.markdown(t("real.typed"))
        if PACKAGE not in model_source.here():
            st.markdown(t("real.package"))
            st.code(refusals.INSTALL, language="bash")


def models(scene: state.Scene) -> pd.DataFrame:
    """A row for each model that can be taken, those of this machine first; `name` is what it is loaded by."""
    about = {model.id: model for model in curated()}
    about[PACKAGE] = about[model_source.TOLD]
    here = model_source.here()
    rows = []
    for name in [*here, *model_source.known()]:
        known = about.get(name)
        size = here[name].bytes if name in here else known.bytes
        rows.append(
            {
                "name": name,
                t("control.model"): name,
                t("real.column_here"): t("real.is_here") if name in here else t("real.is_not_here"),
                t("real.column_size"): model_source.size(size),
                t("real.column_sizes"): f"{known.layers} × {known.heads}" if known else "",
                t("real.column_licence"): known.licence if known else "",
                t("real.column_notice"): known.notice if known else "",
            }
        )
    return pd.DataFrame(rows)


def _picked(names: list[str]) -> None:
    rows = st.session_state.models_table["selection"]["rows"]
    if rows:
        state.go(source="model", model=names[rows[0]], revision="")
