// Streamlit writes some words by itself, always in English: "Upload", "Choose an option". Here they become those of the
// reader's language, where Streamlit draws them and nowhere else: a sentence may have the same words. Where they are
// drawn is in pages/_server/streamlit_parts.py.
import { fill } from "../page/wording.js";

const ATTRIBUTES = ["aria-label", "title", "placeholder", "alt", "data-title"];
const WATCHED = { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES };

/**
 * @typedef {Record<string, [string, string][]>} Words by the selector of a place: the text to replace and the one that
 *   takes its place; both may have {placeholders}
 * @typedef {{ form: RegExp, names: string[], text: string }} Replacement
 */

/** @type {Words} */
let active = {};
/** @type {[string, Replacement[]][]} */
let places = [];
/** @type {MutationObserver | undefined} */
let observer;

/** @param {Words} words none for English */
export function replaceOwnWords(words) {
  if (JSON.stringify(words) === JSON.stringify(active)) return;
  /** @type {Words} */
  const back = {};
  for (const [place, texts] of Object.entries(active)) back[place] = texts.map(([english, text]) => [text, english]);
  for (const one of [back, words]) {
    places = Object.entries(one).map(([place, texts]) => [place, texts.map((pair) => replacement(...pair))]);
    translate(document.body);
  }
  active = words;
  observer ??= new MutationObserver(retranslate);
  if (places.length) observer.observe(document.body, WATCHED);
  else observer.disconnect();
}

/** @param {MutationRecord[]} records */
function retranslate(records) {
  for (const { type, target, addedNodes } of records)
    for (const node of type === "childList" ? addedNodes : [target]) translate(node);
}

/** @param {string} from @param {string} text @returns {Replacement} */
function replacement(from, text) {
  /** @type {string[]} */
  const names = [];
  /** @type {string[]} */
  const form = [];
  for (const [at, piece] of from.split(/\{(\w+)\}/).entries()) {
    if (at % 2) names.push(piece);
    form.push(at % 2 ? "(.+)" : piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  }
  return { form: new RegExp(`^${form.join("")}$`, "s"), names, text };
}

/** @param {Node} node that is new or has changed */
function translate(node) {
  const element = node instanceof Element ? node : node.parentElement;
  if (!(element instanceof HTMLElement)) return; // a chart adds thousands of SVG elements one by one
  const every = places.map(([place]) => place).join(", ");
  if (!every || !(element.closest(every) || element.querySelector(every))) return;
  for (const [place, replacements] of places)
    for (const root of element.closest(place) ? [element] : element.querySelectorAll(place))
      translateWithin(root, replacements);
}

/** @param {Element} root @param {Replacement[]} replacements */
function translateWithin(root, replacements) {
  for (const element of [root, ...root.querySelectorAll("*")]) {
    for (const name of ATTRIBUTES) {
      const now = element.getAttribute(name);
      const then = now && replaced(now, replacements);
      if (then) element.setAttribute(name, then);
    }
    for (const child of element.childNodes) {
      const then = child instanceof Text && replaced(child.data, replacements);
      if (then) child.data = then;
    }
  }
}

/** @param {string} words @param {Replacement[]} replacements */
function replaced(words, replacements) {
  for (const { form, names, text } of replacements) {
    const found = form.exec(words.trim());
    if (!found) continue;
    const fields = Object.fromEntries(names.map((name, at) => [name, found[at + 1]]));
    return words.replace(words.trim(), () => fill(text, fields));
  }
  return null;
}
