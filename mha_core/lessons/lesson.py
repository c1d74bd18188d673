"""A lesson: a TOML file of screens, each a question about one scene. The file's format, and its checker.

    minutes = 6
    title = "What is a head?"
    goal = "You can say what one head looks at, and test it."
    paper = "Draw the row of it. Why would a second head look elsewhere?"

    [[screens]]
    kind = "draw"
    scene = "text=The animal didn't cross the street because it was too tired.&layer=2&head=1&token=it"
    ask = "Draw where head 1 looks from it."
    hints = ["Which word does it stand for?", "One word has nearly all the weight."]
    notice = "The head answers the question what a pronoun stands for."

A scene is a link. Texts and scenes may differ by language, ``ask.en = "…"``; of a text's markup only emphasis
is read, ``**word**`` and ``*word*``. A screen's other fields are the settings of its kind of question
(`question.KINDS`).
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar

from mha_core import resources
from mha_core.errors import MhaError, Phrase, listed, shown
from mha_core.lessons.item import Item, Question, Tracer
from mha_core.lessons.question import KINDS, Choose, scene_of
from mha_core.scene import changes
from mha_core.scene.scene import Scene

MAX_BYTES = 64_000  # of a file
MAX_SCREENS = 24
MAX_MINUTES = 120
MAX_TEXT = 600  # characters of a text
MAX_WORDS = 40  # of a question: a longer one is named by `headscope lesson check`
MAX_LINK = 2_000  # characters
MAX_DOTS = 200  # of a line: a parser takes a time that grows with the square of a dotted key
MAX_PROBLEMS = 20  # that are told of one file
SOURCES = ("mini", "random", "model")  # of scenes: what anybody has
TEXTS = ("title", "goal", "paper")  # of a lesson
SCREEN = ("kind", "scene", "ask", "notice", "hints", "light")  # fields of every screen
N_HINTS = 2  # texts; the third rung is a like case
ANY = "*"  # the language of a text that is in no language's table
SCREEN_LINE = re.compile(r"\s*\[\[\s*screens\s*\]\]")
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z]{2,4})?")
Words = Mapping[str, str]  # a text by its language
Several = Mapping[str, tuple[str, ...]]  # texts by their language
Told = TypeVar("Told", str, tuple[str, ...])


class Problem(NamedTuple):
    """An error in a lesson file, and its line."""

    line: int
    message: MhaError


class LessonError(MhaError):
    """A lesson file that cannot be read, with its `problems`."""

    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Screen:
    """One screen: a question, the links of its scene by language, and its texts by language.

    `other` has the links of the second scene of a question between two pictures. `light` shows, after the
    answer, the way of one number from q and k to the output.
    """

    question: Question
    scenes: Words
    other: Words = field(default_factory=dict)
    ask: Words = field(default_factory=dict)
    notice: Words = field(default_factory=dict)
    hints: Several = field(default_factory=dict)
    light: bool = False

    def scene(self, language: str) -> Scene:
        """The scene in a language, else the one for all, else the English or the first one.

        Raises `MhaError` for a link with values that cannot be, or cannot be any more.
        """
        return scene_of(in_language(self.scenes, language))

    def item(self, language: str, tracer: Tracer = Scene.trace) -> Item:
        """The question about its scene in a language. Raises as `scene`."""
        question = self.question
        if isinstance(question, Choose):
            question = replace(question, other=in_language(self.other, language))
        return Item(question, self.scene(language), tracer)


@dataclass(frozen=True)
class Lesson:
    """A lesson: its name, how many minutes it takes, its screens, and its texts by language.

    `goal` is what one can do after it, `paper` a question on paper for a week later.
    """

    name: str
    minutes: int
    screens: tuple[Screen, ...]
    title: Words = field(default_factory=dict)
    goal: Words = field(default_factory=dict)
    paper: Words = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, name: str = "lesson", *, is_draft: bool = False) -> "Lesson":
        """The lesson of a file's text; a draft may have no screen yet.

        Raises `LessonError`, which names the line of each problem.

        >>> from mha_core.lessons.lesson import Lesson, LessonError
        >>> try:
        ...     Lesson.read("minutes = 5")
        ... except LessonError as error:
        ...     print(error.problems[0].line, error.problems[0].message)
        1 A lesson has 1 to 24 screens, each below a line [[screens]].
        """
        return _Reader(text, name, is_draft).lesson()

    @classmethod
    def open(cls, path: str | PathLike) -> "Lesson":
        """The lesson of a file, which has its name. Raises `LessonError` and `OSError`."""
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        reader = _Reader(content.decode("utf-8-sig", errors="replace"), Path(path).stem, is_draft=False)
        if len(content) <= MAX_BYTES and "\ufffd" in reader.text:
            at = reader.text.partition("\ufffd")[0].count("\n") + 1
            raise reader.refusal(at, MhaError("A lesson is a text file in UTF-8."))
        return reader.lesson()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which its scenes differ, or English, which stands for any."""
        named = (language for screen in self.screens for language in screen.scenes if language != ANY)
        return tuple(dict.fromkeys(named)) or ("en",)

    def check(self, language: str, tracer: Tracer = Scene.trace) -> tuple[tuple[int, MhaError], ...]:
        """The numbers from 1 of the screens whose question cannot be posed or is ambiguous, and why."""
        wrong = []
        for number, screen in enumerate(self.screens, start=1):
            try:
                _ = screen.item(language, tracer).key
            except MhaError as error:
                wrong.append((number, error))
        return tuple(wrong)

    def write(self) -> str:
        """The lesson as the text of a file, which `read` reads."""
        lines = [f"minutes = {self.minutes}", *_lines(self, TEXTS)]
        for screen in self.screens:
            lines += ["", "[[screens]]", f'kind = "{screen.question.kind}"', *_line("scene", screen.scenes)]
            lines += _lines(screen, ("other", "ask", "notice", "hints"))
            lines += ["light = true"] if screen.light else []
            for name in settings_of(type(screen.question)):
                lines += _line(name, {ANY: getattr(screen.question, name)})
        return "\n".join(lines) + "\n"


