// One Tab stop for a row of controls: arrow keys walk through it, Home and End go to its ends (the toolbar pattern of
// the ARIA Authoring Practices). Where the row wraps, up and down go to the nearest control of the next line.

import { claim, elementsIn, treeOf } from "./elements.js";

/** @type {WeakSet<HTMLElement>} that listen already */
const rows = new WeakSet();

/**
 * Called again when the row has other controls.
 * @param {HTMLElement} row
 * @param {string} [selector] what is walked in it
 */
export function oneTabStop(row, selector = "button, summary") {
  const all = () => elementsIn(row, selector);
  const stops = () => all().filter((one) => !one.matches(":disabled") && !one.closest("[hidden]"));
  /** @param {EventTarget | null | undefined} stop */
  const stand = (stop) => {
    for (const one of all()) one.tabIndex = one === stop ? 0 : -1;
  };
  const { activeElement } = treeOf(row);
  const now = stops();
  const pressed = now.find((one) => one.matches('[aria-pressed="true"], [aria-expanded="true"]'));
  stand(now.find((one) => one === activeElement) ?? pressed ?? now[0]);
  if (rows.has(row)) return;
  rows.add(row);
  row.addEventListener("focusin", ({ target }) => stops().some((one) => one === target) && stand(target));
  row.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = stepFrom(stops(), /** @type {HTMLElement} */ (event.target), event.key);
    if (!next) return;
    claim(event);
    next.focus();
  });
}

// Where a key leads from one of the stops; undefined for nowhere.
/** @param {HTMLElement[]} stops @param {HTMLElement} from @param {string} key */
function stepFrom(stops, from, key) {
  const at = stops.indexOf(from);
  if (at < 0) return undefined;
  const onward = getComputedStyle(from).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  if (key === "ArrowRight" || key === "ArrowLeft") return stops[at + (key === onward ? 1 : -1)];
  if (key === "Home" || key === "End") return stops.at(key === "Home" ? 0 : -1);
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  /** @param {HTMLElement} stop */
  const box = (stop) => stop.getBoundingClientRect();
  const own = box(from);
  const beyond = stops.filter((stop) =>
    key === "ArrowUp" ? box(stop).bottom <= own.top : box(stop).top >= own.bottom,
  );
  /** @param {HTMLElement} stop */
  const away = (stop) => [Math.abs(box(stop).top - own.top), Math.abs(box(stop).left - own.left)];
  return beyond.toSorted((a, b) => away(a)[0] - away(b)[0] || away(a)[1] - away(b)[1])[0];
}
