"""Word vectors on a page: which there are, which is chosen, and the panels that show them."""

import itertools
from typing import NamedTuple

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace
from mha_core.analysis.embeddings import RELATIONS, Map, agreement, chance, nearest, project, table, verdict
from mha_core.analysis.frames import Origin, origin
from mha_core.figures.heatmap import heatmap
from mha_core.figures.scatter import scatter
from mha_core.sources.mini import CHINESE, vectors
from mha_core.sources.random_weights import word_vectors
from mha_core.traces.source import TrainedSource
from mha_core.training.lexicon import START, lexicon, plain
from pages._kit import charts, compute, state
from pages._kit.text import literal, t

FLAT, DEEP = AXES = ("2-D", "3-D")  # they stand in the link
SHOWN = ("animal", "person", "food", "place")
MOST_CLASSES = 6  # whose colours can be told apart
LEAST_WORDS = 4  # that can decide what the axes of a map are


class Words(NamedTuple):
    """The vectors of a scene, (word, d_model), each word's class, and the words of the sentence."""

    vectors: pd.DataFrame
    kinds: pd.Series
    own: tuple[str, ...]
    language: str
    drawn: bool
    origin: Origin

    @property
    def by_chance(self):
        return chance(*self.vectors.shape)


def of(scene: state.Scene, trace: AttentionTrace) -> Words:
    """All words that a trained model knows; for drawn weights those of the sentence and the known pairs."""
    own = tuple(dict.fromkeys(map(of_piece, trace.tokens.pieces)))
    drawn = scene.source == "random"
    typed = "zh" if CHINESE.search(scene.text) else "en"
    language = trace.source.language if isinstance(trace.source, TrainedSource) else typed
    if drawn:
        pairs = itertools.chain(*itertools.chain(*RELATIONS[language].values()))
        names = tuple(dict.fromkeys([*own, *pairs]))
        matrix = word_vectors(names, scene.d_model, seed=scene.seed)
        kinds = {name: t("words.own") if name in own else t("words.known") for name in names}
    else:
        names, matrix = vectors(compute.small_model(scene, language))
        kinds = lexicon(language).kinds
    found = table(names, matrix.numpy())
    return Words(found, pd.Series(kinds)[found.index], own, language, drawn, origin(trace))


def of_piece(piece: str) -> str:
    """The word of a token, as it stands in a vocabulary."""
    return piece if piece == START else plain(piece)


def choice(words: Words, query: str) -> str:
    """The word that is looked at: one searched for or clicked on, else the chosen token."""
    offered = list(words.vectors.index)
    if st.session_state.get("word") not in (None, *offered):
        st.session_state.word = None  # a word of another vocabulary
    found = st.selectbox(
        t("words.word"),
        offered,
        index=None,
        key="word",
        placeholder=t("words.word_empty", word=query),
        help=t("words.word_help"),
        bind="query-params",
    )
    return found or of_piece(query)


def classes(words: Words) -> list[str]:
    """The classes that are shown: all of drawn weights, whose words are few, and those chosen of others."""
    offered = list(dict.fromkeys(words.kinds))
    if words.drawn:
        return offered
    return st.multiselect(
        t("words.classes"),
        sorted(offered),  # by their own names: they stand in the link, whatever the language
        default=[kind for kind in SHOWN if kind in offered],
        key="classes",
        max_selections=MOST_CLASSES,
        help=t("words.classes_help"),
        bind="query-params",
    )


def placed(words: Words, kinds: list[str], *, axes: int) -> Map:
    """The words on axes along which the shown ones differ most."""
    along = words.vectors.index[words.kinds.isin(kinds)]
    return project(words.vectors, axes=axes, along=along if len(along) >= LEAST_WORDS else None)


def map_of(words: Words, place: Map, kinds: list[str], *, chosen: str) -> None:
    """The words of the chosen classes and of the sentence; a click on a word chooses it."""
    index = words.vectors.index
    own = index.isin([*words.own, chosen])
    shown = words.kinds.isin(kinds) | own
    rest = t("words.rest")
    figure = scatter(
        place.points[shown.to_numpy()],
        axes=_axes(place),
        groups=words.kinds.where(words.kinds.isin(kinds), rest),
        rest=rest,
        labelled=set(index[own]),
        chosen=chosen,
    )
    alt = t("words.alt", count=int(shown.sum()), word=chosen)
    charts.draw(
        figure,
        key="words_map",
        alt=alt,
        title=t("words.map_title"),
        origin=words.origin,
        on_select=_clicked,
    )


def neighbours(words: Words, chosen: str) -> None:
    """The nearest words as a table, and how near words would be by chance."""
    found = nearest(words.vectors, chosen).reset_index()
    found.insert(1, "class", words.kinds[found["word"]].to_numpy())
    names = {"word": t("words.column_word"), "class": t("words.column_class"), "cosine": t("words.cosine")}
    st.dataframe(
        found,
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(label, format="%.3f") if name == "cosine" else label
            for name, label in names.items()
        },
    )
    st.caption(t("words.by_chance", cosine=f"{words.by_chance.nearest:.2f}", count=f"{len(words.kinds):,}"))


def relations(words: Words, place: Map) -> None:
    """The known pairs: their differences as arrows, how well these agree, and what that says."""
    known = RELATIONS[words.language]
    groups = {
        word: t(f"words.relation_{kind}") for kind, pairs in known.items() for word in itertools.chain(*pairs)
    }
    pairs = [pair for pairs in known.values() for pair in pairs]
    sides, cosines = st.grid(2, min_column_width=300), agreement(words.vectors, pairs)
    with sides.container():
        figure = scatter(
            place.points.loc[list(groups)].iloc[:, :2],
            axes=_axes(place)[:2],
            groups=pd.Series(groups),
            labelled=set(groups),
            arrows=pairs,
            height=380,
        )
        alt, title = t("words.pairs_alt", count=len(pairs)), t("words.pairs_title")
        charts.draw(figure, key="pairs_map", alt=alt, title=title, origin=words.origin)
    with sides.container():
        axis = {"rows": t("words.pair"), "columns": t("words.cosine_pairs")}
        figure = heatmap(cosines, kind="signed", limit=1.0, **axis)
        alt, title = t("words.cosines_alt"), t("words.cosines_title")
        charts.draw(figure, key="pairs_cosines", alt=alt, title=title, origin=words.origin, table=cosines)
        for kind, members in known.items():
            st.markdown(_reading(words, kind, agreement(words.vectors, members)))


def _reading(words: Words, kind: str, cosines: pd.DataFrame) -> str:
    """Do the differences of one relation agree more than chance would have it?"""
    names, limit = list(cosines), words.by_chance.pair
    values = [cosines.loc[a, b] for a, b in itertools.combinations(names, 2)]
    said = {"low": f"{min(values):.2f}", "high": f"{max(values):.2f}"}
    return t(
        f"words.agree_{'random' if words.drawn else verdict(values, limit)}",
        relation=t(f"words.relation_{kind}"),
        pairs=literal(", ".join(names)),
        cosines=t(f"words.cosines_{'several' if len(values) > 1 else 'one'}", **said),
        mean=f"{sum(values) / len(values):.2f}",
        limit=f"{limit:.2f}",
    )


def _clicked() -> None:
    points = st.session_state.words_map["selection"]["points"]
    if points and "customdata" in points[0]:
        word = points[0]["customdata"]
        state.go(word=word if isinstance(word, str) else word[0])


def _axes(place: Map) -> list[str]:
    return [
        t("words.axis", axis=axis, share=f"{100 * share:.0f}") for axis, share in enumerate(place.shares, 1)
    ]
