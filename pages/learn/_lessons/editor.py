"""A teacher makes a lesson: scenes with a question each, tried as a student, kept as a file or a link."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import streamlit as st

from mha_core import AttentionTrace, MhaError
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
from mha_core.lessons.question import KINDS, Estimate, Find, Flip, Order, scene_of
from mha_core.scene.places import token_in
from mha_core.scene.scene import Scene
from pages._kit import components, pair, state, views
from pages._kit.text import language, literal, said, t
from pages._server import rooms
from pages.learn._lessons import items, library, opening, place, texts
from pages.learn._lessons.place import Place

ASIDE = "draft_aside"  # of the session: the language that was kept alone, and the draft in both
VERSION = "draft_version"  # of the widgets: they begin anew where screens have changed places
LINKS = ("scenes", "other")  # fields of a screen
# The settings of each kind, with what can be chosen.
SETTINGS = {"by": tuple(Order.MEASURES), "quantity": Estimate.QUANTITIES, "condition": Find.CONDITIONS}
WITH_KEY = ("weight", "score")  # measures of one cell
WORDS = ("token", "key_token")  # fields of the focus, which differ by language


def page() -> None:
    if st.query_params.pop("scene", None) is not None:  # a question is to be made of the rest of the link
        _append(Screen(KINDS["point"](), _kept({}, _named(state.current()).link())))
    draft = library.draft()
    st.title(t("editor.heading"), anchor=False)
    st.caption(t("editor.intro"))
    _about(draft)
    for number, screen in enumerate(draft.screens):
        with st.container(border=True):
            _screen(draft, number, screen)
    with st.container(horizontal=True):
        is_full = len(draft.screens) >= MAX_SCREENS
        st.button(t("editor.add"), key="draft_add", icon=":material/add:", on_click=_add, disabled=is_full)
        with st.popover(t("editor.copy"), icon=":material/content_copy:", disabled=is_full):
            _of_lessons(draft)
    if draft.screens:
        _keep(draft)


def _append(*screens: Screen) -> None:
    _whole(screens=(*library.draft().screens, *screens)[:MAX_SCREENS])
    st.session_state[_key("both")] = _is_bilingual(library.draft())  # screens bring their languages along


def _add() -> None:
    """Another question about the scene of the last one."""
    screens = library.draft().screens
    scenes = screens[-1].scenes if screens else _kept({}, _named(Scene()).link())
    _append(Screen(KINDS["point"](), scenes))


def _of_lessons(draft: Lesson) -> None:
    """Choose screens of any lesson, all of them to begin with, and put copies behind those that are there."""
    lessons = library.lessons()
    name = st.selectbox(
        t("editor.copy_lesson"),
        list(lessons),
        format_func=lambda one: texts.title(lessons[one]),
        key="copy_lesson",
    )
    lesson = lessons[name]
    numbers = [*range(1, len(lesson.screens) + 1)]
    chosen = st.pills(
        t("editor.copy_screens"),
        numbers,
        selection_mode="multi",
        default=numbers,
        help="\n".join(f"{at}. {literal(texts.ask(Place(lesson, at, {})))}" for at in numbers),
        key=(key := f"copy_screens_{name}"),
    )
    room = MAX_SCREENS - len(draft.screens)
    if len(chosen) > room:
        st.caption(t("editor.copy_room", count=room))
    st.button(
        t("editor.copy_add", count=len(chosen)),
        key="copy_add",
        type="primary",
        on_click=_copy,
        args=(lesson, key),
        disabled=not 0 < len(chosen) <= room,
    )


def _copy(lesson: Lesson, key: str) -> None:
    """Copies of screens in all their languages; the first ones bring the lesson's title and goal along."""
    draft = library.draft()
    if not draft.screens and not draft.title:
        library.keep_draft(replace(lesson, name="lesson", screens=()))
    _append(*(lesson.screens[number - 1] for number in sorted(st.session_state[key])))


def _is_bilingual(draft: Lesson) -> bool:
    """Whether any text or scene of the lesson differs by language."""
    holders: list[Lesson | Screen] = [draft, *draft.screens]
    return any(words.keys() - {ANY} for holder in holders for words in _texts_of(holder).values())


