"""The page Real model: its trace, the links to other pages, and the table of models."""

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.sources.huggingface.files import PACKAGE, curated
from pages._kit import heights, model_source, refusals, state
from pages._kit.text import PAGES, literal, t

# Pixels. Streamlit breaks lines in rows higher than 64, which the long column of notices needs.
ROW_HEIGHT, PHONE_ROW_HEIGHT, HEADER_HEIGHT = 65, 112, 37
TO_HEADS = "to_heads"  # key of the link to the page Heads


def trace_or_offer(scene: state.Scene) -> AttentionTrace | None:
    """The trace of the scene's model; None, with a note on what to do, where there is none."""
    if scene.source != "model":
        st.info(t("real.other"), icon=":material/deployed_code:")
        names = list(model_source.local_models())
        kwargs = {"source": "model"} | ({"model": names[0]} if names else {})
        label = t("real.take", name=literal(names[0])) if names else t("real.choose")
        st.button(label, key="take_model", type="primary", on_click=state.go, kwargs=kwargs)
        return None
    if not model_source.ready(scene):
        refusals.no_model(scene)
        return None
    try:
        return model_source.trace(scene, scene.text)  # also of a model without attention
    except MhaError as error:
        refusals.show(error, page_offers=True)
        refusals.offer_models(scene)
        return None


def links(*, layer: int, head: int) -> None:
    """Links to the pages that show the chosen head in full."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(t("real.look", layer=layer + 1, head=head + 1), width="content")
        with st.container(key=TO_HEADS, width="content"):
            st.page_link(PAGES / "see/heads.py", label=t("heads.title"), icon=":material/arrow_forward:")
        for page, label in (
            ("see/token.py", t("one.title")),
            ("understand/steps.py", t("steps.title")),
        ):
            st.page_link(PAGES / page, label=label, icon=":material/arrow_forward:")


def table() -> None:
    """The models on this machine and the well-known ones; a click on a row chooses a model."""
    frame = models()
    if frame.empty:
        st.markdown(t("real.none_hosted") if model_source.hosted() else t("real.none"))
    else:
        st.caption(t("real.pick_hosted") if model_source.hosted() else t("real.pick"))
        names = list(frame.pop("name"))
        phone = heights.on_phone()
        widths = {t("control.model"): 148} if phone else {}
        widths[t("real.column_notice")] = 172 if phone else 300
        row_height = PHONE_ROW_HEIGHT if phone else ROW_HEIGHT
        st.dataframe(
            frame,
            hide_index=True,
            # "content" would move the page when the script of the table has loaded.
            height=row_height * len(frame) + HEADER_HEIGHT,
            row_height=row_height,
            key="models_table",
            on_select=lambda: _picked(names),
            selection_mode="single-row",
            column_order=list(widths) if phone else None,
            column_config={name: st.column_config.TextColumn(width=width) for name, width in widths.items()},
        )
    if not model_source.hosted():
        st.markdown(t("real.typed"))
        if PACKAGE not in model_source.local_models():
            st.markdown(t("real.package"))
            st.code(refusals.INSTALL, language="bash")


def models() -> pd.DataFrame:
    """A row for each model, those on this machine first; the column `name` is the name to load it by."""
    about = {model.id: model for model in curated()}
    about[PACKAGE] = about[model_source.PACKAGED]
    here = model_source.local_models()
    rows = []
    for name in [*here, *model_source.downloadable()]:
        known = about.get(name)
        size = here[name].bytes if name in here else known.bytes
        rows.append(
            {
                "name": name,
                t("control.model"): f"{name} · {model_source.size(size)}" if heights.on_phone() else name,
                # Beside the name: on a narrow page what stands on the right is cut.
                t("real.column_notice"): known.notice if known else "",
                t("real.column_here"): t("real.is_here") if name in here else t("real.is_not_here"),
                t("real.column_size"): model_source.size(size),
                t("real.column_sizes"): f"{known.layers} × {known.heads}" if known else "",
                t("real.column_licence"): known.licence if known else "",
            }
        )
    return pd.DataFrame(rows)


def _picked(names: list[str]) -> None:
    rows = st.session_state.models_table["selection"]["rows"]
    if rows:
        state.go(source="model", model=names[rows[0]], revision="")
