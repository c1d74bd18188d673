"""A teacher makes a lesson: scenes with a question each, tried as a student, kept as a file or a link."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core import MhaError
from mha_core.focus.token_names import names, position
from mha_core.lessons.item import Item, Question
from mha_core.lessons.lesson import (
    ANY,
    MAX_MINUTES,
    MAX_SCREENS,
    MAX_TEXT,
    N_HINTS,
    Lesson,
    Screen,
    in_language,
)
from mha_core.lessons.question import KINDS, Estimate, Find, Flip, Order, in_words, scene_of
from mha_core.scene.first_look import first_token
from mha_core.scene.scene import Scene
from mha_core.traces.tokens import Tokens
from pages._kit import state
from pages._kit.text import language, literal, said, t
from pages._server import rooms
from pages.learn._lessons import items, library, opening, place, texts
from pages.learn._lessons.place import Place

SCENE = "scene"  # in a link: a question is to be made of the scene that the rest of the link describes
VERSION = "draft_version"  # of the widgets: they begin anew where screens have changed places
MINUTES = 5
# The settings of each kind, with what can be chosen.
SETTINGS = {"by": tuple(Order.MEASURES), "quantity": Estimate.QUANTITIES, "condition": Find.CONDITIONS}
WITH_KEY = ("weight", "score")  # measures of one cell


def page() -> None:
    _take_scene()
    draft = library.draft() or Lesson("lesson", MINUTES, ())
    st.title(t("editor.heading"), anchor=False)
    st.caption(t("editor.intro"))
    _about(draft)
    for number, screen in enumerate(draft.screens):
        with st.container(border=True):
            _screen(draft, number, screen)
    with st.container(horizontal=True):
        is_full = len(draft.screens) >= MAX_SCREENS
        st.button(t("editor.add"), key="draft_add", icon=":material/add:", on_click=_add, disabled=is_full)
        if not draft.screens:
            with st.popover(t("editor.copy"), icon=":material/content_copy:"):
                for lesson in library.lessons().values():
                    st.button(texts.title(lesson), key=f"copy_{lesson.name}", on_click=_copy, args=(lesson,))
    if draft.screens:
        _keep(draft)


def _take_scene() -> None:
    """Make a question of the scene that the reader comes from, once, where the link asks for it."""
    if st.query_params.pop(SCENE, None) is not None:
        _append(Screen(KINDS["point"](), {ANY: _named(state.current()).link()}))


def _append(screen: Screen) -> None:
    draft = library.draft() or Lesson("lesson", MINUTES, ())
    if len(draft.screens) < MAX_SCREENS:
        library.keep_draft(replace(draft, screens=(*draft.screens, screen)))


def _add() -> None:
    """Another question about the scene of the last one."""
    draft = library.draft()
    scenes = draft.screens[-1].scenes if draft and draft.screens else {ANY: _named(Scene()).link()}
    _append(Screen(KINDS["point"](), scenes))


def _copy(lesson: Lesson) -> None:
    """A shipped lesson in the reader's language, to be changed."""

    def own(words: Mapping) -> dict:
        told = in_language(words, language())
        return {ANY: told} if told else {}

    def copied(screen: Screen) -> Screen:
        texts: dict[str, Any] = {
            name: own(getattr(screen, name)) for name in ("scenes", "other", "ask", "notice", "hints")
        }
        return replace(screen, **texts)

    whole: dict[str, Any] = {name: own(getattr(lesson, name)) for name in ("title", "goal", "paper")}
    library.keep_draft(replace(lesson, name="lesson", screens=tuple(map(copied, lesson.screens)), **whole))


def _named(scene: Scene) -> Scene:
    """The scene with the word that looks, where it names one that its text does not have."""
    try:
        tokens = items.trace(scene).sides.queries
    except MhaError:
        return scene
    at = position(tokens, scene.focus.token)
    name = names(tokens)[first_token(tokens) if at is None else at]
    return replace(scene, twin="", focus=replace(scene.focus, token=name))