@cache
def files() -> Mapping[str, Path]:
    """The files of the lessons that come with the library, by lesson name, in their order."""
    found = sorted(resources.path("assets", "lessons").glob("*.toml"))
    return {file.stem.partition("-")[2]: file for file in found}  # 1-heads.toml


@cache
def shipped() -> Mapping[str, Lesson]:
    """The lessons that come with the library, by their names, in their order."""
    return {name: replace(Lesson.open(file), name=name) for name, file in files().items()}


def offered() -> Mapping[str, Lesson]:
    """The shipped lessons and, by the name of its file, the one of `HEADSCOPE_LESSON`.

    Raises `LessonError` and `OSError` for a file that cannot be read.
    """
    path = os.environ.get(resources.LESSON)
    return {**shipped(), **({(own := Lesson.open(path)).name: own} if path else {})}


def in_language(words: Mapping[str, Told], language: str) -> Told | Literal[""]:
    """The words in a language, else those for all, in English, or in the first language; "" without any."""
    return next((words[one] for one in (language, ANY, "en") if one in words), next(iter(words.values()), ""))


def screen_lines(text: str) -> list[int]:
    """The lines of a file, from 1, on which its screens begin."""
    return [at for at, line in enumerate(text.splitlines(), start=1) if SCREEN_LINE.match(line)]


def settings_of(kind: type[Question]) -> tuple[str, ...]:
    """The names of a kind's settings in a lesson file."""
    return tuple(one.name for one in fields(kind) if one.name != "other")


def _lines(holder: Lesson | Screen, names: tuple[str, ...]) -> list[str]:
    return [line for name in names for line in _line(name, getattr(holder, name))]


def _line(name: str, words: Mapping[str, object]) -> list[str]:
    return [f"{_key(name, language)} = {_value(value)}" for language, value in words.items()]


def _key(name: str, language: str) -> str:
    """The name of a field in a file: it has that of the language, unless its words are for all."""
    return name if language == ANY else f"{name}.{language}"


