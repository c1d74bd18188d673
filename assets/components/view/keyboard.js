// Keys on a drawing: arrows move to the next token, Shift adds it, Esc closes an enlarged matrix, then unpins, H and L
// step through heads and layers, N through the peaks of a row.

import { listOf } from "../numbers/panel.js";
import { claim } from "../page/elements.js";
import { arrowOf } from "../page/radios.js";
import { isRtl } from "../page/wording.js";
import { zoomByKey } from "../pictures/zoom.js";
import { nextHead } from "../scene/focus.js";

/** @typedef {import("./head_view.js").HeadView} HeadView */

/**
 * Whether the key on the drawing of sentence `nth` is one of these; then the selection has moved.
 * @param {HeadView} view
 * @param {KeyboardEvent} event
 * @param {number} nth
 */
export function pressKey(view, event, nth) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (!handleKey(view, event, nth)) return false;
  view.selection.hover = null;
  claim(event);
  return true;
}

/** @param {HeadView} view @param {KeyboardEvent} event @param {number} nth */
function handleKey(view, event, nth) {
  const { key, shiftKey } = event;
  const { selection } = view;
  const { drawing } = view.drawings[nth];
  const panel = selection.panels[nth];
  const { drawing: name, layer } = selection.state;
  const pinned = selection.pinned?.[nth];
  const at = selection.at.token;
  const side = pinned?.side ?? selection.state.side;
  const tokens = listOf(panel, side);
  const against = (name === "arcs" || name === "text") && isRtl(tokens) ? -1 : 1;
  const arrow = arrowOf(event);
  // Two lists stand beside each other as columns, or one below the other as texts.
  /** @type {Record<string, Record<string, import("../numbers/panel.js").Side>>} */
  const over = {
    lines: { ArrowLeft: "query", ArrowRight: "key" },
    text: panel.two ? { ArrowUp: "query", ArrowDown: "key" } : {},
  };
  const to = over[name]?.[key];
  if (to) {
    selection.pin(nth, { side: to, tokens: [Math.min(at, listOf(panel, to).length - 1)] });
    drawing.reveal(selection.at.token);
  } else if (arrow) {
    const by = pinned ? arrow[0] + against * arrow[1] : 0;
    const token = Math.min(Math.max(at + by, 0), tokens.length - 1);
    const held = shiftKey && pinned?.side === side ? pinned.tokens : [];
    selection.pin(nth, { side, tokens: [...new Set([...held, token])].sort((a, b) => a - b) });
    selection.at = { nth, token };
    drawing.reveal(token);
  } else if (key === "Home" || key === "End") {
    const token = key === "Home" ? 0 : tokens.length - 1;
    selection.pin(nth, { side, tokens: [token] });
    drawing.reveal(token);
  } else if (key === "Escape") {
    if (!view.matrices.gallery.closeLast()) selection.pin(nth, null);
  } else if (key === "h" || key === "H")
    view.toHead(nextHead(new Set(selection.heads), selection.every, key === "h" ? 1 : -1));
  else if (key === "l" || key === "L") view.toLayer(layer + (key === "l" ? 1 : -1));
  else if (key === "n" && drawing.nextPeak) drawing.nextPeak();
  else return drawing.map ? zoomByKey(drawing.map, key) : false;
  return true;
}
