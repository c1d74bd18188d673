"""The locked answers of a lesson as a link has them: ``1-9~2-3:60,7:40``, each with its screen's number."""

from collections.abc import Mapping

from mha_core.focus.fields import MAX_CHARACTERS
from mha_core.focus.token_names import as_number

BETWEEN, AFTER_NUMBER = "~", "-"
ESCAPES = {"%": "%25", BETWEEN: "%7E"}  # in an answer that is a sentence


def read(code: str) -> dict[int, str]:
    """The answers by the numbers of their screens; an invalid part is left out."""
    found = {}
    for part in code[:MAX_CHARACTERS].split(BETWEEN):
        number, dash, answer = part.partition(AFTER_NUMBER)
        if dash and answer and (at := as_number(number)):
            for character, escape in reversed(ESCAPES.items()):
                answer = answer.replace(escape, character)
            found[at] = answer
    return found


def written(answers: Mapping[int, str]) -> str:
    """The answers as a link has them; if the link would be too long, the longest are left out."""
    parts = {}
    for number, answer in sorted(answers.items()):
        for character, escape in ESCAPES.items():
            answer = answer.replace(character, escape)
        parts[number] = f"{number}{AFTER_NUMBER}{answer}"
    while len(code := BETWEEN.join(parts.values())) > MAX_CHARACTERS:
        del parts[max(parts, key=lambda number: len(parts[number]))]
    return code