def _about(draft: Lesson) -> None:
    title, minutes = st.columns([4, 1])
    with title:
        _text(t("editor.title"), draft.title, "title", lambda words: _whole(title=words))
    with minutes:
        key = _key("minutes")
        st.number_input(
            t("editor.minutes"),
            1,
            MAX_MINUTES,
            draft.minutes,
            key=key,
            on_change=lambda: _whole(minutes=st.session_state[key]),
        )
    with st.expander(t("editor.whole")):
        _text(t("editor.goal"), draft.goal, "goal", lambda words: _whole(goal=words))
        _text(t("editor.paper"), draft.paper, "paper", lambda words: _whole(paper=words), tall=True)


def _draft() -> Lesson:
    """The lesson that is being made; an empty one before the first screen."""
    return library.draft() or Lesson("lesson", MINUTES, ())


def _whole(**changes: Any) -> None:
    library.keep_draft(replace(_draft(), **changes))


def _change(number: int, **changes: Any) -> None:
    screens = [*_draft().screens]
    screens[number] = replace(screens[number], **changes)
    _whole(screens=tuple(screens))


def _move(number: int, by: int) -> None:
    screens = [*_draft().screens]
    moved = screens.pop(number)
    if by:
        screens.insert(number + by, moved)
    st.session_state[VERSION] = st.session_state.get(VERSION, 0) + 1
    _whole(screens=tuple(screens))


def _key(name: str) -> str:
    return f"draft_{st.session_state.get(VERSION, 0)}_{name}"


def _text(
    label: str,
    words: Mapping[str, str],
    name: str,
    keep: Callable[[dict], None],
    *,
    tall: bool = False,
    usual: str | None = None,
) -> None:
    """A field for a text of the lesson; `usual` is the text used if it is left empty."""
    key = _key(name)

    def typed() -> None:
        text = st.session_state[key].strip()
        keep({ANY: text} if text else {})

    field = st.text_area if tall else st.text_input
    height: dict[str, Any] = {"height": "content"} if tall else {}
    field(
        label,
        in_language(words, language()),
        max_chars=MAX_TEXT,
        key=key,
        on_change=typed,
        placeholder=usual,
        **height,
    )


def _screen(draft: Lesson, number: int, screen: Screen) -> None:
    last = number == len(draft.screens) - 1
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(f"{number + 1}", anchor=False, width="stretch")
        for name, by, off in (("up", -1, number == 0), ("down", 1, last), ("remove", 0, False)):
            icon = {"up": "arrow_upward", "down": "arrow_downward", "remove": "delete"}[name]
            st.button(
                t(f"editor.{name}"),
                help=t(f"editor.{name}_help", number=number + 1),
                key=_key(f"{name}_{number}"),
                icon=f":material/{icon}:",
                type="tertiary",
                disabled=off,
                on_click=_move,
                args=(number, by),
            )
    try:
        scene = screen.scene(language())
        trace = items.trace(scene)
    except MhaError as error:
        st.error(literal(said(error)))
        return
    _scene(number, screen, scene, trace.sides.queries, [layer.n_heads for layer in trace.layers])
    _question(
        number,
        screen,
        scene,
        trace.sides.keys,
        trace.layers[min(scene.focus.layer, len(trace.layers)) - 1].n_heads,
    )
    _text(
        t("editor.ask"),
        screen.ask,
        f"ask_{number}",
        lambda words: _change(number, ask=words),
        tall=True,
        usual=texts.ask_of(screen.question, scene),
    )
    with st.expander(t("editor.more")):
        for nth in range(N_HINTS):
            _hint(number, screen, nth)
        _text(
            t("editor.notice"),
            screen.notice,
            f"notice_{number}",
            lambda words: _change(number, notice=words),
            tall=True,
        )
        _light(number, screen)
    _verdict(screen)


def _light(number: int, screen: Screen) -> None:
    key = _key(f"light_{number}")
    st.checkbox(
        t("editor.light"),
        screen.light,
        help=t("editor.light_help"),
        key=key,
        on_change=lambda: _change(number, light=st.session_state[key]),
    )


def _hint(number: int, screen: Screen, nth: int) -> None:
    hints = [*in_language(screen.hints, language())] if screen.hints else []
    words = {ANY: hints[nth]} if nth < len(hints) else {}

    def keep(words: dict) -> None:
        others = hints[:nth] + ([words[ANY]] if words else []) + hints[nth + 1 :]
        _change(number, hints={ANY: tuple(others)} if others else {})

    _text(t("editor.hint", number=nth + 1), words, f"hint_{number}_{nth}", keep)


