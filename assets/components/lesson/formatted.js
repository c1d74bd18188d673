// The texts of lessons have marks for emphasis; all else in them is literal.
import { make } from "../page/elements.js";

const MARKED = /\*\*(.+?)\*\*|\*(.+?)\*/gu;

// **strong** and *emphasized* words of a text.
/** @template {keyof HTMLElementTagNameMap} Name @param {Name} tag @param {string} className @param {string} text */
export function formatted(tag, className, text) {
  const parts = [];
  let from = 0;
  for (const { index, 0: whole, 1: strong, 2: slanted } of text.matchAll(MARKED)) {
    parts.push(text.slice(from, index), make(strong ? "strong" : "i", "", strong ?? slanted));
    from = index + whole.length;
  }
  return make(tag, className, ...parts, text.slice(from));
}
