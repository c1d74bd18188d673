"""The page Embeddings: the word vectors of the scene, the controls, and the panels."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import streamlit as st

from mha_core import AttentionTrace, MhaError
from mha_core.analysis.embeddings import (
    RELATIONS,
    Chance,
    Map,
    agreement,
    chance,
    nearest,
    project,
    table,
    verdict,
)
from mha_core.analysis.frames import Origin, origin
from mha_core.figures.packed import Packed
from mha_core.figures.scatter import scatter
from mha_core.scene.scene import Scene
from mha_core.sources.mini import language as language_of
from mha_core.sources.mini import vectors
from mha_core.sources.random_weights import word_vectors
from mha_core.traces.source import TrainedSource
from mha_core.training.checkpoints import Trained
from mha_core.training.lexicon import START, lexicon, normalized
from pages._kit import charts, choice, compute, heatmaps, refusals, state
from pages._kit.text import joined, literal, signed, t

FLAT, DEEP = AXES = ("2-D", "3-D")  # values of a URL parameter
SHOWN = ("animal", "person", "food", "place")
MAX_CLASSES = 6  # as many colours are easy to tell apart
MIN_WORDS = 4  # that the axes of a map are computed from
# Pixels of the figures without the numbers of their axis, in the narrowest window and in a wide one.
MAP_WIDTHS, PAIRS_WIDTHS = (280, 600), (280, 420)
COSINES_HEIGHT = 300  # pixels


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Word vectors, (word, d_model), and their classes; those of a model are the same for every sentence."""

    vectors: pd.DataFrame
    kinds: pd.Series
    language: str
    random: bool

    @property
    def by_chance(self) -> Chance:
        return chance(*self.vectors.shape)


@dataclass(frozen=True, eq=False)
class WordMap:
    """The vocabulary of a scene, and the words of the sentence."""

    vocabulary: Vocabulary
    sentence: tuple[str, ...]
    of_labels: Mapping[str, str]  # of the sentence's tokens
    origin: Origin


def word_map(scene: Scene, trace: AttentionTrace) -> WordMap:
    """All words of a trained model; for random weights those of the sentence and of the known pairs."""
    of_labels = dict(zip(trace.tokens.labels, map(of_piece, trace.tokens.pieces), strict=True))
    sentence = tuple(dict.fromkeys(of_labels.values()))
    source = trace.source
    if isinstance(source, TrainedSource):
        try:
            vocabulary = compute.kept(
                "vocabularies", str(source), lambda: _of_model(compute.small_model(source))
            )
        except MhaError as gone:  # since the trace was computed
            refusals.show(gone)
            st.stop()
    else:
        settings = {"language": language_of(scene.text), "d_model": scene.d_model, "seed": scene.seed}
        vocabulary = compute.once(trace, _drawn, sentence=sentence, **settings)
    return WordMap(vocabulary, sentence, of_labels, origin(trace))


def _drawn(
    _trace: AttentionTrace, *, sentence: tuple[str, ...], language: str, d_model: int, seed: int
) -> Vocabulary:
    """Random vectors of the words of a sentence and of the known pairs."""
    pairs = itertools.chain(*itertools.chain(*RELATIONS[language].values()))
    names = tuple(dict.fromkeys([*sentence, *pairs]))
    frame = table(names, word_vectors(names, d_model, seed=seed).numpy())
    kinds = {name: t("words.own") if name in sentence else t("words.known") for name in names}
    return Vocabulary(frame, pd.Series(kinds)[frame.index], language, random=True)


def _of_model(trained: Trained) -> Vocabulary:
    names, matrix = vectors(trained)
    language, frame = trained.plan.language, table(names, matrix.numpy())
    return Vocabulary(frame, pd.Series(lexicon(language).kinds)[frame.index], language, random=False)


def of_piece(piece: str) -> str:
    """The word of a token, in the form of the vocabulary."""
    return piece if piece == START else normalized(piece)


def chosen_word(words: WordMap, query: str) -> str:
    """The word from the search or from a click; else the word of the chosen token."""
    options = words.vocabulary.vectors.index.tolist()
    if st.session_state.get("word") not in (None, *options):
        st.session_state.word = None  # a word of another vocabulary
    selected = st.selectbox(
        t("words.word"),
        options,
        index=None,
        key="word",
        placeholder=t("words.word_empty", word=query),
        help=t("words.word_help"),
        bind="query-params",
    )
    candidates = (of_piece(query), *words.sentence[1:], *options)  # a model may not know the first
    return selected or next(word for word in candidates if word in options)


