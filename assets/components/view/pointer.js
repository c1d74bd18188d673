// The pointer on a drawing: hovering looks at a token, a click pins it.

import { listOf } from "../numbers/panel.js";
import { make, targetOf } from "../page/elements.js";
import { exact, fill, isolated, paragraph } from "../page/wording.js";
import { tokenOf } from "../pictures/drawing.js";

/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("../pictures/drawing.js").Hit} Hit */
/** @typedef {import("../pictures/drawing.js").SentenceDrawing} SentenceDrawing */
/** @typedef {import("../scene/focus.js").Focus} Focus */

/**
 * @param {import("./head_view.js").HeadView} view
 * @param {{ panel: Panel, stage: HTMLElement, drawing: SentenceDrawing, status: HTMLElement }} drawn
 */
export function followPointer(view, { panel, stage, drawing, status }) {
  const { selection } = view;
  /** @type {Hit | null} under the pointer, between tokens */
  let line = null;
  /** @type {(event: MouseEvent) => Focus | null} */
  const focusAt = (event) => {
    /** @type {HTMLElement | null | undefined} */
    const element = targetOf(event)?.closest(".token");
    if (!element) return null;
    const { side, at } = tokenOf(element);
    return { side: side === "token" ? selection.state.side : side, tokens: [at] };
  };
  /** @param {Focus | null} focus */
  const hover = (focus) => {
    const now = focus && selection.everywhere(panel.nth, focus);
    if (JSON.stringify(selection.hover) !== JSON.stringify(now)) view.point(panel.nth, focus);
  };
  // The line or cell under the pointer says its own number.
  /** @param {MouseEvent} event */
  const point = (event) => {
    const before = line;
    line = drawing.hit(event);
    if (drawing.curves && line !== before) drawing.paint(drawing.curves.find((curve) => curve === line));
    if (line || before) view.pointHead(line?.head ?? null);
    const text = line ? exactly(selection, panel, line) : null;
    if (!text) return view.describe();
    if (status.dataset.text !== text) status.replaceChildren(make("span", "", text));
    status.dataset.text = text;
  };
  stage.addEventListener("pointermove", (event) => {
    const focus = focusAt(event);
    if (focus) return event.pointerType === "touch" ? undefined : hover(focus);
    hover(null);
    point(event);
  });
  stage.addEventListener("pointerleave", () => {
    hover(null);
    if (line) {
      drawing.paint();
      view.pointHead(null);
    }
    line = null;
    drawing.mark?.(null);
    view.describe();
  });
  stage.addEventListener("click", (event) => {
    if (event.detail > 1) return; // a double click is one click
    const more = event.shiftKey || event.ctrlKey || event.metaKey;
    const focus = focusAt(event);
    if (focus) return view.choose(panel.nth, focus.side, focus.tokens[0], more);
    const cell = drawing.hit(event);
    if (!drawing.map || !cell) return point(event); // a finger does not hover
    view.choose(panel.nth, "query", cell.query, more);
  });
}

/** @param {import("./selection.js").Selection} selection @param {Panel} panel @param {Hit} hit */
function exactly(selection, panel, { query, key, head, weight, hidden }) {
  const { texts } = selection.header;
  const layer = selection.layer(panel);
  const who =
    head === null
      ? fill(texts.mean_of, { heads: selection.heads.map((h) => h + 1).join(texts.comma) })
      : fill(texts.one_head, { heads: head + 1 });
  const [from, to] = [listOf(panel, "query")[query], listOf(panel, "key")[key]].map(isolated);
  if (hidden && layer.hidden?.has(key)) return fill(texts.cell_left_out, { to });
  if (hidden) return fill(texts.cell_hidden, { from, to });
  const score = head === null || !layer.score ? NaN : layer.score(head, query, key);
  const value = exact(weight);
  const words = fill(Number.isNaN(score) ? texts.cell : texts.cell_score, {
    who,
    from,
    to,
    value,
    score: score.toFixed(3),
  });
  return paragraph([words, layer.away && texts.rescaled], texts);
}