def _scene(number: int, screen: Screen, scene: Scene, tokens: Tokens, heads: Sequence[int]) -> None:
    """The sentence, the word that looks, the layer and the head, as on the page Heads."""
    text, word, layer, head = st.columns([5, 2, 1, 1])

    def keep(changed: Scene) -> None:
        _change(number, scenes={ANY: _named(changed).link()})

    with text:
        key = _key(f"text_{number}")
        st.text_input(
            t("editor.sentence"),
            scene.text,
            key=key,
            on_change=lambda: keep(replace(scene, text=st.session_state[key] or scene.text)),
        )
    names_of, focus = names(tokens), scene.focus
    at = position(tokens, focus.token)
    chosen = {
        "token": (word, names_of, 0 if at is None else at),
        "layer": (layer, range(1, len(heads) + 1), min(focus.layer, len(heads)) - 1),
        "head": (
            head,
            range(1, heads[min(focus.layer, len(heads)) - 1] + 1),
            min(focus.head, max(heads)) - 1,
        ),
    }
    for name, (column, offered, index) in chosen.items():
        with column:
            _choose(
                t(f"editor.{name}"),
                offered,
                index,
                f"{name}_{number}",
                partial(_look, scene, name, keep),
            )


def _look(scene: Scene, name: str, keep: Callable[[Scene], None], value: Any) -> None:
    """Keep the scene with another token, layer or head."""
    changed: dict[str, Any] = {name: value}
    keep(replace(scene, focus=replace(scene.focus, **changed)))


def _choose(
    label: str,
    offered: Sequence,
    index: int,
    name: str,
    keep: Callable[[Any], None],
    shown: Callable[[Any], str] = str,
) -> None:
    key = _key(name)
    st.selectbox(
        label,
        list(offered),
        index=index,
        format_func=shown,
        key=key,
        on_change=lambda: keep(st.session_state[key]),
    )


def _question(number: int, screen: Screen, scene: Scene, keys: Tokens, n_heads: int) -> None:
    """The kind of question, and the settings that it needs besides the scene."""
    question, kinds = screen.question, list(KINDS)
    kind, *places = st.columns([3, 2, 2])
    with kind:
        _choose(
            t("editor.kind"),
            kinds,
            kinds.index(question.kind),
            f"kind_{number}",
            lambda value: _ask_otherwise(number, screen, scene, value),
            lambda value: t(f"editor.kind_{value}"),
        )
    for name, offered in SETTINGS.items():
        value = getattr(question, name, None)
        if value is not None:
            with places[0]:
                _choose(
                    t(f"editor.{name}"),
                    offered,
                    offered.index(value),
                    f"{name}_{number}",
                    partial(_set, number, question, name),
                    partial(_option, name),
                )
    measure = getattr(question, "by", getattr(question, "quantity", None))
    if measure in WITH_KEY:
        of_keys, focus = names(keys), scene.focus
        at = position(keys, focus.key_token)
        with places[1]:
            _choose(
                t("editor.key"),
                of_keys,
                0 if at is None else at,
                f"key_{number}",
                lambda value: _change(number, scenes=_with_focus(scene, key_token=value)),
            )
    if isinstance(question, Flip):
        _several(
            places[0], t("editor.changes"), Flip.KINDS, question.changes, f"changes_{number}",
            lambda values: _change(number, question=replace(question, changes=values)),
            lambda value: t(f"editor.changes_{value}"),
        )  # fmt: skip
    if isinstance(question, Order):
        named = tuple(int(one) for one in scene.focus.heads.split(",") if one.isdecimal() and one != "0")
        _several(
            places[1] if measure not in WITH_KEY else kind, t("editor.heads"), range(1, n_heads + 1), named,
            f"heads_{number}",
            lambda values: _change(number, scenes=_with_focus(scene, heads=",".join(map(str, values)))),
        )  # fmt: skip
    if question.kind == "choose":
        with places[0]:
            key = _key(f"other_{number}")
            other = scene_of(in_language(screen.other, language()))
            st.text_input(
                t("editor.other"),
                other.text,
                key=key,
                on_change=lambda: _change(
                    number,
                    other={ANY: _named(replace(scene, text=st.session_state[key] or other.text)).link()},
                ),
            )


