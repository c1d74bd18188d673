"""How many heads? Our scores and the published ones over h, as figures, tables and sentences."""

from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from mha_core.analysis.frames import Origin
from mha_core.analysis.head_count import (
    ARCHITECTURE,
    PUBLISHED,
    Extremes,
    extremes,
    question_table,
    score_table,
    widths,
)
from mha_core.figures.lines import lines
from mha_core.scene.scene import DEFAULTS
from mha_core.sources import mini
from mha_core.training import checkpoints, evaluation
from pages._kit import charts, model_info, state
from pages._kit.text import in_link, joined, language, paragraph, t

HALF = 0.5  # of the answers
CUT_PAIRS = 10  # of each pattern: a server measures them once, while somebody waits
TICKS = tuple(PUBLISHED.index.union([2]))
LINES = ("answer", "shapes", "right")
RIGHT = 0.95  # of the answers to a question that a model answers
PLAIN = ("h", "d_k")  # columns that are symbols
COIN = 0.5  # the accuracy of guesses between two words
MAX_NEAR_COIN = 0.6  # accuracies up to here are called guesses
BLEU_AXIS = (24.6, 26.1)  # the ends of the axis
DEFAULT_WIDTH = 64  # d_model, where it is among the widths


def page() -> None:
    st.title(t("head_counts.heading"), anchor=False)
    st.caption(t("head_counts.intro"))
    model_info.note_small_models_only()
    d_model = _width()
    scores = score_table(_entries(), d_model)
    questions = question_table(_entries(), d_model)
    figures = st.grid(2, min_column_width=340)
    with figures.container():
        _our_lines(scores, d_model)
    with figures.container():
        _paper_lines()
    _our_questions(questions)
    _cut_lines(scores, d_model)
    st.header(t("head_counts.says"))
    for sentence in [*_sentences(scores, questions), _paper_sentence()]:
        st.markdown(sentence)
    st.header(t("head_counts.tables"))
    ours, papers = st.columns([5, 2], gap="medium")
    with ours:
        _our_table(scores, d_model)
    with papers:
        _paper_table()


def _width() -> int:
    """The chosen d_model, among those with several values of h."""
    options = widths(_entries())
    if len(options) == 1:
        return options[0]
    if st.session_state.get("width") not in options:
        st.session_state.pop("width", None)
    return st.segmented_control(
        t("head_counts.width"),
        options,
        default=DEFAULT_WIDTH if DEFAULT_WIDTH in options else options[0],
        required=True,
        key="width",
        bind="query-params",
    )


def _entries() -> list[dict]:
    """The facts about our models that speak the reader's language."""
    return [entry for entry in checkpoints.manifest().values() if entry["plan"]["language"] == language()]


def _our_lines(scores: pd.DataFrame, d_model: int) -> None:
    title = t("head_counts.measured", d_model=d_model)
    st.header(title)
    figure = lines(
        scores,
        names={column: t(f"head_counts.column_{column}") for column in LINES},
        across=t("head_counts.across"),
        up=t("head_counts.share"),
        ticks=TICKS,
        limits=(0, 1.06),
        level=(COIN, t("head_counts.coin")),
    )
    alt = t("head_counts.measured_alt", d_model=d_model)
    charts.draw(figure, key="sweep_measured", alt=alt, title=title)
    st.caption(t("head_counts.lines"))


def _cut_lines(scores: pd.DataFrame, d_model: int) -> None:
    """How often an answer changes without the edge that it needs, in all heads and in the best one alone."""
    table = _cuts(language(), d_model, tuple(scores.index))
    title = t("head_counts.cuts")
    st.header(title)
    figure, words = st.columns([3, 2], gap="medium", vertical_alignment="center")
    drawn = lines(
        table,
        names={column: t(f"head_counts.cuts_{column}") for column in ("all_heads", "best_head")},
        across=t("head_counts.across"),
        up=t("head_counts.cuts_share"),
        ticks=TICKS,
        limits=(-0.03, 1.06),
    )
    with figure:
        charts.draw(drawn, key="sweep_cuts", alt=t("head_counts.cuts_alt", d_model=d_model), title=title)
    several = table[table.index > 1]  # with one head the best one is all of them
    first, last = several.index[0], several.index[-1]
    falling = table["best_head"][first] > HALF > table["best_head"][last]
    least = table["all_heads"].min()
    shares = {
        "all": t(f"head_counts.cuts_{'every' if least == 1 else 'least'}", share=f"{100 * least:.0f}"),
        "first": first,
        "last": last,
        "first_share": f"{100 * table['best_head'][first]:.0f}",
        "last_share": f"{100 * table['best_head'][last]:.0f}",
    }
    with words:
        st.markdown(t("head_counts.cuts_measured", **shares))
        if falling:
            st.markdown(t("head_counts.cuts_follows"))
        elif several["best_head"].min() > HALF:
            st.markdown(t("head_counts.cuts_decides"))
        st.caption(t("head_counts.cuts_standard"))