def classes(words: WordMap) -> tuple[str, ...]:
    """The classes on the map: for random weights all, since their words are few, else the chosen ones."""
    options = tuple(words.vocabulary.kinds.unique())
    if words.vocabulary.random:
        return options
    names, start = sorted(options), [kind for kind in SHOWN if kind in options]
    choice.draw(
        st.multiselect,
        t("words.classes"),
        "classes",
        names,
        start,
        words=_class_name,
        max_selections=MAX_CLASSES,
        help=t("words.classes_help"),
    )
    return tuple(st.session_state.classes)


def _class_name(kind: str) -> str:
    return t(f"words.class_{kind}")


def _class_names(words: Vocabulary) -> pd.Series:
    """The class of each word in the reader's language. Groups of random vectors are texts already."""
    return words.kinds if words.random else words.kinds.map(_class_name)


def projection(words: Vocabulary, *, kinds: tuple[str, ...], axes: int) -> Map:
    """The words on the axes along which the words of `kinds` differ most."""
    along = words.vectors.index[words.kinds.isin(kinds)]
    return project(words.vectors, axes=axes, along=along if len(along) >= MIN_WORDS else None)


def map_of(words: WordMap, kinds: tuple[str, ...], *, axes: int, chosen: str) -> None:
    """The map of the words of `kinds` and of the sentence; a click on a word chooses it."""
    figure, count = compute.once(
        words.vocabulary, _map, sentence=words.sentence, kinds=kinds, axes=axes, chosen=chosen
    )
    charts.draw(
        figure,
        key="words_map",
        alt=t("words.alt", count=count, word=chosen),
        title=t("words.map_title"),
        origin=words.origin,
        words=words.of_labels,
        on_select=_clicked,
    )


def _map(
    words: Vocabulary, *, sentence: tuple[str, ...], kinds: tuple[str, ...], axes: int, chosen: str
) -> tuple[Packed, int]:
    """The figure and the number of its words."""
    word_map = compute.once(words, projection, kinds=kinds, axes=axes)
    index = words.vectors.index
    labelled = index.isin([*sentence, chosen])
    on_map = words.kinds.isin(kinds) | labelled
    rest = t("words.rest")
    figure = scatter(
        word_map.points[on_map.to_numpy()],
        axes=axes_of(word_map),
        groups=_class_names(words).where(words.kinds.isin(kinds), rest),
        rest=rest,
        labelled=set(index[labelled]),
        small=set(index[on_map]),
        chosen=chosen,
        widths=MAP_WIDTHS,
    )
    return Packed(figure), int(on_map.sum())


def neighbours(words: WordMap, chosen: str) -> None:
    """The words that are nearer than the nearest by chance, as a table; without any a line says so."""
    table, by_chance = compute.once(words.vocabulary, _nearest, word=chosen), words.vocabulary.by_chance
    facts = {"cosine": f"{by_chance.nearest:.2f}", "count": f"{len(words.vocabulary.kinds):,}"}
    if table.empty:
        st.markdown(t("words.none_nearer", **facts))
        return
    st.table(table, hide_index=True, border="horizontal")
    st.caption(t("words.by_chance", **facts))


def _nearest(words: Vocabulary, *, word: str) -> pd.DataFrame:
    frame = nearest(words.vectors, word).reset_index()
    frame = frame[frame["cosine"] > words.by_chance.nearest]
    table = {
        t("words.column_word"): frame["word"].map(literal),
        t("words.column_class"): _class_names(words)[frame["word"]].to_numpy(),
        t("words.cosine"): frame["cosine"].map("{:.3f}".format),
    }
    return pd.DataFrame(table)