def _set(number: int, question: Question, name: str, value: Any) -> None:
    """Ask the question with another setting."""
    changed: dict[str, Any] = {name: value}
    _change(number, question=replace(question, **changed))


def _option(name: str, value: Any) -> str:
    return t(f"editor.{name}_{value}")


def _several(
    column: DeltaGenerator,
    label: str,
    offered: Sequence,
    chosen: Sequence,
    name: str,
    keep: Callable[[tuple], None],
    shown: Callable[[Any], str] = str,
) -> None:
    key = _key(name)
    with column:
        st.multiselect(
            label,
            list(offered),
            [one for one in chosen if one in offered],
            format_func=shown,
            key=key,
            on_change=lambda: keep(tuple(st.session_state[key])),
        )


def _with_focus(scene: Scene, **focus: Any) -> dict[str, str]:
    return {ANY: replace(scene, focus=replace(scene.focus, **focus)).link()}


def _ask_otherwise(number: int, screen: Screen, scene: Scene, kind: str) -> None:
    """Another kind of question about the same scene, with settings to begin with."""
    question: Question = KINDS[kind]()
    item = Item(question, scene, items.trace)
    needed: dict[str, object] = {"question": question, "other": {}}
    if kind == "choose":
        twin = scene.twin or scene.text
        needed["other"] = {ANY: replace(scene, text=twin, twin="").link()}
    if kind in ("order", "estimate"):
        layer, _, _ = item.place
        of_layer = item.trace.layers[layer]
        keys = names(of_layer.sides.keys)
        focus = {"key_token": scene.focus.key_token or keys[int(item.row.argmax())]}
        if kind == "order":
            focus["heads"] = ",".join(str(head + 1) for head in range(min(of_layer.n_heads, 4)))
        needed["scenes"] = _with_focus(scene, **focus)
    _change(number, **needed)


def _verdict(screen: Screen) -> None:
    """Whether the question can be asked, and what the model says to it."""
    try:
        item = screen.item(language(), items.trace)
        refusal = items.refusal(item)
    except MhaError as error:
        refusal = error
    if refusal is not None:
        st.warning(t("editor.unclear", reason=literal(said(refusal))), icon=":material/help:")
        return
    if not item.key.answers:
        st.caption(t("editor.clear"))
    else:
        st.caption(t("editor.answer", answer=literal(_in_words(item))))


def _in_words(item: Item) -> str:
    """The model's own answer, in the words of the sentence."""
    answer = item.key.answers[0]
    return texts.change(item, answer) if item.question.kind == "flip" else in_words(item, answer)


def _keep(draft: Lesson) -> None:
    """Try it, or take it along: as a file, and as a link where that is short."""
    code = library.code(draft)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            t("editor.try"), key="draft_try", type="primary", icon=":material/play_arrow:", on_click=_try
        )
        if rooms.may_open():
            st.button(t("room.desk_teach"), key="draft_teach", icon=":material/co_present:", on_click=_teach)
        st.download_button(
            t("editor.save"), draft.write(), "lesson.toml", "application/toml", icon=":material/download:"
        )
    if code is None:
        st.caption(t("editor.long"))
        return
    st.caption(t("editor.link"))
    address = place.page_address()
    st.code(f"{address}?lesson={library.OWN}&{library.FILE}={code}", language=None, wrap_lines=True)


def _try() -> None:
    draft = _draft()
    library.open_file(draft.write().encode())
    place.go(lesson=library.OWN, screen=1, answers="", **{library.FILE: library.code(draft) or ""})


def _teach() -> None:
    draft = _draft()
    library.open_file(draft.write().encode())
    place.go(**opening.way(library.OWN), **{library.FILE: library.code(draft) or ""})


def way_back(here: Place) -> None:
    """A way back to the editor, shown where a lesson that is being made is tried."""
    if here.lesson.name == library.OWN and library.DRAFT in st.session_state:
        fields = {"lesson": place.MAKE, "screen": "", "answers": ""}
        st.button(
            t("editor.back"), key="draft_back", icon=":material/edit:", on_click=place.go, kwargs=fields
        )
