// The words of a sentence, large, one of which is chosen: by a click, by the arrow keys, or by Enter.
import { make, makeButton } from "../page/elements.js";
import { isolated, isRtl } from "../page/wording.js";

/**
 * The words of a sentence, and those that look at them, one of which a question is about.
 * @typedef {{ words: string[], queries: string[], query: number }} QuestionSentence
 */

/**
 * @param {string[]} words
 * @param {{ title: string, chosen: number, choose: (at: number) => void, marked?: number, note?: string }} how `marked`
 * is the word that looks, and `note` says so below it
 */
export function wordRow(words, { title, chosen, choose, marked = -1, note = "" }) {
  const row = make("div", "words");
  row.setAttribute("role", "radiogroup");
  row.setAttribute("aria-label", title);
  row.dir = isRtl(words) ? "rtl" : "ltr";
  const buttons = words.map((word, at) => {
    const button = makeButton("", "word", () => pick(at));
    button.setAttribute("role", "radio");
    button.append(make("bdi", "", word));
    if (at === marked) {
      button.classList.add("looking");
      button.append(make("span", "note", note));
    }
    return button;
  });
  const pick = oneOf(row, buttons, { chosen, choose });
  return row;
}

/**
 * Buttons of a row of which one is chosen by the arrow keys; returns what chooses one.
 * @param {HTMLElement} row
 * @param {HTMLElement[]} buttons
 * @param {{ chosen: number, choose: (at: number) => void }} how
 */
export function oneOf(row, buttons, { chosen, choose }) {
  /** @param {number} now */
  const show = (now) =>
    buttons.forEach((button, at) => {
      button.setAttribute("aria-checked", String(at === now));
      button.tabIndex = at === Math.max(now, 0) ? 0 : -1;
    });
  /** @param {number} at */
  const pick = (at) => {
    show(at);
    choose(at);
  };
  row.append(...buttons);
  show(chosen);
  row.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(/** @type {HTMLElement} */ (event.target));
    const to = wordAfter(event, now, buttons.length, row.dir === "rtl");
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has keys of its own
    buttons[to].focus();
    pick(to);
  });
  return pick;
}

/**
 * @param {KeyboardEvent} event
 * @param {number} now
 * @param {number} count
 * @param {boolean} rtl
 */
function wordAfter({ key, ctrlKey, metaKey, altKey }, now, count, rtl) {
  if (now < 0 || ctrlKey || metaKey || altKey) return null;
  const against = rtl ? -1 : 1;
  /** @type {Record<string, number>} */
  const steps = { ArrowRight: against, ArrowLeft: -against, ArrowDown: 1, ArrowUp: -1 };
  const by = steps[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return by ? Math.min(Math.max(now + by, 0), count - 1) : null;
}

/** @param {string} word */
export const quoted = (word) => `“${isolated(word)}”`;
