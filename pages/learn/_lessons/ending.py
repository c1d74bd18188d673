"""The end of a lesson: what one can do now, a question on paper, its scenes to look around in, what next."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from mha_core import MhaError
from pages._kit import components
from pages._kit.text import after_link, in_link, language, t
from pages.learn._lessons import items, library, place, reveal, screen, texts
from pages.learn._lessons.place import Place

KEY = "lesson_end"
HEIGHT = 400  # pixels until it is drawn
_end = components.component(KEY, "lesson/end.js", "lesson/lesson.css", box="lesson")


def page(here: Place, receipt: Mapping[str, object] | None = None) -> None:
    """The end; with a class without a next lesson, and with the `receipt` of what the student has done."""
    lesson, names = here.lesson, list(library.lessons())
    parts = here.room.lessons if here.room else (lesson,)
    following = names[names.index(lesson.name) + 1 :] if here.room is None else []
    then = library.lessons()[following[0]] if following else None
    title, count, answered = texts.title(lesson), len(lesson.screens), len(here.answers)
    heading, can = t("lessons.end", title=title), t("lessons.can")
    if answered < count:
        heading = t("lessons.end_part", title=title, answered=answered, count=count)
        can = t("lessons.can_after")
    _end(
        key=KEY,
        data={
            "lesson": screen.progress_of(here),
            "number": here.number,
            "heading": heading,
            "can": [can, *filter(None, map(texts.goal, parts))],
            "paper": [t("lessons.sheet_paper"), *filter(None, map(texts.paper, parts))],
            "around": t("lessons.around"),
            "screens": [_screen(here, number) for number in range(1, count + 1)],
            "answer_it": t("lessons.answer_it"),
            "then": then
            and {
                "text": t("lessons.then_lesson", title=texts.title(then)),
                "href": f"./lessons?lesson={then.name}{after_link()}",
                "name": then.name,
            },
            "cards": t("lessons.all"),
            "sheet": "" if here.room else t("lessons.sheet"),
            "back": t("lessons.to_last"),
            "projector": place.projected(),
            "receipt": receipt,
        },
        height=HEIGHT,
        on_acted_change=lambda: screen.act(here, KEY),
    )
    if here.answers and here.room is None:
        link = {"lesson": lesson.name, "answers": place.write_answers(here.answers), **in_link()}
        if lesson.name == library.OWN:
            link[library.FILE] = library.code(lesson) or ""
        st.caption(t("lessons.for_teacher"))
        components.code(f"{place.page_address()}?{urlencode(link)}", wraps=True)


def _screen(here: Place, number: int) -> dict[str, object]:
    """A screen of the lesson: what it asks, whether it was answered, and where its scene opens."""
    there = replace(here, number=number, like=0)
    try:
        links = reveal.looks(here.lesson.screens[number - 1].scene(language()))
    except MhaError:  # of an older edition of the weights
        links = []
    told = {"number": number, "ask": texts.ask(there), "answered": number in here.answers, "links": links}
    return told | _answered(there)


def _answered(there: Place) -> dict[str, object]:
    """One's own answer to a screen, in words, and whether it was right; with a class once that is shown."""
    if there.answer is None:
        return {"own": t("lessons.no_answer")}
    try:
        item = items.item(there)
        right = items.is_right(item, there.answer) if there.is_shown else None
        return {"own": t("lessons.own_answer", answer=texts.answer(item, there.answer)), "right": right}
    except MhaError:  # it is no answer to this edition's question
        return {}
