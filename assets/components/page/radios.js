// A row of buttons of which one is chosen: one Tab stop, whose arrow keys choose (the radio group pattern of the ARIA
// Authoring Practices).
import { claim } from "./elements.js";

/** @type {Record<string, [down: number, right: number]>} */
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Where an arrow key leads that is pressed alone; null for another key, and with Ctrl, Cmd or Alt: that is the browser's.
/** @param {Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey">} event */
export const arrowOf = ({ key, ctrlKey, metaKey, altKey }) =>
  ctrlKey || metaKey || altKey ? null : (ARROWS[key] ?? null);

/**
 * @param {HTMLElement} row
 * @param {HTMLElement[]} buttons
 * @param {{ title: string, chosen: number, choose: (at: number, byKey: boolean) => void }} how
 */
export function oneOf(row, buttons, { title, chosen, choose }) {
  /** @param {number} now */
  const show = (now) =>
    buttons.forEach((button, at) => {
      button.ariaChecked = String(at === now);
      button.tabIndex = at === Math.max(now, 0) ? 0 : -1;
    });
  /** @param {number} at @param {boolean} byKey */
  const pick = (at, byKey) => {
    show(at);
    choose(at, byKey);
  };
  Object.assign(row, { role: "radiogroup", ariaLabel: title });
  buttons.forEach((button, at) => {
    Object.assign(button, { role: "radio", onclick: () => pick(at, false) });
  });
  row.append(...buttons);
  show(chosen);
  row.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(/** @type {HTMLElement} */ (event.target));
    const to = placeAfter(event, now, buttons.length, row.dir === "rtl");
    if (to === null) return;
    claim(event);
    buttons[to].focus();
    pick(to, true);
  });
}

// Where a key leads; null for nowhere.
/** @param {KeyboardEvent} event @param {number} now @param {number} count @param {boolean} rtl */
function placeAfter(event, now, count, rtl) {
  const { key, ctrlKey, metaKey, altKey } = event;
  if (now < 0 || ctrlKey || metaKey || altKey) return null;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const arrow = arrowOf(event);
  if (!arrow) return null;
  const [down, right] = arrow;
  return Math.min(Math.max(now + down + (rtl ? -right : right), 0), count - 1);
}
