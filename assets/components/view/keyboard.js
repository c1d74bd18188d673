// Keys on a drawing: arrows walk, Shift adds, Esc lets go, H and L walk heads and layers.

import { listOf } from "../numbers/panel.js";
import { isRtl } from "../page/wording.js";
import { zoomByKey } from "../pictures/zoom.js";
import { nextHead } from "../scene/focus.js";

/**
 * @param {import("./head_view.js").HeadView} view
 * @param {KeyboardEvent} event
 */
export function pressKey(view, event) {
  const nth = Number(/** @type {HTMLElement} */ (event.target).dataset?.panel ?? NaN);
  if (Number.isNaN(nth) || event.ctrlKey || event.metaKey || event.altKey) return;
  const done = obey(view, event.key, nth, event.shiftKey);
  if (!done) return;
  event.preventDefault();
  event.stopPropagation(); // Streamlit has keys of its own
}

function obey(view, key, nth, more) {
  const panel = view.data[nth];
  const flat = view.state.drawing === "arcs" || view.state.drawing === "text";
  const side = view.pinned?.[nth]?.side ?? view.state.side;
  const tokens = listOf(panel, side);
  const against = flat && isRtl(tokens) ? -1 : 1;
  const steps = { ArrowDown: 1, ArrowUp: -1, ArrowRight: against, ArrowLeft: -against };
  // Two lists stand beside each other as columns, or one below the other as texts.
  const over = {
    lines: { ArrowLeft: "query", ArrowRight: "key" },
    text: panel.two ? { ArrowUp: "query", ArrowDown: "key" } : {},
  };
  const to = over[view.state.drawing]?.[key];
  if (to) {
    view.pin(nth, { side: to, tokens: [Math.min(view.at?.token ?? 0, listOf(panel, to).length - 1)] });
    view.drawings[nth].drawing.reveal(view.at.token);
  } else if (key in steps) {
    const start = view.pinned?.[nth] ? (view.at?.token ?? 0) + steps[key] : (view.at?.token ?? 0);
    const token = Math.min(Math.max(start, 0), tokens.length - 1);
    const held = more && view.pinned?.[nth]?.side === side ? view.pinned[nth].tokens : [];
    view.pin(nth, { side, tokens: [...new Set([...held, token])].sort((a, b) => a - b) });
    view.at = { nth, token };
    view.drawings[nth].drawing.reveal(token);
  } else if (key === "Home" || key === "End") {
    const token = key === "Home" ? 0 : tokens.length - 1;
    view.pin(nth, { side, tokens: [token] });
    view.drawings[nth].drawing.reveal(token);
  } else if (key === "Escape") view.pin(nth, null);
  else if (key === "h" || key === "H") view.lookAtHead(nextHead(view.on, view.every, key === "h" ? 1 : -1));
  else if (key === "l" || key === "L") view.toLayer(view.state.layer + (key === "l" ? 1 : -1));
  else if (!view.drawings[nth].drawing.map || !zoomByKey(view.drawings[nth].drawing.map, key)) return false;
  view.hover = null;
  view.update();
  return true;
}
