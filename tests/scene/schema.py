"""Writes the script's copy of the link grammar: `assets/components/scene/schema.js`.

``python -m tests.scene.schema`` writes it; a test says when that has to be done again.
"""

import json
import re
from collections.abc import Mapping

from mha_core import resources
from mha_core.focus.focus import CHOICES, MAX_NUMBER, Focus
from mha_core.scene.changes import KINDS, change_of, text
from mha_core.scene.link import OF_HEADS, WITH_HEADS
from mha_core.traces.matrices import MATRICES, TOKEN_AXES, VIEWED, Matrix

PATH = resources.path("assets", "components", "scene", "schema.js")
MODULE = """\
// Python's definitions that the scripts share. Written by `python -m tests.scene.schema`; never by hand.

/** the focus of a link that says nothing of it (mha_core/focus/focus.py) */
export const DEFAULTS = {defaults};

/** the fields of a focus, in their order in a link */
export const FIELDS = /** @type {{(keyof typeof DEFAULTS)[]}} */ (Object.keys(DEFAULTS));

/** the fields of a focus that have a few values; the first is the default */
export const CHOICES = {choices};

/** @typedef {{"query" | "key"}} TokenAxis */
/**
 * the matrices of a head that the view draws; rows and columns are tokens of a side, or dimensions (null)
 * (mha_core/traces/matrices.py)
 * @type {{Record<string, {{ symbol: string, rows: TokenAxis, columns: TokenAxis | null, signed: boolean }}>}}
 */
export const MATRICES = {matrices};

/** the largest number of a focus in a link */
export const MAX_NUMBER = {max_number};

/** the fields of a link that name a layer or heads, and those that can name heads (mha_core/scene/link.py) */
export const OF_HEADS = {of_heads};
export const WITH_HEADS = {with_heads};

/** an edge that is cut, in one head and in all of them, in a link of What if (mha_core/scene/changes.py) */
export const CUT = {cut};
export const CUT_EVERYWHERE = {cut_everywhere};
"""


def module() -> str:
    """The whole module, as the linter of the scripts writes it."""
    return MODULE.format(
        defaults=_written(Focus().link()),
        choices=_written(CHOICES),
        matrices=_written({name: _matrix(MATRICES[name]) for name in VIEWED}),
        max_number=MAX_NUMBER,
        of_heads=json.dumps(OF_HEADS),
        with_heads=json.dumps(WITH_HEADS),
        cut=_cut(*KINDS["cut"].names),
        cut_everywhere=_cut("from", "to"),
    )


def _cut(*names: str) -> str:
    written = text(change_of("cut", dict.fromkeys(names, 1)))
    return json.dumps(re.sub(r"(\w+)=1", r"\1={\1}", written))


def _matrix(matrix: Matrix) -> dict[str, object]:
    rows, columns = (axis if axis in TOKEN_AXES else None for axis in matrix.axes)
    return {"symbol": matrix.symbol, "rows": rows, "columns": columns, "signed": matrix.kind == "signed"}


def _written(fields: Mapping[str, object]) -> str:
    lines = (f"  {name}: {_value(value)},\n" for name, value in fields.items())
    return f"{{\n{''.join(lines)}}}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name}: {_value(one)}' for name, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    PATH.write_text(module(), encoding="utf-8")