def _texts_of(holder: Lesson | Screen) -> dict[str, Mapping[str, Any]]:
    """The texts and links of a lesson or a screen, by their fields and then by language."""
    return {name: words for name, words in vars(holder).items() if isinstance(words, Mapping)}


def _kept(words: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The texts of a field with another one in the reader's language, or for all languages; "" removes it."""
    at = language() if _is_bilingual(library.draft()) else ANY
    kept = {one: text for one, text in words.items() if one != at}
    return {**kept, at: value} if value else kept


def _in_both() -> None:
    """Write in two languages, or in the reader's alone: the other's texts are put aside and come back."""
    draft = library.draft()
    if st.session_state[_key("both")]:
        at, aside = st.session_state.pop(ASIDE, (language(), Lesson("lesson", library.MINUTES, ())))
    else:
        at, aside = ANY, draft
        st.session_state[ASIDE] = language(), draft

    def moved(holder: Lesson | Screen, before: object) -> dict[str, Any]:
        found = {}
        for name, words in _texts_of(holder).items():
            own = in_language(words, language() if at == ANY else at)
            others = {} if at == ANY else _others(name, own, getattr(before, name, {}), at)
            found[name] = {**others, at: own} if own else others
        return found

    both = zip_longest(draft.screens, aside.screens)
    screens = tuple(replace(one, **moved(one, before)) for one, before in both)
    library.keep_draft(replace(draft, screens=screens, **moved(draft, aside)))


def _others(name: str, own: Any, before: Mapping[str, Any], at: str) -> dict[str, Any]:
    """The texts put aside in other languages than `at`; a link there gets the layer and heads of its own."""
    others = {one: text for one, text in before.items() if one not in (at, ANY)}
    if name not in LINKS or own == before.get(at):
        return others
    if not own:
        return {}
    for one, link in others.items():
        scene = scene_of(link)
        token, key_token = scene.focus.token, scene.focus.key_token
        focus = replace(scene_of(own).focus, token=token, key_token=key_token)
        others[one] = replace(scene, focus=focus).link()
    return others


def _named(scene: Scene) -> Scene:
    """The scene with the word that looks, where it names one that its text does not have."""
    try:
        tokens = items.trace(scene).sides.queries
    except MhaError:
        return scene
    name = names(tokens)[token_in(tokens, scene.focus)]
    return replace(scene, twin="", focus=replace(scene.focus, token=name))


def _about(draft: Lesson) -> None:
    both = _is_bilingual(draft)
    st.session_state.setdefault(key := _key("both"), both)
    st.checkbox(t("editor.both"), help=t("editor.both_help"), key=key, on_change=_in_both)
    if both:
        st.caption(t("editor.both_now", language=t(f"option.language.{language()}")))
    title, minutes = st.columns([4, 1])
    with title:
        _text("title", draft)
    _field(
        minutes.number_input,
        "minutes",
        None,
        lambda count: _whole(minutes=count),
        1,
        MAX_MINUTES,
        draft.minutes,
    )
    with st.expander(t("editor.whole")):
        _text("goal", draft)
        _text("paper", draft, tall=True)


def _whole(**changes: Any) -> None:
    library.keep_draft(replace(library.draft(), **changes))


def _change(number: int, **changes: Any) -> None:
    screens = [*library.draft().screens]
    screens[number] = replace(screens[number], **changes)
    _whole(screens=tuple(screens))


def _move(number: int, *by: int) -> None:
    """Put a screen at these distances from its place: at none to remove it, at several to copy it."""

    def moved(screens: Sequence[Screen]) -> tuple[Screen, ...]:
        rest = [*screens[:number], *screens[number + 1 :]]
        for distance in by:
            rest.insert(number + distance, screens[number])
        return tuple(rest)

    screens = library.draft().screens
    if ASIDE in st.session_state:
        at, aside = st.session_state[ASIDE]
        both = (*aside.screens, *screens[len(aside.screens) :])
        st.session_state[ASIDE] = at, replace(aside, screens=moved(both))
    st.session_state[VERSION] = st.session_state.get(VERSION, 0) + 1
    _whole(screens=moved(screens))


def _key(name: str) -> str:
    """The key of a widget; in another language it begins with the text of that language."""
    return f"draft_{st.session_state.get(VERSION, 0)}_{language()}_{name}"


def _field(
    control: Callable,
    name: str,
    number: int | None,
    keep: Callable[[Any], None],
    *values: Any,
    **options: Any,
) -> None:
    """Draw a field of a screen, or of the whole lesson without a number; a change of it is kept at once.

    `control` is one of Streamlit's, with its `values`.
    """
    key = _key(name if number is None else f"{name}_{number}")
    control(t(f"editor.{name}"), *values, key=key, on_change=lambda: keep(st.session_state[key]), **options)


def _text(
    name: str,
    holder: Lesson | Screen,
    number: int | None = None,
    *,
    tall: bool = False,
    usual: str | None = None,
) -> None:
    """A field for a text; `usual` is the text used if it is left empty."""
    words = getattr(holder, name)
    change = _whole if number is None else partial(_change, number)
    _field(
        st.text_area if tall else st.text_input,
        name,
        number,
        lambda text: change(**{name: _kept(words, text.strip())}),
        in_language(words, language()),
        max_chars=MAX_TEXT,
        placeholder=usual,
        **({"height": "content"} if tall else {}),
    )


def _screen(draft: Lesson, number: int, screen: Screen) -> None:
    last, is_full = number == len(draft.screens) - 1, len(draft.screens) >= MAX_SCREENS
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(f"{number + 1}", anchor=False, width="stretch")
        for name, by, icon, off in (
            ("up", (-1,), "arrow_upward", number == 0),
            ("down", (1,), "arrow_downward", last),
            ("again", (0, 1), "content_copy", is_full),
            ("remove", (), "delete", False),
        ):
            st.button(
                t(f"editor.{name}"),
                help=t(f"editor.{name}_help", number=number + 1),
                key=_key(f"{name}_{number}"),
                icon=f":material/{icon}:",
                type="tertiary",
                disabled=off,
                on_click=_move,
                args=(number, *by),
            )
    scene = screen.scene(language())
    try:
        trace = items.trace(scene)
    except MhaError as error:
        _sentence(number, screen, scene)
        st.error(literal(said(error)))
        return
    _scene(number, screen, scene, trace)
    _question(number, screen, scene, trace)
    _text("ask", screen, number, tall=True, usual=texts.ask_of(screen.question, scene))
    with st.expander(t("editor.more")):
        _hints(number, screen)
        _text("notice", screen, number, tall=True)
        _field(
            st.checkbox,
            "light",
            number,
            lambda light: _change(number, light=light),
            screen.light,
            help=t("editor.light_help"),
        )
    _verdict(screen)
    picture = views.fold(t("editor.picture"), key=f"draft_picture_{number}", expanded=len(draft.screens) == 1)
    if picture is not None:
        with picture:
            _picture(number, screen, scene, trace)


def _picture(number: int, screen: Screen, scene: Scene, trace: AttentionTrace) -> None:
    """The weights of the head that the question is about."""
    try:
        place_ = Item(screen.question, scene, items.trace).place
    except MhaError:  # the verdict says why
        return
    side = pair.PairSide(scene.text, trace, *place_)
    pair.show_matrices([side], ("weights",), key=f"draft_view_{number}")


def _hints(number: int, screen: Screen) -> None:
    """The fields of all hints: each change keeps what is in all of them, in their order."""
    hints = in_language(screen.hints, language())
    keys = [_key(f"hint_{number}_{nth}") for nth in range(N_HINTS)]

    def typed() -> None:
        texts = filter(None, (st.session_state[key].strip() for key in keys))
        _change(number, hints=_kept(screen.hints, tuple(texts)))

    for nth, key in enumerate(keys):
        text = hints[nth] if nth < len(hints) else ""
        st.text_input(t("editor.hint", number=nth + 1), text, max_chars=MAX_TEXT, key=key, on_change=typed)


def _scene(number: int, screen: Screen, scene: Scene, trace: AttentionTrace) -> None:
    """The sentence, the word that looks, the layer and the head, as on the page Heads."""
    text, word, layer, head = st.columns([5, 2, 1, 1])
    with text:
        _sentence(number, screen, scene)
    words, heads = trace.sides.queries, _heads(scene, trace)
    layers = range(1, len(trace.layers) + 1)
    for name, column, offered, index in (
        ("token", word, names(words), position(words, scene.focus.token) or 0),
        ("layer", layer, layers, min(scene.focus.layer, len(layers)) - 1),
        ("head", head, heads, min(scene.focus.head, len(heads)) - 1),
    ):
        keep = partial(_look, number, screen, name)
        _field(column.selectbox, name, number, keep, offered, index=index)


def _heads(scene: Scene, trace: AttentionTrace) -> range:
    """The heads of the layer that the scene looks at, from 1."""
    layer = min(scene.focus.layer, len(trace.layers)) - 1
    return range(1, trace.layers[layer].n_heads + 1)


def _sentence(number: int, screen: Screen, scene: Scene) -> None:
    def keep(text: str) -> None:
        changed = replace(scene, text=text or scene.text)
        _change(number, scenes=_kept(screen.scenes, _named(changed).link()))

    _field(st.text_input, "text", number, keep, scene.text)


def _look(number: int, screen: Screen, name: str, value: Any) -> None:
    _change(number, scenes=_with_focus(screen, **{name: value}))


def _question(number: int, screen: Screen, scene: Scene, trace: AttentionTrace) -> None:
    """The kind of question, and the settings that it needs besides the scene."""
    question, kinds = screen.question, list(KINDS)
    kind, first, second = st.columns([3, 2, 2])
    _field(
        kind.selectbox,
        "kind",
        number,
        partial(_ask_otherwise, number, screen, scene),
        kinds,
        index=kinds.index(question.kind),
        format_func=partial(_option, "kind"),
    )
    for name, offered in SETTINGS.items():
        value = getattr(question, name, None)
        if value is not None:
            _field(
                first.selectbox,
                name,
                number,
                partial(_set, number, question, name),
                offered,
                index=offered.index(value),
                format_func=partial(_option, name),
            )
    of_cell = getattr(question, "by", getattr(question, "quantity", None)) in WITH_KEY
    if of_cell:
        keys = trace.sides.keys
        keep = partial(_look, number, screen, "key_token")
        index = position(keys, scene.focus.key_token) or 0
        _field(second.selectbox, "key", number, keep, names(keys), index=index)
    if isinstance(question, Flip):
        _field(
            first.multiselect,
            "changes",
            number,
            lambda chosen: _set(number, question, "changes", tuple(chosen)),
            Flip.KINDS,
            question.changes,
            format_func=partial(_option, "changes"),
        )
    if isinstance(question, Order):
        named, heads = scene.focus.heads.split(","), _heads(scene, trace)
        _field(
            (kind if of_cell else second).multiselect,
            "heads",
            number,
            lambda chosen: _look(number, screen, "heads", ",".join(map(str, chosen))),
            heads,
            [int(one) for one in named if one.isdecimal() and int(one) in heads],
        )
    if question.kind == "choose":
        other = scene_of(in_language(screen.other, language()))

        def keep_other(text: str) -> None:
            changed = _named(replace(scene, text=text or other.text))
            _change(number, other=_kept(screen.other, changed.link()))

        _field(first.text_input, "other", number, keep_other, other.text)


def _set(number: int, question: Question, name: str, value: Any) -> None:
    changed: dict[str, Any] = {name: value}
    _change(number, question=replace(question, **changed))


def _option(name: str, value: Any) -> str:
    return t(f"editor.{name}_{value}")


def _with_focus(screen: Screen, **focus: Any) -> dict[str, str]:
    """The links of a screen with another layer or heads, or in the reader's language with another word."""
    shown, is_own = in_language(screen.scenes, language()), not focus.keys().isdisjoint(WORDS)
    changed = {}
    for one, link in screen.scenes.items():
        scene = scene_of(link)
        is_meant = link == shown or not is_own
        changed[one] = replace(scene, focus=replace(scene.focus, **focus)).link() if is_meant else link
    return changed


def _ask_otherwise(number: int, screen: Screen, scene: Scene, kind: str) -> None:
    """Another kind of question about the same scene, with settings to begin with."""
    question: Question = KINDS[kind]()
    item = Item(question, scene, items.trace)
    needed: dict[str, object] = {"question": question, "other": {}}
    if kind == "choose":
        twin = scene.twin or scene.text
        needed["other"] = _kept({}, replace(scene, text=twin, twin="").link())
    if kind in ("order", "estimate"):
        with suppress(MhaError):  # a head that is not there, which the verdict names
            layer, _, _ = item.place
            of_layer = item.trace.layers[layer]
            keys = names(of_layer.sides.keys)
            focus = {"key_token": scene.focus.key_token or keys[int(item.row.argmax())]}
            if kind == "order":
                focus["heads"] = ",".join(str(head + 1) for head in range(min(of_layer.n_heads, 4)))
            needed["scenes"] = _with_focus(screen, **focus)
    _change(number, **needed)


def _verdict(screen: Screen) -> None:
    """Whether the question can be asked, and what the model says to it."""
    try:
        item = items.asked(screen, language())
    except MhaError as refusal:
        st.warning(t("editor.unclear", reason=literal(said(refusal))), icon=":material/help:")
        return
    if item.question.kind == "why":
        st.caption(t("editor.clear_why"))
    elif not item.key.answers:
        st.caption(t("editor.clear"))
    else:
        st.caption(t("editor.answer", answer=literal(texts.key(item))))


def _keep(draft: Lesson) -> None:
    """Try it, or take it along: as a file, and as a link where that is short. What is too long is said."""
    try:
        Lesson.read(draft.write())
    except MhaError as error:
        st.error(literal(said(error)))
        return
    code = library.code(draft, library.MAX_SENT)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            t("editor.try"), key="draft_try", type="primary", icon=":material/play_arrow:", on_click=_open
        )
        if rooms.may_open():
            st.button(
                t("room.desk_teach"),
                key="draft_teach",
                icon=":material/co_present:",
                on_click=_open,
                kwargs=opening.way(library.OWN),
            )
        st.download_button(
            t("editor.save"), draft.write(), "lesson.toml", "application/toml", icon=":material/download:"
        )
        st.button(
            t("lessons.sheet"),
            key="draft_sheet",
            icon=":material/print:",
            on_click=_open,
            kwargs={"worksheet": 1},
        )
    if code is None:
        st.caption(t("editor.long"))
        return
    address = rooms.for_others(place.page_address())
    st.caption(t("editor.link") if rooms.is_for_others(address) else t("editor.link_here"))
    components.code(f"{address}?lesson={library.OWN}&{library.FILE}={code}", wraps=True)


def _open(**link: object) -> None:
    """Open the lesson that is being made, as its file would be, where these fields of the link lead."""
    library.open_file(library.draft().write().encode())
    place.go(**{"lesson": library.OWN, "screen": 1, "answers": "", "worksheet": "", **link})


def way_back(here: Place) -> None:
    """A way to the editor for whoever opened the lesson's file here or made it, not for students."""
    if here.lesson.name == library.OWN and library.KEY in st.session_state:
        is_tried = library.version(library.draft()) == library.version(here.lesson)
        st.button(
            t("editor.back") if is_tried else t("editor.edit"),
            key="draft_back",
            icon=":material/edit:",
            on_click=_edit,
            args=(here.lesson,),
        )


def _edit(lesson: Lesson) -> None:
    library.keep_draft(lesson)
    st.session_state.pop(ASIDE, None)
    st.session_state[VERSION] = st.session_state.get(VERSION, 0) + 1
    place.go(lesson=place.MAKE, screen="", answers="")