def _value(value: object) -> str:
    """A value as TOML: its strings and arrays are those of JSON, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Reader:
    """Reads one file; it goes on after a problem, so that all of them are named at once."""

    def __init__(self, text: str, name: str, is_draft: bool):
        self.text, self.name, self.is_draft = text, name, is_draft
        self.problems: list[Problem] = []

    def lesson(self) -> Lesson:
        self._check_size(self.text)
        for at, line in enumerate(self.text.splitlines(), start=1):
            if line.count(".") > MAX_DOTS:
                raise self.refusal(at, MhaError("A line has at most {limit} dots.", limit=MAX_DOTS))
        try:
            table = tomllib.loads(self.text)
        except (ValueError, RecursionError) as wrong:  # of a number of 5,000 digits it is no TOMLDecodeError
            found = re.search(r"at line (\d+)", str(wrong))
            message = MhaError("This is not TOML: {reason}", reason=str(wrong))
            raise self.refusal(int(found[1]) if found else 1, message) from None
        self._known(table, (*TEXTS, "minutes", "screens"), 0)
        texts = {name: self._words(table, name, 0) for name in TEXTS}
        minutes: Any = table.get("minutes")
        if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= MAX_MINUTES:
            error = MhaError(
                "minutes is a whole number from 1 to {limit}; got {value}.",
                limit=MAX_MINUTES,
                value=shown(minutes),
            )
            self._wrong(0, "minutes", error)
        screens = table.get("screens", [])
        if (
            not isinstance(screens, list)
            or not (screens or self.is_draft)
            or len(screens) > MAX_SCREENS
            or not all(isinstance(one, dict) for one in screens)
        ):
            error = MhaError(
                "A lesson has 1 to {limit} screens, each below a line [[screens]].", limit=MAX_SCREENS
            )
            self._wrong(0, "screens", error)
            screens = []
        read = [self._screen(one, number) for number, one in enumerate(screens, start=1)]
        if self.problems:
            raise self._unreadable()
        whole = tuple(one for one in read if one is not None)  # without problems all of them
        lesson = Lesson(self.name, minutes, whole, **texts)
        self._check_size(lesson.write())
        return lesson

    def _check_size(self, text: str) -> None:
        """Raises `LessonError` for a text with too many bytes."""
        if (size := len(text.encode(errors="replace"))) > MAX_BYTES:
            message = MhaError(
                "A lesson has at most {limit:,} bytes; this one has {size:,}.", limit=MAX_BYTES, size=size
            )
            raise self.refusal(1, message)

    def refusal(self, line: int, message: MhaError) -> LessonError:
        """The error of a file with a problem, after which nothing more can be read."""
        self.problems.append(Problem(line, message))
        return self._unreadable()

    def _unreadable(self) -> LessonError:
        problems = tuple(sorted(self.problems, key=lambda one: one.line))
        lines = (Phrase("line {line}: {message}", line=at, message=error.phrase) for at, error in problems)
        refusal = LessonError("The lesson cannot be read. {problems}", problems=listed(lines, "space"))
        refusal.problems = problems
        return refusal

    def _screen(self, table: dict, number: int) -> Screen | None:
        asked = table.get("kind")
        kind = KINDS.get(asked) if isinstance(asked, str) else None
        if kind is None:
            error = MhaError(
                "The kind of a question is {kinds}; got {value}.",
                kinds=listed(KINDS, "or"),
                value=shown(asked),
            )
            self._wrong(number, "kind", error)
            return None
        settings = settings_of(kind)
        others = ("other",) if kind is Choose else ()
        self._known(table, (*SCREEN, *others, *settings), number)
        links = {name: self._links(table, name, number) for name in ("scene", *others)}
        hints = self._texts(table, "hints", number)
        light = table.get("light", False)
        if not isinstance(light, bool):
            self._wrong(number, "light", MhaError("light is true or false; got {value}.", value=shown(light)))
        given = {
            name: tuple(value) if isinstance(value := table[name], list) else value
            for name in settings
            if name in table
        }
        try:
            question = kind(**given)
        except MhaError as wrong:
            self._wrong(number, next(iter(given)), wrong)
            return None
        except TypeError:
            name, value = next(iter(given.items()))
            self._wrong(number, name, MhaError("{name} cannot be {value}.", name=name, value=shown(value)))
            return None
        return Screen(
            question,
            links["scene"],
            links.get("other", {}),
            self._words(table, "ask", number),
            self._words(table, "notice", number),
            hints,
            light is True,
        )

    def _links(self, table: dict, name: str, number: int) -> Words:
        """Links by language, each with a scene that anybody has and whose changes are in attention."""
        links = self._words(table, name, number, MAX_LINK)
        if not links and name not in table:
            error = MhaError(
                'The screen has no {name}: a link, as in scene = "text=How are you?".', name=name
            )
            self._wrong(number, "kind", error)
        for language, link in links.items():
            try:
                scene = scene_of(link)
                if scene.source not in SOURCES:
                    raise MhaError(
                        "The source of a lesson's scene is {sources}; got {source}.",
                        sources=listed(SOURCES, "or"),
                        source=scene.source,
                    )
                if changes.swaps_of(changes.read(scene.edits)[0]):
                    raise MhaError(
                        "A lesson's scene has the words in their order: write the text as it is to be read."
                    )
            except MhaError as wrong:
                self._wrong(number, _key(name, language), wrong)
        return links

    def _words(self, table: dict, name: str, number: int, limit: int = MAX_TEXT) -> Words:
        """A text by its language; one without a table is for all."""
        return {
            language: text
            for language, text in self._by_language(table, name, number)
            if self._is_text(text, name, language, number, limit)
        }

    def _texts(self, table: dict, name: str, number: int) -> Several:
        found = {}
        for language, texts in self._by_language(table, name, number):
            if not isinstance(texts, list) or len(texts) > N_HINTS:
                error = MhaError("{name} are a list of at most {limit} texts.", name=name, limit=N_HINTS)
                self._wrong(number, name, error)
            elif all(self._is_text(text, name, language, number, MAX_TEXT) for text in texts):
                found[language] = tuple(texts)
        return found

    def _by_language(self, table: dict, name: str, number: int) -> list[tuple[str, object]]:
        value = table.get(name)
        if value is None:
            return []
        if not isinstance(value, dict):
            return [(ANY, value)]
        for language in value:
            if not LANGUAGE.fullmatch(language):
                error = MhaError(
                    "{language} is not the code of a language, as en or zh.", language=shown(language)
                )
                self._wrong(number, name, error)
        return [*value.items()]

    def _is_text(self, text: object, name: str, language: str, number: int, limit: int) -> TypeGuard[str]:
        if isinstance(text, str) and text.strip() and len(text) <= limit:
            return True
        error = MhaError("{name} is a text of at most {limit:,} characters.", name=name, limit=limit)
        self._wrong(number, _key(name, language), error)
        return False

    def _known(self, table: dict, names: tuple[str, ...], number: int) -> None:
        for name in table.keys() - {*names}:
            error = MhaError(
                "There is no field {name} here; there are {names}.",
                name=shown(name),
                names=listed(names, "and"),
            )
            self._wrong(number, name, error)

    def _wrong(self, number: int, name: str, message: MhaError) -> None:
        line = self._lines.get((number, name)) or self._lines.get((number, ""), 1)
        self.problems.append(Problem(line, message))
        if len(self.problems) == MAX_PROBLEMS:
            raise self._unreadable()

    @cached_property
    def _lines(self) -> dict[tuple[int, str], int]:
        """The lines of the fields by the number of their screen, 0 for the lesson; "" is where it begins."""
        found, screen = {(0, ""): 1}, 0
        for at, line in enumerate(self.text.splitlines(), start=1):
            if SCREEN_LINE.match(line):
                screen += 1
                found[screen, ""] = at
            elif named := re.match(r"\s*([\w-]+)(?:\s*\.\s*([\w-]+))?", line):
                for name in (named[1], f"{named[1]}.{named[2]}"):
                    found.setdefault((screen, name), at)
        return found
