"""The locked answers of a lesson as a link has them: ``1.zh-9~2.en-3:60,7:40``.

Each has the number of its screen and the language of its question; older links have no language.
"""

import re
from collections.abc import Mapping

from mha_core.focus.fields import MAX_CHARACTERS
from mha_core.focus.token_names import as_number
from mha_core.lessons.item import Locked

BETWEEN = "~"
PART = re.compile(r"(\d+)(?:\.([a-z]{2}))?-(.+)", re.DOTALL)
ESCAPES = {"%": "%25", BETWEEN: "%7E"}  # in an answer that is a sentence


def read(code: str) -> dict[int, Locked]:
    """The answers by the numbers of their screens; an invalid part is left out."""
    found = {}
    for part in code[:MAX_CHARACTERS].split(BETWEEN):
        if (match := PART.fullmatch(part)) and (at := as_number(match[1])):
            answer = match[3]
            for character, escape in reversed(ESCAPES.items()):
                answer = answer.replace(escape, character)
            found[at] = Locked(answer, match[2] or "")
    return found


def written(answers: Mapping[int, Locked]) -> str:
    """The answers as a link has them; if the link would be too long, the longest are left out."""
    parts = {}
    for number, (answer, language) in sorted(answers.items()):
        for character, escape in ESCAPES.items():
            answer = answer.replace(character, escape)
        parts[number] = f"{number}.{language}-{answer}" if language else f"{number}-{answer}"
    while len(code := BETWEEN.join(parts.values())) > MAX_CHARACTERS:
        del parts[max(parts, key=lambda number: len(parts[number]))]
    return code
