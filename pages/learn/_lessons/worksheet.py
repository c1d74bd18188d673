"""A worksheet of a lesson to print: its questions with empty pictures, and the key on a page of its own."""

import streamlit as st

from mha_core import MhaError
from mha_core.lessons.lesson import Lesson
from pages._kit import components
from pages._kit.text import said, templates
from pages.learn._lessons import items, place, question_data, texts
from pages.learn._lessons.place import Place

KEY = "lesson_worksheet"
HEIGHT = 1200  # pixels until it is drawn
_sheet = components.component(
    KEY, "lesson/worksheet.js", "lesson/lesson.css", "pictures/print.css", box="lesson sheet"
)


def page(lesson: Lesson) -> None:
    """Draw both pages. The scenes are computed here, so that what is printed is what a screen would ask."""
    with st.container(key="printed"):
        st.empty()
    _sheet(
        key=KEY,
        data={
            "title": texts.title(lesson),
            "screens": [_screen(lesson, number) for number in range(1, len(lesson.screens) + 1)],
            "paper": texts.paper(lesson),
            "texts": templates("lessons.sheet_"),
            "drawn": templates("lessons.js_"),
        },
        height=HEIGHT,
        on_acted_change=lambda: place.go(worksheet=""),
    )


def _screen(lesson: Lesson, number: int) -> dict[str, object]:
    """A question with the data of its picture, its answer in words, and what there is to notice."""
    there = Place(lesson, number, {})
    told: dict[str, object] = {"ask": texts.ask(there), "notice": texts.notice(there), "answer": ""}
    try:
        item = items.asked(there.screen, there.language)
        return told | {"question": question_data.data(item), "answer": texts.key(item)}
    except MhaError as refusal:
        return told | {"refusal": said(refusal)}
