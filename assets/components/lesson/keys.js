// Keys of a lesson, wherever on the page one is but in a control that has keys of its own: Enter locks; after the
// answer, and on a projector always, n and the right arrow lead on, the left arrow leads back.

import { treeOf } from "../page/elements.js";
import { KEY } from "../streamlit/adapter.js";

/** @type {{ lock?: (() => void) | null, go?: ((by: number) => void) | null, always?: boolean, locked?: boolean }} */
let ways = {};
let hears = false;

const OWN_KEYS = "input, textarea, select, [role=radio], [role=slider], [role=gridcell], [role=option], [role=listbox]";
const PRESSED = "a, button, summary, input, textarea, select";

/** @param {Partial<typeof ways>} more */
export function listen(more) {
  ways = { ...ways, ...more };
  if (hears) return;
  hears = true;
  window.addEventListener("keydown", press);
}

/** @param {KeyboardEvent} event */
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
  const target = event.composedPath()[0];
  const element = target instanceof Element ? target : document.body;
  const { lock, go, always, locked } = ways;
  if (event.key === "Enter") {
    const chosen = element.matches('[aria-checked="true"], [role=slider], [aria-selected="true"], [data-locks]');
    if (!lock || (element.matches(PRESSED) && !chosen)) return;
    event.preventDefault();
    lock();
    return;
  }
  if (!go || element.matches(OWN_KEYS)) return;
  /** @type {Record<string, number>} */
  const steps = { ArrowRight: 1, n: 1, ArrowLeft: -1 };
  const by = steps[event.key];
  if (!by || !(locked || (always && event.key !== "n"))) return;
  event.preventDefault();
  go(by);
}

// Whether the keyboard is nowhere, or at something that goes with the question that was asked before.
/** @param {HTMLElement} root */
export function losesKeyboard(root) {
  const { activeElement, body } = document;
  const tree = treeOf(root);
  const isHere = tree instanceof ShadowRoot ? activeElement === tree.host : root.contains(activeElement);
  return isHere || activeElement === body || Boolean(activeElement?.closest(`.${KEY}lesson_reveal`));
}
