// Elements of a page and of a drawing. Text is always set as text: no token can be taken for markup.
import { cleaned } from "./wording.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns a thing that must be there; if it is missing, the error names it.
 * @template Thing
 * @param {Thing | null | undefined} thing
 * @param {string} name
 * @returns {Thing}
 */
export function required(thing, name) {
  if (thing === null || thing === undefined) throw new Error(`There is no ${name}.`);
  return thing;
}

/**
 * The first element inside another one that a selector finds.
 * @param {ParentNode} parent
 * @param {string} selector
 * @returns {HTMLElement}
 */
export function elementIn(parent, selector) {
  return required(/** @type {HTMLElement | null} */ (parent.querySelector(selector)), selector);
}

/**
 * All elements inside another one that a selector finds.
 * @param {ParentNode} parent
 * @param {string} selector
 */
export const elementsIn = (parent, selector) => /** @type {HTMLElement[]} */ ([...parent.querySelectorAll(selector)]);

/**
 * The element at which an event began; null for a document or a window.
 * @param {Event} event
 */
export const targetOf = ({ target }) => (target instanceof Element ? target : null);

/**
 * The document or the component's own tree that an element is in.
 * @param {Node} node
 */
export const treeOf = (node) => /** @type {Document | ShadowRoot} */ (node.getRootNode());

/**
 * The drawing context of a canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export const penOf = (canvas, settings) => required(canvas.getContext("2d", settings), "context of a canvas");

/**
 * An element with these parts inside, less those that are empty.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {(Node | string | false | null | undefined)[]} parts
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function make(name, className = "", ...parts) {
  const element = document.createElement(name);
  if (className) element.className = className;
  for (const part of parts) if (part) element.append(part);
  return element;
}

/** @param {string} text @param {string} className @param {((event: MouseEvent) => void) | null} act */
export function makeButton(text, className, act) {
  const button = make("button", className, text);
  button.type = "button";
  button.onclick = act;
  return button;
}

// A button that is on or off.
/** @param {string} text @param {string} className @param {boolean} on @param {((event: MouseEvent) => void) | null} act */
export function makeToggle(text, className, on, act) {
  return Object.assign(makeButton(text, className, act), { ariaPressed: String(on) });
}

/**
 * A field in which one of several values is chosen.
 * @param {string} label
 * @param {string[]} values
 * @param {string | undefined} chosen
 * @param {(value: string) => void} act
 */
export function makeChoice(label, values, chosen, act, wordOf = (/** @type {string} */ value) => value) {
  const select = make("select");
  select.append(...values.map((value) => new Option(wordOf(value), value, false, value === chosen)));
  select.onchange = () => act(select.value);
  return make("label", "", make("span", "", label), select);
}

/**
 * A menu below a summary. It closes with Escape, and when something else is pressed or another menu opens.
 * @param {string} className
 * @param {(Node | string)[]} summary
 * @param {Element} inside
 */
export function makeMenu(className, summary, inside) {
  const name = make("summary", "", ...summary);
  const box = make("details", className, name, inside);
  box.name = "menu"; // of those in one tree one is open
  box.onkeydown = (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    name.focus();
  };
  /** @param {Event} event */
  const leave = (event) => {
    if (!event.composedPath().includes(box)) box.open = false;
  };
  // Not when it loses the keyboard: that would close it while `renew` replaces it, which crashes Chromium 156.
  box.addEventListener("toggle", () => {
    window[box.open ? "addEventListener" : "removeEventListener"]("pointerdown", leave, true);
  });
  return box;
}

// Text that is there already is not written again: the page would be laid out anew.
/** @param {Element} element @param {string} text */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A sentence in pieces, every other of which is emphasized.
/** @template {keyof HTMLElementTagNameMap} Name @param {Name} tag @param {string[]} pieces */
export const emphasized = (tag, pieces) =>
  make(tag, "", ...pieces.map((text, at) => (at % 2 ? make("em", "", text) : text)));

/**
 * An element with these words as its name, on hover and to screen readers.
 * @template {HTMLElement} Named
 * @param {Named} element
 * @param {string} words
 */
export const named = (element, words) => Object.assign(element, { title: words, ariaLabel: words });

// A link whose act stands in for following it; with Ctrl, Cmd or Shift it is followed elsewhere, as any link is.
/** @param {HTMLAnchorElement} link @param {() => void} act */
export function actInstead(link, act) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    act();
  });
}

// An event that a control of ours has answered: neither the browser nor Streamlit, which has keys of its own, answers it.
/** @param {Event} event */
export function claim(event) {
  event.preventDefault();
  event.stopPropagation();
}

// A link to another page of ours, in this tab.
/** @param {string} text @param {string} href */
export const makeLink = (text, href) => Object.assign(make("a", "", text), { href, target: "_self" });

/**
 * An element of an SVG drawing with these parts inside.
 * @param {string} name
 * @param {Record<string, string | number | boolean>} attributes
 * @param {(Node | string)[]} parts
 */
export function makeSvg(name, attributes, ...parts) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...parts.map((part) => (typeof part === "string" ? cleaned(part) : part)));
  return element;
}

/**
 * So many pixels of a page for a canvas, sharp on every screen; `ratio` of its own pixels for each of them.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function fit(canvas, width, height, ratio = window.devicePixelRatio || 1) {
  const [wide, high] = [width, height].map((side) => Math.max(1, Math.round(side * ratio)));
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  penOf(canvas).setTransform(ratio, 0, 0, ratio, 0, 0);
}

/**
 * New controls in place of old ones; the keyboard stays at the control where it was, and menus stay open.
 * @param {Element} container
 * @param {Element[]} elements
 */
export function renew(container, elements) {
  const controls = () => elementsIn(container, "a, button, input, select, summary");
  const { activeElement } = treeOf(container);
  const focused = controls().indexOf(/** @type {HTMLElement} */ (activeElement));
  const open = [...container.querySelectorAll("details")].map((menu) => menu.open);
  container.replaceChildren(...elements);
  container.querySelectorAll("details").forEach((menu, i) => {
    menu.open = open[i] ?? false;
  });
  controls()[focused]?.focus({ preventScroll: true });
}

/**
 * Fades the sides of a scrolled box where there is more to see, with a class for each side.
 * @param {HTMLElement} box
 */
export function fadeWhereMore(box) {
  const update = () => {
    box.classList.toggle("more-above", box.scrollTop > 1);
    box.classList.toggle("more-below", box.scrollTop + box.clientHeight < box.scrollHeight - 1);
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };
  box.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(box); // and at once
}