@st.cache_data(show_spinner=False, max_entries=16)  # a table of a few lines for each width that is shipped
def _cuts(code: str, d_model: int, counts: tuple[int, ...]) -> pd.DataFrame:
    """`evaluation.blocking_effects` of a language's shipped models of one width, one row for each h."""
    plans = {h: mini.find(code, ARCHITECTURE, h, d_model) for h in counts}
    rows = {
        h: evaluation.blocking_effects(mini.model(plan).model, code, count=CUT_PAIRS)
        for h, plan in plans.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def _our_table(scores: pd.DataFrame, d_model: int) -> None:
    """Our scores as a table, which fits a phone; each row has a link to the heads of its model."""
    columns = {
        "h": [f"[{h}]({_link(h, d_model)})" for h in scores.index],
        "d_k": scores["d_k"].astype(str),
        "answer": scores["answer"].map("{:.1%}".format),
        "shapes": scores["shapes"].map("{:.1%}".format),
        "accuracy": scores["accuracy"].map("{:.1%}".format),
        "right": scores["right"].map("{:.2f}".format),
    }
    notes = [t("head_counts.table_link")]
    if not state.on_phone():
        notes += [t("head_counts.table_resolving"), t("head_counts.table_seconds")]
        columns["resolving"] = [
            t("head_counts.of", count=count, h=h) for h, count in scores["resolving"].items()
        ]
        columns["parameters"] = scores["parameters"].map("{:,}".format)
        columns["seconds"] = scores["seconds"].map(
            lambda seconds: "" if pd.isna(seconds) else f"{seconds:.0f}"
        )
    named = {
        name if name in PLAIN else t(f"head_counts.column_{name}"): values for name, values in columns.items()
    }
    st.table(pd.DataFrame(named, index=scores.index), hide_index=True, border="horizontal")
    st.caption(paragraph(notes))


def _our_questions(table: pd.DataFrame) -> None:
    """The right answers to each question as a table, with a column for each h, so that it fits a phone."""
    st.header(t("head_counts.questions"))
    shares = table.map(lambda share: "–" if pd.isna(share) else f"{share:.0%}")
    names = [t(f"head_view.question_{question}") for question in shares]
    columns = {t("head_counts.with_h", h=h): row.tolist() for h, row in shares.iterrows()}
    st.table(
        pd.DataFrame({t("head_counts.question"): names, **columns}), hide_index=True, border="horizontal"
    )
    st.caption(t("head_counts.questions_how"))


def _paper_lines() -> None:
    title, source = t("head_counts.published"), t("head_counts.source")
    st.header(title)
    bleu = extremes(PUBLISHED["bleu"])
    figure = lines(
        PUBLISHED,
        names={"bleu": t("head_counts.bleu")},
        across=t("head_counts.across"),
        up=t("head_counts.bleu"),
        ticks=TICKS,
        limits=BLEU_AXIS,
        decimals=1,
    )
    alt = t("head_counts.published_alt", minimum=bleu.minimum, maximum=bleu.maximum)
    charts.draw(figure, key="sweep_published", alt=alt, title=title, origin=Origin(note=source))
    st.caption(source)


def _paper_table() -> None:
    scores = PUBLISHED.assign(
        ppl=PUBLISHED["ppl"].map("{:.2f}".format), bleu=PUBLISHED["bleu"].map("{:.1f}".format)
    )
    table = scores.rename(columns={"ppl": "PPL", "bleu": "BLEU"}).reset_index()
    st.table(table.astype(str), hide_index=True, border="horizontal")


def _sentences(scores: pd.DataFrame, questions: pd.DataFrame) -> list[str]:
    """Sentences about our scores and the answers to each question, chosen by their numbers."""
    best, several = extremes(scores["accuracy"]), scores[scores.index > 1]
    texts = [
        t(
            f"head_counts.best_{'even' if best.maximum == best.minimum else 'uneven'}",
            **_ends(best, times=100),
        )
    ]
    if 1 in scores.index and len(several):
        one = scores["accuracy"][1]
        kind = "coin" if abs(one - COIN) < MAX_NEAR_COIN - COIN else "able"
        percent = _ends(extremes(several["accuracy"]), times=100)
        texts.append(
            t(f"head_counts.one_{kind}", one=f"{100 * one:.1f}", several=several.index[0], **percent)
        )
    counts = [
        t("head_counts.answered_item", count=int((row >= RIGHT).sum()), asked=int(row.notna().sum()), h=h)
        for h, row in questions.iterrows()
    ]
    texts.append(t("head_counts.answered", share=f"{100 * RIGHT:.0f}", list=joined(counts)))
    if scores["parameters"].nunique() == 1:
        texts.append(t("head_counts.cost", parameters=f"{scores['parameters'].iloc[0]:,}"))
    texts.append(t("head_counts.seed", seed=joined(sorted(set(scores["seed"])))))
    return texts


def _paper_sentence() -> str:
    """A sentence about the highest and the lowest published BLEU."""
    bleu = extremes(PUBLISHED["bleu"])
    return t("head_counts.paper", gap=f"{bleu.maximum - bleu.minimum:.1f}", **_ends(bleu))


def _ends(ends: Extremes, *, times: int = 1) -> dict[str, str]:
    return {
        "maximum": f"{times * ends.maximum:.1f}",
        "minimum": f"{times * ends.minimum:.1f}",
        "maximum_at": joined(ends.maximum_at),
        "minimum_at": joined(ends.minimum_at),
    }


def _link(h: int, d_model: int) -> str:
    """The address of the page Heads with this model and the sentences of the scene."""
    scene = state.current()
    values = {"h": h, "d_model": d_model, "text": scene.text, "twin": scene.twin}
    changed = {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
    return f"./?{urlencode(changed | in_link())}"
