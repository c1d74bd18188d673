"""The cache of a head as a table: the new query, the keys and values that are kept, and the output."""

import html
from collections.abc import Iterable, Sequence

import numpy as np
import streamlit as st

from mha_core import LayerTrace
from mha_core.attention.edits import Edit, Exchange
from mha_core.traces.tokens import subscript
from pages._kit.text import isolated, number, short, t

FIRST, LAST = 3, 17  # rows of a long text that are drawn
CELLS = 64  # of a vector that are drawn
# A vector is a strip of cells; K stands below the query and V above the output, number by number.
STYLE = """
.cache-rows { overflow-x: auto; }
.cache-rows table { border-collapse: separate; border-spacing: 0 3px; width: 100%; font-size: .875rem; }
.cache-rows th { font-weight: 400; text-align: start; padding: 0 .5rem; max-width: 9rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.cache-rows thead th { font-size: .8rem; }
.cache-rows .unknown { text-decoration: underline dotted; text-underline-offset: .2em; }
.cache-rows b { font-weight: 600; }
.cache-rows thead b + span { opacity: .75; }
.cache-rows td { padding: 0 .4rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.cache-rows .vector { width: 30%; min-width: 96px; }
.cache-rows .number { text-align: end; width: 3.5rem; }
.cache-rows .share { width: 22%; min-width: 74px; }
.cache-rows .share > div { display: flex; align-items: center; gap: .4rem; }
.cache-rows .share u { flex: none; height: 12px; background: var(--mark); max-width: calc(100% - 3rem); }
.cache-rows .strip { display: flex; height: 18px; --edge: color-mix(in srgb, currentColor 25%, transparent);
  border: 1px solid var(--edge); }
.cache-rows .strip i { flex: 1; min-width: 0; --colour: var(--plus);
  background: color-mix(in srgb, var(--colour) var(--share), transparent); }
.cache-rows .strip i.minus { --colour: var(--minus); }
.cache-rows .kept > :is(th, .vector) { opacity: .55; }
.cache-rows .new th { font-weight: 600; }
.cache-rows .new .strip, .cache-rows .end .strip { border: 2px solid var(--mark); }
.cache-rows small { background: var(--mark); color: var(--ground); border-radius: 3px; padding: 0 .3rem;
  margin-inline-start: .4rem; }
.cache-rows .gone th { text-decoration: line-through; }
.cache-rows .gone .strip { background: repeating-linear-gradient(45deg, transparent 0 4px,
  var(--edge) 4px 5px); }
.cache-rows .bracket { padding: 0; border: 1px solid currentColor; border-inline-end: 0; opacity: .6; }
.cache-rows td:first-child:empty { width: 7px; padding: 0; }
@media (max-width: 640px) { .cache-rows .score { display: none; }
  .cache-rows th { max-width: 5rem; padding: 0 .2rem; } .cache-rows .vector { min-width: 76px; }
  .cache-rows td { padding: 0 .15rem; } }
"""


def draw(layer: LayerTrace, *, head: int, at: int, edits: Sequence[Edit]) -> None:
    """The step of the token `at`: its query, each cached key with its score, its weight and its value."""
    shared, tokens = layer.kv_head(head), layer.sides.keys
    words = [html.escape(isolated(label)) for label in tokens.labels]
    for row in tokens.unknown:
        words[row] = f'<span class="unknown">{words[row]}</span>'
    scores, weights = (matrix(head, rows=[at])[0] for matrix in (layer.masked, layer.weights))
    seen, k, v = layer.allowed(head, rows=[at])[0], layer.k[shared], layer.v[shared]
    order = _order(edits, at)
    drawn = order if len(order) <= FIRST + LAST else [*order[:FIRST], *order[-LAST:]]
    largest = {"k": np.abs(k[: at + 1]).max(), "v": np.abs(v[: at + 1]).max()}
    lines = []
    for place, row in enumerate(drawn):
        if len(drawn) < len(order) and place == FIRST:
            left = t("decode.more_rows", count=f"{len(order) - len(drawn):,}")
            lines.append(f'<tr class="kept"><th>⋮</th><td colspan="4">{html.escape(left)}</td></tr>')
        kind = "new" if row == at else "kept" if seen[row] else "gone"
        mark = f"<small>{html.escape(t('decode.new'))}</small>" if row == at else ""
        bracket = "<td></td>" if row == at else ""
        if place == 0 and at:
            span = len(drawn) - 1 + (len(drawn) < len(order))
            bracket = f'<td class="bracket" rowspan="{span}"></td>'
        weight = float(weights[row])
        lines.append(
            f'<tr class="{kind}">{bracket}<th scope="row">{words[row]}{mark}</th>'
            f"{_vector(k[row], largest['k'], hidden=kind == 'gone')}"
            f'<td class="number score">{number(float(scores[row])) if seen[row] else "−∞"}</td>'
            f'<td class="share"><div><u style="width:{weight:.1%}"></u>{short(weight)}</div></td>'
            f"{_vector(v[row], largest['v'], hidden=kind == 'gone')}</tr>"
        )
    query, output = layer.q[head, at], layer.output(head, rows=[at])[0]
    one, two = subscript(head + 1), subscript(shared + 1)
    heads = (
        f'<th colspan="2">{t("decode.kept") if at else ""}</th>'
        f"<th><b>K{two}</b> <span>{t('decode.keys')}</span></th>"
        f'<th class="number score">{t("decode.score")}</th><th>{t("decode.weight")}</th>'
        f"<th><b>V{two}</b> <span>{t('decode.values')}</span></th>"
    )
    first = (
        f'<tr class="end"><td></td><th scope="row"><b>q{one}</b> {words[at]}</th>'
        f"{_vector(query, float(np.abs(query).max()))}<td colspan='3'></td></tr>"
    )
    last = (
        f'<tr class="end"><td></td><th scope="row"><b>head{one}</b> {words[at]}</th><td></td>'
        f'<td class="score"></td><td>{t("decode.sum")}</td>{_vector(output, largest["v"])}</tr>'
    )
    table = f"<table><thead>{first}<tr>{heads}</tr></thead><tbody>{''.join(lines)}{last}</tbody></table>"
    st.html(f"<style>{_colours()}{STYLE}</style><div class='cache-rows' tabindex='0'>{table}</div>")


def _order(edits: Iterable[Edit], at: int) -> list[int]:
    """The row at each place of the cache, with the new one last."""
    order = [*range(at + 1)]
    for edit in edits:
        if isinstance(edit, Exchange) and edit.since <= at:
            moved = edit.order(at + 1)
            order = [moved[row] for row in order]
    return order


def _vector(values: np.ndarray, largest: float, *, hidden: bool = False) -> str:
    """A vector as a strip; what is no longer in the cache has no colour."""
    cells = "".join(
        f'<i class="{"minus" if value < 0 else "plus"}" style="--share:{abs(value) / (largest or 1):.0%}"'
        f' title="{number(float(value))}"></i>'
        for value in values[:CELLS].tolist()
    )
    return f'<td class="vector"><div class="strip">{"" if hidden else cells}</div></td>'


def _colours() -> str:
    """The colours of the theme: of signed numbers, of what is new, and of the page."""
    themes = []
    for name in ("light", "dark"):
        options = ("chartDivergingColors", "primaryColor", "backgroundColor")
        scale, mark, ground = (st.get_option(f"theme.{name}.{option}") for option in options)
        themes.append({"minus": scale[0], "plus": scale[-1], "mark": mark, "ground": ground})
    light, dark = themes
    return "".join(f".cache-rows {{--{name}: light-dark({light[name]}, {dark[name]})}}" for name in light)
