// The pointer on a drawing: hovering looks at a token, a click pins it.

import { listOf } from "../numbers/panel.js";
import { make } from "../page/elements.js";
import { exact, fill, isolated, paragraph } from "../page/wording.js";

/** @typedef {import("./selection.js").Selection} Selection */

/**
 * What the view does when something is pointed at or pressed.
 * @typedef {object} Reply
 * @property {(nth: number, focus: import("../scene/focus.js").Focus | null) => void} point a token, or none
 * @property {(head: number | null) => void} pointHead
 * @property {(nth: number, side: import("../numbers/panel.js").Side, token: number, more: boolean) => void} choose
 * @property {() => void} describe what is looked at
 */

/**
 * @param {Selection} selection
 * @param {{ panel: import("../numbers/panel.js").Panel, stage: HTMLElement, drawing: any, status: HTMLElement }} drawn
 * @param {Reply} reply
 */
export function followPointer(selection, { panel, stage, drawing, status }, reply) {
  let line = null; // under the pointer, between tokens
  const tokenOf = (event) => event.target.closest?.(".token");
  const focusOf = (element, at = Number(element.dataset.at)) => ({
    side: element.dataset.side === "token" ? selection.state.side : element.dataset.side,
    tokens: [at],
  });
  const hover = (focus) => {
    const now = focus && selection.everywhere(panel.nth, focus);
    if (JSON.stringify(selection.hover) !== JSON.stringify(now)) reply.point(panel.nth, focus);
  };
  // The line or cell under the pointer says its own number.
  const point = (event) => {
    const before = line;
    line = drawing.hit(event);
    if (drawing.curves && line !== before) drawing.paint(line);
    if (line || before) reply.pointHead(line?.head ?? null);
    const text = line ? exactly(selection, panel, line) : null;
    if (!text) return reply.describe();
    if (status.dataset.text !== text) status.replaceChildren(make("span", "", text));
    status.dataset.text = text;
  };
  stage.addEventListener("pointermove", (event) => {
    const element = tokenOf(event);
    if (element) return event.pointerType === "touch" ? undefined : hover(focusOf(element));
    hover(null);
    point(event);
  });
  stage.addEventListener("pointerleave", () => {
    hover(null);
    if (line) {
      drawing.paint(null);
      reply.pointHead(null);
    }
    line = null;
    drawing.mark?.(null);
    reply.describe();
  });
  stage.addEventListener("click", (event) => {
    const element = tokenOf(event);
    const cell = element ? null : drawing.hit(event);
    if (!element && !(drawing.map && cell)) return point(event); // a finger does not hover
    const { side, tokens } = element ? focusOf(element) : { side: "query", tokens: [cell.query] };
    reply.choose(panel.nth, side, tokens[0], event.shiftKey || event.ctrlKey || event.metaKey);
  });
}

/** @param {Selection} selection */
function exactly(selection, panel, { query, key, head, weight, hidden }) {
  const { texts } = selection.header;
  /** @type {any} */
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