def relations(words: WordMap, kinds: tuple[str, ...], *, axes: int) -> None:
    """A sentence on each relation of the known pairs. Those whose differences agree more than by chance are
    drawn: the differences as arrows, and their cosines."""
    drawn, readings = compute.once(words.vocabulary, _agreement)
    if drawn is None:
        for reading in readings:
            st.markdown(reading)
        return
    sides = st.grid(2, min_column_width=300)
    with sides.container():
        figure, count = compute.once(words.vocabulary, _pairs_map, kinds=kinds, axes=axes)
        alt, title = t("words.pairs_alt", count=count), t("words.pairs_title")
        charts.draw(figure, key="pairs_map", alt=alt, title=title, origin=words.origin, words=words.of_labels)
    with sides.container():
        heatmaps.draw([replace(drawn, origin=words.origin)], key="pairs_cosines", tall=COSINES_HEIGHT)
        for reading in readings:
            st.markdown(reading)


def _pairs_map(words: Vocabulary, *, kinds: tuple[str, ...], axes: int) -> tuple[Packed, int]:
    """The figure and the number of its pairs."""
    word_map, agreeing = compute.once(words, projection, kinds=kinds, axes=axes), _agreeing(words)
    groups = {
        word: t(f"words.relation_{kind}")
        for kind, pairs in agreeing.items()
        for word in itertools.chain(*pairs)
    }
    arrows = [pair for pairs in agreeing.values() for pair in pairs]
    figure = scatter(
        word_map.points.loc[list(groups)].iloc[:, :2],
        axes=axes_of(word_map)[:2],
        groups=pd.Series(groups),
        labelled=set(groups),
        arrows=arrows,
        height=380,
        widths=PAIRS_WIDTHS,
    )
    return Packed(figure), len(arrows)


def _agreeing(words: Vocabulary) -> dict[str, Sequence[tuple[str, str]]]:
    """The pairs of the relations whose differences agree more than by chance; of random vectors none does."""
    if words.random:
        return {}
    known, limit = RELATIONS[words.language], words.by_chance.pair
    return {
        kind: pairs
        for kind, pairs in known.items()
        if verdict(_of_two(agreement(words.vectors, pairs)), limit) != "none"
    }


def _of_two(cosines: pd.DataFrame) -> list[float]:
    """The cosine of every two differences."""
    return [cosines.loc[a, b] for a, b in itertools.combinations(cosines, 2)]


def _agreement(words: Vocabulary) -> tuple[heatmaps.Heatmap | None, list[str]]:
    """The cosines of the differences of relations that agree, and a sentence on each relation."""
    known, agreeing = RELATIONS[words.language], _agreeing(words)
    kinds = sorted(known, key=lambda kind: kind not in agreeing)
    readings = [_reading(words, kind, agreement(words.vectors, known[kind])) for kind in kinds]
    if not agreeing:
        return None, readings
    cosines = agreement(words.vectors, [pair for pairs in agreeing.values() for pair in pairs])
    drawn = heatmaps.Heatmap(
        "pairs",
        t("words.cosine"),
        t("words.cosines"),
        cosines.rename_axis(index="pair", columns="pair"),
        "signed",
        limit=1.0,
    )
    return drawn, readings


def _reading(words: Vocabulary, kind: str, cosines: pd.DataFrame) -> str:
    """A sentence: do the differences of one relation agree more than by chance?"""
    names, limit = list(cosines), words.by_chance.pair
    values = _of_two(cosines)
    agreeing = "random" if words.random else verdict(values, limit)
    if agreeing in ("some", "none"):  # a mean is compared with other means
        limit /= len(values) ** 0.5
    if agreeing == "none" and len(values) == 1:
        agreeing = "none_one"
    ends = {"low": signed(min(values), "z.2f"), "high": signed(max(values), "z.2f")}
    return t(
        f"words.agree_{agreeing}",
        relation=t(f"words.relation_{kind}"),
        pairs=literal(joined(names)),
        cosines=t(f"words.cosines_{'several' if len(values) > 1 else 'one'}", **ends),
        mean=signed(sum(values) / len(values), "z.2f"),
        count=len(values),
        limit=f"{limit:.2f}",
    )


def _clicked() -> None:
    points = st.session_state.words_map["selection"]["points"]
    if points and "customdata" in points[0]:
        word = points[0]["customdata"]
        state.go(word=word if isinstance(word, str) else word[0])


def axes_of(word_map: Map) -> list[str]:
    return [
        t("words.axis", axis=axis, share=f"{percent:.1f}")
        for axis, percent in enumerate(word_map.percents, 1)
    ]
