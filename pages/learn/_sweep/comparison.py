"""The comparison over h on a page: two figures, two tables, and what the numbers say."""

from collections.abc import Collection
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from mha_core.analysis.frames import Origin
from mha_core.analysis.head_count import (
    MIN_COUNTS,
    PUBLISHED,
    Extremes,
    extremes,
    measured,
    redundant,
    widths,
)
from mha_core.figures.lines import lines
from mha_core.training import checkpoints
from pages._kit import charts, state
from pages._kit.text import t

TICKS = tuple(PUBLISHED.index.union([2]))
LINES = ("answer", "accuracy", "right")
COIN = 0.5
NEAR_COIN = 0.6
BLEU = (24.6, 26.1)
PREFERRED = 64  # d_model, where it is there


def width() -> int | None:
    """The chosen d_model of those with enough numbers of heads; None where there is none."""
    offered = widths(checkpoints.manifest().values())
    if not offered:
        st.info(t("sweep.missing", least=MIN_COUNTS))
        return None
    if len(offered) == 1:
        return offered[0]
    if st.session_state.get("width") not in offered:
        st.session_state.pop("width", None)
    return st.segmented_control(
        t("sweep.width"),
        offered,
        default=PREFERRED if PREFERRED in offered else offered[0],
        required=True,
        key="width",
        bind="query-params",
    )


def rows(d_model: int) -> pd.DataFrame:
    """What was measured at one width, one row for each h."""
    return measured(checkpoints.manifest().values(), d_model)


def own_lines(found: pd.DataFrame, d_model: int) -> None:
    """What was measured, as lines over h."""
    st.subheader(t("sweep.measured", d_model=d_model))
    figure = lines(
        found,
        names={column: t(f"sweep.line_{column}") for column in LINES},
        across=t("sweep.across"),
        up=t("sweep.share"),
        ticks=TICKS,
        limits=(0, 1.06),
        level=(COIN, t("sweep.coin")),
    )
    alt = t("sweep.measured_alt", d_model=d_model)
    title = t("sweep.measured", d_model=d_model)
    charts.draw(figure, key="sweep_measured", alt=alt, title=title)
    st.caption(t("sweep.lines"))


def own_table(found: pd.DataFrame, d_model: int) -> None:
    """What was measured, as a table; each row leads to its heads."""
    percent = {name: 100 * found[name] for name in ("answer", "accuracy")}
    resolving = [t("sweep.of", count=count, h=h) for h, count in found["resolving"].items()]
    shown = found.assign(**percent, resolving=resolving, link=[_link(h, d_model) for h in found.index])
    number = st.column_config.NumberColumn
    st.dataframe(
        shown.drop(columns="seed").reset_index(),
        hide_index=True,
        column_order=["link", "h", "d_k", *percent, "right", "resolving", "parameters", "seconds"],
        column_config={
            "link": st.column_config.LinkColumn(
                t("sweep.column_link"), display_text=t("sweep.open"), help=t("sweep.link_help")
            ),
            **{name: number(t(f"sweep.column_{name}"), format="%.1f %%") for name in percent},
            "right": number(t("sweep.column_right"), format="%.2f"),
            "resolving": st.column_config.TextColumn(
                t("sweep.column_resolving"), help=t("sweep.resolving_help")
            ),
            "parameters": number(t("sweep.column_parameters"), format="localized"),
            "seconds": number(t("sweep.column_seconds"), help=t("sweep.seconds_help")),
        },
    )


def paper_lines() -> None:
    """What was published, as a line over h."""
    st.subheader(t("sweep.published"))
    bleu = extremes(PUBLISHED["bleu"])
    figure = lines(
        PUBLISHED,
        names={"bleu": t("sweep.bleu")},
        across=t("sweep.across"),
        up=t("sweep.bleu"),
        ticks=TICKS,
        limits=BLEU,
        decimals=1,
    )
    alt = t("sweep.published_alt", least=bleu.least, most=bleu.most)
    where = Origin(note=t("sweep.source"))
    charts.draw(figure, key="sweep_published", alt=alt, title=t("sweep.published"), origin=where)
    st.caption(t("sweep.source"))


def paper_table() -> None:
    """What was published, as a table."""
    st.dataframe(
        PUBLISHED.reset_index(),
        hide_index=True,
        column_config={
            "ppl": st.column_config.NumberColumn("PPL", format="%.2f"),
            "bleu": st.column_config.NumberColumn("BLEU", format="%.1f"),
        },
    )


def says(found: pd.DataFrame) -> list[str]:
    """Sentences that hold for these numbers."""
    best, several = extremes(found["accuracy"]), found[found.index > 1]
    said = [t(f"sweep.best_{'even' if best.most == best.least else 'uneven'}", **_percent(best))]
    if 1 in found.index and len(several):
        one = found["accuracy"][1]
        kind = "coin" if abs(one - COIN) < NEAR_COIN - COIN else "able"
        more = _percent(extremes(several["accuracy"]))
        said.append(t(f"sweep.one_{kind}", one=f"{100 * one:.1f}", several=several.index[0], **more))
    counts = [t("sweep.item", count=count, h=h) for h, count in several["resolving"].items()]
    said.append(t(f"sweep.roles_{'redundant' if redundant(found) else 'mixed'}", list=", ".join(counts)))
    if found["parameters"].nunique() == 1:
        said.append(t("sweep.cost", parameters=f"{found['parameters'].iloc[0]:,}"))
    said.append(t("sweep.seed", seed=_listed(sorted(set(found["seed"])))))
    return said


def paper_says() -> str:
    bleu = extremes(PUBLISHED["bleu"])
    return t(
        "sweep.paper",
        most=bleu.most,
        least=bleu.least,
        gap=f"{bleu.most - bleu.least:.1f}",
        most_at=_listed(bleu.most_at),
        least_at=_listed(bleu.least_at),
    )


def _percent(ends: Extremes) -> dict[str, str]:
    return {
        "most": f"{100 * ends.most:.1f}",
        "least": f"{100 * ends.least:.1f}",
        "most_at": _listed(ends.most_at),
        "least_at": _listed(ends.least_at),
    }


def _listed(values: Collection) -> str:
    return ", ".join(str(value) for value in values)


def _link(h: int, d_model: int) -> str:
    """The address of the Heads page with these heads and the sentences of the scene."""
    scene = state.current()
    asked = {name: getattr(scene, name) for name in ("text", "twin")}
    changed = {name: text for name, text in asked.items() if text != getattr(state.DEFAULTS, name)}
    language = {"lang": st.query_params["lang"]} if "lang" in st.query_params else {}
    return f"./?{urlencode({'h': h, 'd_model': d_model} | changed | language)}"
