"""The cards of all lessons, with how far this browser is in each, and a place to open a lesson's file."""

import streamlit as st

from mha_core import MhaError, resources
from mha_core.lessons.lesson import Lesson, LessonError, offered
from pages._kit import components
from pages._kit.text import after_link, literal, said, t, templates
from pages._server import rooms
from pages.learn._lessons import acts, library, opening, place, seat, texts

KEY = "lesson_cards"
ACTS: acts.Acts = {
    "open": {"name": str, "number": int, "code": str},
    "sheet": {"name": str},
    "teach": {"name": str},
}
EXERCISE = "multi_head_attention.py"
HEIGHT = 842  # pixels until they are drawn
FILE, REFUSED = "lesson_upload", "lesson_refused"
_cards = components.component(KEY, "lesson/cards.js", "lesson/lesson.css", box="cards")


def page() -> None:
    st.title(t("lessons.heading"), anchor=False)
    st.caption(t("lessons.intro"))
    if st.query_params.get("lesson") == library.OWN:
        st.info(t("lessons.file_gone"), icon=":material/upload_file:")
    if (code := st.session_state.pop(opening.DELETED, None)) is not None:
        st.info(t("room.desk_deleted", code=code), icon=":material/delete:")
    try:
        offered()
    except MhaError as error:
        st.error(t("lessons.not_offered", reason=literal(said(error))))
    except OSError:
        st.error(t("lessons.not_offered", reason=t("lessons.no_file")))
    if rooms.offered():
        seat.join_field()
        if rooms.may_open():
            st.caption(t("lessons.teach"))
    else:  # its command in a caption would be too pale
        st.markdown(t("lessons.teach_command"))
    _cards(
        key=KEY,
        data={
            "lessons": [_card(lesson) for lesson in library.lessons().values()],
            "texts": templates("lessons.card_"),
            "teach": t("room.desk_teach") if rooms.may_open() else "",
            "sheet": t("lessons.sheet"),
        },
        height=HEIGHT,
        on_acted_change=_open,
    )
    st.button(
        t("editor.heading"),
        key="lesson_make",
        icon=":material/edit:",
        on_click=place.go,
        kwargs={"lesson": place.MAKE, "screen": "", "answers": ""},
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(t("lessons.exercise"), width="stretch")
        st.download_button(
            t("lessons.exercise_file"),
            lambda: resources.path("assets", "exercises", EXERCISE).read_bytes(),
            file_name=EXERCISE,
            mime="text/x-python",
            key="exercise",
            icon=":material/download:",
            on_click="ignore",
        )
    refused = st.session_state.get(REFUSED, ())
    with st.expander(t("lessons.file"), expanded=bool(refused)):
        st.caption(t("lessons.file_what"))
        st.file_uploader(
            t("lessons.file"),
            type="toml",
            key=FILE,
            on_change=_take,
            label_visibility="collapsed",
            max_upload_size=1,
        )
        for problem in refused:
            st.error(literal(problem))


def _card(lesson: Lesson) -> dict[str, object]:
    count = len(lesson.screens)
    return {
        "name": lesson.name,
        "version": library.version(lesson),
        "title": texts.title(lesson),
        "goal": texts.goal(lesson),
        "size": t("lessons.size", minutes=lesson.minutes, count=count),
        "count": count,
        "href": f"./lessons?lesson={lesson.name}{after_link()}",
    }


def _open() -> None:
    match acts.read(KEY, ACTS):
        case {"do": "open", "name": name, "number": number, "code": code}:
            place.go(lesson=name, screen=number, answers=code)
        case {"do": "sheet", "name": name}:
            place.go(lesson=name, worksheet=1)
        case {"do": "teach", "name": name}:
            place.go(**opening.way(name))


def _take() -> None:
    """Open the file in the uploader; if it is wrong, only its errors are shown, line by line."""
    upload = st.session_state[FILE]
    st.session_state.pop(REFUSED, None)
    if upload is None:
        return
    try:
        library.open_file(upload.getvalue())
    except LessonError as error:
        st.session_state[REFUSED] = [
            t("lessons.file_line", line=one.line, message=said(one.message)) for one in error.problems
        ]
    except MhaError as error:
        st.session_state[REFUSED] = [said(error)]
    else:
        place.go(lesson=library.OWN, screen=1, answers="")
