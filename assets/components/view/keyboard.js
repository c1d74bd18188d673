// Keys on a drawing: arrows move to the next token, Shift adds it, Esc closes an enlarged matrix, then unpins, H and L
// step through heads and layers, N through the peaks of a row.

import { listOf } from "../numbers/panel.js";
import { isRtl } from "../page/wording.js";
import { zoomByKey } from "../pictures/zoom.js";
import { nextHead } from "../scene/focus.js";

/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../pictures/drawing.js").SentenceDrawing} SentenceDrawing */
/**
 * `close` says whether a matrix was enlarged.
 * @typedef {{ toHead: (head: number) => void, toLayer: (number: number) => void, close: () => boolean }} Ways
 */

/**
 * Whether the key on the drawing of sentence `nth` is one of these; then the selection has moved.
 * @param {KeyboardEvent} event
 * @param {Selection} selection
 * @param {number} nth
 * @param {SentenceDrawing} drawing
 * @param {Ways} ways
 */
export function pressKey(event, selection, nth, drawing, ways) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (!handleKey(event, selection, nth, drawing, ways)) return false;
  selection.hover = null;
  event.preventDefault();
  event.stopPropagation(); // Streamlit has keys of its own
  return true;
}

/**
 * @param {KeyboardEvent} event
 * @param {Selection} selection
 * @param {number} nth
 * @param {SentenceDrawing} drawing
 * @param {Ways} ways
 */
function handleKey({ key, shiftKey }, selection, nth, drawing, ways) {
  const panel = selection.panels[nth];
  const { drawing: name, layer } = selection.state;
  const pinned = selection.pinned?.[nth];
  const at = selection.at.token;
  const side = pinned?.side ?? selection.state.side;
  const tokens = listOf(panel, side);
  const against = (name === "arcs" || name === "text") && isRtl(tokens) ? -1 : 1;
  /** @type {Record<string, number>} */
  const steps = { ArrowDown: 1, ArrowUp: -1, ArrowRight: against, ArrowLeft: -against };
  // Two lists stand beside each other as columns, or one below the other as texts.
  /** @type {Record<string, Record<string, Side>>} */
  const over = {
    lines: { ArrowLeft: "query", ArrowRight: "key" },
    text: panel.two ? { ArrowUp: "query", ArrowDown: "key" } : {},
  };
  const to = over[name]?.[key];
  if (to) {
    selection.pin(nth, { side: to, tokens: [Math.min(at, listOf(panel, to).length - 1)] });
    drawing.reveal(selection.at.token);
  } else if (key in steps) {
    const token = Math.min(Math.max(pinned ? at + steps[key] : at, 0), tokens.length - 1);
    const held = shiftKey && pinned?.side === side ? pinned.tokens : [];
    selection.pin(nth, { side, tokens: [...new Set([...held, token])].sort((a, b) => a - b) });
    selection.at = { nth, token };
    drawing.reveal(token);
  } else if (key === "Home" || key === "End") {
    const token = key === "Home" ? 0 : tokens.length - 1;
    selection.pin(nth, { side, tokens: [token] });
    drawing.reveal(token);
  } else if (key === "Escape") {
    if (!ways.close()) selection.pin(nth, null);
  } else if (key === "h" || key === "H")
    ways.toHead(nextHead(new Set(selection.heads), selection.every, key === "h" ? 1 : -1));
  else if (key === "l" || key === "L") ways.toLayer(layer + (key === "l" ? 1 : -1));
  else if (key === "n" && drawing.nextPeak) drawing.nextPeak();
  else return drawing.map ? zoomByKey(drawing.map, key) : false;
  return true;
}
